import { Duration, RemovalPolicy, Stack } from 'aws-cdk-lib';
import { Match, type Template } from 'aws-cdk-lib/assertions';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { ManagedPolicy, Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { describe, expect, it } from 'vitest';
import { COLLECTORS_MAX, parseCollectEvent } from '../../functions/collect-outputs/collect-event.ts';
import { type Env, parseEnv } from '../../functions/settings/environment.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import { isAllowed, lineOf, permissionsOf } from './policies.ts';
import { PROPS, synthesise, synthesisePipeline, theirVpc } from './synthesis.ts';

const resources = (template: Template, type: string) =>
  Object.entries(template.findResources(type)).map(([id, { Properties, ...rest }]) => ({ id, ...rest, ...Properties }));

const only = <T>(all: readonly T[]): T => {
  expect(all).toHaveLength(1);
  return all[0] as T;
};

const environmentTemplateOf = (template: Template, name = 'CreateFlow'): Readonly<Record<string, unknown>> =>
  only(resources(template, 'AWS::Lambda::Function').filter(({ id }) => id.includes(name))).Environment.Variables;

/** The environment with what is known only once it is deployed replaced by something of its kind. */
function environmentOf(template: Template, name: string): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(environmentTemplateOf(template, name)).map(([key, value]) => {
      if (typeof value === 'string') return [key, value];
      const [argument] = Object.values(value as Record<string, string | string[]>);
      const id = [argument].flat().join('-');
      return [key, key === 'QUEUE_URL' ? `https://sqs.example.com/${id}` : id];
    }),
  );
}

const { template } = synthesisePipeline();

describe('a pipeline', () => {
  it('is three buckets, two queues, a secret, two schedules and two functions, with nothing that runs code to set it up', () => {
    template.resourceCountIs('AWS::S3::Bucket', 3);
    template.resourceCountIs('AWS::SQS::Queue', 2);
    template.resourceCountIs('AWS::SecretsManager::Secret', 1);
    template.resourceCountIs('AWS::Scheduler::Schedule', 2);
    template.resourceCountIs('AWS::Lambda::Function', 2);
    const types = Object.values(template.toJSON().Resources as Record<string, { readonly Type: string }>);
    expect(types.filter(({ Type }) => Type.startsWith('Custom::') || Type.includes('CustomResource'))).toEqual([]);
  });

  it.each([
    ['AWS::Lambda::Function', ['CreateFlow', 'CollectOutputs']],
    ['AWS::S3::Bucket', ['Inbox', 'Results', 'Ledger']],
  ])('has %s of names that tell what they are', (type, names) => {
    const ids = resources(template, type).map(({ id }) => id);
    for (const name of names) expect(ids.filter((id) => id.includes(name))).toHaveLength(1);
  });

  it('runs both functions on the newest Node, on arm64, from a bundle', () => {
    for (const lambda of resources(template, 'AWS::Lambda::Function')) {
      expect(lambda).toMatchObject({
        Runtime: 'nodejs24.x',
        Architectures: ['arm64'],
        Handler: 'index.handler',
        MemorySize: 512,
        Timeout: 900,
      });
      expect(lambda).not.toHaveProperty('ReservedConcurrentExecutions');
    }
  });

  it('can stand twice in one stack, under two names', () => {
    const { template: two } = synthesisePipeline({ name: 'first' }, (_, stack) => {
      new FlowPipeline(stack, 'Second', { ...PROPS, name: 'second' });
    });
    const names = resources(two, 'AWS::Lambda::Function').map(({ FunctionName }) => FunctionName);
    expect(names.sort()).toEqual([
      'first-collect-outputs',
      'first-create-flow',
      'second-collect-outputs',
      'second-create-flow',
    ]);
  });

  it('tags what it makes with its name, for the bill', () => {
    const tag = { Key: 'flowdrop:pipeline', Value: 'flowdrop' };
    for (const type of [
      'AWS::S3::Bucket',
      'AWS::Lambda::Function',
      'AWS::Logs::LogGroup',
      'AWS::SQS::Queue',
      'AWS::SecretsManager::Secret',
      'AWS::CloudWatch::Alarm',
    ]) {
      expect(resources(template, type)).not.toEqual([]);
      for (const { Tags } of resources(template, type)) expect(Tags).toContainEqual(tag);
    }
  });
});

