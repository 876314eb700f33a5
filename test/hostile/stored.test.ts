import { describe, expect, it } from 'vitest';
import type { Entry, RunningEntry } from '../../functions/ledger/entry.ts';
import { retryUploads } from '../../functions/operator/operator.ts';
import { LEDGER, RESULTS, type World } from '../support/world.ts';
import { nested } from './bad-answers.ts';
import { hostileWorld, MINUTE, saying } from './support.ts';

/** A world with one running upload. Returns its entry, the entry's key and another copy of its notification. */
async function running() {
  const world = await hostileWorld();
  await sweeping(world); // Records the first day of the deployment.
  await world.upload('a');
  const [notification = ''] = world.takeMessages();
  world.queue.send(notification);
  await world.deliver();
  const entry = (await world.entry()) as RunningEntry;
  return { world, key: `uploads/${entry.upload.id}.json`, entry, notification };
}

const sweeping = (world: World, request = {}) => world.sweep({ uploadsPerSecond: 1_000, ...request });

describe('an entry that is', () => {
  // `test/ledger/store.test.ts` and `entry-schema.test.ts` have the other ways in which an entry can be damaged.
  const damage: readonly (readonly [what: string, damaged: (entry: Entry) => string])[] = [
    ['empty', () => ''],
    ['cut', (entry) => JSON.stringify(entry).slice(0, 15)],
    ['lists in lists', () => nested(50_000)],
    ['of another schema', (entry) => JSON.stringify({ ...entry, schema: 99 })],
    ['without its flow', (entry) => JSON.stringify({ ...entry, flow: undefined })],
    ['of another upload', (entry) => JSON.stringify({ ...entry, upload: { ...entry.upload, id: '0'.repeat(40) } })],
  ];
  it.each(damage)('%s is named in an error, harms no other upload, and keeps its message', async (_, damaged) => {
    const { world, key, entry, notification } = await running();
    await world.put(LEDGER, key, damaged(entry));
    const before = await world.object(LEDGER, key);

    // The message comes again until it is a dead letter, which the operator can inspect.
    world.queue.send(notification);
    expect((await world.deliver())?.batchItemFailures).toHaveLength(1);
    const named = () =>
      world.logged.filter(({ fields }) => (fields.error as Error | undefined)?.name === 'UnreadableEntryError');
    expect(named().length).toBeGreaterThan(0);
    expect(String(named()[0]?.fields.error)).toContain(key);

    // Other uploads go on, and the tick fails at its end.
    await world.send('b');
    await expect(world.tickAfter(2 * MINUTE)).rejects.toThrow('1 uploads could not be processed');
    expect((await world.receipt('b')).status).toBe('succeeded');

    // A sweep skips the entry, and fails at its end.
    await world.upload('c');
    world.takeMessages();
    world.clock.advance(60 * MINUTE);
    await expect(sweeping(world)).rejects.toThrow('1 uploads could not be swept');
    expect(world.count('UploadsMissed')).toBe(1);
    await expect(retryUploads([entry.upload.id], world.ports, new AbortController().signal)).rejects.toThrow();

    expect((await world.object(LEDGER, key)).bytes.equals(before.bytes)).toBe(true);
    expect(await world.keys(RESULTS)).toHaveLength(2);
    expect(world.service.flows).toHaveLength(2);
  });
});

describe('a marker that is', () => {
  const id = 'ab'.repeat(20);
  const keys: readonly (readonly [what: string, key: string])[] = [
    ['a word', 'running/x'],
    ['of a flow called ..', `running/2026-01-01T00:00:00.000Z/${id}/..`],
    ['of an unknown upload', `running/2026-01-01T00:00:00.000Z/${id}/flow`],
    ['waiting for an unknown upload', `waiting/2026-01-01T00:00:00.000Z/${id}`],
    ['of a letter that sorts last', 'waiting/~'],
  ];
  it.each(keys)('%s delays no upload, and costs at most one request to the service', async (_, key) => {
    const { world } = await running();
    await world.put(LEDGER, key, 'not empty');
    for (let i = 0; i < 3; i += 1) {
      expect(await world.tickAfter(5 * MINUTE)).toMatchObject({ result: 'completed' });
    }
    expect((await world.receipt('a')).status).toBe('succeeded');
    expect(world.service.counts.getFlow).toBeLessThanOrEqual(2);
    expect(world.service.flows).toHaveLength(1);
  });
});

