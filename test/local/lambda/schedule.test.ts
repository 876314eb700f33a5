import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { systemClock } from '../../../functions/base/clock.ts';
import { FixedRate, Schedule } from '../../../local/lambda/schedule.ts';
import { PATIENCE } from '../../support/patience.ts';

const AN_HOUR_MS = 3_600_000;

function start(invoke: () => Promise<unknown>, intervalMs: number) {
  const faults: unknown[] = [];
  const schedule = new Schedule({ invoke, clock: systemClock, intervalMs, onFault: (error) => faults.push(error) });
  onTestFinished(() => schedule.close());
  return { schedule, faults };
}

describe('the schedule', () => {
  it('runs again and again, even after a failed run', async () => {
    let runs = 0;
    const { faults } = start(async () => {
      runs += 1;
      if (runs === 1) throw new Error('once');
    }, 1);
    await vi.waitFor(() => expect(runs).toBeGreaterThan(3), PATIENCE);
    expect(faults).toMatchObject([{ message: 'once' }]);
  });

  it('runs at once when woken, and again if woken during a run, but one run at a time', async () => {
    let runs = 0;
    let running = 0;
    let most = 0;
    const gates: (() => void)[] = [];
    const { schedule } = start(async () => {
      runs += 1;
      running += 1;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => gates.push(resolve));
      running -= 1;
    }, AN_HOUR_MS);
    onTestFinished(() => {
      for (const open of gates) open();
    });
    schedule.wake();
    schedule.wake();
    expect(runs).toBe(1);
    gates.shift()?.();
    await vi.waitFor(() => expect(runs).toBe(2), PATIENCE);
    gates.shift()?.();
    await systemClock.sleep(20);
    expect(runs).toBe(2);
    schedule.wake();
    await vi.waitFor(() => expect(runs).toBe(3), PATIENCE);
    gates.shift()?.();
    expect(most).toBe(1);
  });

  it('closes without waiting for the next run', async () => {
    let runs = 0;
    const { schedule } = start(async () => {
      runs += 1;
    }, AN_HOUR_MS);
    await schedule.close();
    expect(runs).toBe(1);
  });
});

describe('the fixed rate', () => {
  function startAtRate(invoke: () => Promise<unknown>, firstAfterMs: number, intervalMs: number) {
    const faults: unknown[] = [];
    const onFault = (error: unknown) => faults.push(error);
    const rate = new FixedRate({ invoke, clock: systemClock, firstAfterMs, intervalMs, onFault });
    onTestFinished(() => rate.close());
    return { rate, faults };
  }

  it('starts every run at its time, even if earlier runs still go on or failed', async () => {
    let runs = 0;
    const gate = Promise.withResolvers<void>();
    const run = async () => {
      runs += 1;
      if (runs === 1) throw new Error('once');
      await gate.promise;
    };
    const { faults } = startAtRate(run, 50, 5);
    onTestFinished(() => gate.resolve());
    await systemClock.sleep(20);
    expect(runs).toBe(0);
    await vi.waitFor(() => expect(runs).toBeGreaterThan(3), PATIENCE);
    expect(faults).toMatchObject([{ message: 'once' }]);
  });

  it('starts no run after close, and waits for the current ones', async () => {
    let runs = 0;
    const gate = Promise.withResolvers<void>();
    const run = () => {
      runs += 1;
      return gate.promise;
    };
    const { rate } = startAtRate(run, 0, AN_HOUR_MS);
    await vi.waitFor(() => expect(runs).toBe(1), PATIENCE);
    let isClosed = false;
    const closed = rate.close().then(() => {
      isClosed = true;
    });
    await systemClock.sleep(20);
    expect(isClosed).toBe(false);
    gate.resolve();
    await closed;
    expect(runs).toBe(1);
  });
});