describe('its buckets', () => {
  it('are encrypted, closed to the public, and refuse what does not come over TLS', () => {
    for (const { id, BucketEncryption, PublicAccessBlockConfiguration } of resources(template, 'AWS::S3::Bucket')) {
      expect(BucketEncryption).toBeDefined();
      expect(Object.values(PublicAccessBlockConfiguration)).toEqual([true, true, true, true]);
      template.hasResourceProperties('AWS::S3::BucketPolicy', {
        Bucket: { Ref: id },
        PolicyDocument: {
          Statement: Match.arrayWith([
            Match.objectLike({ Effect: 'Deny', Condition: { Bool: { 'aws:SecureTransport': 'false' } } }),
          ]),
        },
      });
    }
  });

  it('stay when the stack goes, unless told otherwise', () => {
    const policies = (of: Template) => resources(of, 'AWS::S3::Bucket').map(({ DeletionPolicy }) => DeletionPolicy);
    expect(policies(template)).toEqual(['Retain', 'Retain', 'Retain']);
    const { template: removed } = synthesisePipeline({ removalPolicy: RemovalPolicy.DESTROY });
    expect(policies(removed)).toEqual(['Delete', 'Delete', 'Delete']);
  });

  it('keep no half of an upload for long', () => {
    for (const { LifecycleConfiguration } of resources(template, 'AWS::S3::Bucket')) {
      expect(LifecycleConfiguration.Rules[0].AbortIncompleteMultipartUpload.DaysAfterInitiation).toBeLessThanOrEqual(7);
    }
  });

  it('keep an upload that was replaced long enough for one that waits to be sent again', () => {
    const inbox = only(resources(template, 'AWS::S3::Bucket').filter(({ id }) => id.includes('Inbox')));
    expect(inbox.VersioningConfiguration).toEqual({ Status: 'Enabled' });
    const days = inbox.LifecycleConfiguration.Rules.flatMap(
      (rule: { NoncurrentVersionExpiration?: { NoncurrentDays: number } }) =>
        rule.NoncurrentVersionExpiration?.NoncurrentDays ?? [],
    );
    expect(days).toHaveLength(1);
    expect(days[0]).toBeGreaterThanOrEqual(30);
  });

  it('never forget an entry: nothing in the ledger expires', () => {
    const ledger = only(resources(template, 'AWS::S3::Bucket').filter(({ id }) => id.includes('Ledger')));
    expect(JSON.stringify(ledger.LifecycleConfiguration)).not.toMatch(/Expiration/);
  });

  it('keeps entries for ever, unless somebody says for how long', () => {
    const { template: bounded } = synthesisePipeline({ settings: { ledgerRetentionDays: 90 } });
    const ledger = only(resources(bounded, 'AWS::S3::Bucket').filter(({ id }) => id.includes('Ledger')));
    expect(ledger.LifecycleConfiguration.Rules).toContainEqual({
      ExpirationInDays: 90,
      Prefix: 'uploads/',
      Status: 'Enabled',
    });
    expect(environmentTemplateOf(bounded, 'CollectOutputs').SETTINGS).toContain('"ledgerRetentionDays":90');
  });
});

