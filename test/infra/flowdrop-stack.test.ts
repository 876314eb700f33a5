import type { App } from 'aws-cdk-lib';
import { Match } from 'aws-cdk-lib/assertions';
import { describe, expect, it } from 'vitest';
import { parseStackContext } from '../../infra/deployment.ts';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { messagesOf } from '../settings/fixtures.ts';
import { lineOf, permissionsOf } from './policies.ts';
import { CONTEXT, KEY_ARN, keyArnOf, synthesise } from './synthesis.ts';
import { resources } from './template.ts';

const minimal = { baseUrl: 'https://service.example.com', routes: [{ name: 'all', template: 'a template' }] };

const stackOf = (context: unknown) => (app: App) => new FlowdropStack(app, 'flowdrop', { context });
const deployed = (deployment: object) =>
  synthesise(stackOf({ ...minimal, deployment: { alarmEmail: 'ops@example.com', ...deployment } }));

const OUTPUTS = [
  'CollectFunction',
  'DeadLetterQueue',
  'Inbox',
  'Ledger',
  'Queue',
  'Results',
  'TokenSecret',
  'UploadMapping',
];

describe('the stack of cdk.json as it is shipped', () => {
  const { template, findings, messages } = synthesise(stackOf(CONTEXT.flowdrop));

  it('passes every check', () => {
    expect(findings).toEqual([]);
  });

  it('routes pictures, prompts and models, without overrides by uploaders', () => {
    const routes = resources(template, 'AWS::Lambda::Function').map(({ Environment }) =>
      JSON.parse(Environment.Variables.ROUTES),
    );
    expect(routes[0].map(({ template: name }: { template: string }) => name)).toEqual([
      'model_generate_fromimage',
      'model_generate_fromprompt',
      'model_optimize',
    ]);
    expect(JSON.stringify(routes)).not.toContain('overrides');
  });

  it('warns that the URL of the flow service is an example', () => {
    expect(messages.join('\n')).toContain('baseUrl is still the example, https://flows.example.com/');
  });

  it('warns that no one is notified of alarms', () => {
    expect(messages.join('\n')).toContain(
      'No one is notified of alarms. Set deployment.alarmEmail or deployment.alarmTopicArn',
    );
  });

  it('has outputs for its resources', () => {
    expect(Object.keys(template.findOutputs('*')).sort()).toEqual(OUTPUTS);
  });
});

describe('a route that is most likely a mistake', () => {
  it('is warned of, and not refused', () => {
    const routes = [{ name: 'pictures', template: 't', suffixes: ['png'], mediaTypes: ['image/jpg'] }];
    const { messages } = synthesise(stackOf({ ...minimal, routes }));
    expect(messages.join('\n')).toContain('routes[0].suffixes[0]: png also fits the end of a name such as mypng');
    expect(messages.join('\n')).toContain('Did you mean image/jpeg?');
  });
});

