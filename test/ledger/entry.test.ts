import { describe, expect, it } from 'vitest';
import {
  answered,
  type ClaimedEntry,
  claimAgain,
  collectedAgain,
  collectedSoFar,
  doubtAfter,
  ended,
  failedMarkerOf,
  flowTagOf,
  isFlowShared,
  isSameEnd,
  isSuspect,
  isTerminal,
  isUntold,
  misaddressed,
  nextStep,
  rerouted,
  retried,
  running,
  runningMarkerOf,
  seenCurrent,
  shared,
  told,
  waiting,
  waitingMarkerOf,
  withoutDoubt,
} from '../../functions/ledger/entry.ts';
import { asset, claim, failure, flow, later, route, upload, wait } from './support.ts';

const doubt = { claimedAt: 1, sentBy: 2 };

describe('a first claim', () => {
  it('holds all facts, and no failure yet', () => {
    expect(claim).toEqual({
      schema: 1,
      state: 'claimed',
      upload,
      route,
      pipeline: 'mine',
      arrivedAt: 10_000,
      generation: 1,
      attempts: 0,
      waits: 0,
      claimedAt: 10_000,
      deadline: 70_000,
    });
  });

  it('has the flow tag of its generation', () => {
    expect(flowTagOf(claim, 'mine')).toEqual({ pipeline: 'mine', upload: upload.id, generation: 1 });
  });

  it('keeps the name of the pipeline under which it was made', () => {
    expect(flowTagOf(claim, 'renamed').pipeline).toBe('mine');
    expect(flowTagOf({ ...claim, pipeline: undefined }, 'renamed').pipeline).toBe('renamed');
    const again = { claimedAt: 80_000, deadline: 90_000, pipeline: 'renamed' };
    expect(claimAgain(claim, again).pipeline).toBe('mine');
    expect(claimAgain({ ...claim, pipeline: undefined }, again).pipeline).toBe('renamed');
  });
});

describe('a delivery of an upload that has an entry', () => {
  it('leaves a claim alone until its deadline, and then takes over', () => {
    expect(nextStep(claim, 69_999)).toEqual({ step: 'leave-to-its-claim', entry: claim });
    expect(nextStep(claim, 70_000)).toEqual({ step: 'take-over', entry: claim });
  });

  it('waits until the upload is due, and then takes over', () => {
    const entry = waiting(claim, wait);
    expect(nextStep(entry, 98_999)).toEqual({ step: 'wait-on', entry });
    expect(nextStep(entry, 99_000)).toEqual({ step: 'take-over', entry });
  });

  it('puts the marker of a running flow again, and publishes an end again', () => {
    const run = running(claim, flow);
    expect(nextStep(run, 0)).toEqual({ step: 'restore-marker', entry: run });
    for (const entry of [ended(run, {}, 1), ended(run, { failure }, 1)]) {
      expect(nextStep(entry, 0)).toEqual({ step: 'publish-again', entry });
    }
  });
});

describe('a wait', () => {
  it('says why and until when, and counts as an attempt only if the file could be the cause', () => {
    const { reason, message, notBefore } = wait;
    const waits = { state: 'waiting', reason, message, notBefore, generation: 1, waits: 1 };
    expect(waiting(claim, wait)).toMatchObject({ ...waits, attempts: 0 });
    expect(waiting(claim, { ...wait, counted: true })).toMatchObject({ ...waits, attempts: 1 });
  });

  it('keeps a doubt', () => {
    expect(waiting({ ...claim, doubt }, wait).doubt).toEqual(doubt);
    expect(waiting(claim, wait).doubt).toBeUndefined();
  });

  it('becomes a claim that keeps its counts', () => {
    const again = claimAgain(waiting(claim, { ...wait, counted: true }), later);
    expect(again).toMatchObject({ state: 'claimed', attempts: 1, waits: 1, claimedAt: 100_000, deadline: 160_000 });
    expect(again.doubt).toBeUndefined();
    expect(again).not.toHaveProperty('notBefore');
    expect(again).not.toHaveProperty('reason');
  });
});

