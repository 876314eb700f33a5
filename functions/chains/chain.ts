import * as z from 'zod/mini';
import {
  begun,
  type Entry,
  type Input,
  isTerminal,
  type NextStage,
  type RunningEntry,
  type StoredAsset,
  type TerminalEntry,
  type WaitingEntry,
} from '../ledger/entry.ts';
import {
  assets,
  count,
  failure,
  input,
  readonlyObject,
  routeSchema,
  time,
  uploadSchema,
} from '../ledger/entry-schema.ts';
import { isSuccess, TERMINAL_STATE_NAMES } from '../ledger/terminal-states.ts';
import { INPUTS_MAX, matchesAsset, pathTo, routesAfter } from '../uploads/chain-routes.ts';
import { snapshot } from '../uploads/route-snapshot.ts';
import type { Route } from '../uploads/routes.ts';
import { firstOf, type Stage, stageUpload, type Upload } from '../uploads/upload.ts';

/** Maximum number of uploads of one chain. Its object is read and written whole. */
export const CHAIN_UPLOADS_MAX = 10_000;

const member = readonlyObject({
  id: z.string(),
  /** Address of its results. The first file has its key in the inbox. */
  key: z.string(),
  route: z.string(),
  /** The upload that it continues. Absent in the first one, and if it takes all assets of a stage. */
  parent: z.optional(z.string()),
  generation: count,
  /** `under way` until it has ended. */
  state: z.enum(['under way', ...TERMINAL_STATE_NAMES]),
  /** When it, or its last retry, came into the chain. */
  arrivedAt: time,
  flow: z.optional(z.string()),
  endedAt: z.optional(time),
  assets,
  failedOutputs: count,
  failure: z.optional(failure),
  /** Names of the routes that came after its route when it succeeded. */
  followers: z.optional(z.readonly(z.array(z.string()))),
});

/** The form of a chain. */
export const chainSchema = readonlyObject({
  schema: z.literal(1),
  first: uploadSchema,
  /** 1, plus 1 each time that the operator has a stage made anew. */
  generation: count,
  /** All its uploads, the first one first. */
  uploads: z.readonly(z.array(member)),
  /** Routes whose stages are complete: what begins after all of their uploads was decided. */
  closed: z.readonly(z.array(z.string())),
  /** The uploads that take all assets of a stage, and what they began with. */
  gathered: z.readonly(z.array(readonlyObject({ upload: uploadSchema, route: routeSchema, inputs: z.array(input) }))),
  /** Stages that did not begin although the one before has ended. */
  withheld: z.readonly(z.array(readonlyObject({ route: z.string(), after: z.string(), why: z.string() }))),
  /** When its last upload ended. Absent while an upload is under way. */
  endedAt: z.optional(time),
  /** When it had ended before that. */
  endedBefore: z.optional(time),
});

/**
 * A chain: the upload of a file, and the uploads of all later stages that follow from it.
 *
 * It is a summary of their entries, which say more. It alone decides two things, because they depend on several uploads:
 * when a stage is complete, so that all of its assets begin the next one; and when the whole chain has ended.
 *
 *   first file ──▶ an upload for each asset ──▶ an upload for each asset of these ──▶ …
 *                                           └─▶ one upload for all of their assets, once all have ended
 */
export type Chain = z.infer<typeof chainSchema>;
export type ChainUpload = Chain['uploads'][number];

/**
 * True if an upload is part of a chain, or begins one. A success says by itself what came after it: routes that were
 * added later make no chain of it. Routes that are removed later take no upload out of its chain.
 */
export const isInChain = (entry: Entry, routes: readonly Route[]): boolean =>
  entry.upload.stage !== undefined ||
  entry.isInChain === true ||
  ('next' in entry && entry.next !== undefined) ||
  (!isSuccess(entry.state) && routesAfter(routes, entry.route.name).length > 0);

/** True if every upload succeeded, and no stage was withheld. */
export const hasSucceeded = ({ uploads, withheld }: Chain): boolean =>
  withheld.length === 0 && uploads.every(({ state }) => isSuccess(state));

/**
 * The later stages that begin with assets of an upload, by the present routes. A stage that takes all assets together
 * has no assets here: its chain decides. If the upload had succeeded before it was collected again, only stages that came
 * after it then.
 */
