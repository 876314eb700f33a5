import { beforeEach, describe, expect, it, vi } from 'vitest';
import { nextStages, noted, planOf } from '../../functions/chains/chain.ts';
import { doubtAfter, ended, failedMarkerOf, waiting, waitingMarkerOf } from '../../functions/ledger/entry.ts';
import { chainKey, entryKey, failedKey, type WaitingMarker, waitingKey } from '../../functions/ledger/keys.ts';
import type { UploadsPage } from '../../page/api.ts';
import { EventLog } from '../../page/server/event-log.ts';
import type { FeedPace } from '../../page/server/feed.ts';
import { PATIENCE } from '../support/patience.ts';
import { type Heard, type Listener, messageOf, QUICK, serve, Visitor } from './support.ts';
import { DAY_MS, MINUTE_MS, World } from './world.ts';

let world: World;
beforeEach(async () => {
  world = await World.start();
});

const open = async (pace: Partial<FeedPace> = {}, options: Parameters<typeof serve>[1] = {}) => {
  const served = await serve(world.deployment, { pace: { ...QUICK, ...pace }, ...options });
  return { served, visitor: await Visitor.open(served.url) };
};

const list = async (visitor: Visitor, query = ''): Promise<UploadsPage> =>
  (await visitor.ask(`/api/uploads${query}`)).json;

/** Waits until the server makes no look for 300 ms. While a page listens, it looks every 50 ms. */
const untilNoMoreLooks = (): Promise<void> =>
  vi.waitFor(async () => {
    const { lists } = world;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(world.lists).toBe(lists);
  }, PATIENCE);

/** Waits until a page hears of something. */
const hears = (listener: Listener, data: object, name = 'upload'): Promise<void> =>
  vi.waitFor(() => {
    const about = expect.objectContaining(data);
    expect(listener.heard).toContainEqual(expect.objectContaining({ name, data: about }));
  }, PATIENCE);

/** An upload that came some time ago, in milliseconds, and failed now. */
const failed = (key: string, age: number) =>
  ended(world.claimed(key, age), { failure: { code: 'rejected', message: 'No.' } }, world.now);

/** An upload that waits. */
const delayed = (key: string, reason: 'undecided' | 'unavailable') =>
  waiting(world.claimed(key), { reason, message: 'In doubt.', notBefore: 1, counted: false });

/** The uploads that events tell of. */
const idsOf = (heard: readonly Heard[]): readonly string[] =>
  heard.filter(({ name }) => name === 'upload').map(({ data }) => data.id);

const keysOf = ({ uploads }: UploadsPage): readonly string[] => uploads.map(({ key }) => key);

it('an upload that gave way to a newer file is listed, counted and told as replaced', async () => {
  const message = 'inbox/a.png was replaced.';
  const id = await world.put(ended(world.claimed('a.png'), { failure: { code: 'superseded', message } }, world.now));
  await world.put(failed('b.png', 0));
  const { visitor } = await open();
  expect((await list(visitor)).counts).toMatchObject({ failed: 1, replaced: 1 });
  expect(keysOf(await list(visitor, '?state=replaced'))).toEqual(['a.png']);
  const { timeline } = (await visitor.ask(`/api/uploads/${id}`)).json;
  const step = expect.objectContaining({ kind: 'replaced', text: `It was replaced: superseded: ${message}` });
  expect(timeline).toContainEqual(step);
});

