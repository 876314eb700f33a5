import pMap from 'p-map';
import * as z from 'zod/mini';
import type { Json } from '../functions/base/json.ts';
import { type Entry, isTerminal, isUntold, runningMarkerOf, type TerminalEntry } from '../functions/ledger/entry.ts';
import { TERMINAL_STATE_NAMES } from '../functions/ledger/terminal-states.ts';
import { Receipts } from '../functions/publish/receipts.ts';
import { routeFor } from '../functions/uploads/routes.ts';
import type { Deployment } from './deployment.ts';
import { type FoundUpload, find } from './find.ts';
import { type ListQuery, list } from './list.ts';
import { READS_MAX, readEntries } from './listing.ts';
import { type UploadView, viewOf } from './upload-view.ts';
import { sleepUntilNext } from './wait.ts';

/** Uploads that one invocation of the collecting function is asked to change. */
const AT_ONCE_MAX = 200;

/** What the collecting function can do with single uploads. */
export type Action = 'retry' | 'cancel' | 'collect';

/** The states that each action is for. The function answers for all others that there is nothing to do. */
const STATES: Readonly<Record<Action, readonly UploadView['state'][]>> = {
  retry: ['failed', 'waiting'],
  cancel: ['waiting', 'running'],
  collect: TERMINAL_STATE_NAMES,
};

/** Which uploads an operator means: those that words name, or those that a query lists. */
export type Selection = { readonly words: readonly string[] } | { readonly query: ListQuery };

/** What an operator wants to be done. */
export interface Asked {
  readonly action: Action;
  /**
   * Only for a retry: JSON in place of the parameters of the route, where the route allows it. Only failures take it.
   */
  readonly parameters?: Json | undefined;
}

/** An upload that an action leaves alone, and the reason. */
export interface Left {
  readonly key: string;
  readonly why: string;
}

/** The uploads that an action would change, and those that it would not change. */
export interface Plan extends Asked {
  readonly uploads: readonly UploadView[];
  /** Named, but in no state that the action is for, or unknown. */
  readonly left: readonly Left[];
  /**
   * Listed, but not changed. A retry of all also skips uploads whose retry could cost money for nothing. To retry one
   * of them, name it.
   */
  readonly skipped: readonly Left[];
}

