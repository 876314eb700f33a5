import { createHash } from 'node:crypto';
import type { Entry, TerminalEntry } from '../../../functions/ledger/entry.ts';
import type { Put } from '../observations.ts';
import { LOWERED_SETTINGS } from '../scenario.ts';
import type { World } from '../world.ts';

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

export const isTerminal = (entry: Entry): entry is TerminalEntry =>
  entry.state === 'succeeded' || entry.state === 'failed';

/** The code with which an entry failed. Undefined for an entry that has not failed. */
export const failureCodeOf = (entry: Entry): string | undefined =>
  entry.state === 'failed' ? entry.failure.code : undefined;

/** True if an entry is of an upload. Without a version, the ETag and the time tell. */
export const isOf = (put: Put, { upload }: Pick<Entry, 'upload'>): boolean =>
  put.bucket === upload.bucket &&
  put.key === upload.key &&
  (put.versionId === undefined
    ? upload.versionId === undefined && put.etag === upload.etag && put.lastModified === upload.lastModified
    : put.versionId === upload.versionId);

/** True if the limits were lowered, and an upload is larger than they are now. */
export function isTooLarge({ observed }: World, { key, content }: Put): boolean {
  const { textBytesMax, inputBytesMax } = LOWERED_SETTINGS;
  const bytesMax = key.startsWith('text/') ? textBytesMax : inputBytesMax;
  return observed.deployedAt.has('limits') && content.byteLength > bytesMax;
}

export const isInvalidText = ({ key, content }: Put): boolean => key.startsWith('text/') && content.includes(0xff);