describe('the list', () => {
  it('has the uploads of the last days, newest first', async () => {
    await world.put(world.claimed('old.png', 8 * DAY_MS));
    await world.put(world.claimed('days.png', 6 * DAY_MS));
    await world.put(world.claimed('now.png'));
    await world.put(world.claimed('hour.png', 60 * MINUTE_MS));
    await world.put(world.claimed('future.png', -DAY_MS));
    const { visitor } = await open();
    const page = await list(visitor);
    expect(keysOf(page)).toEqual(['future.png', 'now.png', 'hour.png', 'days.png']);
    expect(Date.parse(page.since)).toBeGreaterThan(world.now - 7 * DAY_MS - 2_000);
  });

  it('says of the first file of a chain how the chain stands', async () => {
    const echo = { name: 'echo', input: 'file', template: 'bytes_echo' } as const;
    const routes = [echo, { ...echo, name: 'later', after: 'echo', inputs: 'all' } as const];
    const object = { bucket: 'results', key: 'first.png/f/1', etag: '' };
    const asset = { ...object, id: '1', bytes: 1, mediaType: 'image/png', sha256: '' };
    const lost = { id: '2', code: 'x', message: 'It was lost.' };
    const claim = { ...world.claimed('first.png'), next: undefined };
    const [next, plan] = [nextStages(claim, [asset], routes), planOf(claim, routes)];
    const first = ended(claim, { assets: [asset], failedOutputs: [lost], next, plan }, world.now);
    const id = await world.put(first);
    await world.put(ended(world.claimed('alone.png'), {}, world.now));
    const { visitor } = await open();
    const listener = visitor.listen();
    const rows = async () => (await list(visitor)).uploads.map(({ key, state, chain }) => ({ key, state, chain }));
    expect(await rows()).toContainEqual({ key: 'first.png', state: 'succeeded', chain: undefined });
    const chain = noted(undefined, [first], routes);
    await world.putObject(chainKey(id), JSON.stringify(chain));
    await hears(listener, { id, state: 'succeeded', chain: 'failed' });
    await world.putObject(chainKey(id), '{');
    await hears(listener, { id, state: 'succeeded' });
    expect(await rows()).toContainEqual({ key: 'alone.png', state: 'succeeded', chain: undefined });
  });

  it('is filtered by state and name, and comes in pages', async () => {
    for (const [age, key] of ['text.txt', 'Photos/two.png', 'photos/one.png'].entries()) {
      await world.put(ended(world.claimed(key, age * MINUTE_MS), {}, world.now));
    }
    await world.put(failed('photos/bad.png', 3 * MINUTE_MS));
    const { visitor } = await open();
    const all = await list(visitor);
    expect(all).toMatchObject({ total: 4, isComplete: true, unreadable: 0 });
    expect(all.counts).toMatchObject({ succeeded: 3, failed: 1, running: 0 });
    expect(keysOf(all)).toEqual(['text.txt', 'Photos/two.png', 'photos/one.png', 'photos/bad.png']);
    const photos = await list(visitor, '?name=PHOTOS&state=succeeded');
    expect(photos).toMatchObject({ total: 2, counts: { succeeded: 2, failed: 1 } });
    const first = await list(visitor, '?limit=3');
    expect([first.uploads.length, first.total]).toEqual([3, 4]);
    const second = await list(visitor, `?limit=3&before=${encodeURIComponent(first.next ?? '')}`);
    expect(keysOf(second)).toEqual(['photos/bad.png']);
    expect(second.next).toBeUndefined();
    expect((await list(visitor, '?limit=4')).next).toBeUndefined();
    await world.put(world.claimed('photos/u\u0308ber.png'));
    await expect.poll(async () => (await list(visitor, '?name=%C3%9CBER')).total).toBe(1);
    expect(await list(visitor, '?name=nothing')).toMatchObject({ total: 0, uploads: [] });
    for (const query of ['?limit=0', '?limit=x', '?limit=1001', '?state=unknown']) {
      const answer = await visitor.ask(`/api/uploads${query}`);
      expect([query, answer.status]).toEqual([query, 400]);
      expect(messageOf(answer)).toMatch(/^[A-Z].*\.$/);
    }
  });

  it('finds what is older by its id', async () => {
    const id = await world.put(world.claimed('old.png', 30 * DAY_MS));
    const { visitor } = await open();
    expect(keysOf(await list(visitor))).toEqual([]);
    expect(await list(visitor, `?name=${id}`)).toMatchObject({ total: 1, counts: { claimed: 1 } });
    expect((await visitor.ask(`/api/uploads/${id}`)).json).toMatchObject({ row: { key: 'old.png' }, isCurrent: false });
  });

  it('has older uploads that are under way or failed lately, until they end and after', async () => {
    const old = await world.putOld('retried.png');
    const entry = failed('failed.png', 20 * DAY_MS);
    await world.put(entry);
    await world.putObject(failedKey(failedMarkerOf(entry)));
    const { visitor } = await open();
    const listener = visitor.listen();
    expect(keysOf(await list(visitor))).toEqual(['retried.png', 'failed.png']);
    await old.end();
    await hears(listener, { id: old.id, state: 'succeeded' });
    expect((await list(visitor)).counts).toMatchObject({ succeeded: 1, failed: 1, running: 0 });
  });

  it('keeps the newest of a ledger that is larger than it may be', async () => {
    for (let age = 0; age < 30; age += 1) await world.put(world.claimed(`${age}.png`, age * 10 * MINUTE_MS));
    const { visitor } = await open({ rowsMax: 10 });
    const newest = Array.from({ length: 10 }, (_, age) => `${age}.png`);
    expect(keysOf(await list(visitor))).toEqual(newest);
    const listener = visitor.listen();
    await world.remove(entryKey(world.claimed('3.png', 30 * MINUTE_MS).upload.id));
    const id = await world.put(world.claimed('new.png', -1_000));
    await hears(listener, { id });
    const after = keysOf(await list(visitor));
    expect(after[0]).toBe('new.png');
    expect(after).not.toContain('3.png');
    expect(after.length).toBeLessThanOrEqual(10);
  });

  it('counts entries that cannot be read, and shows the others', async () => {
    await world.put(world.claimed('good.png'));
    await world.putObject(entryKey(world.claimed('bad.png').upload.id), '{');
    const { visitor } = await open();
    expect(await list(visitor)).toMatchObject({ total: 1, unreadable: 1 });
  });

  it('says why it cannot be read, and goes on when it can', async () => {
    const { visitor } = await open();
    await world.put(world.claimed('good.png'));
    world.isDown = true;
    const answer = await visitor.ask('/api/uploads');
    expect([answer.status, answer.json.error.code]).toEqual([502, 'failed']);
    expect(answer.json.error.message).toMatch(/^[A-Z].*Access Denied/);
    world.isDown = false;
    await vi.waitFor(async () => expect(keysOf(await list(visitor))).toEqual(['good.png']), PATIENCE);
    // The same while a page is open, for which the list is kept up to date.
    visitor.listen();
    world.isDown = true;
    await vi.waitFor(async () => expect((await visitor.ask('/api/uploads')).status).toBe(502), PATIENCE);
    world.isDown = false;
    await vi.waitFor(async () => expect(keysOf(await list(visitor))).toEqual(['good.png']), PATIENCE);
  });
});

