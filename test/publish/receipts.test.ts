import {
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Receipt } from '../../functions/publish/receipts.ts';
import { secondDigits } from '../../functions/uploads/upload.ts';
import { messageFor } from '../../functions/uploads/upload-event.ts';
import { INBOX, LEDGER, openWorld, RESULTS, type World } from '../support/world.ts';
import { failed, receipt } from './support.ts';

const signal = new AbortController().signal;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});

/** The receipt of the upload that is current now. */
async function receiptOfCurrent(generation = 1): Promise<Receipt> {
  const { upload, discard } = await world.ports.inbox.open({ bucket: INBOX, key: 'a.png' }, signal);
  discard();
  const lastModified = new Date(upload.lastModified).toISOString();
  return { ...receipt, ...failed, upload: { ...upload, lastModified, currentAt: undefined }, generation };
}

async function uploaded(content: string): Promise<Receipt> {
  world.clock.advance(2_000);
  await world.upload('a.png', content);
  return receiptOfCurrent();
}

/** Numbers the receipts of {@link ranked} downwards, so that a later one never wins by its id. */
let made = 1_000_000;

/** The receipt of another upload, whose date and `currentAt` are so many seconds after those of an upload. */
function ranked(
  { second, currentAt, sequencer }: { second: number; currentAt?: number | undefined; sequencer?: string | undefined },
  { upload, ...rest }: Receipt,
): Receipt {
  const at = (seconds: number): number => Date.parse(upload.lastModified) + seconds * 1000;
  const iso = (seconds: number): string => new Date(at(seconds)).toISOString();
  made -= 1;
  const id = `${secondDigits(at(second))}${made.toString(16).padStart(32, '0')}`;
  const place = { currentAt: currentAt === undefined ? undefined : iso(currentAt), sequencer };
  return { ...rest, upload: { ...upload, id, lastModified: iso(second), ...place } } as Receipt;
}

/** In which order the receipts of two uploads are put. */
const ORDERS: readonly (readonly [string, readonly number[]])[] = [
  ['older first', [0, 1]],
  ['newer first', [1, 0]],
];

const put = (each: Receipt) => world.ports.receipts.put(each, signal);
const isPublished = ({ upload, generation, endedAt }: Receipt) =>
  world.ports.receipts.isPublished({ upload, generation, endedAt: Date.parse(endedAt) }, signal);
/** What the object of a receipt says of it, without the time of its end. */
const metadataOf = (id: string, generation: string, lastModified: string) => ({
  'flowdrop-upload': id,
  'flowdrop-generation': generation,
  'flowdrop-last-modified': lastModified,
});
const there = async () => (await world.receipt('a.png')).upload.id;

