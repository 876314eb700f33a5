import { describe, expect, it } from 'vitest';
import { type CollectorState, parsedState } from '../../functions/collect-outputs/collector.ts';

const NOW = Date.UTC(2026, 0, 1);

const STATE: CollectorState = {
  heldUntil: NOW + 20_000,
  tickCompletedAt: NOW - 70_000,
  lastCompletedAt: NOW - 60_000,
  unfinishedRound: { startedAt: NOW - 30_000, after: 'running/2026' },
  ended: { a: NOW - 2_000, b: NOW - 1_000 },
  unconfirmedEnds: { abc: { digest: 'flow-gone', at: NOW - 30_000 } },
  shownAgainAt: NOW - 3_000,
  pace: { requestsPerSecond: 2.5, throttledAt: NOW - 1_000 },
  line: {
    sent: { echo: { at: NOW - 1_000, ids: ['ab'.repeat(20)] } },
    throughAt: NOW - 2_000,
    refused: { other: 2 },
    extra: 4,
    turns: {
      count: 3,
      live: { route: 'echo', segments: { echo: 'customer' } },
      late: { segments: {} },
    },
  },
};

const parsed = (state: object) => parsedState(JSON.stringify(state), NOW);

describe('the state of a collector', () => {
  it('is read as it was written', () => {
    expect(parsed(STATE)).toEqual(STATE);
  });

  it('is read if members are missing', () => {
    const { lastCompletedAt } = STATE;
    expect(parsed({ lastCompletedAt })).toEqual({ lastCompletedAt });
    expect(parsed({})).toEqual({});
  });

  const DAMAGED: readonly (readonly [keyof CollectorState, unknown])[] = [
    ['heldUntil', 'soon'],
    ['heldUntil', NOW + 24 * 60 * 60_000],
    ['tickCompletedAt', NOW + 24 * 60 * 60_000],
    ['lastCompletedAt', NOW + 24 * 60 * 60_000],
    ['lastCompletedAt', -1],
    ['unfinishedRound', { startedAt: 'then', after: 'running/' }],
    ['unfinishedRound', { startedAt: NOW }],
    ['ended', ['running/a']],
    ['ended', { a: NOW + 24 * 60 * 60_000 }],
    ['unconfirmedEnds', { abc: { digest: 1, at: NOW } }],
    ['unconfirmedEnds', []],
    ['pace', { requestsPerSecond: 0, throttledAt: NOW }],
    ['pace', { requestsPerSecond: 1, throttledAt: NOW + 24 * 60 * 60_000 }],
    ['line', { ...STATE.line, extra: -1 }],
    ['line', { ...STATE.line, sent: ['not hexadecimal'] }],
    ['line', { ...STATE.line, turns: null }],
    ['line', null],
  ];
  it.each(DAMAGED)('loses a damaged member and keeps all others: %s %j', (member, value) => {
    const { [member]: _, ...others } = STATE;
    expect(parsed({ ...STATE, [member]: value })).toEqual(others);
  });

  it.each(['', '{', 'null', '[]', '"text"', '['.repeat(50_000)])('is empty if it cannot be read: %s', (text) => {
    expect(parsedState(text, NOW)).toEqual({});
  });
});
