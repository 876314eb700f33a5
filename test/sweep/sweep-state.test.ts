import { describe, expect, it } from 'vitest';
import { parsedState } from '../../functions/sweep/sweep-state.ts';

const DAY = 24 * 3_600_000;
const NOW = Date.UTC(2026, 0, 10, 3, 4, 5);
const FAR = Date.UTC(2099, 0);

const pass = {
  startedAt: NOW - DAY,
  since: NOW - 3 * DAY,
  uploadsPerSecond: 10,
  inbox: 'inbox/',
  position: { in: 'inbox' },
  holder: 'me',
};
const ended = { daily: { since: NOW - 2 * DAY, startedAt: NOW - DAY, endedAt: NOW - DAY } };
const inboxes = { 'inbox/': NOW - 9 * DAY };
const state = { firstDay: NOW - 9 * DAY, watermark: NOW - DAY, inboxes, ended };
const { firstDay, watermark } = state;
const { since } = ended.daily;

const parsed = (stored: object) => parsedState(JSON.stringify({ schema: 6, ...stored }), NOW);

describe('the state of the sweep', () => {
  it('is read as it was written', () => {
    const whole = { ...state, daily: { ...pass, heldUntil: NOW + 1 } };
    expect(parsed(whole)).toEqual({ state: whole, damaged: [] });
  });

  it.each<readonly [what: string, change: object, read: object, damaged: readonly string[]]>([
    ['watermark', { watermark: FAR }, { firstDay, watermark: since }, ['watermark']],
    ['first day', { firstDay: FAR }, { firstDay: since, watermark }, ['firstDay']],
    [
      'first day beside a backfill',
      { firstDay: FAR, ended: { backfill: ended.daily } },
      { firstDay: since, watermark },
      ['firstDay'],
    ],
    [
      'first day beside an older daily pass that has not ended, and a backfill',
      { firstDay: FAR, daily: { ...pass, since: NOW - 4 * DAY }, backfill: { ...pass, since: FAR } },
      { firstDay: NOW - 4 * DAY, watermark },
      ['firstDay'],
    ],
    ['first day, without a pass', { firstDay: FAR, ended: undefined }, { firstDay: watermark }, ['firstDay']],
    [
      'watermark and first day',
      { firstDay: FAR, watermark: FAR },
      { firstDay: since, watermark: since },
      ['firstDay', 'watermark'],
    ],
    ['watermark without a pass', { watermark: FAR, ended: undefined }, { watermark: firstDay }, ['watermark']],
    [
      'watermark beside an ended pass in the future',
      { watermark: FAR, ended: { daily: { ...ended.daily, since: FAR } } },
      { watermark: firstDay },
      ['watermark'],
    ],
    ['beginning of a daily pass', { daily: { ...pass, startedAt: FAR } }, { ...state, daily: undefined }, ['daily']],
    ['since of a daily pass', { daily: { ...pass, since: FAR } }, { ...state, daily: undefined }, ['daily']],
    ['beginning of a backfill', { backfill: { ...pass, startedAt: FAR } }, state, ['backfill']],
    ['place of a backfill', { backfill: { ...pass, position: { in: 'limbo' } } }, state, ['backfill']],
    ['page of a backfill', { backfill: { ...pass, position: { in: 'inbox', after: 5 } } }, state, ['backfill']],
    ['time of an inbox', { inboxes: { 'inbox/': FAR } }, { ...state, inboxes: undefined }, ['inboxes']],
    ['hold of a pass', { backfill: { ...pass, heldUntil: FAR } }, { backfill: pass }, []],
    ['counts of a pass', { backfill: { ...pass, counts: 5 } }, { backfill: pass }, []],
    ['end of a pass', { ended: { daily: { ...ended.daily, endedAt: 'never' } } }, { firstDay, watermark }, []],
  ])('with a damaged %s is read with an earlier time, or without the pass', (_, change, read, damaged) => {
    expect(parsed({ ...state, ...change })).toMatchObject({ state: read, damaged });
  });

  it.each(['', '{', 'null', '[]', '['.repeat(50_000)])('that is %j begins in this second', (text) => {
    const second = Math.floor(NOW / 1000) * 1000;
    const begun = { state: { firstDay: second, watermark: second }, damaged: ['firstDay', 'watermark'] };
    expect(parsedState(text, NOW + 678)).toMatchObject(begun);
  });
});
