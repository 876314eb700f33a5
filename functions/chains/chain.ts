import pMap from 'p-map';
import {
  begun,
  type Entry,
  inputOf,
  isTerminal,
  isUntold,
  type NextStage,
  planned,
  type RunningEntry,
  type StoredAsset,
  sentBy,
  type TerminalEntry,
  type WaitingEntry,
} from '../ledger/entry.ts';
import { LEDGER_FORMAT } from '../ledger/entry-schema.ts';
import { isSuccess } from '../ledger/terminal-states.ts';
import {
  INPUTS_MAX,
  joinedPlans,
  laterRoute,
  matchesAsset,
  type PlannedStage,
  planAfter,
  planBehind,
  routesAfter,
  stagesTo,
} from '../uploads/chain-routes.ts';
import type { Route } from '../uploads/route.ts';
import { snapshot } from '../uploads/route-snapshot.ts';
import { firstOf, type Stage, stageAddress, stageUpload, type Upload } from '../uploads/upload.ts';
import type { Chain, ChainUpload } from './chain-schema.ts';
import { assetCountOf, CHAIN_BYTES_MAX, CHAIN_UPLOADS_MAX, fitted, type Gathering, whyNoRoom } from './chain-size.ts';

/**
 * True if an upload is part of a chain, or begins one. A success says by itself what came after it, and so does a failure
 * that was told: routes that were added later make no chain of it. Routes that are removed later take no upload out of its
 * chain.
 */
export const isInChain = (entry: Entry, routes: readonly Route[]): boolean =>
  entry.upload.stage !== undefined ||
  entry.isInChain === true ||
  entry.plan !== undefined ||
  ('next' in entry && entry.next !== undefined) ||
  (!isSuccess(entry.state) && !isTold(entry) && routesAfter(routes, entry.route.name).length > 0);

const isTold = (entry: Entry): boolean => entry.state === 'failed' && !isUntold(entry);

/** True if every upload succeeded, and no stage was withheld. */
export const hasSucceeded = ({ uploads, withheld }: Chain): boolean =>
  withheld.length === 0 && uploads.every(({ state }) => isSuccess(state));

/** True if every upload succeeded too, and no output of any failed. */
export const isWhole = (chain: Chain): boolean =>
  hasSucceeded(chain) && chain.uploads.every(({ failedOutputs }) => failedOutputs === 0);

/** The uploads of a chain whose assets a later stage may have taken. */
export function takenFrom(chain: Chain, routes: readonly Route[]): readonly ChainUpload[] {
  const before = new Set(stagesOf(chain, routes).map(({ after }) => after));
  return chain.uploads.filter(({ route }) => before.has(route));
}

/**
 * What is planned to come after an upload that succeeds: what its entry says. For the first file, these are the stages
 * that the present routes put after it, and those that they had put there when it was sent: its route may have been
 * renamed since. Undefined if nothing comes after the first file.
 */
export function planOf(
  entry: Pick<RunningEntry, 'upload' | 'route' | 'plan' | 'next'>,
  routes: readonly Route[],
): Entry['plan'] {
  // With `next`, the file has succeeded before.
  if (entry.upload.stage !== undefined || entry.next !== undefined) return entry.plan;
  const planned = joinedPlans(planAfter(routes, entry.route.name), entry.plan);
  return planned.length === 0 ? undefined : planned;
}

/**
 * The later stages that begin with assets of an upload: the planned ones that the present routes still have. A stage that
 * takes all assets together has no assets here: its chain decides.
 */
export function nextStages(
  entry: Pick<RunningEntry, 'upload' | 'route' | 'plan' | 'next'>,
  stored: readonly StoredAsset[],
  routes: readonly Route[],
): readonly NextStage[] {
  const { key } = firstOf(entry.upload);
  const own = entry.route.name;
  // A chain takes no more uploads than these. It refuses further ones by the names of their routes, so each route keeps one.
  let left = CHAIN_UPLOADS_MAX;
  return (planOf(entry, routes) ?? []).flatMap(({ route: name, after, inputs }) => {
    const route = laterRoute(routes, name);
    if (after !== own || route === undefined) return [];
    const wanted = (inputs === 'all' ? [] : stored).values().filter((asset) => matchesAsset(route, key, asset));
    const assets = wanted.take(Math.max(1, left)).toArray();
    left -= assets.length;
    return [{ route: snapshot(route), assets: assets.map(({ id }) => id) }];
  });
}