describe('a plan', () => {
  it('counts the uploads in doubt among those to retry, because they may be paid for twice', async () => {
    const claimed = world.claimed('held.png');
    const wait = { reason: 'undecided', message: 'In doubt.', notBefore: 1, counted: false } as const;
    const held = await world.put(waiting({ ...claimed, doubt: doubtAfter(claimed, world.now) }, wait));
    const late = await world.put(delayed('late.png', 'unavailable'));
    const { visitor } = await open();
    const { json } = await visitor.post('/api/plan', { action: 'retry', uploads: [held, late] });
    expect(json).toMatchObject({ costs: { flows: 2 }, inDoubt: 1, uploads: 2 });
  });

  it('cancels no undecided upload with all that wait: it may have a flow, which is paid for', async () => {
    for (const reason of ['undecided', 'unavailable'] as const) {
      const entry = delayed(`${reason}.png`, reason);
      await world.put(entry);
      await world.putObject(waitingKey(waitingMarkerOf(entry, { inboxPrefix: '', routes: [] }) as WaitingMarker));
    }
    const { visitor } = await open();
    const planned = await visitor.post('/api/plan', { action: 'cancel', query: { state: 'waiting' } });
    expect(planned.json).toMatchObject({ uploads: 1 });
  });

  it('makes no upload anew while its flow is still to come', async () => {
    const id = await world.put(delayed('late.png', 'unavailable'));
    const { visitor } = await open();
    const { json } = await visitor.post('/api/plan', { action: 'again', uploads: [id], parameters: {} });
    expect(json).toMatchObject({ uploads: 0, skipped: [{ name: 'late.png', reason: 'it is waiting' }] });
  });
});

it('hundreds of uploads are listed at once, filtered quickly, and read once', async () => {
  const COUNT = 450;
  const numbers = Array.from({ length: COUNT }, (_, number) => number);
  await Promise.all(numbers.map((number) => world.put(world.claimed(`photo-${number}.png`, (number + 1) * 50_000))));
  const { visitor } = await open();
  const first = await list(visitor);
  expect(first.uploads).toHaveLength(200);
  expect(first.uploads[0]?.key).toBe('photo-0.png');
  // The first answer comes before all are read.
  expect(first.isComplete).toBe(false);
  expect(world.reads).toBeLessThan(COUNT / 2);
  const listener = visitor.listen(`/api/events?after=${first.lastEvent}`);
  await vi.waitFor(() => expect(listener.heard).toContainEqual(expect.objectContaining({ name: 'reset' })), PATIENCE);
  expect(await list(visitor)).toMatchObject({ total: COUNT, isComplete: true, counts: { claimed: COUNT } });
  // S3 may have failed a request, whose batch is read again.
  const { reads } = world;
  expect(reads).toBeLessThan(1.2 * COUNT);

  // Another look reads no entry again. One that changes is read alone.
  const { lists } = world;
  await vi.waitFor(() => expect(world.lists).toBeGreaterThan(lists + 5), PATIENCE);
  expect(world.reads).toBe(reads);
  await world.put(failed('photo-7.png', 8 * 50_000));
  await hears(listener, { key: 'photo-7.png', state: 'failed' });
  for (const number of [7, 19, 449]) {
    expect(await list(visitor, `?name=photo-${number}.png&limit=1000`)).toMatchObject({ total: 1 });
  }
  expect(world.reads).toBe(reads + 1);
});