describe('what the attempts came to', () => {
  it('is kept for the last three answers that differ, the newest first, each with its first and last time', () => {
    const one = answered(claim, 'No credit left', 1);
    expect(one.answers).toEqual([{ message: 'No credit left', since: 1, at: 1 }]);
    expect(one).toEqual({ ...claim, answers: one.answers });
    const again = answered(one, 'No credit left', 5);
    expect(again.answers).toEqual([{ message: 'No credit left', since: 1, at: 5 }]);
    const two = answered(again, 'Slow down', 7);
    expect(two.answers).toEqual([
      { message: 'Slow down', since: 7, at: 7 },
      { message: 'No credit left', since: 1, at: 5 },
    ]);
    const four = answered(answered(two, 'Down', 8), 'Broken', 9);
    expect(four.answers?.map(({ message }) => message)).toEqual(['Broken', 'Down', 'Slow down']);
  });
});

describe('a suspect', () => {
  it('is an upload whose claim died, or whose last attempt ran out of time', () => {
    expect(isSuspect(claim)).toBe(true);
    expect(isSuspect(waiting(claim, { ...wait, reason: 'out-of-time' }))).toBe(true);
    expect(isSuspect({ ...waiting(claim, wait), claimDied: true })).toBe(true);
    expect(isSuspect(waiting(claim, wait))).toBe(false);
    expect(isSuspect(running(claim, flow))).toBe(false);
  });
});

describe('the time since when something else answers', () => {
  const since = (entry: ClaimedEntry, reason: 'misaddressed' | 'in-doubt' | 'throttled') =>
    waiting(entry, { ...wait, reason }).misaddressedSince;

  it('begins with the first claim that it answers', () => {
    expect(misaddressed(claim).misaddressedSince).toBe(10_000);
    expect(since(claim, 'misaddressed')).toBe(10_000);
    expect(since({ ...claim, misaddressedSince: 5 }, 'misaddressed')).toBe(5);
  });

  it('lasts while a flow is searched for, and ends with any other wait', () => {
    expect(since(misaddressed(claim), 'in-doubt')).toBe(10_000);
    expect(since(claim, 'in-doubt')).toBeUndefined();
    expect(since(misaddressed(claim), 'throttled')).toBeUndefined();
  });
});

describe('a claim that takes the present route', () => {
  it('has that route, and needs no other', () => {
    const other = { ...route, name: 'others' };
    const opened = { ...upload, mediaType: 'image/png' };
    expect(rerouted({ ...claim, reroute: true }, opened, other)).toEqual({ ...claim, upload: opened, route: other });
    const placed = { ...claim, upload: { ...claim.upload, currentAt: 7 } };
    expect(rerouted(placed, { ...opened, currentAt: 5, sequencer: '1' }, other).upload).toEqual({
      ...opened,
      currentAt: 7,
    });
  });
});

describe('a doubt', () => {
  it('is left behind by a claim whose invocation died, and spans the whole claim', () => {
    const again = claimAgain(claim, later);
    expect(again.doubt).toEqual({ claimedAt: 10_000, sentBy: 70_000 });
    expect(again.attempts).toBe(1);
  });

  it('spans both if it joins another', () => {
    const second: ClaimedEntry = { ...claim, claimedAt: 50_000, doubt: { claimedAt: 10_000, sentBy: 20_000 } };
    expect(doubtAfter(second, 60_000)).toEqual({ claimedAt: 10_000, sentBy: 60_000 });
    expect(doubtAfter({ ...second, doubt: { claimedAt: 90_000, sentBy: 95_000 } }, 60_000)).toEqual({
      claimedAt: 50_000,
      sentBy: 95_000,
    });
  });

  it('is settled without a change to anything else', () => {
    expect(withoutDoubt({ ...claim, doubt })).toEqual(claim);
  });

  it('ends with an answer that names a flow', () => {
    expect(running({ ...claim, doubt }, flow).doubt).toBeUndefined();
  });
});

describe('a running flow', () => {
  it('begins a count of its own', () => {
    expect(running({ ...claim, attempts: 3 }, flow)).toMatchObject({ state: 'running', attempts: 0, flow });
  });

  it('remembers the stored assets, and counts an attempt only if told to', () => {
    const run = running(claim, flow);
    expect(collectedSoFar(run, [asset], undefined)).toEqual({ ...run, assets: [asset], attempts: 0 });
    expect(collectedSoFar(run, [asset], 5)).toEqual({ ...run, assets: [asset], attempts: 1, attemptedAt: 5 });
  });
});

