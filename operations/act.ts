import pMap from 'p-map';
import { mediaTypeOf } from '../functions/base/media-type.ts';
import type { Chain } from '../functions/chains/chain-schema.ts';
import { isTerminal } from '../functions/ledger/entry.ts';
import { RETRIED_AT_ONCE_MAX } from '../functions/operator/retry.ts';
import { mayMatch, routeFor } from '../functions/uploads/routes.ts';
import {
  type Acted,
  type Action,
  type Asked,
  AT_ONCE_MAX,
  CHANGED,
  type Chosen,
  DONE,
  isGiven,
  isHopeless,
  type Left,
  leaving,
  type PlannedStage,
  resultsSchema,
  UNREVIEWED,
  viewOrReason,
  whyNot,
} from './actions.ts';
import { againBy, type MadeQuery, madeBy, makeAnew, stageBy } from './again.ts';
import { chainBegunBy, viewsOf } from './chains.ts';
import { type ExpectedCosts, sumOfCosts } from './cost-texts.ts';
import { expectedCosts } from './costs.ts';
import type { Deployment } from './deployment.ts';
import { find } from './find.ts';
import { endOfHold, type HoldView, holdOn, holdsOf } from './holds.ts';
import { inputRouteOf } from './job-files.ts';
import { type ListQuery, list } from './list.ts';
import { type FoundUpload, READS_MAX, readEntries } from './listing.ts';
import { type UploadView, viewOf } from './upload-view.ts';
import { sleepUntilNext } from './wait.ts';

/** Which uploads an operator means: those that words name, or those that a query lists. */
export type Selection =
  | { readonly words: readonly string[] }
  | { readonly query: ListQuery }
  | { readonly made: MadeQuery };

/** The uploads that an action would change, and those that it would not change. */
export interface Plan extends Asked, Chosen {
  /**
   * Listed, but not changed. A retry of all also skips uploads whose retry could cost money for nothing. To retry one
   * of them, name it.
   */
  readonly skipped: readonly Left[];
}

/**
 * Finds the uploads that an action would change. Changes nothing. A file that began a chain stands for the uploads of
 * the whole chain: a retry is for all that failed, and no others, and a cancellation for all that wait or run.
 * @throws {RoutesUnknownError} only with `from`.
 */
