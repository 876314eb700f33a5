import { CreateBucketCommand, ListObjectsV2Command } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { firstClaim } from '../../functions/ledger/entry.ts';
import { PassUnderWayError, SinceTooEarlyError } from '../../functions/sweep/sweep.ts';
import { snapshot } from '../../functions/uploads/route-snapshot.ts';
import { uploadId } from '../../functions/uploads/upload.ts';
import { never } from '../flow-service/scripted.ts';
import {
  DAY,
  dyingAt,
  ECHO,
  HOUR,
  INBOX,
  LEDGER,
  MINUTE,
  RESULTS,
  start,
  type World,
  type WorldOptions,
  world,
} from '../support/world.ts';

/** A world whose first day is recorded: uploads from now on are those of its daily passes. */
async function deployed(options?: WorldOptions): Promise<void> {
  await start(options);
  await sweep();
}

const sweep: World['sweep'] = (request) => world.sweep(request);

/** Lets time pass. Then a daily pass runs. */
function sweepAfter(ms: number) {
  world.clock.advance(ms);
  return world.sweep();
}

/** A time in the past, as an operator writes it. */
const ago = (ms: number): string => new Date(world.clock.now() - ms).toISOString();

/** An upload whose notification never comes. */
async function unannounced(key: string, body = 'x', ContentType?: string): Promise<void> {
  await world.upload(key, body, { ContentType });
  world.takeMessages();
}

/** Old uploads whose notifications never came: `00`, `01` and so on. */
async function aged(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) await unannounced(String(n).padStart(2, '0'));
  world.clock.advance(HOUR);
}

const sweepState = () =>
  world.json<{ daily?: object; backfill?: object; ended?: object; firstDay: number; watermark: number }>(
    LEDGER,
    'state/sweep.json',
  );
const putSweepState = (state: object) => world.put(LEDGER, 'state/sweep.json', JSON.stringify(state));