describe('the deployment in the context', () => {
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`tag${i}`, 'x']));

  it.each<[object, string]>([
    [{ vpc: { id: 'my-vpc', subnetIds: ['subnet-0'] } }, 'vpc.id: expected the id of a VPC, got "my-vpc"'],
    [{ vpc: { id: 'vpc-0', subnetIds: [] } }, 'vpc.subnetIds: expected at least one subnet, got []'],
    [{ logRetentionDays: 2 }, 'logRetentionDays: expected one of 1, 3'],
    [{ inbox: 'a' }, 'inbox: unknown, expected only inboxBucket'],
    [
      { tags: { 'AWS:team': 'models' } },
      'tags.AWS:team: expected a name of at most 128 letters, digits, spaces and _.:/=+-@ that does not start with "aws:"',
    ],
    [
      { tags: { team: 'm'.repeat(257) } },
      'tags.team: expected 1 to 256 letters, digits, spaces and _.:/=+-@, got "mmm',
    ],
    [{ tags: { reviewed: '' } }, 'tags.reviewed: expected 1 to 256 letters, digits, spaces and _.:/=+-@, got ""'],
    [{ tags: many }, 'tags: expected at most 49, got 50'],
    [
      { inboxKeyArn: KEY_ARN },
      'inboxKeyArn: expected inboxBucket as well, because the key is its key; new resources are encrypted with encryptionKeyArn',
    ],
    [
      { resultsAccount: '111111111111' },
      'resultsAccount: expected resultsBucket as well, because the account is its owner; new resources belong to the account of the deployment',
    ],
    [
      { inboxBucket: 'their-inbox', inboxAccount: 111111111111 },
      'inboxAccount: expected the 12 digits of an account, got 111111111111',
    ],
    [
      { inboxBucket: 'both', inboxAccount: '111111111111', resultsBucket: 'both' },
      'resultsAccount: expected the inboxAccount, because both are one bucket, but it is missing',
    ],
    [
      { tokenSecret: 'flows/token', tokenKeyArn: 'alias/theirs' },
      'tokenKeyArn: expected the ARN of a key, got "alias/theirs"',
    ],
    [
      { tokenSecret: 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:token' },
      'tokenSecret: expected the name of a secret, or its ARN with the suffix, such as arn:aws:secretsmanager:eu-central-1:123456789012:secret:flows/token-AbCdEf, got "arn:aws:secretsmanager:eu-central-1:123456789012:secret:token"',
    ],
    [{ account: '12345' }, 'account: expected the 12 digits of an account, got "12345"'],
    [{ region: 'Frankfurt' }, 'region: expected the name of a region, got "Frankfurt"'],
    [{ tokenSecret: 'secret:token' }, 'tokenSecret: expected the name of a secret, or its ARN'],
    [{ versionRetentionDays: 0 }, 'versionRetentionDays: expected a whole number from 1 to 3650, got 0'],
    [
      { versionRetentionDays: 35, ledgerBucket: 'their-ledger', resultsBucket: 'theirs' },
      'versionRetentionDays: expected only with a new ledger or new results; the versions of buckets of your own are yours to set',
    ],
    [
      { alarmEmail: 'ops@example.com', alarmTopicArn: 'arn:aws:sns:eu-central-1:123456789012:pages' },
      'alarmEmail: expected no alarmTopicArn as well',
    ],
  ])('%j is rejected with what to write instead', (deployment, message) => {
    expect(() => parseStackContext({ ...minimal, deployment })).toThrow(`flowdrop.deployment.${message}`);
  });

  it.each([
    ['resultsKeyArn', 'resultsBucket'],
    ['ledgerKeyArn', 'ledgerBucket'],
    ['tokenKeyArn', 'tokenSecret'],
    ['inboxAccount', 'inboxBucket'],
    ['ledgerAccount', 'ledgerBucket'],
  ])('is rejected with %s, but without %s', (fact, resource) => {
    const deployment = { [fact]: fact.endsWith('KeyArn') ? KEY_ARN : '111111111111' };
    expect(() => parseStackContext({ ...minimal, deployment })).toThrow(
      `flowdrop.deployment.${fact}: expected ${resource} as well`,
    );
  });

  it.each(['aws-models', 'ssm-models'])('is rejected with parameters of a name that is reserved: %s', (pipeline) => {
    const message = `flowdrop.deployment: outputParameters with the pipeline ${pipeline}: Systems Manager refuses names of parameters that begin with aws or ssm`;
    expect(() => parseStackContext({ ...minimal, pipeline, deployment: { outputParameters: true } })).toThrow(message);
    expect(() => parseStackContext({ ...minimal, pipeline })).not.toThrow();
  });

  it('is rejected if its buckets would make an upload of every result', () => {
    const deployment = { inboxBucket: 'one-bucket', resultsBucket: 'one-bucket' };
    expect(() => parseStackContext({ ...minimal, deployment })).toThrow(
      'flowdrop.deployment: inbox and results are one bucket, one-bucket, so every result would become an upload',
    );
  });
});

