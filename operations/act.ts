import { isDeepStrictEqual } from 'node:util';
import pMap from 'p-map';
import * as z from 'zod/mini';
import type { Json } from '../functions/base/json.ts';
import { type ExpectedCosts, sumOfCosts } from '../functions/base/money.ts';
import { madeAnew, withAssetsFor } from '../functions/chains/chain.ts';
import type { Chain } from '../functions/chains/chain-schema.ts';
import { areResultsGone } from '../functions/flow-service/service-description.ts';
import { isTerminal } from '../functions/ledger/entry.ts';
import { TERMINAL_STATE_NAMES } from '../functions/ledger/terminal-states.ts';
import { RETRIED_AT_ONCE_MAX } from '../functions/operator/operator.ts';
import { isDenied } from '../functions/s3/errors.ts';
import { headObject } from '../functions/s3/objects.ts';
import { expectedCosts, laterRoute, planAfter } from '../functions/uploads/chain-routes.ts';
import type { Route } from '../functions/uploads/route.ts';
import { revisionOf } from '../functions/uploads/route-snapshot.ts';
import { routeFor } from '../functions/uploads/routes.ts';
import { type Stage, secondDigits } from '../functions/uploads/upload.ts';
import { chainBegunBy, readChain, viewsOf } from './chains.ts';
import type { Deployment } from './deployment.ts';
import { RoutesUnknownError } from './explain.ts';
import { find } from './find.ts';
import { endOfHold, type HoldView, holdOn, holdsOf } from './holds.ts';
import { type ListQuery, list } from './list.ts';
import { type FoundUpload, READS_MAX, readEntries, readEntry } from './listing.ts';
import { type UploadView, viewOf } from './upload-view.ts';
import { sleepUntilNext } from './wait.ts';

/** Uploads that one invocation of the collecting function is asked to change. */
export const AT_ONCE_MAX = 200;

/** What the collecting function can do with single uploads. */
export type Action = 'retry' | 'again' | 'approve' | 'cancel' | 'collect';

/** The states that each action is for. The function answers for all others that there is nothing to do. */
const STATES: Readonly<Record<Action, readonly UploadView['state'][]>> = {
  retry: ['failed', 'waiting'],
  again: TERMINAL_STATE_NAMES,
  approve: ['waiting'],
  cancel: ['waiting', 'running'],
  collect: TERMINAL_STATE_NAMES,
};

/** Which uploads an operator means: those that words name, or those that a query lists. */
export type Selection =
  | { readonly words: readonly string[] }
  | { readonly query: ListQuery }
  | { readonly made: MadeQuery };

/** Files that succeeded, and are still in the inbox. Times in milliseconds since the epoch. */
export interface MadeQuery {
  /** The name of their route. */
  readonly route: string;
  /** Only files that were put before, and since. */
  readonly before?: number | undefined;
  readonly since?: number | undefined;
}

/** What an operator wants to be done. */
export interface Asked {
  readonly action: Action;
  /**
   * Only for a retry and for `again`: JSON in place of the parameters of the route, and another template, where the route
   * allows it. Only what has ended takes it.
   */
  readonly parameters?: Json | undefined;
  readonly template?: string | undefined;
  /**
   * Only for `again` with named files: the route of a stage. In their chains this stage is made anew, and those after it.
   */
  readonly from?: string | undefined;
  /** Only for `again`: leaves out files of which nothing would be made otherwise than before. */
  readonly onlyIfChanged?: boolean | undefined;
}

/** A stage that would be made anew in the chain of a file. */
export interface PlannedStage {
  /** The first file of the chain. */
  readonly id: string;
  readonly key: string;
  /** The uploads that this begins. Each is a flow. The stages after this one begin more. */
  readonly begins: readonly { readonly id: string; readonly key: string }[];
}

/** An upload that an action leaves alone, and the reason. */
export interface Left {
  readonly key: string;
  readonly why: string;
}

/** The uploads that an action would change, and those that it would not change. */
export interface Plan extends Asked {
  readonly uploads: readonly UploadView[];
  /** With `from`, this in place of uploads. */
  readonly stages?: readonly PlannedStage[] | undefined;
  /** Named, but in no state that the action is for, or unknown. */
  readonly left: readonly Left[];
  /**
   * Listed, but not changed. A retry of all also skips uploads whose retry could cost money for nothing. To retry one
   * of them, name it.
   */
  readonly skipped: readonly Left[];
}

/**
 * What the collecting function answers for each upload.
 * @internal
 */
export const resultsSchema = z.array(
  z.object({
    upload: z.string(),
    result: z.string(),
    isAborted: z.optional(z.boolean()),
    isInDoubt: z.optional(z.boolean()),
    why: z.optional(z.string()),
  }),
);

