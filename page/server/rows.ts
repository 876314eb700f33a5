import { stateOfChain } from '../../operations/chains.ts';
import type { Deployment } from '../../operations/deployment.ts';
import type { HoldsView } from '../../operations/holds.ts';
import type { ReadEntry } from '../../operations/listing.ts';
import { inputsOf } from '../../operations/stored-bytes.ts';
import { shownState, TERMINAL_STATE_NAMES, viewOf } from '../../operations/upload-view.ts';
import type { RowState, Thumbnail, UploadRow } from '../api.ts';

export const ROW_STATES: readonly RowState[] = [
  'claimed',
  'waiting',
  'undecided',
  'running',
  ...TERMINAL_STATE_NAMES,
  'replaced',
];

/** A larger picture is not fetched for the list, in bytes. */
const THUMBNAIL_BYTES_MAX = 1024 * 1024;
const PICTURE = /^image\/(?:png|jpeg|gif|webp|avif)$/;

/** What the list shows of an upload. The row of a first file says how its chain stands. */
export async function rowOf(
  entry: NonNullable<ReadEntry['entry']>,
  holds: HoldsView | undefined,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<UploadRow> {
  const view = viewOf(entry, deployment.settings, holds);
  const { id, key, bytes, mediaType, route, state, arrivedAt, endedAt, wait, obstacle, failure, assets, stage } = view;
  return {
    ...{ id, key, bytes, mediaType, route, state, arrivedAt, endedAt },
    wait: wait && { reason: wait.reason, message: wait.message, until: wait.until, askedUntil: wait.askedUntil },
    obstacle,
    failure: failure && { code: failure.code, message: failure.message },
    assetCount: assets.length,
    first: stage?.first,
    chain: await stateOfChain(entry, deployment, signal),
    thumbnail: thumbnailOf(entry),
  };
}

function thumbnailOf(entry: NonNullable<ReadEntry['entry']>): Thumbnail | undefined {
  const objects = { assets: 'assets' in entry ? (entry.assets ?? []) : [], inputs: inputsOf(entry) };
  const paths = Object.entries(objects).flatMap(([name, all]) =>
    all.map(({ mediaType, bytes }, index) => ({
      mediaType,
      bytes,
      path: `/api/uploads/${entry.upload.id}/${name}/${index}`,
    })),
  );
  const model = paths.find(({ mediaType }) => mediaType === 'model/gltf-binary')?.path;
  const picture = paths.find(({ mediaType, bytes }) => PICTURE.test(mediaType) && bytes <= THUMBNAIL_BYTES_MAX)?.path;
  return model === undefined && picture === undefined ? undefined : { model, picture };
}

/** Newest first. Uploads that came at the same time are in the order of their ids. */
export const byArrival = (one: UploadRow, other: UploadRow): number =>
  compared(other.arrivedAt, one.arrivedAt) || compared(other.id, one.id);

const compared = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);

/**
 * Where a page of the list ends. An upload that is retried meanwhile moves to the top, and leaves the place as it is.
 */
export const placeOf = ({ arrivedAt, id }: UploadRow): string => `${arrivedAt}/${id}`;

/** True if a row comes after a place. */
export const isAfter = (row: UploadRow, place: string): boolean => placeOf(row) < place;

/** How many rows are in each state. */
export function countsOf(rows: readonly UploadRow[]): Readonly<Record<RowState, number>> {
  const counts = Object.fromEntries(ROW_STATES.map((state) => [state, 0])) as Record<RowState, number>;
  for (const row of rows) counts[shownState(row)] += 1;
  return counts;
}
