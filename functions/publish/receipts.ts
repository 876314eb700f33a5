import type { Readable } from 'node:stream';
import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import { iso } from '../base/clock.ts';
import { jsonIn } from '../base/json.ts';
import { childrenOf } from '../chains/chain.ts';
import { keptWords } from '../flow-service/service-description.ts';
import { type FailedEntry, isJob, type RunningEntry, sentBy, type TerminalEntry } from '../ledger/entry.ts';
import { assets, failedOutputs, time } from '../ledger/entry-schema.ts';
import { adviceFor } from '../ledger/failures.ts';
import { ContendedError } from '../ledger/store.ts';
import { chainReportKey, receiptKey, UPLOAD_METADATA } from '../results/results-keys.ts';
import { ifThere, isConditionUnmet, isConflict } from '../s3/errors.ts';
import { headObject } from '../s3/objects.ts';
import type { Settings } from '../settings/environment.ts';
import { ordinalOf, secondDigits, type Upload } from '../uploads/upload.ts';
import type { ChainReport, Receipt } from './report-schemas.ts';
import { type RetrySettings, retryCommand } from './retry-command.ts';
import { fitting, uploadFacts } from './upload-facts.ts';

type AdvisedFailure = NonNullable<Receipt['failure']>;
type PreviousEnd = NonNullable<Receipt['previous']>[number];
type Previous = NonNullable<TerminalEntry['previous']>[number];

/** Tries of a conditional write of a receipt. After that the receipt is left to the next attempt. */
const TRIES_MAX = 10;

/**
 * Maximum size of a receipt, in bytes. It says what its entry says, and names the uploads that begin with its assets.
 */
export const RECEIPT_BYTES_MAX = 64 * 1024 * 1024;

/** What the list of these uploads may take of it. Further ones are counted. */
export const CHILDREN_BYTES_MAX = 8 * 1024 * 1024;

const isoTime = z.pipe(
  z.pipe(
    z.string(),
    z.transform((text: string) => Date.parse(text)),
  ),
  time,
);

/** What a receipt must at least say of a success. */
const successSchema = z.object({
  status: z.literal('succeeded'),
  upload: z.object({ id: z.string() }),
  generation: z.number(),
  flow: z.object({ id: z.string(), createdAt: isoTime }),
  endedAt: isoTime,
  assets,
  failedOutputs,
});

/** How a flow has succeeded. Times in milliseconds since the epoch. */
type Success = Pick<z.infer<typeof successSchema>, 'flow' | 'endedAt' | 'assets' | 'failedOutputs'>;

/** Names of a receipt's metadata. A HEAD shows by them which upload the receipt belongs to, and how it ranks. */
const GENERATION = 'flowdrop-generation';
const ENDED_AT = 'flowdrop-ended-at';
const LAST_MODIFIED = 'flowdrop-last-modified';
const CURRENT_AT = 'flowdrop-current-at';
const SEQUENCER = 'flowdrop-sequencer';
const SOURCE_ISSUE = 'flowdrop-source-issue';

export type ReceiptSettings = RetrySettings & Pick<Settings, 'resultsBucket' | 'resultsPrefix' | 'service'>;

/** @param begin the ids of the uploads that begin with its assets. Default: all that its entry names. */
export function receiptOf(entry: TerminalEntry, settings: ReceiptSettings, begin?: ReadonlySet<string>): Receipt {
  const { bytes, mediaType } = entry.upload;
  return {
    receipt: 1,
    status: entry.state,
    upload: uploadFacts(entry.upload, { bytes, mediaType }),
    route: entry.route.name,
    ...sentBy(entry.route),
    generation: entry.generation,
    ...(entry.previous && { previous: entry.previous.map(previousEnd) }),
    ...chainFactsOf(entry, settings, begin),
    flow: entry.flow && { id: entry.flow.id, createdAt: iso(entry.flow.createdAt) },
    ...(entry.flow && entry.route.price && { price: entry.route.price }),
    endedAt: iso(entry.endedAt),
    assets: entry.assets,
    failedOutputs: entry.failedOutputs,
    ...('failure' in entry && { failure: advised(entry, settings) }),
  };
}

/** How an earlier generation ended, as receipts say it. */
export const previousEnd = ({ state: status, arrivedAt, endedAt, ...end }: Previous): PreviousEnd => ({
  ...end,
  status,
  arrivedAt: iso(arrivedAt),
  endedAt: iso(endedAt),
});

/** What the receipt of an upload in a chain says of its place there. */
function chainFactsOf(
  entry: TerminalEntry,
  { resultsPrefix }: ReceiptSettings,
  begin?: ReadonlySet<string>,
): Pick<Receipt, 'parent' | 'inputs' | 'children' | 'moreChildren'> {
  const { parent } = entry.upload.stage ?? {};
  const begun = childrenOf(entry).filter(({ upload }) => begin?.has(upload.id) ?? true);
  const all = begun.map(({ upload }) => ({
    upload: upload.id,
    route: upload.stage?.route ?? '',
    asset: upload.stage?.parent.asset ?? '',
    receipt: receiptKey(resultsPrefix, upload.key),
  }));
  const children = fitting(all, CHILDREN_BYTES_MAX);
  const more = all.length - children.length;
  return {
    ...(parent && {
      parent: {
        upload: parent.id,
        generation: parent.generation,
        asset: parent.asset,
        receipt: receiptKey(resultsPrefix, parent.key),
      },
    }),
    ...(entry.inputs && { inputs: entry.inputs }),
    ...(children.length > 0 && { children }),
    ...(more > 0 && { moreChildren: more }),
  };
}