describe('the context', () => {
  it('that is missing is rejected with an example', () => {
    expect(() => parseStackContext(undefined)).toThrow('flowdrop: expected an object with baseUrl and routes, such as');
  });

  it('gets all issues in one error, those of the functions and those of the deployment', () => {
    const ranges = { maxConcurrency: 1, collectors: 65, batchWindowSeconds: 301 };
    const deployment = { ...ranges, removalPolicy: 'keep', vpc: 'mine' };
    const context = { baseUrl: 'http://service.example.com', settings: { attemptsMax: 0 }, deployment };
    expect(messagesOf(() => synthesise(stackOf(context)))).toEqual([
      'flowdrop.baseUrl: expected https:, or http: on a loopback host, got http://service.example.com',
      'flowdrop.routes: expected a list of 1 to 200 routes, but it is missing',
      'flowdrop.settings.attemptsMax: expected a whole number of attempts from 1 to 100, got 0',
      'flowdrop.deployment.vpc: expected an object, got "mine"',
      'flowdrop.deployment.removalPolicy: expected "retain" or "destroy", got "keep"',
      'flowdrop.deployment.maxConcurrency: expected a whole number from 2 to 1000, got 1',
      'flowdrop.deployment.batchWindowSeconds: expected a whole number from 0 to 300, got 301',
      'flowdrop.deployment.collectors: expected a whole number from 1 to 64, got 65',
    ]);
  });
});

describe('the account and the region of the deployment', () => {
  const PLACE = { account: '123456789012', region: 'eu-central-1' };
  /** Makes synth print every statement that it can print. */
  const PRINTING = { encryptionKeyArn: KEY_ARN, accessLogsBucket: 'their-logs' };
  const printedOf = (deployment: object) =>
    deployed(deployment).messages.flatMap((message) => /Add this statement to it: (\{.*\})/.exec(message)?.[1] ?? []);

  it('are those of the stack, so that it is deployed nowhere else', () => {
    const place = (deployment: object) => {
      let env: object = {};
      synthesise((app) => {
        const stack = stackOf({ ...minimal, deployment })(app);
        env = { environment: stack.environment };
        return stack;
      });
      return env;
    };
    expect(place(PLACE)).toEqual({ environment: 'aws://123456789012/eu-central-1' });
    expect(place({})).toEqual({ environment: 'aws://unknown-account/unknown-region' });
  });

  it('are in the statements that synth prints, so that these can be pasted', () => {
    const printed = printedOf({ ...PLACE, ...PRINTING });
    expect(printed).toHaveLength(4);
    for (const statement of printed) expect(statement).not.toMatch(/"Ref"|Fn::|<|Token/);
    expect(printed.map((each) => JSON.parse(each))).toContainEqual(
      expect.objectContaining({
        Principal: { Service: 'logs.eu-central-1.amazonaws.com' },
        Condition: {
          ArnLike: {
            'kms:EncryptionContext:aws:logs:arn':
              'arn:aws:logs:eu-central-1:123456789012:log-group:/aws/lambda/flowdrop-*',
          },
        },
      }),
    );
    expect(printed.map((each) => JSON.parse(each))).toContainEqual({
      Action: 's3:PutObject',
      Condition: { StringEquals: { 'aws:SourceAccount': '123456789012' } },
      Effect: 'Allow',
      Principal: { Service: 'logging.s3.amazonaws.com' },
      Resource: 'arn:aws:s3:::their-logs/flowdrop/Pipeline/*',
    });
  });

  it('are words in these statements, such as <account>, if they are not given', () => {
    const printed = printedOf(PRINTING);
    expect(printed).toHaveLength(4);
    for (const statement of printed) expect(statement).not.toMatch(/"Ref"|Fn::/);
    expect(printed.join('\n')).toContain('"aws:SourceAccount":"<account>"');
    expect(printed.join('\n')).toContain('"Service":"logs.<region>.amazonaws.com"');
    expect(printed.join('\n')).toContain('arn:<partition>:s3:::their-logs/flowdrop/Pipeline/*');
  });

  it('pass every check', () => {
    expect(deployed(PLACE).findings).toEqual([]);
  });
});

