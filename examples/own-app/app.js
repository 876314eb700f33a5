// An app of your own with a pipeline in it: your inbox, your key, your topic. `npm install flowdrop aws-cdk-lib
// constructs`, then `cdk deploy --app "node app.js"`.
import { App, Stack } from 'aws-cdk-lib';
import { Rule } from 'aws-cdk-lib/aws-events';
import { SnsTopic } from 'aws-cdk-lib/aws-events-targets';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { FlowPipeline } from 'flowdrop';

const stack = new Stack(new App(), 'Models');

const scanner = new Role(stack, 'Scanner', { assumedBy: new ServicePrincipal('ecs-tasks.amazonaws.com') });
const encryptionKey = new Key(stack, 'Key', { enableKeyRotation: true });
const alarmTopic = new Topic(stack, 'Alarms', { enforceSSL: true });
alarmTopic.addSubscription(new EmailSubscription('team@example.com'));

const pipeline = new FlowPipeline(stack, 'Pipeline', {
  name: 'scans',
  baseUrl: 'https://flows.example.com',
  // The bucket must send its events to EventBridge; a rule picks out those of scans.
  inboxBucket: Bucket.fromBucketName(stack, 'Scans', 'example-scans'),
  settings: { inboxPrefix: 'scans/', pollIntervalSeconds: 30, inDoubt: 'hold' },
  routes: [
    {
      name: 'drafts',
      prefixes: ['scans/drafts/'],
      mediaTypes: ['image/*'],
      template: 'model_generate_fromimage',
      parameters: { quality: 'low' },
    },
    { name: 'scans', mediaTypes: ['image/*'], template: 'model_generate_fromimage', parameters: { quality: 'high' } },
  ],
  encryptionKey,
  alarmTopic,
  // Where the runbook of the package is put for those who are told of alarms.
  runbookUrl: 'https://wiki.example.com/flowdrop',
});

pipeline.grantReadResults(scanner);

// What is to be done with each model that is ready: here it is told to a topic, which may as well be a queue or a
// function. An event may come twice; `detail.id` is the same then.
new Rule(stack, 'ModelReady', {
  eventPattern: { source: ['flowdrop'], detailType: ['Flow Succeeded'], detail: { pipeline: ['scans'] } },
  targets: [new SnsTopic(new Topic(stack, 'Ready', { enforceSSL: true }))],
});