describe('uploads reach the queue', () => {
  const queueArn = { 'Fn::GetAtt': [Match.stringLikeRegexp('^PipelineQueueUploads'), 'Arn'] };

  it('by notifications of its own inbox, which is made only when it may send', () => {
    template.hasResource('AWS::S3::Bucket', {
      Properties: {
        NotificationConfiguration: { QueueConfigurations: [{ Event: 's3:ObjectCreated:*', Queue: queueArn }] },
      },
      DependsOn: [Match.stringLikeRegexp('^PipelineQueueUploadsPolicy')],
    });
    template.hasResourceProperties('AWS::SQS::QueuePolicy', {
      PolicyDocument: {
        Statement: Match.arrayWith([
          {
            Effect: 'Allow',
            Principal: { Service: 's3.amazonaws.com' },
            Action: 'sqs:SendMessage',
            Resource: queueArn,
            Condition: { StringEquals: { 'aws:SourceAccount': { Ref: 'AWS::AccountId' } } },
          },
        ]),
      },
    });
  });

  it('from below the prefix only, where there is one', () => {
    const { template: prefixed } = synthesisePipeline({ settings: { inboxPrefix: 'in/' } });
    prefixed.hasResourceProperties('AWS::S3::Bucket', {
      NotificationConfiguration: {
        QueueConfigurations: [{ Filter: { S3Key: { Rules: [{ Name: 'prefix', Value: 'in/' }] } } }],
      },
    });
  });

  it("by EventBridge from somebody else's bucket, whose notifications are left alone", () => {
    const { template: theirs } = synthesisePipeline((stack) => ({
      inboxBucket: Bucket.fromBucketName(stack, 'Theirs', 'their-inbox'),
      settings: { inboxPrefix: 'in/' },
    }));
    theirs.resourceCountIs('AWS::S3::Bucket', 2);
    theirs.hasResourceProperties('AWS::Events::Rule', {
      EventPattern: {
        source: ['aws.s3'],
        'detail-type': ['Object Created'],
        detail: { bucket: { name: ['their-inbox'] }, object: { key: [{ prefix: 'in/' }] } },
      },
      Targets: [{ Arn: queueArn }],
    });
    theirs.hasResourceProperties('AWS::SQS::QueuePolicy', {
      PolicyDocument: {
        Statement: Match.arrayWith([Match.objectLike({ Principal: { Service: 'events.amazonaws.com' } })]),
      },
    });
    expect(JSON.stringify(theirs.toJSON())).not.toContain('NotificationConfiguration');
  });

  it('also tell EventBridge where that is asked for', () => {
    const { template: told } = synthesisePipeline({ s3Events: true });
    const telling = resources(told, 'AWS::S3::Bucket').filter(
      ({ NotificationConfiguration }) => NotificationConfiguration?.EventBridgeConfiguration?.EventBridgeEnabled,
    );
    expect(telling.map(({ id }) => id.replace(/Bucket\w+$/, ''))).toEqual(['PipelineInbox', 'PipelineResults']);
  });
});

describe('the queue', () => {
  const queue = only(resources(template, 'AWS::SQS::Queue').filter(({ RedrivePolicy }) => RedrivePolicy !== undefined));

  it.each([0, 300])(
    'hides a message until its claim has run out, two minutes after the function must have ended: %i s window',
    (seconds) => {
      const { template: batching } = synthesisePipeline({ batchWindow: Duration.seconds(seconds) });
      const { Timeout } = only(
        resources(batching, 'AWS::Lambda::Function').filter(({ id }) => id.includes('CreateFlow')),
      );
      batching.hasResourceProperties('AWS::SQS::Queue', {
        RedrivePolicy: Match.anyValue(),
        VisibilityTimeout: Timeout + 120 + seconds,
      });
      batching.hasResourceProperties('AWS::Lambda::EventSourceMapping', { MaximumBatchingWindowInSeconds: seconds });
    },
  );

  it('gives a message up only after more receives than a file has attempts, to a queue that keeps it as long as may be', () => {
    expect(queue.RedrivePolicy.maxReceiveCount).toBeGreaterThan(SETTINGS_DEFAULT.attemptsMax);
    const deadLetters = only(resources(template, 'AWS::SQS::Queue').filter(({ id }) => id.includes('DeadLetters')));
    expect(queue.RedrivePolicy.deadLetterTargetArn).toEqual({ 'Fn::GetAtt': [deadLetters.id, 'Arn'] });
    expect(deadLetters.MessageRetentionPeriod).toBe(1_209_600);
  });

  it('feeds the creating function with a bound on how many run, and takes back single messages of a batch', () => {
    template.hasResourceProperties('AWS::Lambda::EventSourceMapping', {
      BatchSize: 4,
      FunctionResponseTypes: ['ReportBatchItemFailures'],
      ScalingConfig: { MaximumConcurrency: 5 },
    });
  });

  it.each([
    [
      { maxConcurrency: 2, settings: { uploadConcurrency: 1 } },
      { BatchSize: 1, ScalingConfig: { MaximumConcurrency: 2 } },
    ],
    [
      { maxConcurrency: 7, settings: { uploadConcurrency: 16 } },
      { BatchSize: 10, ScalingConfig: { MaximumConcurrency: 7 } },
    ],
    [{ batchWindow: Duration.seconds(1), settings: { uploadConcurrency: 16 } }, { BatchSize: 16 }],
  ])('with %j feeds as %j', (props, expected) => {
    synthesisePipeline(props).template.hasResourceProperties('AWS::Lambda::EventSourceMapping', expected);
  });
});

