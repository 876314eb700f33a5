import { describe, expect, it } from 'vitest';
import type { TerminalEntry } from '../../functions/ledger/entry.ts';
import { checkEndings } from './invariants/endings.ts';
import { Observations, type PollAnswer, type Put } from './observations.ts';
import { OrderChecker } from './order-checker.ts';
import { MINUTE, SECOND } from './timeline.ts';
import type { World } from './world.ts';

const UPLOAD = { id: 'a'.repeat(40), bucket: 'inbox', key: 'a.png', versionId: 'v1' };
const NOT_TWICE = 'a flow is called gone after a single 404, or after one that was followed by an answer';

/** The tick that ended the upload, when it last wrote its lease before, and when it wrote the end, in seconds. */
const TICK = 'collect-1#1';
const LEASED_AT = 100;
const WRITTEN_AT = 105;

const answer = (second: number, status: number, by = TICK): PollAnswer => ({
  kind: 'flow.outputs',
  status,
  at: second * SECOND,
  by,
});

/** Checks an upload that ended because its flow was gone. The clock of the tick was 20 seconds ahead. */
function check(...answers: readonly PollAnswer[]): void {
  let now = 0;
  const orderChecker = new OrderChecker(() => now, { takeOver: () => false, loseLease: () => true });
  const entry = {
    state: 'failed',
    generation: 1,
    endedAt: (WRITTEN_AT + 20) * SECOND,
    failure: { code: 'flow-gone' },
    upload: UPLOAD,
    flow: { id: 'f1' },
  } as unknown as TerminalEntry;
  const see = (second: number, kind: 'lease.put' | 'entry.replace', body: object): void => {
    now = second * SECOND;
    orderChecker.sees(TICK, { kind, key: 'state/collector-0.json', body: JSON.stringify(body) });
  };
  see(LEASED_AT, 'lease.put', { heldUntil: MINUTE });
  see(WRITTEN_AT, 'entry.replace', entry);
  // The end is written again when it was told of.
  see(WRITTEN_AT + 10, 'lease.put', { heldUntil: MINUTE });
  see(WRITTEN_AT + 11, 'entry.replace', entry);
  const observed = new Observations();
  observed.puts.push({ ...UPLOAD, at: 0 } as unknown as Put);
  observed.incidents.push({ kind: 'flow.outputs', path: '/flows/f1/outputs', fault: '404', keys: new Set() });
  for (const each of answers) observed.noteAnswer('f1', each);
  const world = { observed, orderChecker, service: { flows: [] }, scenario: { skewMs: 25 * SECOND } };
  checkEndings(world as unknown as World, [entry]);
}

describe('a flow that is called gone', () => {
  it('was not found by two polls in a row', () => {
    expect(() => check(answer(20, 200), answer(40, 404), answer(60, 404))).not.toThrow();
    expect(() => check(answer(40, 404), answer(60, 200), answer(80, 404))).toThrow(NOT_TWICE);
    expect(() => check(answer(40, 404), answer(60, 404), answer(80, 409))).toThrow(NOT_TWICE);
  });

  it('may be seen by another tick that took the lease before the end was written', () => {
    const others = [answer(LEASED_AT + 1, 409, 'collect-2#1'), answer(WRITTEN_AT + 1, 409, 'collect-2#1')];
    expect(() => check(answer(40, 404), answer(60, 404), ...others)).not.toThrow();
  });

  it('may not be seen by another tick before a poll of the one that calls it gone', () => {
    const other = answer(LEASED_AT + 1, 409, 'collect-2#1');
    expect(() => check(answer(40, 404), answer(60, 404), other, answer(LEASED_AT + 2, 404))).toThrow(NOT_TWICE);
  });

  it('was not found by polls that are apart by the clocks of their processes', () => {
    const [first, second] = [answer(60, 404, 'collect-2#1'), answer(61, 404)];
    expect(() => check(answer(40, 200), first, second)).not.toThrow();
    expect(() => check(answer(40, 200), { ...first, by: 'collect-1#7' }, second)).toThrow(NOT_TWICE);
  });

  it('was not found before the tick wrote that it is gone', () => {
    expect(() => check(answer(40, 404), answer(WRITTEN_AT + 1, 404))).toThrow(NOT_TWICE);
  });
});
