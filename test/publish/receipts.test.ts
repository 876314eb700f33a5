import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Receipt } from '../../functions/publish/receipts.ts';
import { INBOX, openWorld, RESULTS, type World } from '../support/world.ts';
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
  return { ...receipt, ...failed, upload: { ...upload, lastModified }, generation };
}

async function uploaded(content: string): Promise<Receipt> {
  world.clock.advance(2_000);
  await world.upload('a.png', content);
  return receiptOfCurrent();
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

  it.each(ORDERS)(
    'belongs to an older upload that is current again, because the newer was deleted: %s',
    async (_, order) => {
      const receipts = [await uploaded('one'), await uploaded('two')];
      const VersionId = receipts[1]?.upload.versionId;
      await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a.png', VersionId }));
      for (const index of order) await put(receipts[index] as Receipt);
      expect(await there()).toBe(receipts[0]?.upload.id);
    },
  );

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

describe('the receipt of an upload outside of the present inbox', () => {
  beforeEach(async () => {
    world = await openWorld({ s3: { authorize: ({ resource }) => !resource.startsWith('arn:aws:s3:::old-inbox') } });
  });

  /** The receipt of an upload at the same key of the previous inbox bucket. It is the latest of all uploads. */
  const ofOldInbox = (today: Receipt): Receipt => {
    const lastModified = new Date(world.clock.now() + 60_000).toISOString();
    return { ...today, upload: { ...today.upload, id: 'f'.repeat(40), bucket: 'old-inbox', lastModified } };
  };

  it('is put if there is no other', async () => {
    const old = ofOldInbox(await uploaded('one'));
    await put(old);
    expect(await there()).toBe(old.upload.id);
  });

  it.each(ORDERS)('gives way to an upload of the present inbox, current or not: %s', async (_, order) => {
    for (const isCurrent of [true, false]) {
      const today = await uploaded('one');
      const receipts = [ofOldInbox(today), today];
      if (!isCurrent) await world.remove('a.png');
      for (const index of order) await put(receipts[index] as Receipt);
      expect(await there()).toBe(today.upload.id);
      await world.remove('a.png/receipt.json', RESULTS);
    }
  });

  it.each(ORDERS)('belongs to the last upload there, and the old bucket is not asked: %s', async (_, order) => {
    const first = await uploaded('one');
    const later = ofOldInbox(first);
    const earlier = { ...later, upload: { ...later.upload, id: '0'.repeat(40), lastModified: '2026-01-01T00:00:00Z' } };
    const receipts = [earlier, later];
    for (const index of order) await put(receipts[index] as Receipt);
    expect(await there()).toBe(later.upload.id);
  });

  it('is never current below a previous inbox prefix', async () => {
    const first = await uploaded('one');
    await put(first);
    await world.remove('a.png');
    const later = await uploaded('two');
    await world.upload('a.png', 'three');
    world.redeploy({ inboxPrefix: 'in/' });
    await put(later);
    expect(await there()).toBe(later.upload.id);
    await put(first);
    expect(await there()).toBe(later.upload.id);
  });
});
