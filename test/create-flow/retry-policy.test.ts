import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { OutOfTimeError } from '../../functions/base/invocation.ts';
import {
  backoffMs,
  classify,
  countedBackoffMs,
  isListingHopeless,
  isMisaddressedTooLong,
  lastAnswerOf,
} from '../../functions/create-flow/retry-policy.ts';
import {
  ForbiddenError,
  InDoubtError,
  InvalidTextError,
  MisaddressedError,
  NotFoundError,
  NotServedError,
  RejectedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
  UnintelligibleAnswerError,
} from '../../functions/flow-service/errors.ts';
import { HeldError, HoldsUnavailableError } from '../../functions/holds/permit.ts';
import {
  UploadArchivedError,
  UploadDeniedError,
  UploadEncodedError,
  UploadGoneError,
  UploadUnreadableError,
} from '../../functions/uploads/upload-errors.ts';
import { claim as anyClaim, upload } from '../ledger/support.ts';

const MINUTE = 60_000;

/** A claim of an upload whose hash begins with these digits. The first eight of them spread its waits. */
const claimOf = (digits: string) => ({
  ...anyClaim,
  ...{ claimedAt: 1_000, upload: { ...upload, id: `00000000${digits}`.padEnd(40, '0'), key: 'a' } },
});
/** In the middle of the spread, where a wait has exactly its nominal length. */
const claim = claimOf('8');
const fourthWait = { ...claim, waits: 3, attempts: 2 };

const throttled = (retryAfterMs?: number) => new ThrottledError('429', { retryAfterMs });

