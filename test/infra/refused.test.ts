import { App, CfnParameter, Duration, Fn, Lazy, Stack } from 'aws-cdk-lib';
import { Vpc } from 'aws-cdk-lib/aws-ec2';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { Alias, Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { expect, it } from 'vitest';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { COLLECTORS_MAX } from '../../functions/operator/collect-event.ts';
import { parseStackContext } from '../../infra/deployment.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { messagesOf } from '../settings/fixtures.ts';
import { PROPS } from './synthesis.ts';

const account = '123456789012';
const keyArn = `arn:aws:kms:eu-central-1:${account}:key/theirs`;
const roleOf = (name: string, owner = account) => `arn:aws:iam::${owner}:role/${name}`;

const ROUTE = { name: 'pictures', suffixes: ['.png'], template: 't' };

const DEPLOYMENTS: readonly object[] = [
  { vpc: { id: 'my-vpc', subnetIds: ['subnet-0'] } },
  { vpc: { id: 'vpc-0', subnetIds: [] } },
  { vpc: { id: 'vpc-0', subnetIds: ['subnet-0'], securityGroupIds: [] } },
  { proxy: 'http://proxy.example.com:3128' },
  { proxy: { url: 'http://me:opensesame@proxy.example.com:3128' } },
  { proxy: { url: 'socks5://proxy.example.com' } },
  { proxy: { url: 'http://proxy.example.com:3128', noProxy: '.example.com' } },
  {
    proxy: { url: 'http://proxy.example.com:3128', noProxy: ['10.0.0.0/99', 'a b', 'https://a.example', '.a.example'] },
  },
  { notify: [{ url: 'http://hooks.example.com/flows' }, { url: 'https://me:opensesame@hooks.example.com' }] },
  { notify: [{ url: 'https://hooks.example.com/#a' }, { url: 'https://hooks.example.com/*' }, { url: 'hooks' }] },
  { notify: [{}, { url: 'https://hooks.example.com', queueArn: `arn:aws:sqs:eu-central-1:${account}:orders` }] },
  { notify: [{ queueArn: 'orders' }, { queueArn: `arn:aws:sqs:eu-central-1:${account}:orders.fifo` }] },
  { notify: [{ url: 'https://hooks.example.com', headerSecret: 'hooks/token' }] },
  {
    notify: [
      {
        queueArn: `arn:aws:sqs:eu-central-1:${account}:orders`,
        headerSecret: `arn:aws:secretsmanager:eu-central-1:${account}:secret:hooks-AbCdEf`,
      },
    ],
  },
  { notify: [{ url: 'https://hooks.example.com', events: ['Flow Ended', 'flow succeded'] }] },
  { notify: [{ url: 'https://hooks.example.com', events: [], header: 'X-Key' }] },
  { notify: Array.from({ length: 21 }, (_, i) => ({ url: `https://hooks.example.com/${i}` })) },
  { logRetentionDays: 2 },
  { inbox: 'a' },
  { runbookUrl: `https://wiki.example.com/${'r'.repeat(476)}` },
  { tags: { 'AWS:team': 'models', team: 'aws:models' } },
  { tags: { team: 'm'.repeat(257) } },
  { tags: { reviewed: '' } },
  { tags: { Owner: 'models', owner: 'models', 'Flowdrop:Pipeline': 'mine' } },
  { tags: Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`tag${i}`, 'x'])) },
  { inboxKeyArn: keyArn },
  { resultsKeyArn: keyArn },
  { ledgerKeyArn: keyArn },
  { tokenKeyArn: keyArn },
  { inboxAccount: account },
  { resultsAccount: account },
  { ledgerAccount: account },
  { inboxBucket: 'uploads-x1y2z3-s3alias', resultsBucket: 'results--euc1-az1--x-s3', ledgerBucket: 'm1y2z3.mrap' },
  { inboxBucket: 'theirs', inboxAccount: 111111111111 },
  { inboxBucket: 'both', inboxAccount: account, resultsBucket: 'both' },
  { inboxBucket: 'both', resultsBucket: 'both' },
  { tokenSecret: 'flows/token', tokenKeyArn: 'alias/theirs' },
  { tokenSecret: 'secret:token' },
  { tokenSecret: `arn:aws:secretsmanager:eu-central-1:${account}:secret:token` },
  { encryptionHeader: 'kms' },
  { account: '12345' },
  { region: 'Frankfurt' },
  { versionRetentionDays: 0 },
  { resultsRetentionDays: 0 },
  { resultsRetentionDays: 30, resultsBucket: 'theirs' },
  { versionRetentionDays: 35, ledgerBucket: 'their-ledger', resultsBucket: 'theirs' },
  { alarmEmail: 'ops@example.com', alarmTopicArn: `arn:aws:sns:eu-central-1:${account}:pages` },
  { account, viewerRoleArns: [roleOf('team/')] },
  { account, operatorRoleArns: ['Operator'] },
  { account, operatorRoleArns: [roleOf('aws-reserved/sso.amazonaws.com/AWSReservedSSO_Operator')] },
  { account, uploaderRoleArns: [roleOf('Uploader', '111111111111')] },
  { viewerRoleArns: [roleOf('Viewer')] },
];

