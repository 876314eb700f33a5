import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { EVENT_SOURCE, NOTIFY_MAX, notifyRuleName, TEST_EVENT } from '../functions/publish/completion-event.ts';
import { AwsRequestError, askJson } from './aws-requests.ts';
import { combined, type Finding, type Outcome } from './checks.ts';
import type { Deployment } from './deployment.ts';
import { sleepUntilNext } from './wait.ts';

/** Looks at the dead-letter queues, one a second. EventBridge needs some seconds for a delivery that is in vain. */
const LOOKS = 20;

/** The most that SQS gives at a time. */
const RECEIVED_MAX = 10;

/** A target, as the rules on the bus describe it. */
interface Target {
  readonly number: number;
  /** For a person. */
  readonly name: string;
  readonly isOn: boolean;
  readonly deadLettersUrl: string;
}

const ruleSchema = z.object({ State: z.string() });
const targetsSchema = z.object({
  Targets: z.array(z.object({ Arn: z.string(), DeadLetterConfig: z.optional(z.object({ Arn: z.string() })) })),
});
const putSchema = z.object({
  Entries: z.array(z.object({ EventId: z.optional(z.string()), ErrorMessage: z.optional(z.string()) })),
});
const attribute = z.optional(z.object({ StringValue: z.string() }));
const receivedSchema = z.object({
  Messages: z._default(
    z.array(
      z.object({
        Body: z.string(),
        MessageAttributes: z._default(z.object({ ERROR_CODE: attribute, ERROR_MESSAGE: attribute }), {}),
      }),
    ),
    [],
  ),
});
const depthSchema = z.object({ Attributes: z.object({ ApproximateNumberOfMessages: z.string() }) });

/**
 * Sends a test event to all targets of `deployment.notify`, and looks for it among what could not be delivered. What a
 * target itself got is not known here.
 */
export async function examineNotify(deployment: Deployment, signal: AbortSignal): Promise<Outcome> {
  const targets = await targetsOf(deployment, signal);
  if (targets.length === 0) {
    return {
      notChecked: deployment.isLocal
        ? 'npm start was started without --notify, or flowdrop.json has no deployment.notify'
        : `the bus has no rule ${notifyRuleName(deployment.settings.pipeline, 1)}: set deployment.notify, and deploy`,
    };
  }
  const eventId = await putTestEvent(deployment, signal);
  if (typeof eventId !== 'string') return eventId;
  const failures = await failuresOf(eventId, targets, deployment, signal);
  const findings = await Promise.all(
    targets.map(async (target) => findingsOf(target, failures.get(target), await depthOf(target, deployment, signal))),
  );
  const outcome = combined(findings.flat());
  const rest = targets.filter((target) => target.isOn && !failures.has(target));
  const sent = rest.length === 0 ? '' : toldOf(rest, eventId);
  if (outcome === 'good') return { good: sent };
  return 'what' in outcome && sent !== '' ? { ...outcome, what: `${outcome.what}\n${sent}` } : outcome;
}

/** What is known of targets that did not refuse the event. */
const toldOf = (targets: readonly Target[], eventId: string): string =>
  `The event bus has the test event, and the rules of these targets match it: ` +
  `${targets.map(({ number, name }) => `${number} (${name})`).join(', ')}. It has not come back within ${LOOKS} seconds. ` +
  `Whether it arrived, only they know: look there for "${TEST_EVENT}", id ${eventId}.`;

async function targetsOf(deployment: Deployment, signal: AbortSignal): Promise<readonly Target[]> {
  const { pipeline, eventBus: EventBusName, queueUrl } = deployment.settings;
  const targets: Target[] = [];
  for (let number = 1; number <= NOTIFY_MAX; number += 1) {
    const Name = notifyRuleName(pipeline, number);
    try {
      const { State } = ruleSchema.parse(await askEvents('DescribeRule', { Name, EventBusName }, deployment, signal));
      const listed = await askEvents('ListTargetsByRule', { Rule: Name, EventBusName }, deployment, signal);
      const [target] = targetsSchema.parse(listed).Targets;
      const [, , service, , , resource] = target?.Arn.split(':') ?? [];
      targets.push({
        number,
        name: service === 'sqs' ? `the queue ${resource}` : 'an address',
        isOn: target !== undefined && State.startsWith('ENABLED'),
        // The stack of the pipeline made both.
        deadLettersUrl: queueUrl.replace(/[^/]*$/, target?.DeadLetterConfig?.Arn.split(':').at(-1) ?? ''),
      });
    } catch (error) {
      if (error instanceof AwsRequestError && /ResourceNotFound/.test(error.code)) break;
      throw error;
    }
  }
  return targets;
}

