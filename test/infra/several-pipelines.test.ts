import { App, Stack, Stage } from 'aws-cdk-lib';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import type { Construct } from 'constructs';
import { expect, it } from 'vitest';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import { messagesOf } from '../settings/fixtures.ts';
import { PROPS } from './synthesis.ts';

const newApp = () => new App({ context: { 'aws:cdk:bundling-stacks': [] } });
const env = { account: '111111111111', region: 'eu-central-1' };

const TAKEN =
  'expected a name that no other pipeline of the account and region has, got flowdrop, which one/First has. ' +
  'Change one, or give their stacks different environments (env)';

/** What a second pipeline of the same name is refused with. */
function second(scopesOf: (app: App) => readonly [Construct, Construct]): readonly string[] {
  const [one, other] = scopesOf(newApp());
  new FlowPipeline(one, 'First', PROPS);
  return messagesOf(() => new FlowPipeline(other, 'Second', PROPS)).map((each) => each.replace(/^.*?: /, ''));
}

it.each<[string, (app: App) => readonly [Construct, Construct]]>([
  [
    'one stack',
    (app) => {
      const stack = new Stack(app, 'one');
      return [stack, stack];
    },
  ],
  ['stacks whose environment is unknown', (app) => [new Stack(app, 'one'), new Stack(app, 'other')]],
  ['stacks of one environment', (app) => [new Stack(app, 'one', { env }), new Stack(app, 'other', { env })]],
  [
    'stages of one environment',
    (app) => [new Stack(app, 'one', { env }), new Stack(new Stage(app, 'Stage', { env }), 'other')],
  ],
])('two pipelines of one name are refused in %s', (_, scopesOf) => {
  expect(second(scopesOf)).toEqual([TAKEN]);
});

it.each<[string, (app: App) => readonly [Construct, Construct]]>([
  [
    'regions',
    (app) => [new Stack(app, 'one', { env }), new Stack(app, 'other', { env: { ...env, region: 'eu-west-1' } })],
  ],
  [
    'stages whose environments are unknown',
    (app) => [new Stack(new Stage(app, 'Test'), 'one'), new Stack(new Stage(app, 'Production'), 'other')],
  ],
])('two pipelines of one name are taken in different %s', (_, scopesOf) => {
  expect(second(scopesOf)).toEqual([]);
});

it('a ledger for two pipelines is refused, wherever they are', () => {
  const app = newApp();
  const [one, other] = [new Stack(app, 'one'), new Stack(app, 'other', { env })];
  const first = new FlowPipeline(one, 'First', { ...PROPS, name: 'first' });
  const ledgers = [first.ledgerBucket, Bucket.fromBucketName(other, 'Ledger', 'theirs')];
  new FlowPipeline(other, 'Second', { ...PROPS, name: 'second', ledgerBucket: ledgers[1] });
  const refused = ledgers.flatMap((ledgerBucket, index) =>
    messagesOf(() => new FlowPipeline(one, `More${index}`, { ...PROPS, name: `more-${index}`, ledgerBucket })),
  );
  expect(refused).toEqual([
    'one/More0.ledgerBucket: expected a ledger of its own, got that of one/First',
    'one/More1.ledgerBucket: expected a ledger of its own, got that of other/Second',
  ]);
});