/** What became of one upload. */
export interface Acted {
  readonly id: string;
  readonly key: string;
  /** In the words of the collecting function: `resubmitted`, `cancelled`, `begun`, or why nothing was done. */
  readonly result: string;
  /** True if something was done. */
  readonly isDone: boolean;
  /** Of a cancelled upload with a flow: true if the service has stopped the flow. */
  readonly isAborted?: boolean | undefined;
  /** True if a flow may exist that is not known. */
  readonly isInDoubt?: boolean | undefined;
}

const DONE: readonly string[] = ['resubmitted', 'cancelled', 'begun', 'approved'];

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
    const { uploads, left: skipped } = await madeBy(selection.made, asked, deployment, signal);
    return withoutForbidden({ ...asked, uploads, left: [], skipped }, deployment);
  }
  const uploads = new Map<string, UploadView>();
  const stages = new Map<string, PlannedStage>();
  const left: Left[] = [];
  for (const word of selection.words) {
    const found = await find(word, deployment, signal);
    const named = found.kind === 'upload' ? [found.upload] : found.uploads;
    if (named.length === 0) left.push({ key: word, why: 'there is no such key, and none begins so' });
    const chosen = await pMap(named, (upload) => chosenBy(upload, asked, deployment, signal), {
      concurrency: READS_MAX,
    });
    for (const each of chosen) {
      for (const view of each.uploads) uploads.set(view.id, view);
      for (const stage of each.stages ?? []) stages.set(stage.id, stage);
      // Below a prefix, uploads in other states are not meant.
      if (found.kind === 'upload') left.push(...each.left);
    }
  }
  const chosen = {
    uploads: [...uploads.values()],
    stages: asked.from === undefined ? undefined : [...stages.values()],
  };
  return withoutForbidden({ ...asked, ...chosen, left, skipped: [] }, deployment);
}

type Chosen = Pick<Plan, 'uploads' | 'stages' | 'left'>;

const leaving = (key: string, why: string): Chosen => ({ uploads: [], left: [{ key, why }] });

/** What an action would change, if this upload is named. */
async function chosenBy(
  upload: FoundUpload,
  asked: Asked,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  if (asked.from !== undefined) return stageBy(upload, asked.from, deployment, signal);
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
 * The stage that would be made anew in the chain of a file.
 * @throws {RoutesUnknownError}
 */
async function stageBy(
  { id, key, entry, issue }: FoundUpload,
  from: string,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  const { settings, areRoutesKnown, clock } = deployment;
  if (!areRoutesKnown) {
    throw new RoutesUnknownError(
      'The routes of this deployment do not fit into its environment. Its first tick keeps them in the ledger, and there ' +
        'was none since the deployment, so it is not known what --from would begin. Try again in a minute.',
    );
  }
  if (entry === undefined) return leaving(key, issue?.message ?? 'it is unknown');
  const { stage } = entry.upload;
  if (stage !== undefined) return leaving(key, laterOf(stage));
  if (!isTerminal(entry)) return leaving(key, `it is ${entry.state}, and nothing of its chain has begun`);
  const chain = await readChain(id, deployment, signal);
  if (chain === undefined) return leaving(key, 'it has no chain: its route had no later stage when it ended');
  const firstRoute = chain.uploads[0]?.route;
  if (from === firstRoute) return { uploads: [], stages: [{ id, key, begins: [{ id, key }] }], left: [] };
  const read = async (upload: string) => (await readEntry(upload, deployment, signal)).entry;
  const whole = await withAssetsFor(chain, from, settings.routes, read);
  const anew = madeAnew(whole, from, settings.routes, clock.now());
  if (anew === undefined) {
    const names = settings.routes.map(({ name }) => name);
    const known = settings.routes.filter(
      ({ name }) => name === firstRoute || madeAnew(chain, name, settings.routes, clock.now()) !== undefined,
    );
    const stages = known.map(({ name }) => name).join(', ') || 'not configured any more';
    return leaving(
      key,
      `${names.includes(from) ? 'its chain has' : 'there is'} no stage ${from}. Its stages: ${stages}`,
    );
  }
  if (anew.dropped.some(({ state }) => state === 'under way')) {
    return leaving(key, `an upload of the stage ${from}, or of a stage after it, is under way`);
  }
  if (anew.begins.length === 0) return leaving(key, whyNothing(anew.chain, from, chain.withheld));
  const begins = anew.begins.map(({ upload }) => ({ id: upload.id, key: upload.key }));
  return { uploads: [], stages: [{ id, key, begins }], left: [] };
}

const laterOf = ({ first: { key } }: Stage): string => `it belongs to the chain of ${key}: name that file`;

/** A file that would be made anew, with its chain. */
async function againBy(
  upload: FoundUpload,
  asked: Asked,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  const view = viewOrReason(upload, asked, deployment);
  const isCurrent = upload.current !== undefined;
  const why = typeof view === 'string' ? view : await whyNotAgain(view, { ...asked, isCurrent }, deployment, signal);
  return typeof view === 'string' || why !== undefined ? leaving(upload.key, why ?? '') : { uploads: [view], left: [] };
}

/**
 * Why a file that has ended is not made anew. Undefined if it is.
 * @param isCurrent true if the file was seen at its key. Then it need not be looked for.
 */
async function whyNotAgain(
  view: UploadView,
  { onlyIfChanged, isCurrent }: Asked & { readonly isCurrent: boolean },
  deployment: Deployment,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { settings, areRoutesKnown } = deployment;
  if (view.stage !== undefined) return `${laterOf(view.stage)}, and this stage with --from ${view.route}`;
  const route = routeFor(settings.routes, view);
  if (areRoutesKnown && route === undefined) return 'no route takes it any more';
  if (!isCurrent && !(await isThere(view, deployment, signal)))
    return 'the file is gone from the inbox, and its results stay';
  const chain = await readChain(view.id, deployment, signal);
  if (chain?.uploads.some(({ state }) => state === 'under way')) return 'an upload of its chain is under way';
  if (onlyIfChanged !== true || route === undefined) return undefined;
  const isSame = isMadeAlike({ view, route, chain }, settings.routes);
  return isSame ? 'its routes would make the same' : undefined;
}

/** True if the file is there, in the version that was sent. Also true if S3 refuses to tell. */
async function isThere(
  { bucket, key, versionId, etag }: UploadView,
  { s3, inbox }: Deployment,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    if (versionId === undefined) return (await inbox.current(bucket, key, signal))?.etag === etag;
    return (await headObject(s3, { Bucket: bucket, Key: key, VersionId: versionId }, signal)) !== undefined;
  } catch (error) {
    signal.throwIfAborted();
    if (isDenied(error)) return true;
    throw error;
  }
}