export async function plan(
  asked: Asked,
  selection: Selection,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Plan> {
  if ('query' in selection) {
    const listed = await listedFor(asked, selection.query, deployment, signal);
    return withoutForbidden({ ...asked, ...listed, left: [] }, deployment);
  }
  if ('made' in selection) {
    const { left: skipped, ...chosen } = await madeBy(selection.made, asked, deployment, signal);
    return withoutForbidden({ ...asked, ...chosen, left: [], skipped }, deployment);
  }
  const uploads = new Map<string, UploadView>();
  const stages = new Map<string, PlannedStage>();
  const left: Left[] = [];
  let isAnyQueued: boolean | undefined;
  for (const word of selection.words) {
    if (word === '') {
      left.push({ key: word, why: 'it is empty, and all keys begin so' });
      continue;
    }
    const found = await find(word, deployment, signal);
    const named = found.kind === 'upload' ? [found.upload] : found.uploads;
    if (found.kind === 'prefix' && found.isCut) {
      const why = `more than ${named.length} keys begin so. Those after ${named.at(-1)?.key} were not looked at: name longer beginnings`;
      left.push({ key: word, why });
    }
    if (named.length === 0) left.push({ key: word, why: 'there is no such key, and none begins so' });
    if (found.kind === 'prefix' && asked.action === 'cancel')
      isAnyQueued ??= Object.values(await deployment.queueDepth(signal)).some((count) => count > 0);
    const chosen = await pMap(named, (upload) => chosenBy(upload, asked, deployment, signal), {
      concurrency: READS_MAX,
    });
    for (const [index, each] of chosen.entries()) {
      for (const view of each.uploads) uploads.set(view.id, view);
      for (const stage of each.stages ?? []) stages.set(stage.id, stage);
      // Below a prefix, uploads in other states are not meant.
      const isMeant =
        found.kind === 'upload' || mayGoOn(named[index] as FoundUpload, asked, { ...deployment, isAnyQueued });
      if (isMeant) left.push(...each.left);
    }
  }
  const chosen = {
    uploads: [...uploads.values()],
    stages: asked.from === undefined ? undefined : [...stages.values()],
  };
  return withoutForbidden({ ...asked, ...chosen, left, skipped: [] }, deployment);
}

/** True if an action that leaves the upload alone has not done what it was meant for: it is not known, or it goes on. */
function mayGoOn(
  { key, entry, issue }: FoundUpload,
  { action }: Asked,
  {
    settings,
    areRoutesKnown,
    isAnyQueued,
  }: Pick<Deployment, 'settings' | 'areRoutesKnown'> & { isAnyQueued: boolean | undefined },
): boolean {
  if (issue?.kind === 'unreadable') return true;
  if (action !== 'cancel') return false;
  if (entry !== undefined) return !isTerminal(entry);
  if (!isAnyQueued || !areRoutesKnown || inputRouteOf(key, settings) !== undefined) return false;
  const { routes } = settings;
  return mayMatch(routes, key) && routeFor(routes, { key, mediaType: mediaTypeOf(undefined, key) }) !== undefined;
}

/** What an action would change, if this upload is named. */
async function chosenBy(
  upload: FoundUpload,
  asked: Asked,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  if (asked.from !== undefined) return stageBy(upload, { from: asked.from }, deployment, signal);
  if (asked.action === 'again') return againBy(upload, asked, deployment, signal);
  // What is collected again is one flow.
  const chain = asked.action === 'collect' ? undefined : await chainBegunBy(upload, deployment, signal);
  if (chain !== undefined) return chosenInChain(chain, asked, deployment, signal);
  const chosen = viewOrReason(upload, asked, deployment);
  return typeof chosen === 'string' ? leaving(upload.key, chosen) : { uploads: [chosen], left: [] };
}

async function chosenInChain(
  { first, uploads }: Chain,
  asked: Asked,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  const isRetry = asked.action === 'retry';
  const wanted = uploads.filter(({ state }) => state === (isRetry ? 'failed' : 'under way'));
  const views = await viewsOf(wanted, deployment, signal);
  // The chain hears of a change a moment after the entry.
  const meant = views.filter(({ state, endedAt }) => (isRetry ? state === 'failed' : endedAt === undefined));
  if (asked.action === 'approve') {
    const awaited = meant.filter((view) => whyNot(view, asked) === undefined);
    return awaited.length > 0 ? { uploads: awaited, left: [] } : leaving(first.key, UNREVIEWED);
  }
  if (meant.length === 0) {
    return leaving(first.key, `no upload of its chain ${isRetry ? 'has failed' : 'waits or runs'}`);
  }
  const reasons = meant.map((view) => ({ view, why: whyNot(view, asked) }));
  return {
    uploads: reasons.filter(({ why }) => why === undefined).map(({ view }) => view),
    left: reasons.flatMap(({ view, why }) => (why === undefined ? [] : [{ key: view.key, why }])),
  };
}

/**
 * Returns the listed uploads that an action applies to. A retry of all failures skips uploads that a retry cannot help,
 * cancelled ones, and replaced ones: a retry of them could cost money for nothing.
 * @internal
 */
export async function listedFor(
  asked: Asked,
  query: ListQuery,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Pick<Plan, 'uploads' | 'skipped'>> {
  const { uploads, replaced } = await list(query, deployment, signal);
  const ids = new Set(replaced);
  const reasonOf = (view: UploadView): string | undefined => {
    const why = whyNot(view, asked);
    if (why !== undefined || asked.action !== 'retry') return why;
    if (ids.has(view.id)) return 'another upload of the same key has replaced it';
    if (isHopeless(view, asked)) return 'a retry of the same upload cannot help';
    return view.failure?.code === 'cancelled' && query.code !== 'cancelled' ? 'it was cancelled' : undefined;
  };
  const skipped = uploads.flatMap((view) => {
    const why = reasonOf(view);
    return why === undefined ? [] : [{ key: view.key, why }];
  });
  return { uploads: uploads.filter((view) => reasonOf(view) === undefined), skipped };
}

/** The plan without the uploads whose route allows no other parameters. The function checks that again. */
function withoutForbidden(whole: Plan, { settings, areRoutesKnown }: Deployment): Plan {
  if (!isGiven(whole) || !areRoutesKnown) return whole;
  const isAllowed = (view: UploadView): boolean =>
    view.stage === undefined && routeFor(settings.routes, view)?.overrides === true;
  const forbidden = whole.uploads.filter((view) => !isAllowed(view));
  const why = 'its route does not allow other parameters, or another template';
  const left = [...whole.left, ...forbidden.map(({ key }) => ({ key, why }))];
  return { ...whole, uploads: whole.uploads.filter(isAllowed), left };
}

/** Flows that a retry would not make before a hold ends. */
export interface HeldFlows {
  readonly hold: HoldView;
  /** Number of these flows. Those of later stages are not counted. */
  readonly count: number;
  /** What ends the hold, in a sentence with the command. */
  readonly ending: string;
}

/** The actions that pay for flows. */
const PAID: readonly Action[] = ['retry', 'again', 'approve'];

/** The flows that a retry would begin, with those of the stages that come after them, and what they cost. */
export function costsOf(
  { action, uploads, stages = [], from }: Pick<Plan, 'action' | 'uploads' | 'stages' | 'from'>,
  deployment: Deployment,
): ExpectedCosts {
  if (!PAID.includes(action)) return sumOfCosts([]);
  const { routes } = deployment.settings;
  return expectedCosts(routes, [
    ...uploads.map((view) => {
      const { id, key } = view.stage?.first ?? view;
      return { route: routeOfRetry(view, deployment), firstKey: key, chain: id };
    }),
    ...stages.flatMap(({ id, key, begins }) => begins.map(() => ({ route: from, firstKey: key, chain: id }))),
  ]);
}

/** What holds the flows that a retry would make. */
export async function heldFlows(
  { action, uploads, stages = [], from }: Pick<Plan, 'action' | 'uploads' | 'stages' | 'from'>,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly HeldFlows[]> {
  if (!PAID.includes(action)) return [];
  const holds = await holdsOf(deployment, signal);
  const anew = stages.flatMap(({ begins }) => begins.map(() => from ?? ''));
  const routes = [...uploads.map((view) => routeOfRetry(view, deployment)), ...anew];
  const late = isBulk({ uploads, stages });
  const held = Map.groupBy(
    routes.flatMap((route) => holdOn(holds, route, { late }) ?? []),
    (hold) => hold,
  );
  return [...held].map(([hold, { length: count }]) => ({ hold, count, ending: endOfHold(hold, deployment) }));
}

/** True if a retry is one of many: live files go first then. It may take several invocations. */
const isBulk = ({ uploads, stages = [] }: Pick<Plan, 'uploads' | 'stages'>): boolean =>
  uploads.length + stages.reduce((sum, { begins }) => sum + begins.length, 0) > RETRIED_AT_ONCE_MAX;

/** The name of the route that a retry would take. A file that has ended takes that of today. @internal */
export function routeOfRetry(view: UploadView, { settings, areRoutesKnown }: Deployment): string {
  const isRouted = view.endedAt !== undefined && view.stage === undefined && areRoutesKnown;
  return (isRouted ? routeFor(settings.routes, view)?.name : undefined) ?? view.route;
}

/**
 * Has the collecting function change the uploads of a plan.
 * @param onProgress called with the number of uploads that are done.
 */
export async function act(
  { action, parameters, template, from: stage, uploads, stages = [] }: Omit<Plan, 'left' | 'skipped'>,
  deployment: Deployment,
  signal: AbortSignal,
  onProgress: (count: number) => void = () => {},
): Promise<readonly Acted[]> {
  const late = action !== 'approve' && PAID.includes(action) && isBulk({ uploads, stages }) ? true : undefined;
  if (stage !== undefined) return makeAnew({ from: stage, stages, late }, deployment, signal, onProgress);
  const acted: Acted[] = [];
  for (let from = 0; from < uploads.length; from += AT_ONCE_MAX) {
    const some = uploads.slice(from, from + AT_ONCE_MAX);
    const changed = PAID.includes(action) ? await changedSince(some, deployment, signal) : new Set<string>();
    const asked = some.map(({ id }) => id).filter((id) => !changed.has(id));
    const answer =
      asked.length === 0
        ? []
        : resultsSchema.parse(
            await deployment.collecting.invoke({ [action]: asked, parameters, template, late }, signal),
          );
    for (const { key, id } of some) {
      const otherwise = { result: changed.has(id) ? CHANGED : 'unknown', isAborted: undefined, isInDoubt: undefined };
      const { result, isAborted, isInDoubt } = answer.find(({ upload }) => upload === id) ?? otherwise;
      acted.push({ id, key, result, isDone: DONE.includes(result), isAborted, isInDoubt });
    }
    onProgress(acted.length);
  }
  return acted;
}

/** The uploads that are no more what was planned: another operator may have agreed to pay for the same. */
async function changedSince(
  planned: readonly UploadView[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const ids = planned.map(({ id }) => id);
  const entries = await readEntries(ids, deployment, signal);
  return new Set(ids.filter((_, at) => (entries[at]?.entry?.generation ?? 0) > (planned[at]?.generation ?? 0)));
}

/** Uploads whose retry is followed, and for how long at most, in milliseconds. */
const TRIED_MAX = 50;
const TRIED_WITHIN_MS = 15_000;

/**
 * Follows retried uploads until the service has answered for each, or for a quarter of a minute: a large file takes
 * longer to be sent.
 * @returns what came of the first {@link TRIED_MAX}.
 */
export async function tried(
  ids: readonly string[],
  deployment: Deployment,
  signal: AbortSignal,
): Promise<readonly (UploadView | undefined)[]> {
  const endsAt = deployment.clock.now() + TRIED_WITHIN_MS;
  for (;;) {
    const entries = await readEntries(ids.slice(0, TRIED_MAX), deployment, signal);
    const seen = entries.map(({ entry }) => entry && viewOf(entry, deployment.settings));
    const isUnderWay = (view: UploadView | undefined): boolean =>
      view?.state === 'claimed' || view?.wait?.reason === 'retried' || view?.wait?.reason === 'stage';
    if (!seen.some(isUnderWay) || deployment.clock.now() > endsAt) return seen;
    await sleepUntilNext(signal);
  }
}