const CONTEXTS: readonly unknown[] = [
  null,
  { ...PROPS, pipeline: 'aws-models', deployment: { outputParameters: true } },
  { ...PROPS, pipeline: 'ssm-models', deployment: { outputParameters: true } },
  // All issues in one error, those of the functions and those of the deployment.
  {
    baseUrl: 'http://service.example.com',
    settings: { attemptsMax: 0 },
    deployment: { maxConcurrency: 1, collectors: 65, batchWindowSeconds: 301, removalPolicy: 'keep', vpc: 'mine' },
  },
  // The same of issues between members, as far as the members have none themselves.
  {
    ...{ ...PROPS, pipeline: 'aws-models', routes: [ROUTE, { ...ROUTE, name: 'never' }, { ...ROUTE, template: '' }] },
    settings: { attemptsMax: 0, pollIntervalSeconds: 60, flowAgeMaxSeconds: 90 },
    deployment: {
      ...{ inboxBucket: 'both', resultsBucket: 'both', ledgerKeyArn: keyArn, logRetentionDays: 2 },
      outputParameters: true,
    },
  },
];

const bucketOf = (stack: Stack, of: object = {}) =>
  Bucket.fromBucketAttributes(stack, 'Theirs', { bucketName: 'theirs', ...of });
const elsewhere = (stack: Stack) => bucketOf(stack, { region: 'eu-west-1' });