/** True if the present routes say of a file, and of all that was made from it, what they said then. */
function isMadeAlike(
  { view, route, chain }: { readonly view: UploadView; readonly route: Route; readonly chain: Chain | undefined },
  routes: readonly Route[],
): boolean {
  const hashOf = (name: string): string | undefined => {
    const later = laterRoute(routes, name);
    return later && revisionOf(later).hash;
  };
  const plan = planAfter(routes, route.name);
  const before = chain?.plan ?? [];
  const [, ...later] = chain?.uploads ?? [];
  return (
    view.revision?.hash === revisionOf(route).hash &&
    plan.length === before.length &&
    plan.every((stage) => before.some((each) => isDeepStrictEqual(each, stage))) &&
    later.every(({ route: name, sent }) => sent?.revision !== undefined && sent.revision.hash === hashOf(name))
  );
}

/** The files of a route that succeeded, and that are what is in the inbox now. The ledger lists files by their date. */
async function madeBy(
  { route, before, since = 0 }: MadeQuery,
  asked: Asked,
  deployment: Deployment,
  signal: AbortSignal,
): Promise<Chosen> {
  const { inbox, ledger } = deployment;
  const end = before === undefined ? undefined : secondDigits(before);
  const ids: string[] = [];
  for await (const { entries } of ledger.entryPages(secondDigits(since), signal)) {
    const wanted = entries.filter(({ id }) => end === undefined || id < end);
    ids.push(...wanted.map(({ id }) => id));
    if (wanted.length < entries.length) break;
  }
  const chosen = await pMap(
    ids,
    async (id): Promise<Chosen> => {
      const { entry, issue } = await readEntry(id, deployment, signal);
      if (entry === undefined) return leaving(id, issue.message);
      const isMeant = entry.route.name === route && entry.state === 'succeeded' && entry.upload.stage === undefined;
      if (!isMeant) return { uploads: [], left: [] };
      const { key, bucket } = entry.upload;
      const current = await inbox.current(bucket, key, signal);
      if (current?.id !== id) return leaving(key, 'another file is at its key, or none is');
      return againBy({ id, key, entry, current }, asked, deployment, signal);
    },
    { concurrency: READS_MAX },
  );
  return { uploads: chosen.flatMap(({ uploads }) => uploads), left: chosen.flatMap(({ left }) => left) };
}