export function nextStages(
  { upload, route, next: before }: Pick<RunningEntry, 'upload' | 'route' | 'next'>,
  stored: readonly StoredAsset[],
  routes: readonly Route[],
): readonly NextStage[] {
  const { key } = firstOf(upload);
  return routesAfter(routes, route.name)
    .filter(({ name }) => before?.some((each) => each.route.name === name) ?? true)
    .map((next) => ({
      route: snapshot(next),
      assets: next.inputs === 'all' ? [] : stored.filter((asset) => matchesAsset(next, key, asset)).map(({ id }) => id),
    }));
}

/** The first entries of the uploads that begin with single assets of an upload. */
export function childrenOf(entry: TerminalEntry, resultsBucket: string): readonly WaitingEntry[] {
  const { upload, generation, endedAt, next = [], assets: stored } = entry;
  const parent = { id: upload.id, key: upload.key, generation };
  return next.flatMap(({ route, assets: ids }) =>
    stored
      .filter(({ id }) => ids.includes(id))
      .map((asset) => childOf({ first: upload, parent, asset, resultsBucket }, route, endedAt)),
  );
}

/** An asset that a later stage takes. */
interface TakenAsset {
  /** The upload of the chain's first file, or any later upload of the chain. */
  readonly first: Upload;
  readonly parent: Pick<ChainUpload, 'id' | 'key' | 'generation'>;
  readonly asset: StoredAsset;
  readonly resultsBucket: string;
}

/** The first entry of the upload that takes one asset. */
function childOf(
  { first, parent, asset, resultsBucket }: TakenAsset,
  route: NextStage['route'],
  now: number,
): WaitingEntry {
  const { id, key, generation } = parent;
  const stage: Stage = {
    first: firstOf(first),
    route: route.name,
    parent: { id, key, generation, asset: asset.id },
  };
  return begun(stageUpload(first, stage, asset), route, [inputOf(asset, resultsBucket)], now);
}

const inputOf = ({ key, versionId, etag, bytes, mediaType }: StoredAsset, bucket: string): Input => ({
  bucket,
  key,
  versionId,
  etag,
  bytes,
  mediaType,
});

/** The first entry of an upload that takes all assets of a stage. Undefined if no upload of that id does. */
export function gatheredEntry({ gathered, uploads }: Chain, uploadId: string): WaitingEntry | undefined {
  const found = gathered.find(({ upload }) => upload.id === uploadId);
  const arrivedAt = uploads.find(({ id }) => id === uploadId)?.arrivedAt;
  if (found === undefined || arrivedAt === undefined) return undefined;
  return begun(found.upload, found.route, found.inputs, arrivedAt);
}

/** The assets of all uploads of a stage, in the order of their addresses. */
const assetsOf = ({ uploads }: Chain, route: string): readonly StoredAsset[] =>
  uploads
    .filter((upload) => upload.route === route && isSuccess(upload.state))
    .flatMap((upload) => upload.assets)
    .sort((one, other) => Buffer.compare(Buffer.from(one.key), Buffer.from(other.key)));

/** What a note needs to know of the configuration. */
export interface ChainSettings {
  /** The present routes, which decide what begins after a stage that is complete now. */
  readonly routes: readonly Route[];
  readonly resultsBucket: string;
  /** The stage that the operator has made anew. It may be new to the chain. */
  readonly anew?: string;
}

/**
 * The chain after what its uploads have come to: an end, or a retry. The same chain if that is nothing new.
 * @param entries of uploads of this chain, as they were written.
 */
export function noted(chain: Chain | undefined, entries: readonly Entry[], settings: ChainSettings): Chain | undefined {
  const after = entries.reduce((before, entry) => withEntry(before, entry, settings.routes), chain);
  return after === undefined || after === chain ? chain : concluded(settle(after, settings));
}

/** The chain with the time of its end, if it has ended. */
function concluded(chain: Chain): Chain {
  const isUnderWay = chain.uploads.some(({ state }) => state === 'under way');
  const endedBefore = chain.endedAt ?? chain.endedBefore;
  // Clocks differ. A later end of the chain must have a later time, because `chain.json` and the event are told by it.
  const endedAt = isUnderWay ? undefined : Math.max(lastEnd(chain), (endedBefore ?? -1) + 1);
  return { ...chain, endedAt, endedBefore };
}