const PROPERTIES: Readonly<Record<string, (stack: Stack) => Partial<FlowPipelineProps>>> = {
  'all issues in one error': () => ({
    name: 'Not This',
    baseUrl: 'http://service.example.com',
    settings: { attemptsMax: 0 },
    maxConcurrency: 1,
    batchWindow: Duration.minutes(6),
    collectors: COLLECTORS_MAX + 1,
    versionRetention: Duration.hours(36),
    proxy: { url: 'http://me:opensesame@proxy.example.com' },
    alarms: { 'flow-failed': false } as FlowPipelineProps['alarms'],
  }),
  'one bucket without prefixes': (stack) => {
    const both = bucketOf(stack);
    return { inboxBucket: both, resultsBucket: both };
  },
  'a later stage whose service fetches one version, in a bucket without versions': () => ({
    routes: [ROUTE, { name: 'smaller', after: 'pictures', template: 't' }],
    service: { ...FLOWS, create: { path: '/flows', body: { file: '{inputUrl}' }, id: '/id' } },
  }),
  'results that expire, in a bucket of another stack': (stack) => ({
    resultsBucket: bucketOf(stack),
    resultsRetention: Duration.days(30),
  }),
  'an inbox in another region': (stack) => ({ inboxBucket: elsewhere(stack) }),
  'results in another region': (stack) => ({ resultsBucket: elsewhere(stack) }),
  'a ledger in another region': (stack) => ({ ledgerBucket: elsewhere(stack) }),
  'a secret, a bus, a key and topics in another region': (stack) => {
    const arn = (service: string, resource: string) => `arn:aws:${service}:eu-west-1:111111111111:${resource}`;
    return {
      tokenSecret: Secret.fromSecretCompleteArn(stack, 'Secret', arn('secretsmanager', 'secret:token-AbCdEf')),
      eventBus: EventBus.fromEventBusArn(stack, 'Bus', arn('events', 'event-bus/theirs')),
      encryptionKey: Key.fromKeyArn(stack, 'Key', arn('kms', 'key/theirs')),
      alarmTopic: Topic.fromTopicArn(stack, 'Pages', arn('sns', 'pages')),
      ticketTopic: Topic.fromTopicArn(stack, 'Tickets', arn('sns', 'tickets')),
    };
  },
  'aliases in place of keys': (stack) => {
    const encryptionKey = Alias.fromAliasName(stack, 'Alias', 'alias/theirs');
    const secretCompleteArn = `arn:aws:secretsmanager:eu-central-1:111111111111:secret:token-AbCdEf`;
    return {
      encryptionKey: new Key(stack, 'Key').addAlias('alias/ours'),
      inboxBucket: bucketOf(stack, { encryptionKey }),
      tokenSecret: Secret.fromSecretAttributes(stack, 'Secret', { secretCompleteArn, encryptionKey }),
    };
  },
  "topics for alarms with AWS's own key": (stack) => {
    const masterKey = Alias.fromAliasName(stack, 'Alias', 'alias/aws/sns');
    const [alarmTopic, ticketTopic] = ['Pages', 'Tickets'].map((id) => new Topic(stack, id, { masterKey }));
    return { alarmTopic, ticketTopic };
  },
  'a header for SSE-S3, with buckets that have keys': (stack) => ({
    encryptionHeader: 'AES256',
    encryptionKey: Key.fromKeyArn(stack, 'Key', keyArn),
    ledgerBucket: bucketOf(stack),
  }),
  'a header for SSE-KMS, with a bucket of another account without its key': (stack) => ({
    encryptionHeader: 'aws:kms',
    resultsBucket: bucketOf(stack, { account }),
  }),
  'a header that no write has': () => ({ encryptionHeader: 'kms' as 'aws:kms' }),
  'access logs in another region': (stack) => ({ accessLogsBucket: elsewhere(stack) }),
  'a target that EventBridge does not reach, one in another region, and a bus of another account': (stack) => ({
    notify: [{ url: 'http://127.0.0.1:8000/' }, { queueArn: `arn:aws:sqs:eu-west-1:${account}:orders` }],
    eventBus: EventBus.fromEventBusArn(stack, 'Bus', `arn:aws:events:eu-central-1:${account}:event-bus/theirs`),
  }),
  'values that must be known at synth': (stack) => {
    const value = new CfnParameter(stack, 'Value').valueAsString;
    const { valueAsNumber } = new CfnParameter(stack, 'Number', { type: 'Number' });
    const list = new CfnParameter(stack, 'List', { type: 'CommaDelimitedList' }).valueAsList;
    const parameters = { [value]: 1, sizes: list, tone: Lazy.any({ produce: () => 1 }) as unknown as string };
    return {
      baseUrl: value,
      routes: [
        { ...ROUTE, prefixes: [`${value}/`], alias: `models/${value}/{name}{ext}`, parameters },
        { ...ROUTE, name: value, mediaTypes: list, deadlineSeconds: valueAsNumber },
      ],
      settings: { inboxPrefix: Fn.importValue('prefix'), attemptsMax: valueAsNumber },
    };
  },
  'other properties that must be known at synth': (stack) => {
    const value = new CfnParameter(stack, 'Value').valueAsString;
    const { valueAsNumber } = new CfnParameter(stack, 'Number', { type: 'Number' });
    return {
      proxy: { url: value },
      notify: [{ url: value }],
      encryptionHeader: value as 'AES256',
      maxConcurrency: valueAsNumber,
      batchWindow: Duration.seconds(valueAsNumber),
    };
  },
  'an address that must be known for a new security group': (stack) => ({
    baseUrl: new CfnParameter(stack, 'Value').valueAsString,
    vpc: new Vpc(stack, 'Vpc'),
  }),
  'targets that are wrong themselves': () => ({ notify: [{ url: 'ftp://hooks.example.com' }] }),
  'access logs in another account': (stack) => ({ accessLogsBucket: bucketOf(stack, { account }) }),
};

