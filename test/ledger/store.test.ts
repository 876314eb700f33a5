import { describe, expect, it } from 'vitest';
import { retryUploads } from '../../functions/operator/retry.ts';
import { messageFor } from '../../functions/uploads/upload-event.ts';
import { LEDGER, MINUTE, openWorld } from '../support/world.ts';
import { claim, upload } from './support.ts';

const signal = new AbortController().signal;

describe('an object at the key of an entry that is', () => {
  const nested = '['.repeat(50_000) + ']'.repeat(50_000);
  const foreign = 'names an object that is not its upload';
  const damaged: readonly (readonly [what: string, body: string | object, message: string])[] = [
    ['empty', '', 'is not JSON'],
    ['not JSON', 'not JSON', 'is not JSON: not JSON'],
    ['cut', '{"schema":6,"st', 'is not JSON: {"schema":6,"st'],
    ['null', 'null', 'is damaged: the whole: '],
    ['a list', '[]', 'is damaged: '],
    ['text', '"entry"', 'is damaged: the whole: '],
    ['lists in lists', nested, 'is damaged: '],
    ['of a format that is a text', { ...claim, schema: '6' }, 'is damaged: schema: '],
    ['nothing but a schema', { schema: 6 }, 'is damaged: state: '],
    ['of another upload', { ...claim, upload: { ...upload, id: '0'.repeat(40) } }, 'holds the entry of upload 000'],
    ['of an object in another bucket', { ...claim, upload: { ...upload, bucket: 'x' } }, `${foreign}: x/a.png`],
    ['of another object', { ...claim, upload: { ...upload, key: 'another' } }, `${foreign}: inbox/another`],
    ['of another version', { ...claim, upload: { ...upload, versionId: 'another' } }, foreign],
  ];
  it.each(damaged)('%s cannot be read, and the error says why', async (_, body, message) => {
    const world = await openWorld({ isVirtual: true });
    const key = `uploads/${upload.id}.json`;
    await world.put(LEDGER, key, typeof body === 'string' ? body : JSON.stringify(body));
    const reading = world.ports.ledger.read(upload.id, signal);
    await expect(reading).rejects.toMatchObject({ name: 'UnreadableEntryError' });
    await expect(reading).rejects.toThrow(`${key} ${message}`);
  });
});

describe('the ledger', () => {
  it('finds a flow from before a time, even after the flow ended', async () => {
    const world = await openWorld({ isVirtual: true });
    const { ledger } = world.ports;
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(false);

    const before = world.clock.now();
    world.clock.advance(MINUTE);
    await world.send('a.bin');
    world.clock.advance(MINUTE);
    expect(await ledger.hadFlowBefore(before, signal)).toBe(false);
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);

    await world.settle();
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
  });

  it('finds the flows that were made in a time, of the files that were put next to its beginning', async () => {
    const world = await openWorld({ isVirtual: true });
    const { ledger } = world.ports;
    for (let n = 0; n < 30; n += 1) {
      await world.send(`${n}.bin`);
      world.clock.advance(5_000);
    }
    const since = (await world.entries())[6]?.upload.lastModified ?? 0;
    const before = world.clock.now();
    const ids = world.service.flows.map(({ id }) => id);
    // Six files were put before that time. Ten at most are read from before it, and ten from after it.
    expect(await ledger.flowsMade({ since, before }, signal)).toEqual(ids.slice(0, 16));
    await world.settle();
    expect(await ledger.flowsMade({ since, before: since + 1_000 }, signal)).toEqual(ids.slice(0, 7));
  });

  it('shows whether uploads wait in the line, however many wait for a time', async () => {
    const world = await openWorld({ isVirtual: true });
    const { ledger } = world.ports;
    const now = world.clock.now();
    const waiting = (at: number, uploadId: string) => ({ notBefore: now + at, uploadId });
    const turn = { class: 'live', route: 'echo', segment: '!', since: now } as const;
    const isWanted = (uploadId: string) => uploadId !== 'bb';
    const waitingAt = () => ledger.waitingAt(now, { max: 2, isWanted }, signal);
    expect(await waitingAt()).toEqual({ due: [], isLine: false });
    for (const id of ['aa', 'bb', 'cc', 'dd']) await ledger.putWaitingMarker(waiting(-MINUTE, id), signal);
    expect(await waitingAt()).toEqual({ due: [waiting(-MINUTE, 'aa'), waiting(-MINUTE, 'cc')], isLine: false });
    // More than one page of a listing.
    for (let n = 0; n < 1_000; n += 1) await ledger.putWaitingMarker(waiting(MINUTE + n, 'ee'), signal);
    expect((await waitingAt()).isLine).toBe(false);
    await ledger.putWaitingMarker({ ...waiting(MINUTE, 'ff'), turn }, signal);
    expect(await waitingAt()).toEqual({ due: [waiting(-MINUTE, 'aa'), waiting(-MINUTE, 'cc')], isLine: true });
  });

  it('takes an entry that cannot be read for one of an upload with a flow', async () => {
    const world = await openWorld({ isVirtual: true });
    // Damaged, or written by another version.
    for (const body of ['{"schema":6,"st', '{"schema":5}', '{"schema":99}']) {
      await world.put(LEDGER, `uploads/${'a'.repeat(40)}.json`, body);
      expect(await world.ports.ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
    }
  });

  it('finds no flow of a refused upload, and reads all pages of the listing: S3 may end a page early', async () => {
    const world = await openWorld({ isVirtual: true, s3: { keysMax: 1 } });
    const { ledger } = world.ports;
    await world.send('empty.bin', '');
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(false);
    await world.put(LEDGER, `uploads/${'f'.repeat(40)}.json`, 'damaged');
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
  });

  it('takes a ledger with many entries for one with a flow, however short the pages are', async () => {
    const world = await openWorld({ isVirtual: true, s3: { keysMax: 5 } });
    const { ledger } = world.ports;
    const uploadEmpty = async (count: number) => {
      for (let number = 1; number <= count; number += 1) await world.upload(`empty-${count}-${number}.bin`, '');
      await world.deliverAll();
    };
    await uploadEmpty(20);
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(false);
    await uploadEmpty(1);
    expect(await ledger.hadFlowBefore(world.clock.now(), signal)).toBe(true);
  });
});

describe('an entry that cannot be read', () => {
  it('is named in an error, harms no other upload, and keeps its message', async () => {
    const world = await openWorld({ isVirtual: true });
    await world.send('a');
    const { upload } = await world.entry();
    const key = `uploads/${upload.id}.json`;
    await world.put(LEDGER, key, '{"schema":99}');

    // The message comes again until it is a dead letter, which the operator can inspect.
    world.queue.send(messageFor(upload));
    expect((await world.deliver())?.batchItemFailures).toHaveLength(1);
    const errors = world.logged.map(({ fields }) => String(fields.error));
    expect(errors).toContainEqual(expect.stringMatching(`^UnreadableEntryError: .*${key}`));

    await world.send('b');
    await expect(world.tickAfter(2 * MINUTE)).rejects.toThrow('1 uploads could not be processed');
    expect((await world.receipt('b')).status).toBe('succeeded');
    await expect(retryUploads([upload.id], world.ports, signal)).rejects.toThrow();
    expect((await world.object(LEDGER, key)).bytes.toString()).toBe('{"schema":99}');
    expect(world.service.flows).toHaveLength(2);
  });
});