describe('an error of sending', () => {
  const waits: readonly (readonly [what: string, error: Error, reason: string, counted: boolean, delayMs: number])[] = [
    ['a refused token', new UnauthorisedError('401'), 'unauthorised', false, MINUTE],
    ['an answer of something else', new MisaddressedError('a page'), 'misaddressed', false, MINUTE],
    ['a forbidden file', new ForbiddenError('403'), 'forbidden', true, 16 * MINUTE],
    ['throttling for an unknown time', throttled(), 'throttled', false, 40_000],
    ['a Retry-After of 80 s, spread by an eighth', throttled(80_000), 'throttled', false, 90_000],
    ['throttling for a moment', throttled(0), 'throttled', false, 40_000],
    ['no turn in time, never sent', new ThrottledError('no turn', { wasSent: false }), 'throttled', false, 0],
    [
      'no turn in time, while the service is left alone',
      new ThrottledError('no turn', { wasSent: false, retryAfterMs: 80_000 }),
      'throttled',
      false,
      80_000,
    ],
    ['an unreached service', new UnavailableError('No', { bodyStarted: false }), 'unavailable', false, 40_000],
    ['a service that broke off', new UnavailableError('No', { bodyStarted: true }), 'unavailable', true, 16 * MINUTE],
    ['an upload that cannot be read', new UploadUnreadableError('No'), 'unavailable', true, 16 * MINUTE],
    ['holds that S3 does not hand out', new HoldsUnavailableError('No'), 'unavailable', false, 40_000],
  ];
  it.each(waits)('has the upload wait: %s', (_, error, reason, counted, delayMs) => {
    expect(classify(error, fourthWait, 2_000)).toEqual({ kind: 'wait', reason, counted, delayMs });
  });

  it('has the upload wait until S3 hands out the file, and fails it in the end as a file that S3 denies', () => {
    const error = new UploadDeniedError(claim.upload, new Error('Access Denied'));
    expect(classify(error, fourthWait, 2_000)).toEqual({
      ...{ kind: 'wait', reason: 'forbidden', counted: true, delayMs: 16 * MINUTE },
      failsAs: 'input-denied',
    });
  });

  it.each([
    ['no answer', undefined, true, undefined, 16 * MINUTE],
    ['an answer of something else', new MisaddressedError('a page'), false, true, MINUTE],
    ['the answer of a busy service', throttled(80_000), false, true, 90_000],
    [
      'nothing there',
      new MisaddressedError('404', { cause: new NotFoundError('', { knownToBeServed: false }) }),
      false,
      undefined,
      MINUTE,
    ],
    ['no such method', new MisaddressedError('405', { cause: new NotServedError('') }), false, undefined, MINUTE],
  ])('leaves a doubt: %s', (_, cause, counted, isUncounted, delayMs) => {
    const decision = { kind: 'doubt', counted, delayMs, ...(isUncounted && { isUncounted }) };
    expect(classify(new InDoubtError('?', { cause }), fourthWait, 2_000)).toEqual(decision);
  });

  it.each([
    ['a refusal', new RejectedError('No', { status: 422 }), 'rejected', 'No'],
    ['a text that is not UTF-8', new InvalidTextError('Not UTF-8'), 'invalid-text', 'Not UTF-8'],
    [
      'an upload that is gone',
      new UploadGoneError({ bucket: 'b', key: 'a' }, 'was deleted'),
      'upload-gone',
      'b/a was deleted.',
    ],
    [
      'an upload that is replaced',
      new UploadGoneError({ bucket: 'b', key: 'a' }, 'was replaced', { isReplaced: true }),
      'superseded',
      'b/a was replaced.',
    ],
    [
      'an input of a job that is replaced',
      new UploadGoneError({ bucket: 'b', key: 'front.png' }, 'was replaced', { isReplaced: true }),
      'input-gone',
      'b/front.png was replaced.',
    ],
    [
      'an input of a job that is gone',
      new UploadGoneError({ bucket: 'b', key: 'front.png' }, 'was deleted'),
      'input-gone',
      'b/front.png was deleted.',
    ],
    ['an upload that is compressed', new UploadEncodedError('b/a is compressed'), 'input-encoded', 'b/a is compressed'],
    [
      'an upload in an archive',
      new UploadArchivedError('b/a is archived'),
      'input-archived',
      'b/a is archived: have it restored first.',
    ],
  ])('fails the upload: %s', (_, error, code, message) => {
    expect(classify(error, fourthWait, 2_000)).toEqual({ kind: 'fail', failure: { code, message } });
  });

  it('fails an upload of a later stage if an asset is gone, whatever its key', () => {
    const first = { id: claim.upload.id, key: 'a' };
    const stage = { first, route: 'r', parent: { ...first, generation: 1 } };
    const staged = { ...claim, upload: { ...claim.upload, stage } };
    for (const key of ['a', 'a/chain/x']) {
      const failure = { code: 'asset-gone', message: `b/${key} was deleted.` };
      const error = new UploadGoneError({ bucket: 'b', key }, 'was deleted');
      expect(classify(error, staged, 2_000)).toEqual({ kind: 'fail', failure });
    }
  });

  it.each(['paused', 'budget', 'failing'] as const)('has a held upload wait for the end of its hold: %s', (reason) => {
    const error = new HeldError({ reason, message: 'Held.' }, undefined);
    expect(classify(error, fourthWait, 2_000)).toEqual({ kind: 'wait', reason, counted: false, delayMs: 0 });
  });

  it('with a refused token waits longer each time', () => {
    const decision = classify(new UnauthorisedError('401'), { ...claim, waits: 5 }, 2_000);
    expect(decision).toMatchObject({ delayMs: 160_000 });
  });

  it('for lack of time counts only if there was enough time', () => {
    const error = new OutOfTimeError('over');
    expect(classify(error, claim, 31_000)).toEqual({
      kind: 'wait',
      reason: 'out-of-time',
      counted: false,
      delayMs: 5_000,
    });
    expect(classify(error, claim, 31_001)).toMatchObject({ counted: true });
  });

  it.each([new Error('a bug'), new NotFoundError('404', { knownToBeServed: true }), 'text', undefined])(
    'of an unknown kind is not hidden: %s',
    (error) => {
      expect(classify(error, claim, 2_000)).toBeUndefined();
    },
  );
});

