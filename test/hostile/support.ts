import { inspect } from 'node:util';
import { expect, onTestFinished } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Receipt } from '../../functions/publish/receipts.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { tokenSpellings } from '../support/token-spellings.ts';
import { LEDGER, RESULTS, TOKEN, World, type WorldOptions } from '../support/world.ts';

export const MINUTE = 60_000;

/**
 * A world in which nothing may have leaked, and all results must be in place, when its test is over. The service answers
 * over HTTP. S3, whose answers are sound, does so only on request.
 */
export async function hostileWorld(options: WorldOptions = {}): Promise<World> {
  const world = await World.start({ hasS3Sockets: false, ...options });
  onTestFinished(async () => {
    await expectNothingLeaked(world);
    await expectResultsInPlace(world);
    await world.close();
  });
  return world;
}

/** The token is in no log line, error, cause, event, message, key or object. */
async function expectNothingLeaked(world: World): Promise<void> {
  const messages = [world.queue, world.deadLetters].flatMap((queue) => queue.receive({ max: 10 }));
  const said = [world.logged, world.events, messages].map((each) =>
    inspect(each, { depth: Infinity, maxArrayLength: null, maxStringLength: null }),
  );
  for (const bucket of [RESULTS, LEDGER]) {
    for (const key of await world.keys(bucket)) {
      const { bytes, mediaType, metadata } = await world.object(bucket, key);
      said.push(key, bytes.toString('latin1'), mediaType ?? '', JSON.stringify(metadata));
    }
  }
  for (const secret of tokenSpellings(TOKEN)) {
    expect(said.filter((text) => text.toLowerCase().includes(secret.toLowerCase()))).toEqual([]);
  }
}

/** Every result is a receipt or an asset that an entry names. If an upload has ended, there is a receipt. */
async function expectResultsInPlace(world: World): Promise<void> {
  const stored = await world.keys(RESULTS);
  const [receipts, assets] = [true, false].map((is) => stored.filter((key) => key.endsWith('/receipt.json') === is));
  const named = new Set<string>();
  for (const key of await world.keys(LEDGER, 'uploads/')) {
    const entry = await readEntry(world, key);
    if (entry?.state === 'succeeded' || entry?.state === 'failed') expect(receipts).not.toEqual([]);
    if (entry !== undefined && 'assets' in entry) for (const asset of entry.assets ?? []) named.add(asset.key);
  }
  expect(assets?.filter((key) => !named.has(key) || Buffer.byteLength(key) > 1024)).toEqual([]);
}

/** Reads an entry. Returns undefined if a test has damaged it. */
async function readEntry(world: World, key: string): Promise<Entry | undefined> {
  try {
    const entry = await world.json<Entry>(LEDGER, key);
    return entry?.schema === 1 && entry.upload?.id !== undefined ? entry : undefined;
  } catch {
    return undefined;
  }
}

/** An answer with a body. Default media type: JSON. */
export const saying = (body: NonNullable<Fault['body']>, more: Partial<Fault> = {}): Fault => ({
  status: 200,
  body,
  headers: { 'content-type': 'application/json' },
  ...more,
});

/** The only receipt. */
export async function onlyReceipt(world: World): Promise<Receipt> {
  const keys = (await world.keys(RESULTS)).filter((key) => key.endsWith('/receipt.json'));
  expect(keys).toHaveLength(1);
  return world.json<Receipt>(RESULTS, keys[0] ?? '');
}

/** Waits until the world has settled. Then returns the only receipt. */
export async function settledReceipt(world: World): Promise<Receipt> {
  await world.settle();
  return onlyReceipt(world);
}

/** A body without end. */
export async function* endless(chunk: string): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(chunk.repeat(Math.ceil(65_536 / chunk.length)));
  for (;;) yield bytes;
}
