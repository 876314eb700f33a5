import { describe, expect, it } from 'vitest';
import { childrenOf, nextStages, noted, planOf } from '../../functions/chains/chain.ts';
import { type Chain, chainSchema } from '../../functions/chains/chain-schema.ts';
import { CHAIN_BYTES_MAX, CHAIN_UPLOADS_MAX } from '../../functions/chains/chain-size.ts';
import { ended, type RunningEntry, type StoredAsset, type TerminalEntry } from '../../functions/ledger/entry.ts';
import { chainReport } from '../../functions/publish/chain-report.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { snapshot } from '../../functions/uploads/route-snapshot.ts';
import { uploadId } from '../../functions/uploads/upload.ts';
import { ECHO } from '../support/world.ts';

const hex = (n: number, length: number): string => n.toString(16).padStart(length, '0');
const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
const MODEL = 'model/gltf-binary';

/** Assets as they are stored. The first `pictures` of them are pictures. */
const assetsOf = (key: string, count: number, pictures = 0): readonly StoredAsset[] =>
  Array.from({ length: count }, (_, n) => ({
    id: hex(n, 24),
    bucket: 'results',
    key: `${key}/${hex(1, 24)}/${hex(n, 24)}.glb`,
    bytes: 123_456,
    mediaType: n < pictures ? 'image/png' : MODEL,
    sha256: hex(n, 64),
    etag: hex(n, 32),
  }));

/** A chain of one file, whose uploads end one after the other. */
class Ends {
  readonly routes: readonly Route[];
  #chain: Chain | undefined;
  #now = 1_700_000_000_000;

  constructor(routes: readonly Route[]) {
    this.routes = routes;
  }

  get chain(): Chain {
    return this.#chain as Chain;
  }

