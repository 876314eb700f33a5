import { Duration, RemovalPolicy, type Stack, Validations } from 'aws-cdk-lib';
import { Match } from 'aws-cdk-lib/assertions';
import { Bucket, type BucketProps, type IBucket } from 'aws-cdk-lib/aws-s3';
import { describe, expect, it } from 'vitest';
import { SETTINGS_DEFAULT } from '../../../functions/settings/settings.ts';
import { defaultPipeline, synthesisePipeline } from '../synthesis.ts';
import { only, resources } from '../template.ts';

const { template } = defaultPipeline();

const appBucket = (stack: Stack, props: BucketProps = {}): IBucket => {
  const bucket = new Bucket(stack, 'Existing', { enforceSSL: true, ...props });
  Validations.of(bucket).acknowledge({ id: 'AwsSolutions-S1', reason: 'This stack is not deployed.' });
  return bucket;
};

describe('uploads reach the queue', () => {
  const queueArn = { 'Fn::GetAtt': [Match.stringLikeRegexp('^PipelineQueueUploads'), 'Arn'] };
  const deadLettersArn = { 'Fn::GetAtt': [Match.stringLikeRegexp('^PipelineQueueDeadLetters'), 'Arn'] };

  it('by notifications of a new inbox, which is created after the permission to send', () => {
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

  it('from below the prefix only, if there is one', () => {
    const { template: prefixed } = synthesisePipeline({ settings: { inboxPrefix: 'in/' } });
    prefixed.hasResourceProperties('AWS::S3::Bucket', {
      NotificationConfiguration: {
        QueueConfigurations: [{ Filter: { S3Key: { Rules: [{ Name: 'prefix', Value: 'in/' }] } } }],
      },
    });
  });

  it('by EventBridge from an existing bucket, whose notifications stay as they are', () => {
    const { template: existing } = synthesisePipeline((stack) => ({
      inboxBucket: Bucket.fromBucketName(stack, 'Existing', 'their-inbox'),
      settings: { inboxPrefix: 'in/' },
    }));
    existing.resourceCountIs('AWS::S3::Bucket', 2);
    existing.hasResourceProperties('AWS::Events::Rule', {
      EventPattern: {
        source: ['aws.s3'],
        'detail-type': ['Object Created'],
        detail: { bucket: { name: ['their-inbox'] }, object: { key: [{ prefix: 'in/' }] } },
      },
      Targets: [{ Arn: queueArn, DeadLetterConfig: { Arn: deadLettersArn } }],
    });
    for (const Resource of [queueArn, deadLettersArn]) {
      const sending = { Principal: { Service: 'events.amazonaws.com' }, Action: 'sqs:SendMessage', Resource };
      existing.hasResourceProperties('AWS::SQS::QueuePolicy', {
        PolicyDocument: { Statement: Match.arrayWith([Match.objectLike(sending)]) },
      });
    }
    expect(JSON.stringify(existing.toJSON())).not.toContain('NotificationConfiguration');
  });

  it.each<[string, (stack: Stack) => IBucket, boolean]>([
    ['an imported bucket', (stack) => Bucket.fromBucketName(stack, 'Existing', 'their-inbox'), true],
    ['a bucket of the app', (stack) => appBucket(stack), true],
    ['a bucket of the app with its events on', (stack) => appBucket(stack, { eventBridgeEnabled: true }), false],
  ])('from %s: synth says how to turn its events on unless they are on', (_, bucketOf, isSaid) => {
    const { messages } = synthesisePipeline((stack) => ({ inboxBucket: bucketOf(stack) }));
    const said = messages.filter((each) => each.includes('put-bucket-notification-configuration'));
    expect(said).toHaveLength(isSaid ? 1 : 0);
    if (isSaid) expect(said[0]).toContain('replaces the whole configuration');
  });

  it('and EventBridge as well, if s3Events is set', () => {
    const { template: told } = synthesisePipeline({ s3Events: true });
    const telling = resources(told, 'AWS::S3::Bucket').filter(
      ({ NotificationConfiguration }) => NotificationConfiguration?.EventBridgeConfiguration?.EventBridgeEnabled,
    );
    expect(telling.map(({ id }) => id.replace(/Bucket\w+$/, ''))).toEqual(['PipelineInbox', 'PipelineResults']);
  });
});

describe('the buckets', () => {
  it('are kept with their policies, but not if their first deployment fails', () => {
    for (const type of ['AWS::S3::Bucket', 'AWS::S3::BucketPolicy']) {
      const kept = Object.values(template.findResources(type)).map(({ DeletionPolicy }) => DeletionPolicy);
      expect(kept).toEqual(['RetainExceptOnCreate', 'RetainExceptOnCreate', 'RetainExceptOnCreate']);
    }
  });

  it('go with the stack if it says so', () => {
    const { template: passing } = synthesisePipeline({ removalPolicy: RemovalPolicy.DESTROY });
    for (const type of ['AWS::S3::Bucket', 'AWS::S3::BucketPolicy']) {
      passing.allResources(type, { DeletionPolicy: 'Delete' });
    }
  });

  it('of an earlier deployment can all be taken up again: ledger, inbox and results', () => {
    const old = (name: string) => (stack: Stack) => Bucket.fromBucketName(stack, name, `old-${name}`);
    const { template: back, findings } = synthesisePipeline((stack) => ({
      inboxBucket: old('inbox')(stack),
      resultsBucket: old('results')(stack),
      ledgerBucket: old('ledger')(stack),
      settings: { ledgerRetentionDays: 90 },
    }));
    expect(findings).toEqual([]);
    back.resourceCountIs('AWS::S3::Bucket', 0);
    for (const { Environment } of resources(back, 'AWS::Lambda::Function')) {
      expect(Environment.Variables).toMatchObject({ INBOX_BUCKET: 'old-inbox', LEDGER_BUCKET: 'old-ledger' });
    }
  });
});

describe('the queue', () => {
  const queue = only(resources(template, 'AWS::SQS::Queue').filter(({ RedrivePolicy }) => RedrivePolicy !== undefined));

  it.each([0, 300])(
    'hides a message for two minutes longer than the timeout, so that its claim has ended: window of %i s',
    (seconds) => {
      const { template: batching } =
        seconds === 0 ? defaultPipeline() : synthesisePipeline({ batchWindow: Duration.seconds(seconds) });
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

  it('makes a message a dead letter after more receives than a file has attempts, and keeps it for 14 days', () => {
    expect(queue.RedrivePolicy.maxReceiveCount).toBeGreaterThan(SETTINGS_DEFAULT.attemptsMax);
    const deadLetters = only(resources(template, 'AWS::SQS::Queue').filter(({ id }) => id.includes('DeadLetters')));
    expect(queue.RedrivePolicy.deadLetterTargetArn).toEqual({ 'Fn::GetAtt': [deadLetters.id, 'Arn'] });
    expect(deadLetters.MessageRetentionPeriod).toBe(1_209_600);
  });

  it('has an event source with a maximum concurrency, which reports single failed messages of a batch', () => {
    template.hasResourceProperties('AWS::Lambda::EventSourceMapping', {
      BatchSize: 10,
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
  ])('with %j has an event source with %j', (props, expected) => {
    synthesisePipeline(props).template.hasResourceProperties('AWS::Lambda::EventSourceMapping', expected);
  });
});
