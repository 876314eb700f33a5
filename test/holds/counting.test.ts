import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { HoldStore } from '../../functions/holds/hold-store.ts';
import {
  type Attempt,
  admit,
  type Holds,
  isCounted,
  NO_HOLDS,
  RESERVATIONS_MAX,
  release,
} from '../../functions/holds/holds.ts';
import { uploadId } from '../../functions/uploads/upload.ts';
import type { Operation } from '../../local/flow-service/call.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { attemptOf } from '../support/attempt.ts';
import { answer, ECHO, HOUR, LEDGER, MINUTE, start, world } from '../support/world.ts';

const HOLDS = 'state/holds.json';
const NOON = Date.UTC(2030, 0, 1, 12);
const DAY = { flows: 2, per: 'day', timezone: 'UTC' } as const;

const holds = (): Promise<Holds> => world.json<Holds>(LEDGER, HOLDS);
const spent = async () => (await holds()).pipeline.spent?.flows;

describe('the count of a budget', () => {
  const empty = (): Holds => structuredClone(NO_HOLDS);
  const attempt = (uploadId: string, more: Partial<Attempt> = {}): Attempt =>
    attemptOf(uploadId, { pipeline: DAY, ...more });
  const end = (draft: Holds, { uploadId, nonce }: Attempt, which: 'latest' | 'all' = 'all'): void =>
    release(draft, `${uploadId}.1`, nonce, which);
  const flows = (draft: Holds) => draft.pipeline.spent?.flows;

  it('keeps the flow of an attempt in doubt when the next attempt is refused', () => {
    const draft = empty();
    admit(draft, attempt('a'), NOON);
    const second = attempt('a', { isResent: true });
    admit(draft, second, NOON);
    expect(flows(draft)).toBe(2);
    for (const _ of [1, 2]) end(draft, second, 'latest');
    expect(flows(draft)).toBe(1);
    // The doubt was settled: there was no flow.
    admit(draft, attempt('a'), NOON);
    expect(flows(draft)).toBe(1);
  });

  it('gives a flow back to the period that it was counted in, and to no other', () => {
    const midnight = Date.UTC(2030, 0, 2);
    const draft = empty();
    const early = attempt('a');
    admit(draft, early, midnight - MINUTE);
    admit(draft, attempt('b'), midnight + MINUTE);
    end(draft, early);
    expect(draft.pipeline.spent).toMatchObject({ period: '2030-01-02', flows: 1 });
  });

  it('gives back as much as was counted, although the price has changed', () => {
    const money = { amount: 10, currency: 'EUR', per: 'day', timezone: 'UTC' } as const;
    const draft = empty();
    const cost = (amount: number) => ({ pipeline: money, price: { amount, currency: 'EUR' } });
    admit(draft, attempt('a', cost(1)), NOON);
    const second = attempt('a', { ...cost(4), isResent: true });
    admit(draft, second, NOON);
    expect(draft.pipeline.spent?.micros).toBe(5_000_000);
    end(draft, second, 'latest');
    expect(draft.pipeline.spent?.micros).toBe(1_000_000);
  });

  it('gives nothing back to a budget that came later', () => {
    const draft = empty();
    const early = attempt('a', { pipeline: undefined, route: DAY });
    admit(draft, early, NOON);
    admit(draft, attempt('b'), NOON);
    end(draft, early);
    expect(flows(draft)).toBe(1);
  });

  it('goes on in each period while invocations of two configurations count', () => {
    const draft = empty();
    const week = { ...DAY, per: 'week' } as const;
    const passed = Array.from({ length: 20 }, (_, n) =>
      admit(draft, attempt(`${n}`, { pipeline: n % 2 === 0 ? DAY : week }), NOON),
    ).filter((held) => held === undefined);
    expect(passed).toHaveLength(4);
  });

  it('has a bound for what is open, which holds nothing back', () => {
    const draft = empty();
    const many = { ...DAY, flows: 10_000 };
    draft.reservations = Object.fromEntries(
      Array.from({ length: RESERVATIONS_MAX }, (_, n) => [
        `${n}.1`,
        { route: 'r', prefix: '', at: NOON, counted: [{ micros: 0, currency: '', at: NOON }], nonce: '' },
      ]),
    );
    expect(admit(draft, attempt('new', { pipeline: many }), NOON)).toBeUndefined();
    expect(Object.keys(draft.reservations)).toHaveLength(RESERVATIONS_MAX);
    expect(draft.reservations).toHaveProperty(['new.1']);
    expect(draft.reservations).not.toHaveProperty(['0.1']);
  });

  it('of a failing route has no place for a second trial within an hour, however many processes ask at once', () => {
    const draft = empty();
    const verdict = { code: 'rejected', message: 'no' };
    draft.routes.r = { failing: { ...verdict, since: NOON - 2 * HOUR, customers: [], moreCustomers: 0 } };
    const late = { pipeline: undefined, isLate: true };
    expect(admit(draft, attempt('a', late), NOON)).toBeUndefined();
    expect(admit(draft, attempt('b', late), NOON)).toMatchObject({ reason: 'failing' });
    expect(admit(draft, attempt('c', { ...late, isLate: false }), NOON)).toBeUndefined();
    expect(admit(draft, attempt('b', late), NOON + HOUR - 1)).toMatchObject({ reason: 'failing' });
    expect(admit(draft, attempt('b', late), NOON + HOUR)).toBeUndefined();
  });

  it('is kept for a price alone, so that its costs can be told, and not without one', () => {
    expect(isCounted(attempt('a', { pipeline: undefined, price: { amount: 1, currency: 'EUR' } }))).toBe(true);
    expect(isCounted(attempt('a', { pipeline: undefined }))).toBe(false);
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
      one.later(pausing('late'), true);
    });
    await one.change(pausing('first'), signal);
    await one.flush(signal);
    expect(Object.keys((await holds()).routes)).toEqual(['first', 'late']);
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

describe('a refusal after the last byte in the words of the service', () => {
  it('is uncounted at once', async () => {
    await start({ settings: { budget: DAY } });
    world.fault('createFlow', answer({ detail: 'Not now' }, 409));
    await world.upload('a');
    await world.deliverAll();
    expect(world.service.flows).toHaveLength(0);
    expect(await holds()).toMatchObject({ pipeline: { spent: { flows: 0 } }, reservations: {} });
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

describe('reservations', () => {
  it('of which many are in doubt for long keep no other from its end', async () => {
    await start({ settings: { budget: { ...DAY, flows: 1_000 } } });
    await world.upload('a');
    await world.deliverAll();
    const entry = await world.entry();
    const { flow: _, ...facts } = { flow: undefined, ...entry };
    const waiting = {
      ...facts,
      state: 'waiting',
      reason: 'in-doubt',
      message: 'x',
      notBefore: world.clock.now() + HOUR,
    };
    const reservations: Holds['reservations'] = {};
    for (let n = 0; n < 250; n += 1) {
      const upload = { ...entry.upload, key: `k${n}` };
      const id = uploadId(upload);
      reservations[`${id}.1`] = {
        route: 'echo',
        prefix: '',
        at: 1,
        counted: [{ micros: 0, currency: '', at: 1 }],
        nonce: '',
      };
      const own = { ...waiting, upload: { ...upload, id }, ...(n < 240 && { doubt: { claimedAt: 1, sentBy: 1 } }) };
      await world.put(LEDGER, `uploads/${id}.json`, JSON.stringify(own));
    }
    await world.put(LEDGER, HOLDS, JSON.stringify({ ...NO_HOLDS, reservations }));
    for (let tick = 0; tick < 2; tick += 1) {
      world.clock.advance(MINUTE);
      await world.collect();
    }
    expect(Object.keys((await holds()).reservations)).toHaveLength(240);
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
