import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Entry, RunningEntry } from '../../functions/ledger/entry.ts';
import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { secondDigits } from '../../functions/uploads/upload.ts';
import { messageFor } from '../../functions/uploads/upload-event.ts';
import { never } from '../flow-service/scripted.ts';
import { complete, uploadParts } from '../support/s3-calls.ts';
import { INBOX, LEDGER, openWorld, RESULTS, type World } from '../support/world.ts';
import { failed, receipt } from './support.ts';

const ADDRESS = 'a.png/receipt.json';
const START = Date.parse(receipt.upload.lastModified);
const NEXT_DAY = '2026-01-02T00:00:00.000Z';
const iso = (seconds: number): string => new Date(START + seconds * 1000).toISOString();

/** What decides which receipt of a key stays. The dates are in seconds after the start. */
interface Facts {
  readonly second?: number;
  readonly currentAt?: number | undefined;
  readonly sequencer?: string | undefined;
  /** Orders the ids of uploads that have all else in common. */
  readonly n?: number;
  readonly generation?: number;
  readonly endedAt?: string;
  readonly key?: string;
}

const made = ({ second = 0, currentAt, sequencer, n = 0, key = 'a.png', ...more }: Facts): Receipt => ({
  ...{ ...receipt, ...failed, ...more },
  upload: {
    ...receipt.upload,
    ...{ key, sequencer, lastModified: iso(second) },
    id: `${secondDigits(START + second * 1000)}${n.toString(16).padStart(32, '0')}`,
    currentAt: currentAt === undefined ? undefined : iso(currentAt),
  },
});

let world: World;
/** The inbox cannot be asked: which receipt stays depends on the receipts alone. */
beforeEach(async () => {
  const authorize = ({ resource }: { readonly resource: string }) => !resource.startsWith(`arn:aws:s3:::${INBOX}`);
  world = await openWorld({ isVirtual: true, s3: { authorize } });
});

const put = (each: Receipt) => world.ports.receipts.put(each, never);
const isPublished = ({ upload, generation, endedAt }: Receipt) =>
  world.ports.receipts.isPublished({ upload, generation, endedAt: Date.parse(endedAt) }, never);
/** What the object of a receipt says of it, without the time of its end. */
const metadataOf = (id: string, generation: string, lastModified: string) => ({
  'flowdrop-upload': id,
  'flowdrop-generation': generation,
  'flowdrop-last-modified': lastModified,
});
const there = () => world.receipt('a.png');
const stored = (each: Receipt) => JSON.parse(JSON.stringify(each));

