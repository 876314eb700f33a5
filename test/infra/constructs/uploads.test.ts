import { Duration } from 'aws-cdk-lib';
import { Match } from 'aws-cdk-lib/assertions';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { describe, expect, it } from 'vitest';
import { SETTINGS_DEFAULT } from '../../../functions/settings/settings.ts';
import { defaultPipeline, synthesisePipeline } from '../synthesis.ts';
import { only, resources } from '../template.ts';

const { template } = defaultPipeline();

describe('uploads reach the queue', () => {
  const queueArn = { 'Fn::GetAtt': [Match.stringLikeRegexp('^PipelineQueueUploads'), 'Arn'] };

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
      Targets: [{ Arn: queueArn }],
    });
    existing.hasResourceProperties('AWS::SQS::QueuePolicy', {
      PolicyDocument: {
        Statement: Match.arrayWith([Match.objectLike({ Principal: { Service: 'events.amazonaws.com' } })]),
      },
    });
    expect(JSON.stringify(existing.toJSON())).not.toContain('NotificationConfiguration');
  });

  it('and EventBridge as well, if s3Events is set', () => {
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
  ])('with %j has an event source with %j', (props, expected) => {
    synthesisePipeline(props).template.hasResourceProperties('AWS::Lambda::EventSourceMapping', expected);
  });
});
