import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { CreatePorts } from '../../functions/create-flow/delivery.ts';
import type { Entry, WaitingEntry } from '../../functions/ledger/entry.ts';
import { LEDGER, World, type WorldOptions } from '../support/world.ts';

const MINUTE = 60_000;

let world: World;
const start = async (options?: WorldOptions) => {
  world = await World.start(options);
  onTestFinished(() => world.close());
};

/** Ports of an invocation that dies while it sends a file called `crasher`: from then on nothing of it is done or answered. */
function mortal(ports: World['ports']): { readonly ports: World['ports']; readonly death: Promise<'died'> } {
  const never = new Promise<never>(() => {});
  const died = Promise.withResolvers<'died'>();
  let isDead = false;
  void died.promise.then(() => {
    isDead = true;
  });
  const guarded = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(_, name) {
        const value = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        return async (...args: readonly unknown[]) => {
          if (isDead) return never;
          const result = await Reflect.apply(value, target, args).catch((error: unknown) => (isDead ? never : error));
          if (isDead) return never;
          if (result instanceof Error) throw result;
          return result;
        };
      },
    });
  const create: CreatePorts['flows']['create'] = async (request, signal) => {
    const isCrasher = request.input.additional.key === 'crasher';
    // All files of a batch are under way by then, and none has been sent.
    await sleep(isCrasher ? 100 : 200);
    if (isCrasher) died.resolve('died');
    return isDead || isCrasher ? never : ports.flows.create(request, signal);
  };
  const flows = new Proxy(ports.flows, {
    get: (target, name) => (name === 'create' ? create : Reflect.get(target, name, target).bind(target)),
  });
  const { ledger, receipts, inbox, events } = ports;
  return {
    ports: {
      ...ports,
      ledger: guarded(ledger),
      receipts: guarded(receipts),
      inbox: guarded(inbox),
      events: guarded(events),
      flows,
    },
    death: died.promise,
  };
}

/** A delivery of which the messages come again where its invocation dies. */
async function deliver(): Promise<'died' | 'done' | undefined> {
  const alive = world.ports;
  const { ports, death } = mortal(alive);
  world.ports = ports;
  const delivery = world.deliver().then((response) => (response === undefined ? undefined : ('done' as const)));
  world.ports = alive;
  return Promise.race([delivery, death]);
}

describe('a file at which its invocation dies', () => {
  it('costs the others of its batch one attempt, and not the next ones', { timeout: 60_000 }, async () => {
    await start({ settings: { attemptsMax: 2 } });
    const others = ['a', 'b', 'c', 'd'];
    for (const key of ['crasher', ...others]) await world.upload(key, key);
    let deaths = 0;
    for (let i = 0; i < 12; i += 1) {
      for (let result = await deliver(); result !== undefined; result = await deliver()) {
        if (result === 'died') deaths += 1;
      }
      world.clock.advance(5 * MINUTE);
      await world.tick();
    }
    for (const key of others) expect((await world.receipt(key)).status).toBe('succeeded');
    expect((await world.receipt('crasher')).failure?.code).toBe('attempts-exhausted');
    expect(deaths).toBe(2);
    expect(world.service.flows).toHaveLength(others.length);
    expect(world.count('UploadsReceived')).toBeLessThanOrEqual(10);
    world.clock.advance(61 * MINUTE);
    await world.tick();
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});

describe('an upload that the pace kept waiting past half of the time', () => {
  it('waits on in the ledger as throttled, due at once if it was never sent, and its message is done', async () => {
    await start({ speed: 10, settings: { uploadConcurrency: 1 } });
    world.remainingMs = MINUTE;
    // The first one is refused at once, and takes more than half of the time then. No other one is let in.
    world.service.intercept = (_, { operation, n }) => {
      if (operation !== 'createFlow') return undefined;
      return n === 2 ? { delayMs: 30_000 } : { status: 429, headers: { 'retry-after': '1' } };
    };
    for (const key of ['a', 'b', 'c', 'd']) await world.upload(key, 'x');
    const startedAt = world.clock.now();
    const failures = (await world.deliver())?.batchItemFailures;
    const endedAt = world.clock.now();
    expect(endedAt - startedAt).toBeGreaterThan(MINUTE / 2);
    expect(failures).toEqual([]);
    expect(world.queue.counts()).toMatchObject({ visible: 0, inFlight: 0 });

    const keys = await world.keys(LEDGER, 'uploads/');
    const entries = await Promise.all(keys.map((key) => world.json<Entry>(LEDGER, key)));
    const byKey = new Map(entries.map((entry) => [entry.upload.key, entry]));
    expect(byKey.get('a')).toMatchObject({ state: 'running' });
    expect(await world.keys(LEDGER, 'waiting/throttled/')).toHaveLength(3);
    // The second one was sent and refused; after that the service was left alone.
    expect(world.service.counts.createFlow).toBe(3);
    for (const key of ['b', 'c', 'd']) {
      expect(byKey.get(key)).toMatchObject({ state: 'waiting', reason: 'throttled', attempts: 0 });
    }
    for (const key of ['c', 'd']) {
      const entry = byKey.get(key) as WaitingEntry;
      expect(entry.notBefore).toBeLessThanOrEqual(endedAt + 2_000);
    }
  });

  it('goes back unattempted if no creation was ever refused', async () => {
    await start({ speed: 10, settings: { uploadConcurrency: 1 } });
    world.remainingMs = MINUTE;
    world.service.intercept = (_, { operation, n }) =>
      operation === 'createFlow' && n === 1 ? { delayMs: 30_000 } : undefined;
    for (const key of ['a', 'b']) await world.upload(key, 'x');
    expect((await world.deliver())?.batchItemFailures).toHaveLength(1);
    expect(await world.keys(LEDGER, 'uploads/')).toHaveLength(1);
  });
});
