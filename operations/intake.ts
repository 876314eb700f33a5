import * as z from 'zod/mini';
import { AwsRequestError, isDenied, sendToAws } from './aws-requests.ts';
import type { Deployment } from './deployment.ts';
import { sleepUntilNext } from './wait.ts';

/*
 * The event source mapping of Lambda brings uploads from their queue to the creating function. All uploads come through
 * that queue: new ones, retried ones, and those that waited or were missed. So without the mapping no flow begins, and
 * the uploads stay in the queue.
 */

/** Time in which the mapping comes to the state that it was put into, in milliseconds. As a rule it takes a minute. */
const CHANGE_MAX_MS = 10 * 60_000;

/** How long an upload waits in the queue, in days: the retention of SQS. */
export const QUEUE_DAYS = 14;

/**
 * Start of a pause that is longer than the queue keeps messages, in ISO 8601. Uploads since then may have been dropped,
 * and the daily sweep does not look back so far. Undefined if there is no such pause.
 */
export function droppedSince({ state, since }: Intake, now: number): string | undefined {
  const isLong = since !== undefined && now - Date.parse(since) > QUEUE_DAYS * 24 * 60 * 60_000;
  return isLong && state === 'paused' ? since : undefined;
}

/** Whether uploads become flows. */
export interface Intake {
  /** `changing` if something else about the mapping is being changed. */
  readonly state: 'on' | 'paused' | 'pausing' | 'resuming' | 'changing';
  /** Since when, in ISO 8601. Undefined if Lambda does not say. */
  readonly since: string | undefined;
  /** False if Lambda itself made the last change, as it does if the function or the queue is gone. */
  readonly isByUser: boolean;
}

/** The pause or resume was undone before it could be confirmed, most likely by another client. */
export class IntakeOvertakenError extends Error {
  override readonly name = 'IntakeOvertakenError';
}

/** The stack does not name its event source mapping, so its uploads cannot be paused. */
export class IntakeUnknownError extends Error {
  override readonly name = 'IntakeUnknownError';
}

const STATES: Readonly<Record<string, Intake['state']>> = {
  Enabled: 'on',
  Enabling: 'resuming',
  Disabled: 'paused',
  Disabling: 'pausing',
};

/** @see https://docs.aws.amazon.com/lambda/latest/api/API_GetEventSourceMapping.html */
const mappingSchema = z.object({
  State: z.string(),
  /** Seconds since the epoch, of the last change or the last state. */
  LastModified: z.optional(z.number()),
  StateTransitionReason: z.optional(z.nullable(z.string())),
});

/** Tells whether uploads become flows. Undefined if the stack does not name its mapping, or you may not see it. */
export async function intakeOf(deployment: Deployment, signal: AbortSignal): Promise<Intake | undefined> {
  if (deployment.uploadMapping === undefined) return undefined;
  try {
    return await readIntake(deployment, signal);
  } catch (error) {
    if (isDenied(error)) return undefined;
    throw error;
  }
}

/**
 * Lets no new flow begin. Flows that run go on, and their results are collected. Uploads that are being sent at this
 * moment are sent. All others wait in the queue.
 * @throws {IntakeUnknownError} @throws {IntakeOvertakenError} @throws {AwsRequestError}
 */
export const pause = (deployment: Deployment, signal: AbortSignal): Promise<Intake> =>
  changeTo('paused', deployment, signal);

/**
 * Lets uploads become flows again.
 * @throws {IntakeUnknownError} @throws {IntakeOvertakenError} @throws {AwsRequestError}
 */
export const resume = (deployment: Deployment, signal: AbortSignal): Promise<Intake> =>
  changeTo('on', deployment, signal);

/**
 * Orders the change once, and waits for it. A second order could undo what another client has ordered since. Answers of
 * Lambda may be older than the order, so an opposite state counts only with a later time.
 */
async function changeTo(wanted: 'on' | 'paused', deployment: Deployment, signal: AbortSignal): Promise<Intake> {
  const endsAt = deployment.clock.now() + CHANGE_MAX_MS;
  let ordered: Intake | undefined;
  for (;;) {
    const intake = await readIntake(deployment, signal);
    if (intake.state === wanted) return intake;
    const isSettled = intake.state === 'on' || intake.state === 'paused';
    if (isSettled && ordered !== undefined && isLater(intake, ordered)) {
      throw new IntakeOvertakenError(
        `The ${wanted === 'on' ? 'resume' : 'pause'} was undone at ${intake.since}, ${intake.isByUser ? 'most likely by another client' : 'by Lambda itself'}. If that is not meant, repeat the command.`,
      );
    }
    if (deployment.clock.now() >= endsAt) {
      throw new Error(
        `The event source mapping is ${intake.state} after ${CHANGE_MAX_MS / 60_000} minutes. Ask again.`,
      );
    }
    if (isSettled) ordered ??= await order(wanted === 'on', deployment, signal);
    await sleepUntilNext(signal);
  }
}

const isLater = (one: Intake, other: Intake): boolean =>
  one.since !== undefined && other.since !== undefined && one.since > other.since;

async function readIntake(deployment: Deployment, signal: AbortSignal): Promise<Intake> {
  const request = { service: 'lambda', method: 'GET', path: pathOf(deployment) } as const;
  return intakeIn((await sendToAws(request, deployment.access, signal)).text);
}

function intakeIn(text: string): Intake {
  const { State, LastModified, StateTransitionReason } = mappingSchema.parse(JSON.parse(text));
  return {
    state: STATES[State] ?? 'changing',
    since: LastModified === undefined ? undefined : new Date(LastModified * 1_000).toISOString(),
    isByUser: !/lambda/i.test(StateTransitionReason ?? ''),
  };
}

/** Asks for the change. Undefined if Lambda refuses it, as it does while another one is under way. */
async function order(Enabled: boolean, deployment: Deployment, signal: AbortSignal): Promise<Intake | undefined> {
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ Enabled });
  const request = { service: 'lambda', method: 'PUT', path: pathOf(deployment), headers, body } as const;
  try {
    return intakeIn((await sendToAws(request, deployment.access, signal)).text);
  } catch (error) {
    const isBusy = error instanceof AwsRequestError && /^Resource(InUse|Conflict)Exception$/.test(error.code);
    if (!isBusy) throw error;
    return undefined;
  }
}

function pathOf({ uploadMapping, name }: Deployment): string {
  if (uploadMapping !== undefined) return `/2015-03-31/event-source-mappings/${encodeURIComponent(uploadMapping)}`;
  throw new IntakeUnknownError(
    `No output UploadMapping of a stack names the event source mapping of the ${name}. Name the stack with --stack. ` +
      'Deploy this version; or give your own stack the output, with the id of the mapping.',
  );
}
