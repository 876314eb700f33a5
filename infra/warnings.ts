import { Annotations, Stack, Token } from 'aws-cdk-lib';
import { PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Bucket, type IBucket } from 'aws-cdk-lib/aws-s3';
import { CfnSubscription, type ITopic, Topic } from 'aws-cdk-lib/aws-sns';
import type { Construct } from 'constructs';
import { ConfigurationError } from '../functions/base/validation.ts';
import { idleBudgets, warningsOfRoutes } from '../functions/settings/route-checks.ts';
import { warningOfExampleHost } from '../functions/settings/service-address.ts';
import type { Budget } from '../functions/uploads/budget.ts';
import type { Route } from '../functions/uploads/route.ts';
import { printed } from './constructs/permissions.ts';
import type { FlowPipelineProps } from './flow-pipeline-props.ts';
import { isSameInApp } from './same-in-app.ts';

/** Place of the runbook in this repository and in the package. */
export const RUNBOOK_IN_PACKAGE = 'docs/runbook.md';

/** Warns at synth if an alarm would reach no one, or would name a runbook that its reader cannot open. */
export function warnOfUnheardAlarms(scope: Construct, topic: ITopic | undefined, runbookUrl: string | undefined): void {
  if (topic === undefined) {
    Annotations.of(scope).addWarningV2(
      'flowdrop:alarms-unsent',
      'No one is notified of alarms. Set deployment.alarmEmail or deployment.alarmTopicArn (the prop alarmTopic), or look at them every day.',
    );
    return;
  }
  warnIfUnsubscribed(scope, topic);
  if (runbookUrl === undefined) {
    Annotations.of(scope).addWarningV2(
      'flowdrop:runbook-not-reachable',
      `Notifications of alarms name ${RUNBOOK_IN_PACKAGE}, which their readers cannot open. Set runbookUrl to a copy that your team can read.`,
    );
  }
}

/** Warns at synth of what is most likely a mistake in a route or in a budget. */
export function warnOfRoutes(scope: Construct, routes: readonly Route[], budget: Budget | 'unlimited'): void {
  const warnings = [
    ...warningsOfRoutes(routes, `${scope.node.path}.routes`),
    ...idleBudgets(routes, budget).map((warning) => `${scope.node.path}: ${warning}`),
  ];
  for (const [index, warning] of warnings.entries()) {
    // Warnings with one id are shown once.
    Annotations.of(scope).addWarningV2(`flowdrop:route-${index + 1}`, warning);
  }
}

/** Warns at synth if the URL of the flow service is still the example. */
export function warnOfExampleHost(scope: Construct, baseUrl: URL): void {
  const warning = warningOfExampleHost(baseUrl);
  if (warning !== undefined) Annotations.of(scope).addWarningV2('flowdrop:example-host', warning);
}

/** True if both are known at synth, and are not the same. */
export const differs = (one: string, other: string): boolean =>
  !Token.isUnresolved(one) && !Token.isUnresolved(other) && one !== other;

/** Props whose resources AWS takes from the region of the stack only. */
const OF_REGION = [
  'inboxBucket',
  'resultsBucket',
  'ledgerBucket',
  'tokenSecret',
  'eventBus',
  'encryptionKey',
  'alarmTopic',
  'ticketTopic',
] as const;

/** Props whose resources may have a key. The functions use it. */
const WITH_KEY = ['inboxBucket', 'resultsBucket', 'ledgerBucket', 'tokenSecret'] as const;

/** Props whose resources may have a key. The alarms use it. */
const WITH_KEY_OF_ALARMS = ['alarmTopic', 'ticketTopic'] as const;

/**
 * Checks that existing resources are in the region of the stack, as far as it is known at synth. S3 sends the events of a
 * bucket to the bus of the bucket's own region. The services refuse requests about what is in another region.
 * @throws {ConfigurationError} one is not.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventBridge.html
 */
export function checkRegions(scope: Construct, props: Pick<FlowPipelineProps, (typeof OF_REGION)[number]>): void {
  const { region } = Stack.of(scope);
  const issues = OF_REGION.flatMap((name) => {
    const theirs = props[name]?.env.region ?? region;
    return differs(theirs, region)
      ? [`${scope.node.path}.${name}: expected one in the region ${region} of the stack, got one in ${theirs}`]
      : [];
  });
  if (issues.length > 0) throw new ConfigurationError(issues);
}