  /** The first file succeeds with so many assets. Returns the uploads that begin with them. */
  first(assets: number, key = 'photos/a.jpg'): readonly RunningEntry[] {
    const facts = { bucket: 'inbox', key, versionId: 'v', etag: 'e', lastModified: 1_700_000_000_000 };
    const upload = { id: uploadId(facts), ...facts, bytes: 1, mediaType: 'image/jpeg' };
    const route = snapshot(this.routes[0] as Route);
    const entry = { schema: 6, upload, route, arrivedAt: 1, generation: 1, attempts: 0, waits: 0 };
    return this.succeeds([this.#running(entry)], () => assetsOf(key, assets));
  }

  /** Returns the uploads that begin with the assets of these. */
  succeeds(
    entries: readonly RunningEntry[],
    assets: (entry: RunningEntry) => readonly StoredAsset[],
  ): readonly RunningEntry[] {
    const ends = entries.map((entry) => {
      const stored = assets(entry);
      const next = nextStages(entry, stored, this.routes);
      return ended(entry, { assets: stored, next, plan: planOf(entry, this.routes) }, this.#later());
    });
    this.note(ends);
    const known = new Set(this.chain.uploads.map(({ id }) => id));
    return ends.flatMap((end) => childrenOf(end).filter(({ upload }) => known.has(upload.id))).map(this.#running);
  }

  fails(entries: readonly RunningEntry[], message: string): void {
    this.note(entries.map((entry) => ended(entry, { failure: { code: 'flow-failed', message } }, this.#later())));
  }

  /** Notes these ends in batches, as a function does, and looks at the size after each. */
  note(ends: readonly TerminalEntry[]): void {
    for (let n = 0; n < ends.length; n += 500) {
      this.#chain = noted(this.#chain, ends.slice(n, n + 500), this.routes);
      const bytes = bytesOf(this.#chain);
      if (bytes > CHAIN_BYTES_MAX) throw new Error(`The chain has ${bytes} bytes`);
    }
  }

  readonly #running = (entry: object): RunningEntry =>
    ({ ...entry, state: 'running', flow: { id: `flow-${'0'.repeat(100)}`, createdAt: 1 } }) as RunningEntry;

  #later(): number {
    this.#now += 1;
    return this.#now;
  }
}

const FAN: readonly Route[] = [
  { ...ECHO, name: 'a' },
  { ...ECHO, name: 'b', after: 'a' },
];

describe('the object of a chain', () => {
  it('holds the greatest number of uploads, whatever becomes of them, and never exceeds its size', () => {
    const ends = new Ends(FAN);
    const begun = ends.first(CHAIN_UPLOADS_MAX - 1);
    expect(begun).toHaveLength(CHAIN_UPLOADS_MAX - 1);
    ends.fails(begun.slice(0, 6_000), 'The service said: '.padEnd(2_000, '"'));
    ends.succeeds(begun.slice(6_000), ({ upload }) => assetsOf(upload.key, 3));
    expect(ends.chain.endedAt).toBeDefined();
    expect(ends.chain.uploads.filter(({ failure }) => failure?.code === 'flow-failed')).toHaveLength(6_000);
    expect(chainSchema.parse(ends.chain)).toEqual(ends.chain);
  });

  it.each([
    [
      'with long names',
      [FAN[0] as Route, { ...ECHO, name: '😀'.repeat(32), after: 'a' }],
      9_999,
      'The object of a chain has at most 4 MiB.',
    ],
    ['with one upload too many', FAN, CHAIN_UPLOADS_MAX, 'A chain has at most 10000 uploads.'],
  ])('takes no uploads that it may not be able to hold: %s', (_, routes, count, why) => {
    const ends = new Ends(routes);
    expect(ends.first(count)).toEqual([]);
    expect(ends.chain.withheld).toEqual([{ route: routes[1]?.name, after: 'a', why }]);
  });

  it('leaves out assets that no stage waits for, and chain.json then says how many there are', () => {
    const ends = new Ends(FAN);
    const begun = ends.first(100);
    ends.succeeds(begun, ({ upload }) => assetsOf(upload.key, 400));
    const { stages } = chainReport(ends.chain, '');
    const uploads = stages[1]?.uploads ?? [];
    const told = uploads.map(({ assets, assetCount }) => assetCount ?? assets?.length);
    expect([uploads.length, new Set(told)]).toEqual([100, new Set([400])]);
    expect(uploads.filter(({ assets, assetCount }) => assets !== undefined && assetCount !== undefined)).toEqual([]);
    expect(uploads.filter(({ assets }) => assets === undefined).length).toBeGreaterThan(0);
  });

  it('names all assets in chain.json while it is small', () => {
    const ends = new Ends(FAN);
    const begun = ends.first(3);
    ends.succeeds(begun, ({ upload }) => assetsOf(upload.key, 2));
    const uploads = chainReport(ends.chain, '').stages.flatMap((stage) => stage.uploads);
    expect(uploads.map(({ assets, assetCount }) => [assets?.length, assetCount])).toEqual([
      [3, undefined],
      ...Array.from({ length: 3 }, () => [2, undefined]),
    ]);
  });
});

describe('a stage that takes all assets, in a chain that is too large for all of them', () => {
  const GATHERED: readonly Route[] = [
    ...FAN,
    { ...ECHO, name: 'all', after: 'b', inputs: 'all', mediaTypes: ['image/*'] },
  ];

  it('begins with exactly what it takes', () => {
    const ends = new Ends(GATHERED);
    ends.succeeds(ends.first(200), ({ upload }) => assetsOf(upload.key, 200, 5));
    const [gathered] = ends.chain.gathered;
    expect(gathered?.inputs).toHaveLength(1_000);
    expect(new Set(gathered?.inputs.map(({ mediaType }) => mediaType))).toEqual(new Set(['image/png']));
    expect(ends.chain.uploads.at(-1)).toMatchObject({ route: 'all', state: 'under way' });
  });

  it('does not begin with more than one flow takes, and says why', () => {
    const ends = new Ends(GATHERED);
    const begun = ends.first(200);
    ends.succeeds(begun.slice(0, 190), ({ upload }) => assetsOf(upload.key, 200, 6));
    ends.succeeds(begun.slice(190), ({ upload }) => assetsOf(upload.key, 200));
    expect(ends.chain.withheld).toMatchObject([
      { route: 'all', why: expect.stringContaining('one flow takes (1000)') },
    ]);
    expect(ends.chain.endedAt).toBeDefined();
  });
});
