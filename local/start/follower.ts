import { GetObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Entry, WaitingEntry } from '../../functions/ledger/entry.ts';
import { UPLOADS_PREFIX } from '../../functions/ledger/keys.ts';
import type { Receipt } from '../../functions/publish/receipts.ts';
import { RECEIPT_NAME } from '../../functions/results/results-keys.ts';
import type { S3EventRecord } from '../aws/s3/events.ts';
import { LEDGER_BUCKET, RESULTS_BUCKET } from '../pipeline.ts';
import type { ResultsFolder } from './results-folder.ts';

/** A step of an upload. `key` is its key in the inbox bucket. */
export type Progress =
  | { readonly kind: 'running'; readonly key: string; readonly template: string; readonly flowId: string }
  | {
      readonly kind: 'waiting';
      readonly key: string;
      readonly reason: WaitingEntry['reason'];
      readonly message: string;
      /** Milliseconds since the epoch. */
      readonly notBefore: number;
    }
  | {
      readonly kind: 'ended';
      readonly key: string;
      readonly receipt: Receipt;
      readonly receiptPath: string;
      readonly assets: readonly { readonly path: string; readonly bytes: number }[];
    };

/**
 * Follows the pipeline through its buckets. The entries of the ledger tell the state of each upload. The objects of the
 * results bucket are copied to the results folder. `ended` is reported after all files of the upload are in the folder.
 */
export class Follower {
  readonly #s3: S3Client;
  readonly #results: ResultsFolder;
  readonly #onProgress: (progress: Progress) => void;
  readonly #states = new Map<string, string>();
  /** The path of each copied object, by its key, until a receipt lists the object. */
  readonly #copies = new Map<string, Promise<string>>();

  constructor({
    s3,
    results,
    onProgress,
  }: {
    readonly s3: S3Client;
    readonly results: ResultsFolder;
    readonly onProgress: (progress: Progress) => void;
  }) {
    this.#s3 = s3;
    this.#results = results;
    this.#onProgress = onProgress;
  }

  /** Handles a new object. Rejects if the object cannot be read or copied. */
  async follow(record: S3EventRecord): Promise<void> {
    if (!record.eventName.startsWith('ObjectCreated:')) return;
    const key = decodeURIComponent(record.s3.object.key.replaceAll('+', ' '));
    switch (record.s3.bucket.name) {
      case LEDGER_BUCKET:
        if (key.startsWith(UPLOADS_PREFIX)) await this.#readEntry(key);
        break;
      case RESULTS_BUCKET:
        await (key.endsWith(`/${RECEIPT_NAME}`) ? this.#copyReceipt(key) : this.#copy(key));
    }
  }

  async #readEntry(ledgerKey: string): Promise<void> {
    const entry = JSON.parse((await this.#get(LEDGER_BUCKET, ledgerKey)).toString()) as Entry;
    const { id, key } = entry.upload;
    const state = `${entry.state} ${'notBefore' in entry ? entry.notBefore : ''}`;
    if (this.#states.get(id) === state) return;
    this.#states.set(id, state);
    if (entry.state === 'running') {
      this.#onProgress({ kind: 'running', key, template: entry.route.template, flowId: entry.flow.id });
    } else if (entry.state === 'waiting') {
      const { reason, message, notBefore } = entry;
      this.#onProgress({ kind: 'waiting', key, reason, message, notBefore });
    } else if (entry.state !== 'claimed') {
      this.#states.delete(id);
    }
  }

  #copy(key: string): Promise<string> {
    const path = this.#body(RESULTS_BUCKET, key).then((body) => this.#results.write(key, body));
    this.#copies.set(key, path);
    return path;
  }

  async #copyReceipt(key: string): Promise<void> {
    const bytes = await this.#get(RESULTS_BUCKET, key);
    const receipt = JSON.parse(bytes.toString()) as Receipt;
    const assets = await Promise.all(
      receipt.assets.map(async (asset) => {
        const path = await (this.#copies.get(asset.key) ?? this.#copy(asset.key));
        this.#copies.delete(asset.key);
        return { path, bytes: asset.bytes };
      }),
    );
    const receiptPath = await this.#results.write(key, [bytes]);
    this.#onProgress({ kind: 'ended', key: receipt.upload.key, receipt, receiptPath, assets });
  }

  async #body(bucket: string, key: string): Promise<AsyncIterable<Uint8Array>> {
    const { Body } = await this.#s3.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
    return Body as AsyncIterable<Uint8Array>;
  }

  async #get(bucket: string, key: string): Promise<Buffer> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of await this.#body(bucket, key)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }
}
