import { readFileSync } from 'node:fs';
import { appendFile } from 'node:fs/promises';
import { PRIVATE_FILE_MODE } from './private-folder.ts';

/**
 * Remembers, in a file with one line for each, which receipts are in the results folder with their assets. If a run is
 * killed before it has copied a result, the next run copies it. A result that the user has moved away is not copied
 * again.
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
