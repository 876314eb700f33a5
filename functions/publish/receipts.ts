import type { Readable } from 'node:stream';
import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import type { FailedOutput, Failure, RunningEntry, StoredAsset, TerminalEntry } from '../ledger/entry.ts';
import { assets, failedOutputs, time } from '../ledger/entry-schema.ts';
import { adviceFor, adviceText } from '../ledger/failures.ts';
import { receiptKey, UPLOAD_METADATA } from '../results/results-keys.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { headObject } from '../s3/objects.ts';
import type { Settings } from '../settings/environment.ts';
import { type Inbox, isInside } from '../uploads/inbox.ts';
import type { Upload } from '../uploads/upload.ts';
import { type RetrySettings, retryCommand } from './retry-command.ts';

/** How an upload ended, for people and programs. This is the content of the receipt. */
export type Receipt = SucceededReceipt | FailedReceipt;

interface SucceededReceipt extends ReceiptFacts {
  readonly status: 'succeeded';
  readonly failure?: undefined;
}

interface FailedReceipt extends ReceiptFacts {
  readonly status: 'failed';
  readonly failure: Failure & {
    /** What to do, and whether a retry can help. */
    readonly advice: string;
    /** The command that retries the upload. Absent if a retry cannot help. */
    readonly retry?: string | undefined;
  };
}

interface ReceiptFacts {
  /** Version of this form. */
  readonly receipt: 1;
  readonly upload: {
    readonly id: string;
    readonly bucket: string;
    readonly key: string;
    readonly versionId?: string | undefined;
    readonly etag: string;
    readonly bytes: number;
    readonly mediaType: string;
    /** ISO 8601, UTC. */
    readonly lastModified: string;
  };
  readonly route: string;
  readonly template: string;
  /** 1, plus 1 for each retry of an upload that had ended. */
  readonly generation: number;
  readonly flow?: { readonly id: string; readonly createdAt: string } | undefined;
  readonly endedAt: string;
  readonly assets: readonly StoredAsset[];
  /** Outputs that the service could not make, or that could not be stored. */
  readonly failedOutputs: readonly FailedOutput[];
}

/** Other writers replaced the receipt between every read and write of ours. The next attempt publishes it. */
class ReceiptContendedError extends Error {
  override readonly name = 'ReceiptContendedError';
}

/** Tries of a conditional write of a receipt. After that the receipt is left to the next attempt. */
const TRIES_MAX = 10;

/** Maximum size of a receipt that is read back, in bytes: 10,000 outputs with the longest keys take about 20 MB. */
const RECEIPT_BYTES_MAX = 32 * 1024 * 1024;

/** What a receipt says of a success. */
const successSchema = z.object({
  status: z.literal('succeeded'),
  upload: z.object({ id: z.string() }),
  generation: z.number(),
  flow: z.object({ id: z.string() }),
  endedAt: z.pipe(
    z.pipe(
      z.string(),
      z.transform((text: string) => Date.parse(text)),
    ),
    time,
  ),
  assets,
  failedOutputs,
});

/** How a flow has succeeded. `endedAt` in milliseconds since the epoch. */
type Success = Pick<z.infer<typeof successSchema>, 'endedAt' | 'assets' | 'failedOutputs'>;

/** Names of a receipt's metadata. A HEAD shows by them which upload the receipt belongs to. */
const GENERATION = 'flowdrop-generation';
const ENDED_AT = 'flowdrop-ended-at';
const LAST_MODIFIED = 'flowdrop-last-modified';
const BUCKET = 'flowdrop-bucket';

export function receiptOf(entry: TerminalEntry, settings: RetrySettings): Receipt {
  const { id, bucket, key, versionId, etag, bytes, mediaType, lastModified } = entry.upload;
  const facts = {
    upload: { id, bucket, key, versionId, etag, bytes, mediaType, lastModified: iso(lastModified) },
    route: entry.route.name,
    template: entry.route.template,
    generation: entry.generation,
    flow: entry.flow && { id: entry.flow.id, createdAt: iso(entry.flow.createdAt) },
    endedAt: iso(entry.endedAt),
    assets: entry.assets,
    failedOutputs: entry.failedOutputs,
  };
  if (entry.state === 'succeeded') return { receipt: 1, status: 'succeeded', ...facts };
  return { receipt: 1, status: 'failed', ...facts, failure: advised(entry.failure, entry.upload, settings) };
}