/**
 * The first entries of the uploads that take one asset each of an upload that has ended.
 * @param chain what they join. Without it, the entries lack its generation.
 */
export function childrenOf(entry: TerminalEntry, chain?: Pick<Chain, 'generation'>): readonly WaitingEntry[] {
  const { upload, endedAt, next = [], assets: stored } = entry;
  const parent = { id: upload.id, key: upload.key, generation: entry.generation };
  const { generation } = chain ?? {};
  return next.flatMap(({ route, assets: ids }) => {
    const taken = new Set(ids);
    const plan = entry.plan && planBehind(entry.plan, route.name);
    return stored
      .filter(({ id }) => taken.has(id))
      .map((asset) => childOf({ first: upload, generation, parent, asset }, { route, plan }, endedAt));
  });
}

/** An asset that a later stage takes. */
interface TakenAsset {
  /** The upload of the chain's first file, or any later upload of the chain. */
  readonly first: Upload;
  /** The generation of the chain. */
  readonly generation: number | undefined;
  readonly parent: { readonly id: string; readonly key: string; readonly generation: number };
  readonly asset: StoredAsset;
}

/** The first entry of the upload that takes one asset. */
function childOf(
  { first, generation, parent, asset }: TakenAsset,
  { route, plan }: Pick<Entry, 'route' | 'plan'>,
  now: number,
): WaitingEntry {
  const stage: Stage = { first: firstOf(first), route: route.name, generation, parent: { ...parent, asset: asset.id } };
  return planned(begun(stageUpload(first, stage, asset), route, [inputOf(asset)], now), plan);
}

/** The first entry of an upload that takes all assets of a stage. Undefined if no upload of that id does. */
export function gatheredEntry(chain: Chain, uploadId: string): WaitingEntry | undefined {
  const found = chain.gathered.find(({ upload }) => upload.id === uploadId);
  const arrivedAt = chain.uploads.find(({ id }) => id === uploadId)?.arrivedAt;
  return found && arrivedAt !== undefined ? gatheredAt(chain, found, arrivedAt) : undefined;
}

const gatheredAt = ({ plan }: Chain, { upload, route, inputs }: Chain['gathered'][number], now: number): WaitingEntry =>
  planned(begun(upload, route, inputs, now), plan && planBehind(plan, route.name));

/** The address of an upload's results. The first file has its key in the inbox. */
export const addressOf = ({ first }: Pick<Chain, 'first'>, { id, route }: Pick<ChainUpload, 'id' | 'route'>): string =>
  id === first.id ? first.key : stageAddress(first.key, route, id);

/** The assets of all uploads of a stage, in the order of their addresses. */
const assetsOf = ({ uploads }: Chain, route: string): readonly StoredAsset[] =>
  uploads
    .filter((upload) => upload.route === route && isSuccess(upload.state))
    .flatMap((upload) => upload.assets)
    .sort((one, other) => Buffer.compare(Buffer.from(one.key), Buffer.from(other.key)));

/**
 * The chain after what its uploads have come to: an end, or a retry. The same chain if that is nothing new.
 * @param entries of uploads of this chain, as they were written.
 * @param routes the present ones: the plan of a chain that has none yet, and how the flows of a stage are made.
 */
export function noted(
  chain: Chain | undefined,
  entries: readonly Entry[],
  routes: readonly Route[],
): Chain | undefined {
  const after = entries.reduce((before, entry) => withEntry(before, entry, routes), chain);
  if (after === undefined || after === chain) return chain;
  return written(settle(after, stagesOf(after, routes), routes), routes);
}

/** The chain as it is written: with the time of its end, if it has ended, and in a form that is not too large. */
function written(chain: Chain, routes: readonly Route[]): Chain {
  const gatherings = (chain.plan ?? []).flatMap(({ route: name, after, inputs }): readonly Gathering[] => {
    const route = laterRoute(routes, name);
    if (inputs !== 'all' || route === undefined || hasUploads(chain, name)) return [];
    const from = chain.uploads.filter((upload) => upload.route === after && isSuccess(upload.state));
    return [{ route: name, from, takes: (asset) => matchesAsset(route, chain.first.key, asset) }];
  });
  return fitted(concluded(chain), gatherings, INPUTS_MAX);
}

/** The plan of a chain. Until its first file has succeeded, that is what the present routes would make of it. */
const stagesOf = ({ plan, uploads }: Chain, routes: readonly Route[]): readonly PlannedStage[] =>
  plan ?? planAfter(routes, uploads[0]?.route ?? '');

