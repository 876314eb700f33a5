/**
 * The states in which an upload has ended. Whatever lists, counts or names ended uploads reads this table. A state that
 * is added here also needs its members in `entry-schema.ts`.
 */
export const TERMINAL_STATES = {
  succeeded: { isSuccess: true, word: 'Succeeded', metric: 'FlowsSucceeded', detailType: 'Flow Succeeded' },
  failed: { isSuccess: false, word: 'Failed', metric: 'UploadsFailed', detailType: 'Flow Failed' },
} as const;

export type TerminalState = keyof typeof TERMINAL_STATES;

/** In the order in which they are shown. */
export const TERMINAL_STATE_NAMES = Object.keys(TERMINAL_STATES) as readonly TerminalState[];

export const isTerminalState = (state: string): state is TerminalState => Object.hasOwn(TERMINAL_STATES, state);

/** The code of a failure because a newer file took the upload's place. */
export const SUPERSEDED = 'superseded';

/** A state as a person sees it. */
export type ShownState = 'claimed' | 'waiting' | 'undecided' | 'running' | TerminalState | 'replaced';

/**
 * The state of an upload as it is shown: that of the ledger, with two kinds apart. `undecided` waits for the operator's
 * decision. `replaced` has failed because a newer file took its place: nothing is wrong, and nothing is to be done.
 */
export function shownState<State extends string>({
  state,
  wait,
  failure,
}: {
  readonly state: State;
  readonly wait?: { readonly reason: string } | undefined;
  readonly failure?: { readonly code: string } | undefined;
}): State | 'undecided' | 'replaced' {
  if (wait?.reason === 'undecided') return 'undecided';
  return failure?.code === SUPERSEDED ? 'replaced' : state;
}

/** True if each of these failures gave way to a newer file. False without failures. */
export const isAllReplaced = (failures: readonly { readonly code: string }[]): boolean =>
  failures.length > 0 && failures.every(({ code }) => code === SUPERSEDED);

export const isSuccess = (state: string): boolean => isTerminalState(state) && TERMINAL_STATES[state].isSuccess;
