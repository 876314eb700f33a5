import { describe, expect, it } from 'vitest';
import { CASES, type Case, putsOf, spentAlone, unitsOf } from '../../bench/rows/alone.ts';
import { billFor, NOTHING, type Spent } from '../../bench/rows/spent.ts';
import { Stage } from '../../bench/stage.ts';
import type { Counts } from '../../bench/statistics.ts';
import { DAY, MINUTE, openWorld, SECOND, type World } from '../support/world.ts';

type Name = keyof typeof CASES;
const NAMES = Object.keys(CASES) as Name[];

/** What a tick that finds nothing asks of S3. */
const TICK: Spent = { ...NOTHING, invocations: 1, requests: { GetObject: 3, ListObjectsV2: 2, PutObject: 2 } };

/** Requests of a case up to its last receipt, without those of {@link TICK}. */
const FLOW = { GetObject: 3, PutObject: 6, DeleteObject: 1, PutEvents: 1 };
const REQUESTS: Readonly<Record<Name, Counts>> = {
  file: FLOW,
  pair: { GetObject: 6, PutObject: 12, DeleteObject: 2, PutEvents: 2 },
  chain: { GetObject: 10, HeadObject: 1, PutObject: 17, DeleteObject: 2, PutEvents: 3 },
  jobOf2: { ...FLOW, GetObject: 5, HeadObject: 7, PutObject: 7, ListObjectVersions: 1 },
  jobOf3: { ...FLOW, GetObject: 6, HeadObject: 10, PutObject: 7, ListObjectVersions: 1 },
};

/** How often an operation was called, without the operations that were not. */
const called = (counts: Counts): Counts => Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));

/** A deployment that has worked before. `counts` has its requests to S3 and its events since then. */
async function started(one: Case): Promise<{ readonly world: World; readonly counts: Record<string, number> }> {
  const world = await openWorld({ isVirtual: true, routes: one.routes });
  for (const { key, job } of putsOf(one, 'first')) await world.send(key, job);
  await world.settle();
  await world.collect();
  const counts: Record<string, number> = {};
  world.beforeS3((call) => {
    counts[call] = (counts[call] ?? 0) + 1;
  });
  return { world, counts };
}

describe('what comes alone', () => {
  it.each(NAMES)('makes the requests that are paid for, in the embedded S3 too: %s', async (name) => {
    const { world, counts } = await started(CASES[name]);
    const puts = putsOf(CASES[name], 'a');
    const fetched = world.service.counts.getAsset;
    const told = world.events.length;
    for (const { key, job } of puts) {
      world.clock.advance(2 * SECOND);
      await world.send(key, job);
    }
    let ticks = 0;
    do {
      ticks += 1;
      world.clock.advance(5 * MINUTE);
      await world.collect();
      world.clock.advance(2 * SECOND);
    } while ((await world.deliver()) !== undefined);
    const own = Object.entries(counts).map(([call, count]) => {
      // The flows here make an asset of each input.
      const more = puts.length + world.service.counts.getAsset - fetched - CASES[name].flows;
      return [call, count - ticks * (TICK.requests[call] ?? 0) - (call === 'PutObject' ? more : 0)];
    });
    const PutEvents = world.events.length - told;
    expect(called({ ...Object.fromEntries(own), PutEvents })).toEqual(REQUESTS[name]);
  });

  it('is played by the benchmark with the same requests', async () => {
    const stage = await Stage.start();
    try {
      for (const name of NAMES) {
        const { requests, invocations } = await spentAlone(stage, CASES[name], TICK, {
          monitoring: 'alarms',
          warmUp: 1,
          counted: 1,
          answerMs: 0,
        });
        const { SendMessage, ReceiveMessage, DeleteMessage, ...others } = requests;
        expect.soft(called(others), name).toEqual(REQUESTS[name]);
        const puts = putsOf(CASES[name], 'a').length;
        // A tick sends the message of a later stage.
        const messages = name === 'chain' ? puts + 1 : puts;
        expect.soft({ SendMessage, ReceiveMessage, DeleteMessage }, name).toEqual({
          SendMessage: messages,
          ReceiveMessage: messages,
          DeleteMessage: messages,
        });
        expect.soft(invocations, name).toBe(messages);
      }
    } finally {
      await stage.close();
    }
  });

  it.each(NAMES)('is read by the daily sweeps as often as is paid for: %s', async (name) => {
    const { world, counts } = await started(CASES[name]);
    let sweptAt = world.clock.now();
    const sweep = async (): Promise<number> => {
      sweptAt += DAY;
      world.clock.advance(sweptAt - world.clock.now());
      const { GetObject = 0, HeadObject = 0 } = counts;
      await world.sweep();
      return (counts.GetObject ?? 0) + (counts.HeadObject ?? 0) - GetObject - HeadObject;
    };
    await sweep();
    const nothing = await sweep();
    for (const { key, job } of putsOf(CASES[name], 'a')) await world.upload(key, job);
    await world.settle();
    let reads = 0;
    for (let day = 0; day < 5; day += 1) reads += (await sweep()) - nothing;
    expect(reads / unitsOf(CASES[name])).toBe(CASES[name].sweepReads);
  });
});

it('a bill adds up by hand, and knows no request without a price', () => {
  const spent: Spent = {
    gbSeconds: 1_000,
    invocations: 1_000_000,
    requests: { PutObject: 1_000, GetObject: 10_000, DeleteObject: 5, SendMessage: 1_000_000, PutEvents: 1_000_000 },
    served: { receivedBytes: 1e9 },
    loggedBytes: 2e9,
    metrics: [],
  };
  const bill = { lambda: 0.0133334 + 0.2, s3: 0.005 + 0.004, queue: 0.4, events: 1, logs: 1, transfer: 0.09 };
  for (const [name, dollars] of Object.entries(bill)) {
    expect(billFor(spent)[name as keyof typeof bill], name).toBeCloseTo(dollars, 9);
  }
  expect(() => billFor({ ...spent, requests: { RestoreObject: 1 } })).toThrow('There is no price of RestoreObject');
});