describe('the events', () => {
  it('tell what comes, changes and goes', async () => {
    const { visitor } = await open();
    await list(visitor);
    const listener = visitor.listen();
    await vi.waitFor(() => expect(listener.lastId).not.toBe(''), PATIENCE);
    const id = await world.put(world.claimed('robot.png'));
    await hears(listener, { id, state: 'claimed' });
    await world.put(delayed('robot.png', 'undecided'));
    await hears(listener, {
      id,
      state: 'waiting',
      wait: expect.objectContaining({ reason: 'undecided', message: 'In doubt.' }),
    });
    await world.remove(entryKey(id));
    await hears(listener, { id }, 'removed');
    await hears(listener, { kind: 'pipeline' }, 'status');
    expect(await list(visitor)).toMatchObject({ total: 0 });
  });

  it('are looked for only while somebody listens', async () => {
    const { visitor } = await open();
    const listener = visitor.listen();
    await vi.waitFor(() => expect(world.lists).toBeGreaterThan(20), PATIENCE);
    listener.close();
    await untilNoMoreLooks();
  });

  it('lose none over a reconnect', async () => {
    const ROUNDS = 4;
    const { visitor } = await open();
    const { lastEvent } = await list(visitor);
    const expected: string[] = [];
    const heard: string[] = [];
    let last = lastEvent;
    for (let round = 0; round < ROUNDS; round += 1) {
      const listener = visitor.listen('/api/events', { 'last-event-id': last });
      for (let number = 0; number < 5; number += 1) {
        const entry = world.claimed(`${round}-${number}.png`, -1_000 * round);
        expected.push(await world.put(entry));
      }
      // All but the last break off in the middle of what comes.
      const isEnough = (): boolean =>
        round < ROUNDS - 1
          ? listener.heard.length > 0
          : new Set([...heard, ...idsOf(listener.heard)]).size === expected.length;
      await vi.waitFor(() => expect(isEnough()).toBe(true), PATIENCE);
      listener.close();
      const seen = listener.heard.slice(0, round < ROUNDS - 1 ? 1 + (round % 3) : undefined);
      expect(seen.map(({ name }) => name)).not.toContain('reset');
      heard.push(...idsOf(seen));
      last = seen.at(-1)?.id ?? last;
    }
    expect([...heard].sort()).toEqual([...expected].sort());
  });

  it('go on from the list that the page has', async () => {
    const { visitor } = await open();
    const { lastEvent } = await list(visitor);
    const id = await world.put(world.claimed('robot.png'));
    await vi.waitFor(async () => expect(await list(visitor)).toMatchObject({ total: 1 }), PATIENCE);
    await hears(visitor.listen(`/api/events?after=${lastEvent}`), { id });
  });

  it('ask for the list again after an id that is none', async () => {
    const { visitor } = await open();
    for (const id of ['nonsense', '0-0', 'ffffffffffff-1', '../../x', `a${'1'.repeat(99)}`]) {
      const listener = visitor.listen('/api/events', { 'last-event-id': id });
      await vi.waitFor(() => expect(listener.heard[0]).toMatchObject({ name: 'reset' }), PATIENCE);
    }
    const empty = visitor.listen('/api/events', { 'last-event-id': '' });
    await vi.waitFor(() => expect(empty.lastId).not.toBe(''), PATIENCE);
    expect(empty.heard.map(({ name }) => name)).not.toContain('reset');
  });

  it('end with the server', async () => {
    const { served, visitor } = await open();
    visitor.listen();
    await vi.waitFor(() => expect(world.lists).toBeGreaterThan(3), PATIENCE);
    await served.close();
    await untilNoMoreLooks();
  });
});

describe('the log of events', () => {
  const heardAfter = (log: EventLog, after: string | undefined) => {
    const names: string[] = [];
    log.listen(after, ({ name, data }) => names.push(`${name} ${data}`))();
    return names;
  };

  it('gives a client exactly what it lacks', () => {
    const log = new EventLog();
    const ids = ['a', 'b', 'c'].map((id) => {
      log.add('removed', { id });
      return log.lastId;
    });
    expect(heardAfter(log, ids[0])).toEqual(['removed {"id":"b"}', 'removed {"id":"c"}']);
    expect(heardAfter(log, ids[2])).toEqual([]);
    expect(heardAfter(log, undefined)).toEqual([]);
    expect(heardAfter(log, `${ids[2]}0`)[0]).toMatch(/^reset/);
  });

  it('asks for the list again if the gap is too long', () => {
    const log = new EventLog();
    const first = log.lastId;
    for (let number = 0; number < 5_000; number += 1) log.add('removed', { id: String(number) });
    expect(heardAfter(log, first)).toHaveLength(5_000);
    for (let number = 0; number < 30_000; number += 1) log.add('removed', { id: String(number) });
    expect(heardAfter(log, first)).toEqual(['reset {"reason":"Too much has happened in between."}']);
    const last = log.lastId;
    log.add('removed', { id: 'last' });
    expect(heardAfter(log, last)).toEqual(['removed {"id":"last"}']);
  });
});
