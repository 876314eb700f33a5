import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import { ECHO, LEDGER, MINUTE, openWorld, RESULTS, TOKEN, type World } from '../support/world.ts';

/** An upload to the inbox, or a creation that the service answered, so many milliseconds after the start. */
type Step =
  | { readonly at: number; readonly put: string }
  /** `id` is the number from which the service counted the ids of the flow and its assets. */
  | { readonly at: number; readonly id: number; readonly post: object };

/**
 * What commit 0983226 left behind in the middle of work: a run of its functions wrote all of it. The claim's invocation
 * died after its POST, the tick of `two-collected` between two assets, and a backfill was cut off.
 */
interface Fixture {
  readonly at: number;
  readonly steps: readonly Step[];
  /** By key. A marker has no body. */
  readonly ledger: Readonly<Record<string, object | null>>;
  readonly results: Readonly<Record<string, { text: string; metadata: Record<string, string> }>>;
}

const fixture = JSON.parse(readFileSync(new URL('upgrade.json', import.meta.url), 'utf8')) as Fixture;

const entries = Object.entries(fixture.ledger).flatMap(([key, body]) =>
  key.startsWith('uploads/') ? [body as unknown as Entry] : [],
);

/** Makes a flow of the fixture again. */
async function makeFlow(world: World, post: object): Promise<void> {
  const body = Buffer.from(JSON.stringify(post));
  const headers = {
    authorization: `Bearer ${TOKEN}`,
    'content-type': 'application/json',
    'content-length': String(body.length),
  };
  const chunks = (async function* () {
    yield body;
  })();
  await world.service.handle({ method: 'POST', url: '/flows', headers, body: chunks });
}

/** A world of the present version with the inbox, the flows, the ledger and the results that the old one left. */
async function upgraded(): Promise<World> {
  let ids = 0;
  const world = await openWorld({
    isVirtual: true,
    versioning: undefined,
    routes: [
      { ...ECHO, name: 'failing', prefixes: ['fail'], parameters: { fail: true } },
      { ...ECHO, name: 'two', prefixes: ['two'], parameters: { copies: 2 } },
      ECHO,
    ],
    settings: { inDoubt: 'hold' },
    service: {
      newId: () => {
        ids += 1;
        return `id${String(ids).padStart(6, '0')}`;
      },
    },
  });
  const claimMessages: string[] = [];
  const start = world.clock.now();
  const waitUntil = (at: number) => world.clock.advance(start + at - world.clock.now());
  for (const step of fixture.steps) {
    waitUntil(step.at);
    if ('put' in step) await world.upload(step.put, `the file ${step.put}`);
    else {
      ids = step.id - 1;
      await makeFlow(world, step.post);
    }
  }
  // Only the message of the claim whose invocation died is still in the queue.
  for (let taken = world.takeMessages(); taken.length > 0; taken = world.takeMessages()) {
    claimMessages.push(...taken.filter((message) => message.includes('"claimed"')));
  }
  for (const message of claimMessages) world.queue.send(message);
  waitUntil(fixture.at);
  ids = 900_000;
  for (const [key, body] of Object.entries(fixture.ledger)) {
    await world.put(LEDGER, key, body === null ? '' : JSON.stringify(body));
  }
  for (const [key, { text, metadata }] of Object.entries(fixture.results))
    await world.put(RESULTS, key, text, metadata);
  return world;
}

describe('an upgrade in the middle of work', () => {
  it('reads an entry of every state that the earlier version wrote', async () => {
    const world = await upgraded();
    const states = new Set(entries.map((entry) => (entry.state === 'waiting' ? entry.reason : entry.state)));
    expect([...states].sort()).toEqual([
      'claimed',
      'failed',
      'held',
      'in-doubt',
      'retried',
      'running',
      'succeeded',
      'throttled',
    ]);
    const { signal } = new AbortController();
    for (const { upload, state } of entries) {
      expect((await world.ports.ledger.read(upload.id, signal))?.entry.state).toBe(state);
    }
  });

  it('finishes everything, and no file is paid for twice', async () => {
    const world = await upgraded();
    world.clock.advance(10 * MINUTE);
    for (let runs = 0; runs < 20; runs += 1) {
      await world.continueSweep();
      await world.deliverAll();
      world.clock.advance(MINUTE);
    }
    await world.settle();
    const flows = world.sentKeys;
    const ends = await Promise.all(
      [...entries.map(({ upload }) => upload.key), 'missed-1', 'missed-2', 'missed-3'].map(async (key) => {
        const { status } = await world.receipt(key);
        return [key, status, flows.filter((of) => of === key).length];
      }),
    );
    expect(Object.fromEntries(ends.map(([key, ...end]) => [key, end]))).toEqual({
      succeeded: ['succeeded', 1],
      'fail-told': ['failed', 1],
      // The operator had it retried.
      'fail-retried': ['failed', 2],
      'in-doubt': ['succeeded', 1],
      held: ['succeeded', 1],
      'two-collected': ['succeeded', 1],
      running: ['succeeded', 1],
      claimed: ['succeeded', 1],
      throttled: ['succeeded', 1],
      'missed-1': ['succeeded', 1],
      'missed-2': ['succeeded', 1],
      'missed-3': ['succeeded', 1],
    });
    expect((await world.receipt('two-collected')).assets).toHaveLength(2);
    expect(await world.json(LEDGER, 'state/sweep.json')).toMatchObject({ ended: { backfill: expect.anything() } });
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
    expect(await world.keys(LEDGER, 'failed/')).toHaveLength(2);
    expect(world.count('SweepStateDamaged')).toBe(0);
  });
});