function advised(entry: FailedEntry, settings: ReceiptSettings): AdvisedFailure {
  const { failure, upload } = entry;
  const known = adviceFor(failure.code, isJob(entry), keptWords(settings.service));
  // Another version of Flowdrop wrote this code.
  const retry = known?.retry === 'cannot-help' ? undefined : retryCommand(settings, upload);
  return { ...failure, advice: known?.action ?? UNKNOWN_ADVICE, ...(retry !== undefined && { retry }) };
}

const UNKNOWN_ADVICE = 'Look the code up in docs/failures.md of the version that wrote it.';

/**
 * The receipts: one address for each key of the inbox. Of the uploads of a key that have ended, the one that was
 * current last has it.
 *
 * Which of two receipts stays depends only on what they say themselves, and not on the inbox at that moment. So it does
 * not matter in which order receipts are put, how often, or how late. See {@link outranks}.
 */
export class Receipts {
  readonly #s3: S3Client;
  readonly #settings: Pick<Settings, 'resultsBucket' | 'resultsPrefix'>;

  constructor(s3: S3Client, settings: Pick<Settings, 'resultsBucket' | 'resultsPrefix'>) {
    this.#s3 = s3;
    this.#settings = settings;
  }

  /**
   * Puts the receipt at its address, unless the receipt that is there outranks it, or says the same. Returns the address.
   */
  put(receipt: Receipt, signal: AbortSignal): Promise<string> {
    return this.#putRanked(this.#keyOf(receipt), receipt, signal);
  }

  /** Puts how a chain ended beside the receipt of its first file, by the same rule. Returns the address. */
  putChain(report: ChainReport, signal: AbortSignal): Promise<string> {
    return this.#putRanked(chainReportKey(this.#settings.resultsPrefix, report.upload.key), report, signal);
  }

