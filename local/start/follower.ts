import { createHash, type Hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { appendFile } from 'node:fs/promises';
import { GetObjectCommand, type GetObjectCommandOutput, ListObjectsV2Command, type S3Client } from '@aws-sdk/client-s3';
import { PRIVATE_FILE_MODE } from '../../command-line/private-folder.ts';
import type { ResultsFolder } from '../../command-line/results-folder.ts';
import { type Entry, isTerminal } from '../../functions/ledger/entry.ts';
import { parseRunningKey, UPLOADS_PREFIX } from '../../functions/ledger/keys.ts';
import { ALIAS_METADATA } from '../../functions/publish/aliases.ts';
import { type ReceiptSettings, receiptOf } from '../../functions/publish/receipts.ts';
import type { ChainReport, Receipt } from '../../functions/publish/report-schemas.ts';
import { CHAIN_NAME, RECEIPT_NAME, receiptKey } from '../../functions/results/results-keys.ts';
import { decodedKey } from '../../functions/s3/encoded-keys.ts';
import { ifThere, isAbsent } from '../../functions/s3/errors.ts';
import { uploadName } from '../../operations/upload-name.ts';
import { obstacleOf, type Wait, waitInPlaceOf, waitOf } from '../../operations/upload-view.ts';
import type { S3EventRecord } from '../aws/s3/events.ts';
import type { SharedObject } from '../aws/s3/s3.ts';
import { LEDGER_BUCKET, RESULTS_BUCKET } from '../pipeline.ts';

/** A step of an upload. */
export type Progress = ProgressOfUpload &
  (
    | {
        readonly kind: 'running';
        readonly template: string;
        readonly flowId: string;
        /** What keeps its results from being stored. */
        readonly obstacle: string | undefined;
      }
    | {
        readonly kind: 'waiting';
        readonly id: string;
        /** Name of its route. */
        readonly route: string;
        readonly wait: Wait;
      }
    | Ended
    /** It has ended, and the disk has no space for its results. */
    | { readonly kind: 'full-disk' }
    | { readonly kind: 'chain'; readonly report: ChainReport; readonly path: string }
  );

interface ProgressOfUpload {
  /**
   * The key in the inbox bucket, or the name of an upload of a later stage. Several versions of it may be under way at
   * the same time.
   */
  readonly key: string;
  /** An upload of a later stage has no version: its id stands for one. */
  readonly versionId: string | undefined;
}

interface Ended {
  readonly kind: 'ended';
  /** The receipt of this upload, even if that of a newer version of the file is at its address. */
  readonly receipt: Receipt;
  /** Undefined if the receipt gave way. */
  readonly receiptPath: string | undefined;
  readonly assets: readonly { readonly path: string; readonly bytes: number }[];
}

/**
 * Follows the pipeline through its buckets. The entries of the ledger tell the state of each upload. The objects of the
 * results bucket are copied to the results folder, the assets of a receipt before it. `ended` is reported once for every
 * upload, after all its files are in the folder:
 *
 * - when its receipt is put, or
 * - when its end has been published, although no receipt of it was seen. A receipt's address belongs to the version
 *   that is current at its key, so the receipt of an older version may never be put, or may be replaced before it is
 *   read here.
 */
export class Follower {
  readonly #s3: S3Client;
  readonly #results: ResultsFolder;
  readonly #share: ((object: SharedObject, path: string) => Promise<void>) | undefined;
  readonly #delivered: DeliveredReceipts;
  readonly #receiptSettings: ReceiptSettings;
  readonly #aliasFolders: readonly string[];
  readonly #onProgress: (progress: Progress) => void;
  readonly #states = new Map<string, string>();
  /** Receipts and aliases that are being copied, by key. At one key, the later object must be written last. */
  readonly #copies = new Map<string, Promise<void>>();
  /** Ends that were reported, as `endOf` names them. */
  readonly #ended = new Set<string>();
  /** Ends whose files could not be copied. The next run tries it again. */
  readonly #undelivered = new Set<string>();

  constructor(options: {
    readonly s3: S3Client;
    readonly results: ResultsFolder;
    /** Told of each copy of an asset before anybody can change it, so that the bucket can share its blocks. */
    readonly share?: (object: SharedObject, path: string) => Promise<void>;
    readonly delivered: DeliveredReceipts;
    readonly receiptSettings: ReceiptSettings;
    /** What the keys of aliases begin with. */
    readonly aliasFolders?: readonly string[];
    readonly onProgress: (progress: Progress) => void;
  }) {
    this.#s3 = options.s3;
    this.#results = options.results;
    this.#share = options.share;
    this.#delivered = options.delivered;
    this.#receiptSettings = options.receiptSettings;
    this.#aliasFolders = options.aliasFolders ?? [];
    this.#onProgress = options.onProgress;
  }

  /** Handles a change of an object. Rejects if the object cannot be read or copied. */
  async follow(record: S3EventRecord): Promise<void> {
    const isCreated = record.eventName.startsWith('ObjectCreated:');
    const key = decodedKey(record.s3.object.key);
    switch (record.s3.bucket.name) {
      case LEDGER_BUCKET: {
        const ended = isCreated ? undefined : parseRunningKey(key);
        if (isCreated && key.startsWith(UPLOADS_PREFIX)) await this.#readEntry(key);
        // The running marker is removed after the end was published.
        else if (ended) await this.#published(await this.#entry(`${UPLOADS_PREFIX}${ended.uploadId}.json`));
        break;
      }
      case RESULTS_BUCKET:
        if (isCreated) await this.copy(key);
        else if (this.#isAlias(key)) await this.#inTurn(key, () => this.#followAlias(key));
    }
  }

  /**
   * What an earlier run left to {@link copy} when it ended: receipts and chains that are not in the folder, and aliases of
   * the folder that are gone from the bucket.
   */
  async leftovers(): Promise<{ readonly uncopied: readonly string[]; readonly gone: readonly string[] }> {
    const uncopied: string[] = [];
    const gone = new Set(this.#delivered.aliases());
    let token: string | undefined;
    do {
      const page = await this.#s3.send(
        new ListObjectsV2Command({
          Bucket: RESULTS_BUCKET,
          ...(token === undefined ? {} : { ContinuationToken: token }),
        }),
      );
      for (const { Key = '', ETag = '' } of page.Contents ?? []) {
        const isCopied = Key.endsWith(`/${RECEIPT_NAME}`) || Key.endsWith(`/${CHAIN_NAME}`);
        if (isCopied && !this.#delivered.has(Key, ETag)) uncopied.push(Key);
        gone.delete(Key);
      }
      token = page.NextContinuationToken;
    } while (token !== undefined);
    return { uncopied, gone: [...gone] };
  }

  /**
   * Copies a receipt with its assets, a chain, or an alias. If an alias is gone, its copy is removed. Rejects if it cannot be
   * copied, or a person has changed the copy that was to be removed.
   */
  async copy(key: string): Promise<void> {
    if (key.endsWith(`/${RECEIPT_NAME}`)) await this.#copyReceipt(key);
    else if (key.endsWith(`/${CHAIN_NAME}`)) await this.#copyChain(key);
    else if (this.#isAlias(key)) await this.#inTurn(key, () => this.#followAlias(key));
  }

  async #readEntry(ledgerKey: string): Promise<void> {
    const entry = await this.#entry(ledgerKey);
    if (entry === undefined) return;
    this.show(entry);
    // A failure without a flow has no running marker. Its entry says that the end was published.
    if (entry.state === 'failed' && entry.isTold === true && entry.flow === undefined) await this.#published(entry);
  }

  /** Reports what an entry says of an upload that has not ended, unless that was reported before. */
  show(entry: Entry): void {
    const { id, stage } = entry.upload;
    const key = uploadName(entry.upload.key);
    const versionId = stage === undefined ? entry.upload.versionId : id;
    const wait =
      entry.state === 'waiting' ? waitOf(entry) : entry.state === 'claimed' ? waitInPlaceOf(entry) : undefined;
    const obstacle = entry.state === 'running' ? obstacleOf(entry)?.message : undefined;
    const state = `${entry.state} ${wait?.until} ${wait?.askedUntil} ${wait?.message} ${obstacle}`;
    if (this.#states.get(id) !== state) {
      this.#states.set(id, state);
      if (entry.state === 'running') {
        const { flow, route } = entry;
        this.#onProgress({ kind: 'running', key, versionId, template: route.template, flowId: flow.id, obstacle });
      } else if (wait !== undefined) {
        this.#onProgress({ kind: 'waiting', id, key, versionId, route: entry.route.name, wait });
      } else if (entry.state !== 'claimed') {
        this.#states.delete(id);
      }
    }
  }

  /** Reports an end whose receipt was not seen. */
  async #published(entry: Entry | undefined): Promise<void> {
    if (entry === undefined || !isTerminal(entry)) return;
    await Promise.allSettled(this.#copies.values());
    const receipt = receiptOf(entry, this.#receiptSettings);
    if (this.#ended.has(endOf(receipt)) || this.#undelivered.has(endOf(receipt))) return;
    const key = receiptKey(this.#receiptSettings.resultsPrefix, receipt.upload.key);
    // An earlier run may have put the receipt, and ended before it was published to its end.
    if (await this.#isReceiptOf(receipt, key)) return this.#copyReceipt(key);
    const assets = await this.#copyAll(receipt.assets);
    this.#report({ kind: 'ended', receipt, receiptPath: undefined, assets });
  }

  /** True if the receipt at an address is that of an end. */
  async #isReceiptOf(end: Receipt, key: string): Promise<boolean> {
    try {
      const { Body } = await this.#get(RESULTS_BUCKET, key);
      return endOf(JSON.parse((await Body?.transformToString()) ?? '') as Receipt) === endOf(end);
    } catch (error) {
      if (isAbsent(error)) return false;
      throw error;
    }
  }

  #copyReceipt(key: string): Promise<void> {
    return this.#inTurn(key, () => this.#deliver(key));
  }

  /** Copies what is at a key after the copies before. */
  #inTurn(key: string, copy: () => Promise<void>): Promise<void> {
    const before = this.#copies.get(key) ?? Promise.resolve();
    const copied = before
      .catch(() => undefined)
      .then(copy)
      .finally(() => {
        if (this.#copies.get(key) === copied) this.#copies.delete(key);
      });
    this.#copies.set(key, copied);
    return copied;
  }

  async #deliver(key: string): Promise<void> {
    const { ETag = '', Body } = await this.#get(RESULTS_BUCKET, key);
    const text = (await Body?.transformToString()) ?? '';
    const receipt = JSON.parse(text) as Receipt;
    try {
      const assets = await this.#copyAll(receipt.assets);
      for (const alias of receipt.aliases ?? []) {
        await this.#inTurn(alias, async () => void (await this.#copyAlias(alias)));
      }
      const receiptPath = await this.#results.write(key, [Buffer.from(text)]);
      this.#report({ kind: 'ended', receipt, receiptPath, assets });
    } catch (error) {
      this.#undelivered.add(endOf(receipt));
      if (isFullDisk(error)) this.#onProgress({ kind: 'full-disk', ...versionOf(receipt) });
      throw error;
    }
    await this.#delivered.add(key, ETag);
  }

  #report(ended: Ended): void {
    const end = endOf(ended.receipt);
    if (this.#ended.has(end)) return;
    this.#ended.add(end);
    this.#onProgress({ ...versionOf(ended.receipt), ...ended });
  }

  async #copyChain(key: string): Promise<void> {
    const { ETag = '', Body } = await this.#get(RESULTS_BUCKET, key);
    const text = (await Body?.transformToString()) ?? '';
    const report = JSON.parse(text) as ChainReport;
    const path = await this.#results.write(key, [Buffer.from(text)]);
    this.#onProgress({ kind: 'chain', key: report.upload.key, versionId: report.upload.versionId, report, path });
    await this.#delivered.add(key, ETag);
  }

  #isAlias(key: string): boolean {
    const isInFolder = this.#aliasFolders.some((folder) => key.startsWith(folder));
    return isInFolder || this.#delivered.digestOf(key) !== undefined;
  }

  /** @throws {ChangedFileError} the alias is gone, and its copy stays. */
  async #followAlias(key: string): Promise<void> {
    if (await this.#copyAlias(key)) return;
    const digest = this.#delivered.digestOf(key);
    if (digest === undefined) return;
    await this.#results.remove(key, digest).finally(() => this.#delivered.addAlias(key, undefined));
  }

  /** An alias may show a newer success by now. @returns false if it is gone. */
  async #copyAlias(key: string): Promise<boolean> {
    try {
      const object = await this.#get(RESULTS_BUCKET, key);
      const hash = createHash('sha256');
      await this.#write(key, { ...object, Body: hashed(object.Body as AsyncIterable<Uint8Array>, hash) });
      // An asset may stand in the folder of aliases too. The copy of an asset stays.
      const isAlias = object.Metadata?.[ALIAS_METADATA] !== undefined;
      if (isAlias) await this.#delivered.addAlias(key, hash.digest('hex'));
      return true;
    } catch (error) {
      if (isAbsent(error)) return false;
      throw error;
    }
  }

  #copyAll(assets: readonly { readonly key: string; readonly bytes: number }[]): Promise<Ended['assets']> {
    return Promise.all(
      assets.map(async ({ key, bytes }) => ({
        path: await this.#write(key, await this.#get(RESULTS_BUCKET, key)),
        bytes,
      })),
    );
  }

  #write(key: string, { Body, ETag: etag = '' }: { readonly Body?: unknown; readonly ETag?: string | undefined }) {
    const share = (copy: string) => this.#share?.({ bucket: RESULTS_BUCKET, key, etag }, copy).catch(() => undefined);
    return this.#results.write(key, Body as AsyncIterable<Uint8Array>, share);
  }

  /** Undefined if the entry is gone. */
  async #entry(key: string): Promise<Entry | undefined> {
    const answer = await ifThere(this.#get(LEDGER_BUCKET, key));
    return answer && JSON.parse((await answer.Body?.transformToString()) ?? '');
  }

  #get(bucket: string, key: string): Promise<GetObjectCommandOutput> {
    return this.#s3.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
  }
}

