import { type App, Stack } from 'aws-cdk-lib';
import { Vpc } from 'aws-cdk-lib/aws-ec2';
import { EventBus } from 'aws-cdk-lib/aws-events';
import type { Role } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { acknowledge } from '../../infra/constructs/acknowledge.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { CONTEXT, newRole, PROPS, type Synthesis, synthesise } from './synthesis.ts';

type Deployment = Readonly<Record<string, unknown>>;

export interface Configuration {
  readonly build: (app: App) => Stack;
  /** The part `deployment` of the context. */
  readonly deployment: Deployment;
  /** The whole context. Undefined if an app of its own has the pipeline. */
  readonly context?: unknown;
}

const context = (more: object = {}): object => ({
  baseUrl: PROPS.baseUrl,
  routes: [{ name: 'all', template: 'a template' }],
  ...more,
});
function deployed(deployment: Deployment, more: object = {}): Configuration {
  const whole = context({ ...more, deployment });
  return { build: (app) => new FlowdropStack(app, 'flowdrop', { context: whole }), deployment, context: whole };
}

const ACCOUNT = '123456789012';
const PLACE = { account: ACCOUNT, region: 'eu-central-1' };
const arn = (service: string, resource: string) => `arn:aws:${service}:eu-central-1:${ACCOUNT}:${resource}`;
const keyArnOf = (part: string) => arn('kms', `key/${part}`);
/** An existing key. The checks want such an id for the key of a new resource. */
const ENCRYPTION_KEY_ARN = keyArnOf('01234567-89ab-cdef-0123-456789abcdef');
const roleOf = (name: string) => `arn:aws:iam::${ACCOUNT}:role/${name}`;
/** A file that a pipeline puts again every hour, without the prefix of the inbox. */
export const CANARY_KEY = 'canary/robot.png';
const PREFIXES = { inboxPrefix: 'a/b/', resultsPrefix: 'c/' };

/** All resources that an app may bring, and all grants. */
function inAnotherApp(app: App): Stack {
  const stack = new Stack(app, 'test');
  const encryptionKey = new Key(stack, 'Key', { enableKeyRotation: true });
  const accessLogsBucket = new Bucket(stack, 'AccessLogs', { enforceSSL: true });
  acknowledge(accessLogsBucket, { id: 'AwsSolutions-S1', reason: 'It is the bucket for access logs.' });
  const pipeline = new FlowPipeline(stack, 'Pipeline', {
    ...PROPS,
    baseUrl: 'https://service.example.com:8443/v1/',
    settings: { ...PREFIXES, canaryKey: `${PREFIXES.inboxPrefix}${CANARY_KEY}` },
    encryptionKey,
    encryptionHeader: 'aws:kms:dsse',
    accessLogsBucket,
    eventBus: new EventBus(stack, 'Bus'),
    notify: [{ url: 'https://hooks.example.com/flows', events: ['Flow Failed'] }],
    alarmTopic: new Topic(stack, 'Topic', { enforceSSL: true, masterKey: encryptionKey }),
    proxy: { url: 'http://proxy.example.com:3128' },
    vpc: Vpc.fromVpcAttributes(stack, 'Vpc', {
      vpcId: 'vpc-01234567',
      availabilityZones: ['eu-central-1a'],
      privateSubnetIds: ['subnet-01234567'],
      privateSubnetRouteTableIds: ['rtb-01234567'],
    }),
  });
  const roles = ['Uploader', 'Reader', 'Forgetter'].map((id) => newRole(stack, id)) as [Role, Role, Role];
  pipeline.grantUpload(roles[0]);
  pipeline.grantReadResults(roles[1]);
  pipeline.grantForget(roles[2]);
  return stack;
}