describe('ticks', () => {
  const schedules = (of: Template) =>
    resources(of, 'AWS::Scheduler::Schedule').map((each) => ({
      ...each,
      id: each.id.replace('PipelineCollectOutputs', ''),
    }));

  it.each([1, 60, 3600])('come every minute, whatever the poll interval: %i s', (pollIntervalSeconds) => {
    const { template: ticking } = synthesisePipeline({ settings: { pollIntervalSeconds } });
    const { ScheduleExpression } = only(schedules(ticking).filter(({ id }) => id.includes('Collector0')));
    expect(ScheduleExpression).toBe('rate(1 minute)');
  });

  it('that could not be started are not tried again, neither by the schedule nor by Lambda', () => {
    template.allResourcesProperties('AWS::Scheduler::Schedule', {
      FlexibleTimeWindow: { Mode: 'OFF' },
      Target: { RetryPolicy: { MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: 60 } },
    });
    template.hasResourceProperties('AWS::Lambda::EventInvokeConfig', {
      FunctionName: { Ref: Match.stringLikeRegexp('CollectOutputs') },
      MaximumRetryAttempts: 0,
      MaximumEventAgeInSeconds: 60,
    });
  });

  it('of several collectors are told apart in a way that the function understands', () => {
    const { template: shared } = synthesisePipeline({ collectors: 3 });
    const collectors = schedules(shared).filter(({ id }) => id.includes('Collector'));
    const events = collectors.map(({ Target }) => parseCollectEvent(JSON.parse(Target.Input)));
    expect(events.map(({ collector }) => collector)).toEqual([
      { index: 0, of: 3 },
      { index: 1, of: 3 },
      { index: 2, of: 3 },
    ]);
  });

  it('are joined once a day by a sweep, of the same function', () => {
    const daily = only(schedules(template).filter(({ id }) => id.includes('Sweep')));
    expect(daily.ScheduleExpression).toBe('rate(1 day)');
    expect(parseCollectEvent(JSON.parse(daily.Target.Input)).sweep).toEqual({});
  });

  it('may have as many collectors as the function knows, and no more', () => {
    expect(() => synthesisePipeline({ collectors: COLLECTORS_MAX })).not.toThrow();
    expect(() => synthesisePipeline({ collectors: COLLECTORS_MAX + 1 })).toThrow(
      `test/Pipeline.collectors: expected a whole number from 1 to ${COLLECTORS_MAX}, got ${COLLECTORS_MAX + 1}`,
    );
  });
});