const versionOf = ({ upload, parent }: Receipt): { key: string; versionId: string | undefined } => ({
  key: uploadName(upload.key),
  versionId: parent === undefined ? upload.versionId : upload.id,
});

/** True if the disk has no space, or the user may use no more of it. */
export const isFullDisk = (error: unknown): boolean =>
  ['ENOSPC', 'EDQUOT'].includes(String((error as NodeJS.ErrnoException).code));

const endOf = ({ upload, generation }: Receipt): string => `${upload.id} ${generation}`;

async function* hashed(body: AsyncIterable<Uint8Array>, hash: Hash): AsyncIterable<Uint8Array> {
  for await (const chunk of body) {
    hash.update(chunk);
    yield chunk;
  }
}

/** Tells the digest of an alias from an ETag. */
const DIGEST = 'sha256:';

/**
 * Remembers, in a file with one line for each, which receipts are in the results folder with their assets, and which
 * aliases. If a run is killed before it has copied a result, the next run copies it. A result that the user has moved away
 * is not copied again.
 */
export class DeliveredReceipts {
  readonly #path: string | undefined;
  readonly #etags = new Map<string, string>();

  /** @param path of the file. Undefined: nothing outlives this run. */
  constructor(path: string | undefined) {
    this.#path = path;
    for (const line of path === undefined ? [] : linesOf(path)) {
      const [key, etag] = parse(line);
      if (key !== undefined && etag !== undefined) this.#etags.set(key, etag);
    }
  }