  async #putRanked(key: string, document: Receipt | ChainReport, signal: AbortSignal): Promise<string> {
    const metadata = metadataOf(document);
    const mine = rankOf(metadata);
    let condition: { IfNoneMatch: '*' } | { IfMatch: string } = { IfNoneMatch: '*' };
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      try {
        await this.#s3.send(
          new PutObjectCommand({
            Bucket: this.#settings.resultsBucket,
            Key: key,
            Body: `${JSON.stringify(document)}\n`, // One line: query engines read an object line by line.
            ContentType: 'application/json',
            Metadata: metadata,
            ...condition,
          }),
          { abortSignal: signal },
        );
        return key;
      } catch (error) {
        if (isConflict(error)) continue;
        if (!isConditionUnmet(error)) throw error;
      }
      const there = await this.#stored(key, signal);
      if (there === undefined) condition = { IfNoneMatch: '*' };
      else if (outranks(mine, there) || isToldAnew(mine, there)) condition = { IfMatch: there.etag };
      else return key;
    }
    throw new ContendedError(`${key} was replaced by other writers between ${TRIES_MAX} tries to write it`);
  }

  /** The id of the upload whose receipt is at the address of a key. Undefined if there is no receipt. */
  async uploadAt(key: string, signal: AbortSignal): Promise<string | undefined> {
    return (await this.#stored(this.#keyOf({ upload: { key } }), signal))?.uploadId;
  }

  /** True if the receipt of an end was put already. Also false if another upload's receipt is there. */
  async isPublished(end: End, signal: AbortSignal): Promise<boolean> {
    const there = await this.#stored(this.#keyOf(end), signal);
    return there?.uploadId === end.upload.id && !isLater(end, there);
  }

  /** True if the end of a chain was put, or what is at its address outranks it. */
  async isChainPut(report: ChainReport, signal: AbortSignal): Promise<boolean> {
    const there = await this.#stored(chainReportKey(this.#settings.resultsPrefix, report.upload.key), signal);
    return there !== undefined && !outranks(rankOf(metadataOf(report)), there);
  }

  /**
   * How the running flow of an upload has succeeded before, if its receipt says so. Undefined if it does not. A ledger
   * that was restored may still take the flow for running, and the service may have deleted it.
   */
  async successOf({ upload, generation, flow }: RunningEntry, signal: AbortSignal): Promise<Success | undefined> {
    const Key = this.#keyOf({ upload });
    const get = new GetObjectCommand({ Bucket: this.#settings.resultsBucket, Key });
    const { Body, ContentLength = 0, Metadata } = (await ifThere(this.#s3.send(get, { abortSignal: signal }))) ?? {};
    if (Metadata?.[UPLOAD_METADATA] !== upload.id || ContentLength > RECEIPT_BYTES_MAX) {
      (Body as Readable | undefined)?.destroy();
      return undefined;
    }
    const success = successSchema.safeParse(jsonIn(await Body?.transformToString())).data;
    const isOfThis =
      success?.upload.id === upload.id && success.generation === generation && success.flow.id === flow.id;
    return isOfThis ? success : undefined;
  }

  #keyOf({ upload }: { readonly upload: Pick<Upload, 'key'> }): string {
    return receiptKey(this.#settings.resultsPrefix, upload.key);
  }

  /** The receipt at an address. Undefined if there is none. */
  async #stored(key: string, signal: AbortSignal): Promise<StoredReceipt | undefined> {
    const head = await headObject(this.#s3, { Bucket: this.#settings.resultsBucket, Key: key }, signal);
    if (head === undefined) return undefined;
    const rank = rankOf(head.Metadata ?? {});
    // Without its end, the receipt was put after its end. S3 cuts the fraction of that second off.
    return { ...rank, etag: head.ETag as string, endedAt: rank.endedAt || (head.LastModified?.getTime() ?? 0) + 999 };
  }
}

/** The facts that identify one end of an upload. `endedAt` is in milliseconds since the epoch. */
type End = Pick<TerminalEntry, 'generation' | 'endedAt'> & { readonly upload: Pick<Upload, 'id' | 'key'> };

/** What decides which of two receipts at one address stays. Times in milliseconds since the epoch. */
interface Rank {
  readonly uploadId: string;
  readonly generation: number;
  readonly endedAt: number;
  /** A time at which the upload was current at its key. */
  readonly currentAt: number;
  /** Orders the puts of a key. Undefined if no event brought the upload. */
  readonly sequencer: string | undefined;
  /** True if it says why its file was not tagged or deleted. */
  readonly hasSourceIssue: boolean;
}

/** A receipt as a HEAD describes it. */
type StoredReceipt = Rank & { readonly etag: string };

function metadataOf({ upload, generation, endedAt, sourceIssue }: Receipt | ChainReport): Record<string, string> {
  const { id, lastModified, currentAt, sequencer } = upload;
  return {
    [UPLOAD_METADATA]: id,
    [GENERATION]: String(generation),
    [ENDED_AT]: endedAt,
    [LAST_MODIFIED]: lastModified,
    ...(currentAt !== undefined && { [CURRENT_AT]: currentAt }),
    ...(sequencer !== undefined && { [SEQUENCER]: sequencer }),
    ...(sourceIssue !== undefined && { [SOURCE_ISSUE]: 'true' }),
  };
}

function rankOf(metadata: Readonly<Record<string, string>>): Rank {
  const uploadId = metadata[UPLOAD_METADATA] ?? '';
  const lastModified = timeIn(metadata[LAST_MODIFIED]);
  // An upload id begins with the date. An object without such an id is no receipt of ours, and has no right to the
  // address.
  const isOurs = lastModified > 0 && uploadId.startsWith(secondDigits(lastModified));
  return {
    uploadId,
    generation: Number(metadata[GENERATION]) || 0,
    endedAt: timeIn(metadata[ENDED_AT]),
    // A multipart upload has the date of its beginning. It became current later.
    currentAt: isOurs ? Math.max(lastModified, timeIn(metadata[CURRENT_AT])) : 0,
    sequencer: metadata[SEQUENCER],
    hasSourceIssue: SOURCE_ISSUE in metadata,
  };
}

const timeIn = (text = ''): number => Date.parse(text) || 0;

/**
 * True if our receipt ranks higher than the one that is there. The facts of two uploads are compared in this order, and
 * the greater one ranks higher:
 *
 * 1. `currentAt`, in whole seconds: the events that S3 sends to EventBridge have no fractions.
 * 2. The sequencer. An upload without one was found by a sweep, and was current after the others of its second. So it
 *    ranks above those with a sequencer.
 * 3. The id. That is arbitrary, but always the same.
 */
function outranks(mine: Rank, there: Rank): boolean {
  if (mine.uploadId === there.uploadId) return isLater(mine, there);
  const seconds = Math.floor(mine.currentAt / 1000) - Math.floor(there.currentAt / 1000);
  if (seconds !== 0) return seconds > 0;
  const [ours, theirs] = [ordinalOf(mine), ordinalOf(there)];
  return ours === theirs ? mine.uploadId > there.uploadId : ours > theirs;
}

/** True for the same end, of which the other tells something else about the file. */
const isToldAnew = (mine: Rank, there: Rank): boolean =>
  mine.uploadId === there.uploadId &&
  mine.generation === there.generation &&
  mine.endedAt === there.endedAt &&
  mine.hasSourceIssue !== there.hasSourceIssue;

/**
 * True if ours is the later end of the same upload. The higher generation is later. An upload whose entry was lost
 * begins again with generation 1, so within one generation the time of the end decides.
 */
const isLater = (mine: Omit<End, 'upload'>, there: Rank): boolean =>
  mine.generation === there.generation ? mine.endedAt > there.endedAt : mine.generation > there.generation;
