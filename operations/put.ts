import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import type { Deployment } from './deployment.ts';
import { type Overrides, type Put, type PutTerms, putBody } from './put-body.ts';

/** Parts of a file of this machine that are under way at the same time. */
const PARTS_AT_ONCE = 4;

/** A file of this machine, and the key that it gets, with or without the prefix of the inbox. */
export interface FileToPut {
  readonly path: string;
  readonly key: string;
}

/**
 * Uploads a file to the inbox, in parts if it is large. Each upload that a route wants is paid for. If the file changes
 * while it is read, no object is left behind.
 */
export async function put(
  { path, key }: FileToPut,
  overrides: Overrides,
  deployment: Deployment,
  terms: Omit<PutTerms, 'partsAtOnce'>,
): Promise<Put> {
  const { size, mtimeMs } = await stat(path);
  async function* body(): AsyncGenerator<Uint8Array> {
    yield* createReadStream(path);
    const now = await stat(path);
    if (now.size !== size || now.mtimeMs !== mtimeMs) throw new Error(`${path} changed while it was uploaded`);
  }
  const file = { key, bytes: size, body: Readable.from(body(), { objectMode: false }), overrides };
  return putBody(file, deployment, { ...terms, partsAtOnce: PARTS_AT_ONCE });
}