/**
 * The chain with its plan, if its first file has ended. A failure has the one with which it was sent. Nothing comes after a
 * success without a plan.
 * @param entry the one that is noted now.
 */
function withPlan(chain: Chain, entry: Entry): Chain {
  const [first] = chain.uploads;
  if (chain.plan !== undefined || first === undefined || first.state === 'under way') return chain;
  const own = entry.upload.id === first.id ? entry.plan : undefined;
  const plan = own ?? (isSuccess(first.state) ? [] : undefined);
  return plan === undefined ? chain : { ...chain, plan };
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
  const index = before.uploads.findIndex(({ id }) => id === upload.id);
  const known = before.uploads[index];
  // Its stage was made anew since.
  if (chain !== undefined && known === undefined) return chain;
  const now = isTerminal(entry) ? endOf(entry) : underWay(entry);
  if (known === undefined) return withChildren(withPlan({ ...before, uploads: [now] }, entry), entry, { routes });
  if (!isNewer(now, known)) return chain;
  const isAgain = upload.stage === undefined && !isSuccess(known.state);
  const same = isAgain ? { ...before, plan: undefined } : before;
  const current = now.generation === known.generation ? same : withoutDescendants(before, upload);
  // Only uploads behind it are gone: a parent stands before its children.
  const uploads = current.uploads.with(upload.stage === undefined ? 0 : index, now);
  // It may rank higher now: the operator may have deleted a newer file of its key.
  const first = upload.stage === undefined ? upload : current.first;
  const changed = withPlan({ ...current, first, uploads }, entry);
  // An upload that is collected again may have more assets than before, without a retry.
  const mayGoOn = now.state === 'under way' || isSuccess(now.state);
  const isRefused = known.isRefused === true && known.generation === now.generation;
  return withChildren(mayGoOn ? reopened(changed, now.route, routes) : changed, entry, { routes, isRefused });
}

const newChain = (first: Upload): Chain => ({
  schema: LEDGER_FORMAT,
  first,
  generation: 1,
  uploads: [],
  closed: [],
  gathered: [],
  withheld: [],
});

/** The chain of an ended file that has none, before the first stage of it is made. */
export const chainAlone = (entry: TerminalEntry): Chain =>
  written({ ...newChain(entry.upload), generation: 0, plan: [], uploads: [endOf(entry)] }, []);

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

const identityOf = (entry: Entry) => ({
  id: entry.upload.id,
  route: entry.route.name,
  parent: entry.upload.stage?.parent.asset === undefined ? undefined : entry.upload.stage.parent.id,
  generation: entry.generation,
  arrivedAt: entry.arrivedAt,
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
  sent: sentBy(entry.route),
  flow: entry.flow?.id,
  endedAt: entry.endedAt,
  assets: entry.assets,
  failedOutputs: entry.failedOutputs.length,
  failure: 'failure' in entry ? entry.failure : undefined,
});

/** Adds the uploads that begin with single assets of an upload, and withholds the planned stages that have no route. */
function withChildren(
  before: Chain,
  entry: Entry,
  { routes, isRefused = false }: { readonly routes: readonly Route[]; readonly isRefused?: boolean },
): Chain {
  if (!isTerminal(entry)) return before;
  const chain = withoutRoutes(before, entry);
  if (entry.next === undefined) return chain;
  const known = new Set(chain.uploads.map(({ id }) => id));
  const children = childrenOf(entry).filter(({ upload }) => !known.has(upload.id));
  const next = [...new Set(children.map(({ route }) => route.name))];
  const longest = next.toSorted((one, other) => other.length - one.length)[0] ?? '';
  const why = whyNoRoom(chain, { route: longest, uploads: children.length });
  if (why === undefined) {
    const uploads = [...chain.uploads, ...children.map(underWay)];
    return next.reduce<Chain>((open, route) => reopened(open, route, routes), { ...chain, uploads });
  }
  const after = entry.route.name;
  const refused = next.reduce<Chain>((open, route) => withhold(open, { route, after, why }), chain);
  if (isRefused) return refused;
  const uploads = refused.uploads.map((each) =>
    each.id === entry.upload.id ? { ...underWay(entry), isRefused: true as const } : each,
  );
  return { ...refused, uploads };
}