/** Together these have every prop of a pipeline and every setting of a deployment. */
export const CONFIGURATIONS = {
  defaults: deployed({}),
  'cdk-json': {
    build: (app) => new FlowdropStack(app, 'flowdrop', { context: CONTEXT.flowdrop }),
    deployment: {},
    context: CONTEXT.flowdrop,
  },
  'every-number': deployed(
    {
      alarmEmail: 'ops@example.com',
      batchWindowSeconds: 20,
      collectors: 2,
      logRetentionDays: 3,
      maxConcurrency: 9,
      outputParameters: true,
      removalPolicy: 'destroy',
      s3Events: true,
      tags: { team: 'models' },
      terminationProtection: true,
      versionRetentionDays: 35,
    },
    {
      pipeline: 'models-production',
      settings: { ledgerRetentionDays: 400, flowAgeMaxSeconds: 3600, pollIntervalSeconds: 5, uploadConcurrency: 16 },
      service: 'replicate',
    },
  ),
  'existing-resources': deployed(
    {
      inboxBucket: 'their-inbox',
      inboxKeyArn: keyArnOf('inbox'),
      resultsBucket: 'their-results',
      resultsKeyArn: keyArnOf('results'),
      ledgerBucket: 'their-ledger',
      ledgerKeyArn: keyArnOf('ledger'),
      tokenSecret: arn('secretsmanager', 'secret:flow-secret-AbCdEf'),
      tokenKeyArn: keyArnOf('token'),
      encryptionKeyArn: ENCRYPTION_KEY_ARN,
      encryptionHeader: 'aws:kms',
      eventBusArn: arn('events', 'event-bus/theirs'),
      vpc: {
        id: 'vpc-01234567',
        // One is named twice.
        subnetIds: ['subnet-01234567', 'subnet-89abcdef', 'subnet-01234567'],
        securityGroupIds: ['sg-01234567', 'sg-01234567'],
      },
      proxy: { url: 'http://proxy.example.com:3128', noProxy: ['.internal.example.com', '10.0.0.0/8'] },
      permissionsBoundaryArn: `arn:aws:iam::${ACCOUNT}:policy/boundary`,
      alarmTopicArn: arn('sns', 'pages'),
      ticketTopicArn: arn('sns', 'tickets'),
      runbookUrl: 'https://wiki.example.com/flowdrop',
    },
    { settings: PREFIXES },
  ),
  'other-accounts': deployed({
    ...PLACE,
    inboxBucket: 'their-inbox',
    inboxAccount: '111111111111',
    resultsBucket: 'their-results',
    resultsAccount: '222222222222',
    ledgerBucket: 'their-ledger',
    ledgerAccount: '333333333333',
    // Secrets Manager would take the end of this name for the suffix of an ARN.
    tokenSecret: 'flow-secret',
    viewerRoleArns: [roleOf('teams/Viewer')],
    operatorRoleArns: [roleOf('Operator')],
    // The name of a role is unique in its account, whatever its path.
    uploaderRoleArns: [roleOf('Uploader'), roleOf('Viewer'), roleOf('teams--Viewer')],
  }),
  'one-bucket': deployed(
    {
      inboxBucket: 'their-bucket',
      resultsBucket: 'their-bucket',
      tokenSecret: 'flows/token',
      tokenKeyArn: keyArnOf('token'),
    },
    {
      // Most likely mistakes, which synth warns of.
      routes: [{ name: 'pictures', template: 't', suffixes: ['png'], mediaTypes: ['video/matroska'] }],
      settings: { ...PREFIXES, ledgerRetentionDays: 90 },
    },
  ),
  'existing-key': deployed({
    ...PLACE,
    encryptionKeyArn: ENCRYPTION_KEY_ARN,
    accessLogsBucket: 'their-logs',
    alarmEmail: 'ops@example.com',
    versionRetentionDays: 10,
  }),
  'long-routes': deployed(
    // Such names were allowed until March 2018.
    { accessLogsBucket: 'Their_Logs' },
    { routes: Array.from({ length: 100 }, (_, i) => ({ name: `route ${i}`, suffixes: [`.${i}`], template: 't' })) },
  ),
  'alarms-only': deployed(
    { monitoring: 'alarms', alarmEmail: 'ops@example.com' },
    { settings: { budget: { per: 'day', flows: 500 } } },
  ),
  unmonitored: deployed({ monitoring: 'none' }),
  chains: deployed(
    { resultsBucket: 'their-results', resultsKeyArn: keyArnOf('results') },
    {
      routes: [
        { name: 'draft', template: 't' },
        { name: 'refine', template: 't', after: 'draft' },
        { name: 'montage', template: 't', after: 'refine', inputs: 'all' },
      ],
    },
  ),
  retention: deployed(
    { resultsRetentionDays: 30, versionRetentionDays: 10, inboxBucket: 'their-inbox' },
    {
      routes: [
        { name: 'draft', template: 't' },
        { name: 'refine', template: 't', after: 'draft' },
      ],
      settings: { resultsPrefix: 'out/' },
    },
  ),
  'after-success': deployed(
    { inboxBucket: 'their-inbox' },
    {
      routes: [
        { name: 'tagged', template: 't', prefixes: ['a/'], afterSuccess: 'tag', alias: 'alias/{key}{ext}' },
        { name: 'deleted', template: 't', prefixes: ['b/'], afterSuccess: 'delete' },
      ],
    },
  ),
  notify: deployed({
    ...PLACE,
    operatorRoleArns: [roleOf('Operator')],
    alarmEmail: 'ops@example.com',
    notify: [
      { url: 'https://hooks.example.com/flows?v=1', events: ['Flow Failed', 'Failures Alike'] },
      { url: 'https://api.example.com/events', headerSecret: arn('secretsmanager', 'secret:hooks/token-AbCdEf') },
      { queueArn: arn('sqs', 'orders'), events: ['Chain Succeeded'] },
    ],
  }),
  'another-app': { build: inAnotherApp, deployment: {} },
} as const satisfies Readonly<Record<string, Configuration>>;

export type ConfigurationName = keyof typeof CONFIGURATIONS;
export const CONFIGURATION_NAMES = Object.keys(CONFIGURATIONS) as ConfigurationName[];

const made = new Map<string, Synthesis>();

/** A configuration as it is synthesised, once in each process, and once more if it is validated too. */
export function configured(name: ConfigurationName, isValidated = false): Synthesis {
  const key = `${name} ${isValidated}`;
  const known = made.get(key) ?? synthesise(CONFIGURATIONS[name].build, isValidated);
  made.set(key, known);
  return known;
}
