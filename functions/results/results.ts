import { createHash } from 'node:crypto';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import type { Log } from '../base/telemetry.ts';
import { collectYoungGarbage } from '../base/young-generation.ts';
import { isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { AssetSlots } from './asset-slots.ts';

/**
 * Size of a part, in bytes: the least that S3 takes. One part is held while it fills and one while it is sent, so this is
 * what bounds memory; larger ones were no faster. S3 takes at most 10,000 parts,
 * which makes 48 GiB the largest asset. (Amazon S3 User Guide, "Multipart upload limits".)
 */
const PART_BYTES = 5 * 1024 * 1024;

/** Parts that are filled or sent at a time, by all uploads together. With 16 uploads half of them fill a second one. */
const PART_BUFFERS_MAX = 24;

/** Memory that an asset of this size takes on its way. */
const memoryFor = (bytes: number): number => (bytes < PART_BYTES ? bytes : LARGE_ASSET_BYTES);

const NO_BUFFER = Buffer.alloc(0);

/** Memory that a large asset takes, in bytes: one part, and every other one fills a second meanwhile. */
const LARGE_ASSET_BYTES = 1.5 * PART_BYTES;

/** Size of the first buffer if the asset's size is not known: many small assets must not cost many parts of memory. */
const FIRST_BUFFER_BYTES = 64 * 1024;

/**
 * How much of an asset passes by between two collections of what it leaves behind, in bytes. Over TLS that is five times
 * as much: any more of it, and V8 begins to collect all of the heap for it, in threads of their own.
 */
const GARBAGE_BYTES_MAX = 2 * 1024 * 1024;

/** How often a conditional PUT is done again after S3 answered 409. */
const CONFLICT_TRIES_MAX = 10;

export interface AssetFacts {
  readonly bytes: number;
  readonly sha256: string;
}

/** An asset whose download has begun, and where it belongs. */
export interface OpenedAsset {
  readonly to: AssetDestination;
  readonly chunks: AsyncIterable<Uint8Array>;
  /** It has no more bytes than this. Undefined if that is not known. */
  readonly bytesMax?: number | undefined;
}

export interface AssetDestination {
  readonly key: string;
  readonly mediaType: string;
  /** ASCII only: S3 would return anything else encoded. */
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * The results bucket: whole assets, each written once.
 *
 * What exists when: nothing under the final key until every byte has been received and checked. A small asset is one
 * conditional PUT at the very end; a large one is a multipart upload that is completed, conditionally, at the very end
 * and aborted on any doubt. Where the key is taken already, that object is hashed and stands for this one.
 */
export class Results {
  readonly #s3: S3Client;
  readonly #bucket: string;
  readonly #log: Log;
  readonly #buffers = new PartBuffers();
  readonly #slots: AssetSlots;

  /** @param largeAssetsMax large assets that are streamed side by side. */
  constructor(s3: S3Client, bucket: string, log: Log, largeAssetsMax: number) {
    this.#s3 = s3;
    this.#bucket = bucket;
    this.#log = log;
    this.#slots = new AssetSlots(largeAssetsMax, LARGE_ASSET_BYTES);
  }

  /**
   * Opens an asset as soon as there is memory for it, and stores what its chunks yield, if and only if they end
   * normally. Rejects with whatever they throw.
   */
  async store(
    open: () => Promise<OpenedAsset>,
    signal: AbortSignal,
  ): Promise<AssetFacts & Pick<AssetDestination, 'key' | 'mediaType'>> {
    const slot = await this.#slots.take(signal);
    try {
      const asset = await open();
      const { to, bytesMax } = asset;
      if (bytesMax !== undefined) await slot.resize(memoryFor(bytesMax));
      const facts = await this.#storeOpened(asset, signal);
      if (bytesMax === undefined) slot.note(memoryFor(facts.bytes));
      const { key, mediaType } = to;
      return { key, mediaType, ...facts };
    } finally {
      slot.release();
    }
  }

  async #storeOpened(asset: OpenedAsset, signal: AbortSignal): Promise<AssetFacts> {
    const { to, chunks } = asset;
    const upload = new PartedUpload(this.#s3, this.#bucket, asset, this.#buffers, signal);
    const hash = createHash('sha256');
    let bytes = 0;
    try {
      for await (const chunk of chunks) {
        hash.update(chunk);
        bytes += chunk.byteLength;
        await upload.write(chunk);
      }
      if ((await upload.finish()) === 'stored') return { bytes, sha256: hash.digest('hex') };
    } catch (error) {
      await this.#abort(upload);
      throw error;
    } finally {
      upload.letGo();
    }
    await this.#abort(upload);
    return this.#existing(to.key, signal);
  }

  /** The facts of the asset that is already there: every writer of a key writes the same bytes, and none overwrites. */
  async #existing(key: string, signal: AbortSignal): Promise<AssetFacts> {
    const { Body } = await this.#s3.send(new GetObjectCommand({ Bucket: this.#bucket, Key: key }), {
      abortSignal: signal,
    });
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of Body as AsyncIterable<Uint8Array>) {
      signal.throwIfAborted();
      hash.update(chunk);
      bytes += chunk.byteLength;
    }
    return { bytes, sha256: hash.digest('hex') };
  }

  /** Parts that stay behind are invisible and expire by the bucket's lifecycle, so a failure here is only worth a line. */
  async #abort(upload: PartedUpload): Promise<void> {
    try {
      await upload.abort();
    } catch (error) {
      this.#log.warn('A multipart upload could not be aborted; the lifecycle rule will remove its parts', {
        error: error as Error,
      });
    }
  }
}