/** Withholds the planned stages that assets of an upload would have begun, if the configuration had their routes. */
function withoutRoutes(chain: Chain, entry: TerminalEntry): Chain {
  const after = entry.route.name;
  if (!isSuccess(entry.state) || entry.assets.length === 0) return chain;
  return (chain.plan ?? [])
    .filter((stage) => stage.after === after && stage.inputs !== 'all')
    .filter(({ route }) => !entry.next?.some((each) => each.route.name === route))
    .reduce<Chain>((next, { route }) => withhold(next, { route, after, why: noRoute(route) }), chain);
}

/** Why a planned stage is withheld whose route is gone, and what makes it. */
export const noRoute = (name: string): string =>
  `The configuration has no later stage ${name} any more. Once it is back, \`flowdrop again\` with --from ${name} makes it.`;

/** While an upload of a stage is under way again, what begins after that stage and later ones is open again. */
function reopened(chain: Chain, route: string, routes: readonly Route[]): Chain {
  // The present routes may not have the stages that an end without a plan has withheld.
  if (route === chain.uploads[0]?.route) return { ...chain, closed: [], withheld: [] };
  const plan = stagesOf(chain, routes);
  const isOpen = (name: string): boolean => stagesTo(plan, name).includes(route);
  return {
    ...chain,
    closed: chain.closed.filter((name) => !isOpen(name)),
    withheld: chain.withheld.filter(({ after }) => !isOpen(after)),
  };
}

/** Decides what begins after the stages that are complete now. A stage is decided about once. */
function settle(chain: Chain, plan: readonly PlannedStage[], routes: readonly Route[]): Chain {
  const names = new Set(plan.map(({ after }) => after));
  return [...names].reduce<Chain>(
    (before, name) => (isComplete(before, name, plan) ? closeStage(before, name, plan, routes) : before),
    chain,
  );
}

/** True if all uploads of a stage have ended, no further one can come, and nothing was decided yet. */
function isComplete({ closed, uploads }: Chain, name: string, plan: readonly PlannedStage[]): boolean {
  return (
    !closed.includes(name) &&
    stagesTo(plan, name).every((stage) => stage === name || closed.includes(stage)) &&
    !uploads.some(({ route, state }) => route === name && state === 'under way')
  );
}

/**
 * Begins what takes all assets of a stage, or says why it does not begin. If nothing of the stage succeeded, all stages
 * after it are withheld.
 */
function closeStage(before: Chain, name: string, plan: readonly PlannedStage[], routes: readonly Route[]): Chain {
  const chain = { ...before, closed: [...before.closed, name] };
  const waiting = plan.filter(({ route, after }) => after === name && !hasUploads(chain, route));
  const whyNone = whyNothingOf(chain, name);
  if (whyNone !== undefined) {
    return waiting.reduce<Chain>((next, { route }) => withhold(next, { route, after: name, why: whyNone }), chain);
  }
  const stages = stagesTo(plan, name);
  const isWhole =
    !chain.withheld.some(({ route }) => stages.includes(route)) &&
    chain.uploads
      .filter(({ route }) => stages.includes(route))
      .every(({ state, failedOutputs }) => isSuccess(state) && failedOutputs === 0);
  return waiting
    .filter(({ inputs }) => inputs === 'all')
    .reduce<Chain>((next, stage) => gather(next, stage, isWhole, routes), chain);
}

const hasUploads = ({ uploads }: Chain, name: string): boolean => uploads.some(({ route }) => route === name);

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

function gather(chain: Chain, { route: name, after }: PlannedStage, isWhole: boolean, routes: readonly Route[]): Chain {
  const { first, generation } = chain;
  // The chain did not come so far.
  if (!hasUploads(chain, after)) return chain;
  const withheld = (why: string): Chain => withhold(chain, { route: name, after, why });
  const route = laterRoute(routes, name);
  if (route === undefined) return hasAssets(chain, after) ? withheld(noRoute(name)) : chain;
  if (chain.overfull?.includes(name)) return withheld(OVERFULL);
  const inputs = assetsOf(chain, after)
    .filter((asset) => matchesAsset(route, first.key, asset))
    .map(inputOf);
  if (!isWhole && (route.allow !== 'partial' || inputs.length === 0)) {
    return withheld('An upload or an output of the stages before failed.');
  }
  if (inputs.length === 0) return chain;
  if (inputs.length > INPUTS_MAX) {
    return withheld(`The stage before made ${inputs.length} assets, and one flow takes at most ${INPUTS_MAX}.`);
  }
  const { id, key } = first;
  const stage: Stage = { first: { id, key }, route: name, generation, parent: { id, key, generation } };
  const bytes = inputs.reduce((sum, input) => sum + input.bytes, 0);
  const upload = stageUpload(first, stage, { bytes, mediaType: inputs[0]?.mediaType ?? '' });
  const gathered = { upload, route: snapshot(route), inputs };
  const whyNot = whyNoRoom(chain, { route: name, uploads: 1, gathered });
  if (whyNot !== undefined) return withheld(whyNot);
  return {
    ...chain,
    uploads: [...chain.uploads, underWay(gatheredAt(chain, gathered, lastEnd(chain)))],
    gathered: [...chain.gathered, gathered],
  };
}

