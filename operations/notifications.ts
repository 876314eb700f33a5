import { existsSync } from 'node:fs';
import { GetBucketNotificationConfigurationCommand, type QueueConfiguration } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import { askJson } from './aws-requests.ts';
import { DEPLOY_AGAIN, type Outcome } from './checks.ts';
import type { Deployment } from './deployment.ts';
import { examineQueuePolicy } from './queue-policy.ts';

const rulesSchema = z.object({ RuleNames: z._default(z.array(z.string()), []) });
const ruleSchema = z.object({ State: z.string() });

const SWEEP = 'Until then the daily sweep finds the uploads, up to a day late.';

/** Tells whether uploads are announced to the queue: by the bucket itself, or by a rule on its events. */
export async function examineNotifications(deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  if (deployment.isLocal) return examineInboxFolder(deployment);
  const { s3, settings } = deployment;
  const { inboxBucket: Bucket, queueUrl } = settings;
  const arn = queueArn(queueUrl, deployment.access.region);
  const { QueueConfigurations = [], EventBridgeConfiguration } = await s3.send(
    new GetBucketNotificationConfigurationCommand({ Bucket }),
    { abortSignal: signal },
  );
  const toQueue = QueueConfigurations.filter(({ QueueArn }) => QueueArn === arn);
  if (toQueue.some((each) => isWhole(each, settings.inboxPrefix))) {
    return examineQueuePolicy('s3.amazonaws.com', deployment, signal);
  }
  if (toQueue.length > 0) {
    return {
      severity: 'fault',
      what: `The bucket ${Bucket} announces only some of its uploads to the queue.`,
      todo: `Make its notification one of s3:ObjectCreated:* with no filter but the prefix "${settings.inboxPrefix}". ${SWEEP}`,
    };
  }
  if (EventBridgeConfiguration === undefined) {
    return {
      severity: 'fault',
      what: `The bucket ${Bucket} announces its uploads neither to the queue ${arn} nor to EventBridge.`,
      todo: `If the bucket is your own, turn on its events for EventBridge. Otherwise: ${DEPLOY_AGAIN} ${SWEEP}`,
    };
  }
  return examineRules(arn, deployment, signal);
}

/** Tells whether a rule that is on brings events to the queue. */
async function examineRules(arn: string, deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  const { access, settings } = deployment;
  const ask = (operation: string, input: object): Promise<unknown> =>
    askJson({ service: 'events', target: `AWSEvents.${operation}`, version: '1.1', input }, access, signal);
  const { RuleNames } = rulesSchema.parse(await ask('ListRuleNamesByTarget', { TargetArn: arn }));
  for (const Name of RuleNames) {
    if (ruleSchema.parse(await ask('DescribeRule', { Name })).State.startsWith('ENABLED')) {
      return examineQueuePolicy('events.amazonaws.com', deployment, signal);
    }
  }
  const { inboxBucket } = settings;
  return {
    severity: 'fault',
    what:
      RuleNames.length === 0
        ? `The bucket ${inboxBucket} sends its events to EventBridge, and no rule brings them to the queue ${arn}.`
        : `The rule ${RuleNames.join(', ')}, which brings uploads to the queue, is off.`,
    todo: `${RuleNames.length === 0 ? DEPLOY_AGAIN : 'Enable the rule.'} ${SWEEP}`,
  };
}

/** The local run announces all uploads itself. It watches a folder for them. */
function examineInboxFolder({ settings: { localInbox = '' } }: Deployment): Outcome {
  if (localInbox === '' || existsSync(localInbox)) return 'good';
  return {
    severity: 'fault',
    what: `The folder ${localInbox}, whose files are the uploads, is gone.`,
    todo: 'End npm start and start it again, which makes the folder.',
  };
}

/** True if the notification is of every upload of the pipeline. */
function isWhole({ Events = [], Filter }: QueueConfiguration, inboxPrefix: string): boolean {
  const rules = Filter?.Key?.FilterRules ?? [];
  return (
    Events.includes('s3:ObjectCreated:*') &&
    rules.every(({ Name, Value = '' }) =>
      Name?.toLowerCase() === 'prefix' ? inboxPrefix.startsWith(Value) : Value === '',
    )
  );
}

/**
 * @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-queue-message-identifiers.html
 */
function queueArn(url: string, region: string): string {
  const [account, name] = new URL(url).pathname.split('/').slice(-2);
  const [, partition] = /^(cn|us-gov|eusc)-/.exec(region) ?? [];
  return `arn:aws${partition === undefined ? '' : `-${partition}`}:sqs:${region}:${account}:${name}`;
}