describe('an end', () => {
  it('without a failure is a success with its assets', () => {
    const entry = ended(running(claim, flow), { assets: [asset] }, 30_000);
    expect(entry).toMatchObject({ state: 'succeeded', flow, assets: [asset], failedOutputs: [], endedAt: 30_000 });
    expect(entry).not.toHaveProperty('failure');
    expect(isTerminal(entry)).toBe(true);
  });

  it('with a failure is a failure, even if assets were stored', () => {
    expect(ended(running(claim, flow), { assets: [asset], failure }, 1)).toMatchObject({
      state: 'failed',
      failure,
      assets: [asset],
    });
  });

  it('is told once its receipt, event and marker are out, unless it is a success, which needs no such note', () => {
    const failed = ended(claim, { failure }, 1);
    expect(told(failed)).toEqual({ ...failed, isTold: true });
    expect([isUntold(failed), isUntold(told(failed)), isUntold(ended(running(claim, flow), {}, 1))]).toEqual([
      true,
      false,
      false,
    ]);
    expect(isUntold(claim)).toBe(false);
    expect(failedMarkerOf(failed)).toEqual({ endedAt: 1, uploadId: upload.id });
  });

  it('is the same as another of its generation and time', () => {
    const end = ended(claim, { failure }, 1);
    expect(isSameEnd(end, told(end))).toBe(true);
    expect(isSameEnd(end, { ...end, generation: 2 })).toBe(false);
    expect(isSameEnd(end, { ...end, endedAt: 2 })).toBe(false);
  });

  it('becomes a running flow again whose stored assets stay', () => {
    const end = ended({ ...running(claim, flow), attempts: 4 }, { assets: [], failure }, 1);
    const again = { ...flow, collectedAgainAt: 30_000 };
    expect(collectedAgain(end, flow, [asset], 30_000)).toEqual({
      ...running(claim, again),
      attempts: 0,
      assets: [asset],
    });
  });

  it('has a marker of its own when it is collected again, although its clock is behind', () => {
    const end = ended(running(claim, flow), { failure }, 1);
    expect(collectedAgain(end, flow, [], 0).flow.collectedAgainAt).toBe(flow.createdAt + 1);
  });

  it('remembers the latest time at which its upload was current', () => {
    const end = ended(claim, { failure }, 1);
    expect(seenCurrent(end, upload.lastModified + 5).upload.currentAt).toBe(upload.lastModified + 5);
    expect(seenCurrent(end, upload.lastModified - 5).upload.currentAt).toBe(upload.lastModified);
    const seen = seenCurrent(end, upload.lastModified + 5);
    expect(seenCurrent(seen, upload.lastModified + 1)).toEqual(seen);
    expect(seen).toMatchObject({ state: 'failed', upload: { id: upload.id, key: upload.key } });
  });

  it('keeps that the flow belongs to another upload too', () => {
    const both = shared(running(claim, flow));
    expect(isFlowShared(ended(both, { failure }, 1))).toBe(true);
    expect(isFlowShared(ended(both, { failure: { code: 'flow-shared', message: 'shared' } }, 1))).toBe(true);
    expect(isFlowShared(ended(running(claim, flow), { failure }, 1))).toBe(false);
    expect(isFlowShared(ended(claim, { failure: { code: 'flow-shared', message: 'shared' } }, 1))).toBe(true);
    expect(isFlowShared(claim)).toBe(false);
    expect(retried(ended(both, { failure }, 1), 2)).not.toHaveProperty('isShared');
  });

  it('of an upload that never ran has no flow', () => {
    expect(ended({ ...claim, flow } as typeof claim, { failure }, 1)).toMatchObject({ flow: undefined, assets: [] });
    expect(isTerminal(ended(claim, { failure }, 1))).toBe(true);
    expect(isTerminal(claim)).toBe(false);
    expect(isTerminal(running(claim, flow))).toBe(false);
  });
});