const lastEnd = ({ uploads }: Chain): number => Math.max(...uploads.map(({ endedAt }) => endedAt ?? 0));

/** Returns the same chain if the entry tells nothing new. */
function withEntry(chain: Chain | undefined, entry: Entry, routes: readonly Route[]): Chain | undefined {
  const { upload } = entry;
  // The note of the first file makes the chain, before anything begins after it.
  if (chain === undefined && upload.stage !== undefined) return undefined;
  const before = chain ?? newChain(upload);
  const known = before.uploads.find(({ id }) => id === upload.id);
  // Its stage was made anew since.
  if (chain !== undefined && known === undefined) return chain;
  const now = isTerminal(entry) ? endOf(entry) : underWay(entry);
  if (known === undefined) return withChildren({ ...before, uploads: [now] }, entry, routes);
  if (!isNewer(now, known)) return chain;
  const current = now.generation === known.generation ? before : withoutDescendants(before, upload);
  const uploads = current.uploads.map((each) => (each.id === upload.id ? now : each));
  // It may rank higher now: the operator may have deleted a newer file of its key.
  const first = upload.stage === undefined ? upload : current.first;
  const changed = { ...current, first, uploads };
  // A failure that is collected again may succeed without a retry.
  const mayGoOn = now.state === 'under way' || (isSuccess(now.state) && !isSuccess(known.state));
  return withChildren(mayGoOn ? reopened(changed, now.route, routes) : changed, entry, routes);
}

const newChain = (first: Upload): Chain => ({
  schema: 1,
  first,
  generation: 1,
  uploads: [],
  closed: [],
  gathered: [],
  withheld: [],
});

const isNewer = (one: ChainUpload, other: ChainUpload): boolean =>
  one.generation === other.generation ? (one.endedAt ?? 0) > (other.endedAt ?? 0) : one.generation > other.generation;

/** What followed from an earlier generation of an upload is no part of the chain any more. */
function withoutDescendants(chain: Chain, { id, stage }: Upload): Chain {
  if (stage === undefined) {
    const uploads = chain.uploads.filter((upload) => upload.id === id);
    return { ...newChain(chain.first), generation: chain.generation + 1, uploads };
  }
  const gone = new Set([id]);
  // A parent stands before its children.
  for (const { id: child, parent } of chain.uploads) if (parent !== undefined && gone.has(parent)) gone.add(child);
  gone.delete(id);
  return { ...chain, uploads: chain.uploads.filter((upload) => !gone.has(upload.id)) };
}

const identityOf = ({ upload, route, generation, arrivedAt }: Entry) => ({
  id: upload.id,
  key: upload.key,
  route: route.name,
  parent: upload.stage?.parent.asset === undefined ? undefined : upload.stage.parent.id,
  generation,
  arrivedAt,
});

const underWay = (entry: Entry): ChainUpload => ({
  ...identityOf(entry),
  state: 'under way',
  assets: [],
  failedOutputs: 0,
});

const endOf = (entry: TerminalEntry): ChainUpload => ({
  ...identityOf(entry),
  state: entry.state,
  flow: entry.flow?.id,
  endedAt: entry.endedAt,
  assets: entry.assets,
  failedOutputs: entry.failedOutputs.length,
  failure: 'failure' in entry ? entry.failure : undefined,
  followers: entry.next?.map(({ route }) => route.name),
});

/** Adds the uploads that begin with single assets of an upload. */
function withChildren(chain: Chain, entry: Entry, routes: readonly Route[]): Chain {
  if (!isTerminal(entry)) return chain;
  const known = new Set(chain.uploads.map(({ id }) => id));
  // A chain does not say which bucket an input is in.
  const children = childrenOf(entry, '').filter(({ upload }) => !known.has(upload.id));
  const next = [...new Set(children.map(({ route }) => route.name))];
  if (chain.uploads.length + children.length <= CHAIN_UPLOADS_MAX) {
    const uploads = [...chain.uploads, ...children.map(underWay)];
    return next.reduce<Chain>((before, route) => reopened(before, route, routes), { ...chain, uploads });
  }
  const withheld = next.map((route) => ({ route, after: entry.route.name, why: TOO_MANY_UPLOADS }));
  return { ...chain, withheld: [...chain.withheld, ...withheld] };
}

