import { App, Duration, Stack } from 'aws-cdk-lib';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { expect, it } from 'vitest';
import { COLLECTORS_MAX } from '../../functions/operator/collect-event.ts';
import { parseStackContext } from '../../infra/deployment.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { messagesOf } from '../settings/fixtures.ts';
import { PROPS } from './synthesis.ts';

const minimal = { baseUrl: 'https://service.example.com', routes: [{ name: 'all', template: 'a template' }] };
const account = '123456789012';
const keyArn = `arn:aws:kms:eu-central-1:${account}:key/theirs`;
const roleOf = (name: string, owner = account) => `arn:aws:iam::${owner}:role/${name}`;
const withoutResource = (resource: string) => `expected ${resource} as well, because`;
const NO_ROLE = 'expected the ARN of a role that IAM lets you change';

it.each<[object, string]>([
  [{ vpc: { id: 'my-vpc', subnetIds: ['subnet-0'] } }, 'vpc.id: expected the id of a VPC, got "my-vpc"'],
  [{ vpc: { id: 'vpc-0', subnetIds: [] } }, 'vpc.subnetIds: expected at least one subnet, got []'],
  [{ logRetentionDays: 2 }, 'logRetentionDays: expected one of 1, 3'],
  [{ inbox: 'a' }, 'inbox: unknown, expected only inboxBucket'],
  [
    { tags: { 'AWS:team': 'm' } },
    'tags.AWS:team: expected a name of at most 128 letters, digits, spaces and _.:/=+-@ that does not start with "aws:"',
  ],
  [{ tags: { team: 'm'.repeat(257) } }, 'tags.team: expected 1 to 256 letters, digits, spaces and _.:/=+-@, got "mmm'],
  [{ tags: { reviewed: '' } }, 'tags.reviewed: expected 1 to 256 letters, digits, spaces and _.:/=+-@, got ""'],
  [
    { tags: Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`tag${i}`, 'x'])) },
    'tags: expected at most 49, got 50',
  ],
  [
    { inboxKeyArn: keyArn },
    `inboxKeyArn: ${withoutResource('inboxBucket')} the key is its key; new resources are encrypted with encryptionKeyArn`,
  ],
  [{ resultsKeyArn: keyArn }, `resultsKeyArn: ${withoutResource('resultsBucket')}`],
  [{ ledgerKeyArn: keyArn }, `ledgerKeyArn: ${withoutResource('ledgerBucket')}`],
  [{ tokenKeyArn: keyArn }, `tokenKeyArn: ${withoutResource('tokenSecret')}`],
  [{ inboxAccount: account }, `inboxAccount: ${withoutResource('inboxBucket')}`],
  [
    { resultsAccount: account },
    `resultsAccount: ${withoutResource('resultsBucket')} the account is its owner; new resources belong to the account of the deployment`,
  ],
  [{ ledgerAccount: account }, `ledgerAccount: ${withoutResource('ledgerBucket')}`],
  [
    { inboxBucket: 'theirs', inboxAccount: 111111111111 },
    'inboxAccount: expected the 12 digits of an account, got 111111111111',
  ],
  [
    { inboxBucket: 'both', inboxAccount: account, resultsBucket: 'both' },
    'resultsAccount: expected the inboxAccount, because both are one bucket, but it is missing',
  ],
  [
    { tokenSecret: 'flows/token', tokenKeyArn: 'alias/theirs' },
    'tokenKeyArn: expected the ARN of a key, got "alias/theirs"',
  ],
  [{ tokenSecret: 'secret:token' }, 'tokenSecret: expected the name of a secret, or its ARN'],
  [
    { tokenSecret: `arn:aws:secretsmanager:eu-central-1:${account}:secret:token` },
    'tokenSecret: expected the name of a secret, or its ARN with the suffix, such as arn:aws:secretsmanager:eu-central-1:123456789012:secret:flows/token-AbCdEf, got "arn:',
  ],
  [{ account: '12345' }, 'account: expected the 12 digits of an account, got "12345"'],
  [{ region: 'Frankfurt' }, 'region: expected the name of a region, got "Frankfurt"'],
  [{ versionRetentionDays: 0 }, 'versionRetentionDays: expected a whole number from 1 to 3650, got 0'],
  [
    { versionRetentionDays: 35, ledgerBucket: 'their-ledger', resultsBucket: 'theirs' },
    'versionRetentionDays: expected only with a new ledger or new results; the versions of buckets of your own are yours to set',
  ],
  [
    { alarmEmail: 'ops@example.com', alarmTopicArn: `arn:aws:sns:eu-central-1:${account}:pages` },
    'alarmEmail: expected no alarmTopicArn as well',
  ],
  [{ account, viewerRoleArns: [roleOf('team/')] }, `viewerRoleArns[0]: ${NO_ROLE}`],
  [{ account, operatorRoleArns: ['Operator'] }, `operatorRoleArns[0]: ${NO_ROLE}, got "Operator"`],
  [
    { account, operatorRoleArns: [roleOf('aws-reserved/sso.amazonaws.com/AWSReservedSSO_Operator')] },
    `operatorRoleArns[0]: ${NO_ROLE}`,
  ],
  [
    { viewerRoleArns: [roleOf('Viewer')] },
    'viewerRoleArns: expected account as well, because the roles must belong to the account of the stack',
  ],
  [
    { account, uploaderRoleArns: [roleOf('Uploader', '111111111111')] },
    'uploaderRoleArns[0]: expected a role of the account 123456789012, because the policy of another one cannot be changed here',
  ],
])('the deployment %j is refused with what to write instead', (deployment, message) => {
  expect(() => parseStackContext({ ...minimal, deployment })).toThrow(`flowdrop.deployment.${message}`);
});