function advised(failure: Failure, upload: Upload, settings: RetrySettings): FailedReceipt['failure'] {
  const known = adviceFor(failure.code);
  // The code of another version may stand for anything.
  if (known === undefined) return { ...failure, advice: UNKNOWN_ADVICE, retry: retryCommand(settings, upload) };
  const retry = known.retry === 'cannot-help' ? undefined : retryCommand(settings, upload);
  // A local run whose files come from no folder has no command to retry one.
  const isOffered = known.retry === 'cannot-help' || retry !== undefined;
  const advice = isOffered ? adviceText(known) : known.action;
  return { ...failure, advice, ...(retry !== undefined && { retry }) };
}

const UNKNOWN_ADVICE = 'Look the code up in docs/failures.md of the version that wrote it.';

/** The present inbox, and the place of its receipts. */
export type ReceiptSettings = Pick<Settings, 'resultsBucket' | 'resultsPrefix' | 'inboxBucket' | 'inboxPrefix'>;

/**
 * The receipts: one address for each key of the inbox. The address belongs to the upload that is current at that key,
 * in whatever order uploads arrive and end. An upload outside of the present inbox is never current. S3 is not asked
 * about such an upload, because its bucket may be gone, or forbidden to the functions.
 */
export class Receipts {
  readonly #s3: S3Client;
  readonly #inbox: Inbox;
  readonly #settings: ReceiptSettings;

  constructor(s3: S3Client, inbox: Inbox, settings: ReceiptSettings) {
    this.#s3 = s3;
    this.#inbox = inbox;
    this.#settings = settings;
  }

