import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Patience } from '../../../local/start/session.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('is over once, when all files have waited for the whole time without a break', () => {
  let doAllWait = true;
  const onOver = vi.fn();
  using patience = new Patience(10_000, () => doAllWait, onOver);
  vi.advanceTimersByTime(9_000);
  doAllWait = false;
  vi.advanceTimersByTime(5_000);
  doAllWait = true;
  vi.advanceTimersByTime(9_000);
  expect([patience.isOver, onOver.mock.calls.length]).toEqual([false, 0]);
  vi.advanceTimersByTime(20_000);
  expect([patience.isOver, onOver.mock.calls.length]).toEqual([true, 1]);
});
