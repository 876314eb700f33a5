import { randomUUID } from 'node:crypto';
import { DeleteObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { systemClock } from '../functions/base/clock.ts';
import { begun, type Entry, isTerminal, isUntold, isWaitingJob } from '../functions/ledger/entry.ts';
import {
  collectorKey,
  entryKey,
  parseEntryKey,
  parseRunningKey,
  parseWaitingKey,
  RUNNING_PREFIX,
  UPLOADS_PREFIX,
  WAITING_PREFIX,
} from '../functions/ledger/keys.ts';
import { Ledger } from '../functions/ledger/store.ts';
import { Inbox } from '../functions/uploads/inbox.ts';
import { messageFor } from '../functions/uploads/upload-event.ts';
import { objects, readEntries } from '../operations/listing.ts';
import type { Queue } from './aws/sqs.ts';

const CONCURRENCY = 32;

/** The buckets that an earlier run left, and the queue of this one. */
export interface Left {
  readonly s3: S3Client;
  readonly queue: Queue;
  readonly inboxBucket: string;
  readonly ledgerBucket: string;
  /** True if the flows of the earlier run are gone, as those of a stand-in are. */
  readonly areFlowsGone: boolean;
}

/**
 * Continues the work of an earlier run. Only this process uses the buckets, so a lease in the ledger is stale. The
 * messages of the queue are gone, so each object of the inbox that has not ended, or whose end may not have been told, is
 * notified again, and so is each unfinished upload of a later stage. If the flows are gone, what the ledger says of
 * unfinished uploads is removed before, so that they are begun again. A job that waits for its inputs has no flow, and
 * keeps its deadline.
 * @returns the entries of the uploads that had not ended.
 */
export async function resume(left: Left): Promise<readonly Entry[]> {
  const { s3, queue, inboxBucket, ledgerBucket } = left;
  const { signal } = new AbortController();
  const remove = (Key: string) => s3.send(new DeleteObjectCommand({ Bucket: ledgerBucket, Key }));
  const keysBelow = async (prefix: string): Promise<string[]> =>
    Array.fromAsync(objects({ s3, bucket: ledgerBucket, prefix }, signal), ({ Key = '' }) => Key);
  await remove(collectorKey(0));
  const ids = (await keysBelow(UPLOADS_PREFIX)).map(parseEntryKey).filter((id) => id !== undefined);
  const read = await readEntries(ids, { ledger: new Ledger(s3, ledgerBucket, randomUUID) }, signal);
  const entries = read.map(({ entry }) => entry).filter((entry) => entry !== undefined);
  const unfinished = entries.filter((entry) => !isTerminal(entry));
  if (left.areFlowsGone) {
    const begunAgain = unfinished.filter((entry) => !isWaitingJob(entry));
    const gone = new Set(begunAgain.map(({ upload }) => upload.id));
    const markers = [...(await keysBelow(RUNNING_PREFIX)), ...(await keysBelow(WAITING_PREFIX))].filter((key) =>
      gone.has((parseRunningKey(key) ?? parseWaitingKey(key))?.uploadId ?? ''),
    );
    const ofInbox = begunAgain.filter(({ upload }) => upload.stage === undefined);
    const keys = [...ofInbox.map(({ upload }) => entryKey(upload.id)), ...markers];
    await pMap(keys, remove, { concurrency: CONCURRENCY });
  }
  await pMap(unfinished, (entry) => resumeStage(entry, left), { concurrency: CONCURRENCY });
  const ended = new Set(entries.filter((each) => isTerminal(each) && !isUntold(each)).map(({ upload }) => upload.id));
  for await (const { uploads } of new Inbox(s3, systemClock).pages(inboxBucket, '', undefined, signal)) {
    for (const upload of uploads) {
      if (upload.isCurrent && !ended.has(upload.id)) queue.send(messageFor(upload));
    }
  }
  return unfinished;
}

/** An upload of a later stage has no object in the inbox. Only its entry leads to it. */
async function resumeStage(entry: Entry, { s3, queue, ledgerBucket, areFlowsGone }: Left): Promise<void> {
  const { upload, route, inputs, generation } = entry;
  if (upload.stage === undefined || inputs === undefined) return;
  if (areFlowsGone) {
    const anew = { ...begun(upload, route, inputs, systemClock.now()), generation };
    await s3.send(new PutObjectCommand({ Bucket: ledgerBucket, Key: entryKey(upload.id), Body: JSON.stringify(anew) }));
  }
  queue.send(messageFor(upload));
}
