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

export const isSuccess = (state: string): boolean => isTerminalState(state) && TERMINAL_STATES[state].isSuccess;