/** Why a stage would not begin. */
function whyNothing({ withheld, endedAt }: Chain, from: string, before: Chain['withheld']): string {
  const why = [...withheld, ...before].find(({ route }) => route === from)?.why;
  if (why !== undefined) return `the stage ${from} would be withheld. ${why}`;
  if (endedAt === undefined) return `the stage before ${from} has not ended`;
  return `no asset of the stage before meets the conditions of ${from}`;
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

/** True if something is given in place of what the route says. */
const isGiven = ({ parameters, template }: Asked): boolean => parameters !== undefined || template !== undefined;

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

/**
 * True if a retry of the same upload ends as before. Other parameters take the place of those that could not be used.
 * @internal
 */
export const isHopeless = ({ failure }: UploadView, asked: Asked): boolean =>
  failure?.canRetryHelp === false && !(failure.code === 'invalid-override' && isGiven(asked));

/**
 * The actions that are for an upload in this state, and can help it.
 * @internal
 */
export const actionsFor = (view: UploadView, { settings, clock }: Pick<Deployment, 'settings' | 'clock'>) =>
  (['approve', 'retry', 'again', 'cancel', 'collect'] as const).filter((action) => {
    // A later stage is made anew from the chain of its file.
    if (action === 'again' && view.stage !== undefined) return false;
    if (whyNot(view, { action }) !== undefined || (action === 'retry' && isHopeless(view, { action }))) return false;
    const endedAt = Date.parse(view.endedAt ?? '');
    return action !== 'collect' || !areResultsGone(settings.service, { endedAt, now: clock.now() });
  });

/**
 * Returns the upload if the action is for it, or else the reason why it is left alone.
 * @internal
 */
export function viewOrReason(
  { entry, issue, current }: FoundUpload,
  asked: Asked,
  { settings }: Deployment,
): UploadView | string {
  if (entry === undefined && current !== undefined && issue?.kind === 'absent') {
    return 'it waits in the queue, or no route takes it';
  }
  if (entry === undefined) return issue?.message ?? 'it is unknown';
  const view = viewOf(entry, settings);
  return whyNot(view, asked) ?? view;
}

const UNREVIEWED = 'nothing of it waits to be approved';

/** Why an action is not for an upload in its present state. Undefined if it is. */
function whyNot({ state, endedAt, flow, isFlowShared, wait }: UploadView, asked: Asked): string | undefined {
  const { action } = asked;
  if (!STATES[action].includes(state)) {
    if (state === 'claimed') return 'it is being sent at this moment';
    return endedAt === undefined ? `it is ${state}` : `it has ${state}`;
  }
  const isReviewed = wait?.reason === 'review';
  if (action === 'approve') return isReviewed ? undefined : UNREVIEWED;
  if (action === 'retry' && isReviewed) return 'it waits to be approved';
  if (isGiven(asked) && state === 'waiting') {
    return 'it waits, and a flow of it may exist with its present parameters: cancel it first';
  }
  if (action !== 'collect') return undefined;
  if (flow === undefined) return 'it never had a flow';
  return isFlowShared ? 'its flow belongs to another upload too' : undefined;
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
    const answer = resultsSchema.parse(
      await deployment.collecting.invoke({ [action]: some.map(({ id }) => id), parameters, template, late }, signal),
    );
    for (const { key, id } of some) {
      const { result = 'unknown', isAborted, isInDoubt } = answer.find(({ upload }) => upload === id) ?? {};
      acted.push({ id, key, result, isDone: DONE.includes(result), isAborted, isInDoubt });
    }
    onProgress(acted.length);
  }
  return acted;
}

/**
 * Has a stage of chains made anew. A chain may begin thousands of flows, so each is asked for alone.
 * @returns what became of the uploads of the stage; or of the first file, if nothing was begun.
 */
async function makeAnew(
  {
    from,
    stages,
    late,
  }: { readonly from: string; readonly stages: readonly PlannedStage[]; readonly late?: true | undefined },
  { collecting }: Deployment,
  signal: AbortSignal,
  onProgress: (count: number) => void,
): Promise<readonly Acted[]> {
  const acted: Acted[] = [];
  for (const { id: first, key, begins } of stages) {
    // The chain may have changed since the plan. Then the id of an upload stands for its key.
    const keys = new Map([[first, key], ...begins.map((each) => [each.id, each.key] as const)]);
    const ofChain = new Map<string, Acted>();
    for (let before = 0; ; ) {
      const answer = resultsSchema.parse(await collecting.invoke({ again: [first], from, late }, signal));
      for (const { upload: id, result } of answer) {
        ofChain.set(id, { id, key: keys.get(id) ?? id, result, isDone: DONE.includes(result) });
      }
      const done = ofChain
        .values()
        .filter(({ isDone }) => isDone)
        .toArray().length;
      onProgress(acted.length + done);
      // One request begins so many. The next one begins those that are left.
      if (done === before || !answer.some(({ result }) => result === 'not begun yet')) break;
      before = done;
    }
    acted.push(...ofChain.values());
    onProgress(acted.length);
  }
  return acted;
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
