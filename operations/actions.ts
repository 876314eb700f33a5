import * as z from 'zod/mini';
import type { Json } from '../functions/base/json.ts';
import { TERMINAL_STATE_NAMES } from '../functions/ledger/terminal-states.ts';
import type { Deployment } from './deployment.ts';
import type { FoundUpload } from './listing.ts';
import { type UploadView, viewOf } from './upload-view.ts';

/*
 * What the collecting function can do with single uploads, which uploads that is for, and what it answers.
 */

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
   * Only for `again`: the route of a stage. In the chains of the named files this stage is made anew, and those after it.
   * Of the files of a route, it begins in the chains that do not have it.
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
  /** True if the chain has no upload of this stage yet. */
  readonly isAdded?: boolean;
  /** The generation of the chain by then: 0 if there was none. */
  readonly generation: number;
  /** The uploads that this begins. Each is a flow. The stages after this one begin more. */
  readonly begins: readonly { readonly id: string; readonly key: string }[];
}

/** An upload that an action leaves alone, and the reason. */
export interface Left {
  readonly key: string;
  readonly why: string;
}

/** What an action would change, and what it leaves alone. */
export interface Chosen {
  readonly uploads: readonly UploadView[];
  /** With `from`, this in place of uploads. */
  readonly stages?: readonly PlannedStage[] | undefined;
  /** Named, but in no state that the action is for, or unknown. */
  readonly left: readonly Left[];
}

export const leaving = (key: string, why: string): Chosen => ({ uploads: [], left: [{ key, why }] });

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
    const { keptHours = Number.POSITIVE_INFINITY } = settings.service.outputs;
    const areResultsGone = clock.now() - endedAt > keptHours * 60 * 60_000;
    return action !== 'collect' || !areResultsGone;
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

export const UNREVIEWED = 'nothing of it waits to be approved';

/** Why an action is not for an upload in its present state. Undefined if it is. */
export function whyNot({ state, endedAt, flow, isFlowShared, wait }: UploadView, asked: Asked): string | undefined {
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

/** True if something is given in place of what the route says. */
export const isGiven = ({ parameters, template }: Asked): boolean => parameters !== undefined || template !== undefined;

/**
 * True if a retry of the same upload ends as before. Other parameters take the place of those that could not be used.
 * @internal
 */
export const isHopeless = ({ failure }: UploadView, asked: Asked): boolean =>
  failure?.canRetryHelp === false && !(failure.code === 'invalid-override' && isGiven(asked));

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

/** What became of an upload whose plan is out of date: another operator may have agreed to pay for the same. */
export const CHANGED = 'somebody else has sent it again since then';

export const DONE: readonly string[] = ['resubmitted', 'cancelled', 'begun', 'approved'];
