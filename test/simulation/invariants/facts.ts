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

/** The upload of the inbox that an upload is, or that its chain began with. Undefined if it never had an entry. */
export const firstUploadOf = ({ orderChecker }: World, upload: Entry['upload']): Entry['upload'] | undefined =>
  upload.stage === undefined ? upload : orderChecker.uploads.get(upload.stage.first.id);

/** The put of the file that an upload is, or that its chain began with. */
export function putOf(world: World, { upload }: Pick<Entry, 'upload'>): Put | undefined {
  const first = firstUploadOf(world, upload);
  return first && world.observed.puts.find((put) => isOf(put, { upload: first }));
}

/** True if the limits were lowered, and an upload is larger than they are now. */
export function isTooLarge({ observed }: World, { key, content }: Put, inputs?: Entry['inputs']): boolean {
  const { textBytesMax, inputBytesMax } = LOWERED_SETTINGS;
  const bytesMax = key.startsWith('text/') ? textBytesMax : inputBytesMax;
  const sizes = inputs?.map(({ bytes }) => bytes) ?? [content.byteLength];
  return observed.deployedAt.has('limits') && sizes.some((bytes) => bytes > bytesMax);
}

/** What was put at the key of a file after it, until `at`. Two files may be put in the same millisecond. */
export const newerPuts = ({ observed: { puts } }: World, first: Put, at: number): readonly Put[] =>
  puts
    .slice(puts.indexOf(first) + 1)
    .filter((put) => put.bucket === first.bucket && put.key === first.key && put.at <= at);

/**
 * True if a newer file was put at the key of a chain's first file before `at`. What has the same content and no entry is
 * a copy of it, or is taken for one.
 */
export function isSuperseded(world: World, first: Put, at: number): boolean {
  const uploads = [...world.orderChecker.uploads.values()];
  return newerPuts(world, first, at).some(
    (put) => put.etag !== first.etag || uploads.some((upload) => isOf(put, { upload })),
  );
}

export const isInvalidText = ({ key, content }: Put): boolean => key.startsWith('text/') && content.includes(0xff);