describe('the receipt at a key', () => {
  it('is put beside the results', async () => {
    const first = await uploaded('one');
    expect(await put(first)).toBe('a.png/receipt.json');
    expect(await world.receipt('a.png')).toEqual(JSON.parse(JSON.stringify(first)));
  });

  it.each(ORDERS)('belongs to the upload that is current there, in any order of the ends: %s', async (_, order) => {
    const receipts = [await uploaded('one'), await uploaded('two')];
    for (const index of order) await put(receipts[index] as Receipt);
    expect(await there()).toBe(receipts[1]?.upload.id);
  });

  it.each(ORDERS)('belongs to the newer upload even after that was deleted: %s', async (_, order) => {
    const receipts = [await uploaded('one'), await uploaded('two')];
    const VersionId = receipts[1]?.upload.versionId;
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a.png', VersionId }));
    for (const index of order) await put(receipts[index] as Receipt);
    expect(await there()).toBe(receipts[1]?.upload.id);
  });

  it.each(ORDERS)(
    'belongs to a multipart upload that was begun before another one and completed after it: %s',
    async (_, order) => {
      const other = await uploaded('one');
      const multipart = ranked({ second: -60, currentAt: 5, sequencer: '2' }, other);
      for (const index of order) await put([other, multipart][index] as Receipt);
      expect(await there()).toBe(multipart.upload.id);
      await world.remove('a.png');
      await put(other);
      expect(await there()).toBe(multipart.upload.id);
    },
  );

  /** Uploads of one second, the later ones last. */
  it.each<[string, readonly (string | undefined)[]]>([
    ['a greater sequencer', ['0A1', '0A2']],
    ['a greater sequencer behind more zeros', ['FF', '0100']],
    ['a greater sequencer in another case', ['0a', '0B']],
    ['a sequencer before none, as of an upload that a sweep found', ['FFFF', undefined]],
  ])('belongs to the later put of one second: %s', async (_, sequencers) => {
    const first = await uploaded('one');
    const receipts = sequencers.map((sequencer) => ranked({ second: 0, currentAt: 0.5, sequencer }, first));
    for (const order of [receipts, receipts.toReversed()]) {
      for (const each of order) await put(each);
      expect(await there()).toBe(receipts[1]?.upload.id);
      await world.remove('a.png/receipt.json', RESULTS);
    }
  });

  it('is the same whatever the order in which receipts are put, and however often', async () => {
    const first = await uploaded('one');
    const facts = fc.record({
      second: fc.integer({ min: 0, max: 2 }),
      currentAt: fc.option(fc.integer({ min: 0, max: 4 }), { nil: undefined }),
      sequencer: fc.option(fc.constantFrom('1', '02', '003', 'A', '0b', '10'), { nil: undefined }),
    });
    let runs = 0;
    const orders = fc.array(facts, { minLength: 2, maxLength: 5 }).chain((all) => {
      const places = all.map((_, place) => place);
      const order = fc.shuffledSubarray([...places, ...places], { minLength: 2 * places.length });
      return fc.tuple(fc.constant(all), order, order);
    });
    await fc.assert(
      fc.asyncProperty(orders, async ([all, ...both]) => {
        const receipts = all.map((each) => ranked(each, first));
        const ends: string[] = [];
        for (const order of both) {
          runs += 1;
          const key = `${runs}.png`;
          for (const place of order) {
            const { upload, ...rest } = receipts[place] as Receipt;
            await put({ ...rest, upload: { ...upload, key } } as Receipt);
          }
          ends.push((await world.receipt(key)).upload.id);
        }
        expect(ends[0]).toBe(ends[1]);
      }),
      { numRuns: 60 },
    );
  });

  it.each(ORDERS)('belongs to the last upload if none is current any more: %s', async (_, order) => {
    const receipts = [await uploaded('one'), await uploaded('two')];
    await world.remove('a.png');
    for (const index of order) await put(receipts[index] as Receipt);
    expect(await there()).toBe(receipts[1]?.upload.id);
  });

  it.each(ORDERS)('belongs to the last upload that ended if the current one never ends: %s', async (_, order) => {
    const receipts = [await uploaded('one'), await uploaded('two')];
    await uploaded('three');
    for (const index of order) await put(receipts[index] as Receipt);
    await world.remove('a.png');
    expect(await there()).toBe(receipts[1]?.upload.id);
  });

  it('is replaced by a higher generation of the same upload, and not by a lower one', async () => {
    await uploaded('one');
    await put(await receiptOfCurrent(2));
    await put(await receiptOfCurrent(1));
    expect((await world.receipt('a.png')).generation).toBe(2);
    await put(await receiptOfCurrent(3));
    expect((await world.receipt('a.png')).generation).toBe(3);
  });

  it.each(ORDERS)('belongs to the later end of the same generation: %s', async (_, order) => {
    const first = await uploaded('one');
    const receipts = [
      first,
      { ...first, status: 'succeeded', endedAt: '2026-01-02T00:00:00.000Z', failure: undefined } as const,
    ];
    for (const index of order) await put(receipts[index] as Receipt);
    expect((await world.receipt('a.png')).status).toBe('succeeded');
    expect(await isPublished(first)).toBe(true);
  });

  it('does not count as published for a later end', async () => {
    const first = await uploaded('one');
    await put(first);
    const later = { ...first, endedAt: '2026-01-02T00:00:00.000Z' };
    expect(await isPublished(later)).toBe(false);
  });

  it('without the time of its end is taken to have ended before it was put', async () => {
    const first = { ...(await uploaded('one')), endedAt: new Date(world.clock.now() - 60_000).toISOString() };
    const metadata = metadataOf(first.upload.id, '1', first.upload.lastModified);
    await world.put(RESULTS, 'a.png/receipt.json', '{}', metadata);
    expect(await isPublished(first)).toBe(true);
    await put({ ...first, endedAt: new Date(world.clock.now() + 60_000).toISOString() });
    expect((await world.receipt('a.png')).upload.id).toBe(first.upload.id);
  });

  it('is written once if it is put twice', async () => {
    const first = await uploaded('one');
    await put(first);
    await put({ ...first, endedAt: 'later' });
    expect((await world.receipt('a.png')).endedAt).toBe('2026-01-01T00:01:00.000Z');
  });

  const another = '0'.repeat(40);
  it.each<[string, (id: string) => Record<string, string>]>([
    ['no receipt', () => ({})],
    ['of another upload', () => metadataOf(another, '1', '2020-01-01T00:00:00Z')],
    ['of another upload in the future', () => metadataOf(another, '9', '9999-01-01T00:00:00Z')],
    ['of an invalid date', () => metadataOf(another, '1', 'yesterday')],
    ['of an invalid generation', (id) => metadataOf(id, 'first', '2020-01-01T00:00:00Z')],
    ['of an infinite generation', () => metadataOf(another, 'Infinity', '2020-01-01T00:00:00Z')],
  ])('replaces an object at its address that is %s', async (_, metadata) => {
    const first = await uploaded('one');
    await world.put(RESULTS, 'a.png/receipt.json', '{}', metadata(first.upload.id));
    await put(first);
    expect(await world.receipt('a.png')).toMatchObject({ receipt: 1, upload: { id: first.upload.id } });
  });

  it('replaces an object that says no date there, although no upload is current', async () => {
    const first = await uploaded('one');
    await world.remove('a.png');
    await world.put(RESULTS, 'a.png/receipt.json', '{}', metadataOf(another, '1', 'yesterday'));
    await put(first);
    expect(await there()).toBe(first.upload.id);
  });

  it('belongs to the current upload if all are put at once', async () => {
    const receipts = [await uploaded('one'), await uploaded('two'), await uploaded('three')];
    await Promise.all([...receipts, ...receipts].map(put));
    expect(await there()).toBe(receipts[2]?.upload.id);
  });

  it('follows the same rules on a bucket without versions', async () => {
    world = await openWorld({ versioning: undefined });
    const receipts = [await uploaded('one'), await uploaded('one')];
    expect(receipts[0]?.upload.id).not.toBe(receipts[1]?.upload.id);
    await put(receipts[1] as Receipt);
    await put(receipts[0] as Receipt);
    expect(await there()).toBe(receipts[1]?.upload.id);
  });
});