describe('a wait', () => {
  it.each([
    [0, 5_000],
    [1, 10_000],
    [4, 80_000],
    [7, 640_000],
    [8, 900_000],
    [9, 900_000],
    [10_000, 900_000],
  ])('doubles with each earlier wait (%i), up to 15 minutes', (waits, ms) => {
    expect(backoffMs({ ...claim, waits })).toBe(ms);
  });

  it.each([
    [0, 60_000],
    [1, 240_000],
    [2, 960_000],
    [3, 3_600_000],
    [1_000, 3_600_000],
  ])('after a counted failure grows fourfold with each attempt (%i), up to an hour', (attempts, ms) => {
    expect(countedBackoffMs({ ...claim, attempts })).toBe(ms);
  });

  it('is spread from half to one and a half of its length by the upload id', () => {
    expect(backoffMs(claimOf('00000000'))).toBe(2_500);
    expect(backoffMs(claimOf('40000000f'))).toBe(3_750);
    expect(backoffMs(claimOf('ffffffff'))).toBe(7_500);
    expect(countedBackoffMs(claimOf('00000000'))).toBe(30_000);
    expect(countedBackoffMs(claimOf('c0000000'))).toBe(75_000);
    const error = throttled(100_000);
    expect(classify(error, claimOf('00000000'), 0)).toMatchObject({ delayMs: 100_000 });
    expect(classify(error, claimOf('c0000000'), 0)).toMatchObject({ delayMs: 118_750 });
  });
});

it('something else than the service may answer for three days', () => {
  const days = 3 * 24 * 60 * MINUTE;
  expect(isMisaddressedTooLong({ misaddressedSince: 1_000 }, 1_000 + days - 1)).toBe(false);
  expect(isMisaddressedTooLong({ misaddressedSince: 1_000 }, 1_000 + days)).toBe(true);
  expect(isMisaddressedTooLong({}, 9 * days)).toBe(false);
});

it('docs/design.md has the counted waits and the doubled waits that the policy makes', () => {
  const design = readFileSync(new URL('../../docs/design.md', import.meta.url), 'utf8');
  const counted = [0, 1, 2, 3, 4].map((attempts) => countedBackoffMs({ ...claim, attempts }) / MINUTE);
  expect(counted).toEqual([1, 4, 16, 60, 60]);
  expect(design).toContain(`| waits ${counted.slice(0, 4).join(', ')} minutes |`);
  const [first, second, longest] = [0, 1, 20].map((waits) => backoffMs({ ...claim, waits }) / 1000);
  expect([first, second, longest]).toEqual([5, 10, 15 * 60]);
  expect(design).toContain('| waits 5 seconds, doubled each time up to 15 minutes |');
});

describe('a flow listing that is not available', () => {
  const HOUR = 60 * MINUTE;
  const down = new UnavailableError('503', { bodyStarted: false });

  it.each([new ForbiddenError('403'), new UnintelligibleAnswerError('no JSON')])(
    'is given up at once if its answer will be the same next time: %s',
    (error) => {
      expect(isListingHopeless(error, -HOUR)).toBe(true);
    },
  );

  it('is never given up while the token is refused', () => {
    expect(isListingHopeless(new UnauthorisedError('401'), 100 * HOUR)).toBe(false);
  });

  it.each([
    ['a day', down, 24],
    ['an hour', new OutOfTimeError('over'), 1],
    ['an hour', new UnintelligibleAnswerError('it says that it failed', { isOwnError: true }), 1],
  ])('is given up %s after it would have been conclusive: %s', (_, error, hours) => {
    expect(isListingHopeless(error, hours * HOUR)).toBe(false);
    expect(isListingHopeless(error, hours * HOUR + 1)).toBe(true);
  });
});

it('a failure tells the last answer, if there was one', () => {
  expect(lastAnswerOf({})).toBe('');
  expect(lastAnswerOf({ answer: { since: 1, at: 1, message: 'create: 503' } })).toBe(' The last answer: create: 503');
});