describe('the environment that is given', () => {
  const settings = { pollIntervalSeconds: 5, inDoubt: 'hold', resultsPrefix: 'out/' } as const;
  const { template: given } = synthesisePipeline({
    settings,
    name: 'mine',
    baseUrl: 'https://service.example.com/v1/',
  });

  it.each(['CreateFlow', 'CollectOutputs'])('is the environment that is parsed, in %s', (name) => {
    const settings = parseEnv(environmentOf(given, name));
    expect(settings).toMatchObject({
      ...SETTINGS_DEFAULT,
      ...settings,
      pipeline: 'mine',
      collectFunction: 'mine-collect-outputs',
    });
    expect(settings.baseUrl.href).toBe('https://service.example.com/v1');
    expect(settings.routes).toEqual([{ ...PROPS.routes[0], input: 'file' }]);
    expect(settings.inboxBucket).toMatch(/^PipelineInboxBucket/);
    expect(settings.resultsBucket).toMatch(/^PipelineResultsBucket/);
    expect(settings.ledgerBucket).toMatch(/^PipelineLedgerBucket/);
    expect(settings.tokenSecretId).toMatch(/^PipelineTokenSecret/);
    expect(settings.queueUrl).toMatch(/PipelineQueueUploads/);
  });

  it('names the collecting function as it is called', () => {
    const names = resources(given, 'AWS::Lambda::Function').map(({ FunctionName }) => FunctionName);
    expect(names).toContain(environmentOf(given, 'CreateFlow').COLLECT_FUNCTION);
  });

  it('holds no token', () => {
    const names: readonly (keyof Env)[] = [
      'COLLECT_FUNCTION',
      'EVENT_BUS',
      'FLOW_SERVICE_URL',
      'INBOX_BUCKET',
      'LEDGER_BUCKET',
      'PIPELINE',
      'QUEUE_URL',
      'RESULTS_BUCKET',
      'ROUTES',
      'SETTINGS',
      'TOKEN_SECRET_ID',
    ];
    expect(Object.keys(environmentOf(given, 'CreateFlow')).sort()).toEqual(names);
  });

  const routesOf = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ name: `route ${i}`, suffixes: [`.${i}`], template: 'a template' }));

  it.each([1, 20, 30, 40, 50, 200])('fits into 4 KB with %i routes, and says how much of that it takes', (count) => {
    const { template: routed, messages } = synthesisePipeline({ routes: routesOf(count) });
    const bytes = Object.entries(environmentOf(routed, 'CreateFlow')).join('').length;
    expect(bytes).toBeLessThan(4096);
    expect(messages.filter((message) => /^The environment takes at most \d+ of 4096 bytes/.test(message))).toHaveLength(
      2,
    );
  });

  it('has the routes in a file beside the bundle where they would not fit', () => {
    const { template: routed, messages } = synthesisePipeline({ routes: routesOf(100) });
    expect(environmentOf(routed, 'CreateFlow').ROUTES).toBe('file:routes.json');
    expect(messages.join()).toContain('so they are in a file beside the bundle');
  });
});

describe('the creating function may do what it does and nothing else', () => {
  it('on the parts of the pipeline', () => {
    expect(permissionsOf(template, 'CreateFlowRole').map(lineOf)).toEqual([
      'events:PutEvents event-bus/default if events:source StringEquals flowdrop',
      'logs:CreateLogStream log-group:/aws/lambda/flowdrop-create-flow:*',
      'logs:PutLogEvents log-group:/aws/lambda/flowdrop-create-flow:*',
      's3:DeleteObject ledger/running/*',
      's3:GetObject inbox/*',
      's3:GetObject ledger/uploads/*',
      's3:GetObject results/*/receipt.json',
      's3:GetObjectVersion inbox/*',
      's3:ListBucket inbox',
      's3:ListBucket ledger',
      's3:ListBucket results',
      's3:PutObject ledger/running/*',
      's3:PutObject ledger/uploads/*',
      's3:PutObject ledger/waiting/*',
      's3:PutObject results/*/receipt.json',
      'secretsmanager:GetSecretValue secret:token-AbCdEf',
      'sqs:DeleteMessage uploads',
      'sqs:GetQueueAttributes uploads',
      'sqs:ReceiveMessage uploads',
    ]);
  });

  it('so that it can neither change an upload nor overwrite an asset', () => {
    const allowances = permissionsOf(template, 'CreateFlowRole');
    expect(
      isAllowed(allowances, { action: 's3:PutObject', resource: 'arn:aws:s3:::results/a/b.png/receipt.json' }),
    ).toBe(true);
    expect(
      isAllowed(allowances, { action: 's3:PutObject', resource: 'arn:aws:s3:::results/a/b.png/flow/asset.glb' }),
    ).toBe(false);
    expect(isAllowed(allowances, { action: 's3:PutObject', resource: 'arn:aws:s3:::inbox/a.png' })).toBe(false);
    expect(isAllowed(allowances, { action: 's3:DeleteObject', resource: 'arn:aws:s3:::ledger/uploads/1.json' })).toBe(
      false,
    );
  });
});

