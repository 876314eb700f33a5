import pMap from 'p-map';
import * as z from 'zod/mini';
import { type Invocation, isHalfOver, OutOfTimeError } from '../base/invocation.ts';
import { shorten } from '../base/printable.ts';
import { orDropped } from '../base/stored-state.ts';
import { SharedSearch } from '../flow-service/flow-search.ts';
import { UnrecognisedEventError, type UploadEvent, uploadsOf } from '../uploads/upload-event.ts';
import { createFlow } from './create-flow.ts';
import type { Batch, CreatePorts, MayTakeOver } from './delivery.ts';

/** The answer to the queue's event source: the messages that must come again. */
export interface BatchResponse {
  readonly batchItemFailures: readonly { readonly itemIdentifier: string }[];
}

/** An upload, and the message that named it. */
interface Work {
  readonly id: string | undefined;
  readonly upload: UploadEvent;
}

interface Suspect extends Work {
  readonly attempts: number;
}

/** A message that must come again, and why. */
interface Failed {
  readonly id: string | undefined;
  readonly error: unknown;
}

interface Message {
  /** Absent if the event came without a queue. */
  readonly id: string | undefined;
  /** When it came into the queue, in milliseconds since the epoch. */
  readonly sentAt: number | undefined;
  readonly body: () => unknown;
}

/**
 * Makes flows of all uploads of one event, several at a time. The event is a batch of queue messages, each with a
 * notification in its body, or a single notification without a queue. A failure fails only its own message.
 *
 * If an invocation dies, each of its uploads is charged an attempt. An upload whose last claim died or ran out of time
 * is a *suspect*: it is sent alone, after all others. So it cannot cost the others an attempt, and large files over a
 * slow network do not run out of time together.
 * @throws {AggregateError} if a notification without a queue fails. The whole event must come again then.
 */
export async function createFlows(event: unknown, ports: CreatePorts, invocation: Invocation): Promise<BatchResponse> {
  const failures: Failed[] = [];
  const work = workOf(event, ports, failures);
  const suspects: Suspect[] = [];
  const putOff = ({ id, upload }: Work): MayTakeOver => {
    return ({ attempts, upload: { id: uploadId } }) => {
      suspects.push({ id, upload: { ...upload, uploadId }, attempts });
      return false;
    };
  };
  const { flows, ledger } = ports;
  const searches = new SharedSearch((sought) => flows.find(sought, invocation.work, ledger));
  const begin = async ({ id, upload }: Work, mayTakeOver: MayTakeOver): Promise<void> => {
    try {
      await beginUpload(upload, ports, invocation, { mayTakeOver, searches });
    } catch (error) {
      failures.push({ id, error }); // It was logged with the upload's ids.
    }
  };
  const isAlone = work.length === 1;
  await pMap(work, (each) => begin(each, isAlone ? () => true : putOff(each)), {
    concurrency: ports.settings.uploadConcurrency,
  });
  // Suspects are sent one by one. If one kills the invocation, it alone is charged an attempt, and comes last next
  // time.
  suspects.sort((one, other) => one.attempts - other.attempts);
  for (const suspect of suspects) await begin(suspect, () => true);
  await giveBack(ports, invocation);
  return responseTo(failures);
}

/** Takes back the counts of flows that were not made. If that fails, they stay counted. */
async function giveBack({ holds, telemetry }: CreatePorts, { closing }: Invocation): Promise<void> {
  try {
    await holds.flush(closing);
  } catch (error) {
    telemetry.log.warn(
      'Flows that were not made could not be uncounted. They count until the period of the budget ends.',
      { error: error as Error },
    );
  }
}

/** The uploads of an event. A message that cannot be read fails. */
function workOf(event: unknown, { telemetry }: CreatePorts, failures: Failed[]): readonly Work[] {
  return messagesOf(event).flatMap(({ id, sentAt, body }) => {
    try {
      return uploadsOf(body()).map((upload) => ({ id, upload: { ...upload, arrivedAt: sentAt } }));
    } catch (error) {
      if (!(error instanceof UnrecognisedEventError)) throw error;
      telemetry.log.error('A message names no upload. It will become a dead letter.', { error });
      failures.push({ id, error });
      return [];
    }
  });
}

/** @throws any error, which is logged: then the upload must come again. */
async function beginUpload(
  upload: UploadEvent,
  ports: CreatePorts,
  invocation: Invocation,
  batch: Batch,
): Promise<void> {
  const { clock, telemetry } = ports;
  // If creations are limited, begin all the same: the upload then waits in the ledger and not in the queue.
  if (isHalfOver(invocation, clock.now()) && !ports.pacer.isCreationLimited) {
    const error = new OutOfTimeError(`Half of the invocation's time had passed before ${upload.key} could begin`);
    telemetry.log.warn('This upload goes back unattempted', { key: upload.key, uploadId: upload.uploadId, error });
    throw error;
  }
  await createFlow(upload, ports, invocation, batch);
}

function responseTo(failures: readonly Failed[]): BatchResponse {
  const unqueued = failures.filter(({ id }) => id === undefined).map(({ error }) => error);
  if (unqueued.length > 0) throw new AggregateError(unqueued, `${unqueued.length} uploads must come again`);
  const itemIdentifiers = new Set(failures.flatMap(({ id }) => id ?? []));
  return { batchItemFailures: [...itemIdentifiers].map((itemIdentifier) => ({ itemIdentifier })) };
}

/**
 * A batch of the queue.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html (the attribute `SentTimestamp`, in milliseconds)
 */
const batchSchema = z.object({
  Records: z.array(
    z.object({
      messageId: z.string(),
      body: z.string(),
      attributes: orDropped(z.object({ SentTimestamp: z.pipe(z.transform(Number), z.int().check(z.gte(0))) })),
    }),
  ),
});

function messagesOf(event: unknown): readonly Message[] {
  const { data } = batchSchema.safeParse(event);
  if (data === undefined) return [{ id: undefined, sentAt: undefined, body: () => event }];
  return data.Records.map(({ messageId: id, body, attributes }) => {
    return { id, sentAt: attributes?.SentTimestamp, body: () => parsed(body) };
  });
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (cause) {
    throw new UnrecognisedEventError(`A message that is not JSON: ${shorten(body, 200)}`, { cause });
  }
}