  has(key: string, etag: string): boolean {
    return this.#etags.get(key) === etag;
  }

  /** The SHA-256 of the copy of an alias, in hexadecimal. Undefined if there is none. */
  digestOf(key: string): string | undefined {
    const etag = this.#etags.get(key);
    return etag?.startsWith(DIGEST) ? etag.slice(DIGEST.length) : undefined;
  }

  /** The keys of the aliases that have a copy. */
  aliases(): readonly string[] {
    return [...this.#etags.keys()].filter((key) => this.digestOf(key) !== undefined);
  }

  /** @param digest undefined if the copy is gone, or stays as a file of the user. */
  async addAlias(key: string, digest: string | undefined): Promise<void> {
    if (digest !== this.digestOf(key)) await this.add(key, digest === undefined ? '' : `${DIGEST}${digest}`);
  }

  async add(key: string, etag: string): Promise<void> {
    this.#etags.set(key, etag);
    if (this.#path === undefined) return;
    // The line break comes first: a killed run may have left half a line.
    await appendFile(this.#path, `\n${JSON.stringify([key, etag])}`, { mode: PRIVATE_FILE_MODE });
  }
}

function linesOf(path: string): string[] {
  try {
    return readFileSync(path, 'utf8').split('\n');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

function parse(line: string): [key?: string, etag?: string] {
  try {
    return JSON.parse(line);
  } catch {
    return []; // Half a line. That receipt is copied again.
  }
}
