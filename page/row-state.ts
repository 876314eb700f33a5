import type { RowState, UploadRow } from './api.ts';

/** The state of an upload as the page shows it: that of the ledger, with `undecided` apart from the other waits. */
export const shownState = ({ state, wait }: Pick<UploadRow, 'state' | 'wait'>): RowState =>
  wait?.reason === 'undecided' ? 'undecided' : state;
