import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { HoldStore } from '../../functions/holds/hold-store.ts';
import { type Attempt, admit, type Holds, isToBeCounted, NO_HOLDS, uncount } from '../../functions/holds/holds.ts';
import type { Operation } from '../../local/flow-service/call.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { attemptOf } from '../support/attempt.ts';
import { answer, dyingAt, ECHO, HOUR, LEDGER, MINUTE, start, world } from '../support/world.ts';

const HOLDS = 'state/holds.json';
const NOON = Date.UTC(2030, 0, 1, 12);
const DAY = { flows: 2, per: 'day', timezone: 'UTC' } as const;

const holds = (): Promise<Holds> => world.json<Holds>(LEDGER, HOLDS);
const spent = async () => (await holds()).pipeline.spent?.flows;

describe('the count of a budget', () => {
  const empty = (): Holds => structuredClone(NO_HOLDS);
  const attempt = (more: Partial<Attempt> = {}): Attempt => attemptOf({ pipeline: DAY, ...more });
  /** Counts the flow of an attempt. Returns a function that uncounts it. */
  const counted = (draft: Holds, of: Attempt, now = NOON) => {
    const { counted: flow } = admit(draft, of, now);
    const nonce = randomUUID();
    return () => uncount(draft, of, flow === undefined ? [] : [flow], nonce);
  };
  const flows = (draft: Holds) => draft.pipeline.spent?.flows;

  it('changes once, although S3 lost the answer to the change, and it is made again', () => {
    const draft = empty();
    const second = attempt({ isResent: true, price: { amount: 1, currency: 'EUR' } });
    admit(draft, attempt(), NOON);
    const first = admit(draft, second, NOON);
    // By now the budget is spent, also by the attempt itself.
    expect(admit(draft, second, NOON)).toEqual(first);
    expect(flows(draft)).toBe(2);
    const day = () => Object.values(draft.costs)[0];
    expect(day()).toMatchObject({ '["r","","EUR"]': { flows: 1, micros: 1_000_000, again: 1 } });
    const nonce = randomUUID();
    for (const _ of [1, 2]) uncount(draft, second, first.counted === undefined ? [] : [first.counted], nonce);
    expect(flows(draft)).toBe(1);
    expect(day()).toMatchObject({ '["r","","EUR"]': { flows: 0, micros: 0 } });
  });

  it('remembers its last thousand changes, and no more', () => {
    const draft = empty();
    const many = { pipeline: { ...DAY, flows: 10_000 } };
    const all = Array.from({ length: 1_001 }, (_, n) => attempt({ ...many, nonce: `${n}`.padStart(8, '0') }));
    for (const each of all) admit(draft, each, NOON);
    expect(draft.changes).toHaveLength(1_000);
    for (const each of all.slice(1)) admit(draft, each, NOON);
    expect(flows(draft)).toBe(1_001);
  });

  it('gives a flow back to the period that it was counted in, and to no other', () => {
    const midnight = Date.UTC(2030, 0, 2);
    const draft = empty();
    const giveBack = counted(draft, attempt(), midnight - MINUTE);
    admit(draft, attempt(), midnight + MINUTE);
    giveBack();
    expect(draft.pipeline.spent).toMatchObject({ period: '2030-01-02', flows: 1 });
  });

  it('gives back as much as was counted, although the price has changed', () => {
    const money = { amount: 10, currency: 'EUR', per: 'day', timezone: 'UTC' } as const;
    const draft = empty();
    const cost = (amount: number) => ({ pipeline: money, price: { amount, currency: 'EUR' } });
    const giveBack = counted(draft, attempt(cost(1)));
    admit(draft, attempt({ ...cost(4), isResent: true }), NOON);
    expect(draft.pipeline.spent?.micros).toBe(5_000_000);
    giveBack();
    expect(draft.pipeline.spent?.micros).toBe(4_000_000);
  });

  it('gives nothing back to a budget that came later', () => {
    const draft = empty();
    const giveBack = counted(draft, attempt({ pipeline: undefined, route: DAY }));
    admit(draft, attempt(), NOON);
    giveBack();
    expect(flows(draft)).toBe(1);
  });

  it('goes on in each period while invocations of two configurations count', () => {
    const draft = empty();
    const week = { ...DAY, per: 'week' } as const;
    const passed = Array.from({ length: 20 }, (_, n) =>
      admit(draft, attempt({ pipeline: n % 2 === 0 ? DAY : week }), NOON),
    ).filter(({ held }) => held === undefined);
    expect(passed).toHaveLength(4);
  });

  it('of a failing route has no place for a second trial within an hour, however many processes ask at once', () => {
    const draft = empty();
    const verdict = { code: 'rejected', message: 'no' };
    draft.routes.r = { failing: { ...verdict, since: NOON - 2 * HOUR, customers: [], moreCustomers: 0 } };
    const late = { pipeline: undefined, isLate: true };
    const held = (of: Attempt, now = NOON) => admit(draft, of, now).held?.reason;
    expect(held(attempt(late))).toBeUndefined();
    expect(held(attempt(late))).toBe('failing');
    expect(held(attempt({ ...late, isLate: false }))).toBeUndefined();
    expect(held(attempt(late), NOON + HOUR - 1)).toBe('failing');
    expect(held(attempt(late), NOON + HOUR)).toBeUndefined();
  });

  it('is kept for a price alone, so that its costs can be told, and not without one', () => {
    expect(isToBeCounted(attempt({ pipeline: undefined, price: { amount: 1, currency: 'EUR' } }))).toBe(true);
    expect(isToBeCounted(attempt({ pipeline: undefined }))).toBe(false);
  });
});