const OVERFULL = `The stage before made more assets than one flow takes (${INPUTS_MAX}), or than the object of the chain can hold (${CHAIN_BYTES_MAX / 1024 / 1024} MiB).`;

const hasAssets = ({ uploads }: Chain, route: string): boolean =>
  uploads.some((upload) => upload.route === route && isSuccess(upload.state) && assetCountOf(upload) > 0);

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
export function madeAnew(chain: Chain, name: string, routes: readonly Route[], now: number): Anew | undefined {
  const place = placeOf(name, chain, routes);
  if (place === undefined) return undefined;
  const { route, after, beside, isAnew } = place;
  const own = { route: name, after, ...(route.inputs === 'all' && { inputs: route.inputs }) };
  const behind = planAfter(routes, name).filter((stage) => !beside.some((each) => each.route === stage.route));
  const plan = [...beside, own, ...behind];
  const kept = chain.uploads.filter((upload) => !isAnew(upload.route));
  const reopenedChain: Chain = {
    ...chain,
    plan,
    generation: chain.generation + 1,
    uploads: kept,
    closed: chain.closed.filter((each) => !isAnew(each) && !(route.inputs === 'all' && each === after)),
    gathered: chain.gathered.filter((each) => !isAnew(each.route.name)),
    withheld: chain.withheld.filter((each) => !isAnew(each.route)),
    overfull: chain.overfull?.filter((each) => !isAnew(each)),
    anew: [...(chain.anew ?? []).filter((each) => !isAnew(each.route)), { route: name, seen: 0 }],
  };
  const child = { route: snapshot(route), plan: planBehind(plan, name) };
  const children =
    route.inputs === 'all'
      ? []
      : kept
          .filter((upload) => upload.route === after && isSuccess(upload.state))
          .flatMap(({ id, generation, route: parentRoute, assets: stored }) =>
            stored
              .filter((asset) => matchesAsset(route, chain.first.key, asset))
              .map((asset) => {
                const parent = { id, generation, key: addressOf(chain, { id, route: parentRoute }) };
                return childOf({ ...reopenedChain, parent, asset }, child, now);
              }),
          );
  // The stages beside this one keep what they have begun.
  const path = stagesTo(plan, name);
  const concerned = plan.filter((each) => path.includes(each.route) || stagesTo(plan, each.route).includes(name));
  const why = whyNoRoom(reopenedChain, { route: name, uploads: children.length });
  const begins = why === undefined ? children : [];
  const open = why === undefined ? reopenedChain : withhold(reopenedChain, { route: name, after, why });
  const uploads = [...kept, ...begins.map(underWay)];
  const next = written(settle({ ...open, uploads }, concerned, routes), routes);
  const isNew = (each: string): boolean => stagesTo(plan, each).includes(name);
  const gathered = next.gathered.filter((each) => isNew(each.route.name));
  return {
    chain: next,
    begins: [...begins, ...gathered.map((each) => gatheredAt(next, each, now))],
    dropped: chain.uploads.filter((upload) => isAnew(upload.route)),
  };
}

/**
 * Uploads of a stage that is being made anew, which may not have begun: `max` at most. Undefined if there is no such stage.
 */
export function unfinishedAnew(
  { anew: [stage] = [], uploads }: Chain,
  max: number,
): { readonly route: string; readonly seen: number; readonly uploads: readonly ChainUpload[] } | undefined {
  if (stage === undefined) return undefined;
  const { route, seen } = stage;
  const next = uploads.filter((upload) => upload.route === route).slice(seen, seen + max);
  return { route, seen: seen + next.length, uploads: next };
}

/** The chain after all uploads of a stage that is made anew have begun. */
export function begunWhole(chain: Chain, name: string): Chain {
  const left = (chain.anew ?? []).filter(({ route }) => route !== name);
  return { ...chain, anew: left.length === 0 ? undefined : left };
}

/**
 * The chain after the first `seen` uploads of a stage that is made anew have begun.
 * @param lost those that can never begin, because the configuration does not have their route any more.
 */