describe('the collecting function may do what it does and nothing else', () => {
  it('on the parts of the pipeline', () => {
    expect(permissionsOf(template, 'CollectOutputsRole').map(lineOf)).toEqual([
      'events:PutEvents event-bus/default if events:source StringEquals flowdrop',
      'logs:CreateLogStream log-group:/aws/lambda/flowdrop-collect-outputs:*',
      'logs:PutLogEvents log-group:/aws/lambda/flowdrop-collect-outputs:*',
      's3:AbortMultipartUpload results/*',
      's3:DeleteObject ledger/running/*',
      's3:DeleteObject ledger/waiting/*',
      's3:GetObject inbox/*',
      's3:GetObject ledger/state/*',
      's3:GetObject ledger/uploads/*',
      's3:GetObject results/*',
      's3:ListBucket inbox',
      's3:ListBucket ledger',
      's3:ListBucket results',
      's3:ListBucketVersions inbox',
      's3:PutObject ledger/running/*',
      's3:PutObject ledger/state/*',
      's3:PutObject ledger/uploads/*',
      's3:PutObject ledger/waiting/*',
      's3:PutObject results/*',
      'secretsmanager:GetSecretValue secret:token-AbCdEf',
      'sqs:SendMessage uploads',
    ]);
  });

  it('below the prefixes only, where there are any', () => {
    const { template: prefixed } = synthesisePipeline({ settings: { inboxPrefix: 'in/', resultsPrefix: 'out/' } });
    const lines = permissionsOf(prefixed, 'CollectOutputsRole').map(lineOf);
    expect(lines).toContain('s3:GetObject inbox/in/*');
    expect(lines).toContain('s3:PutObject results/out/*');
    expect(lines).toContain('s3:ListBucketVersions inbox if s3:prefix StringEquals in/');
    expect(lines.filter((line) => /(inbox|results)\/\*/.test(line))).toEqual([]);
  });
});

describe('completion events', () => {
  it('go to the default bus, as events of ours only', () => {
    template.hasResourceProperties('AWS::IAM::Policy', {
      PolicyDocument: {
        Statement: Match.arrayWith([
          Match.objectLike({
            Action: 'events:PutEvents',
            Condition: { StringEquals: { 'events:source': 'flowdrop' } },
          }),
        ]),
      },
    });
    expect(JSON.stringify(environmentTemplateOf(template))).toContain(':event-bus/default');
  });

  it('go to the bus that is given, and to no other', () => {
    const { template: elsewhere } = synthesisePipeline((stack) => ({ eventBus: new EventBus(stack, 'Bus') }));
    for (const role of ['CreateFlowRole', 'CollectOutputsRole']) {
      const lines = permissionsOf(elsewhere, role).map(lineOf);
      expect(lines.filter((line) => line.startsWith('events:'))).toEqual([
        expect.stringMatching(/^events:PutEvents event-bus\/testBus\w+ if events:source StringEquals flowdrop$/),
      ]);
    }
    expect(environmentOf(elsewhere, 'CreateFlow').EVENT_BUS).toMatch(/^Bus/);
  });
});

it('the schedule may start the collecting function and nothing else', () => {
  expect(permissionsOf(template, 'SchedulesRole').map(lineOf)).toEqual([
    'lambda:InvokeFunction function:flowdrop-collect-outputs',
  ]);
});

it('the secret that is known by name only is found by any of the ARNs that it can have', () => {
  const { template: named } = synthesisePipeline((stack) => ({
    tokenSecret: Secret.fromSecretNameV2(stack, 'Token', 'flows/token'),
  }));
  const lines = permissionsOf(named, 'CreateFlowRole').map(lineOf);
  expect(lines.filter((line) => line.startsWith('secretsmanager:'))).toEqual([
    expect.stringMatching(/^secretsmanager:GetSecretValue secret:flows\/token-\?{6}$/),
  ]);
});