  /** Puts the receipt at its address, unless the receipt that is there outranks it. Returns the address. */
  async put(receipt: Receipt, signal: AbortSignal): Promise<string> {
    const key = this.#keyOf(receipt);
    let condition: { IfNoneMatch: '*' } | { IfMatch: string } = { IfNoneMatch: '*' };
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      try {
        await this.#s3.send(
          new PutObjectCommand({
            Bucket: this.#settings.resultsBucket,
            Key: key,
            Body: `${JSON.stringify(receipt, undefined, 2)}\n`,
            ContentType: 'application/json',
            Metadata: {
              [UPLOAD_METADATA]: receipt.upload.id,
              [GENERATION]: String(receipt.generation),
              [ENDED_AT]: receipt.endedAt,
              [LAST_MODIFIED]: receipt.upload.lastModified,
              [BUCKET]: receipt.upload.bucket,
            },
            ...condition,
          }),
          { abortSignal: signal },
        );
        return key;
      } catch (error) {
        if (isConflict(error)) continue;
        if (!isPreconditionFailed(error) && !isAbsent(error)) throw error;
      }
      const there = await this.#stored(key, signal);
      if (there === undefined) condition = { IfNoneMatch: '*' };
      else if (await this.#outranks(receipt, there, signal)) condition = { IfMatch: there.etag };
      else return key;
    }
    throw new ReceiptContendedError(`${key} was replaced by other writers between ${TRIES_MAX} tries to write it`);
  }

  /** True if the receipt of an end was put already. False also if another upload's receipt is there, which hides it. */
  async isPublished(end: End, signal: AbortSignal): Promise<boolean> {
    const there = await this.#stored(this.#keyOf(end), signal);
    return there?.uploadId === end.upload.id && !isLater(end, there);
  }

  /**
   * How the running flow of an upload has succeeded before, if its receipt says so. Undefined if it does not. A ledger
   * that was restored may still take the flow for running, and the service may have deleted it.
   */
  async successOf({ upload, generation, flow }: RunningEntry, signal: AbortSignal): Promise<Success | undefined> {
    const Key = this.#keyOf({ upload });
    try {
      const get = new GetObjectCommand({ Bucket: this.#settings.resultsBucket, Key });
      const { Body, ContentLength = 0, Metadata } = await this.#s3.send(get, { abortSignal: signal });
      if (Metadata?.[UPLOAD_METADATA] !== upload.id || ContentLength > RECEIPT_BYTES_MAX) {
        (Body as Readable).destroy();
        return undefined;
      }
      const success = parsedSuccess((await Body?.transformToString()) ?? '');
      const isOfThis =
        success?.upload.id === upload.id && success.generation === generation && success.flow.id === flow.id;
      return isOfThis ? success : undefined;
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }

  #keyOf({ upload }: { readonly upload: Pick<Upload, 'key'> }): string {
    return receiptKey(this.#settings.resultsPrefix, upload.key);
  }

  /** True if our receipt has the better right to the address than the receipt that is there. */
  async #outranks(mine: Receipt, there: StoredReceipt, signal: AbortSignal): Promise<boolean> {
    if (there.uploadId === mine.upload.id) {
      return isLater({ generation: mine.generation, endedAt: Date.parse(mine.endedAt) }, there);
    }
    const { bucket, key } = mine.upload;
    const isMineInside = isInside(this.#settings, { bucket, key });
    // A receipt without this field is taken to be of the present inbox, which seldom changes.
    const isStoredInside = isInside(this.#settings, { bucket: there.bucket ?? this.#settings.inboxBucket, key });
    if (isMineInside !== isStoredInside) return isMineInside;
    const current = isMineInside ? (await this.#inbox.current(bucket, key, signal))?.id : undefined;
    if (current === mine.upload.id) return true;
    if (current === there.uploadId) return false;
    // Neither is current any more. If the current upload ends, it replaces this receipt. It may also be deleted unread.
    const [mineModified, thereModified] = [Date.parse(mine.upload.lastModified), there.lastModified];
    // Within one second the ids decide. That is arbitrary, but does not depend on which upload comes first.
    return mineModified === thereModified ? mine.upload.id > there.uploadId : mineModified > thereModified;
  }

  /** The receipt at an address. Undefined if there is none. */
  async #stored(key: string, signal: AbortSignal): Promise<StoredReceipt | undefined> {
    const head = await headObject(this.#s3, { Bucket: this.#settings.resultsBucket, Key: key }, signal);
    if (head === undefined) return undefined;
    return {
      etag: head.ETag as string,
      uploadId: head.Metadata?.[UPLOAD_METADATA] ?? '',
      generation: Number(head.Metadata?.[GENERATION]) || 0,
      // Without this field, the receipt was put after its end. S3 cuts the fraction of that second off.
      endedAt: Date.parse(head.Metadata?.[ENDED_AT] ?? '') || (head.LastModified?.getTime() ?? 0) + 999,
      // An object without this field is no receipt of ours, and has no right to the address.
      lastModified: Date.parse(head.Metadata?.[LAST_MODIFIED] ?? '') || 0,
      bucket: head.Metadata?.[BUCKET],
    };
  }
}

/** Undefined if the text is not the receipt of a success. */
function parsedSuccess(text: string): z.infer<typeof successSchema> | undefined {
  try {
    return successSchema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** The facts that identify one end of an upload. `endedAt` is in milliseconds since the epoch. */
type End = Pick<TerminalEntry, 'generation' | 'endedAt'> & { readonly upload: Pick<Upload, 'id' | 'key'> };

/** A receipt as a HEAD describes it. Times in milliseconds since the epoch. */
interface StoredReceipt {
  readonly etag: string;
  readonly uploadId: string;
  readonly generation: number;
  readonly endedAt: number;
  readonly lastModified: number;
  readonly bucket: string | undefined;
}

/**
 * True if ours is the later end of the same upload. The higher generation is later. An upload whose entry was lost
 * begins again with generation 1, so within one generation the time of the end decides.
 */
const isLater = (mine: Omit<End, 'upload'>, there: StoredReceipt): boolean =>
  mine.generation === there.generation ? mine.endedAt > there.endedAt : mine.generation > there.generation;

const iso = (ms: number): string => new Date(ms).toISOString();