/** Returns the id that EventBridge gave the event. */
async function putTestEvent(deployment: Deployment, signal: AbortSignal): Promise<string | Finding> {
  const { pipeline, eventBus: EventBusName } = deployment.settings;
  const Detail = JSON.stringify({ id: randomUUID(), pipeline, message: 'flowdrop doctor --notify sent this.' });
  const Entries = [{ Source: EVENT_SOURCE, DetailType: TEST_EVENT, Detail, EventBusName }];
  const [entry] = putSchema.parse(await askEvents('PutEvents', { Entries }, deployment, signal)).Entries;
  if (entry?.EventId !== undefined) return entry.EventId;
  const what = `The event bus ${EventBusName} did not take the test event: ${entry?.ErrorMessage ?? 'no reason given'}.`;
  return { severity: 'fault', what, todo: 'Check deployment.eventBusArn.' };
}

/** Why the event could not be delivered, for each target that it came back from. */
async function failuresOf(
  eventId: string,
  targets: readonly Target[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<ReadonlyMap<Target, string>> {
  const failures = new Map<Target, string>();
  const wanted = targets.filter(({ isOn }) => isOn);
  for (let look = 0; look < LOOKS && failures.size < wanted.length; look += 1) {
    await sleepUntilNext(signal);
    for (const target of wanted) {
      const why = failures.has(target) ? undefined : await failureOf(eventId, target, deployment, signal);
      if (why !== undefined) failures.set(target, why);
    }
  }
  return failures;
}

async function failureOf(
  eventId: string,
  { deadLettersUrl: QueueUrl }: Target,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<string | undefined> {
  // The messages stay, and can be seen by others at once.
  const shown = { MaxNumberOfMessages: RECEIVED_MAX, VisibilityTimeout: 0, MessageAttributeNames: ['All'] };
  const { Messages } = receivedSchema.parse(
    await askQueues('ReceiveMessage', { QueueUrl, ...shown }, deployment, signal),
  );
  const message = Messages.find(({ Body }) => Body.includes(`"${eventId}"`));
  if (message === undefined) return undefined;
  const { ERROR_CODE, ERROR_MESSAGE } = message.MessageAttributes;
  return [ERROR_CODE, ERROR_MESSAGE].flatMap((each) => each?.StringValue ?? []).join(': ') || 'no reason given';
}

async function depthOf(
  { deadLettersUrl: QueueUrl }: Target,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<number> {
  const input = { QueueUrl, AttributeNames: ['ApproximateNumberOfMessages'] };
  const answer = await askQueues('GetQueueAttributes', input, deployment, signal);
  return Number(depthSchema.parse(answer).Attributes.ApproximateNumberOfMessages);
}

function findingsOf({ number, name, isOn }: Target, failure: string | undefined, depth: number): readonly Finding[] {
  const who = `Target ${number} (${name})`;
  if (!isOn) {
    return [{ severity: 'fault', what: `${who} is told of nothing: its rule is off.`, todo: 'Enable the rule.' }];
  }
  const todo = 'See docs/runbook.md, notify-failed.';
  if (failure !== undefined) {
    return [{ severity: 'fault', what: `${who} did not get the test event: ${failure}`, todo }];
  }
  if (depth === 0) return [];
  const what = `${who} was not told of earlier events: its dead-letter queue has ${depth}. The test event is not among the first of them.`;
  return [{ severity: 'warning', what, todo }];
}

const askEvents = (operation: string, input: object, { access }: Deployment, signal: AbortSignal): Promise<unknown> =>
  askJson({ service: 'events', target: `AWSEvents.${operation}`, version: '1.1', input }, access, signal);

const askQueues = (operation: string, input: object, { access }: Deployment, signal: AbortSignal): Promise<unknown> =>
  askJson({ service: 'sqs', target: `AmazonSQS.${operation}`, input }, access, signal);
