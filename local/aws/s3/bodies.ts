import { randomUUID } from 'node:crypto';
import { chmodSync, constants, copyFileSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';

/** Bytes that are read and yielded at a time: the memory of one GET, whatever the size of the object. */
const BLOCK_BYTES = 64 * 1024;

/** Mode of a body's file. */
const OWNER_ONLY = 0o600;

/** A stored body. An object that was uploaded in parts has several. */
export interface Segment {
  readonly id: string;
  readonly bytes: number;
}

/** Bytes from `start` up to, but not including, `end`. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * The store for bodies. A body is invisible until metadata refers to it, so nobody can read half of an upload. Its id
 * is independent of its key, so every key is possible.
 */
export interface Bodies {
  /** Stores all chunks. If the iteration throws, stores nothing and rejects with the same error. */
  write(chunks: AsyncIterable<Uint8Array>): Promise<Segment>;
  /**
   * Stores a clone of a file, which takes no room until one of the two is changed. It is no link: a change of the one is
   * none of the other. Undefined if the file system cannot clone this file.
   */
  clone(path: string): Segment | undefined;
  /** Reads a range. If a body is removed meanwhile, the reader can still read it to its end. */
  read(segments: readonly Segment[], range: ByteRange): Readable;
  remove(segments: readonly Segment[]): void;
}

/** The part of each segment that falls into the range. */
function* slices(segments: readonly Segment[], range: ByteRange): Generator<{ segment: Segment; slice: ByteRange }> {
  let offset = 0;
  for (const segment of segments) {
    const start = Math.max(range.start - offset, 0);
    const end = Math.min(range.end - offset, segment.bytes);
    if (start < end) yield { segment, slice: { start, end } };
    offset += segment.bytes;
  }
}

export class MemoryBodies implements Bodies {
  readonly #bodies = new Map<string, readonly Buffer[]>();
  #count = 0;

  async write(chunks: AsyncIterable<Uint8Array>): Promise<Segment> {
    const kept: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of chunks) {
      kept.push(Buffer.from(chunk)); // A copy: a caller in this process may reuse its buffer.
      bytes += chunk.byteLength;
    }
    const id = String(++this.#count);
    this.#bodies.set(id, kept);
    return { id, bytes };
  }

  clone(): undefined {
    return undefined;
  }

  read(segments: readonly Segment[], range: ByteRange): Readable {
    const bodies = segments.map(({ id }) => this.#bodies.get(id) ?? []);
    return Readable.from(blocks(bodies.flat(), range), { objectMode: false });
  }

  remove(segments: readonly Segment[]): void {
    for (const { id } of segments) this.#bodies.delete(id);
  }
}

async function* blocks(chunks: readonly Buffer[], range: ByteRange): AsyncGenerator<Uint8Array, void> {
  let offset = 0;
  for (const chunk of chunks) {
    const end = Math.min(range.end - offset, chunk.length);
    for (let start = Math.max(range.start - offset, 0); start < end; start += BLOCK_BYTES) {
      yield chunk.subarray(start, Math.min(start + BLOCK_BYTES, end));
    }
    offset += chunk.length;
  }
}

async function writeFile(path: string, chunks: AsyncIterable<Uint8Array>): Promise<number> {
  const file = await open(path, 'wx', OWNER_ONLY);
  try {
    let bytes = 0;
    for await (const chunk of chunks) {
      let written = 0;
      while (written < chunk.byteLength) written += (await file.write(chunk, written)).bytesWritten;
      bytes += chunk.byteLength;
    }
    return bytes;
  } finally {
    await file.close();
  }
}

/** Makes a clone of a file. @throws if the file system cannot, and leaves no file then. */
export type CloneFile = (from: string, to: string) => void;

/** Some file systems clone a file: Btrfs, XFS and APFS for example. An ordinary copy would take its room twice. */
export const cloneFile: CloneFile = (from, to) =>
  copyFileSync(from, to, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE_FORCE);

/** Stores bodies as files in a folder. The folder must have only one owner at a time. */
export class FileBodies implements Bodies {
  readonly #dir: string;
  /** Number of readers of each body. */
  readonly #readers = new Map<string, number>();
  /** Bodies to delete when their last reader is done. */
  readonly #removed = new Set<string>();
  readonly #cloneFile: CloneFile;

  /** Deletes unknown files: uploads that were under way when the previous owner of the folder was killed. */
  constructor(dir: string, isKnown: (id: string) => boolean, clone: CloneFile = cloneFile) {
    this.#dir = dir;
    this.#cloneFile = clone;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    for (const name of readdirSync(dir)) if (!isKnown(name)) rmSync(join(dir, name));
  }

  async write(chunks: AsyncIterable<Uint8Array>): Promise<Segment> {
    const id = randomUUID();
    const path = join(this.#dir, id);
    try {
      return { id, bytes: await writeFile(path, chunks) };
    } catch (error) {
      rmSync(path, { force: true });
      throw error;
    }
  }

  clone(path: string): Segment | undefined {
    const id = randomUUID();
    const own = join(this.#dir, id);
    try {
      this.#cloneFile(path, own);
      chmodSync(own, OWNER_ONLY); // A clone has the mode of its file.
      return { id, bytes: statSync(own).size };
    } catch {
      rmSync(own, { force: true });
      return undefined;
    }
  }

  read(segments: readonly Segment[], range: ByteRange): Readable {
    for (const { id } of segments) this.#readers.set(id, (this.#readers.get(id) ?? 0) + 1);
    // A stream tells its end even if its reader leaves before the first block, which a generator does not.
    const stream = Readable.from(this.#blocks(segments, range), { objectMode: false });
    return stream.once('close', () => this.#release(segments));
  }

  remove(segments: readonly Segment[]): void {
    for (const { id } of segments) {
      if (this.#readers.has(id)) this.#removed.add(id);
      else rmSync(join(this.#dir, id), { force: true });
    }
  }

  async *#blocks(segments: readonly Segment[], range: ByteRange): AsyncGenerator<Uint8Array, void> {
    for (const { segment, slice } of slices(segments, range)) {
      const file = await open(join(this.#dir, segment.id));
      try {
        let position = slice.start;
        while (position < slice.end) {
          const block = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, slice.end - position));
          const { bytesRead } = await file.read(block, 0, block.length, position);
          if (bytesRead === 0) throw new Error(`The body ${segment.id} is shorter than its ${segment.bytes} bytes.`);
          yield block.subarray(0, bytesRead);
          position += bytesRead;
        }
      } finally {
        await file.close();
      }
    }
  }

  #release(segments: readonly Segment[]): void {
    for (const { id } of segments) {
      const readers = (this.#readers.get(id) ?? 0) - 1;
      if (readers > 0) {
        this.#readers.set(id, readers);
        continue;
      }
      this.#readers.delete(id);
      if (this.#removed.delete(id)) rmSync(join(this.#dir, id), { force: true });
    }
  }
}