describe('grants for others', () => {
  const user = (stack: Stack) => new Role(stack, 'Somebody', { assumedBy: new ServicePrincipal('ec2.amazonaws.com') });

  it('let somebody upload and nothing else', () => {
    const { template: granted } = synthesisePipeline({ settings: { inboxPrefix: 'in/' } }, (pipeline, stack) => {
      pipeline.grantUpload(user(stack));
    });
    expect(permissionsOf(granted, 'Somebody').map(lineOf)).toEqual([
      's3:AbortMultipartUpload inbox/in/*',
      's3:ListMultipartUploadParts inbox/in/*',
      's3:PutObject inbox/in/*',
    ]);
  });

  it.each([
    ['', ['s3:GetObject results/*', 's3:ListBucket results']],
    ['out/', ['s3:GetObject results/out/*', 's3:ListBucket results if s3:prefix StringLike out/*']],
  ])('let somebody read results and nothing else, below the prefix %j', (resultsPrefix, expected) => {
    const { template: granted } = synthesisePipeline({ settings: { resultsPrefix } }, (pipeline, stack) => {
      expect(pipeline.grantReadResults(user(stack)).success).toBe(true);
    });
    expect(permissionsOf(granted, 'Somebody').map(lineOf)).toEqual(expected);
  });
});

describe('a key', () => {
  const encrypted = synthesisePipeline((stack) => ({
    encryptionKey: new Key(stack, 'Key', { enableKeyRotation: true }),
  }));

  it('of the app encrypts everything that holds data', () => {
    const keyArn = { 'Fn::GetAtt': [Match.stringLikeRegexp('^Key'), 'Arn'] };
    encrypted.template.allResourcesProperties('AWS::S3::Bucket', {
      BucketEncryption: {
        ServerSideEncryptionConfiguration: [
          {
            BucketKeyEnabled: true,
            ServerSideEncryptionByDefault: { KMSMasterKeyID: keyArn, SSEAlgorithm: 'aws:kms' },
          },
        ],
      },
    });
    encrypted.template.allResourcesProperties('AWS::SQS::Queue', { KmsMasterKeyId: keyArn });
    encrypted.template.allResourcesProperties('AWS::SecretsManager::Secret', { KmsKeyId: keyArn });
    encrypted.template.allResourcesProperties('AWS::Logs::LogGroup', { KmsKeyId: keyArn });
  });

  it.each([
    ['CreateFlowRole', ['Decrypt s3', 'Decrypt secretsmanager', 'Decrypt sqs', 'GenerateDataKey s3']],
    [
      'CollectOutputsRole',
      ['Decrypt s3', 'Decrypt secretsmanager', 'Decrypt sqs', 'GenerateDataKey s3', 'GenerateDataKey sqs'],
    ],
  ])('of the app may be used by %s through the services that keep its data, and not by itself', (role, expected) => {
    const lines = permissionsOf(encrypted.template, role).map(lineOf);
    const through = (service: string) => `${service}.eu-central-1.amazonaws.com`;
    expect(lines.filter((line) => line.startsWith('kms:'))).toEqual(
      expected.map((each) => {
        const [action, service = ''] = each.split(' ');
        return `kms:${action} key/key if kms:ViaService StringEquals ${through(service)} or ${through(service)}.cn`;
      }),
    );
  });

  it('of the app may be used by S3, to notify, and by the logs, on behalf of the account', () => {
    const { KeyPolicy } = only(resources(encrypted.template, 'AWS::KMS::Key'));
    const services = KeyPolicy.Statement.filter(
      ({ Principal }: { Principal: { Service?: unknown } }) => Principal.Service !== undefined,
    );
    expect(services).toEqual([
      expect.objectContaining({
        Principal: { Service: 's3.amazonaws.com' },
        Condition: { StringEquals: { 'aws:SourceAccount': { Ref: 'AWS::AccountId' } } },
      }),
      expect.objectContaining({ Condition: { ArnLike: { 'kms:EncryptionContext:aws:logs:arn': expect.anything() } } }),
    ]);
  });

  it('that is kept elsewhere must have statements, which are said at synth', () => {
    const { messages } = synthesisePipeline((stack) => ({
      encryptionKey: Key.fromKeyArn(
        stack,
        'Key',
        'arn:aws:kms:eu-central-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef',
      ),
      inboxBucket: Bucket.fromBucketName(stack, 'Theirs', 'their-inbox'),
    }));
    const said = messages.filter((message) =>
      message.startsWith('This app cannot change the policy of the encryption key'),
    );
    expect(said).toHaveLength(2);
    expect(said.join()).toContain('"Service":"events.amazonaws.com"');
    expect(said.join()).toContain('"kms:GenerateDataKey*"');
  });
});

