import * as z from 'zod/mini';
import { ALARM_NAMES } from '../functions/settings/alarm-names.ts';
import { AwsRequestError, askJson, askQuery } from './aws-requests.ts';
import { DEPLOY_AGAIN, type Outcome } from './checks.ts';
import type { Deployment } from './deployment.ts';

/** Pages of alarms that are read. A pipeline has some twenty alarms, and a page a hundred. */
const PAGES_MAX = 20;

const alarmSchema = z.object({
  AlarmName: z.string(),
  StateValue: z.string(),
  ActionsEnabled: z._default(z.boolean(), true),
  AlarmActions: z._default(z.array(z.string()), []),
});

/** The name of an alarm behind that of its pipeline. There may be several of one name, each with its number. */
const OWN = new RegExp(`^(${ALARM_NAMES.join('|')})(-\\d+)?$`);

/** An alarm of CloudWatch. */
export type Alarm = z.infer<typeof alarmSchema>;

const pageSchema = z.object({
  MetricAlarms: z._default(z.array(alarmSchema), []),
  NextToken: z.optional(z.nullable(z.string())),
});

/**
 * The alarms of the pipeline. Those of a pipeline whose name begins with the same words, such as a stage, are left out.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarms.html
 */
export async function alarmsOf({ access, settings }: Deployment, signal: AbortSignal): Promise<readonly Alarm[]> {
  const alarms: Alarm[] = [];
  const AlarmNamePrefix = `${settings.pipeline}-`;
  let NextToken: string | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const input = { AlarmNamePrefix, AlarmTypes: ['MetricAlarm'], NextToken };
    const target = 'GraniteServiceVersion20100801.DescribeAlarms';
    const answer = pageSchema.parse(await askJson({ service: 'monitoring', target, input }, access, signal));
    alarms.push(...answer.MetricAlarms.filter(({ AlarmName }) => OWN.test(AlarmName.slice(AlarmNamePrefix.length))));
    NextToken = answer.NextToken ?? undefined;
    if (NextToken === undefined) break;
  }
  return alarms;
}

/** Tells whether there are alarms, and whether they reach anyone. */
export async function examineAlarms(
  alarms: readonly Alarm[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Outcome> {
  const { pipeline, monitoring } = deployment.settings;
  if (monitoring === 'none') return 'good';
  if (alarms.length === 0) {
    const what = `There is no alarm of the pipeline ${pipeline}, so trouble goes unnoticed.`;
    return { severity: 'warning', what, todo: DEPLOY_AGAIN };
  }
  const mute = alarms.filter(({ ActionsEnabled, AlarmActions }) => !ActionsEnabled || AlarmActions.length === 0);
  if (mute.length > 0) {
    const what =
      mute.length === alarms.length
        ? 'The alarms notify no one.'
        : `Some alarms notify no one: ${mute.map(({ AlarmName }) => AlarmName).join(', ')}.`;
    const todo =
      'Set deployment.alarmEmail or deployment.alarmTopicArn, and deploy. If their actions are off, turn them on.';
    return { severity: 'warning', what, todo };
  }
  const topics = new Set(
    alarms.flatMap(({ AlarmActions }) => AlarmActions.filter((each) => /^arn:[^:]+:sns:/.test(each))),
  );
  for (const topic of topics) {
    const subscriptions = await subscriptionsOf(topic, deployment, signal);
    if (subscriptions === undefined) {
      const what = `The alarms reach no one: the topic ${topic} does not exist, and CloudWatch reports that to nobody.`;
      const ofYourOwn = 'Make a topic of your own again, or set another one in deployment.alarmTopicArn, and deploy.';
      const todo = `If the stack made the topic, for deployment.alarmEmail: ${DEPLOY_AGAIN} ${ofYourOwn}`;
      return { severity: 'warning', what, todo };
    }
    const { confirmed, pending } = subscriptions;
    if (confirmed > 0) continue;
    const what = `The alarms reach no one: the topic ${topic} has no confirmed subscription.`;
    const todo =
      pending > 0
        ? 'Follow the link in the mail that asks to confirm the subscription.'
        : 'Add a subscription to the topic, for example with deployment.alarmEmail.';
    return { severity: 'warning', what, todo };
  }
  return 'good';
}

/** Names the alarms that are on, such as those of errors of the functions. */
export function examineRaised(alarms: readonly Alarm[]): Outcome {
  const raised = alarms.filter(({ StateValue }) => StateValue === 'ALARM').map(({ AlarmName }) => AlarmName);
  if (raised.length === 0) return 'good';
  const what = `${raised.length === 1 ? 'An alarm is' : 'Alarms are'} on: ${raised.join(', ')}.`;
  return { severity: 'warning', what, todo: 'See docs/runbook.md, which has a heading for each.' };
}

const attributesSchema = z.object({
  GetTopicAttributesResponse: z.object({
    GetTopicAttributesResult: z.object({
      Attributes: z.object({ entry: z.array(z.object({ key: z.string(), value: z.unknown() })) }),
    }),
  }),
});

/**
 * Undefined if there is no such topic.
 * @see https://docs.aws.amazon.com/sns/latest/api/API_GetTopicAttributes.html
 */
async function subscriptionsOf(
  TopicArn: string,
  { access }: Deployment,
  signal: AbortSignal,
): Promise<{ readonly confirmed: number; readonly pending: number } | undefined> {
  const input = { Action: 'GetTopicAttributes', Version: '2010-03-31', TopicArn };
  const asked = await askQuery('sns', input, access, signal).catch((error: unknown) => {
    if (error instanceof AwsRequestError && error.code === 'NotFound') return undefined;
    throw error;
  });
  if (asked === undefined) return undefined;
  const answer = attributesSchema.parse(asked);
  const { entry } = answer.GetTopicAttributesResponse.GetTopicAttributesResult.Attributes;
  const count = (name: string): number => Number(entry.find(({ key }) => key === name)?.value ?? 0);
  return { confirmed: count('SubscriptionsConfirmed'), pending: count('SubscriptionsPending') };
}
