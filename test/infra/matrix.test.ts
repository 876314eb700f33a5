import { Duration, RemovalPolicy, type Stack, Validations } from 'aws-cdk-lib';
import { SecurityGroup } from 'aws-cdk-lib/aws-ec2';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { ManagedPolicy } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { describe, expect, it } from 'vitest';
import { readConfiguration } from '../../infra/configuration.ts';
import { parseStackContext } from '../../infra/deployment.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { folderWith } from '../support/folder.ts';
import {
  bucketsOf,
  defaultPipeline,
  existingKey,
  existingVpc,
  KEY_ARN,
  keyArnOf,
  oneBucket,
  type Synthesis,
  synthesise,
  synthesisePipeline,
} from './synthesis.ts';
import { resources } from './template.ts';

type Option = (stack: Stack) => Partial<FlowPipelineProps>;

/** A bucket of the app. CDK cannot change the policy of an imported one, and warns of that. */
const accessLogsBucket = (stack: Stack) => {
  const bucket = new Bucket(stack, 'AccessLogs', { enforceSSL: true });
  Validations.of(bucket).acknowledge({ id: 'AwsSolutions-S1', reason: 'It is the bucket for access logs.' });
  return bucket;
};

/** Every prop with every kind of value. The kinds of one element exclude each other. */
const OPTIONS: readonly Readonly<Record<string, Option>>[] = [
  { tracing: () => ({ tracing: true }) },
  {
    'an existing ledger': (stack) => ({ ledgerBucket: Bucket.fromBucketName(stack, 'Ledger', 'their-ledger') }),
    'a ledger of another account': (stack) => ({
      ledgerBucket: Bucket.fromBucketAttributes(stack, 'Ledger', { bucketName: 'far-ledger', account: '111111111111' }),
    }),
  },
  {
    'a topic for tickets': (stack) => ({
      ticketTopic: Topic.fromTopicArn(stack, 'Tickets', 'arn:aws:sns:eu-central-1:123456789012:tickets'),
    }),
  },
  {
    'an existing inbox': (stack) => ({ inboxBucket: Bucket.fromBucketName(stack, 'Inbox', 'existing-inbox') }),
    'an existing inbox and existing results, with a key': (stack) => {
      const encryptionKey = existingKey(stack, keyArnOf('their-key'));
      const bucket = (name: string) => Bucket.fromBucketAttributes(stack, name, { bucketName: name, encryptionKey });
      return { inboxBucket: bucket('their-inbox'), resultsBucket: bucket('their-results') };
    },
    'one bucket for inbox and results': oneBucket,
    'an inbox and results of another account': bucketsOf('111111111111'),
    'existing results': (stack) => ({ resultsBucket: Bucket.fromBucketName(stack, 'Results', 'their-results') }),
    'prefixes in new buckets': () => ({ settings: { inboxPrefix: 'a/b/', resultsPrefix: 'c/' } }),
  },
  {
    'a key of the app': (stack) => ({ encryptionKey: new Key(stack, 'Key', { enableKeyRotation: true }) }),
    'an existing key': (stack) => ({ encryptionKey: existingKey(stack) }),
  },
  {
    'a secret given by its name': (stack) => ({ tokenSecret: Secret.fromSecretNameV2(stack, 'Secret', 'flows/token') }),
    'a secret with a key': (stack) => ({
      tokenSecret: Secret.fromSecretAttributes(stack, 'Secret', {
        secretPartialArn: 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:token',
        encryptionKey: existingKey(stack, keyArnOf('token-key')),
      }),
    }),
    'a secret given by its ARN': (stack) => ({
      tokenSecret: Secret.fromSecretCompleteArn(
        stack,
        'Secret',
        'arn:aws:secretsmanager:eu-central-1:123456789012:secret:token-AbCdEf',
      ),
    }),
  },
  {
    'a VPC': existingVpc,
    'a VPC and a security group': (stack) => ({
      ...existingVpc(stack),
      securityGroups: [SecurityGroup.fromSecurityGroupId(stack, 'Group', 'sg-01234567', { mutable: false })],
    }),
  },
  {
    'a permissions boundary': (stack) => ({
      permissionsBoundary: ManagedPolicy.fromManagedPolicyName(stack, 'Boundary', 'boundary'),
    }),
  },
  { 'access logs': (stack) => ({ accessLogsBucket: accessLogsBucket(stack) }) },
  { 'an event bus': (stack) => ({ eventBus: EventBus.fromEventBusName(stack, 'Bus', 'theirs') }) },
  { 'EventBridge events of new buckets': () => ({ s3Events: true }) },
  { 'short log retention': () => ({ logRetention: RetentionDays.ONE_DAY }) },
  { 'removal with the stack': () => ({ removalPolicy: RemovalPolicy.DESTROY }) },
  { 'high concurrency': () => ({ maxConcurrency: 1000, collectors: 64 }) },
  { 'a batching window': () => ({ batchWindow: Duration.minutes(5) }) },
  { 'versions of ledger and results': () => ({ versionRetention: Duration.days(35) }) },
  { 'a runbook elsewhere': () => ({ runbookUrl: 'https://wiki.example.com/flowdrop' }) },
  {
    'an imported topic for alarms': (stack) => ({
      alarmTopic: Topic.fromTopicArn(stack, 'Topic', 'arn:aws:sns:eu-central-1:123456789012:t'),
    }),
    'a topic of the app without subscription': (stack) => ({
      alarmTopic: new Topic(stack, 'Topic', { enforceSSL: true }),
    }),
  },
  {
    'routes too long for the environment': () => ({
      routes: Array.from({ length: 100 }, (_, i) => ({
        name: `route ${i}`,
        suffixes: [`.${i}`],
        template: 'a template',
      })),
    }),
  },
  { 'another name': () => ({ name: 'another-name-of-forty-characters-at-most' }) },
  { 'an unusual port': () => ({ baseUrl: 'https://service.example.com:8443/v1' }) },
];