describe('a state that is', () => {
  const far = 9e15;
  const begun = { firstDay: 0, watermark: 0 };
  /** A sound pass. One of an earlier version says also whether it was scheduled. */
  const pass = {
    startedAt: 0,
    uploadsPerSecond: 1,
    since: 0,
    position: { in: 'inbox' },
    heldUntil: 0,
    isScheduled: true,
  };
  const states: readonly (readonly [what: string, state: string | object])[] = [
    ['empty', ''],
    ['no JSON', '{'],
    ['null', 'null'],
    ['a list', []],
    ['text', '"state"'],
    ['lists in lists', nested(50_000)],
    ['without members', {}],
    ['of times that are text', { heldUntil: 'soon', lastCompletedAt: 'now', firstDay: 'today', watermark: 'now' }],
    ['of times that are null', { heldUntil: null, lastCompletedAt: null, firstDay: null, watermark: null }],
    ['of a first day in the future', { firstDay: far, watermark: far }],
    ['of a pass that is text', { ...begun, pass: 'pass' }],
    ['of an empty pass', { ...begun, pass: {} }],
    ['of a pass at an unknown position', { ...begun, pass: { ...pass, position: { in: 'limbo' } } }],
    ['of a pass that is held for ever', { ...begun, pass: { ...pass, heldUntil: far } }],
    ['of a daily pass that is text', { ...begun, daily: 'pass' }],
    ['of a backfill that is held for ever', { ...begun, backfill: { ...pass, heldUntil: far } }],
    ['of a pass after an invalid key', { ...begun, pass: { ...pass, position: { in: 'inbox', after: 5 } } }],
  ];
  it.each(states)('%s does not keep ticks from collecting or the sweep from submitting', async (_, state) => {
    const { world } = await running();
    const text = typeof state === 'string' ? state : JSON.stringify(state);
    for (const key of ['state/collector-0.json', 'state/sweep.json']) await world.put(LEDGER, key, text);
    await world.tickAfter(2 * MINUTE);
    await world.tickAfter(2 * MINUTE);
    expect((await world.receipt('a')).status).toBe('succeeded');

    await sweeping(world);
    await world.upload('missed');
    world.takeMessages();
    world.clock.advance(60 * MINUTE);
    const swept = await sweeping(world);
    expect(swept).toMatchObject({ complete: true, missed: 1 });
    await world.settle();
    expect((await world.receipt('missed')).status).toBe('succeeded');
    expect(world.service.flows).toHaveLength(2);
  });
});

describe('an object at the key of an asset that another writer put there', () => {
  /** A running upload whose flow has one output, and the key of its asset. */
  async function runningWithAsset() {
    const { world, entry } = await running();
    world.service.intercept = (_, { operation }) => {
      if (operation === 'listOutputs') return saying('[{"id":"a1"}]');
      if (operation === 'getAsset') return saying('asset', { headers: { 'content-type': 'text/plain' } });
      return undefined;
    };
    return { world, key: `a/${entry.flow.id}/a1.txt` };
  }

  it('stays as it is, and the receipt names it', async () => {
    const { world, key } = await runningWithAsset();
    world.redeploy({ attemptsMax: 2 });
    await world.put(RESULTS, key, 'not ours', { owner: 'me' });
    await expect(world.tickAfter(2 * MINUTE)).rejects.toThrow('1 uploads could not be processed');
    await world.tickAfter(30 * MINUTE);
    const receipt = await world.receipt('a');
    expect(receipt).toMatchObject({ status: 'failed', assets: [], failedOutputs: [{ code: 'key-taken' }] });
    expect(receipt.failedOutputs[0]?.message).toContain(key);
    expect((await world.object(RESULTS, key)).bytes.toString()).toBe('not ours');
    await world.remove(key, RESULTS); // It is no result of ours.
  });

  it('costs nothing if it is moved away before the last attempt', async () => {
    const { world, key } = await runningWithAsset();
    await world.put(RESULTS, key, 'not ours');
    await expect(world.tickAfter(2 * MINUTE)).rejects.toThrow('1 uploads could not be processed');
    await world.remove(key, RESULTS);
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', assets: [{ key }] });
    expect(world.service.flows).toHaveLength(1);
  });
});