/**
 * The memory that parts take: buffers of a part's size, used over and over by all uploads side by side. An upload needs
 * one, and is faster with a second one that it fills while the first is sent.
 */
class PartBuffers {
  readonly #spare: Buffer[] = [];
  /** Who waits for a buffer, in the order of coming. */
  readonly #waiting = new Set<(buffer: Buffer) => void>();
  #taken = 0;

  /** A buffer, at once or when another upload gives one back: whoever has one gets on without any other. */
  take(signal: AbortSignal): Promise<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    if (this.#taken < PART_BUFFERS_MAX) {
      this.#taken += 1;
      resolve(this.#spare.pop() ?? Buffer.allocUnsafeSlow(PART_BYTES));
      return promise;
    }
    const giveUp = (): void => {
      this.#waiting.delete(resolve);
      reject(signal.reason);
    };
    this.#waiting.add(resolve);
    if (signal.aborted) giveUp();
    signal.addEventListener('abort', giveUp);
    return promise.finally(() => signal.removeEventListener('abort', giveUp));
  }

  /** @param buffer absent where something may still be reading it. */
  giveBack(buffer?: Buffer): void {
    const [next] = this.#waiting;
    if (next !== undefined) {
      this.#waiting.delete(next);
      next(buffer ?? Buffer.allocUnsafeSlow(PART_BYTES));
      return;
    }
    this.#taken -= 1;
    if (buffer !== undefined) this.#spare.push(buffer);
    // Memory is kept for those under way alone.
    if (this.#taken === 0) this.#spare.length = 0;
  }
}

/** One object on its way to S3: a single PUT while it fits into one part, a multipart upload from then on. */
class PartedUpload {
  readonly #s3: S3Client;
  readonly #target: { readonly Bucket: string; readonly Key: string };
  readonly #to: AssetDestination;
  readonly #buffers: PartBuffers;
  readonly #signal: AbortSignal;
  #filling: Buffer;
  #filled = 0;
  /** Whether the buffer that was filled was given to a request of which no success is known. */
  #isBeingPut = false;
  /** Bytes since the last collection. */
  #passed = 0;
  #uploadId: string | undefined;
  #sending: Promise<void> = Promise.resolve();
  readonly #parts: { PartNumber: number; ETag: string | undefined; ChecksumCRC32: string | undefined }[] = [];

