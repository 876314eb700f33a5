import { type Entry, isTerminal } from '../functions/ledger/entry.ts';
import { laterEntries, readChain } from './chains.ts';
import type { Deployment } from './deployment.ts';
import { readEntry } from './listing.ts';
import { type UploadView, uploadName, viewOf } from './upload-view.ts';

/** What one generation of an upload was made with, and what came of it. Times are in ISO 8601. */
export type Generation = Pick<
  UploadView,
  'id' | 'stage' | 'generation' | 'state' | 'template' | 'parameters' | 'revision' | 'price' | 'arrivedAt' | 'endedAt'
> & {
  /** The id of its flow. */
  readonly flow?: string | undefined;
  /** Its results; of an earlier generation, the first ones. */
  readonly assets: readonly { readonly key: string; readonly bytes: number }[];
  /** Number of all results, and their size in bytes. */
  readonly assetCount: number;
  readonly bytes: number;
};

/** All generations of an upload that had a flow, and the present one, the first one first. */
export function generationsOf({ previous = [], ...view }: UploadView): readonly Generation[] {
  const { id, stage, generation, state, template, parameters, revision, price, arrivedAt, endedAt, assets } = view;
  const bytes = assets.reduce((sum, asset) => sum + asset.bytes, 0);
  const present = { flow: view.flow?.id, assets, assetCount: assets.length, bytes };
  return [
    ...previous.map(({ status, ...end }) => ({ id, stage, ...end, state: status })),
    { id, stage, generation, state, template, parameters, revision, price, arrivedAt, endedAt, ...present },
  ];
}

/** Enough of an id to tell the uploads of one chain apart, whose ids begin with the same second. */
export const shortId = (id: string): string => id.slice(8, 16);

/**
 * The generation of another upload from which a later stage was made, in words. Undefined for a file.
 * @example `robot.png, generation 2` or `robot.png › optimised, generation 1 of f40bd170`
 */
export function parentOf({ stage }: Pick<Generation, 'stage'>): string | undefined {
  if (stage === undefined) return undefined;
  const { first, parent } = stage;
  if (parent.asset === undefined) return `the chain of ${first.key}, generation ${parent.generation}`;
  const which = parent.id === first.id ? '' : ` of ${shortId(parent.id)}`;
  return `${uploadName(parent.key)}, generation ${parent.generation}${which}`;
}

/** What was made at one place of a chain. */
export interface Compared {
  readonly key: string;
  /** The first one first. */
  readonly generations: readonly Generation[];
}

/** An upload, and what is to be compared with it. */
export interface Comparison extends Compared {
  readonly id: string;
  /** Of a file: the later stages of its chain that were made more than once. Absent if none was. */
  readonly stages?: readonly Compared[] | undefined;
}

/**
 * Compares the generations of an upload. In a later stage, each generation of the parent begins another upload, so all of
 * them are compared that took the asset at the same position.
 * @internal
 */
export async function compare(entry: Entry, deployment: Deployment, signal: AbortSignal): Promise<Comparison> {
  const { id, key, stage } = entry.upload;
  const compared = (uploads: readonly Entry[]): Compared => {
    const generations = uploads.flatMap((each) => generationsOf(viewOf(each, deployment.settings)));
    return { key: uploads.at(-1)?.upload.key ?? key, generations: generations.toSorted(byTime) };
  };
  if (stage !== undefined) return { id, ...compared(await samePlace(entry, deployment, signal)), key };
  const own = { id, ...compared([entry]) };
  if ((await readChain(id, deployment, signal)) === undefined) return own;
  const places = await placesOf(id, deployment, signal);
  const stages = [...places.keys()]
    .filter((place) => place !== FIRST)
    .sort()
    .map((place) => compared(places.get(place) ?? []))
    .filter(({ generations }) => generations.length > 1);
  return stages.length === 0 ? own : { ...own, stages };
}

const byTime = (one: Generation, other: Generation): number => Date.parse(one.arrivedAt) - Date.parse(other.arrivedAt);

/**
 * The uploads of a later stage that took the asset at the same position, each of another generation of the parent: the
 * oldest first, and this one among them.
 * @param max if more entries would have to be read, only this one is returned. Default: there is no limit.
 * @internal
 */
export async function samePlace(
  entry: Entry,
  deployment: Deployment,
  signal: AbortSignal,
  max = Number.POSITIVE_INFINITY,
): Promise<readonly Entry[]> {
  const { id, stage } = entry.upload;
  const places = await placesOf(stage?.first.id ?? id, deployment, signal, max);
  const same = [...places.values()].find((uploads) => uploads.some(({ upload }) => upload.id === id));
  return same ?? [entry];
}

/** The place of the file that a chain began with. */
const FIRST = '';

/** The uploads of a chain by their places, the oldest first: those that are no part of it any more too. */
async function placesOf(
  firstId: string,
  deployment: Deployment,
  signal: AbortSignal,
  max?: number,
): Promise<ReadonlyMap<string | undefined, readonly Entry[]>> {
  const { entry } = await readEntry(firstId, deployment, signal);
  const all = [...(entry === undefined ? [] : [entry]), ...(await laterEntries(firstId, deployment, signal, max))];
  const entries = new Map(all.map((each) => [each.upload.id, each]));
  const places = Map.groupBy(
    all.toSorted((one, other) => one.arrivedAt - other.arrivedAt),
    (each) => placeOf(each, entries),
  );
  places.delete(undefined);
  return places;
}

/**
 * Where an upload stands in its chain: the positions of the assets that led to it, each among those of its flow. Undefined
 * if one is not known any more: of an earlier generation, the ledger keeps the first assets.
 */
function placeOf({ upload: { stage } }: Entry, entries: ReadonlyMap<string, Entry>): string | undefined {
  if (stage === undefined) return FIRST;
  const { route, parent } = stage;
  // It takes all assets of a stage.
  if (parent.asset === undefined) return `/${route}`;
  const from = entries.get(parent.id);
  const place = from && placeOf(from, entries);
  if (from === undefined || place === undefined) return undefined;
  const isPresent = from.generation === parent.generation && isTerminal(from);
  const made = isPresent ? from : from.previous?.find(({ generation }) => generation === parent.generation);
  const at = made?.assets.findIndex(({ id }) => id === parent.asset) ?? -1;
  return at < 0 ? undefined : `${place}/${route} ${String(at).padStart(5, '0')}`;
}
