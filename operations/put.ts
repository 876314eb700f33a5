import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
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
 * Uploads a file to the inbox, in parts if it is large. Each upload that a route wants is paid for.
 */
export async function put(
  file: FileToPut,
  overrides: Overrides,
  deployment: Deployment,
  terms: Omit<PutTerms, 'partsAtOnce'>,
): Promise<Put> {
  const { size } = await stat(file.path);
  const body = createReadStream(file.path);
  return putBody({ key: file.key, bytes: size, body, overrides }, deployment, { ...terms, partsAtOnce: PARTS_AT_ONCE });
}
