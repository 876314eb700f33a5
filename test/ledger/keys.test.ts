import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { shortSegment } from '../../functions/base/key-segment.ts';
import {
  ALIASES_PREFIX,
  aliasStateKey,
  CHAINS_PREFIX,
  COSTS_PREFIX,
  chainKey,
  collectorKey,
  costsKey,
  entryKey,
  failedKey,
  failedSinceKey,
  HOLDS_KEY,
  parseChainKey,
  parseEntryKey,
  parseFailedKey,
  parseRunningKey,
  parseWaitingKey,
  ROUTES_KEY,
  runningKey,
  SWEEP_KEY,
  segmentOf,
  waitingDueKey,
  waitingKey,
} from '../../functions/ledger/keys.ts';

const uploadId = 'ab'.repeat(20);
const createdAt = Date.parse('2026-01-02T03:04:05.678Z');
/** Times that ISO 8601 writes with four digits of a year. */
const times = fc.integer({ min: 0, max: Date.parse('9999-12-31T23:59:59Z') });

describe('keys of the ledger', () => {
  it('are those of the design', () => {
    expect(entryKey(uploadId)).toBe(`uploads/${uploadId}.json`);
    expect(runningKey({ ageFrom: createdAt, uploadId, flowId: '65f0' })).toBe(
      `running/2026-01-02T03:04:05.678Z/${uploadId}/65f0`,
    );
    expect(SWEEP_KEY).toBe('state/sweep.json');
    expect(collectorKey(3)).toBe('state/collector-3.json');
    expect(HOLDS_KEY).toBe('state/holds.json');
    expect(costsKey('2026-11-24')).toBe('state/costs/2026-11-24.json');
    expect(COSTS_PREFIX).toBe('state/costs/');
    expect(chainKey(uploadId)).toBe(`chains/${uploadId}.json`);
    expect(CHAINS_PREFIX).toBe('chains/');
    expect(aliasStateKey('a1b2')).toBe('state/aliases/a1b2.json');
    expect(ALIASES_PREFIX).toBe('state/aliases/');
    expect(ROUTES_KEY).toBe('state/routes.json');
    expect(failedKey({ endedAt: createdAt, uploadId })).toBe(`failed/2026-01-02T03:04:05.678Z/${uploadId}`);
    expect(failedKey({ endedAt: createdAt, uploadId, isReplaced: true })).toBe(
      `failed/2026-01-02T03:04:05.678Z/${uploadId}/replaced`,
    );
    expect(waitingKey({ notBefore: createdAt, uploadId })).toBe(`waiting/2026-01-02T03:04:05.678Z/${uploadId}`);
    const turn = { class: 'late', route: 'a%20route', segment: '!', since: createdAt - 678 } as const;
    const inLine = { turn, notBefore: createdAt, uploadId };
    expect(waitingKey(inLine)).toBe(
      `waiting/turn/late/a%20route/!/2026-01-02T03:04:05.000Z/2026-01-02T03:04:05.678Z/${uploadId}`,
    );
    expect(parseWaitingKey(waitingKey(inLine))).toEqual(inLine);
  });

  it('of the line fit into a key of S3, and differ for different texts', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 1_024 }), (text) => {
        const turn = {
          class: 'live',
          route: shortSegment(text),
          segment: segmentOf(`${text}/a`, ''),
          since: 0,
        } as const;
        const key = waitingKey({ turn, notBefore: 0, uploadId });
        expect(Buffer.byteLength(key)).toBeLessThan(512);
        if (text !== '') expect(parseWaitingKey(key)).toEqual({ turn, notBefore: 0, uploadId });
      }),
    );
    const long = 'x'.repeat(1_000);
    expect(shortSegment(`${long}a`)).not.toBe(shortSegment(`${long}b`));
    expect(shortSegment(`${long}a`)).toBe(shortSegment(`${long}a`));
  });

  it('of markers parse to the marker, for any flow id', () => {
    fc.assert(
      fc.property(times, fc.string({ unit: 'grapheme', minLength: 1 }), (createdAt, flowId) => {
        const marker = { ageFrom: createdAt, uploadId, flowId };
        expect(parseRunningKey(runningKey(marker))).toEqual(marker);
        const waiting = { notBefore: createdAt, uploadId };
        expect(parseWaitingKey(waitingKey(waiting))).toEqual(waiting);
        const failed = { endedAt: createdAt, uploadId };
        expect(parseFailedKey(failedKey(failed))).toEqual(failed);
        const replaced = { ...failed, isReplaced: true } as const;
        expect(parseFailedKey(failedKey(replaced))).toEqual(replaced);
      }),
    );
  });

  it('of markers sort by time, byte by byte', () => {
    fc.assert(
      fc.property(times, times, (a, b) => {
        const [keyA, keyB] = [a, b].map((notBefore) => Buffer.from(waitingKey({ notBefore, uploadId })));
        expect(Math.sign(Buffer.compare(keyA as Buffer, keyB as Buffer))).toBe(Math.sign(a - b));
      }),
    );
  });

  it('of due markers end before those that are not due yet', () => {
    expect(waitingKey({ notBefore: createdAt, uploadId }) <= waitingDueKey(createdAt)).toBe(true);
    expect(waitingKey({ notBefore: createdAt + 1, uploadId }) > waitingDueKey(createdAt)).toBe(true);
  });

  it('of failures since a time come after the key of that time, and those before it do not', () => {
    expect(failedKey({ endedAt: createdAt, uploadId }) > failedSinceKey(createdAt)).toBe(true);
    expect(failedKey({ endedAt: createdAt - 1, uploadId }) > failedSinceKey(createdAt)).toBe(false);
  });

  it.each([
    'running/',
    `failed/2026-01-02T03:04:05Z/${uploadId}`,
    `failed/2026-01-02T03:04:05.678Z/${uploadId}/more`,
    `failed/2026-01-02T03:04:05.678Z/${uploadId}/replaced/more`,
    `x/failed/2026-01-02T03:04:05.678Z/${uploadId}`,
    'running/yesterday/abab/flow',
    `running/2026-01-02T03:04:05.678Z/${uploadId}`,
    `running/2026-01-02T03:04:05.678Z/${uploadId}/a/b`,
    `running/2026-01-02T03:04:05.678Z/${uploadId}/%`,
    `running/2026-01-02T03:04:05.678Z/not hexadecimal/flow`,
    `waiting/2026-01-02T03:04:05.678Z/${uploadId}/more`,
    `waiting/yesterday/${uploadId}`,
    'waiting/2026-01-02T03:04:05.678Z/not hexadecimal',
    'waiting/x',
    `x/running/2026-01-02T03:04:05.678Z/${uploadId}/flow`,
    `x/waiting/2026-01-02T03:04:05.678Z/${uploadId}`,
    `running/2026-01-02T03:04:05.678Z/${uploadId}/not encoded`,
    `running/2026-01-02T03:04:05Z/${uploadId}/flow`,
    `waiting/2026-01-02/${uploadId}`,
    `waiting/turn/soon/r/s/2026-01-02T03:04:05.678Z/2026-01-02T03:04:05.678Z/${uploadId}`,
    `waiting/turn/live/r/2026-01-02T03:04:05.678Z/2026-01-02T03:04:05.678Z/${uploadId}`,
    `waiting/turn/live/r/s/2026-01-02T03:04:05.678Z/${uploadId}`,
    `waiting/throttled/2026-01-02T03:04:05.678Z/${uploadId}`,
    `waiting/turn/live/r/s/2026-01-02T03:04:05Z/2026-01-02T03:04:05.678Z/${uploadId}`,
    `waiting/turn/live/r/s/2026-99-02T03:04:05.678Z/2026-01-02T03:04:05.678Z/${uploadId}`,
    `running/2026-99-02T03:04:05.678Z/${uploadId}/flow`,
    `failed/2026-99-02T03:04:05.678Z/${uploadId}`,
    `failed/2026-01-02T03:04:05.678Z/not hexadecimal`,
    `running/+010000-01-01T00:00:00.000Z/${uploadId}/flow`,
    'something/else',
  ])('that are not ours are no markers: %s', (key) => {
    expect(parseRunningKey(key)).toBeUndefined();
    expect(parseWaitingKey(key)).toBeUndefined();
    expect(parseFailedKey(key)).toBeUndefined();
  });
});

