import { beforeEach, describe, expect, it } from 'vitest';
import { firstClaim, type Wait, waiting, waitingMarkerOf } from '../../functions/ledger/entry.ts';
import type { WaitingMarker } from '../../functions/ledger/keys.ts';
import { WaitingUploads } from '../../functions/resubmit/waiting-uploads.ts';
import { uploadId } from '../../functions/uploads/upload.ts';
import { never } from '../flow-service/scripted.ts';
import { INBOX, LEDGER, openWorld, type World } from '../support/world.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

let world: World;
let waitingUploads: WaitingUploads;
beforeEach(async () => {
  world = await openWorld({ isVirtual: true });
  waitingUploads = new WaitingUploads(world.ports, undefined, () => true);
});

/** An object. The ids of these objects are in the reverse order of the times since which the uploads wait. */
function objectOf(index: number) {
  const lastModified = (Math.floor(world.clock.now() / SECOND) - index) * SECOND;
  const object = { bucket: INBOX, key: `${index}`, etag: 'e', lastModified };
  return { id: uploadId(object), ...object, bytes: 1, mediaType: 'a/b' };
}

/** Makes an upload that has waited for so many minutes, and is due. */
async function waits(index: number, minutesAgo: number, reason: Wait['reason'] = 'throttled'): Promise<WaitingMarker> {
  const { ledger, clock } = world.ports;
  const since = clock.now() - minutesAgo * MINUTE;
  const upload = objectOf(index);
  const route = { name: 'echo', input: 'file' as const, template: 'bytes_echo' };
  const claim = firstClaim(upload, route, { claimedAt: since, deadline: since + MINUTE, pipeline: 'test' });
  const written = await ledger.create(claim, never);
  if (!written.won) throw new Error(`There is an upload ${index} already`);
  const wait = { reason, message: 'Come again.', counted: false, notBefore: clock.now() - SECOND };
  const entry = waiting(claim, wait);
  await ledger.replace({ ...written.stored, entry: claim }, entry, never);
  const marker = waitingMarkerOf(entry) as WaitingMarker;
  await ledger.putWaitingMarker(marker, never);
  return marker;
}

const throttled = async (count: number): Promise<WaitingMarker[]> => {
  const markers: WaitingMarker[] = [];
  for (let index = 0; index < count; index += 1) markers.push(await waits(index, 60 - index));
  return markers;
};

/** Returns the uploads that one round resubmits, a minute after the last round. */
async function round(endedCount = 0): Promise<number[]> {
  world.clock.advance(MINUTE);
  const { failures } = await waitingUploads.resubmitDue(endedCount, never);
  expect(failures).toEqual([]);
  const messages = world.takeMessages();
  return messages.map((body) => Number(/"key":"(\d+)"/.exec(body)?.[1])).sort((a, b) => a - b);
}

/** The service refuses a resubmitted upload, so its marker is back at its place in the queue. */
const refused = (marker: WaitingMarker, waitMs: number): Promise<void> =>
  world.ports.ledger.putWaitingMarker({ ...marker, notBefore: world.clock.now() + waitMs }, never);

describe('uploads that the service throttled', () => {
  it('leave their queue longest waiting first, one more of them than flows have ended', async () => {
    await throttled(9);
    expect(await round()).toEqual([0]);
    expect(await round(3)).toEqual([1, 2, 3, 4]);
  });

  it('leave it in twice the number each time, until one comes back', async () => {
    await throttled(16);
    const sizes: number[] = [];
    for (let i = 0; i < 5; i += 1) sizes.push((await round()).length);
    expect(sizes).toEqual([1, 1, 2, 4, 8]);
  });

  it('leave it one by one again after one came back', async () => {
    const markers = await throttled(12);
    for (let i = 0; i < 3; i += 1) await round();
    await refused(markers[3] as WaitingMarker, HOUR);
    const sizes: number[] = [];
    for (let i = 0; i < 3; i += 1) sizes.push((await round()).length);
    expect(sizes[0]).toBeLessThanOrEqual(4);
    expect(sizes.slice(1)).toEqual([1, 2]);
  });

  it('leave it in the numbers of the last tick', async () => {
    await throttled(8);
    for (let i = 0; i < 3; i += 1) await round();
    waitingUploads = new WaitingUploads(world.ports, waitingUploads.remembered, () => true);
    expect(await round()).toHaveLength(4);
  });

  it('do not wait behind one that comes back every time', async () => {
    const markers = await throttled(6);
    const [poisoned] = markers as [WaitingMarker];
    const sent: number[] = [];
    for (let i = 0; i < 8; i += 1) {
      const next = await round();
      if (next.includes(0)) await refused(poisoned, 2 * MINUTE);
      sent.push(...next);
    }
    expect(new Set(sent)).toEqual(new Set([0, 1, 2, 3, 4, 5]));
  });

  it('do not delay uploads that wait for another reason', async () => {
    await throttled(3);
    for (let index = 10; index < 16; index += 1) await waits(index, 5, 'unavailable');
    expect(await round()).toEqual([0, 10, 11, 12, 13, 14, 15]);
  });

  it('are left to their own collector', async () => {
    const [first] = await throttled(3);
    waitingUploads = new WaitingUploads(world.ports, undefined, (id) => id !== first?.uploadId);
    expect(await round()).toEqual([1]);
  });
});

describe('a round', () => {
  beforeEach(() => {
    waitingUploads = new WaitingUploads(world.ports, undefined, () => true, 3);
  });

  it('resubmits no more than its limit, longest due first, and the next one resubmits the others', async () => {
    for (let index = 0; index < 5; index += 1) await waits(index, 60 - index, 'unavailable');
    expect(await round()).toHaveLength(3);
    expect(await round()).toHaveLength(2);
    expect(await round()).toEqual([]);
  });

  it('is not filled for ever by entries that cannot be read', async () => {
    const due = world.clock.now() - HOUR;
    for (let index = 0; index < 3; index += 1) {
      const { id: uploadId } = objectOf(index);
      await world.put(LEDGER, `uploads/${uploadId}.json`, '{"schema":99}');
      await world.ports.ledger.putWaitingMarker({ uploadId, notBefore: due }, never);
    }
    await waits(9, 5, 'unavailable');
    expect(await round()).toEqual([]);
    expect(world.count('EntriesUnreadable')).toBe(3);
    expect(await round()).toEqual([9]);
    expect(world.count('EntriesUnreadable')).toBe(3);
    world.clock.advance(HOUR);
    expect(await round()).toEqual([]);
    expect(world.count('EntriesUnreadable')).toBe(6);
  });
});

describe('the marker of a wait that is over', () => {
  it('is replaced by the missing marker of the flow that the upload has by now', async () => {
    await world.send('a', 'hello');
    const [running = ''] = await world.keys(LEDGER, 'running/');
    const { upload } = await world.entry();
    await world.remove(running, LEDGER);
    const due = { uploadId: upload.id, notBefore: world.clock.now() - 1 };
    await world.ports.ledger.putWaitingMarker(due, never);

    await world.tick();

    expect(await world.keys(LEDGER, 'running/')).toEqual([running]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});