describe('a retry by the operator', () => {
  it('of a failure begins a new generation with all counts at 0', () => {
    const failed = ended(running({ ...claim, attempts: 4, waits: 7 }, flow), { failure }, 1);
    const again = retried(failed, 500);
    expect(again).toMatchObject({ state: 'waiting', reason: 'retried', generation: 2, attempts: 0, waits: 0 });
    expect(again).toMatchObject({ notBefore: 500, message: 'Retried by the operator.' });
    expect(retried({ ...failed, doubt }, 500).doubt).toBeUndefined();
    expect(again).not.toHaveProperty('flow');
    expect(again).not.toHaveProperty('failure');
  });

  it('of a held doubt stays in its generation and accepts the risk', () => {
    const held = waiting({ ...claim, doubt }, { ...wait, reason: 'held' });
    expect(retried(held, 500)).toMatchObject({ generation: 1, reason: 'retried' });
    expect(retried(held, 500).doubt).toBeUndefined();
  });

  it('of any other wait keeps its doubt for one more search', () => {
    const inDoubt = waiting({ ...claim, doubt: { ...doubt, nextAttemptAt: 900 } }, { ...wait, reason: 'in-doubt' });
    expect(retried(inDoubt, 500).doubt).toEqual(doubt);
  });
});

const inbox = { inboxPrefix: '' };

describe('the marker of an upload', () => {
  it('that is claimed or waits is due at the end of the claim or the wait', () => {
    expect(waitingMarkerOf(claim, inbox)).toEqual({ uploadId: upload.id, notBefore: 70_000 });
    const entry = waiting(claim, { ...wait, reason: 'forbidden' });
    expect(waitingMarkerOf(entry, inbox)).toEqual({ uploadId: upload.id, notBefore: 99_000 });
  });

  it('that is throttled has its place in the line', () => {
    const turn = { class: 'live', route: 'pictures', segment: '!', since: 10_000 };
    expect(waitingMarkerOf(waiting(claim, wait), inbox)).toEqual({ uploadId: upload.id, notBefore: 99_000, turn });
    const forbidden = waiting({ ...claim, throttledSince: 5 }, { ...wait, reason: 'forbidden' });
    expect(waitingMarkerOf(forbidden, inbox)?.turn).toBeUndefined();
  });

  it.each([
    ['in/customer/2026/a.png', 'in/', 'customer'],
    ['in/customer/a.png', 'in', 'customer'],
    ['in/a.png', 'in/', '!'],
    ['customer/a.png', '', 'customer'],
    ['elsewhere/a.png', 'in/', 'elsewhere'],
    ['a b/é.png', '', 'a%20b'],
    ['!/a.png', '', '%21'],
  ])('in the line has the first segment of its key below the inbox: %s', (key, inboxPrefix, segment) => {
    const entry = waiting({ ...claim, upload: { ...upload, key } }, wait);
    expect(waitingMarkerOf(entry, { inboxPrefix })?.turn?.segment).toBe(segment);
  });

  it('of a later stage has the segment of the first file of its chain', () => {
    const first = { id: upload.id, key: 'customer/a.png' };
    const stage = { first, route: 'second', parent: { ...first, generation: 1 } };
    const entry = waiting({ ...claim, upload: { ...upload, key: 'customer/a.png/chain/x', stage } }, wait);
    expect(waitingMarkerOf(entry, inbox)?.turn).toMatchObject({ route: 'pictures', segment: 'customer' });
  });

  it('that is late waits behind live files, and a retry of it alone ends that', () => {
    const late = waiting({ ...claim, late: true }, wait);
    expect(waitingMarkerOf(late, inbox)?.turn?.class).toBe('late');
    expect(retried(late, 500)).not.toHaveProperty('late', true);
    const ofMany = retried(late, 500, { late: true });
    const turn = { class: 'late', route: 'pictures', segment: '!', since: 500 };
    expect(waitingMarkerOf(ofMany, inbox)).toEqual({ uploadId: upload.id, notBefore: 500, turn });
    expect(waitingMarkerOf(retried(late, 500), inbox)).toEqual({ uploadId: upload.id, notBefore: 500 });
  });

  it('that runs or has ended is none that waits', () => {
    expect(waitingMarkerOf(running(claim, flow), inbox)).toBeUndefined();
    expect(waitingMarkerOf(ended(claim, { failure }, 1), inbox)).toBeUndefined();
  });

  it('that runs names the flow', () => {
    expect(runningMarkerOf(upload, flow)).toEqual({ uploadId: upload.id, flowId: 'flow-1', ageFrom: 20_000 });
  });
});
