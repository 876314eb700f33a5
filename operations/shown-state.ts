import { SUPERSEDED, type TerminalState } from '../functions/ledger/terminal-states.ts';
import type { WaitEnding, WaitReason } from '../functions/ledger/waits.ts';
import { comparable } from '../functions/uploads/job-keys.ts';

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

const NEEDS_SOMEBODY: Readonly<Record<WaitEnding, boolean>> = {
  ...{ decide: true, token: true, address: true, inputs: true, look: true },
  ...{ retry: false, hold: false, nothing: false },
};

/** True if a wait ends only when the operator or the uploader acts. */
export const needsSomebody = (ending: WaitEnding): boolean => NEEDS_SOMEBODY[ending];

/** True if a wait has no time at which it is over: that of a hold, and of an approval without a limit. */
export const isUntimed = ({ ending, until }: { readonly ending: WaitEnding; readonly until?: unknown }): boolean =>
  ending === 'hold' || (ending === 'look' && until === undefined);

/** What becomes of an upload when its wait is over, if that is no further try. */
const AT_ITS_TIME: ReadonlyMap<string, string> = new Map<WaitReason, string>([
  ['inputs', 'fails without them'],
  ['settling', 'is sent'],
  ['review', 'is cancelled without an approval'],
]);

/** What becomes of an upload when its wait is over, with the time after it: `next try 10:00`. */
export const atItsTime = (reason: string): string => AT_ITS_TIME.get(reason) ?? 'next try';

/** A name as the page's filter compares it: in any case, and with letters and blanks in any form. */
export const searchable = (name: string): string => comparable(name).toLowerCase();
