// A stack with a pipeline that uses your inbox, your key and your topic. README.md says how to run it.
import { CfnOutput, Stack, type StackProps } from 'aws-cdk-lib';
import { Rule } from 'aws-cdk-lib/aws-events';
import { SnsTopic } from 'aws-cdk-lib/aws-events-targets';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import type { Construct } from 'constructs';
import { FlowPipeline } from 'flowdrop';

export class ModelsStack extends Stack {
  constructor(scope: Construct, id: string, props?: StackProps) {
    super(scope, id, props);

    const scanner = new Role(this, 'Scanner', { assumedBy: new ServicePrincipal('ecs-tasks.amazonaws.com') });
    const encryptionKey = new Key(this, 'Key', { enableKeyRotation: true });
    const alarmTopic = new Topic(this, 'Alarms', { enforceSSL: true });
    alarmTopic.addSubscription(new EmailSubscription('team@example.com'));

    const pipeline = new FlowPipeline(this, 'Pipeline', {
      name: 'scans',
      baseUrl: 'https://flows.example.com',
      // The bucket must send its events to EventBridge. The pipeline's rule selects those below inboxPrefix.
      inboxBucket: Bucket.fromBucketName(this, 'Scans', 'example-scans'),
      settings: { inboxPrefix: 'scans/', pollIntervalSeconds: 30, inDoubt: 'ask' },
      routes: [
        {
          name: 'drafts',
          prefixes: ['scans/drafts/'],
          mediaTypes: ['image/*'],
          template: 'model_generate_fromimage',
          parameters: { quality: 'low' },
        },
        {
          name: 'scans',
          mediaTypes: ['image/*'],
          template: 'model_generate_fromimage',
          parameters: { quality: 'high' },
        },
      ],
      encryptionKey,
      alarmTopic,
      // A copy of the package's runbook that the readers of alarms can open.
      runbookUrl: 'https://wiki.example.com/flowdrop',
    });

    pipeline.grantReadResults(scanner);

    // Sends an event for each finished model to a topic. A queue or a function works as well. An event may come twice, with
    // the same `detail.id`.
    new Rule(this, 'ModelReady', {
      eventPattern: { source: ['flowdrop'], detailType: ['Flow Succeeded'], detail: { pipeline: ['scans'] } },
      targets: [new SnsTopic(new Topic(this, 'Ready', { enforceSSL: true }))],
    });

    new CfnOutput(this, 'TokenSecret', { value: pipeline.tokenSecret.secretArn });
    new CfnOutput(this, 'Results', { value: pipeline.resultsBucket.bucketName });
  }
}