describe('the store of the holds', () => {
  const signal = new AbortController().signal;
  const store = (): HoldStore => new HoldStore({ s3: world.s3, bucket: LEDGER, clock: world.clock, nonce: randomUUID });
  /** Adds a pause to a route. */
  const pausing = (name: string) => (draft: Holds) => {
    draft.routes[name] = { paused: { since: 1 } };
  };

  it('loses no change that comes while it writes', async () => {
    await start();
    const one = store();
    let isFirst = true;
    world.beforeS3((call) => {
      if (call !== 'PutObject' || !isFirst) return;
      isFirst = false;
      one.later(pausing('late'));
    });
    await one.change(pausing('first'), signal);
    await one.flush(signal);
    expect(Object.keys((await holds()).routes)).toEqual(['first', 'late']);
  });

  it('makes no change later that could not be written at the end of an invocation', async () => {
    await start();
    const one = store();
    one.later(pausing('late'));
    await expect(one.flush(AbortSignal.abort())).rejects.toThrow();
    await one.change(pausing('next'), signal);
    expect(Object.keys((await holds()).routes)).toEqual(['next']);
  });

  it('does a change although another one that shares its write is given up', async () => {
    await start();
    const one = store();
    const given = new AbortController();
    world.beforeS3((call) => {
      if (call === 'PutObject') given.abort(new Error('out of time'));
    });
    const [first, second] = await Promise.allSettled([
      one.change(pausing('given up'), given.signal),
      one.change(pausing('kept'), signal),
    ]);
    expect(first.status).toBe('rejected');
    expect(second.status).toBe('fulfilled');
    expect(Object.keys((await holds()).routes)).toContain('kept');
  });
});

describe('the price in an entry', () => {
  const at = (amount: number) => [{ ...ECHO, price: { amount, currency: 'EUR' } }];
  const price = async () => (await world.entry()).route.price?.amount;
  /** Delivers the file while the service answers so. */
  const deliverTo = async (faults: Partial<Record<Operation, Fault>>) => {
    world.service.intercept = (_, { operation }) => faults[operation];
    await world.deliverAll();
    world.service.intercept = undefined;
  };
  const DOWN = { createFlow: { status: 503, at: 'before-body' } } as const;

  it('is that of the attempt that made the flow, as it was counted', async () => {
    await start({ routes: at(1) });
    await world.upload('a');
    await deliverTo(DOWN);
    expect(await world.entry()).toMatchObject({ state: 'waiting' });
    world.redeploy({ routes: at(2) });
    await world.settle();
    expect(await world.entry()).toMatchObject({ state: 'succeeded', route: { price: { amount: 2 } } });
    expect(await world.receipt('a')).toMatchObject({ price: { amount: 2, currency: 'EUR' } });
    expect(Object.values((await holds()).costs)).toEqual([{ '["echo","","EUR"]': { flows: 1, micros: 2_000_000 } }]);
  });

  it('is gone with the price of the route', async () => {
    await start({ routes: at(1) });
    await world.upload('a');
    await deliverTo(DOWN);
    world.redeploy({ routes: [ECHO] });
    await world.settle();
    expect(await price()).toBeUndefined();
    expect(await world.receipt('a')).not.toHaveProperty('price');
  });

  it('is that of the lost request whose flow was found', async () => {
    await start({ routes: at(1) });
    await world.upload('a');
    await deliverTo(DOWN);
    world.redeploy({ routes: at(2) });
    await world.tickAfter(6 * MINUTE);
    await deliverTo({ createFlow: { reset: 'after-effect' }, listFlows: { status: 500 } });
    expect(await world.entry()).toMatchObject({ state: 'waiting', doubt: {} });
    world.redeploy({ routes: at(3) });
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect(await price()).toBe(2);
  });
});