describe('an upload that no notification brought', () => {
  it.each([undefined, 'Enabled', 'Suspended'] as const)(
    'is found on whatever page of the inbox it stands, and becomes a flow (versioning %s)',
    async (versioning) => {
      await deployed({ versioning, s3: { keysMax: 2 } });
      world.clock.advance(MINUTE);
      const keys = ['a b+c%/ü?#.png', 'b', 'c', 'd', 'e'];
      for (const key of keys) await unannounced(key);
      expect(await sweepAfter(HOUR)).toEqual({ kind: 'daily', complete: true, compared: 5, missed: 5, repaired: 0 });
      await world.settle();
      for (const key of keys) expect((await world.receipt(key)).status).toBe('succeeded');
      expect(await sweepAfter(HOUR)).toMatchObject({ missed: 0, repaired: 0 });
      expect(world.service.flows).toHaveLength(5);
    },
  );

  it('is counted, and not submitted, if it is below the prefix of jobs and no job has taken it', async () => {
    await deployed({ routes: [{ ...ECHO, jobs: 'multi/' }] });
    world.clock.advance(MINUTE);
    for (const key of ['front.png', 'deep/back.png', 'notes.txt']) await unannounced(`multi/chair/${key}`);
    await world.send('multi/chair/job.json', '{ "inputs": ["front.png", "deep/back.png"] }');
    await unannounced('multi/waits/a.png');
    await world.send('multi/waits/job.json', '{ "inputs": ["a.png", "b.png"] }');
    await unannounced('multi/broken/7');
    await world.send('multi/broken/job.json', '{ "inputs": 7 }');
    await unannounced('multi/alone/a.png');
    expect(await sweepAfter(HOUR)).toMatchObject({ compared: 3, missed: 0, unnamed: 3 });
    expect(world.count('UploadsUnnamed')).toBe(3);
    expect(world.service.flows).toHaveLength(1);
  });

  it('is counted without a look at job files outside of the inbox, which the function may not read', async () => {
    await deployed({ routes: [{ ...ECHO, jobs: 'multi/' }], settings: { inboxPrefix: 'multi/in/' } });
    world.clock.advance(MINUTE);
    await unannounced('multi/in/a.png');
    const looked: unknown[] = [];
    world.beforeS3((call, { Key }) => call === 'HeadObject' && looked.push(Key));
    expect(await sweepAfter(HOUR)).toMatchObject({ unnamed: 1 });
    expect(looked).toEqual(['multi/in/job.json']);
  });

  it('is counted, and not submitted, if its key is that of a later stage of a chain', async () => {
    await deployed({ routes: [{ ...ECHO, jobs: 'multi/' }, ECHO] });
    world.clock.advance(MINUTE);
    for (const first of ['a.png', 'b.png']) await unannounced(`${first}/chain/next/${'0'.repeat(40)}`);
    await unannounced(`multi/a/chain/next/${'0'.repeat(40)}`);
    expect(await sweepAfter(HOUR)).toMatchObject({ compared: 0, missed: 0, skipped: 2, unnamed: 1 });
    await world.settle();
    expect(world.service.flows).toEqual([]);
  });

  it('is not submitted before it is a quarter of an hour old', async () => {
    await deployed();
    await unannounced('a');
    expect(await sweepAfter(14 * MINUTE)).toMatchObject({ missed: 0 });
    expect(await sweepAfter(2 * MINUTE)).toMatchObject({ missed: 1 });
  });

  it('is left alone if no route wants it, or if it is a folder', async () => {
    await deployed({ routes: [{ ...ECHO, suffixes: ['.png', '/'] }] });
    await unannounced('a.doc');
    await unannounced('folder/', '');
    expect(await sweepAfter(HOUR)).toMatchObject({ compared: 0, missed: 0 });
  });

  it('is never submitted if every route refuses its media type, for which S3 is asked', async () => {
    await deployed({ routes: [{ ...ECHO, suffixes: ['.x'], mediaTypes: ['image/png'] }] });
    await unannounced('text.x', 'x', 'text/plain');
    await unannounced('picture.x', 'x', 'image/png');
    for (let day = 0; day < 2; day += 1) {
      world.clock.advance(DAY - HOUR);
      expect(await sweep({ dryRun: true })).toMatchObject({ missed: day === 0 ? 1 : 0 });
      expect(await sweep()).toMatchObject({ missed: day === 0 ? 1 : 0 });
      await world.settle();
    }
    expect(world.count('UploadsMissed')).toBe(1);
    expect(world.count('UploadsUnrouted')).toBe(0);
    expect(world.service.flows).toHaveLength(1);
    expect(world.logged.findLast(({ message }) => message === 'Sweep ended')?.fields).toMatchObject({ asked: 1 });
  });

  it('is submitted without asking S3 if a route wants it by its key', async () => {
    await deployed({ routes: [{ ...ECHO, mediaTypes: ['image/png'] }, ECHO] });
    await unannounced('a');
    expect(await sweepAfter(HOUR)).toMatchObject({ missed: 1 });
    expect(world.logged.findLast(({ message }) => message === 'Sweep ended')?.fields).toMatchObject({ asked: 0 });
  });

  it('is not submitted if it was replaced since: the newer one is', async () => {
    await deployed();
    await unannounced('a', 'first');
    await unannounced('a', 'second');
    await unannounced('b');
    await world.remove('b');
    world.clock.advance(HOUR);
    world.takeMessages();
    expect(await sweep()).toMatchObject({ compared: 1, missed: 1 });
    await world.settle();
    expect(await world.entries()).toHaveLength(1);
    expect((await world.receipt('a')).upload.bytes).toBe('second'.length);
  });
});

describe('an upload from before the deployment', () => {
  it('is left alone, unless a request names a day', async () => {
    await start();
    await unannounced('old');
    // A pass reaches back further than this, but not beyond the first day.
    await world.tickAfter(24 * HOUR);
    expect(await sweepAfter(HOUR)).toMatchObject({ missed: 0 });
    const since = ago(72 * HOUR);
    expect(await sweep({ since, dryRun: true })).toMatchObject({ complete: true, missed: 1 });
    expect(world.queue.counts().visible).toBe(0);
    expect(await sweep({ since })).toMatchObject({ complete: true, missed: 1 });
    expect((await world.settled('old')).status).toBe('succeeded');
  });
});