/**
 * Checks that keys are no aliases. A policy of IAM cannot name a key by its alias, and CloudWatch Logs takes none. The key
 * of a topic may be named by an alias, unless it is AWS's own, whose policy does not let alarms use it.
 * @throws {ConfigurationError} one is.
 * @see https://docs.aws.amazon.com/kms/latest/developerguide/alias-authorization.html
 * @see https://repost.aws/knowledge-center/cloudwatch-configure-alarm-sns
 */
export function checkKeys(
  scope: Construct,
  {
    encryptionKey,
    ...props
  }: Pick<FlowPipelineProps, 'encryptionKey' | (typeof WITH_KEY | typeof WITH_KEY_OF_ALARMS)[number]>,
): void {
  const keys = WITH_KEY.map((name) => [`${name}.encryptionKey`, props[name]?.encryptionKey] as const);
  const issues = [['encryptionKey', encryptionKey] as const, ...keys].flatMap(([name, key]) =>
    key !== undefined && 'aliasName' in key
      ? [`${scope.node.path}.${name}: expected the key itself, got an alias. Key.fromLookup finds the key of an alias`]
      : [],
  );
  const ofAlarms = WITH_KEY_OF_ALARMS.filter((name) => {
    const key = props[name]?.masterKey;
    return key !== undefined && 'aliasName' in key && String(key.aliasName).startsWith('alias/aws/');
  }).map(
    (name) =>
      `${scope.node.path}.${name}.masterKey: expected a key of yours, got AWS's own. Its policy does not let alarms use it, so they reach no one`,
  );
  if (issues.length + ofAlarms.length > 0) throw new ConfigurationError([...issues, ...ofAlarms]);
}

/**
 * Checks the bucket for access logs, as far as it is known at synth. What is wrong with it shows nowhere later: S3 then
 * delivers no logs.
 * @param prefix of the keys of all access logs.
 * @throws {ConfigurationError} it is in another account or region.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/ServerLogs.html
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/enable-server-access-logging.html
 */
export function checkAccessLogsBucket(scope: Construct, bucket: IBucket | undefined, prefix: string): void {
  if (bucket === undefined) return;
  const { account, region } = Stack.of(scope);
  const { env } = bucket;
  if (differs(env.account, account) || differs(env.region, region)) {
    throw new ConfigurationError([
      `${scope.node.path}.accessLogsBucket: expected a bucket in account ${account} and region ${region}, got one in ${env.account} and ${env.region}`,
    ]);
  }
  if (bucket.encryptionKey !== undefined) {
    Annotations.of(scope).addWarningV2(
      'flowdrop:access-logs-key',
      'S3 does not support a default encryption with a key of KMS for access logs. Use SSE-S3 for accessLogsBucket.',
    );
  }
  if (bucket instanceof Bucket) return;
  const statement = new PolicyStatement({
    principals: [new ServicePrincipal('logging.s3.amazonaws.com')],
    actions: ['s3:PutObject'],
    resources: [bucket.arnForObjects(`${prefix}*`)],
    conditions: { StringEquals: { 'aws:SourceAccount': account } },
  });
  Annotations.of(scope).addWarningV2(
    'flowdrop:access-logs-policy',
    `This app cannot change the policy of the bucket for the access logs. Add this statement to it: ${printed(scope, statement)}`,
  );
}

/**
 * Warns if a topic of this app has no subscription. That is known only once the app is complete. The subscriptions of
 * an imported topic are unknown, so there is no warning.
 */
function warnIfUnsubscribed(scope: Construct, topic: ITopic): void {
  if (!(topic instanceof Topic)) return;
  scope.node.addValidation({
    validate: () => {
      const isOfTopic = ({ topicArn }: CfnSubscription) => isSameInApp(topicArn, topic.topicArn);
      const all = scope.node.root.node.findAll();
      if (!all.some((each) => each instanceof CfnSubscription && isOfTopic(each))) {
        Annotations.of(scope).addWarningV2(
          'flowdrop:alarms-unsubscribed',
          `No one is notified of alarms: the topic ${topic.node.path} has no subscription in this app.`,
        );
      }
      return [];
    },
  });
}
