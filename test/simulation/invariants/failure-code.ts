import type { Entry } from '../../../functions/ledger/entry.ts';

/** The code with which an entry failed. Undefined for an entry that has not failed. */
export const failureCodeOf = (entry: Entry): string | undefined =>
  entry.state === 'failed' ? entry.failure.code : undefined;