const resultsSchema = z.array(
  z.object({
    upload: z.string(),
    result: z.string(),
    isAborted: z.optional(z.boolean()),
    isInDoubt: z.optional(z.boolean()),
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

const DONE: readonly string[] = ['resubmitted', 'cancelled', 'begun'];

/** Finds the uploads that an action would change. Changes nothing. */
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
  const uploads = new Map<string, UploadView>();
  const left: { key: string; why: string }[] = [];
  for (const word of selection.words) {
    const found = await find(word, deployment, signal);
    const named = found.kind === 'upload' ? [found.upload] : found.uploads;
    if (named.length === 0) left.push({ key: word, why: 'there is no such key, and none begins so' });
    for (const upload of named) {
      const chosen = viewOrReason(upload, asked, deployment);
      if (typeof chosen !== 'string') uploads.set(chosen.id, chosen);
      // Below a prefix, uploads in other states are not meant.
      else if (found.kind === 'upload') left.push({ key: upload.key, why: chosen });
    }
  }
  return withoutForbidden({ ...asked, uploads: [...uploads.values()], left, skipped: [] }, deployment);
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
  if (whole.parameters === undefined || !areRoutesKnown) return whole;
  const isAllowed = (view: UploadView): boolean => routeFor(settings.routes, view)?.overrides === true;
  const forbidden = whole.uploads.filter((view) => !isAllowed(view));
  const why = 'its route does not allow other parameters';
  const left = [...whole.left, ...forbidden.map(({ key }) => ({ key, why }))];
  return { ...whole, uploads: whole.uploads.filter(isAllowed), left };
}

/**
 * True if a retry of the same upload ends as before. Other parameters take the place of those that could not be used.
 * @internal
 */
export const isHopeless = ({ failure }: UploadView, { parameters }: Asked): boolean =>
  failure?.canRetryHelp === false && !(failure.code === 'invalid-override' && parameters !== undefined);

/**
 * The actions that are for an upload in this state, and can help it.
 * @internal
 */
export const actionsFor = (view: UploadView): readonly Action[] =>
  (['retry', 'cancel', 'collect'] as const).filter(
    (action) => whyNot(view, { action }) === undefined && !(action === 'retry' && isHopeless(view, { action })),
  );

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

/** Why an action is not for an upload in its present state. Undefined if it is. */
function whyNot({ state, endedAt, flow, isFlowShared }: UploadView, { action, parameters }: Asked): string | undefined {
  if (!STATES[action].includes(state)) {
    if (state === 'claimed') return 'it is being sent at this moment';
    return endedAt === undefined ? `it is ${state}` : `it has ${state}`;
  }
  if (parameters !== undefined && state === 'waiting') {
    return 'it waits, and a flow of it may exist with its present parameters: cancel it first';
  }
  if (action !== 'collect') return undefined;
  if (flow === undefined) return 'it never had a flow';
  return isFlowShared ? 'its flow belongs to another upload too' : undefined;
}

/**
 * Has the collecting function change the uploads of a plan.
 * @param onProgress called with the number of uploads that are done.
 */
export async function act(
  { action, parameters, uploads }: Omit<Plan, 'left' | 'skipped'>,
  deployment: Deployment,
  signal: AbortSignal,
  onProgress: (count: number) => void = () => {},
): Promise<readonly Acted[]> {
  const acted: Acted[] = [];
  for (let from = 0; from < uploads.length; from += AT_ONCE_MAX) {
    const some = uploads.slice(from, from + AT_ONCE_MAX);
    const answer = resultsSchema.parse(
      await deployment.collecting.invoke({ [action]: some.map(({ id }) => id), parameters }, signal),
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
 * Follows uploads until each one waits for the operator, or has ended with its receipt out.
 * @param onProgress called whenever the entries were read.
 * @returns their last state, in the order of the ids. Undefined for an upload without an entry.
 */
export async function follow(
  ids: readonly string[],
  deployment: Deployment,
  signal: AbortSignal,
  onProgress: (seen: readonly (UploadView | undefined)[]) => void = () => {},
): Promise<readonly (UploadView | undefined)[]> {
  const ends = new PublishedEnds(deployment);
  const isAtRest = async (entry: Entry | undefined): Promise<boolean> => {
    if (entry === undefined) return false;
    return isTerminal(entry) ? ends.has(entry, signal) : needsOperator(entry);
  };
  for (;;) {
    const entries = (await readEntries(ids, deployment, signal)).map(({ entry }) => entry);
    const seen = entries.map((entry) => entry && viewOf(entry, deployment.settings));
    onProgress(seen);
    const areAtRest = await pMap(entries, isAtRest, { concurrency: READS_MAX });
    if (!areAtRest.includes(false)) return seen;
    await sleepUntilNext(signal);
  }
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
      view?.state === 'claimed' || view?.wait?.reason === 'retried';
    if (!seen.some(isUnderWay) || deployment.clock.now() > endsAt) return seen;
    await sleepUntilNext(signal);
  }
}

/** A held upload and one without a valid token go on only when the operator acts. */
const needsOperator = (entry: Entry): boolean =>
  entry.state === 'waiting' && ['held', 'unauthorised', 'misaddressed'].includes(entry.reason);

/** Ends that were published. An upload ends a moment before its receipt is put. */
class PublishedEnds {
  /** They are not asked for again. */
  readonly #known = new Set<string>();
  readonly #ledger: Deployment['ledger'];
  readonly #receipts: Receipts;

  constructor({ s3, settings, ledger }: Deployment) {
    this.#ledger = ledger;
    this.#receipts = new Receipts(s3, settings);
  }

  async has(end: TerminalEntry, signal: AbortSignal): Promise<boolean> {
    const key = `${end.upload.id} ${end.generation} ${end.endedAt}`;
    if (!this.#known.has(key) && (await this.#isPublished(end, signal))) this.#known.add(key);
    return this.#known.has(key);
  }

  /**
   * The receipt of a newer version of the file may hide that of an end. Then a failure is known to be published by its
   * entry, and a success by the absence of its running marker.
   */
  async #isPublished(end: TerminalEntry, signal: AbortSignal): Promise<boolean> {
    if (await this.#receipts.isPublished(end, signal)) return true;
    if (end.state === 'failed') return !isUntold(end);
    return (
      end.flow === undefined || !(await this.#ledger.hasRunningMarker(runningMarkerOf(end.upload, end.flow), signal))
    );
  }
}
