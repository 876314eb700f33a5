import { Aspects, Stack } from 'aws-cdk-lib';
import { PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Subscription, SubscriptionProtocol, Topic, TopicPolicy } from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import { expect, it } from 'vitest';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { PROPS, synthesise, synthesisePipeline } from './synthesis.ts';
import { resources } from './template.ts';

/** What an app has to do with a pipeline in one of its stacks, beyond the configurations of templates.test.ts. */

const EVENTS_OFF = 'To turn them on: aws s3api put-bucket-notification-configuration';
const UNSUBSCRIBED = 'the topic test/Topic has no subscription in this app';
const KEY_OF_LOGS = 'S3 does not support a default encryption with a key of KMS for access logs';

it.each<[string, (stack: Stack, topic: Topic) => Partial<FlowPipelineProps>, readonly string[]]>([
  [
    'an inbox without events, a topic without subscription, and access logs with a key',
    (stack) => ({
      inboxBucket: new Bucket(stack, 'Existing'),
      accessLogsBucket: new Bucket(stack, 'Logs', { encryptionKey: new Key(stack, 'Key') }),
    }),
    [EVENTS_OFF, UNSUBSCRIBED, KEY_OF_LOGS],
  ],
  [
    'an inbox with its events on, a topic with a subscription, and access logs without a key',
    (stack, topic) => {
      topic.addSubscription(new EmailSubscription('ops@example.com'));
      return {
        inboxBucket: new Bucket(stack, 'Existing', { eventBridgeEnabled: true }),
        accessLogsBucket: new Bucket(stack, 'Logs'),
      };
    },
    [],
  ],
  [
    'a topic that is subscribed to elsewhere in the app',
    (stack, topic) => {
      const protocol = SubscriptionProtocol.HTTPS;
      new Subscription(stack, 'Elsewhere', { protocol, endpoint: 'https://alarms.example.com', topic });
      return {};
    },
    [],
  ],
  [
    'a topic without subscription, beside one of another stack that has the same logical id',
    (stack) => {
      const other = new Topic(new Stack(stack.node.root, 'other'), 'Topic');
      other.addSubscription(new EmailSubscription('ops@example.com'));
      return {};
    },
    [UNSUBSCRIBED],
  ],
])('warns at synth of what is wrong with %s', (_, propsOf, expected) => {
  const { messages } = synthesisePipeline((stack) => {
    const alarmTopic = new Topic(stack, 'Topic');
    return { alarmTopic, ...propsOf(stack, alarmTopic) };
  });
  const warned = [EVENTS_OFF, UNSUBSCRIBED, KEY_OF_LOGS].filter((text) => messages.join('\n').includes(text));
  expect(warned).toEqual(expected);
});

it('lets alarms publish to a topic with a policy, however that is made, and leaves the default of SNS as it is', () => {
  const { template, stack } = synthesise((app) => {
    new Topic(new Stack(app, 'other'), 'Late', { enforceSSL: true });
    const stack = new Stack(app, 'test');
    const topic = (id: string) => new Topic(stack, id);
    const [late, beside, below, bare] = [topic('Late'), topic('Beside'), topic('Below'), topic('Bare')] as const;
    const principals = [new ServicePrincipal('budgets.amazonaws.com')];
    const budgets = new PolicyStatement({ principals, actions: ['sns:Publish'], resources: [late.topicArn] });
    Aspects.of(stack).add({ visit: (node) => void (node === stack && late.addToResourcePolicy(budgets)) });
    new TopicPolicy(stack, 'Policy', { topics: [beside], enforceSSL: true });
    new TopicPolicy(below, 'Mine', { topics: [below], enforceSSL: true });
    // Two pipelines in one stack, under two names.
    new FlowPipeline(stack, 'First', { ...PROPS, name: 'first', alarmTopic: late, ticketTopic: beside });
    new FlowPipeline(stack, 'Second', { ...PROPS, name: 'second', alarmTopic: below, ticketTopic: bare });
    return stack;
  });
  const allowsAlarms = (document: unknown) => JSON.stringify(document).includes('cloudwatch.amazonaws.com');
  const policies = resources(template, 'AWS::SNS::TopicPolicy');
  expect(policies.map(({ PolicyDocument }) => allowsAlarms(PolicyDocument))).toEqual([true, true, true]);
  // Of another stack, with the same logical id.
  const { document } = stack.node.root.node
    .findChild('other')
    .node.findChild('Late')
    .node.findChild('Policy') as TopicPolicy;
  expect(allowsAlarms(stack.resolve(document))).toBe(false);
});

it('takes a bucket of another stack as its inbox, and acknowledges the wildcard on it', () => {
  const { findings } = synthesise((app) => {
    const theirs = new Bucket(new Stack(app, 'theirs'), 'Inbox', { enforceSSL: true, serverAccessLogsPrefix: 'logs/' });
    const stack = new Stack(app, 'test');
    new FlowPipeline(stack, 'Pipeline', { ...PROPS, inboxBucket: theirs });
    return stack;
  });
  expect(findings).toEqual([]);
});
