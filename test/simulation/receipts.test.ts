import { describe, expect, it } from 'vitest';
import type { TerminalEntry } from '../../functions/ledger/entry.ts';
import { checkReceipts } from './invariants/publications.ts';
import { Observations, type Put } from './observations.ts';
import { OrderChecker } from './order-checker.ts';
import { MINUTE } from './timeline.ts';
import type { World } from './world.ts';

const KEY = 'a.png';

/** An end of the upload that was put after so many minutes. */
const endOf = (minutes: number, generation = 1): TerminalEntry =>
  ({
    state: 'failed',
    generation,
    endedAt: minutes * MINUTE + generation,
    failure: { code: 'rejected' },
    upload: {
      id: `upload-${minutes}`,
      bucket: 'inbox',
      key: KEY,
      versionId: `v${minutes}`,
      lastModified: minutes * MINUTE,
    },
  }) as unknown as TerminalEntry;

const receiptOf = ({ state, generation, endedAt, failure, upload }: TerminalEntry & { state: 'failed' }): object => ({
  status: state,
  generation,
  endedAt: new Date(endedAt).toISOString(),
  failure,
  upload,
});

/** A world in which two uploads of one key have ended, and both have put their receipts. */
function worldWith(receipt: TerminalEntry): World {
  const observed = new Observations();
  const orderChecker = new OrderChecker(() => 0, { takeOver: () => false, loseLease: () => false });
  for (const minutes of [1, 2]) {
    const end = endOf(minutes);
    const at = minutes * MINUTE;
    observed.puts.push({ bucket: 'inbox', key: KEY, versionId: `v${minutes}`, at, lastModified: at } as Put);
    orderChecker.sees('create', { kind: 'entry.replace', key: '', body: JSON.stringify(end) });
    orderChecker.sees('create', { kind: 'receipt.put', key: '', body: JSON.stringify(receiptOf(end as never)) });
  }
  const body = Buffer.from(JSON.stringify(receiptOf(receipt as never)));
  const inspector = { open: async () => ({ body }) };
  return { observed, orderChecker, inspector, scenario: { settings: { resultsPrefix: '' } } } as unknown as World;
}

describe('the receipt of an upload that was retried, and is held now,', () => {
  const check = (receipt: TerminalEntry, ended: readonly number[]) =>
    checkReceipts(
      worldWith(receipt),
      ended.map((minutes) => endOf(minutes)),
    );

  it('is that of its former end', async () => {
    await expect(check(endOf(2), [1])).resolves.toBeUndefined();
    await expect(check(endOf(2), [])).resolves.toBeUndefined();
  });

  it('is wrong if an older upload took its place', async () => {
    await expect(check(endOf(1), [1])).rejects.toThrow('a receipt is of another upload');
    await expect(check(endOf(1), [])).rejects.toThrow('a receipt is of another upload');
  });

  it('is wrong if a newer upload has ended', async () => {
    await expect(check(endOf(1), [2])).rejects.toThrow('a receipt is of another upload');
  });

  it('is wrong if it tells of another end', async () => {
    await expect(check(endOf(2, 2), [1])).rejects.toThrow('a receipt differs from its entry');
  });
});
