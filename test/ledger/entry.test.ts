import { describe, expect, it } from 'vitest';
import { shorten } from '../../functions/base/printable.ts';
import {
  ageFrom,
  answered,
  approved,
  begun,
  type ClaimedEntry,
  chargedForDoubt,
  claimAgain,
  collectedAgain,
  collectedSoFar,
  counting,
  deletionBegun,
  deletionDueAt,
  deletionEnded,
  doubtAfter,
  ended,
  type FailedEntry,
  failedMarkerOf,
  firstClaim,
  flowsToDelete,
  flowTagOf,
  gathered,
  hasGivenWay,
  hindered,
  inDoubt,
  inputOf,
  isAwaited,
  isDispatchedAlike,
  isFlowDeleted,
  isFlowShared,
  isInLine,
  isJob,
  isReplaced,
  isSameEnd,
  isSuspect,
  isTerminal,
  isUnseen,
  isUntold,
  isWaitingInPlace,
  isWaitingJob,
  keyOf,
  lacking,
  lookAt,
  misaddressed,
  nextStep,
  planned,
  presentRouteOf,
  previousOf,
  priced,
  rerouted,
  retried,
  running,
  runningMarkerOf,
  type StoredAsset,
  seenCurrent,
  sentAgain,
  settled,
  shared,
  takenBy,
  toBeReviewed,
  told,
  unsent,
  unsettled,
  waiting,
  waitingMarkerOf,
  withNextKey,
  withoutDoubt,
} from '../../functions/ledger/entry.ts';
import {
  MESSAGE_CHARS_MAX,
  OUTPUT_MESSAGE_CHARS_MAX,
  PREVIOUS_ASSETS_MAX,
  PREVIOUS_MAX,
} from '../../functions/ledger/entry-schema.ts';
import { isHold, WAIT_REASONS } from '../../functions/ledger/waits.ts';
import { asset, claim, failure, flow, later, route, upload, wait } from './support.ts';

const doubt = { claimedAt: 1, sentBy: 2 };
const counted = (at: number) => ({ micros: 0, currency: '', at });
const inbox = { inboxPrefix: '', routes: [route, { ...route, name: 'second', after: 'pictures' }] };