describe('the roles of the deployment', () => {
  const account = '123456789012';
  const roleOf = (name: string, owner = account) => `arn:aws:iam::${owner}:role/${name}`;
  const { template, findings } = deployed({
    alarmEmail: undefined,
    account,
    region: 'eu-central-1',
    viewerRoleArns: [roleOf('teams/Viewer')],
    operatorRoleArns: [roleOf('Operator')],
    uploaderRoleArns: [roleOf('Uploader'), roleOf('teams/Viewer')],
  });
  const actionsOf = (role: string) => permissionsOf(template, role).map(({ action }) => action);

  it('may view, operate and upload as they are named, in one policy for each role', () => {
    expect(findings).toEqual([]);
    expect(new Set(actionsOf('Uploader'))).toEqual(
      new Set(['s3:AbortMultipartUpload', 's3:ListMultipartUploadParts', 's3:PutObject']),
    );
    const operates = ['lambda:InvokeFunction', 'lambda:UpdateEventSourceMapping'];
    expect(actionsOf('Operator')).toEqual(expect.arrayContaining([...operates, 's3:PutObject', 's3:GetObject']));
    expect(actionsOf('Viewer')).toEqual(expect.arrayContaining(['cloudwatch:DescribeAlarms', 's3:PutObject']));
    for (const action of operates) expect(actionsOf('Viewer')).not.toContain(action);
    const granted = resources(template, 'AWS::IAM::Policy').map(({ Roles }) => JSON.stringify(Roles));
    for (const role of ['Uploader', 'Operator', 'Viewer'])
      expect(granted.filter((roles) => roles.includes(`"${role}"`))).toHaveLength(1);
  });

  it('are told apart by their names, which are unique in an account, whatever their paths', () => {
    const viewerRoleArns = [roleOf('team/Viewer'), roleOf('team--Viewer')];
    const both = deployed({ account, viewerRoleArns, uploaderRoleArns: [roleOf('Viewer')] });
    const granted = resources(both.template, 'AWS::IAM::Policy').map(({ Roles }) => Roles[0]);
    expect(granted.filter((role) => typeof role === 'string')).toEqual(['Viewer', 'team--Viewer']);
    expect(both.findings).toEqual([]);
  });

  it.each<[object, string]>([
    [
      { account, viewerRoleArns: [roleOf('team/')] },
      'viewerRoleArns[0]: expected the ARN of a role that IAM lets you change',
    ],
    [
      { viewerRoleArns: [roleOf('Viewer')] },
      'viewerRoleArns: expected account as well, because the roles must belong to the account of the stack',
    ],
    [
      { account, uploaderRoleArns: [roleOf('Uploader', '111111111111')] },
      'uploaderRoleArns[0]: expected a role of the account 123456789012, because the policy of another one cannot be changed here',
    ],
    [
      { account, operatorRoleArns: ['Operator'] },
      'operatorRoleArns[0]: expected the ARN of a role that IAM lets you change, got "Operator"',
    ],
    [
      { account, operatorRoleArns: [roleOf('aws-reserved/sso.amazonaws.com/AWSReservedSSO_Operator')] },
      'operatorRoleArns[0]: expected the ARN of a role that IAM lets you change',
    ],
  ])('%j are rejected with what to write instead', (deployment, message) => {
    expect(() => parseStackContext({ ...minimal, deployment })).toThrow(`flowdrop.deployment.${message}`);
  });
});