describe('a sweep', () => {
  it('puts back the markers of running and waiting uploads', async () => {
    await deployed();
    world.fault('createFlow', { status: 429, headers: { 'retry-after': '60' } }, 1);
    await world.send('waits');
    await world.send('runs');
    const markers = [...(await world.keys(LEDGER, 'running/')), ...(await world.keys(LEDGER, 'waiting/'))];
    expect(markers).toHaveLength(2);
    for (const Key of markers) await world.remove(Key, LEDGER);
    expect(await sweepAfter(HOUR)).toMatchObject({ repaired: 2 });
    expect((await world.settled('waits')).status).toBe('succeeded');
    expect((await world.receipt('runs')).status).toBe('succeeded');
  });

  it.each([true, false])(
    'ends the polls of a cancelled upload, if its failure is published: %s',
    async (isPublished) => {
      await deployed();
      await world.send('a');
      const [marker = ''] = await world.keys(LEDGER, 'running/');
      const { id } = (await world.entry()).upload;
      await world.collect({ cancel: [id] });
      expect(await world.keys(LEDGER, 'running/')).toEqual([]);
      await world.put(LEDGER, marker, '');
      if (!isPublished) {
        await world.remove('a/receipt.json', RESULTS);
        await world.put(LEDGER, `uploads/${id}.json`, JSON.stringify({ ...(await world.entry()), isTold: undefined }));
      }
      expect(await sweepAfter(HOUR)).toMatchObject({ repaired: isPublished ? 0 : 1 });
      expect(await world.keys(LEDGER, 'running/')).toEqual([]);
      expect((await world.receipt('a')).failure?.code).toBe('cancelled');
    },
  );

  it.each<[string, () => Promise<void>, number]>([
    ['receipt', () => world.remove('a/receipt.json', RESULTS), 2],
    ['marker', async () => world.remove((await world.keys(LEDGER, 'failed/'))[0] ?? '', LEDGER), 1],
  ])('puts back the %s of an upload that failed without a flow', async (_, lose, events) => {
    await deployed({ settings: { inputBytesMax: 1 } });
    await world.send('a', 'too long');
    const markers = await world.keys(LEDGER, 'failed/');
    expect(markers).toHaveLength(1);
    await lose();
    expect(await sweepAfter(HOUR)).toMatchObject({ repaired: 1 });
    expect((await world.receipt('a')).failure?.code).toBe('input-too-large');
    expect(await world.keys(LEDGER, 'failed/')).toEqual(markers);
    // Only an end that is published again is told again.
    expect(world.events).toHaveLength(events);
  });
});

describe('if entries expire', () => {
  it('the scheduled sweep leaves alone uploads whose entries may have expired, and its watermark moves on', async () => {
    await deployed({ settings: { ledgerRetentionDays: 30 } });
    world.clock.advance(MINUTE);
    await unannounced('old');
    world.clock.advance(31 * DAY);
    await unannounced('new');
    expect(await sweepAfter(HOUR)).toMatchObject({ compared: 1, missed: 1 });
    await world.settle();
    world.clock.advance(50 * HOUR);
    // A pass covers two days before the last one again. The pass after it has nothing left to compare.
    expect(await sweep()).toMatchObject({ missed: 0 });
    expect(await sweep()).toMatchObject({ compared: 0 });
    expect((await world.receipt('new')).status).toBe('succeeded');
    expect(await world.entries()).toHaveLength(1);
  });

  it('the entry of an upload that waits, and its chain, are written again in time, however long a hold lasts', async () => {
    const routes = [ECHO, { ...ECHO, name: 'later', after: 'echo' }];
    await deployed({ routes, settings: { ledgerRetentionDays: 30 } });
    await world.collect({ hold: { action: 'pause', route: 'later' } });
    await world.send('a');
    for (let day = 0; day < 100; day += 4) {
      await world.tickAfter(MINUTE);
      await sweepAfter(4 * DAY);
      await expire(30 * DAY);
    }
    const [waiting] = await world.entries();
    expect(waiting).toMatchObject({ state: 'waiting', route: { name: 'later' } });
    await world.collect({ hold: { action: 'resume', route: 'later' } });
    await world.settle();
    expect(await world.json(RESULTS, 'a/chain.json')).toMatchObject({ status: 'succeeded' });
    expect(world.service.flows).toHaveLength(2);
  });

  it('an event that is replayed after months sends no upload again', async () => {
    await deployed({ settings: { ledgerRetentionDays: 30 } });
    await world.upload('a');
    const [event = ''] = world.takeMessages();
    world.queue.send(event);
    await world.settle();
    world.clock.advance(40 * DAY);
    await expire(30 * DAY);
    world.queue.send(event);
    await world.settle();
    expect(world.service.flows).toHaveLength(1);
    expect(world.count('UploadsSkipped')).toBe(1);
  });

  it('no upload that waits is lost if a deployment lets entries expire that were to stay for ever', async () => {
    await deployed();
    await world.collect({ hold: { action: 'pause' } });
    await world.send('a');
    for (let day = 0; day < 40; day += 4) await sweepAfter(4 * DAY);
    world.redeploy({ ledgerRetentionDays: 30 });
    await expire(30 * DAY);
    await world.collect({ hold: { action: 'resume' } });
    expect((await world.settled('a')).status).toBe('succeeded');
  });

  /** Deletes what the rules of the ledger's bucket delete. */
  async function expire(ageMs: number): Promise<void> {
    for (const Prefix of ['uploads/', 'chains/']) {
      const { Contents = [] } = await world.s3.send(new ListObjectsV2Command({ Bucket: LEDGER, Prefix }));
      for (const { Key = '', LastModified } of Contents) {
        if (Number(LastModified) < world.clock.now() - ageMs) await world.remove(Key, LEDGER);
      }
    }
  }
});