const TOO_MANY_UPLOADS = `A chain has at most ${CHAIN_UPLOADS_MAX} uploads.`;

/** While an upload of a stage is under way again, what begins after that stage and later ones is open again. */
function reopened(chain: Chain, route: string, routes: readonly Route[]): Chain {
  const isOpen = (name: string): boolean => stagesTo(routes, name).includes(route);
  // A stage stands before those that come after it. Its route may be removed by now.
  const withheld = chain.withheld.reduce<{ readonly kept: Chain['withheld']; readonly open: readonly string[] }>(
    ({ kept, open }, each) =>
      isOpen(each.after) || open.includes(each.after)
        ? { kept, open: [...open, each.route] }
        : { kept: [...kept, each], open },
    { kept: [], open: [] },
  );
  return { ...chain, closed: chain.closed.filter((name) => !isOpen(name)), withheld: withheld.kept };
}

/** The names of the stages up to a route, that one included. */
function stagesTo(routes: readonly Route[], name: string): readonly string[] {
  const route = routes.find((each) => each.name === name);
  return route === undefined ? [name] : pathTo(routes, route).map((each) => each.name);
}

/** Decides what begins after the stages that are complete now. A stage is decided about once. */
function settle(chain: Chain, settings: ChainSettings): Chain {
  const { routes } = settings;
  const depthOf = ({ name }: Route): number => stagesTo(routes, name).length;
  return routes
    .filter(({ name }) => routesAfter(routes, name).length > 0)
    .toSorted((one, other) => depthOf(one) - depthOf(other))
    .reduce<Chain>(
      (before, { name }) => (isComplete(before, name, routes) ? closeStage(before, name, settings) : before),
      chain,
    );
}

/** True if all uploads of a stage have ended, no further one can come, and nothing was decided yet. */
function isComplete({ closed, uploads }: Chain, name: string, routes: readonly Route[]): boolean {
  const stages = stagesTo(routes, name);
  return (
    stages[0] === uploads[0]?.route &&
    !closed.includes(name) &&
    stages.every((stage) => stage === name || closed.includes(stage)) &&
    !uploads.some(({ route, state }) => route === name && state === 'under way')
  );
}

/**
 * Begins what takes all assets of a stage, or says why it does not begin. A route that was added after the uploads of
 * the stage had ended begins nothing. If nothing of the stage succeeded, all stages after it are withheld.
 */
function closeStage(before: Chain, name: string, settings: ChainSettings): Chain {
  const { routes, anew } = settings;
  const chain = { ...before, closed: [...before.closed, name] };
  const whyNone = whyNothingOf(chain, name);
  if (whyNone !== undefined) {
    return routesAfter(routes, name)
      .filter((route) => !chain.uploads.some((upload) => upload.route === route.name))
      .reduce<Chain>((next, route) => withhold(next, { route: route.name, after: name, why: whyNone }), chain);
  }
  const stages = stagesTo(routes, name);
  const isWhole =
    !chain.withheld.some(({ route }) => stages.includes(route)) &&
    chain.uploads
      .filter(({ route }) => stages.includes(route))
      .every(({ state, failedOutputs }) => isSuccess(state) && failedOutputs === 0);
  const hasBegun = (route: Route): boolean => chain.gathered.some((gathered) => gathered.route.name === route.name);
  const follows = (route: Route): boolean =>
    route.name === anew ||
    chain.uploads.some((upload) => upload.route === name && upload.followers?.includes(route.name));
  return routesAfter(routes, name)
    .filter((route) => route.inputs === 'all' && follows(route) && !hasBegun(route))
    .reduce<Chain>((next, route) => gather(next, route, isWhole, settings), chain);
}

/** Why nothing begins after a stage that has ended, whatever the routes after it want. Undefined if something may. */
function whyNothingOf({ uploads, withheld }: Chain, name: string): string | undefined {
  const ofStage = uploads.filter(({ route }) => route === name);
  if (ofStage.some(({ state }) => isSuccess(state))) return undefined;
  if (ofStage.length > 0) return 'No upload of the stage before succeeded.';
  // Otherwise no asset met the conditions of the stage.
  return withheld.some(({ route }) => route === name) ? 'The stage before did not begin.' : undefined;
}