describe('the receipt of a multipart upload that was begun before another upload and completed after it', () => {
  it.each([
    ['an event', true],
    ['the sweep', false],
  ])('stays if it was brought by %s, although none is current any more', async (_, isNotified) => {
    world = await openWorld({ isVirtual: true });
    await world.tick();
    await world.sweep();
    world.clock.advance(60_000);
    const where = { Bucket: INBOX, Key: 'a.png' };
    const { UploadId } = await world.s3.send(new CreateMultipartUploadCommand(where));
    world.clock.advance(60_000);
    await world.send('a.png', 'between');
    const part = await world.s3.send(new UploadPartCommand({ ...where, UploadId, PartNumber: 1, Body: 'parts' }));
    const MultipartUpload = { Parts: [{ PartNumber: 1, ETag: part.ETag }] };
    const { VersionId } = await world.s3.send(
      new CompleteMultipartUploadCommand({ ...where, UploadId, MultipartUpload }),
    );
    if (!isNotified) world.takeMessages();
    world.clock.advance(60 * 60_000);
    if (!isNotified) expect(await world.sweep()).toMatchObject({ missed: 1 });
    await world.settle();
    await world.remove('a.png');
    expect((await world.receipt('a.png')).upload.versionId).toBe(VersionId);
    for (const key of await world.keys(LEDGER, 'uploads/')) {
      world.queue.send(messageFor((await world.json<Entry>(LEDGER, key)).upload));
    }
    await world.deliver();
    expect((await world.receipt('a.png')).upload.versionId).toBe(VersionId);
  });
});

describe('the receipt of an upload outside of the present inbox', () => {
  it.each(ORDERS)('ranks like any other, and the old bucket is not asked: %s', async (_, order) => {
    world = await openWorld({ s3: { authorize: ({ resource }) => resource.startsWith('arn:aws:s3:::results') } });
    const lastModified = new Date(world.clock.now()).toISOString();
    const today = ranked({ second: 60 }, { ...receipt, ...failed, upload: { ...receipt.upload, lastModified } });
    const old = ranked({ second: 0 }, { ...today, upload: { ...today.upload, lastModified, bucket: 'old-inbox' } });
    const receipts = [old, today];
    for (const index of order) await put(receipts[index] as Receipt);
    expect(await there()).toBe(today.upload.id);
  });
});
