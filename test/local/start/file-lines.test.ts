import { describe, expect, it } from 'vitest';
import type { Receipt } from '../../../functions/publish/receipts.ts';
import { endLines, Waits } from '../../../local/start/file-lines.ts';

const facts = { upload: { key: 'a.png' }, generation: 1, assets: [], failedOutputs: [] };
const asset = (name: string) => ({ path: `/home/results/a.png/flow/${name}`, bytes: 7_700 });

const there = { receiptPath: '/home/results/a.png/receipt.json', assets: [asset('1.glb')] };

function linesOf(ended: object, files: Pick<Parameters<typeof endLines>[0], 'receiptPath' | 'assets'> = there) {
  const receipt = { ...facts, ...ended } as unknown as Receipt;
  const progress = { kind: 'ended', key: 'a.png', versionId: undefined, receipt, ...files } as const;
  return endLines(progress, { since: undefined, cwd: '/home' });
}

describe('the lines about the end of a file', () => {
  const failure = { code: 'flow-failed', message: 'no fox', advice: 'Feed it. A retry can help.' };

  it('are one for a success, with the place of the results', () => {
    const success = { status: 'succeeded' };
    expect(linesOf(success)).toEqual(['a.png  done: 1 asset  ./results/a.png/flow/1.glb  7.7 KB']);
    expect(linesOf(success, { ...there, assets: [asset('1.glb'), asset('2.glb')] })).toEqual([
      'a.png  done: 2 assets  ./results/a.png',
    ]);
    expect(linesOf({ ...success, failedOutputs: [{ id: 'x', code: 'y', message: 'too large' }] })).toEqual([
      'a.png  done: 1 asset  ./results/a.png/flow/1.glb  7.7 KB; 1 missing: too large',
    ]);
  });

  it('say below a failure what to do', () => {
    expect(linesOf({ status: 'failed', failure })).toEqual([
      'a.png  failed: no fox  ./results/a.png/receipt.json',
      '    Feed it. A retry can help.',
    ]);
    const old = { code: failure.code, message: failure.message };
    expect(linesOf({ status: 'failed', failure: old })).toHaveLength(1);
  });

  it('say that a newer version has the receipt', () => {
    const given = { receiptPath: undefined, assets: [asset('1.glb'), asset('2.glb')] };
    expect(linesOf({ status: 'succeeded' }, given)).toEqual([
      'a.png  done: 2 assets  ./results/a.png/flow; the receipt is that of a newer version of the file',
    ]);
    expect(linesOf({ status: 'failed', failure }, given)[0]).toBe(
      'a.png  failed: no fox; the receipt is that of a newer version of the file',
    );
  });
});

it('a wait that files share is told once, with what to do, and again after a file went on', () => {
  const waits = new Waits();
  const wait = (key: string) =>
    waits.show({ kind: 'waiting', key, versionId: undefined, reason: 'unauthorised', message: 'No.', notBefore: 0 })
      .line;
  expect(wait('a.png')).toMatch(
    /^a\.png {2}waits until .*: No\. Set FLOWDROP_TOKEN to a valid token, and start again$/,
  );
  expect(wait('b.png')).toBeUndefined();
  waits.forget();
  expect(wait('b.png')).toMatch(/^b\.png {2}waits/);
});
