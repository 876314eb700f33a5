import { describe, expect, it } from 'vitest';
import {
  type ClaimedEntry,
  claimAgain,
  collectedSoFar,
  doubtful,
  dueAt,
  ended,
  firstClaim,
  flowTagOf,
  isTerminal,
  nextStep,
  retried,
  running,
  waiting,
  withoutDoubt,
} from '../../functions/ledger/entry.ts';

const upload = {
  id: 'ab'.repeat(20),
  bucket: 'inbox',
  key: 'a.png',
  versionId: 'v1',
  etag: 'e',
  bytes: 5,
  lastModified: 1_000,
  mediaType: 'image/png',
};
const route = { name: 'pictures', input: 'file', template: 't' } as const;
const claim = firstClaim(upload, route, 10_000, 70_000, 'mine');
const flow = { id: 'flow-1', createdAt: 20_000 };
const asset = { id: 'a', key: 'a.png/flow-1/a.glb', bytes: 1, mediaType: 'model/gltf-binary', sha256: '00' };
const failure = { code: 'rejected', message: 'No.' };
const wait = { reason: 'throttled', message: 'Slow down', notBefore: 99_000, counted: false } as const;

describe('a first claim', () => {
  it('holds all that is known, and has failed at nothing yet', () => {
    expect(claim).toEqual({
      schema: 1,
      state: 'claimed',
      upload,
      route,
      pipeline: 'mine',
      generation: 1,
      attempts: 0,
      waits: 0,
      claimedAt: 10_000,
      deadline: 70_000,
    });
  });

  it('gives the tag of its generation', () => {
    expect(flowTagOf(claim, 'mine')).toEqual({ pipeline: 'mine', upload: upload.id, generation: 1 });
  });
});

describe('a delivery of an upload that has an entry', () => {
  it('leaves a claim alone up to its deadline, and then takes over', () => {
    expect(nextStep(claim, 69_999)).toBe('leave-to-its-claim');
    expect(nextStep(claim, 70_000)).toBe('take-over');
  });

  it('waits on until the time has come, and then takes over', () => {
    const entry = waiting(claim, wait);
    expect(nextStep(entry, 98_999)).toBe('wait-on');
    expect(nextStep(entry, 99_000)).toBe('take-over');
  });

  it('puts the marker of a running flow again, and publishes an end again', () => {
    const run = running(claim, flow);
    expect(nextStep(run, 0)).toBe('restore-marker');
    expect(nextStep(ended(run, {}, 1), 0)).toBe('publish-again');
    expect(nextStep(ended(run, { failure }, 1), 0)).toBe('publish-again');
  });
});

describe('a wait', () => {
  it('is counted as an attempt only where the file could be the cause', () => {
    expect(waiting(claim, wait)).toMatchObject({ attempts: 0, waits: 1 });
    expect(waiting(claim, { ...wait, counted: true })).toMatchObject({ attempts: 1, waits: 1 });
  });

  it('says why and until when', () => {
    expect(waiting(claim, wait)).toMatchObject({
      state: 'waiting',
      reason: 'throttled',
      message: 'Slow down',
      notBefore: 99_000,
      generation: 1,
    });
  });

  it('keeps a doubt, and can begin one', () => {
    const doubt = { claimedAt: 1, sentBy: 2 };
    expect(waiting({ ...claim, doubt }, wait).doubt).toEqual(doubt);
    expect(waiting(claim, { ...wait, doubt }).doubt).toEqual(doubt);
    expect(waiting(claim, wait).doubt).toBeUndefined();
  });

  it('that is over becomes a claim with what it has gone through', () => {
    const again = claimAgain(waiting(claim, { ...wait, counted: true }), 100_000, 160_000, 'mine');
    expect(again).toMatchObject({ state: 'claimed', attempts: 1, waits: 1, claimedAt: 100_000, deadline: 160_000 });
    expect(again.doubt).toBeUndefined();
    expect(again).not.toHaveProperty('notBefore');
    expect(again).not.toHaveProperty('reason');
  });
});

