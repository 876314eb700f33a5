import type { S3Client } from '@aws-sdk/client-s3';
import { isPreconditionFailed } from '../s3/errors.ts';
import { putIfAbsent } from './conditional-put.ts';
import type { Garbage } from './garbage.ts';
import { MultipartUpload, type UploadTarget } from './multipart-upload.ts';
import { PART_BYTES, type PartBuffers } from './part-buffers.ts';

/** Size of the first buffer if the asset's size is unknown, in bytes. Many small assets must not take a part each. */
const FIRST_BUFFER_BYTES = 64 * 1024;

/**
 * Minimum size of an answer whose asset needs several parts, in bytes. In base64 the asset has at least 7.5 MiB then.
 * Its multipart upload begins beside its download. A smaller answer may hold an asset for a single PUT.
 */
const LARGE_ANSWER_BYTES_MIN = 2 * PART_BYTES;

const NO_BUFFER = Buffer.alloc(0);

interface AssetWriterOptions {
  readonly s3: S3Client;
  readonly target: UploadTarget;
  /** Maximum size of the asset, in bytes. Undefined if it is unknown. */
  readonly bytesMax: number | undefined;
  readonly buffers: PartBuffers;
  readonly garbage: Garbage;
  readonly signal: AbortSignal;
}

/** Writes one asset: with a single PUT if it fits into one part, else with a multipart upload. */
export class AssetWriter {
  readonly #s3: S3Client;
  readonly #target: UploadTarget;
  readonly #buffers: PartBuffers;
  readonly #garbage: Garbage;
  readonly #signal: AbortSignal;
  readonly #multipart: MultipartUpload;
  #filling: Buffer;
  #filled = 0;
  /** True while a PUT may read the buffer: from its start until its success. */
  #isBeingPut = false;

  constructor({ s3, target, bytesMax = Number.POSITIVE_INFINITY, buffers, garbage, signal }: AssetWriterOptions) {
    // An asset that is known to be small gets a buffer of its own size, and needs no part.
    this.#filling = Buffer.allocUnsafeSlow(bytesMax < PART_BYTES ? bytesMax : FIRST_BUFFER_BYTES);
    this.#s3 = s3;
    this.#target = target;
    this.#buffers = buffers;
    this.#garbage = garbage;
    this.#signal = signal;
    this.#multipart = new MultipartUpload(s3, target, signal);
    if (Number.isFinite(bytesMax) && bytesMax >= LARGE_ANSWER_BYTES_MIN) this.#multipart.begin();
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#garbage.add(chunk.byteLength);
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

  /** Makes the object appear under its key, unless the key is taken. */
  async finish(): Promise<'stored' | 'exists'> {
    try {
      if (this.#multipart.isOpen) {
        await this.#sendPart();
        await this.#multipart.complete();
      } else {
        await this.#put();
      }
      return 'stored';
    } catch (error) {
      if (isPreconditionFailed(error)) return 'exists';
      throw error;
    }
  }

  /** Removes an upload that has begun, with its parts. Does nothing after a success of {@link finish}. */
  async abort(): Promise<void> {
    await this.#multipart.abort();
  }

  /** Releases the buffer. Nothing is written after this. A part in progress releases its own buffer. */
  release(): void {
    if (this.#filling.byteLength === PART_BYTES) this.#buffers.release(this.#isBeingPut ? undefined : this.#filling);
  }

  async #put(): Promise<void> {
    const Body = this.#filling.subarray(0, this.#filled);
    this.#isBeingPut = true;
    await putIfAbsent(this.#s3, { ...this.#target, Body }, this.#signal);
    this.#isBeingPut = false;
  }

  /** Sends the buffer while the next one fills. Waits for the part before it, so that at most two buffers exist. */
  async #sendPart(): Promise<void> {
    await this.#multipart.ready();
    const part = this.#filling;
    const body = part.subarray(0, this.#filled);
    this.#filling = NO_BUFFER;
    this.#filled = 0;
    // After a failure the connection may still read the buffer, so its memory is not reused.
    this.#multipart.send(body, (outcome) => this.#buffers.release(outcome === 'sent' ? part : undefined));
  }

  /**
   * Grows the buffer to full size at once: intermediate buffers would be garbage, and unwritten pages take no memory.
   */
  async #grow(): Promise<void> {
    const whole = await this.#buffers.take(this.#signal);
    this.#filling.copy(whole, 0, 0, this.#filled);
    this.#filling = whole;
  }
}
