import { beforeEach, describe, expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { answer, dyingAt, ECHO, HOUR, LEDGER, MINUTE, RESULTS, start, world } from '../support/world.ts';

const HOLDS = 'state/holds.json';
const SWEEP = 'state/sweep.json';
const never = new AbortController().signal;

const ROUTES: readonly Route[] = [
  { ...ECHO, name: 'failing', prefixes: ['fails'], parameters: { fail: true } },
  { ...ECHO, name: 'first', prefixes: ['chain'] },
  { ...ECHO, name: 'second', after: 'first' },
  ECHO,
];

/** The texts of the objects of the ledger that have a format, by key. */
async function objects(): Promise<Record<string, string>> {
  const keys = (await world.keys(LEDGER)).filter((key) => /^(uploads|chains)\/|^state\/(holds|sweep)\./.test(key));
  const texts = keys.map(async (key) => [key, (await world.object(LEDGER, key)).bytes.toString()] as const);
  return Object.fromEntries(await Promise.all(texts));
}

/** Time passes. A tick that cannot read an entry fails at its end. */
async function pass(times: number, ms = MINUTE): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    world.clock.advance(ms);
    await world.collect().catch(() => undefined);
    await world.deliverAll();
  }
}

/** An object as a version of that format may write it, with a member that this version does not know. */
const inFormat = (format: number | undefined, text: string): string =>
  JSON.stringify({ ...JSON.parse(text), schema: format, other: { more: true } });

async function write(texts: Readonly<Record<string, string>>): Promise<void> {
  for (const [key, text] of Object.entries(texts)) await world.put(LEDGER, key, text);
}

const states = async () => {
  const entries = (await world.entries()).map((entry) => [
    `${entry.upload.stage?.route ?? entry.upload.key}`,
    entry.state === 'waiting' ? entry.reason : entry.state,
  ]);
  return Object.fromEntries(entries) as Record<string, string>;
};

let flowMs: number;

/** Uploads in the middle of work. */
beforeEach(async () => {
  flowMs = 0;
  await start({ routes: ROUTES, service: { flowMs: () => flowMs } });
  await world.collect({ hold: { action: 'pause', route: 'second' } });
  for (const key of ['ended', 'fails', 'chain']) await world.send(key, `the file ${key}`);
  await pass(2);
  flowMs = 3 * HOUR;
  await world.send('runs', 'the file runs');
  world.fault('createFlow', answer({ detail: 'Too many' }, 429));
  await world.send('throttled', 'the file throttled');
  world.service.intercept = undefined;
  await world.upload('claimed', 'the file claimed');
  const revive = dyingAt(world.ports.ledger, 'replace');
  await world.deliver();
  revive();
  expect(await states()).toEqual({
    ended: 'succeeded',
    fails: 'failed',
    chain: 'succeeded',
    second: 'paused',
    runs: 'running',
    throttled: 'throttled',
    claimed: 'claimed',
  });
});

describe.each([5, 7])('a version that meets format %i', (format) => {
  it('leaves all objects as they are, sends and collects nothing of them, and loses nothing', async () => {
    const before = await objects();
    const sent = world.sentKeys;
    const results = await world.keys(RESULTS);
    const after = Object.fromEntries(Object.entries(before).map(([key, text]) => [key, inFormat(format, text)]));
    expect(Object.keys(after)).toEqual(expect.arrayContaining([HOLDS, SWEEP, expect.stringMatching(/^chains\//)]));
    await write(after);
    await pass(5, 20 * MINUTE);
    await pass(2, 25 * HOUR);
    expect(await objects()).toEqual(after);
    expect(world.sentKeys).toEqual(sent);
    expect(await world.keys(RESULTS)).toEqual(results);
    expect(world.count('EntriesUnreadable')).toBeGreaterThan(0);
    expect(world.count('SweepStateDamaged')).toBe(0);
  });

  it('leaves everything to the other version, which finishes it, and no file is paid for twice', async () => {
    const before = await objects();
    await write(Object.fromEntries(Object.entries(before).map(([key, text]) => [key, inFormat(format, text)])));
    await pass(5, 20 * MINUTE);
    // The present version stands in for the other one, which reads its own objects.
    await write(before);
    for (const { body } of world.deadLetters.receive({ max: 10 })) world.queue.send(body);
    flowMs = 0;
    await world.collect({ hold: { action: 'resume', route: 'second' } });
    await pass(6, HOUR);
    await world.settle();
    expect(await states()).toEqual({
      ended: 'succeeded',
      fails: 'failed',
      chain: 'succeeded',
      second: 'succeeded',
      runs: 'succeeded',
      throttled: 'succeeded',
      claimed: 'succeeded',
    });
    expect(world.service.flows).toHaveLength(7);
  });

  it.each<[what: string, key: (entry: Entry) => string, consequence: string, read: (entry: Entry) => Promise<unknown>]>(
    [
      [
        'an entry',
        ({ upload }) => `uploads/${upload.id}.json`,
        'its upload does not go on',
        ({ upload }) => world.ports.ledger.read(upload.id, never),
      ],
      [
        'a chain',
        ({ upload }) => `chains/${upload.id}.json`,
        'its chain does not go on',
        ({ upload }) => world.ports.chains.read(upload.id, never),
      ],
      ['the holds', () => HOLDS, 'nothing is sent', () => world.ports.holds.read(never)],
      ['the state of the sweep', () => SWEEP, 'no sweep runs', () => world.requestSweep({ status: true })],
    ],
  )('of %s says which it is, which it knows and what to do', async (_, keyOf, consequence, read) => {
    const entry = (await world.entries()).find(({ upload }) => upload.key === 'chain') as Entry;
    const key = keyOf(entry);
    await write({ [key]: inFormat(format, (await world.object(LEDGER, key)).bytes.toString()) });
    world.clock.advance(MINUTE);
    const [age, todo] =
      format > 6
        ? ['a newer', 'Deploy that version again.']
        : ['an older', 'Deploy that version until its uploads have ended. Then begin this one with an empty ledger.'];
    await expect(read(entry)).rejects.toMatchObject({
      message: `${key} has format ${format} of the ledger: ${age} version of Flowdrop wrote it. This version reads format 6, and leaves the object as it is. ${todo} Until then, ${consequence}.`,
    });
  });
});

it('the state of the sweep without a format is that of the first one', async () => {
  const text = inFormat(undefined, (await world.object(LEDGER, SWEEP)).bytes.toString());
  await write({ [SWEEP]: text });
  await expect(world.requestSweep({ status: true })).rejects.toThrow(`${SWEEP} has format 1 of the ledger: an older`);
  expect((await objects())[SWEEP]).toBe(text);
});

it('an upload of another format is reported, and makes no dead letters', async () => {
  const [entry] = (await world.entries()).filter(({ upload }) => upload.key === 'throttled');
  const key = `uploads/${entry?.upload.id}.json`;
  await write({ [key]: inFormat(5, (await world.object(LEDGER, key)).bytes.toString()) });
  await pass(30, HOUR);
  expect(world.deadLetters.receive({ max: 10 })).toEqual([]);
  expect(world.logged.map(({ fields }) => String(fields.error))).toContainEqual(
    expect.stringMatching(`^UnreadableEntryError: ${key} has format 5`),
  );
});