const arn = (service: string, resource: string) => `arn:aws:${service}:eu-central-1:123456789012:${resource}`;

/** Settings that only the stack has, or that it treats in its own way. */
const SETTINGS: readonly Readonly<Record<string, object>>[] = [
  { alarmTopicArn: { alarmTopicArn: arn('sns', 'pages') }, alarmEmail: { alarmEmail: 'ops@example.com' } },
  { ticketTopicArn: { ticketTopicArn: arn('sns', 'tickets') } },
  { outputParameters: { outputParameters: true } },
  { terminationProtection: { terminationProtection: true } },
  { tags: { tags: { team: 'models' } } },
  { encryptionKeyArn: { encryptionKeyArn: KEY_ARN } },
  {
    'buckets of other accounts': {
      inboxBucket: 'far-inbox',
      inboxAccount: '111111111111',
      resultsBucket: 'far-results',
      resultsAccount: '222222222222',
    },
    'the buckets of an earlier deployment': {
      inboxBucket: 'old-inbox',
      resultsBucket: 'old-results',
      ledgerBucket: 'old-ledger',
    },
  },
];

/**
 * Rows in which each two settings meet on and off in all four ways, by the bits of the number of a setting and of a row.
 * A row takes the first kind of a setting or its last.
 */
const DEPLOYMENTS = [0, 1, 2, 3, 4, 5, 6, 7].map((row): [string, object] => {
  const bitsOf = (value: number) => value.toString(2).replaceAll('0', '').length;
  const chosen = SETTINGS.flatMap((kinds, index) => {
    if (bitsOf(row & (index + 1)) % 2 === 0) return [];
    const all = Object.entries(kinds);
    return [all[row % all.length] as [string, object]];
  });
  return [chosen.map(([name]) => name).join(', '), Object.assign({}, ...chosen.map(([, settings]) => settings))];
});

/** An app with two stages of one configuration, as `npm run deploy -- -c stage=` reads them. */
function stagesOf(deployment: object): Synthesis {
  const dir = folderWith({
    'flowdrop.json': { baseUrl: 'https://service.example.com', routes: [{ name: 'all', template: 't' }], deployment },
    'flowdrop.development.json': { settings: {} },
    'flowdrop.production.json': { settings: {} },
  });
  return synthesise((app) => {
    const [, last] = ['development', 'production'].map((stage) => {
      const context = readConfiguration({ dir, stage, context: undefined }).value;
      return new FlowdropStack(app, parseStackContext(context).context.pipeline, { context });
    });
    return last as FlowdropStack;
  });
}

const combine =
  (options: readonly Option[]): Option =>
  (stack) =>
    Object.assign({}, ...options.map((option) => option(stack)));

const alone = OPTIONS.flatMap((kinds) => Object.entries(kinds));
/** Each kind of each option with a kind of every other option, to find options that break each other. */
const together = alone.map(([name, option], index): [string, Option] => {
  const others = OPTIONS.filter((kinds) => !(name in kinds)).map((kinds) => {
    const all = Object.values(kinds);
    return all[index % all.length] as Option;
  });
  return [name, combine([option, ...others])];
});

describe('the checks at synth find nothing that is not acknowledged', () => {
  it('with defaults only', () => {
    expect(defaultPipeline().findings).toEqual([]);
  });

  it.each(alone)('with %s', (_, option) => {
    expect(synthesisePipeline(option).findings).toEqual([]);
  });

  it.each(together)('with %s and everything else', (_, option) => {
    expect(synthesisePipeline(option).findings).toEqual([]);
  });
});

describe('two stages of one configuration', () => {
  it.each(DEPLOYMENTS)('pass the checks at synth, with names of their own, with: %s', (_, deployment) => {
    const { template, findings } = stagesOf(deployment);
    expect(findings).toEqual([]);
    const named = JSON.stringify(template.toJSON());
    expect(named).toContain('flowdrop-production-create-flow');
    expect(named).not.toContain('flowdrop-development');
    for (const { Name } of resources(template, 'AWS::SSM::Parameter')) expect(Name).toMatch(/^\/flowdrop-production\//);
  });
});