describe('the segment of a key', () => {
  it.each([
    ['/a.png', '', '!'],
    ['//customer/a.png', '', 'customer'],
    ['in//customer/a.png', 'in/', 'customer'],
    ['', '', '!'],
  ])('leaves out slashes before it: %j', (key, inboxPrefix, segment) => {
    expect(segmentOf(key, inboxPrefix)).toBe(segment);
  });
});

describe('the key of a chain', () => {
  it('parses to the upload id of its first file, and no other key does', () => {
    expect(parseChainKey(chainKey(uploadId))).toBe(uploadId);
    for (const key of ['chains/', 'chains/x.json', `x/${chainKey(uploadId)}`, `${chainKey(uploadId)}.bak`]) {
      expect(parseChainKey(key)).toBeUndefined();
    }
  });
});

describe('the key of an entry', () => {
  it('parses to its upload id', () => {
    expect(parseEntryKey(entryKey(uploadId))).toBe(uploadId);
  });

  it.each([
    '',
    'uploads/',
    'uploads/x.json',
    `x/uploads/${uploadId}.json`,
    `uploads/${uploadId}.json.bak`,
    `uploads/${uploadId}`,
  ])('is not taken for another key: %j', (key) => {
    expect(parseEntryKey(key)).toBeUndefined();
  });
});