  constructor(
    s3: S3Client,
    bucket: string,
    { to, bytesMax = Number.POSITIVE_INFINITY }: Pick<OpenedAsset, 'to' | 'bytesMax'>,
    buffers: PartBuffers,
    signal: AbortSignal,
  ) {
    // What is known to be small gets a buffer of its own size, and needs no part.
    this.#filling = Buffer.allocUnsafeSlow(bytesMax < PART_BYTES ? bytesMax : FIRST_BUFFER_BYTES);
    this.#s3 = s3;
    this.#target = { Bucket: bucket, Key: to.key };
    this.#to = to;
    this.#buffers = buffers;
    this.#signal = signal;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#passed += chunk.byteLength;
    if (this.#passed > GARBAGE_BYTES_MAX) {
      this.#passed = 0;
      collectYoungGarbage();
    }
    for (let offset = 0; offset < chunk.byteLength; ) {
      if (this.#filled === PART_BYTES) await this.#sendPart();
      const needed = this.#filled + chunk.byteLength - offset;
      if (needed > this.#filling.byteLength && this.#filling.byteLength < PART_BYTES) await this.#grow();
      const take = Math.min(chunk.byteLength - offset, PART_BYTES - this.#filled);
      this.#filling.set(chunk.subarray(offset, offset + take), this.#filled);
      this.#filled += take;
      offset += take;
    }
  }

  /** Makes the object appear under its key, unless there is one already. */
  async finish(): Promise<'stored' | 'exists'> {
    try {
      if (this.#uploadId === undefined) {
        await this.#put();
      } else {
        await this.#sendPart();
        await this.#sending;
        await this.#s3.send(
          new CompleteMultipartUploadCommand({
            ...this.#target,
            UploadId: this.#uploadId,
            MultipartUpload: { Parts: this.#parts },
            IfNoneMatch: '*',
          }),
          { abortSignal: this.#signal },
        );
        this.#uploadId = undefined;
      }
      return 'stored';
    } catch (error) {
      if (isPreconditionFailed(error)) return 'exists';
      throw error;
    }
  }

  /** Removes what was sent of a multipart upload that was not completed. Not under the signal: that may be the cause. */
  async abort(): Promise<void> {
    await this.#sending.catch(() => {}); // Its error is the one being handled; only a part under way is waited for.
    if (this.#uploadId === undefined) return;
    const UploadId = this.#uploadId;
    this.#uploadId = undefined;
    await this.#s3.send(new AbortMultipartUploadCommand({ ...this.#target, UploadId }));
  }

  /** No more is written after this. A part under way gives its own buffer back. */
  letGo(): void {
    if (this.#filling.byteLength === PART_BYTES) this.#buffers.giveBack(this.#isBeingPut ? undefined : this.#filling);
  }

  async #put(): Promise<void> {
    const command = new PutObjectCommand({
      ...this.#target,
      ...this.#description(),
      Body: this.#filling.subarray(0, this.#filled),
      IfNoneMatch: '*',
    });
    this.#isBeingPut = true;
    for (let tries = 1; ; tries += 1) {
      try {
        await this.#s3.send(command, { abortSignal: this.#signal });
        this.#isBeingPut = false;
        return;
      } catch (error) {
        if (!isConflict(error) || tries === CONFLICT_TRIES_MAX) throw error;
      }
    }
  }

  /** Sends the full buffer while the next one fills; waits for the part before it, so that two exist at most. */
  async #sendPart(): Promise<void> {
    this.#uploadId ??= await this.#create();
    await this.#sending;
    const part = this.#filling;
    const body = part.subarray(0, this.#filled);
    const PartNumber = this.#parts.length + 1;
    const slot = { PartNumber, ETag: undefined as string | undefined, ChecksumCRC32: undefined as string | undefined };
    this.#parts.push(slot);
    this.#filling = NO_BUFFER;
    this.#filled = 0;
    this.#sending = this.#s3
      .send(new UploadPartCommand({ ...this.#target, UploadId: this.#uploadId, PartNumber, Body: body }), {
        abortSignal: this.#signal,
      })
      .then(
        (answer) => {
          slot.ETag = answer.ETag;
          slot.ChecksumCRC32 = answer.ChecksumCRC32;
          this.#buffers.giveBack(part);
        },
        (error) => {
          this.#buffers.giveBack(); // The connection may not have let go of it yet.
          throw error;
        },
      );
    // The next write or the end awaits it; until then its failure is not an unhandled one.
    this.#sending.catch(() => {});
  }

  async #create(): Promise<string> {
    const { UploadId } = await this.#s3.send(
      new CreateMultipartUploadCommand({ ...this.#target, ...this.#description(), ChecksumAlgorithm: 'CRC32' }),
      { abortSignal: this.#signal },
    );
    return UploadId as string;
  }

  #description() {
    return { ContentType: this.#to.mediaType, Metadata: { ...this.#to.metadata } };
  }

  /** Once, to its full size: pages of it that are never written take no memory, and steps in between would be left over. */
  async #grow(): Promise<void> {
    const whole = await this.#buffers.take(this.#signal);
    this.#filling.copy(whole, 0, 0, this.#filled);
    this.#filling = whole;
  }
}
