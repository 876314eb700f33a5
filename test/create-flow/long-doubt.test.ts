import { describe, expect, it } from 'vitest';
import type { Entry, WaitingEntry } from '../../functions/ledger/entry.ts';
import { LEDGER, openWorld, TOKEN, type World, type WorldOptions } from '../support/world.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

/** Another client of the account makes a flow. */
async function makeFlow({ service }: World, index = 0): Promise<void> {
  const inputs = [{ data: 'data:text/plain;base64,AAAA', additional: {} }];
  const parameters = index % 4 === 1 ? { fail: true } : {};
  const flow = { template: 'bytes_echo', parameters, additional: { customer: 7 }, inputs };
  const body = Buffer.from(JSON.stringify(flow));
  const headers = {
    authorization: `Bearer ${TOKEN}`,
    'content-type': 'application/json',
    'content-length': String(body.length),
  };
  const chunks = (async function* () {
    yield body;
  })();
  await service.handle({ method: 'POST', url: '/flows', headers, body: chunks });
}

/** The first creation has its effect, or none, and its answer is lost. */
function losing(world: World, effect: 'made' | 'not made'): void {
  world.service.intercept = (_, { operation }) => {
    if (operation !== 'createFlow') return undefined;
    world.service.intercept = undefined;
    return effect === 'made' ? { reset: 'after-effect' } : { status: 500 };
  };
}

const ours = ({ service }: World) =>
  service.flows.filter(({ additional }) => (additional as { flowdrop?: unknown }).flowdrop !== undefined);

describe('a listing that was read before the flow had to be listed', () => {
  it('proves nothing, however late its answer comes', async () => {
    let isFrozen = false;
    const world: World = await openWorld({
      service: { flowMs: SECOND, variation: { listingDelayMs: 3 * MINUTE } },
      transport: (direct) => async (request, signal) => {
        const answer = await direct(request, signal);
        if (request.method === 'GET' && !isFrozen) {
          isFrozen = true;
          world.clock.advance(6 * MINUTE); // The process is frozen after the service has answered.
        }
        return answer;
      },
    });
    await makeFlow(world);
    world.clock.advance(10 * MINUTE);
    losing(world, 'made');
    await world.send('a');
    expect(isFrozen).toBe(true);
    expect(await world.entry()).toMatchObject({ state: 'waiting', reason: 'in-doubt' });
    await world.settle();
    expect(ours(world)).toHaveLength(1);
    expect((await world.receipt('a')).status).toBe('succeeded');
  });
});

/**
 * An upload whose first creation got no answer, in a busy account: a flow every three seconds. A look reads three pages
 * of ten.
 */
async function busyDoubt(effect: 'made' | 'not made', settings: WorldOptions['settings'] = {}) {
  let index = 0;
  const world = await openWorld({
    findPagesMax: 3,
    settings,
    service: {
      flowMs: () => {
        index += 1;
        return ((index * 37) % 60) * SECOND + SECOND;
      },
      variation: { paging: 'next_cursor', pageSize: 10, listingDelayMs: 30 * SECOND },
    },
  });
  const pass = async (ms: number) => {
    for (let passed = 0; passed < ms; passed += 3 * SECOND) {
      world.clock.advance(3 * SECOND);
      await makeFlow(world, index);
    }
  };
  const look = async (): Promise<Entry> => {
    await world.tick();
    await world.deliverAll();
    return world.entry();
  };
  /** Looks once a minute until the condition holds. Returns how often. */
  const looksUntil = async (isOver: (entry: Entry) => boolean): Promise<number> => {
    for (let looks = 1; looks < 60; looks += 1) {
      await pass(MINUTE);
      if (isOver(await look())) return looks;
    }
    throw new Error('It is not over');
  };
  await pass(12 * MINUTE);
  losing(world, effect);
  await world.send('a');
  return { world, pass, look, looksUntil };
}

const isWaitingInDoubt = (entry: Entry): boolean => entry.state === 'waiting' && entry.reason === 'in-doubt';
const isUnderWay = (entry: Entry): boolean => entry.doubt?.place !== undefined;

describe('a doubt in a listing that is longer than one look', () => {
  it('is settled in several looks: the flow is found', async () => {
    const { world, looksUntil } = await busyDoubt('made');
    expect(await looksUntil((entry) => !isWaitingInDoubt(entry))).toBeGreaterThan(5);
    expect(ours(world)).toHaveLength(1);
    expect(world.count('FlowsAdopted')).toBe(1);
    expect(world.count('DoubtsRetried')).toBe(0);
  });

  it('is settled in several looks: the flow is absent, and the upload is sent again', async () => {
    const { world, looksUntil } = await busyDoubt('not made', { inDoubt: 'hold' });
    await looksUntil((entry) => entry.state !== 'waiting');
    expect(ours(world)).toHaveLength(1);
    expect(world.count('DoubtsHeld')).toBe(0);
  });

  it('says how far the search has come', async () => {
    const { world, looksUntil } = await busyDoubt('made');
    await looksUntil(isUnderWay);
    const { message } = (await world.entry()) as WaitingEntry;
    expect(message).toMatch(/We have searched 30 flows of its listing, back to 20\S+Z, and go on\./);
  });

  it('whose place is damaged begins its search anew', async () => {
    const { world, looksUntil } = await busyDoubt('made');
    await looksUntil(isUnderWay);
    const { doubt, ...entry } = await world.entry();
    for (const place of [null, 'place', {}, { ...doubt?.place, flows: -1 }]) {
      const damaged = { ...entry, doubt: { ...doubt, place } };
      await world.put(LEDGER, `uploads/${entry.upload.id}.json`, JSON.stringify(damaged));
      await looksUntil((now) => now.doubt?.place?.looks === 1);
    }
    await looksUntil((now) => !isWaitingInDoubt(now));
    expect(ours(world)).toHaveLength(1);
  });

  it('is held when the search ends without a result, and then looked into once an hour', async () => {
    const { world, pass, look, looksUntil } = await busyDoubt('made', { inDoubt: 'hold' });
    await looksUntil(isUnderWay);
    world.service.variation.order = 'ascending'; // The service has changed.
    await looksUntil((entry) => entry.state === 'waiting' && entry.reason === 'held');
    world.service.variation.order = 'descending';
    await pass(61 * MINUTE);
    const before = world.service.counts.listFlows;
    expect(await look()).toMatchObject({ state: 'waiting', reason: 'held' });
    expect(world.service.counts.listFlows - before).toBeLessThanOrEqual(6);
  });
});
