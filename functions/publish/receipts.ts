import { HeadObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { FailedOutput, StoredAsset, TerminalEntry } from '../ledger/entry.ts';
import { receiptKey } from '../results/results-keys.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { type Inbox, type InboxPlace, isInside } from '../uploads/inbox.ts';

/** How an upload ended, for people and programs. It is what stands in `receipt.json`. */
export interface Receipt {
  /** Version of this form. */
  readonly receipt: 1;
  readonly status: 'succeeded' | 'failed';
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
  /** 1, or more where a failed upload was retried. */
  readonly generation: number;
  readonly flow?: { readonly id: string; readonly createdAt: string } | undefined;
  readonly endedAt: string;
  readonly assets: readonly StoredAsset[];
  /** Outputs that the service could not make, or that could not be stored. */
  readonly failedOutputs: readonly FailedOutput[];
  /** Present where the status is `failed`. */
  readonly failure?: { readonly code: string; readonly message: string; readonly retry: string } | undefined;
}

/** S3 went on refusing a conditional write of a receipt because others wrote it at the same time. */
export class ReceiptContendedError extends Error {
  override readonly name = 'ReceiptContendedError';
}

/** How many others may get in between before a receipt is left to the next attempt. */
const TRIES_MAX = 10;

const UPLOAD = 'flowdrop-upload';
const GENERATION = 'flowdrop-generation';
const ENDED_AT = 'flowdrop-ended-at';
const LAST_MODIFIED = 'flowdrop-last-modified';
const BUCKET = 'flowdrop-bucket';

/** The receipt of a terminal entry. @param collectFunction the function that the command to retry invokes. */
export function receiptOf(entry: TerminalEntry, collectFunction: string): Receipt {
  const { id, bucket, key, versionId, etag, bytes, mediaType, lastModified } = entry.upload;
  return {
    receipt: 1,
    status: entry.state,
    upload: { id, bucket, key, versionId, etag, bytes, mediaType, lastModified: iso(lastModified) },
    route: entry.route.name,
    template: entry.route.template,
    generation: entry.generation,
    flow: entry.flow && { id: entry.flow.id, createdAt: iso(entry.flow.createdAt) },
    endedAt: iso(entry.endedAt),
    assets: entry.assets,
    failedOutputs: entry.failedOutputs,
    failure: entry.failure && { ...entry.failure, retry: retryCommand(collectFunction, id) },
  };
}

/**
 * Receipts, one address for each key of the inbox. The address belongs to the upload that is current at that key, in
 * whatever order uploads arrive and end. An upload outside of today's inbox is never current, and S3 is not asked about
 * it: its bucket may be gone, or forbidden to the functions.
 */
export class Receipts {
  readonly #s3: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #inbox: Inbox;
  readonly #today: InboxPlace;

  constructor(s3: S3Client, bucket: string, prefix: string, inbox: Inbox, today: InboxPlace) {
    this.#s3 = s3;
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.#inbox = inbox;
    this.#today = today;
  }

  /** Puts the receipt where it belongs, or leaves what has the better right to the address. Returns the address. */
  async put(receipt: Receipt, signal: AbortSignal): Promise<string> {
    const key = receiptKey(this.#prefix, receipt.upload.key);
    let condition: { IfNoneMatch: '*' } | { IfMatch: string } = { IfNoneMatch: '*' };
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      try {
        await this.#s3.send(
          new PutObjectCommand({
            Bucket: this.#bucket,
            Key: key,
            Body: `${JSON.stringify(receipt, undefined, 2)}\n`,
            ContentType: 'application/json',
            Metadata: {
              [UPLOAD]: receipt.upload.id,
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
      const there = await this.#there(key, signal);
      if (there === undefined) condition = { IfNoneMatch: '*' };
      else if (await this.#outranks(receipt, there, signal)) condition = { IfMatch: there.etag };
      else return key;
    }
    throw new ReceiptContendedError(`${key} was written by others ${TRIES_MAX} times in between`);
  }

  /** Whether a receipt was put already. Where another upload's is there that cannot be told, and so it is denied. */
  async isPublished(receipt: Receipt, signal: AbortSignal): Promise<boolean> {
    const there = await this.#there(receiptKey(this.#prefix, receipt.upload.key), signal);
    return there?.uploadId === receipt.upload.id && !isLater(receipt, there);
  }

  async #outranks(mine: Receipt, there: ReceiptFacts, signal: AbortSignal): Promise<boolean> {
    if (there.uploadId === mine.upload.id) return isLater(mine, there);
    const { bucket, key } = mine.upload;
    const isMineInside = isInside(this.#today, { bucket, key });
    // A receipt from before there was this field is taken to be of today's inbox, which seldom changes.
    const isThereInside = isInside(this.#today, { bucket: there.bucket ?? this.#today.inboxBucket, key });
    if (isMineInside !== isThereInside) return isMineInside;
    const current = isMineInside ? (await this.#inbox.current(bucket, key, signal))?.id : undefined;
    if (current === mine.upload.id) return true;
    if (current === there.uploadId) return false;
    // Neither is current any more. What is will replace this receipt if it ends, but it may be deleted before it is read.
    const [mineModified, thereModified] = [Date.parse(mine.upload.lastModified), there.lastModified];
    // Within one second the ids decide: arbitrary, but the same whoever comes first.
    return mineModified === thereModified ? mine.upload.id > there.uploadId : mineModified > thereModified;
  }

  async #there(key: string, signal: AbortSignal): Promise<ReceiptFacts | undefined> {
    try {
      const head = await this.#s3.send(new HeadObjectCommand({ Bucket: this.#bucket, Key: key }), {
        abortSignal: signal,
      });
      return {
        etag: head.ETag as string,
        uploadId: head.Metadata?.[UPLOAD] ?? '',
        generation: Number(head.Metadata?.[GENERATION]) || 0,
        // A receipt from before there was this field was put after its end, in a second that S3 gives without its fraction.
        endedAt: Date.parse(head.Metadata?.[ENDED_AT] ?? '') || (head.LastModified?.getTime() ?? 0) + 999,
        // What bears no date of ours is no receipt of ours, and has no right to the address.
        lastModified: Date.parse(head.Metadata?.[LAST_MODIFIED] ?? '') || 0,
        bucket: head.Metadata?.[BUCKET],
      };
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }
}

interface ReceiptFacts {
  readonly etag: string;
  readonly uploadId: string;
  readonly generation: number;
  readonly endedAt: number;
  readonly lastModified: number;
  readonly bucket: string | undefined;
}

/**
 * The higher generation of an upload is the later one. An upload whose entry was lost begins again with generation 1;
 * then the time of the end decides.
 */
const isLater = (mine: Receipt, there: ReceiptFacts): boolean =>
  mine.generation === there.generation ? Date.parse(mine.endedAt) > there.endedAt : mine.generation > there.generation;

/** What a person types to have a failed upload tried again. */
function retryCommand(collectFunction: string, uploadId: string): string {
  const payload = JSON.stringify({ retry: [uploadId] });
  return `aws lambda invoke --function-name ${collectFunction} --cli-binary-format raw-in-base64-out --payload '${payload}' /dev/stdout`;
}

const iso = (ms: number): string => new Date(ms).toISOString();