describe('a backfill from before the ledger’s retention', () => {
  it('is refused, since entries from then may have expired, and the error says how to force it', async () => {
    await deployed({ settings: { ledgerRetentionDays: 30 } });
    await expect(sweep({ since: ago(31 * DAY) })).rejects.toThrow(SinceTooEarlyError);
    await expect(sweep({ since: ago(31 * DAY), dryRun: true })).rejects.toThrow('"force": true');
    expect(await sweep({ since: ago(29 * DAY) })).toMatchObject({ complete: true });
    expect(await sweep({ since: ago(31 * DAY), force: true })).toMatchObject({ complete: true });
    world.redeploy({ ledgerRetentionDays: 'forever' });
    expect(await sweep({ since: ago(4_000 * DAY) })).toMatchObject({ complete: true });
  });
});

describe('a backfill that takes long', () => {
  /** Two files from 29 days ago, and a backfill of them that has submitted the first. */
  async function begun(more: object = {}): Promise<void> {
    await start({ settings: { ledgerRetentionDays: 30 } });
    await unannounced('a');
    await unannounced('b');
    await world.s3.send(new CreateBucketCommand({ Bucket: 'new-inbox' }));
    await world.put('new-inbox', 'c', 'x');
    world.clock.advance(29 * DAY);
    world.remainingMs = 1_500;
    const since = ago(29 * DAY + HOUR);
    await sweep({ since, uploadsPerSecond: 0.01, ...more });
    world.takeMessages();
  }

  it.each([
    ['not forced', {}, 0],
    ['forced', { force: true }, 1],
  ])('submits uploads whose entries may have expired meanwhile only if forced: %s', async (_, more, submitted) => {
    await begun(more);
    world.clock.advance(2 * DAY);
    for (const kind of ['daily', 'backfill']) expect(await world.continueSweep()).toMatchObject({ kind });
    expect(world.queue.counts().visible).toBe(submitted);
  });

  it('begins again if the inbox was replaced', async () => {
    await begun();
    const state = await sweepState();
    const position = { in: 'inbox', after: { key: 'z', versionId: 'null' } };
    await putSweepState({ ...state, backfill: { ...state.backfill, position } });
    world.redeploy({ inboxBucket: 'new-inbox' });
    world.clock.advance(HOUR);
    await world.collect();
    expect(world.queue.receive({ max: 10 }).map(({ body }) => body)).toEqual([expect.stringContaining('new-inbox')]);
  });
});