describe('a deployment', () => {
  it('sends alarms to an email address', () => {
    const { template, messages } = deployed({});
    template.hasResourceProperties('AWS::SNS::Subscription', { Protocol: 'email', Endpoint: 'ops@example.com' });
    template.allResourcesProperties('AWS::CloudWatch::Alarm', {
      AlarmActions: [{ Ref: Match.stringLikeRegexp('^Alarms') }],
    });
    const allowed = { Effect: 'Allow', Principal: { Service: 'cloudwatch.amazonaws.com' }, Action: 'sns:Publish' };
    template.hasResourceProperties('AWS::SNS::TopicPolicy', {
      PolicyDocument: { Statement: Match.arrayWith([Match.objectLike(allowed)]) },
    });
    expect(messages.join()).not.toContain('No one is notified');
  });

  it('sends alarms to topics of your own, and not to an address as well', () => {
    const topic = (name: string) => `arn:aws:sns:eu-central-1:123456789012:${name}`;
    const topics = { alarmTopicArn: topic('pages'), ticketTopicArn: topic('tickets') };
    const { template } = deployed({ alarmEmail: undefined, ...topics });
    const actions = resources(template, 'AWS::CloudWatch::Alarm').flatMap(({ AlarmActions }) => AlarmActions);
    expect(new Set(actions)).toEqual(new Set(Object.values(topics)));
  });

  it('is protected from deletion, and has its outputs as parameters, only if that is set', () => {
    const protectedAndRead = (deployment: object) => {
      let isProtected: boolean | undefined;
      const { template } = synthesise((app) => {
        const stack = stackOf({ ...minimal, deployment })(app);
        isProtected = stack.terminationProtection;
        return stack;
      });
      return [
        isProtected,
        resources(template, 'AWS::SSM::Parameter')
          .map(({ Name }) => Name)
          .sort(),
      ];
    };
    expect(protectedAndRead({})).toEqual([false, []]);
    expect(protectedAndRead({ terminationProtection: true, outputParameters: true })).toEqual([
      true,
      OUTPUTS.map((name) => `/flowdrop/${name}`),
    ]);
  });

  it('uses the existing resources that it names', () => {
    const { template, findings } = deployed({
      inboxBucket: 'their-inbox',
      resultsBucket: 'their-results',
      tokenSecret: 'flows/token',
      eventBusArn: 'arn:aws:events:eu-central-1:123456789012:event-bus/theirs',
      vpc: { id: 'vpc-01234567', subnetIds: ['subnet-01234567', 'subnet-89abcdef'], securityGroupIds: ['sg-01234567'] },
      permissionsBoundaryArn: 'arn:aws:iam::123456789012:policy/boundary',
      logRetentionDays: 3,
      removalPolicy: 'destroy',
      maxConcurrency: 9,
      batchWindowSeconds: 20,
      collectors: 2,
      versionRetentionDays: 10,
      tags: { team: 'models' },
    });
    expect(findings).toEqual([]);
    template.resourceCountIs('AWS::S3::Bucket', 1);
    template.resourceCountIs('AWS::SecretsManager::Secret', 0);
    template.allResourcesProperties('AWS::Lambda::Function', {
      VpcConfig: { SubnetIds: ['subnet-01234567', 'subnet-89abcdef'], SecurityGroupIds: ['sg-01234567'] },
      Environment: {
        Variables: {
          INBOX_BUCKET: 'their-inbox',
          RESULTS_BUCKET: 'their-results',
          EVENT_BUS: 'arn:aws:events:eu-central-1:123456789012:event-bus/theirs',
        },
      },
      Tags: Match.arrayWith([{ Key: 'team', Value: 'models' }]),
    });
    template.allResourcesProperties('AWS::IAM::Role', {
      PermissionsBoundary: 'arn:aws:iam::123456789012:policy/boundary',
    });
    template.allResourcesProperties('AWS::Logs::LogGroup', { RetentionInDays: 3 });
    template.allResources('AWS::S3::Bucket', { DeletionPolicy: 'Delete' });
    template.allResourcesProperties('AWS::S3::Bucket', { VersioningConfiguration: { Status: 'Enabled' } });
    template.resourceCountIs('AWS::Scheduler::Schedule', 2);
    template.hasResourceProperties('AWS::Lambda::EventSourceMapping', {
      MaximumBatchingWindowInSeconds: 20,
      ScalingConfig: { MaximumConcurrency: 9 },
    });
    expect(permissionsOf(template, 'CreateFlowRole').map(lineOf).join('\n')).toContain('s3:GetObject their-inbox/*');
  });

  it.each(['flow-secret', 'api-tokens', 'flows/token'])(
    'asks for a secret by its name as it is, which no part of an ARN could be mistaken for: %s',
    (tokenSecret) => {
      const { template } = deployed({ tokenSecret });
      for (const { Environment } of resources(template, 'AWS::Lambda::Function'))
        expect(Environment.Variables.TOKEN_SECRET_ID).toBe(tokenSecret);
      template.hasOutput('TokenSecret', { Value: tokenSecret });
      for (const role of ['CreateFlowRole', 'CollectOutputsRole']) {
        expect(permissionsOf(template, role).map(lineOf)).toContain(
          `secretsmanager:GetSecretValue secret:${tokenSecret}-??????`,
        );
      }
    },
  );

  it('asks for a secret by its ARN if the ARN is given', () => {
    const tokenSecret = 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:flow-secret-AbCdEf';
    const { template } = deployed({ tokenSecret });
    for (const { Environment } of resources(template, 'AWS::Lambda::Function'))
      expect(Environment.Variables.TOKEN_SECRET_ID).toBe(tokenSecret);
  });

  it.each([
    ['the account of the stack', undefined, []],
    ['another account', '111111111111', ['arn:aws:iam::111111111111:root']],
  ])('lets the owner of the inbox send its events to the bus: %s', (_, inboxAccount, expected) => {
    const place = { account: '123456789012', region: 'eu-central-1' };
    const { template, findings } = deployed({ ...place, inboxBucket: 'their-inbox', inboxAccount });
    expect(findings).toEqual([]);
    const statements = resources(template, 'AWS::Events::EventBusPolicy').map(({ Statement }) => Statement);
    expect(statements).toEqual(
      expected.map((AWS) => ({
        Effect: 'Allow',
        Principal: { AWS },
        Action: 'events:PutEvents',
        Resource: 'arn:aws:events:eu-central-1:123456789012:event-bus/default',
      })),
    );
  });

  it('has one lifecycle rule for each prefix of the ledger, whatever is kept for how long', () => {
    const rulesOf = (days: number | 'forever', versionRetentionDays?: number) => {
      const context = { ...minimal, settings: { ledgerRetentionDays: days }, deployment: { versionRetentionDays } };
      const { template } = synthesise(stackOf(context));
      const ledger = resources(template, 'AWS::S3::Bucket').find(({ id }) => id.includes('Ledger'));
      return ledger?.LifecycleConfiguration.Rules.filter(({ Prefix }: { Prefix?: string }) => Prefix !== undefined);
    };
    const Status = 'Enabled';
    const versions = (NoncurrentDays: number) => ({ NoncurrentVersionExpiration: { NoncurrentDays } });
    const markers = ['running/', 'waiting/', 'state/'].map((Prefix) => ({
      Prefix,
      Status,
      ...versions(1),
      ExpiredObjectDeleteMarker: true,
    }));
    expect(rulesOf(400, 35)).toEqual([
      { Prefix: 'uploads/', Status, ...versions(35), ExpirationInDays: 400 },
      { Prefix: 'failed/', Status, ...versions(1), ExpirationInDays: 400 },
      ...markers,
    ]);
    expect(rulesOf('forever', 35)).toEqual([
      { Prefix: 'uploads/', Status, ...versions(35), ExpiredObjectDeleteMarker: true },
      { Prefix: 'failed/', Status, ...versions(1), ExpiredObjectDeleteMarker: true },
      ...markers,
    ]);
    expect(rulesOf(400)).toEqual([
      { Prefix: 'uploads/', Status, ExpirationInDays: 400 },
      { Prefix: 'failed/', Status, ExpirationInDays: 400 },
    ]);
    expect(rulesOf('forever')).toEqual([]);
  });

  it('uses buckets of other accounts as long as those own them', () => {
    const { template } = deployed({
      inboxBucket: 'their-inbox',
      inboxAccount: '111111111111',
      resultsBucket: 'their-results',
      resultsAccount: '222222222222',
      ledgerBucket: 'their-ledger',
      ledgerAccount: '333333333333',
    });
    for (const role of ['CreateFlowRole', 'CollectOutputsRole']) {
      const owned = permissionsOf(template, role)
        .filter(({ action }) => action.startsWith('s3:'))
        .map(({ resource, conditions }) => [
          resource.split(/[:/]+/)[3],
          conditions.StringEquals?.['aws:ResourceAccount'],
        ]);
      expect(new Set(owned.map(String))).toEqual(
        new Set(['their-inbox,111111111111', 'their-results,222222222222', 'their-ledger,333333333333']),
      );
    }
  });

  it.each(['flows/token', 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:flows/token-AbCdEf'])(
    'lets the functions use each key for its resource only: with the secret %s',
    (tokenSecret) => {
      const { template, findings } = deployed({
        inboxBucket: 'their-inbox',
        inboxKeyArn: keyArnOf('inbox-key'),
        resultsBucket: 'their-results',
        resultsKeyArn: keyArnOf('results-key'),
        ledgerBucket: 'their-ledger',
        ledgerKeyArn: keyArnOf('ledger-key'),
        tokenSecret,
        tokenKeyArn: keyArnOf('token-key'),
      });
      expect(findings).toEqual([]);
      const used = (role: string) =>
        permissionsOf(template, role)
          .filter(({ action }) => action.startsWith('kms:'))
          .map(({ action, resource }) => `${action} ${resource}`)
          .sort();
      expect(used('CreateFlowRole')).toEqual([
        `kms:Decrypt ${keyArnOf('inbox-key')}`,
        `kms:Decrypt ${keyArnOf('ledger-key')}`,
        `kms:Decrypt ${keyArnOf('results-key')}`,
        `kms:Decrypt ${keyArnOf('token-key')}`,
        `kms:GenerateDataKey ${keyArnOf('ledger-key')}`,
        `kms:GenerateDataKey ${keyArnOf('results-key')}`,
      ]);
      expect(used('CollectOutputsRole')).toEqual([
        `kms:Decrypt ${keyArnOf('ledger-key')}`,
        `kms:Decrypt ${keyArnOf('results-key')}`,
        `kms:Decrypt ${keyArnOf('token-key')}`,
        `kms:GenerateDataKey ${keyArnOf('ledger-key')}`,
        `kms:GenerateDataKey ${keyArnOf('results-key')}`,
      ]);
    },
  );

  it.each([
    ['a new inbox', {}, ['"cloudwatch.amazonaws.com"', '"s3.amazonaws.com"', '"logs.<region>.amazonaws.com"']],
    [
      'an existing inbox',
      { inboxBucket: 'their-inbox' },
      ['"cloudwatch.amazonaws.com"', '"events.amazonaws.com"', '"logs.<region>.amazonaws.com"'],
    ],
  ])('with an existing key and %s warns once for each service that its policy must name', (_, inbox, services) => {
    const { findings, messages } = deployed({ encryptionKeyArn: KEY_ARN, ...inbox });
    expect(findings).toEqual([]);
    const warnings = messages.filter((message) =>
      message.startsWith('This app cannot change the policy of the encryption key'),
    );
    expect(warnings).toHaveLength(3);
    for (const service of services) expect(warnings.join()).toContain(service);
    expect(warnings.join()).toContain('["kms:Decrypt","kms:GenerateDataKey*"]');
  });
});