describe('the receipt at a key', () => {
  it.each<readonly [what: string, lower: Facts, higher: Facts]>([
    ['the later upload', {}, { second: 2 }],
    ['the multipart upload that began before another one and ended after it', {}, { second: -60, currentAt: 5 }],
    ['a greater sequencer', { currentAt: 0.5, sequencer: '0A1', n: 1 }, { currentAt: 0.5, sequencer: '0A2' }],
    [
      'a greater sequencer of fewer digits',
      { sequencer: '0055AED6DCD90281E5', n: 1 },
      { sequencer: '0055AED6DCD90282' },
    ],
    [
      'a greater sequencer of more digits',
      { sequencer: '617F08299329D189', n: 1 },
      { sequencer: '617F08299329D189F2' },
    ],
    ['a greater sequencer, read from the left', { sequencer: '0100', n: 1 }, { sequencer: 'FF' }],
    [
      'a greater id, if only zeros at the end tell the sequencers apart',
      { sequencer: 'A00' },
      { sequencer: 'A', n: 1 },
    ],
    ['a greater sequencer in another case', { sequencer: '0a', n: 1 }, { sequencer: '0B' }],
    ['no sequencer, as if a sweep found it in the same second', { sequencer: 'FFFF', n: 1 }, {}],
    ['a higher generation, although it ended earlier', { endedAt: NEXT_DAY }, { generation: 2 }],
    ['a later end of the same generation', {}, { endedAt: NEXT_DAY }],
  ])('is that of %s, in whatever order they are put', async (_, lower, higher) => {
    const [low, high] = [made(lower), made(higher)];
    for (const order of [
      [low, high, low],
      [high, low],
    ]) {
      for (const each of order) expect(await put(each)).toBe(ADDRESS);
      expect(await there()).toEqual(stored(high));
      await world.remove(ADDRESS, RESULTS);
    }
  });

  it('is the same whatever the order in which receipts are put, and however often', async () => {
    const facts = fc.record({
      second: fc.integer({ min: 0, max: 2 }),
      currentAt: fc.option(fc.integer({ min: 0, max: 4 }), { nil: undefined }),
      sequencer: fc.option(fc.constantFrom('1', '02', '003', 'A', '0b', '10'), { nil: undefined }),
    });
    const orders = fc.array(facts, { minLength: 2, maxLength: 5 }).chain((all) => {
      const receipts = all.map((each, n) => ({ ...each, n }));
      const order = fc.shuffledSubarray([...receipts, ...receipts], { minLength: 2 * receipts.length });
      return fc.tuple(order, order);
    });
    let runs = 0;
    await fc.assert(
      fc.asyncProperty(orders, async (both) => {
        const ends: string[] = [];
        for (const order of both) {
          runs += 1;
          const key = `${runs}.png`;
          for (const each of order) await put(made({ ...each, key }));
          ends.push((await world.receipt(key)).upload.id);
        }
        expect(ends[0]).toBe(ends[1]);
      }),
      { numRuns: 25 },
    );
  });

  it('is that of the last upload if all are put at once', async () => {
    const receipts = [0, 2, 4].map((second) => made({ second }));
    await Promise.all([...receipts, ...receipts].map(put));
    expect(await there()).toEqual(stored(made({ second: 4 })));
  });

  it('is written once if it is put twice', async () => {
    await put(made({}));
    await put({ ...made({}), template: 'another' });
    expect(await there()).toEqual(stored(made({})));
  });

  it('is published for all ends of its upload up to its own, and for no other', async () => {
    await put(made({ generation: 2 }));
    const ends = [{ endedAt: NEXT_DAY }, { generation: 2 }, { generation: 2, endedAt: NEXT_DAY }, { generation: 3 }];
    const answers = await Promise.all([...ends, { generation: 2, n: 1 }].map((end) => isPublished(made(end))));
    expect(answers).toEqual([true, true, false, false, false]);
  });

  it('without the time of its end is taken to have ended before it was put', async () => {
    const { upload } = made({});
    await world.put(RESULTS, ADDRESS, '{}', metadataOf(upload.id, '1', upload.lastModified));
    const endedAfter = (ms: number) => made({ endedAt: new Date(world.clock.now() + ms).toISOString() });
    expect(await isPublished(endedAfter(-60_000))).toBe(true);
    await put(endedAfter(60_000));
    expect((await there()).upload.id).toBe(upload.id);
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
    await world.put(RESULTS, ADDRESS, '{}', metadata(made({}).upload.id));
    await put(made({}));
    expect(await there()).toEqual(stored(made({})));
  });
});

describe('the success of a running flow that its receipt tells of', () => {
  const { assets, failedOutputs, endedAt } = receipt;
  const entry = { ...receipt, upload: { ...receipt.upload, lastModified: START } } as unknown as RunningEntry;
  const read = async (change: object | string | undefined) => {
    const body = typeof change === 'string' ? change : JSON.stringify({ ...receipt, ...change });
    if (change !== undefined) await world.put(RESULTS, ADDRESS, body, { 'flowdrop-upload': receipt.upload.id });
    return world.ports.receipts.successOf(entry, never);
  };

  it('is that of this flow', async () => {
    expect(await read({})).toMatchObject({ assets, failedOutputs, endedAt: Date.parse(endedAt) });
  });

  it.each<readonly [what: string, change: object | string | undefined]>([
    ['is absent', undefined],
    ['is of another flow', { flow: { id: 'other', createdAt: endedAt } }],
    ['is of another upload', { upload: { id: '0'.repeat(40) } }],
    ['is of another generation', { generation: 2 }],
    ['is of a failure', { status: 'failed' }],
    ['is damaged', { assets: 'none' }],
    ['is not JSON', '{'],
  ])('is unknown if the receipt %s', async (_, change) => {
    expect(await read(change)).toBeUndefined();
  });
});

describe('the receipt of a multipart upload that was begun before another upload and completed after it', () => {
  it.each([
    ['an event', true],
    ['the sweep', false],
  ])('stays if it was brought by %s, although none is current any more', async (_, isNotified) => {
    const world = await openWorld({ isVirtual: true });
    await world.tick();
    await world.sweep();
    world.clock.advance(60_000);
    const place = { client: world.s3, Bucket: INBOX, Key: 'a.png' };
    const multipart = await uploadParts(place, ['parts']);
    world.clock.advance(60_000);
    await world.send('a.png', 'between');
    const { VersionId } = await complete(place, multipart);
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