describe('a doubt', () => {
  it('is left behind by a claim that outlived its invocation, from its beginning to its deadline', () => {
    const again = claimAgain(claim, 80_000, 140_000, 'mine');
    expect(again.doubt).toEqual({ claimedAt: 10_000, sentBy: 70_000 });
    expect(again.attempts).toBe(1);
  });

  it('that joins another spans both', () => {
    const second: ClaimedEntry = { ...claim, claimedAt: 50_000, doubt: { claimedAt: 10_000, sentBy: 20_000 } };
    expect(doubtful(second, 60_000)).toEqual({ claimedAt: 10_000, sentBy: 60_000 });
    expect(doubtful({ ...second, doubt: { claimedAt: 90_000, sentBy: 95_000 } }, 60_000)).toEqual({
      claimedAt: 50_000,
      sentBy: 95_000,
    });
  });

  it('is settled without touching anything else', () => {
    expect(withoutDoubt({ ...claim, doubt: { claimedAt: 1, sentBy: 2 } })).toEqual(claim);
  });

  it('does not outlive the answer that names a flow', () => {
    expect(running({ ...claim, doubt: { claimedAt: 1, sentBy: 2 } }, flow).doubt).toBeUndefined();
  });
});

describe('a running flow', () => {
  it('begins its own count of failures', () => {
    expect(running({ ...claim, attempts: 3 }, flow)).toMatchObject({ state: 'running', attempts: 0, flow });
  });

  it('remembers what was stored, and counts only what an asset could be the cause of', () => {
    const run = running(claim, flow);
    expect(collectedSoFar(run, [asset], undefined)).toEqual({ ...run, assets: [asset], attempts: 0 });
    expect(collectedSoFar(run, [asset], 5)).toEqual({ ...run, assets: [asset], attempts: 1, attemptedAt: 5 });
  });
});

describe('an end', () => {
  it('without a failure is a success with its assets', () => {
    const entry = ended(running(claim, flow), { assets: [asset] }, 30_000);
    expect(entry).toMatchObject({ state: 'succeeded', flow, assets: [asset], failedOutputs: [], endedAt: 30_000 });
    expect(entry.failure).toBeUndefined();
    expect(isTerminal(entry)).toBe(true);
  });

  it('with a failure is a failure, whatever was stored', () => {
    expect(ended(running(claim, flow), { assets: [asset], failure }, 1)).toMatchObject({
      state: 'failed',
      failure,
      assets: [asset],
    });
  });

  it('of what never ran has no flow', () => {
    expect(ended({ ...claim, flow } as typeof claim, { failure }, 1)).toMatchObject({ flow: undefined, assets: [] });
    expect(isTerminal(ended(claim, { failure }, 1))).toBe(true);
    expect(isTerminal(claim)).toBe(false);
    expect(isTerminal(running(claim, flow))).toBe(false);
  });
});

describe('a retry by hand', () => {
  it('of a failure begins a new generation, with nothing held against it', () => {
    const failed = ended(running({ ...claim, attempts: 4, waits: 7 }, flow), { failure }, 1);
    const again = retried(failed, 500);
    expect(again).toMatchObject({ state: 'waiting', reason: 'retried', generation: 2, attempts: 0, waits: 0 });
    expect(again).toMatchObject({ notBefore: 500, message: 'Sent on its way again by hand.' });
    const doubt = { claimedAt: 1, sentBy: 2 };
    expect(retried({ ...failed, doubt }, 500).doubt).toBeUndefined();
    expect(again).not.toHaveProperty('flow');
    expect(again).not.toHaveProperty('failure');
  });

  it('of a held doubt stays in its generation and accepts the risk', () => {
    const held = waiting(claim, { ...wait, reason: 'held', doubt: { claimedAt: 1, sentBy: 2 } });
    expect(retried(held, 500)).toMatchObject({ generation: 1, reason: 'retried' });
    expect(retried(held, 500).doubt).toBeUndefined();
  });

  it('of any other wait still looks into its doubt', () => {
    const doubt = { claimedAt: 1, sentBy: 2 };
    expect(retried(waiting(claim, { ...wait, reason: 'in-doubt', doubt }), 500).doubt).toEqual(doubt);
  });
});

describe('an upload that is neither running nor at its end', () => {
  it('is due when its claim or its wait is over', () => {
    expect(dueAt(claim)).toBe(70_000);
    expect(dueAt(waiting(claim, wait))).toBe(99_000);
  });

  it('is the only one that is ever due', () => {
    expect(dueAt(running(claim, flow))).toBeUndefined();
    expect(dueAt(ended(claim, { failure }, 1))).toBeUndefined();
  });
});
