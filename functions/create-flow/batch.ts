import pMap from 'p-map';
import type { Invocation } from '../base/invocation.ts';
import { UnrecognisedEventError, type UploadEvent, uploadsOf } from '../uploads/upload.ts';
import { createFlow } from './create-flow.ts';
import type { CreatePorts, MayTakeOver } from './delivery.ts';

/** What the queue's event source takes for an answer: the messages that must come again. */
export interface BatchResponse {
  readonly batchItemFailures: readonly { readonly itemIdentifier: string }[];
}

/** Half of the invocation's time had passed before this upload could begin: it goes back unattempted. */
export class NotStartedError extends Error {
  override readonly name = 'NotStartedError';
}

interface Work {
  readonly id: string | undefined;
  readonly upload: UploadEvent;
}

interface Message {
  /** Absent where the event came without a queue. */
  readonly id: string | undefined;
  readonly body: () => unknown;
}

/**
 * All uploads that one event tells of, side by side under a bound. The event is a batch of queue messages, each with a
 * notification in its body, or a single notification without a queue. One failure is that message's alone. An upload
 * whose last claim died is sent after the others, and alone: an attempt is charged to all that die together.
 * @throws {AggregateError} for a notification without a queue: then the whole event must come again.
 */
export async function createFlows(event: unknown, ports: CreatePorts, invocation: Invocation): Promise<BatchResponse> {
  const { settings, clock, telemetry } = ports;
  const halfTime = (invocation.startedAt + invocation.workEndsAt) / 2;
  const failures: { readonly id: string | undefined; readonly error: unknown }[] = [];
  const work = messagesOf(event).flatMap(({ id, body }) => {
    try {
      return uploadsOf(body()).map((upload) => ({ id, upload }));
    } catch (error) {
      if (!(error instanceof UnrecognisedEventError)) throw error;
      telemetry.log.error('A message that tells of no upload; it will end as a dead letter', { error });
      failures.push({ id, error });
      return [];
    }
  });
  const begin = async ({ id, upload }: Work, mayTakeOver: MayTakeOver): Promise<void> => {
    // If creations are limited, begin all the same: the upload then waits in the ledger and not in the queue.
    if (clock.now() > halfTime && !ports.flows.isCreationLimited) {
      const error = new NotStartedError(`No time was left to begin with ${upload.key}`);
      telemetry.log.warn('This upload goes back unattempted', { key: upload.key, error });
      failures.push({ id, error });
      return;
    }
    try {
      await createFlow(upload, ports, invocation, mayTakeOver);
    } catch (error) {
      failures.push({ id, error }); // It has been logged where its ids are known.
    }
  };
  const suspects: (Work & { readonly attempts: number })[] = [];
  const putOff = ({ id, upload }: Work): MayTakeOver => {
    return ({ attempts, upload: { id: uploadId } }) => {
      suspects.push({ id, upload: { ...upload, uploadId }, attempts });
      return false;
    };
  };
  const isAlone = work.length === 1;
  await pMap(work, (each) => begin(each, isAlone ? () => true : putOff(each)), {
    concurrency: settings.uploadConcurrency,
  });
  // If one of them is the cause, the invocation dies with nothing else under way. The cause has more attempts than the
  // others the next time, and comes last.
  suspects.sort((one, other) => one.attempts - other.attempts);
  for (const suspect of suspects) await begin(suspect, () => true);
  const unqueued = failures.filter(({ id }) => id === undefined).map(({ error }) => error);
  if (unqueued.length > 0) throw new AggregateError(unqueued, `${unqueued.length} uploads must come again`);
  const itemIdentifiers = new Set(failures.map(({ id }) => id as string));
  return { batchItemFailures: [...itemIdentifiers].map((itemIdentifier) => ({ itemIdentifier })) };
}

function messagesOf(event: unknown): readonly Message[] {
  const records = typeof event === 'object' && event !== null && 'Records' in event ? event.Records : undefined;
  if (!Array.isArray(records) || !records.every(isQueueRecord)) return [{ id: undefined, body: () => event }];
  return records.map(({ messageId, body }) => ({ id: messageId, body: () => parsed(body) }));
}

function isQueueRecord(record: unknown): record is { readonly messageId: string; readonly body: string } {
  if (typeof record !== 'object' || record === null) return false;
  return (
    'messageId' in record && typeof record.messageId === 'string' && 'body' in record && typeof record.body === 'string'
  );
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (cause) {
    throw new UnrecognisedEventError(`A message that is not JSON: ${body.slice(0, 200)}`, { cause });
  }
}