describe('a file that was there before its bucket or prefix became the inbox', () => {
  it('is left alone by the daily pass, also after a rollback, and files that were put since are not', async () => {
    await deployed();
    await world.s3.send(new CreateBucketCommand({ Bucket: 'new-inbox' }));
    await sweepAfter(3 * DAY);
    await world.put('new-inbox', 'before', 'x');
    await unannounced('old');
    world.clock.advance(2 * HOUR);
    world.redeploy({ inboxBucket: 'new-inbox' });
    await world.collect();
    expect(await sweep({ dryRun: true })).toMatchObject({ missed: 0 });
    world.clock.advance(MINUTE);
    await world.put('new-inbox', 'after', 'x');
    expect(await sweepAfter(DAY)).toMatchObject({ kind: 'daily', missed: 1 });
    expect(world.takeMessages()).toEqual([expect.stringContaining('"key":"after"')]);
    world.redeploy({ inboxBucket: INBOX });
    expect(await sweepAfter(HOUR)).toMatchObject({ missed: 1 });
    expect(world.takeMessages()).toEqual([expect.stringContaining('"key":"old"')]);
    world.redeploy({ inboxBucket: 'new-inbox' });
    for (const dryRun of [true, false]) {
      expect(await sweep({ since: ago(5 * DAY), dryRun })).toMatchObject({ missed: 2 });
    }
  });

  it('is told apart from the files of the earlier prefix, if a deployment widens it', async () => {
    await deployed({ settings: { inboxPrefix: 'in/' } });
    await sweepAfter(3 * DAY);
    await unannounced('in/lost');
    await unannounced('reports/a');
    world.clock.advance(2 * HOUR);
    world.redeploy({ inboxPrefix: '' });
    expect(await sweepAfter(HOUR)).toMatchObject({ compared: 1, missed: 1 });
    expect(world.takeMessages()).toEqual([expect.stringContaining('"key":"in%2Flost"')]);
  });
});

describe('a pass that begins while an older version still writes the state', () => {
  it('leaves no file out, although that version drops what it does not know', async () => {
    await deployed();
    await sweepAfter(3 * DAY);
    await unannounced('lost');
    let reads = 0; // The request reads the state, and then the tick: to see what is due, and to take the pass.
    world.beforeS3(async (call, { Key }) => {
      if (call !== 'GetObject' || Key !== 'state/sweep.json' || ++reads !== 3) return;
      const known = { ...(await sweepState()), inboxes: undefined };
      await world.put(LEDGER, 'state/sweep.json', JSON.stringify(known));
    });
    expect(await sweepAfter(DAY + HOUR)).toMatchObject({ kind: 'daily', missed: 1 });
  });
});

describe('an upload that is years older than the pipeline', () => {
  it('counts from its arrival: for the time to its result, and for how long it waits', async () => {
    await start();
    await unannounced('old');
    world.clock.advance(2 * 365 * DAY);
    let isThrottled = true;
    world.service.intercept = (_, { operation }) =>
      operation === 'createFlow' && isThrottled ? { status: 429, headers: { 'retry-after': '60' } } : undefined;
    await sweep({ since: ago(3 * 365 * DAY) });
    await world.deliver();
    isThrottled = false;
    world.clock.advance(10 * MINUTE);
    expect((await world.settled('old')).status).toBe('succeeded');
    for (const metric of ['OldestWaitingSeconds', 'SecondsToResult'] as const) {
      expect(world.count(metric)).toBeGreaterThanOrEqual(600);
      expect(world.count(metric)).toBeLessThan(24 * 3600);
    }
  });
});

describe('the ticks', () => {
  const runsAfter = (ms: number) => {
    world.clock.advance(ms);
    return world.continueSweep();
  };

  it('begin a daily pass a day after the last one, without being asked', async () => {
    await deployed();
    world.clock.advance(MINUTE);
    await unannounced('a.png');
    expect(await runsAfter(DAY - HOUR)).toBeUndefined();
    expect(await runsAfter(HOUR)).toMatchObject({ kind: 'daily', complete: true, missed: 1 });
    expect(await runsAfter(HOUR)).toBeUndefined();
  });

  it('begin it at the next tick if the last one could not, and measure until then how old the last pass is', async () => {
    let isDenied = false;
    await deployed({ s3: { authorize: ({ action }) => !(isDenied && action === 's3:PutObject') } });
    // A pass in time costs no metric.
    expect(await runsAfter(DAY)).toMatchObject({ kind: 'daily', complete: true });
    expect(world.count('SweepAgeSeconds')).toBe(0);
    isDenied = true;
    await expect(runsAfter(2 * DAY)).rejects.toThrow();
    expect(world.count('SweepAgeSeconds')).toBeGreaterThanOrEqual((2 * DAY) / 1000);
    isDenied = false;
    expect(await runsAfter(MINUTE)).toMatchObject({ kind: 'daily', complete: true });
  });
});