it.each<[unknown, readonly string[]]>([
  [undefined, ['flowdrop: expected an object with baseUrl and routes, such as']],
  [
    { ...minimal, deployment: { inboxBucket: 'one-bucket', resultsBucket: 'one-bucket' } },
    ['flowdrop.deployment: inbox and results are one bucket, one-bucket, so every result would become an upload'],
  ],
  ...['aws-models', 'ssm-models'].map((pipeline): [object, readonly string[]] => [
    { ...minimal, pipeline, deployment: { outputParameters: true } },
    [
      `flowdrop.deployment: outputParameters with the pipeline ${pipeline}: Systems Manager refuses names of parameters`,
    ],
  ]),
  // All issues in one error, those of the functions and those of the deployment.
  [
    {
      baseUrl: 'http://service.example.com',
      settings: { attemptsMax: 0 },
      deployment: { maxConcurrency: 1, collectors: 65, batchWindowSeconds: 301, removalPolicy: 'keep', vpc: 'mine' },
    },
    [
      'flowdrop.baseUrl: expected https:, or http: on a loopback host, got http://service.example.com',
      'flowdrop.routes: expected a list of 1 to 200 routes, but it is missing',
      'flowdrop.settings.attemptsMax: expected a whole number of attempts from 1 to 100, got 0',
      'flowdrop.deployment.vpc: expected an object, got "mine"',
      'flowdrop.deployment.removalPolicy: expected "retain" or "destroy", got "keep"',
      'flowdrop.deployment.maxConcurrency: expected a whole number from 2 to 1000, got 1',
      'flowdrop.deployment.batchWindowSeconds: expected a whole number from 0 to 300, got 301',
      'flowdrop.deployment.collectors: expected a whole number from 1 to 64, got 65',
    ],
  ],
])('the context %j is refused', (context, expected) => {
  expect(messagesOf(() => parseStackContext(context))).toEqual(
    expected.map((message) => expect.stringContaining(message)),
  );
});

const bucketOf = (stack: Stack, of: object) =>
  Bucket.fromBucketAttributes(stack, 'Theirs', { bucketName: 'theirs', ...of });
const elsewhere = { region: 'eu-west-1' };
const ELSEWHERE = 'expected a bucket in the region eu-central-1 of the stack, got one in eu-west-1';
const NO_PLACE_FOR_LOGS =
  'accessLogsBucket: expected a bucket in account 111111111111 and region eu-central-1, got one in';

it.each<[string, (stack: Stack) => Partial<FlowPipelineProps>, readonly string[]]>([
  [
    'numbers out of their range, all in one error',
    () => ({
      name: 'Not This',
      baseUrl: 'http://service.example.com',
      settings: { attemptsMax: 0 },
      maxConcurrency: 1,
      batchWindow: Duration.minutes(6),
      collectors: COLLECTORS_MAX + 1,
      versionRetention: Duration.hours(36),
    }),
    [
      '.pipeline: expected a name ',
      '.baseUrl: expected https:, ',
      '.settings.attemptsMax: expected a whole number of attempts from 1 to 100, got 0',
      '.maxConcurrency: expected a whole number from 2 to 1000, got 1',
      '.batchWindow in seconds: expected a whole number from 0 to 300, got 360',
      `.collectors: expected a whole number from 1 to ${COLLECTORS_MAX}, got ${COLLECTORS_MAX + 1}`,
      '.versionRetention in days: expected a whole number from 1 to 3650, got 1.5',
    ],
  ],
  [
    'one bucket without prefixes',
    (stack) => ({ inboxBucket: bucketOf(stack, {}), resultsBucket: bucketOf(new Stack(stack, 'Other'), {}) }),
    [': inbox and results are one bucket'],
  ],
  [
    'an inbox in another region',
    (stack) => ({ inboxBucket: bucketOf(stack, elsewhere) }),
    [`.inboxBucket: ${ELSEWHERE}`],
  ],
  [
    'results in another region',
    (stack) => ({ resultsBucket: bucketOf(stack, elsewhere) }),
    [`.resultsBucket: ${ELSEWHERE}`],
  ],
  [
    'a ledger in another region',
    (stack) => ({ ledgerBucket: bucketOf(stack, elsewhere) }),
    [`.ledgerBucket: ${ELSEWHERE}`],
  ],
  [
    'access logs in another region',
    (stack) => ({ accessLogsBucket: bucketOf(stack, elsewhere) }),
    [`.${NO_PLACE_FOR_LOGS}`],
  ],
  [
    'access logs in another account',
    (stack) => ({ accessLogsBucket: bucketOf(stack, { account }) }),
    [`.${NO_PLACE_FOR_LOGS}`],
  ],
])('props are refused: %s', (_, props, expected) => {
  const stack = new Stack(new App(), 'test', { env: { account: '111111111111', region: 'eu-central-1' } });
  const messages = messagesOf(() => new FlowPipeline(stack, 'Pipeline', { ...PROPS, ...props(stack) }));
  expect(messages).toEqual(expected.map((message) => expect.stringContaining(`test/Pipeline${message}`)));
});