describe('a VPC', () => {
  it('has the functions, which it lets out to AWS and to the flow service, and nothing in', () => {
    const { template: inside } = synthesisePipeline((stack) => ({
      baseUrl: 'https://service.example.com:8443',
      ...theirVpc(stack),
    }));
    inside.allResourcesProperties('AWS::Lambda::Function', { VpcConfig: { SubnetIds: ['subnet-01234567'] } });
    const group = only(resources(inside, 'AWS::EC2::SecurityGroup'));
    expect(group.SecurityGroupEgress.map(({ FromPort }: { FromPort: number }) => FromPort)).toEqual([443, 8443]);
    expect(group).not.toHaveProperty('SecurityGroupIngress');
  });
});

it('a permissions boundary is on every role', () => {
  const { template: bounded } = synthesisePipeline((stack) => ({
    permissionsBoundary: ManagedPolicy.fromManagedPolicyName(stack, 'Boundary', 'boundary'),
  }));
  for (const role of resources(bounded, 'AWS::IAM::Role')) expect(role.PermissionsBoundary).toBeDefined();
});

it('a bucket of another stack of the app may be the inbox, and the checks know the wildcard on it', () => {
  const { findings } = synthesise((app) => {
    const theirs = new Bucket(new Stack(app, 'theirs'), 'Inbox', { enforceSSL: true, serverAccessLogsPrefix: 'logs/' });
    const stack = new Stack(app, 'test');
    new FlowPipeline(stack, 'Pipeline', { ...PROPS, inboxBucket: theirs });
    return stack;
  });
  expect(findings).toEqual([]);
});

describe('what cannot be is refused at synth, naming where it stands', () => {
  it('a loop: one bucket for inbox and results without prefixes that keep them apart', () => {
    const both = (settings: object) =>
      synthesisePipeline((stack) => {
        const bucket = new Bucket(stack, 'Both');
        return { inboxBucket: bucket, resultsBucket: bucket, settings };
      });
    expect(() => both({})).toThrow(/test\/Pipeline: inbox and results are one bucket.*inboxPrefix and resultsPrefix/);
    expect(() => both({ inboxPrefix: 'a/', resultsPrefix: 'a/b/' })).toThrow('inbox and results are one bucket');
    expect(() => both({ inboxPrefix: 'a/', resultsPrefix: 'b/' })).not.toThrow();
  });

  it.each([
    [{ baseUrl: 'http://service.example.com' }, 'test/Pipeline.baseUrl: expected https:'],
    [{ routes: [{ name: 'a', template: 't', suffixes: [] }] }, 'test/Pipeline.routes[0].suffixes: expected a list'],
    [{ settings: { attemptsMax: 0 } }, 'test/Pipeline.settings.attemptsMax: expected a whole number of attempts'],
    [{ name: 'Not This' }, 'test/Pipeline.pipeline: expected a name'],
    [{ maxConcurrency: 1 }, 'test/Pipeline.maxConcurrency: expected a whole number from 2 to 1000, got 1'],
    [{ collectors: 1.5 }, 'test/Pipeline.collectors: expected a whole number from 1 to 64, got 1.5'],
    [
      { batchWindow: Duration.minutes(6) },
      'test/Pipeline.batchWindow in seconds: expected a whole number from 0 to 300, got 360',
    ],
    [
      { name: 'Not This', maxConcurrency: 1 },
      /^2 issues:\n- test\/Pipeline\.pipeline: expected a name .*\n- test\/Pipeline\.maxConcurrency: expected/,
    ],
  ])('%j', (props, message) => {
    expect(() => synthesisePipeline(props)).toThrow(message);
  });
});