describe('a daily sweep', () => {
  /** Claims a made-up upload, as an invocation that dies before it sends. */
  async function claimed(key: string, lastModified: number): Promise<void> {
    const facts = { bucket: INBOX, key, etag: 'e', bytes: 1, lastModified, mediaType: 'a/b' };
    const upload = { id: uploadId(facts), ...facts };
    const claimedAt = world.clock.now();
    const claim = firstClaim(upload, snapshot(ECHO), {
      claimedAt,
      deadline: claimedAt + MINUTE,
      pipeline: 'test',
      keyScope: '',
    });
    await world.ports.ledger.create(claim, never);
  }

  it('makes the same requests with and without a year of entries', async () => {
    const requests: string[] = [];
    await deployed({ s3: { keysMax: 2, authorize: ({ action }) => requests.push(action) > 0 } });
    const countOfDay = async () => {
      await claimed('a', world.clock.now());
      world.clock.advance(DAY);
      requests.length = 0;
      await sweep();
      return requests.toSorted().join();
    };
    await countOfDay();
    const without = await countOfDay();
    for (let month = 1; month <= 12; month += 1) await claimed('old', world.clock.now() - month * 30 * DAY);
    await sweepAfter(10 * DAY);
    await world.settle();
    expect(await countOfDay()).toBe(without);
  });

  it.each([
    [1_000, 1],
    [3, 2 + 1],
    [2, 3],
    [1, 6 + 3],
  ])('lists the inbox once, and a key again only if its versions stand on two pages of %i', async (keysMax, lists) => {
    await deployed({ s3: { keysMax } });
    for (const key of ['a', 'b', 'c']) {
      await unannounced(key, 'before');
      await unannounced(key, key === 'b' ? 'before' : 'something else');
    }
    world.clock.advance(HOUR);
    let listed = 0;
    world.beforeS3((call) => {
      if (call === 'ListObjectVersions') listed += 1;
    });
    expect(await sweep({ since: ago(DAY) })).toMatchObject({ missed: 3 });
    expect(listed).toBe(lists);
    // The one with as many bytes may be a copy.
    expect(world.count('UploadsBackfilled')).toBe(2);
  });

  it.each([
    ['of an upload of today', 0],
    ['of a multipart upload that took two days', -2 * DAY],
    ['of an upload whose LastModified lies in the future', 400 * DAY],
  ])('repairs the entry %s, and does not read it again until it changes', async (_, fromNow) => {
    await deployed();
    await sweepAfter(10 * DAY);
    await claimed('a', world.clock.now() + fromNow);
    expect(await sweepAfter(HOUR)).toMatchObject({ repaired: 1 });
    expect(await sweepAfter(HOUR)).toMatchObject({ repaired: 0 });
  });

  it('leaves an entry that it could not read to the ticks', async () => {
    let isDenied = false;
    await start({
      s3: { authorize: ({ action, resource }) => !(isDenied && action === 's3:GetObject' && /uploads/.test(resource)) },
    });
    await sweep();
    for (const key of ['a', 'b']) await claimed(key, world.clock.now());
    world.clock.advance(HOUR);
    isDenied = true;
    await expect(sweep()).rejects.toThrow('2 uploads could not be swept');
    isDenied = false;
    expect(await sweep()).toMatchObject({ repaired: 0 });
    world.clock.advance(2 * HOUR);
    await world.settle();
    for (const key of ['a', 'b']) expect((await world.receipt(key)).status).toBe('failed');
  });
});

