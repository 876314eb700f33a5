import { createHash, type Hash } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, rmSync, unlinkSync, writeSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';

/** Larger blobs are kept in a file. */
export const BLOB_MEMORY_BYTES_MAX = 1024 * 1024;

const CHUNK_BYTES = 256 * 1024;
/** Enough to recognise a format, and for the JSON of a model that the stand-in made. */
const HEAD_BYTES = 4 * 1024;

/** Bytes of known number that can be read more than once. */
export interface Content {
  readonly bytes: number;
  open(): AsyncIterable<Uint8Array>;
}

/** Bytes that were received. */
export interface Blob extends Content {
  readonly sha256: string;
  /** The first 4 KiB, or all if there are fewer. */
  readonly head: Buffer;
  /** The bytes, if there are at most {@link BLOB_MEMORY_BYTES_MAX}. */
  readonly memory: Buffer | undefined;
}

/** The folder that keeps large blobs. It is created for the first of them. */
export class BlobFolder {
  readonly #parent: string;
  #path: string | undefined;
  #count = 0;

  constructor(parent: string) {
    this.#parent = parent;
  }

  newPath(): string {
    this.#path ??= mkdtempSync(join(this.#parent, 'flow-service-'));
    return join(this.#path, String(this.#count++));
  }

  remove(): void {
    if (this.#path !== undefined) rmSync(this.#path, { recursive: true, force: true });
    this.#path = undefined;
  }
}

/**
 * Receives bytes, hashes them, and keeps them. It is synchronous on purpose: a simulation needs no turn of the event
 * loop for it, and the reader of a request's body waits for the disk without extra code.
 */
export class BlobWriter {
  readonly #folder: BlobFolder;
  readonly #hash: Hash = createHash('sha256');
  #pieces: Buffer[] = [];
  #bytes = 0;
  #file: { readonly path: string; readonly fd: number; readonly head: Buffer } | undefined;
  #isOpen = true;

  constructor(folder: BlobFolder) {
    this.#folder = folder;
  }

  /** The caller may reuse the buffer afterwards. */
  write(bytes: Uint8Array): void {
    this.#hash.update(bytes);
    this.#bytes += bytes.length;
    if (this.#file !== undefined) writeAll(this.#file.fd, bytes);
    else this.#pieces.push(Buffer.from(bytes));
    if (this.#file === undefined && this.#bytes > BLOB_MEMORY_BYTES_MAX) this.#moveToFile();
  }

  end(): Blob {
    this.#isOpen = false;
    const kept = { bytes: this.#bytes, sha256: this.#hash.digest('hex') };
    if (this.#file === undefined) {
      const memory = Buffer.concat(this.#pieces);
      return { ...kept, head: memory.subarray(0, HEAD_BYTES), memory, open: () => once(memory) };
    }
    const { path, fd, head } = this.#file;
    closeSync(fd);
    return { ...kept, head, memory: undefined, open: () => readFile(path) };
  }

  #moveToFile(): void {
    const bytes = Buffer.concat(this.#pieces);
    const path = this.#folder.newPath();
    this.#file = { path, fd: openSync(path, 'wx', 0o600), head: Buffer.from(bytes.subarray(0, HEAD_BYTES)) };
    this.#pieces = [];
    writeAll(this.#file.fd, bytes);
  }

  /** Drops the bytes received so far. May be called before or after `end`. */
  discard(): void {
    this.#pieces = [];
    if (this.#file === undefined) return;
    if (this.#isOpen) closeSync(this.#file.fd);
    unlinkSync(this.#file.path);
  }
}

function writeAll(fd: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length; ) written += writeSync(fd, bytes, written);
}

/** The bytes in chunks of 256 KiB. */
export async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) yield bytes.subarray(at, at + CHUNK_BYTES);
}

/** A part of the bytes. */
export function partOf(content: Content, from: number, bytes: number): Content {
  return {
    bytes,
    async *open() {
      let at = -from;
      for await (const chunk of content.open()) {
        const part = chunk.subarray(Math.max(0, -at), Math.max(0, bytes - at));
        if (part.length > 0) yield part;
        at += chunk.length;
        if (at >= bytes) return;
      }
    },
  };
}

async function* readFile(path: string): AsyncGenerator<Uint8Array> {
  const file = await open(path);
  try {
    for (;;) {
      // A new buffer for each chunk, because the reader may hold several at the same time.
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES));
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

const GENERATED_BLOCK_BYTES = 64 * 1024;

/**
 * Generates `bytes` bytes while they are read. The same number gives the same bytes. Each block of 64 KiB repeats its
 * index as a big-endian number of 8 bytes. Therefore a swapped or lost block changes the hash.
 */
export function generatedContent(bytes: number): Content {
  return {
    bytes,
    async *open() {
      const index = Buffer.alloc(8);
      for (let block = 0; block * GENERATED_BLOCK_BYTES < bytes; block++) {
        index.writeBigUInt64BE(BigInt(block));
        yield Buffer.alloc(Math.min(GENERATED_BLOCK_BYTES, bytes - block * GENERATED_BLOCK_BYTES), index);
      }
    },
  };
}

export async function sha256Of(content: Content): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of content.open()) hash.update(chunk);
  return hash.digest('hex');
}
