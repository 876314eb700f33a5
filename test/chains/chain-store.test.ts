import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Chain } from '../../functions/chains/chain-schema.ts';
import { CHAIN_BYTES_MAX, CHAIN_UPLOADS_MAX } from '../../functions/chains/chain-size.ts';
import { ChainStore } from '../../functions/chains/chain-store.ts';
import { ContendedError, UnreadableEntryError } from '../../functions/ledger/store.ts';
import { MEMORY_MIB } from '../../infra/function-limits.ts';
import { answerOf, functionProcess } from '../support/function-process.ts';
import { LEDGER, openWorld, start, world } from '../support/world.ts';

const never = new AbortController().signal;
const hex = (n: number, length: number): string => n.toString(16).padStart(length, '0');
const FIRST = hex(1, 40);

/** A chain with so many uploads under way. */
function chainOf(uploads: number, id = FIRST): Chain {
  const upload = { bucket: 'inbox', key: 'a.txt', etag: 'e', bytes: 1, lastModified: 0, mediaType: 'text/plain' };
  return {
    schema: 6,
    first: { id, ...upload },
    generation: 1,
    plan: [],
    uploads: Array.from({ length: uploads }, (_, n) => ({
      id: hex(n, 40),
      route: 'each',
      parent: FIRST,
      generation: 1,
      state: 'under way',
      arrivedAt: 1_700_000_000_000,
      assets: [],
      failedOutputs: 0,
    })),
    closed: [],
    gathered: [],
    withheld: [],
  };
}

const endOf =
  (n: number) =>
  (chain: Chain | undefined): Chain | undefined => {
    const upload = chain?.uploads[n];
    if (chain === undefined || upload === undefined || upload.endedAt !== undefined) return chain;
    return { ...chain, uploads: chain.uploads.with(n, { ...upload, state: 'succeeded', endedAt: n }) };
  };

describe('a chain that many processes change at once', () => {
  beforeEach(() => start());

  /** A process of its own: it remembers nothing of the others. */
  const store = (): ChainStore => new ChainStore({ ...world.ports, bucket: LEDGER });
  const put = (chain: Chain) => world.put(LEDGER, `chains/${FIRST}.json`, JSON.stringify(chain));

  it('gets every change, although all of them come at the same moment', async () => {
    const PROCESSES = 40;
    await put(chainOf(PROCESSES));
    let writes = 0;
    let isSlow = true;
    world.beforeS3((call) => {
      if (call === 'PutObject') writes += 1;
      return isSlow ? world.clock.sleep(20) : undefined;
    });
    await world.clock.during(() =>
      Promise.all(Array.from({ length: PROCESSES }, (_, n) => store().update(FIRST, endOf(n), never))),
    );
    isSlow = false;
    const { uploads } = await world.json<Chain>(LEDGER, `chains/${FIRST}.json`);
    expect(uploads.map(({ endedAt }) => endedAt)).toEqual(Array.from({ length: PROCESSES }, (_, n) => n));
    // Without pauses, each would write after each other one: some 800 writes.
    expect(writes).toBeLessThan(PROCESSES * 8);
  });

  it('is given up after a minute in which others won each time', async () => {
    await put(chainOf(2));
    let others = 0;
    let isOther = false;
    world.beforeS3(async (call) => {
      if (call !== 'PutObject' || isOther) return;
      others += 1;
      isOther = true;
      await put({ ...chainOf(2), generation: 1 + others });
      isOther = false;
    });
    const at = world.clock.now();
    const update = world.clock.during(() => store().update(FIRST, endOf(0), never));
    await expect(update).rejects.toThrow(ContendedError);
    expect(world.clock.now() - at).toBeGreaterThanOrEqual(60_000);
    // The pauses grow to a second.
    expect(others).toBeLessThan(200);
  });
});

describe('the largest chains', () => {
  it('are changed side by side within the memory of a function', { timeout: 120_000 }, async () => {
    const CHAINS = 12;
    const own = await openWorld();
    const text = JSON.stringify(chainOf(CHAIN_UPLOADS_MAX));
    // Filled up to the limit, as by the assets that a stage waits for.
    const filler = 'x'.repeat(CHAIN_BYTES_MAX - Buffer.byteLength(text) - 10);
    const ids = Array.from({ length: CHAINS }, (_, n) => hex(n + 1, 40));
    for (const id of ids) {
      const chain = chainOf(CHAIN_UPLOADS_MAX, id);
      await own.put(LEDGER, `chains/${id}.json`, JSON.stringify({ ...chain, closed: [filler] }));
    }
    const { port } = (await own.s3.config.endpoint?.()) ?? {};
    const child = functionProcess(fileURLToPath(new URL('chain-memory-process.ts', import.meta.url)));
    onTestFinished(() => void child.kill());
    const told = (await answerOf(child, { endpoint: `http://127.0.0.1:${port}`, ids })) as {
      readonly changed: number;
      readonly mib: number;
    };
    expect(told.changed).toBe(CHAINS);
    expect(told.mib).toBeLessThan(MEMORY_MIB);
  });

  it('is not read if it could fill the memory', async () => {
    await start();
    const chain = { ...chainOf(1), closed: ['x'.repeat(17 * 1024 * 1024)] };
    await world.put(LEDGER, `chains/${FIRST}.json`, JSON.stringify(chain));
    const read = world.ports.chains.read(FIRST, never);
    await expect(read).rejects.toThrow(UnreadableEntryError);
    await expect(read).rejects.toThrow(/chains\/0+1\.json has 178\d+ bytes, and at most 16777216 are read/);
  });
});