describe('an upload that is too old for the daily sweep', () => {
  it.each<[string, () => () => void, string, object]>([
    ['finishes the upload if the invocation that claimed it', () => dyingAt(world.ports.ledger, 'replace'), 'x', {}],
    [
      'publishes the receipt if the invocation that failed it',
      () => dyingAt(world.ports.receipts, 'put'),
      'too long',
      { code: 'input-too-large' },
    ],
  ])('has a marker that %s died, and the message was lost', async (_, dying, body, failure) => {
    await start({ settings: { inputBytesMax: 1 } });
    await world.upload('old', body);
    world.clock.advance(3 * DAY);
    const revive = dying();
    await world.deliver();
    revive();
    world.clock.advance(HOUR);
    world.takeMessages();
    expect(world.queue.counts()).toMatchObject({ visible: 0, inFlight: 0 });
    expect((await world.settled('old')).failure ?? {}).toMatchObject(failure);
    expect(world.service.flows).toHaveLength(body === 'x' ? 1 : 0);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});

describe('a damaged state of the sweep', () => {
  it('is mended, reported once, and leaves no upload out', async () => {
    await start();
    await unannounced('before the deployment');
    world.clock.advance(DAY);
    await sweep();
    await sweepAfter(DAY);
    await unannounced('lost');
    world.clock.advance(DAY);
    await putSweepState({ ...(await sweepState()), watermark: Date.UTC(2099, 0) });
    expect(await sweep()).toMatchObject({ kind: 'daily', complete: true, missed: 1 });
    await world.settle();
    expect(await sweepAfter(DAY)).toMatchObject({ missed: 0 });
    expect((await world.receipt('lost')).status).toBe('succeeded');
    expect(world.count('SweepStateDamaged')).toBe(1);
    const damaged = world.logged.find(({ level, fields }) => level === 'error' && 'damaged' in fields);
    expect(damaged?.fields).toMatchObject({ damaged: 'watermark' });
  });
});

describe('a sweep that meets trouble', () => {
  it('goes on with all others, and then fails', async () => {
    await deployed();
    for (const key of ['a', 'b']) await unannounced(key);
    const { id } = (await world.ports.inbox.open({ bucket: INBOX, key: 'a' }, never)).upload;
    await world.put(LEDGER, `uploads/${id}.json`, '{"schema":99}');
    await expect(sweepAfter(HOUR)).rejects.toThrow('1 uploads could not be swept');
    expect(world.count('EntriesUnreadable')).toBe(1);
    expect(world.takeMessages()).toEqual([expect.stringContaining('"key":"b"')]);
  });
});

describe('a requested pass', () => {
  /** Files from before the deployment's first day, and a backfill of them that is cut off after a few. */
  async function cutOff({ since = ago(2 * HOUR), uploadsPerSecond = 10 } = {}): Promise<string> {
    await aged(20);
    world.remainingMs = 1_500;
    expect(await sweep({ since, uploadsPerSecond })).toMatchObject({ complete: false });
    world.remainingMs = 20_000;
    return since;
  }

  it('is only recorded by its request, which answers at once; a tick runs it', async () => {
    await start();
    await aged(10);
    const since = ago(2 * HOUR);
    const begun = { since, startedAt: new Date(world.clock.now()).toISOString(), compared: 0, missed: 0, repaired: 0 };
    expect(await world.requestSweep({ since })).toEqual({ underWay: { backfill: begun }, ended: {} });
    expect(world.queue.counts().visible).toBe(0);
    await world.collect();
    expect(world.queue.counts().visible).toBe(10);
    const { underWay, ended } = await world.requestSweep({ status: true });
    expect(underWay).toEqual({});
    expect(ended.backfill).toEqual({ ...begun, endedAt: expect.any(String), compared: 10, missed: 10 });
    expect(world.count('UploadsBackfilled')).toBe(10);
    expect(world.count('UploadsMissed')).toBe(0);
  });

  it('that only counts also counts by route, so that the question can say what the flows cost', async () => {
    await start();
    await aged(3);
    await world.requestSweep({ since: ago(2 * HOUR), dryRun: true });
    await world.collect();
    const { ended } = await world.requestSweep({ status: true });
    expect(ended.dryRun).toMatchObject({ missed: 3, missedByRoute: { echo: 3 } });
  });

  it('sends a hundred messages at most while the queue is not emptied, and goes on in the next tick', async () => {
    await start();
    await aged(130);
    const request = { since: ago(2 * HOUR), uploadsPerSecond: 1_000 };
    world.remainingMs = 10_000;
    expect(await sweep(request)).toMatchObject({ complete: false });
    expect(world.queue.counts().visible).toBe(100);
    await world.deliverAll();
    expect(await world.continueSweep()).toMatchObject({ complete: true });
    await world.settle();
    expect(world.service.flows).toHaveLength(130);
  });

  it('lets live files go first: its uploads are late, and those of a daily pass are not', async () => {
    await deployed();
    await unannounced('old');
    world.clock.advance(HOUR);
    await sweep({ since: ago(2 * HOUR) });
    await world.deliver();
    await unannounced('missed');
    await sweepAfter(DAY);
    await world.deliver();
    expect((await world.entries()).map(({ upload, late }) => [upload.key, late])).toEqual([
      ['old', true],
      ['missed', undefined],
    ]);
  });

  it('is run beside a tick that is busy for its whole time', async () => {
    await start({ service: { flowMs: 1 } });
    await world.send('slow');
    world.clock.advance(MINUTE);
    await unannounced('old');
    world.clock.advance(HOUR);
    world.fault('getAsset', { delayMs: HOUR });
    await world.requestSweep({ since: ago(2 * HOUR) });
    await world.collect().catch(() => {});
    expect(world.queue.counts().visible).toBe(1);
  });

  it('that is requested twice at once submits everything once', async () => {
    await start();
    await aged(10);
    const request = { since: ago(2 * HOUR) };
    const answers = await Promise.allSettled([sweep(request), sweep(request)]);
    expect(answers.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(world.queue.counts().visible).toBe(10);
    expect(await sweep(request)).toMatchObject({ complete: true });
  });

  it('is continued by the ticks at its pace, and says what all its runs did', async () => {
    await start({ s3: { keysMax: 5 } });
    const since = await cutOff({ uploadsPerSecond: 20 });
    expect((await world.requestSweep({ status: true })).underWay.backfill).toMatchObject({ since });
    while ((await world.continueSweep()) !== undefined) expect(world.clock.now()).toBeLessThan(Date.UTC(2100, 0));
    const { ended } = await world.requestSweep({ status: true });
    expect(ended.backfill).toMatchObject({ since, compared: 20, missed: 20 });
    await world.settle();
    expect(await world.entries()).toHaveLength(20);
    expect(Object.keys(await sweepState())).toEqual(['schema', 'firstDay', 'watermark', 'inboxes', 'ended']);
  });

  it.each([
    ['backfill', {}],
    ['dry run', { dryRun: true }],
  ])('is refused while a backfill is under way, with its state, until it is stopped: a %s', async (_, more) => {
    await start();
    await cutOff();
    const request = { since: ago(9 * HOUR), uploadsPerSecond: 500, ...more };
    await expect(sweep(request)).rejects.toThrow(PassUnderWayError);
    await expect(sweep(request)).rejects.toThrow(/^A backfill since .* missed.*"stop": true/);
    await world.requestSweep({ stop: true });
    expect(await sweep(request)).toMatchObject({ complete: true });
  });

  it('that is stopped, and requested again, is soon left by its old run', async () => {
    await start();
    await aged(40);
    world.remainingMs = 60_000;
    const request = { since: ago(2 * HOUR), uploadsPerSecond: 1 };
    await world.requestSweep(request);
    const again = async () => {
      await world.clock.sleep(1_000);
      await world.requestSweep({ stop: true });
      expect(await sweepState()).not.toHaveProperty('backfill');
      await world.requestSweep(request);
      return world.continueSweep();
    };
    const [first, second] = await Promise.all([world.continueSweep(), again()]);
    expect(second).toMatchObject({ complete: true, missed: 40 });
    expect(first).toMatchObject({ complete: false });
    // It asks every ten seconds, and ends when it finds another holder.
    expect(first?.missed).toBeLessThanOrEqual(12);
  });

  it('waits for the daily pass when it is due, and then continues', async () => {
    await start();
    await cutOff({ uploadsPerSecond: 0.01 });
    for (let day = 0; day < 3; day += 1) {
      await unannounced(`new/${day}`);
      world.clock.advance(DAY);
      expect(await world.continueSweep()).toMatchObject({ kind: 'daily', complete: true, missed: 1 });
      await world.settle();
      expect(await world.continueSweep()).toMatchObject({ kind: 'backfill', complete: false });
    }
  });

  it('that begins after the watermark does not move it, because it leaves a gap', async () => {
    await start();
    await world.tick();
    await sweep();
    const before = await sweepState();
    world.clock.advance(12 * HOUR);
    await sweep({ since: ago(HOUR) });
    const after = await sweepState();
    expect(after.watermark).toBe(before.watermark);
    await sweep();
    expect((await sweepState()).watermark).toBeGreaterThan(before.watermark);
  });
});