describe('a first claim', () => {
  it('holds all facts, and no failure yet', () => {
    expect(claim).toEqual({
      schema: 6,
      state: 'claimed',
      upload,
      route,
      pipeline: 'mine',
      arrivedAt: 10_000,
      generation: 1,
      attempts: 0,
      waits: 0,
      keyScope: '3f1b90aa',
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
    const again = { ...later, pipeline: 'renamed' };
    expect(claimAgain(claim, again).pipeline).toBe('mine');
    expect(claimAgain({ ...claim, pipeline: undefined }, again).pipeline).toBe('renamed');
  });
});

/** The claim of a job that waits for one input, and the same claim once that input is there. */
const jobFile = { ...upload, key: 'multi/chair/job.json' };
const awaited = { deadline: 500_000, missing: ['front.png'] };
const terms = { claimedAt: 10_000, deadline: 70_000, pipeline: 'mine', keyScope: '3f1b90aa' };
const jobClaim = firstClaim(jobFile, route, terms, awaited);
const inputs = [{ bucket: 'inbox', key: 'multi/chair/front.png', etag: 'f', bytes: 3, mediaType: 'image/png' }];
const sent = gathered(jobClaim, inputs);
const lacks = { ...wait, reason: 'inputs', message: 'front.png is missing' } as const;

describe('a job', () => {
  it('begins with what it waits for', () => {
    expect(jobClaim).toEqual({ ...claim, upload: jobFile, job: awaited });
    expect([claim, jobClaim, sent].map(isJob)).toEqual([false, true, true]);
    expect(claim).not.toHaveProperty('job');
  });

  it('is none if it is a later stage, which has inputs too', () => {
    const stage = { first: { id: upload.id, key: 'a.png' }, route: 'second', parent: { ...jobFile, generation: 1 } };
    expect(isJob({ ...sent, upload: { ...jobFile, stage } })).toBe(false);
    expect(isJob({ ...jobClaim, upload: { ...jobFile, stage } })).toBe(false);
  });

  it('has its inputs once all are there, and waits for nothing then', () => {
    expect(sent).toEqual({ ...claim, upload: jobFile, inputs });
    expect(sent).not.toHaveProperty('job');
    expect(lacking(claim, awaited)).toEqual({ ...claim, job: awaited });
  });

  it('takes the present route, and then looks for its inputs', () => {
    const other = { ...route, name: 'others' };
    const expected = { ...claim, upload: jobFile, route: other, job: awaited };
    expect(rerouted({ ...claim, reroute: true }, jobFile, other, awaited)).toEqual(expected);
  });

  it('waits for its inputs without a longer backoff, and is awaited by them and by its own file', () => {
    const entry = waiting(jobClaim, lacks);
    expect(entry).toMatchObject({ state: 'waiting', reason: 'inputs', waits: 0, job: awaited });
    expect([entry, waiting(jobClaim, wait), jobClaim].map(isWaitingJob)).toEqual([true, false, false]);
    const lacksTwo = waiting(lacking(jobClaim, { ...awaited, missing: ['front.png', 'side.png'] }), lacks);
    expect(isAwaited(lacksTwo, 'multi/chair/side.png')).toBe(true);
    const keys = [jobFile.key, 'multi/chair/front.png', 'multi/chair/back.png', 'front.png', undefined];
    expect(keys.map((key) => isAwaited(entry, key))).toEqual([true, true, false, false, false]);
    for (const other of [jobClaim, sent, waiting(claim, wait), waiting(sent, wait)]) {
      expect(isAwaited(other, jobFile.key)).toBe(false);
      expect(isAwaited(other, 'multi/chair/front.png')).toBe(false);
    }
    expect(nextStep(entry, 0, 'multi/chair/front.png')).toEqual({ step: 'take-over', entry });
    expect(nextStep(entry, 0, 'multi/chair/back.png')).toEqual({ step: 'wait-on', entry });
    expect(nextStep(entry, 0)).toEqual({ step: 'wait-on', entry });
  });

  it('leaves no doubt behind if its claim dies before its inputs are written down', () => {
    expect(claimAgain(jobClaim, later)).toMatchObject({ attempts: 1, claimDied: true });
    expect(claimAgain(jobClaim, later).doubt).toBeUndefined();
    expect(claimAgain({ ...jobClaim, doubt }, later).doubt).toEqual(doubt);
    expect(claimAgain(sent, later).doubt).toEqual({ claimedAt: 10_000, sentBy: 70_000 });
  });

  it('keeps the inputs that it has taken when it waits, and when it takes another route', () => {
    expect(waiting(sent, wait).inputs).toEqual(inputs);
    const other = { ...route, name: 'others' };
    expect(rerouted(sent, jobFile, other, awaited)).toMatchObject({ route: other, inputs });
    expect(rerouted(sent, jobFile, other, awaited).job).toBeUndefined();
    const lacksOne = lacking(jobClaim, { ...awaited, missing: ['front.png'] });
    expect(rerouted(lacksOne, jobFile, other, { ...awaited, deadline: 7 }).job).toEqual({
      deadline: 7,
      missing: ['front.png'],
    });
  });

  it('is no job any more if its new route takes none', () => {
    const plain = rerouted(sent, jobFile, { ...route, name: 'others' });
    expect([plain.inputs, plain.job]).toEqual([undefined, undefined]);
  });

  it('looks for its inputs again when it is retried after its end', () => {
    const again = retried(ended(sent, { failure }, 1), 500);
    expect([again.inputs, again.job]).toEqual([undefined, undefined]);
    expect(retried(ended(jobClaim, { failure }, 1), 500).job).toBeUndefined();
    expect(retried(waiting(sent, wait), 500).inputs).toEqual(inputs);
    expect(retried(waiting(jobClaim, lacks), 500).job).toEqual(awaited);
  });
});

describe('an upload of a later stage', () => {
  const stage = {
    first: { id: upload.id, key: 'a.png' },
    route: 'second',
    parent: { id: upload.id, key: 'a.png', generation: 1, asset: 'a' },
  };
  const staged = { ...upload, stage };
  const first = begun(staged, route, inputs, 30_000);

  it('begins as one that waits for its turn, and is due at once', () => {
    expect(first).toEqual({
      schema: 6,
      upload: staged,
      route,
      inputs,
      arrivedAt: 30_000,
      generation: 1,
      attempts: 0,
      waits: 0,
      state: 'waiting',
      reason: 'stage',
      message: 'The stage before has ended.',
      notBefore: 30_000,
    });
  });

  it('keeps its inputs when it takes another route, and when it is retried: they are assets, and no files of a job', () => {
    const again = claimAgain(first, later);
    expect(rerouted(again, staged, { ...route, name: 'others' }).inputs).toEqual(inputs);
    expect(retried(ended(again, { failure }, 1), 500).inputs).toEqual(inputs);
  });
});

describe('the stages after an upload', () => {
  const next = [{ route, assets: ['a'] }];
  const run = running(claim, flow);
  const withNext = ended(run, { assets: [asset], next }, 30_000);

  it('are in its end, in a format that older functions do not read', () => {
    expect(withNext).toEqual({ ...ended(run, { assets: [asset] }, 30_000), next });
    expect(ended(run, { assets: [asset], next: [] }, 30_000)).toEqual(ended(run, { assets: [asset] }, 30_000));
    expect(ended(run, { assets: [asset], next: [] }, 30_000)).not.toHaveProperty('next');
    expect(ended(run, { next, failure }, 30_000)).not.toHaveProperty('next');
  });

  it('begin no second time when its flow is collected again', () => {
    const again = collectedAgain(withNext, flow, [], 40_000);
    expect(again).toMatchObject({ state: 'running', next, isInChain: true });
    const without = collectedAgain(ended(run, {}, 30_000), flow, [], 40_000);
    expect(without.next).toEqual([]);
    expect(ended(without, {}, 50_000)).not.toHaveProperty('isInChain');
    expect(collectedAgain(ended(run, { failure }, 30_000), flow, [], 40_000)).not.toHaveProperty('next');
  });

  it('are remembered by all that follows, and so is that a chain has heard of a failure', () => {
    expect(retried(withNext, 500).isInChain).toBe(true);
    const heard = told(ended(run, { failure }, 1), true);
    expect(heard).toMatchObject({ isTold: true, isInChain: true });
    expect(retried(heard, 500).isInChain).toBe(true);
    for (const entry of [told(ended(run, { failure }, 1)), retried(ended(run, { next: [] }, 1), 500), run]) {
      expect(entry).not.toHaveProperty('isInChain');
    }
  });
});

describe('what is planned after an upload', () => {
  const plan = [{ route: 'second', after: 'pictures' }];

  it('is in its entry, in a format that older functions do not read', () => {
    expect(planned(claim, plan)).toEqual({ ...claim, plan });
    expect(planned(claim, [])).toBe(claim);
    expect(planned(claim, undefined)).toBe(claim);
  });

  it('stays when it waits and is claimed again, and is made again when the first file is retried', () => {
    const waits = waiting(planned(claim, plan), wait);
    expect(waits.plan).toEqual(plan);
    expect(claimAgain(waits, later).plan).toEqual(plan);
    expect('plan' in claimAgain(waiting(claim, wait), later)).toBe(false);
    expect(retried(waits, 1).plan).toBeUndefined();
    expect('plan' in retried(waiting(claim, wait), 1)).toBe(false);
  });

  it('stays when a later stage is retried, because only the first file is planned', () => {
    const parent = { id: upload.id, key: 'a.png', generation: 1 };
    const stage = { first: { id: upload.id, key: 'a.png' }, route: 'second', parent };
    const staged = { ...planned(claim, plan), upload: { ...upload, stage } };
    expect(retried(waiting(staged, wait), 1).plan).toEqual(plan);
  });
});

describe('a claim in the ledger', () => {
  it('need not be written again for a claim that sends the same and waits for the same', () => {
    const dearer = priced(claim, { amount: 0.4, currency: 'EUR' });
    for (const alike of [claim, dearer, { ...claim, deadline: 1 }]) expect(isDispatchedAlike(claim, alike)).toBe(true);
    for (const other of [
      { ...claim, upload: { ...upload, mediaType: 'text/plain' } },
      { ...claim, route: { ...route, template: 'other' } },
      { ...claim, inputs },
      { ...claim, job: awaited },
      { ...claim, given: { parameters: {} } },
    ]) {
      expect(isDispatchedAlike(claim, other)).toBe(false);
    }
    expect(isDispatchedAlike({ ...claim, reroute: true }, claim)).toBe(false);
  });

  it('waits in place if an attempt of it came to something', () => {
    const answeredAt = (at: number) => isWaitingInPlace(answered(claim, { message: 'No', at }));
    expect([9_999, 10_000, 10_001].map(answeredAt)).toEqual([false, true, true]);
    expect(isWaitingInPlace(claim)).toBe(false);
  });
});

describe('the route that takes a waiting upload now', () => {
  const entry = waiting(claim, wait);

  it('is named in its entry, and the rest is written down when it is sent', () => {
    expect(takenBy(entry, [{ ...route, name: 'renamed' }])).toEqual({ ...entry, route: { ...route, name: 'renamed' } });
  });

  it('leaves it as it is if it has the same name, or if no route wants it', () => {
    expect(takenBy(entry, [route])).toBe(entry);
    expect(takenBy(entry, [])).toBe(entry);
    expect(takenBy({ ...entry, doubt }, [{ ...route, name: 'renamed' }])).toEqual({ ...entry, doubt });
  });

  it('may be one that looks at the media type, if S3 did not hand the file out', () => {
    const byType = [{ ...route, name: 'texts', mediaTypes: ['text/*'] }];
    expect(takenBy(entry, byType)).toBe(entry);
    expect(takenBy({ ...entry, reroute: true }, byType).route.name).toBe('texts');
  });
});

describe('a hold', () => {
  const holds = ['paused', 'budget', 'failing'] as const;

  it('is a pause, a budget that is spent, or a route that is failing', () => {
    expect(WAIT_REASONS.filter(isHold)).toEqual(holds);
  });

  it.each(holds)('lengthens no backoff, and its file keeps its place in the line: %s', (reason) => {
    const entry = waiting({ ...claim, waits: 4 }, { ...wait, reason });
    expect(entry).toMatchObject({ waits: 4, throttledSince: 10_000 });
    expect(waiting({ ...claim, throttledSince: 5 }, { ...wait, reason }).throttledSince).toBe(5);
    expect(waitingMarkerOf(entry, inbox)?.turn).toMatchObject({ class: 'live', since: 10_000 });
  });

  it('is what the format and the place in the line are for, and no other wait', () => {
    const other = waiting({ ...claim, waits: 4 }, { ...wait, reason: 'forbidden' });
    expect(other).toMatchObject({ waits: 5 });
    expect(other.throttledSince).toBeUndefined();
    expect(waiting({ ...claim, throttledSince: 5 }, { ...wait, reason: 'forbidden' }).throttledSince).toBe(5);
    expect(waiting({ ...claim, waits: 4 }, wait)).toMatchObject({ waits: 5, throttledSince: 10_000 });
  });

  it('is a line that late retries and late stages wait in too', () => {
    const places = (['retried', 'stage', 'forbidden'] as const).map((reason) => {
      const entry = waiting(claim, { ...wait, reason });
      return [isInLine(entry), isInLine({ ...entry, late: true })];
    });
    expect(places).toEqual([
      [false, true],
      [false, true],
      [false, false],
    ]);
  });
});

describe('the price of a route', () => {
  it('is that of the present attempt', () => {
    const price = { amount: 0.4, currency: 'EUR' };
    expect(priced(claim, price)).toEqual({ ...claim, route: { ...route, price } });
    expect(priced(priced(claim, price), undefined)).toEqual(claim);
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

describe('a wait while the service is down', () => {
  it('knows since when it is down, until it is not', () => {
    const down = waiting(claim, { ...wait, isDown: true });
    expect(down.downSince).toBe(claim.claimedAt);
    const again = claimAgain(down, later);
    expect(waiting(again, { ...wait, isDown: true }).downSince).toBe(claim.claimedAt);
    expect(waiting(again, wait).downSince).toBe(undefined);
  });
});

describe('what the last attempt came to', () => {
  it('is kept with its first and last time, and until when the service asks to wait', () => {
    const one = answered(claim, { message: 'No credit left', at: 1 });
    expect(one).toEqual({ ...claim, answer: { message: 'No credit left', since: 1, at: 1 } });
    const again = answered(one, { message: 'No credit left', at: 5, until: 20 });
    expect(again.answer).toEqual({ message: 'No credit left', since: 1, at: 5, until: 20 });
    expect(answered(again, { message: 'Slow down', at: 7 }).answer).toEqual({ message: 'Slow down', since: 7, at: 7 });
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

  it('is none of a claim that had not written down its route yet', () => {
    expect(claimAgain({ ...claim, reroute: true }, later).doubt).toBeUndefined();
    expect(claimAgain({ ...claim, reroute: true, doubt }, later).doubt).toEqual(doubt);
  });

  it('keeps the time of the next attempt, unless it gets another one', () => {
    const again = { ...claim, doubt: { ...doubt, nextAttemptAt: 900 } };
    expect(doubtAfter(again, 60_000)).toEqual({ claimedAt: 1, sentBy: 60_000, nextAttemptAt: 900 });
    expect(doubtAfter(again, 60_000, { rejection: 'No.' })).toEqual({ claimedAt: 1, sentBy: 60_000, rejection: 'No.' });
  });

  it('has the words of a refusal, shortened', () => {
    const { rejection = '' } = doubtAfter(claim, 60_000, { rejection: 'n'.repeat(10_000) });
    expect(rejection.length).toBeLessThan(10_000);
    expect(rejection).toMatch(/^nnn/);
    expect('rejection' in doubtAfter(claim, 60_000)).toBe(false);
  });

  it('of an accepted POST stays one until the operator dismisses it, in a format that older functions do not read', () => {
    expect(doubtAfter(claim, 60_000, { isAccepted: true }).isAccepted).toBe(true);
    const accepted = inDoubt(claim, { ...doubt, isAccepted: true });
    expect(accepted).toEqual({ ...claim, doubt: { ...doubt, isAccepted: true } });
    expect(doubtAfter(accepted, 60_000).isAccepted).toBe(true);
    expect(doubtAfter(inDoubt(claim, { ...doubt, isAccepted: true, isDismissed: true }), 60_000).isAccepted).toBe(
      undefined,
    );
    expect(doubtAfter(claim, 60_000).isAccepted).toBe(undefined);
    expect(inDoubt(claim, doubt)).toEqual({ ...claim, doubt });
  });

  it('spans both if it joins another', () => {
    const second: ClaimedEntry = { ...claim, claimedAt: 50_000, doubt: { claimedAt: 10_000, sentBy: 20_000 } };
    expect(doubtAfter(second, 60_000)).toEqual({ claimedAt: 10_000, sentBy: 60_000 });
    expect(doubtAfter({ ...second, doubt: { claimedAt: 90_000, sentBy: 95_000 } }, 60_000)).toEqual({
      claimedAt: 50_000,
      sentBy: 95_000,
    });
  });

  it('is settled without a change to anything else than what was counted for its requests', () => {
    expect(withoutDoubt(counting({ ...claim, doubt }, counted(1)))).toEqual(claim);
  });

  it('of an attempt that did not count counts once the upload is sent again, and is then backed off from', () => {
    const waitMs = ({ attempts }: ClaimedEntry) => (attempts + 1) * 1_000;
    const uncounted = { claimedAt: 10_000, sentBy: 20_000, isUncounted: true } as const;
    const before: ClaimedEntry = { ...claim, attempts: 2, doubt: uncounted };
    const charged = chargedForDoubt(before, waitMs);
    expect(charged).toEqual({
      ...claim,
      attempts: 3,
      doubt: { claimedAt: 10_000, sentBy: 20_000, nextAttemptAt: 23_000 },
    });
    // It counts once, and a later time that is asked for stays.
    expect(chargedForDoubt(charged, waitMs)).toBe(charged);
    const asked = { ...before, doubt: { ...uncounted, nextAttemptAt: 90_000 } };
    expect(chargedForDoubt(asked, waitMs).doubt?.nextAttemptAt).toBe(90_000);
    expect(chargedForDoubt(claim, waitMs)).toBe(claim);
  });

  it('ends with an answer that names a flow', () => {
    const entry = running(counting({ ...claim, doubt }, counted(1)), flow);
    expect([entry.doubt, entry.countedFlows]).toEqual([undefined, undefined]);
  });

  it('keeps what was counted for its last twenty requests, each of them once', () => {
    const all = Array.from({ length: 21 }, (_, n) => counted(n));
    const entry = [...all, all[20]].reduce(counting, { ...claim, doubt });
    expect(entry.countedFlows).toEqual(all.slice(1));
    expect(counting(claim, undefined)).toBe(claim);
    expect(waiting(entry, wait).countedFlows).toEqual(all.slice(1));
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

  it('has the time of creation that a receipt of it has told before, and keeps the age in its marker', () => {
    const entry = ended(running(claim, flow), { assets: [asset], flow: { createdAt: 15_000 } }, 30_000);
    expect(entry.flow).toEqual({ ...flow, createdAt: 15_000, collectedAgainAt: flow.createdAt });
    expect(ended(claim, { failure, flow: { createdAt: 15_000 } }, 30_000).flow).toBe(undefined);
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
    const failed = ended({ ...running(claim, flow), attempts: 4, waits: 7 }, { failure }, 1);
    const again = retried(failed, 500);
    expect(again).toMatchObject({ state: 'waiting', reason: 'retried', generation: 2, attempts: 0, waits: 0 });
    expect(again).toMatchObject({ notBefore: 500, message: 'Retried by the operator.' });
    expect(retried({ ...failed, doubt }, 500).doubt).toBeUndefined();
    expect(again).not.toHaveProperty('flow');
    expect(again).not.toHaveProperty('failure');
  });

  it('of a held doubt stays in its generation and accepts the risk', () => {
    const held = waiting({ ...claim, doubt }, { ...wait, reason: 'undecided' });
    expect(retried(held, 500)).toMatchObject({ generation: 1, reason: 'retried' });
    expect(retried(held, 500)).toMatchObject({ doubt: { ...doubt, isDismissed: true } });
  });

  it('of any other wait keeps its doubt for one more search', () => {
    const inDoubt = waiting({ ...claim, doubt: { ...doubt, nextAttemptAt: 900 } }, { ...wait, reason: 'in-doubt' });
    expect(retried(inDoubt, 500).doubt).toEqual(doubt);
  });
});

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
    expect(waitingMarkerOf(entry, { ...inbox, inboxPrefix })?.turn?.segment).toBe(segment);
  });

  it('of a later stage has the segment of the first file of its chain', () => {
    const first = { id: upload.id, key: 'customer/a.png' };
    const stage = { first, route: 'second', parent: { ...first, generation: 1 } };
    const entry = waiting({ ...claim, upload: { ...upload, key: 'customer/a.png/chain/x', stage } }, wait);
    expect(waitingMarkerOf(entry, inbox)?.turn).toMatchObject({ route: 'second', segment: 'customer' });
    // A route of that name that takes files of the inbox is no later stage. The upload ends without it.
    const routes = [{ ...route, name: 'second' }];
    expect(waitingMarkerOf(entry, { ...inbox, routes })).toEqual({ uploadId: upload.id, notBefore: 99_000 });
  });

  it('in the line has its place among those of the route that would take it now', () => {
    const narrowed = { ...route, suffixes: ['.gif'] };
    const others = { ...route, name: 'others', mediaTypes: ['image/*'] };
    const routes = [narrowed, others];
    const routeIn = (entry: ReturnType<typeof waiting>) => waitingMarkerOf(entry, { ...inbox, routes })?.turn?.route;
    expect(routeIn(waiting(claim, wait))).toBe('others');
    // If its flow exists, it was made with its own route.
    expect(routeIn(waiting({ ...claim, doubt }, wait))).toBe('pictures');
    // S3 did not hand it out, so its media type is not known.
    const unread = { ...claim, reroute: true, upload: { ...upload, mediaType: '' } } as const;
    expect(routeIn(waiting(unread, wait))).toBe('others');
    const none = { uploadId: upload.id, notBefore: 99_000 };
    expect(waitingMarkerOf(waiting(claim, wait), { ...inbox, routes: [narrowed] })).toEqual(none);
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

  it('that failed says whether it gave way to a newer file', () => {
    const marker = { uploadId: upload.id, endedAt: 5 };
    expect(failedMarkerOf(ended(claim, { failure }, 5) as FailedEntry)).toEqual(marker);
    const superseded = ended(claim, { failure: { code: 'superseded', message: 'It was replaced.' } }, 5);
    expect(failedMarkerOf(superseded as FailedEntry)).toEqual({ ...marker, isReplaced: true });
  });

  it('that runs names the flow', () => {
    expect(runningMarkerOf(upload, flow)).toEqual({ uploadId: upload.id, flowId: 'flow-1', ageFrom: 20_000 });
  });
});

describe('a file that must be still', () => {
  it('says so, and when it was seen to be still last', () => {
    const entry = unsettled(claim);
    expect(entry).toEqual({ ...claim, settles: true });
    expect(settled(entry, 5)).toEqual({ ...claim, settles: true, stillAt: 5 });
    expect(settled(settled(entry, 5), 9).stillAt).toBe(9);
  });

  it('is any other file if its route does not ask for that', () => {
    expect(settled(claim, 5)).toBe(claim);
    expect(isUnseen(claim)).toBe(false);
  });

  it('was never sent before it was seen to be still, so a claim that dies before leaves no doubt', () => {
    const unseen = unsettled(claim);
    expect([isUnseen(unseen), isUnseen(settled(unseen, 5))]).toEqual([true, false]);
    expect(claimAgain(unseen, later).doubt).toBeUndefined();
    expect(claimAgain(settled(unseen, 5), later).doubt).toEqual({ claimedAt: 10_000, sentBy: 70_000 });
  });

  it('needs not be still any more once its flow was made, or the operator retries it', () => {
    const entry = settled(unsettled(claim), 5);
    expect(running(entry, flow)).toMatchObject({ settles: undefined, stillAt: 5 });
    expect(retried(waiting(entry, wait), 500)).toMatchObject({ settles: undefined, stillAt: 5 });
  });
});

describe('a claim under which nothing was sent', () => {
  it('leaves no doubt if its invocation dies', () => {
    expect(unsent(claim)).toEqual({ ...claim, reroute: true });
    expect(claimAgain(unsent(claim), later)).toMatchObject({ doubt: undefined, attempts: 1, claimDied: true });
    expect(claimAgain(jobClaim, later).doubt).toBeUndefined();
    expect(claimAgain(sent, later).doubt).toEqual({ claimedAt: 10_000, sentBy: 70_000 });
  });
});

describe('an idempotency key', () => {
  it('names upload, ledger, generation and a number', () => {
    expect(keyOf(claim)).toBe(`${upload.id.slice(0, 24)}-3f1b90aa-1-1`);
    expect(keyOf({ ...claim, generation: 3, keyNumber: 7 })).toBe(`${upload.id.slice(0, 24)}-3f1b90aa-3-7`);
  });

  it('is another after each answer that shows that no flow was made', () => {
    expect(withNextKey(claim)).toEqual({ ...claim, keyNumber: 2 });
    expect(withNextKey({ ...claim, keyNumber: 2 }).keyNumber).toBe(3);
    expect(claimAgain(waiting(claim, wait), later)).toMatchObject({ keyNumber: 2, keyScope: later.keyScope });
  });

  it('stays while the upload is in doubt, also in another ledger', () => {
    const elsewhere = { ...later, keyScope: '00000000' };
    const inDoubt = waiting({ ...claim, doubt, keyNumber: 4 }, wait);
    expect(claimAgain(inDoubt, elsewhere)).toMatchObject({ keyNumber: 4, keyScope: '3f1b90aa' });
    expect(claimAgain({ ...claim, keyNumber: 4 }, elsewhere)).toMatchObject({ keyNumber: 4, keyScope: '3f1b90aa' });
    expect(claimAgain(waiting(claim, wait), elsewhere)).toMatchObject({ keyNumber: 2, keyScope: '00000000' });
    expect(claimAgain({ ...inDoubt, keyScope: undefined }, elsewhere).keyScope).toBe('00000000');
  });

  it('begins anew with a generation', () => {
    const failed = ended({ ...sentAgain(claim), keyNumber: 4 }, { failure }, 1);
    expect(retried(failed, 2)).toMatchObject({ keyNumber: undefined, isSentAgain: undefined });
    expect(sentAgain(claim)).toEqual({ ...claim, isSentAgain: true });
  });

  it('whose failed use is known stays in the doubt', () => {
    expect(doubtAfter({ ...claim, doubt: { ...doubt, isKeySpent: true } }, 9).isKeySpent).toBe(true);
    expect(doubtAfter({ ...claim, doubt }, 9)).not.toHaveProperty('isKeySpent');
  });
});

const stage = { first: { id: upload.id, key: 'a.png' }, route: 'second', parent: { ...upload, generation: 1 } };
const ofStage = { ...claim, route: { ...claim.route, name: 'second' }, upload: { ...upload, stage } };

describe('the present route of an upload', () => {
  it('has the same name', () => {
    expect(presentRouteOf(ofStage, inbox.routes)).toBe(inbox.routes[1]);
    expect(presentRouteOf(claim, [])).toBeUndefined();
  });
});

describe('an input', () => {
  it('has what an entry keeps of an upload or an asset', () => {
    const { bucket, key, etag, bytes, mediaType } = asset;
    expect(inputOf(asset)).toEqual({ bucket, key, versionId: undefined, etag, bytes, mediaType });
    expect(inputOf({ ...asset, versionId: 'v' } as typeof asset)).toMatchObject({ versionId: 'v' });
  });
});

describe('an empty plan', () => {
  it('is kept by a later stage, and needed by no first file', () => {
    expect(planned(ofStage, []).plan).toEqual([]);
    expect(planned(claim, [])).toBe(claim);
  });
});

describe('an approval', () => {
  const DAY = 24 * 3_600_000;
  const asked = waiting(toBeReviewed(ofStage, 5), { ...wait, reason: 'review', notBefore: 30 * DAY });

  it('is asked for once, and has the time of the first question', () => {
    expect(asked.review).toEqual({ wantedAt: 5 });
    expect(toBeReviewed({ ...ofStage, review: { wantedAt: 1 } }, 5).review).toEqual({ wantedAt: 1 });
  });

  it('is looked for once a day, until its time is over', () => {
    expect(waitingMarkerOf(asked, inbox)).toEqual({ uploadId: upload.id, notBefore: 5 + DAY });
    expect(lookAt(asked, 29 * DAY + 1)).toBe(30 * DAY);
    expect(lookAt(waiting(claim, wait), 5)).toBe(99_000);
    expect(lookAt(waiting(claim, { ...wait, notBefore: 30 * DAY }), 5)).toBe(30 * DAY);
    expect(waitingMarkerOf({ ...asked, review: undefined }, inbox)?.notBefore).toBe(30 * DAY);
  });

  it('begins the upload at once, in the line if there are many', () => {
    const entry = approved(asked, 70, undefined);
    expect(entry).toMatchObject({
      reason: 'stage',
      message: 'The operator approved it.',
      notBefore: 70,
      arrivedAt: 70,
    });
    expect(entry.review).toEqual({ wantedAt: 5, approvedAt: 70 });
    expect(isInLine(entry)).toBe(false);
    expect(isInLine(approved(asked, 70, true))).toBe(true);
    expect(approved({ ...asked, review: undefined }, 70, undefined).review).toEqual({ wantedAt: 70, approvedAt: 70 });
  });

  it('stays with a retry, and a question does not', () => {
    const failed = ended(claimAgain(approved(asked, 70, undefined), later), { failure }, 100);
    expect(retried(failed, 200).review).toEqual({ wantedAt: 5, approvedAt: 70 });
    expect(retried(asked, 200).review).toBeUndefined();
  });
});

describe('a failure', () => {
  const failedAs = (code: 'superseded' | 'upload-gone' | 'rejected') =>
    ended(claim, { failure: { code, message: 'No.' } }, 1);

  it('is one of a file that gave way if it was replaced or is gone', () => {
    const all = [failedAs('superseded'), failedAs('upload-gone'), failedAs('rejected')];
    expect(all.map(hasGivenWay)).toEqual([true, true, false]);
    expect(all.map(isReplaced)).toEqual([true, false, false]);
    expect(isReplaced(claim)).toBe(false);
  });

  it('of an upload in doubt says that a flow may exist, unless that is what it is about', () => {
    const failed = ended({ ...claim, doubt }, { failure: { code: 'rejected', message: 'No' } }, 1);
    expect(failed.state).toBe('failed');
    expect(failed.failure.message).toMatch(/^No\. A request may have made a flow that is not known: /);
    const long = ended({ ...claim, doubt }, { failure: { code: 'rejected', message: 'n'.repeat(9_000) } }, 1);
    expect(long.failure.message).toMatch(/n\.\.\. A request may have made a flow .* retry\.$/);
    expect(long.failure.message.length).toBeLessThan(MESSAGE_CHARS_MAX + 5);
    const undecided = { code: 'undecided', message: 'Nobody decided.' } as const;
    expect(ended({ ...claim, doubt }, { failure: undecided }, 1).failure).toEqual(undecided);
  });

  it('keeps its words, and those of its outputs, short', () => {
    const message = 'n'.repeat(9_000);
    const entry = ended(
      running(claim, flow),
      { failure: { ...failure, message }, failedOutputs: [{ id: 'a', code: 'not-found', message }] },
      1,
    );
    expect(entry.failure.message).toBe(shorten(message, MESSAGE_CHARS_MAX));
    expect(entry.failedOutputs[0]?.message).toBe(shorten(message, OUTPUT_MESSAGE_CHARS_MAX));
  });
});

describe('a success', () => {
  const next = [{ id: 'f'.repeat(40), route: 'second' }] as unknown as NonNullable<Parameters<typeof ended>[1]['next']>;

  it('names the stages that it begins, and those that are planned', () => {
    const plan = [{ name: 'second' }] as unknown as NonNullable<ClaimedEntry['plan']>;
    expect(ended(running(claim, flow), { next, plan }, 1)).toMatchObject({ state: 'succeeded', next, plan });
    expect(ended(running({ ...claim, plan }, flow), { next: [] }, 1)).toMatchObject({ plan });
    expect(ended(running(claim, flow), { next: [] }, 1)).not.toHaveProperty('next');
    expect(ended(running(claim, flow), {}, 1)).not.toHaveProperty('plan');
  });

  it('that has begun a chain stays in it when it is retried or collected again', () => {
    const entry = ended(running(claim, flow), { next }, 1);
    expect(retried(entry, 5)).toMatchObject({ isInChain: true });
    expect(collectedAgain(entry, flow, [], 5)).toMatchObject({ isInChain: true, next });
    expect(collectedAgain(ended(running(claim, flow), {}, 1), flow, [], 5).next).toEqual([]);
    expect(retried(ended(running(claim, flow), {}, 1), 5)).not.toHaveProperty('isInChain');
  });

  it('never ends before its flow was collected again, although clocks differ', () => {
    const again = collectedAgain(ended(running(claim, flow), {}, 1), flow, [], 50_000);
    expect(ended(again, {}, 40_000).endedAt).toBe(50_000);
    expect(ageFrom(again.flow)).toBe(50_000);
    expect(collectedAgain(ended(again, {}, 70_000), again.flow, [], 1).flow.collectedAgainAt).toBe(70_001);
  });
});

describe('a running flow that is kept from its end', () => {
  it('says by what, since when, and no more once nothing does', () => {
    const run = running(claim, flow);
    const kept = hindered(run, { message: 'Not ready', at: 5 });
    expect(kept).toEqual({ ...run, obstacle: { message: 'Not ready', since: 5, at: 5 } });
    expect(hindered(kept, { message: 'Not ready', at: 9 }).obstacle).toEqual({ message: 'Not ready', since: 5, at: 9 });
    expect(hindered(kept, undefined).obstacle).toBeUndefined();
    expect(collectedSoFar(run, [asset], undefined, { message: 'Slow', at: 3 }).obstacle).toMatchObject({ since: 3 });
  });
});

describe('what an upload that begins anew keeps of its ends', () => {
  const price = { amount: 1, currency: 'EUR' };
  const made = (count: number): readonly StoredAsset[] =>
    Array.from({ length: count }, (_, n) => ({ ...asset, id: `${n}`, bytes: 2 }));

  it('is what was sent, its flow and what that made', () => {
    const entry = ended(running(priced(claim, price), flow), { assets: made(3) }, 30_000);
    expect(previousOf(entry)).toEqual([
      {
        generation: 1,
        state: 'succeeded',
        template: 't',
        parameters: undefined,
        revision: undefined,
        price,
        arrivedAt: 10_000,
        endedAt: 30_000,
        flow: 'flow-1',
        assets: made(3),
        assetCount: 3,
        bytes: 6,
      },
    ]);
    expect(retried(entry, 5).previous).toEqual(previousOf(entry));
  });

  it('is nothing of an end without a flow', () => {
    expect(previousOf(ended(claim, { failure }, 1))).toBeUndefined();
    const [end] = previousOf(ended(running(claim, flow), {}, 1)) ?? [];
    expect(previousOf({ ...ended(claim, { failure }, 1), previous: end && [end] })).toEqual([end]);
  });

  it('are the last ends, and the first assets of each', () => {
    const entry = ended(running(claim, flow), { assets: made(PREVIOUS_ASSETS_MAX + 1) }, 1);
    const [end] = previousOf(entry) ?? [];
    expect(end?.assets).toEqual(made(PREVIOUS_ASSETS_MAX));
    expect(end).toMatchObject({ assetCount: PREVIOUS_ASSETS_MAX + 1, bytes: 2 * (PREVIOUS_ASSETS_MAX + 1) });
    let last = entry;
    for (let generation = 2; generation <= PREVIOUS_MAX + 2; generation += 1) {
      last = { ...last, previous: previousOf(last), generation };
    }
    expect(last.previous?.map((each) => each.generation)).toEqual(
      Array.from({ length: PREVIOUS_MAX }, (_, n) => n + 2),
    );
  });

  it('is nothing yet of a wait', () => {
    expect(retried(waiting(claim, wait), 5)).not.toHaveProperty('previous');
  });
});

describe('the deletion of a flow at the service', () => {
  const routes = [{ ...route, deleteFlow: true }];
  const success = ended(running(claim, flow), {}, 1_000);
  const failed = ended(running(claim, flow), { failure }, 1_000);
  const before = previousOf(ended(running(claim, { ...flow, id: 'flow-0' }), {}, 1));
  const failedBefore = previousOf(ended(running(claim, { ...flow, id: 'flow-f' }), { failure }, 1)) ?? [];

  it('is one of the flows of its successes, each once, if the route asks for it', () => {
    expect(flowsToDelete(success, routes)).toEqual(['flow-1']);
    expect(flowsToDelete(success, [route])).toEqual([]);
    expect(flowsToDelete(success, [])).toEqual([]);
    expect(flowsToDelete(failed, routes)).toEqual([]);
    expect(flowsToDelete({ ...success, previous: before }, routes)).toEqual(['flow-0', 'flow-1']);
    expect(flowsToDelete({ ...failed, previous: before }, routes)).toEqual(['flow-0']);
    expect(flowsToDelete({ ...success, previous: failedBefore }, routes)).toEqual(['flow-1']);
    expect(flowsToDelete({ ...success, previous: previousOf(success) }, routes)).toEqual(['flow-1']);
    expect(flowsToDelete({ ...success, isShared: true }, routes)).toEqual([]);
    expect(flowsToDelete(ended(claim, { failure }, 1), routes)).toEqual([]);
  });

  it('is due five minutes after the end, and after failures later and later, for a week', () => {
    const MINUTE = 60_000;
    const dueAt = (attempts: number) => deletionDueAt({ ...success, flowDeletion: { attempts, at: 0 } }, routes);
    expect(deletionDueAt(success, routes)).toBe(1_000 + 5 * MINUTE);
    expect([1, 2, 3, 9, 10, 14].map(dueAt)).toEqual([5, 10, 20, 1_280, 1_440, 1_440].map((each) => each * MINUTE));
    expect(dueAt(15)).toBeUndefined();
    expect(deletionDueAt(success, [route])).toBeUndefined();
  });

  it('counts as done once it is attempted, and not if the attempt has failed', () => {
    const begun = deletionBegun(success, 5);
    expect(begun.flowDeletion).toEqual({ attempts: 1, at: 5 });
    expect(deletionBegun(begun, 9).flowDeletion).toEqual({ attempts: 2, at: 9 });
    const refused = deletionEnded(begun, 7, 'n'.repeat(9_000));
    expect(refused.flowDeletion).toMatchObject({ attempts: 1, at: 5 });
    expect(refused.flowDeletion?.message).toBe(shorten('n'.repeat(9_000), MESSAGE_CHARS_MAX));
    const done = deletionEnded(begun, 7);
    expect(done.flowDeletion).toEqual({ attempts: 1, at: 5, deletedAt: 7 });
    expect(deletionEnded(success, 7).flowDeletion).toEqual({ attempts: 1, at: 7, deletedAt: 7 });
    expect([success, begun, refused, done].map(isFlowDeleted)).toEqual([false, true, false, true]);
    expect(flowsToDelete(done, routes)).toEqual([]);
    expect(flowsToDelete(refused, routes)).toEqual(['flow-1']);
  });
});