describe('a flow that may exist', () => {
  it('stays counted when the operator has the held upload sent again', async () => {
    await start({ settings: { budget: DAY, inDoubt: 'ask' }, speaks: { list: null } });
    world.fault('createFlow', { reset: 'after-effect' }, 1);
    await world.upload('a');
    await world.deliverAll();
    await world.deliverAndTick(2, 6 * MINUTE);
    await world.deliverAll();
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'undecided' });
    world.service.intercept = undefined;
    expect(await world.retry()).toBe('resubmitted');
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(2);
    expect(await spent()).toBe(2);
  });
});

describe('flows that may exist', () => {
  /** Sends so many files. The service fails after the last byte of each, and makes no flow. */
  const loseAll = async (count: number) => {
    world.fault('createFlow', answer({}, 500), count);
    for (let n = 0; n < count; n += 1) await world.upload(`lost-${n}`);
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(0);
  };

  it('are uncounted once it is proven that they do not, so that the budget has room for their files', async () => {
    await start({ settings: { budget: { ...DAY, flows: 3 } } });
    await loseAll(3);
    expect(await spent()).toBe(3);
    await world.waitOutDoubt();
    expect(world.service.flows).toHaveLength(3);
    expect(await spent()).toBe(3);
    expect((await world.entries()).map(({ state, countedFlows }) => [state, countedFlows])).toEqual(
      Array(3).fill(['succeeded', undefined]),
    );
  });

  it('are uncounted once only, if the invocation dies right after', async () => {
    await start({ settings: { budget: { ...DAY, flows: 5 } } });
    await loseAll(1);
    await world.upload('b');
    await world.deliverAll();
    expect(await spent()).toBe(2);
    const live = dyingAt(world.ports.flows, 'create');
    await world.deliverAndTick(2, 6 * MINUTE);
    live();
    world.redeploy({});
    await world.waitOutDoubt();
    await world.settle();
    expect(world.service.flows).toHaveLength(2);
    expect(await spent()).toBeGreaterThanOrEqual(2);
    expect(await spent()).toBeLessThanOrEqual(3);
  });

  it('stay counted while the upload waits for the operator', async () => {
    await start({ settings: { budget: DAY, inDoubt: 'ask' }, speaks: { list: null } });
    await loseAll(1);
    await world.waitOutDoubt();
    expect(await world.entry()).toMatchObject({ reason: 'undecided', countedFlows: [{ micros: 0 }] });
    expect(await spent()).toBe(1);
  });
});

describe('a refusal after the last byte in the words of the service', () => {
  it('is uncounted at once', async () => {
    await start({ settings: { budget: DAY } });
    world.fault('createFlow', answer({ detail: 'Not now' }, 409));
    await world.upload('a');
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(0);
    expect(await holds()).toMatchObject({ pipeline: { spent: { flows: 0 } } });
  });
});

describe('a route', () => {
  it('of any name is counted', async () => {
    await start({ routes: [{ ...ECHO, name: 'constructor', budget: DAY }] });
    for (const key of ['a', 'b', 'c', 'd']) await world.upload(key);
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(2);
    expect((await holds()).routes).toMatchObject({ constructor: { spent: { flows: 2 } } });
  });

  it('that was removed is forgotten, apart from its pause, and from what it spent lately', async () => {
    await start();
    const period = new Date(world.clock.now()).toISOString().slice(0, 'yyyy-mm-dd'.length);
    const request = { template: 't', input: 'file', parameters: 'x'.repeat(1_000) };
    const succeeded = { at: 1, request };
    const state = {
      ...NO_HOLDS,
      routes: {
        echo: { succeeded },
        gone: { succeeded, spent: { period: '2020-01', flows: 1, micros: 0 } },
        paused: { succeeded, paused: { since: 1 } },
        spent: { succeeded, spent: { period, flows: 1, micros: 0 } },
      },
    };
    await world.put(LEDGER, HOLDS, JSON.stringify(state));
    await world.collect();
    const { echo, paused, spent: left } = state.routes;
    expect((await holds()).routes).toEqual({
      echo,
      paused: { paused: paused.paused },
      spent: { spent: left.spent },
    });
  });
});

describe('a budget of no flow', () => {
  it('is told once', async () => {
    await start({ settings: { budget: { ...DAY, flows: 0 } } });
    for (let tick = 0; tick < 3; tick += 1) {
      world.clock.advance(MINUTE);
      await world.collect();
    }
    expect(world.events.filter(({ detailType }) => detailType === 'Budget Reached')).toHaveLength(1);
  });
});
