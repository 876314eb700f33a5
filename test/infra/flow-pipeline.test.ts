import { App, Duration, Stack, Tags, Validations } from 'aws-cdk-lib';
import { Match } from 'aws-cdk-lib/assertions';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket, type IBucket } from 'aws-cdk-lib/aws-s3';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { describe, expect, it } from 'vitest';
import { type Env, parseEnv } from '../../functions/settings/environment.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import { messagesOf } from '../settings/fixtures.ts';
import { defaultPipeline, existingVpc, PROPS, synthesise, synthesisePipeline } from './synthesis.ts';
import { environmentOf, environmentTemplateOf, only, resources } from './template.ts';

const { template } = defaultPipeline();

interface Tagged {
  readonly Tags?: readonly { readonly Key: string; readonly Value: string }[];
}

/** Types that CloudFormation cannot tag, as far as a pipeline has them. */
const UNTAGGABLE = [
  'AWS::IAM::Policy',
  'AWS::Lambda::EventInvokeConfig',
  'AWS::Logs::QueryDefinition',
  'AWS::SQS::QueuePolicy',
  'AWS::S3::BucketPolicy',
  'AWS::Scheduler::Schedule',
].sort();

describe('a pipeline', () => {
  it('has three buckets, two queues, a secret, two schedules and two functions, and no custom resource', () => {
    template.resourceCountIs('AWS::S3::Bucket', 3);
    template.resourceCountIs('AWS::SQS::Queue', 2);
    template.resourceCountIs('AWS::SecretsManager::Secret', 1);
    template.resourceCountIs('AWS::Scheduler::Schedule', 1);
    template.resourceCountIs('AWS::Lambda::Function', 2);
    const types = Object.values(template.toJSON().Resources as Record<string, { readonly Type: string }>);
    expect(types.filter(({ Type }) => Type.startsWith('Custom::') || Type.includes('CustomResource'))).toEqual([]);
  });

  it('runs both functions from a bundle on Node.js 24 and arm64', () => {
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

  it('can be in one stack twice, under two names', () => {
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

  it('does not take the topic of another stack of the app for its own, although both have one logical id', () => {
    const { messages, template: last } = synthesise((app) => {
      const [, second] = ['first', 'second'].map((name) => {
        const stack = new Stack(app, name);
        const alarmTopic = new Topic(stack, 'Topic', { enforceSSL: true });
        if (name === 'first') alarmTopic.addSubscription(new EmailSubscription('ops@example.com'));
        new FlowPipeline(stack, 'Pipeline', { ...PROPS, name, alarmTopic });
        return stack;
      });
      return second as Stack;
    });
    expect(messages.join('\n')).toContain('the topic second/Topic has no subscription in this app');
    const { PolicyDocument } = only(resources(last, 'AWS::SNS::TopicPolicy'));
    expect(JSON.stringify(PolicyDocument)).toContain('cloudwatch.amazonaws.com');
  });

  it('tags every resource that can have tags with its name, for the bill, and with the tags of the app', () => {
    const { template: tagged } = synthesisePipeline(
      (stack) => {
        Tags.of(stack).add('team', 'models');
        return { ...existingVpc(stack), inboxBucket: Bucket.fromBucketName(stack, 'Inbox', 'their-inbox') };
      },
      () => {},
    );
    const all = Object.values(tagged.toJSON().Resources as Record<string, { Type: string; Properties: Tagged }>);
    const isTagged = ({ Properties: { Tags: tags = [] } }: { Properties: Tagged }) =>
      tags.some(({ Key, Value }) => Key === 'flowdrop:pipeline' && Value === 'flowdrop') &&
      tags.some(({ Key, Value }) => Key === 'team' && Value === 'models');
    const untagged = new Set(all.filter((resource) => !isTagged(resource)).map(({ Type }) => Type));
    expect([...untagged].sort()).toEqual(UNTAGGABLE);
    expect(all.filter(isTagged).length).toBeGreaterThan(20);
  });

  it('gives its schedules a group, because only a group can have tags', () => {
    const group = only(resources(template, 'AWS::Scheduler::ScheduleGroup'));
    expect(group.Tags).toEqual([{ Key: 'flowdrop:pipeline', Value: 'flowdrop' }]);
    for (const { GroupName } of resources(template, 'AWS::Scheduler::Schedule'))
      expect(GroupName).toEqual({ Ref: group.id });
  });

  it('replaces the schedules of an earlier version: CloudFormation cannot move a schedule into a group', () => {
    const ids = resources(template, 'AWS::Scheduler::Schedule').map(({ id }) => id);
    expect(ids).toHaveLength(1);
    expect(ids).not.toContain('PipelineCollectOutputsSchedulesCollector0F2EDF760');
    expect(ids).not.toContain('PipelineCollectOutputsSchedulesSweep6FAF3D6D');
  });

  it('has one dead-letter queue, and the queue of uploads is that of no other', () => {
    const sources = resources(template, 'AWS::SQS::Queue').filter(({ RedrivePolicy }) => RedrivePolicy !== undefined);
    expect(only(sources).RedriveAllowPolicy).toEqual({ redrivePermission: 'denyAll' });
  });
});

it.each(['inboxBucket', 'resultsBucket', 'ledgerBucket'])(
  'refuses an existing bucket in another region: %s',
  (name) => {
    const app = new App();
    const stack = new Stack(app, 'test', { env: { account: '111111111111', region: 'eu-central-1' } });
    const bucket = Bucket.fromBucketAttributes(stack, 'Theirs', { bucketName: 'theirs', region: 'eu-west-1' });
    expect(() => new FlowPipeline(stack, 'Pipeline', { ...PROPS, [name]: bucket })).toThrow(
      `test/Pipeline.${name}: expected a bucket in the region eu-central-1 of the stack, got one in eu-west-1`,
    );
  },
);

describe('a bucket for access logs', () => {
  const withLogs = (logs: (stack: Stack) => IBucket) =>
    synthesise((app) => {
      const stack = new Stack(app, 'test', { env: { account: '111111111111', region: 'eu-central-1' } });
      Validations.of(stack).acknowledge({ id: 'flowdrop:alarms-unsent', reason: 'Nobody deploys this.' });
      new FlowPipeline(stack, 'Pipeline', { ...PROPS, accessLogsBucket: logs(stack) });
      return stack;
    });
  const theirs = (more: object) => (stack: Stack) =>
    Bucket.fromBucketAttributes(stack, 'Logs', { bucketName: 'their-logs', ...more });

  it.each([{ account: '222222222222' }, { region: 'eu-west-1' }])('is refused in another place: %j', (elsewhere) => {
    expect(() => withLogs(theirs(elsewhere))).toThrow(
      /^test\/Pipeline\.accessLogsBucket: expected a bucket in account 111111111111 and region eu-central-1, got one in/m,
    );
  });

  it('that is imported is warned of, with the statement that its policy needs', () => {
    const { messages } = withLogs(theirs({}));
    const [warning = ''] = messages.filter((message) => message.includes('the access logs'));
    expect(warning).toContain('"Service":"logging.s3.amazonaws.com"');
    expect(warning).toContain('"Action":"s3:PutObject"');
    expect(warning).toContain('"Resource":"arn:aws:s3:::their-logs/test/Pipeline/*"');
    expect(warning).toContain('"aws:SourceAccount":"111111111111"');
  });

  it('with a key is warned of', () => {
    const { messages } = withLogs((stack) =>
      theirs({ encryptionKey: Key.fromKeyArn(stack, 'Key', 'arn:aws:kms:eu-central-1:111111111111:key/logs') })(stack),
    );
    expect(messages.join('\n')).toContain('S3 does not support a default encryption with a key of KMS for access logs');
  });

  it('of the app is allowed to receive logs, without a warning', () => {
    const { template: logged, messages } = withLogs((stack) => new Bucket(stack, 'Logs', { enforceSSL: true }));
    expect(messages.filter((message) => message.includes('access logs'))).toEqual([]);
    const statements = resources(logged, 'AWS::S3::BucketPolicy').flatMap(
      ({ PolicyDocument }) => PolicyDocument.Statement,
    );
    expect(JSON.stringify(statements)).toContain('logging.s3.amazonaws.com');
  });
});

const bucketOf = (synthesised: typeof template, name: string) =>
  only(resources(synthesised, 'AWS::S3::Bucket').filter(({ id }) => id.includes(name)));
const BOUNDED = { settings: { ledgerRetentionDays: 90 } };
const bounded = synthesisePipeline(BOUNDED).template;
const versioned = synthesisePipeline({ ...BOUNDED, versionRetention: Duration.days(35) }).template;

describe('its buckets', () => {
  it('are encrypted, have no public access, and refuse requests without TLS', () => {
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

  it('delete the parts of abandoned uploads after days', () => {
    for (const { LifecycleConfiguration } of resources(template, 'AWS::S3::Bucket')) {
      expect(LifecycleConfiguration.Rules[0].AbortIncompleteMultipartUpload.DaysAfterInitiation).toBeLessThanOrEqual(7);
    }
  });

  it('keep a replaced upload long enough for a waiting one to be resubmitted', () => {
    const inbox = bucketOf(template, 'Inbox');
    expect(inbox.VersioningConfiguration).toEqual({ Status: 'Enabled' });
    const days = inbox.LifecycleConfiguration.Rules.flatMap(
      (rule: { NoncurrentVersionExpiration?: { NoncurrentDays: number } }) =>
        rule.NoncurrentVersionExpiration?.NoncurrentDays ?? [],
    );
    expect(days).toHaveLength(1);
    expect(days[0]).toBeGreaterThanOrEqual(30);
  });

  it('keep ledger entries for ever by default', () => {
    expect(JSON.stringify(bucketOf(template, 'Ledger').LifecycleConfiguration)).not.toMatch(/Expiration/);
  });

  it('delete ledger entries and the markers of failures after the retention, with and without versions', () => {
    for (const Prefix of ['uploads/', 'failed/']) {
      const expired = { ExpirationInDays: 90, Prefix, Status: 'Enabled' };
      expect(bucketOf(bounded, 'Ledger').LifecycleConfiguration.Rules).toContainEqual(expired);
      expect(bucketOf(versioned, 'Ledger').LifecycleConfiguration.Rules).toContainEqual(
        expect.objectContaining(expired),
      );
    }
    expect(environmentTemplateOf(bounded, 'CollectOutputs').SETTINGS).toContain('"ledgerRetentionDays":90');
  });
});

describe('the versions of the ledger and the results', () => {
  const old = (days: number, Prefix?: string) => ({
    ExpiredObjectDeleteMarker: true,
    NoncurrentVersionExpiration: { NoncurrentDays: days },
    ...(Prefix === undefined ? {} : { Prefix }),
    Status: 'Enabled',
  });

  it('are not kept by default', () => {
    for (const name of ['Ledger', 'Results']) {
      expect(bucketOf(template, name).VersioningConfiguration).toBeUndefined();
    }
  });

  it('are kept for the given days: entries, assets and receipts', () => {
    for (const name of ['Ledger', 'Results']) {
      expect(bucketOf(versioned, name).VersioningConfiguration).toEqual({ Status: 'Enabled' });
    }
    expect(bucketOf(versioned, 'Results').LifecycleConfiguration.Rules).toContainEqual(old(35));
    const entries = { NoncurrentVersionExpiration: { NoncurrentDays: 35 }, Prefix: 'uploads/' };
    expect(bucketOf(versioned, 'Ledger').LifecycleConfiguration.Rules).toContainEqual(expect.objectContaining(entries));
  });

  it('are kept for one day of markers and state: S3 goes through their delete markers in each listing', () => {
    const { Rules } = bucketOf(versioned, 'Ledger').LifecycleConfiguration;
    for (const prefix of ['running/', 'waiting/', 'state/']) expect(Rules).toContainEqual(old(1, prefix));
    // A rule for the whole bucket would compete with those of the prefixes.
    expect(Rules.filter((rule: { Prefix?: string }) => rule.Prefix === undefined)).toHaveLength(1);
  });
});

describe('the environment of a function', () => {
  const settings = { pollIntervalSeconds: 5, inDoubt: 'hold', resultsPrefix: 'out/' } as const;
  const { template: given } = synthesisePipeline({
    settings,
    name: 'mine',
    baseUrl: 'https://service.example.com/v1/',
  });

  it.each(['CreateFlow', 'CollectOutputs'])('can be parsed by the function: %s', (name) => {
    const parsed = parseEnv(environmentOf(given, name));
    expect(parsed).toMatchObject({
      ...SETTINGS_DEFAULT,
      ...settings,
      pipeline: 'mine',
      collectFunction: 'mine-collect-outputs',
    });
    expect(parsed.baseUrl.href).toBe('https://service.example.com/v1');
    expect(parsed.routes).toEqual([{ ...PROPS.routes[0], input: 'file' }]);
    expect(parsed.inboxBucket).toMatch(/^PipelineInboxBucket/);
    expect(parsed.resultsBucket).toMatch(/^PipelineResultsBucket/);
    expect(parsed.ledgerBucket).toMatch(/^PipelineLedgerBucket/);
    expect(parsed.tokenSecretId).toMatch(/^PipelineTokenSecret/);
    expect(parsed.queueUrl).toMatch(/PipelineQueueUploads/);
  });

  it('has no token', () => {
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

  it.each([1, 30, 40, 200])('fits into 4 KB with %i routes, and a notice says its size', (count) => {
    const { template: routed, messages } = synthesisePipeline({ routes: routesOf(count) });
    const bytes = Object.entries(environmentOf(routed, 'CreateFlow')).join('').length;
    expect(bytes).toBeLessThan(4096);
    expect(messages.filter((message) => /^The environment takes at most \d+ of 4096 bytes/.test(message))).toHaveLength(
      2,
    );
  });

  it('names a file beside the bundle if the routes do not fit', () => {
    const { template: routed, messages } = synthesisePipeline({ routes: routesOf(100) });
    expect(environmentOf(routed, 'CreateFlow').ROUTES).toBe('file:routes.json');
    expect(messages.join()).toContain('so they are in a file beside the bundle');
  });
});

describe('an existing VPC', () => {
  it('contains the functions, with traffic out to AWS and the flow service only, and none in', () => {
    const { template: inside } = synthesisePipeline((stack) => ({
      baseUrl: 'https://service.example.com:8443',
      ...existingVpc(stack),
    }));
    inside.allResourcesProperties('AWS::Lambda::Function', { VpcConfig: { SubnetIds: ['subnet-01234567'] } });
    const group = only(resources(inside, 'AWS::EC2::SecurityGroup'));
    expect(group.SecurityGroupEgress.map(({ FromPort }: { FromPort: number }) => FromPort)).toEqual([443, 8443]);
    expect(group).not.toHaveProperty('SecurityGroupIngress');
  });
});

it('a bucket of another stack of the app can be the inbox, and the wildcard on it is acknowledged', () => {
  const { findings } = synthesise((app) => {
    const theirs = new Bucket(new Stack(app, 'theirs'), 'Inbox', { enforceSSL: true, serverAccessLogsPrefix: 'logs/' });
    const stack = new Stack(app, 'test');
    new FlowPipeline(stack, 'Pipeline', { ...PROPS, inboxBucket: theirs });
    return stack;
  });
  expect(findings).toEqual([]);
});

describe('wrong props are rejected at synth', () => {
  it('all in one error, each with its path', () => {
    const wrong = {
      name: 'Not This',
      baseUrl: 'http://service.example.com',
      settings: { attemptsMax: 0 },
      maxConcurrency: 1,
      batchWindow: Duration.minutes(6),
      collectors: 1.5,
      versionRetention: Duration.hours(36),
    };
    expect(messagesOf(() => synthesisePipeline(wrong))).toEqual([
      expect.stringMatching(/^test\/Pipeline\.pipeline: expected a name .*, got "Not This"$/),
      expect.stringMatching(/^test\/Pipeline\.baseUrl: expected https:, /),
      'test/Pipeline.settings.attemptsMax: expected a whole number of attempts from 1 to 100, got 0',
      'test/Pipeline.maxConcurrency: expected a whole number from 2 to 1000, got 1',
      'test/Pipeline.batchWindow in seconds: expected a whole number from 0 to 300, got 360',
      'test/Pipeline.collectors: expected a whole number from 1 to 64, got 1.5',
      'test/Pipeline.versionRetention in days: expected a whole number from 1 to 3650, got 1.5',
    ]);
  });

  it('if one bucket is inbox and results, without separate prefixes', () => {
    const both = (stack: Stack) => {
      const bucket = new Bucket(stack, 'Both');
      return { inboxBucket: bucket, resultsBucket: bucket };
    };
    expect(() => synthesisePipeline(both)).toThrow(
      /test\/Pipeline: inbox and results are one bucket.*inboxPrefix and resultsPrefix/,
    );
  });
});
