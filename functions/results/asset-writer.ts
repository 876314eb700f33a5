import { PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import { untilAborted } from '../base/invocation.ts';
import { isConditionUnmet, pastConflicts } from '../s3/errors.ts';
import { PART_BYTES_MIN } from '../s3/limits.ts';
import { MultipartUpload, type ObjectVersion, type UploadTarget } from './multipart-upload.ts';

/**
 * Size of a part, in bytes. An upload holds one part while it fills and one while it is sent, so this bounds memory.
 * Larger parts were no faster.
 */
export const PART_BYTES = PART_BYTES_MIN;

/** Size of the first buffer if the asset's size is unknown, in bytes. Many small assets must not take a part each. */
const FIRST_BUFFER_BYTES = 64 * 1024;

const NO_BUFFER = Buffer.alloc(0);

interface AssetWriterOptions {
  readonly s3: S3Client;
  readonly target: UploadTarget;
  /** Maximum size of the asset, in bytes. Undefined if it is unknown. */
  readonly bytesMax: number | undefined;
  readonly buffers: PartBuffers;
  readonly signal: AbortSignal;
}

/** Writes one asset: with a single PUT if it fits into one part, else with a multipart upload. */
export class AssetWriter {
  readonly #s3: S3Client;
  readonly #target: UploadTarget;
  readonly #buffers: PartBuffers;
  readonly #signal: AbortSignal;
  readonly #multipart: MultipartUpload;
  #filling: Buffer;
  #filled = 0;
  /** True while a PUT may read the buffer: from its start until its success. */
  #isBeingPut = false;

  constructor({ s3, target, bytesMax = Number.POSITIVE_INFINITY, buffers, signal }: AssetWriterOptions) {
    // An asset that is known to be small gets a buffer of its own size, and needs no part.
    this.#filling = Buffer.allocUnsafeSlow(bytesMax < PART_BYTES ? bytesMax : FIRST_BUFFER_BYTES);
    this.#s3 = s3;
    this.#target = target;
    this.#buffers = buffers;
    this.#signal = signal;
    this.#multipart = new MultipartUpload(s3, target, signal);
  }

  async write(chunk: Uint8Array): Promise<void> {
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

  /** Makes the object appear under its key. Undefined if the key is taken, also by our own request whose answer was lost. */
  async finish(): Promise<ObjectVersion | undefined> {
    try {
      if (!this.#multipart.isOpen) return await this.#put();
      await this.#sendPart();
      return await this.#multipart.complete();
    } catch (error) {
      if (isConditionUnmet(error)) return undefined;
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

  /** @throws 412 if the key is taken: see `isConditionUnmet`. */
  async #put(): Promise<ObjectVersion> {
    const Body = this.#filling.subarray(0, this.#filled);
    this.#isBeingPut = true;
    const put = new PutObjectCommand({ ...this.#target, Body, IfNoneMatch: '*' });
    const version = await pastConflicts(() => this.#s3.send(put, { abortSignal: this.#signal }));
    this.#isBeingPut = false;
    return version;
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

/**
 * The memory of parts: buffers of {@link PART_BYTES} that all uploads of a process share and reuse. An upload needs
 * one. With a second one it is faster, because it fills that one while the first is sent.
 */
export class PartBuffers {
  readonly #countMax: number;
  readonly #spare: Buffer[] = [];
  /** Resolvers of the uploads that wait for a buffer, in the order of their calls. */
  readonly #waiting = new Set<(buffer: Buffer) => void>();
  #taken = 0;

  /** @param countMax maximum number of buffers that are taken at the same time. */
  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  /**
   * Takes a buffer, or waits until one is released. An upload that waits holds at most the buffer of a part that is
   * being sent. That one is released, so every wait ends.
   * @throws the signal's reason.
   */
  async take(signal: AbortSignal): Promise<Buffer> {
    if (this.#taken < this.#countMax) {
      this.#taken += 1;
      return this.#spare.pop() ?? Buffer.allocUnsafeSlow(PART_BYTES);
    }
    signal.throwIfAborted();
    const { promise, resolve } = untilAborted<Buffer>(signal, () => this.#waiting.delete(resolve));
    this.#waiting.add(resolve);
    return promise;
  }

  /** @param buffer undefined if a request may still read it. Its place is then free, but its memory is not reused. */
  release(buffer?: Buffer): void {
    const [next] = this.#waiting;
    if (next !== undefined) {
      this.#waiting.delete(next);
      next(buffer ?? Buffer.allocUnsafeSlow(PART_BYTES));
      return;
    }
    this.#taken -= 1;
    if (buffer !== undefined) this.#spare.push(buffer);
    // Keep no memory while no upload runs.
    if (this.#taken === 0) this.#spare.length = 0;
  }
}