export function seenAnew(
  chain: Chain,
  { route: name, seen, lost }: { readonly route: string; readonly seen: number; readonly lost: readonly ChainUpload[] },
  routes: readonly Route[],
): Chain {
  const ids = new Set(lost.map(({ id }) => id));
  const uploads = chain.uploads.filter(({ id }) => !ids.has(id));
  const { anew = [], ...rest } = begunWhole(chain, name);
  const seenNow = seen - lost.length;
  const isWhole = uploads.filter(({ route }) => route === name).length <= seenNow;
  const next = isWhole ? begunWhole(chain, name) : { ...rest, anew: [...anew, { route: name, seen: seenNow }] };
  const seenChain = { ...next, uploads };
  if (lost.length === 0) return seenChain;
  const plan = stagesOf(chain, routes);
  const after = plan.find(({ route }) => route === name)?.after ?? '';
  const withheld = withhold(seenChain, { route: name, after, why: noRoute(name) });
  return written(settle(withheld, plan, routes), routes);
}

/**
 * The first entry of an upload of a stage that is made anew.
 * @param made assets of its parent. @returns undefined if it is not known how it begins.
 */
export function begunAnew(
  chain: Chain,
  upload: ChainUpload,
  made: readonly StoredAsset[],
  routes: readonly Route[],
): WaitingEntry | undefined {
  const gathered = gatheredEntry(chain, upload.id);
  const route = laterRoute(routes, upload.route);
  const parent = chain.uploads.find(({ id }) => id === upload.parent);
  if (gathered !== undefined || route === undefined || parent === undefined) return gathered;
  const { id, generation } = parent;
  const from = { ...chain, parent: { id, generation, key: addressOf(chain, parent) } };
  const child = { route: snapshot(route), plan: chain.plan && planBehind(chain.plan, upload.route) };
  for (const asset of made) {
    const entry = childOf({ ...from, asset }, child, upload.arrivedAt);
    if (entry.upload.id === upload.id) return entry;
  }
  return undefined;
}

/** Where a stage that is made anew stands. */
interface Place {
  readonly route: Route;
  /** The stage after which it comes: as its route says now, or else as it was planned. */
  readonly after: string;
  /** The planned stages that stay as they are. */
  readonly beside: readonly PlannedStage[];
  /** True for the stage, and those that were planned after it. */
  readonly isAnew: (name: string) => boolean;
}

/** Undefined if the configuration has no such stage, or the chain none after which it could come. */
function placeOf(name: string, chain: Chain, routes: readonly Route[]): Place | undefined {
  const route = laterRoute(routes, name);
  const before = stagesOf(chain, routes);
  const isAnew = (each: string): boolean => stagesTo(before, each).includes(name);
  const beside = before.filter((stage) => !isAnew(stage.route));
  const there = [chain.uploads[0]?.route, ...beside.map((stage) => stage.route)];
  const planned = before.find((stage) => stage.route === name)?.after;
  const after = [route?.after, planned].find((each) => each !== undefined && there.includes(each));
  return route && after !== undefined ? { route, after, beside, isAnew } : undefined;
}

/** Entries that are read side by side. */
const CONCURRENCY = 16;

/**
 * The chain with the assets that a stage takes if it is made anew. A large chain does not hold them. They are read from
 * the entries of their uploads, until there are more than a chain has room for.
 */
export async function withAssetsFor(
  chain: Chain,
  name: string,
  routes: readonly Route[],
  read: (uploadId: string) => Promise<Entry | undefined>,
): Promise<Chain> {
  const { route, after } = placeOf(name, chain, routes) ?? {};
  if (route === undefined) return chain;
  const cut = chain.uploads.filter((upload) => upload.route === after && upload.assetCount !== undefined);
  const found = new Map<string, readonly StoredAsset[]>();
  let left = CHAIN_UPLOADS_MAX;
  await pMap(
    cut,
    async ({ id, generation }) => {
      if (left < 0) return;
      const entry = await read(id);
      if (entry === undefined || !isTerminal(entry) || entry.generation !== generation) return;
      const taken = entry.assets.filter((asset) => matchesAsset(route, chain.first.key, asset));
      found.set(id, taken);
      left -= taken.length;
    },
    { concurrency: CONCURRENCY },
  );
  const uploads = chain.uploads.map((upload) => ({ ...upload, assets: found.get(upload.id) ?? upload.assets }));
  return found.size === 0 ? chain : { ...chain, uploads };
}