const withhold = (chain: Chain, stage: Chain['withheld'][number]): Chain => ({
  ...chain,
  withheld: [...chain.withheld.filter(({ route }) => route !== stage.route), stage],
});

function gather(chain: Chain, route: Route, isWhole: boolean, { resultsBucket }: ChainSettings): Chain {
  const { first, generation } = chain;
  const after = route.after as string;
  // The chain did not come so far.
  if (!chain.uploads.some((upload) => upload.route === after)) return chain;
  const withheld = (why: string): Chain => withhold(chain, { route: route.name, after, why });
  const inputs = assetsOf(chain, after)
    .filter((asset) => matchesAsset(route, first.key, asset))
    .map((asset) => inputOf(asset, resultsBucket));
  if (!isWhole && (route.allow !== 'partial' || inputs.length === 0)) {
    return withheld('An upload or an output of the stages before failed.');
  }
  if (inputs.length === 0) return chain;
  if (inputs.length > INPUTS_MAX) {
    return withheld(`The stage before made ${inputs.length} assets, and one flow takes at most ${INPUTS_MAX}.`);
  }
  if (chain.uploads.length >= CHAIN_UPLOADS_MAX) return withheld(TOO_MANY_UPLOADS);
  const { id, key } = first;
  const stage: Stage = { first: { id, key }, route: route.name, parent: { id, key, generation } };
  const bytes = inputs.reduce((sum, input) => sum + input.bytes, 0);
  const upload = stageUpload(first, stage, { bytes, mediaType: inputs[0]?.mediaType ?? '' });
  const entry = begun(upload, snapshot(route), inputs, lastEnd(chain));
  return {
    ...chain,
    uploads: [...chain.uploads, underWay(entry)],
    gathered: [...chain.gathered, { upload, route: entry.route, inputs }],
  };
}

/** A stage that the operator has made anew, and what that begins. */
export interface Anew {
  readonly chain: Chain;
  /** The first entries of its uploads, as if none of them existed yet. */
  readonly begins: readonly WaitingEntry[];
  /** The uploads that are no part of the chain any more. Their entries and results stay. */
  readonly dropped: readonly ChainUpload[];
}

/**
 * The chain with a later stage that begins anew, by the present routes and from the stored assets of the stage before.
 * What came after that stage is no part of the chain any more. Undefined if no present route of that name is a later
 * stage of this chain.
 */
export function madeAnew(chain: Chain, name: string, settings: ChainSettings, now: number): Anew | undefined {
  const { routes, resultsBucket } = settings;
  const route = routes.find((each) => each.name === name);
  if (route?.after === undefined || stagesTo(routes, name)[0] !== chain.uploads[0]?.route) return undefined;
  const { after } = route;
  const isAnew = (each: string): boolean => stagesTo(routes, each).includes(name);
  const kept = chain.uploads.filter((upload) => !isAnew(upload.route));
  const before: Chain = {
    ...chain,
    generation: chain.generation + 1,
    uploads: kept,
    closed: chain.closed.filter((each) => !isAnew(each) && !(route.inputs === 'all' && each === after)),
    gathered: chain.gathered.filter((each) => !isAnew(each.route.name)),
    withheld: chain.withheld.filter((each) => !isAnew(each.route)),
  };
  const children =
    route.inputs === 'all'
      ? []
      : kept
          .filter((upload) => upload.route === after && isSuccess(upload.state))
          .flatMap((upload) =>
            upload.assets
              .filter((asset) => matchesAsset(route, chain.first.key, asset))
              .map((asset) =>
                childOf({ first: chain.first, parent: upload, asset, resultsBucket }, snapshot(route), now),
              ),
          );
  // The routes beside this one keep what they have begun.
  const path = stagesTo(routes, name);
  const own = routes.filter((each) => path.includes(each.name) || isAnew(each.name));
  const uploads = [...kept, ...children.map(underWay)];
  const next = concluded(settle({ ...before, uploads }, { ...settings, routes: own, anew: name }));
  const gathered = next.gathered.filter((each) => isAnew(each.route.name));
  return {
    chain: next,
    begins: [...children, ...gathered.map((each) => begun(each.upload, each.route, each.inputs, now))],
    dropped: chain.uploads.filter((upload) => isAnew(upload.route)),
  };
}
