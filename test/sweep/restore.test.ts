import { DeleteObjectCommand, ListObjectVersionsCommand, PutBucketVersioningCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import type { ClaimedEntry, Entry, RunningEntry } from '../../functions/ledger/entry.ts';
import { retryUploads } from '../../functions/operator/retry.ts';
import type { CompletionEvent } from '../../functions/publish/completion-event.ts';
import {
  answer,
  DAY,
  HOUR,
  INBOX,
  LEDGER,
  MINUTE,
  RESULTS,
  start,
  type WorldOptions,
  world,
} from '../support/world.ts';

/** A copy of objects of the ledger, by key. */
type Backup = Map<string, string>;

async function backup(): Promise<Backup> {
  const copy: Backup = new Map();
  for (const key of await world.keys(LEDGER)) copy.set(key, (await world.object(LEDGER, key)).bytes.toString());
  return copy;
}

const deleted = (key: string) => world.remove(key, LEDGER);

/** Replaces the whole ledger, as a new bucket with the copy does. */
async function restore(copy: Backup): Promise<void> {
  for (const key of await world.keys(LEDGER)) await deleted(key);
  for (const [key, body] of copy) await world.put(LEDGER, key, body);
}

const withoutState = (copy: Backup): Backup => new Map([...copy].filter(([key]) => !key.startsWith('state/')));

const entriesOnly = (copy: Backup): Backup => new Map([...copy].filter(([key]) => key.startsWith('uploads/')));

const entryAt = (copy: Backup, key: string): Entry => {
  const entries = [...copy].flatMap(([at, body]) => (at.startsWith('uploads/') ? [JSON.parse(body) as Entry] : []));
  const found = entries.find(({ upload }) => upload.key === key);
  if (found === undefined) throw new Error(`No entry of ${key}`);
  return found;
};

/** What a copy holds if it is made between the claim of an upload and the answer of the service. */
function beforeItsAnswer(copy: Backup, key: string): void {
  const { flow, ...rest } = entryAt(copy, key) as RunningEntry;
  const { createdAt: claimedAt } = flow;
  const claimed: ClaimedEntry = { ...rest, state: 'claimed', keyScope: '', claimedAt, deadline: claimedAt + 80_000 };
  copy.set(`uploads/${rest.upload.id}.json`, JSON.stringify(claimed));
  for (const marker of copy.keys()) {
    if (marker.startsWith('running/') && marker.includes(rest.upload.id)) copy.delete(marker);
  }
}

/** The number of flows that were made of each file: what is paid for. */
function paid(): Record<string, number> {
  const keys = world.sentKeys;
  return Object.fromEntries(keys.map((key) => [key, keys.filter((other) => other === key).length]));
}

const statuses = async (...keys: string[]) => Promise.all(keys.map(async (key) => (await world.receipt(key)).status));

const ALL = ['ended', 'running', 'claimed', 'waiting', 'later', 'last'];

/**
 * A world that loses its ledger. At the time of the copy, one upload has ended, one has a running flow, one is claimed
 * and one waits. Then all four end. Two come later: one has ended too, and the flow of the last one runs.
 */
async function openWithBackup(options: WorldOptions = {}): Promise<{ readonly copy: Backup; readonly at: number }> {
  await start(options);
  await world.sweep();
  await world.upload('ended', 'ended');
  await world.settle();
  await world.upload('running', 'running');
  await world.send('claimed', 'claimed');
  world.fault('createFlow', { reset: 'before-body' });
  await world.send('waiting', 'waiting');
  const copy = await backup();
  const at = world.clock.now();
  beforeItsAnswer(copy, 'claimed');
  expect(entryAt(copy, 'waiting').state).toBe('waiting');

  world.service.intercept = undefined;
  world.clock.advance(HOUR);
  await world.upload('later', 'later');
  await world.settle();
  await world.send('last', 'last');
  expect(paid()).toEqual(Object.fromEntries(ALL.map((key) => [key, 1])));
  expect(await statuses('ended', 'running', 'claimed', 'waiting', 'later')).toEqual(Array(5).fill('succeeded'));
  return { copy, at };
}

describe('an older ledger without its state', () => {
  it('pays by itself only for what waited without a doubt when it was copied', async () => {
    const { copy } = await openWithBackup();
    await restore(withoutState(copy));
    for (let day = 0; day < 3; day += 1) {
      world.clock.advance(DAY);
      await world.sweep();
      await world.settle();
    }
    expect(paid()).toEqual({ ended: 1, running: 1, claimed: 1, waiting: 2, later: 1, last: 1 });
    expect(world.count('UploadsMissed')).toBe(0);
  });

  it.each([
    ['with its markers', withoutState],
    ['with its entries alone', entriesOnly],
  ])('%s finds its running and claimed flows, if a sweep is told when the restore began', async (_, partOf) => {
    const { copy } = await openWithBackup();
    const told = world.events.length;
    const stored = await world.keys(RESULTS, 'running/');
    world.clock.advance(10 * MINUTE);
    // A minute before: S3 dates objects in whole seconds.
    const since = new Date(world.clock.now() - MINUTE).toISOString();
    await restore(partOf(copy));
    // The claimed upload has no marker in the copy, and its message is gone. The pass puts the marker.
    world.clock.advance(10 * MINUTE);
    expect(await world.sweep({ since })).toMatchObject({ complete: true, missed: 0 });
    await world.settle();
    expect(world.count('FlowsAdopted')).toBe(1);
    expect(paid()).toEqual({ ended: 1, running: 1, claimed: 1, waiting: 2, later: 1, last: 1 });
    expect(await statuses('ended', 'running', 'claimed', 'waiting')).toEqual(Array(4).fill('succeeded'));
    // What was stored before is found in its place, and each end is told again as a new one.
    expect(await world.keys(RESULTS, 'running/')).toEqual(stored);
    expect(world.events.length).toBe(told + 3);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
  });

  it('loses nothing and pays again for what came later, if a sweep is told the time of the copy', async () => {
    const { copy, at } = await openWithBackup();
    await restore(withoutState(copy));
    world.clock.advance(HOUR);
    const since = new Date(at - 2 * DAY).toISOString();
    expect(await world.sweep({ since, dryRun: true })).toMatchObject({ complete: true, missed: 2 });
    expect(paid()).toMatchObject({ later: 1, last: 1 });
    expect(await world.sweep({ since })).toMatchObject({ complete: true, missed: 2 });
    await world.settle();
    expect(paid()).toEqual({ ended: 1, running: 1, claimed: 1, waiting: 2, later: 2, last: 2 });
    expect(await statuses(...ALL)).toEqual(Array(ALL.length).fill('succeeded'));
    // The receipt is that of the later flow, whose assets are beside those of the first one.
    const { flow, assets } = await world.receipt('later');
    expect(flow?.id).toBe(world.service.flows.filter(({ inputs }) => inputs[0]?.bytes === 'later'.length).at(-1)?.id);
    for (const { key } of assets) expect(await world.keys(RESULTS, key)).toEqual([key]);
  });

  it('pays for one upload that came later if the operator announces this one only', async () => {
    const { copy } = await openWithBackup();
    await restore(withoutState(copy));
    world.clock.advance(HOUR);
    // `later` has its receipt. `last` had none yet.
    expect(await world.keys(RESULTS, 'later/receipt.json')).toHaveLength(1);
    expect(await world.keys(RESULTS, 'last/receipt.json')).toEqual([]);
    const eventTime = new Date(world.clock.now()).toISOString();
    const s3 = { bucket: { name: INBOX }, object: { key: 'last' } };
    world.queue.send(JSON.stringify({ Records: [{ eventName: 'ObjectCreated:Put', eventTime, s3 }] }));
    expect((await world.settled('last')).upload).toMatchObject({ currentAt: eventTime });
    expect(paid()).toMatchObject({ later: 1, last: 2 });
    expect(await statuses('later', 'last')).toEqual(['succeeded', 'succeeded']);
  });

  /** Restores an older ledger, and ticks until the flow of `running`, which the service has deleted, was given up. */
  async function restoreWithoutFlow(): Promise<RunningEntry> {
    const { copy } = await openWithBackup();
    const entry = entryAt(copy, 'running') as RunningEntry;
    await restore(withoutState(copy));
    loseFlow(entry.flow.id);
    return entry;
  }

  function loseFlow(id: string): void {
    world.service.intercept = ({ url }, { operation }) => {
      if (operation === 'listFlows') return answer({ flows: [] });
      return url.includes(`/flows/${id}`) ? { status: 404 } : undefined;
    };
  }

  async function tickFor80Minutes(): Promise<void> {
    for (let i = 0; i < 4; i += 1) await world.tickAfter(20 * MINUTE);
  }

  const idOf = ({ detail }: CompletionEvent): string => JSON.parse(detail).id;

  it('ends a flow that the service has deleted meanwhile as its receipt says: its results are there', async () => {
    const { upload, flow } = await restoreWithoutFlow();
    const receipt = await world.receipt('running');
    const told = world.events.map((event) => ({ id: idOf(event), ...event }));
    await tickFor80Minutes();
    expect(await world.receipt('running')).toEqual(receipt);
    expect(await world.json<Entry>(LEDGER, `uploads/${upload.id}.json`)).toMatchObject({
      state: 'succeeded',
      flow,
      assets: receipt.assets,
      endedAt: Date.parse(receipt.endedAt),
    });
    // The end is told again as the same one.
    const again = world.events.slice(told.length).filter((event) => idOf(event).startsWith(upload.id));
    expect(again.map(idOf)).toEqual([told.find(({ id }) => id.startsWith(upload.id))?.id]);
    expect(again.map(({ detailType }) => detailType)).toEqual(['Flow Succeeded']);
    expect(await world.keys(LEDGER, `running/`)).not.toContainEqual(expect.stringContaining(upload.id));
    expect(await retryUploads([upload.id], world.ports, new AbortController().signal)).toMatchObject([
      { result: 'succeeded already' },
    ]);
    expect(paid()).toMatchObject({ running: 1 });
  });

  it('tells the end in the same words if its flow was found anew before the service deleted it', async () => {
    const { copy } = await openWithBackup();
    const { flow } = await world.receipt('claimed');
    const { upload } = entryAt(copy, 'claimed');
    const endsOf = () => world.events.filter((event) => idOf(event).startsWith(upload.id));
    const told = endsOf();
    world.clock.advance(10 * MINUTE);
    const since = new Date(world.clock.now() - MINUTE).toISOString();
    await restore(withoutState(copy));
    world.clock.advance(10 * MINUTE);
    await world.sweep({ since });
    world.service.intercept = ({ url }) => (url.includes(`/flows/${flow?.id}`) ? { status: 503 } : undefined);
    await world.deliverAndTick(4, 20 * MINUTE);
    const entry = () => world.json<Entry>(LEDGER, `uploads/${upload.id}.json`);
    expect(await entry()).toMatchObject({ state: 'running', flow: { id: flow?.id } });
    loseFlow(flow?.id ?? '');
    await tickFor80Minutes();
    expect(await entry()).toMatchObject({ state: 'succeeded' });
    expect(endsOf()).toEqual([...told, ...told]);
    expect(await world.keys(LEDGER, 'running/')).not.toContainEqual(expect.stringContaining(upload.id));
    expect(paid()).toMatchObject({ claimed: 1 });
  });

  it('ends such a flow as failed if no receipt tells of its success', async () => {
    const { upload } = await restoreWithoutFlow();
    await world.remove('running/receipt.json', RESULTS);
    await tickFor80Minutes();
    const failure = { code: 'flow-gone' };
    expect(await world.json<Entry>(LEDGER, `uploads/${upload.id}.json`)).toMatchObject({ state: 'failed', failure });
    expect(await world.receipt('running')).toMatchObject({ status: 'failed', failure });
  });
});

describe('an older ledger that does not know a retry', () => {
  it('leaves the receipt of the retry as it is, and pays for nothing again', async () => {
    await start();
    world.fault('createFlow', { status: 422 }, 1);
    await world.upload('a', 'a');
    await world.settle();
    expect(await statuses('a')).toEqual(['failed']);
    const copy = await backup();
    await world.retry();
    await world.settle();
    expect(await statuses('a')).toEqual(['succeeded']);
    world.clock.advance(HOUR);
    const since = new Date(world.clock.now() - MINUTE).toISOString();
    await restore(withoutState(copy));
    world.clock.advance(HOUR);
    await world.sweep({ since });
    await world.settle();
    expect(await world.entry()).toMatchObject({ state: 'failed', generation: 1 });
    expect(await world.receipt('a')).toMatchObject({ status: 'succeeded', generation: 2 });
    expect(paid()).toEqual({ a: 1 });
  });
});

describe('an older ledger with its state', () => {
  it('pays again for all that came later, at the next daily sweep', async () => {
    const { copy } = await openWithBackup();
    await restore(copy);
    world.clock.advance(HOUR);
    expect(await world.sweep()).toMatchObject({ kind: 'daily', missed: 2 });
    await world.settle();
    expect(paid()).toMatchObject({ ended: 1, running: 1, claimed: 1, later: 2, last: 2 });
    expect(await statuses(...ALL)).toEqual(Array(ALL.length).fill('succeeded'));
  });
});

describe('a versioned ledger', () => {
  const versioned = () =>
    world.s3.send(new PutBucketVersioningCommand({ Bucket: LEDGER, VersioningConfiguration: { Status: 'Enabled' } }));

  /** Undoes the deletions below a prefix: deletes the delete markers that are current. */
  async function undelete(prefix: string): Promise<number> {
    const { DeleteMarkers = [], IsTruncated } = await world.s3.send(
      new ListObjectVersionsCommand({ Bucket: LEDGER, Prefix: prefix }),
    );
    expect(IsTruncated).toBe(false);
    const current = DeleteMarkers.filter(({ IsLatest }) => IsLatest);
    for (const { Key, VersionId } of current) {
      await world.s3.send(new DeleteObjectCommand({ Bucket: LEDGER, Key, VersionId }));
    }
    return current.length;
  }

  /** Some uploads go all their way, one of them by a wait. */
  async function openVersioned(): Promise<void> {
    await start();
    await versioned();
    await world.sweep();
    world.fault('createFlow', { reset: 'before-body' }, 1);
    for (const key of ['a', 'b', 'c']) await world.upload(key, key);
    await world.settle();
    expect(paid()).toEqual({ a: 1, b: 1, c: 1 });
  }

  it('gets its deleted entries back, and pays for nothing again', async () => {
    await openVersioned();
    for (const key of await world.keys(LEDGER, 'uploads/')) await deleted(key);
    world.clock.advance(HOUR);
    expect(await world.sweep({ since: '2000-01-01', dryRun: true })).toMatchObject({ missed: 3 });
    expect(await undelete('uploads/')).toBe(3);
    expect(await world.sweep({ since: '2000-01-01' })).toMatchObject({ missed: 0 });
    await world.settle();
    expect(paid()).toEqual({ a: 1, b: 1, c: 1 });
  });

  it('drops markers that came back with their delete markers, and pays for nothing again', async () => {
    await openVersioned();
    const told = new Set(world.events.map(({ detail }) => JSON.parse(detail).id));
    expect(await undelete('running/')).toBe(3);
    expect(await undelete('waiting/')).toBeGreaterThan(0);
    world.clock.advance(2 * HOUR);
    await world.settle();
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
    expect(paid()).toEqual({ a: 1, b: 1, c: 1 });
    expect(await statuses('a', 'b', 'c')).toEqual(Array(3).fill('succeeded'));
    // The ends are told again, by the same ids.
    expect(new Set(world.events.map(({ detail }) => JSON.parse(detail).id))).toEqual(told);
  });
});