/** What is refused, with what the operator reads. */
function refused(): string {
  const contexts = [...DEPLOYMENTS.map((deployment) => ({ ...PROPS, deployment })), ...CONTEXTS];
  const all = contexts.map((context) => {
    const { deployment = context } = (context ?? {}) as { deployment?: unknown };
    return [JSON.stringify(deployment).slice(0, 160), messagesOf(() => parseStackContext(context))] as const;
  });
  const props = Object.entries(PROPERTIES).map(([name, propsOf]) => {
    const stack = new Stack(new App(), 'test', { env: { account: '111111111111', region: 'eu-central-1' } });
    return [name, messagesOf(() => new FlowPipeline(stack, 'Pipeline', { ...PROPS, ...propsOf(stack) }))] as const;
  });
  return [...all, ...props]
    .map(([what, messages]) => `${what}\n${messages.map((each) => `  ${each}\n`).join('')}`)
    .join('');
}

// After a review: vitest run test/infra/refused.test.ts --update
it('the configurations that synth refuses are refused with what to write instead', async () => {
  await expect(refused()).toMatchFileSnapshot('templates/refused.txt');
});

it('a name that Systems Manager keeps for itself is refused only if the outputs become parameters', () => {
  expect(messagesOf(() => parseStackContext({ ...PROPS, pipeline: 'aws-models' }))).toEqual([]);
});

/** A value in which lists and objects are nested so deeply. */
function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < depth; level += 2) value = [{ a: value }];
  return value;
}

it.each([5_000, 200_000])('properties nested %i deep are refused in words, with the place', (depth) => {
  const refusedWith = (props: object): readonly string[] => {
    const stack = new Stack(new App(), 'test', { env: { account, region: 'eu-central-1' } });
    return messagesOf(() => new FlowPipeline(stack, 'Pipeline', { ...PROPS, ...props }));
  };
  const deep = nested(depth);
  const said = 'expected something that JSON can say, nested at most 32 deep, got ';
  for (const [props, message] of [
    [{ routes: [{ ...ROUTE, parameters: { deep } }] }, `routes[0].parameters: ${said}`],
    [{ routes: [{ ...ROUTE, additional: { deep } }] }, `routes[0].additional.deep: ${said}`],
    [{ settings: { attemptsMax: deep } }, 'settings.attemptsMax: expected a whole number'],
    [{ settings: deep }, 'settings: expected an object'],
    [{ routes: deep }, 'routes[0].name: expected a name'],
  ] as const) {
    const [first = ''] = refusedWith(props);
    expect(first).toContain(message);
    expect(first.length).toBeLessThan(400);
  }
});

it('properties that JSON cannot say are refused in words', () => {
  const parameters: Record<string, unknown> = {};
  parameters.own = parameters;
  for (const [value, said] of [
    [parameters, /routes\[0\]\.parameters: expected something that JSON can say, nested at most 32 deep/],
    [{ seed: 1n }, /expected something that JSON can say: .*BigInt/],
  ] as const) {
    const stack = new Stack(new App(), 'test', { env: { account, region: 'eu-central-1' } });
    const routes = [{ ...ROUTE, parameters: value }] as unknown as FlowPipelineProps['routes'];
    expect(messagesOf(() => new FlowPipeline(stack, 'Pipeline', { ...PROPS, routes }))).toEqual([
      expect.stringMatching(said),
    ]);
  }
});
