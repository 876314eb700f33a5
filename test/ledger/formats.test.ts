import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { LEDGER_FORMAT } from '../../functions/ledger/entry-schema.ts';
import { HOLDS_KEY, SWEEP_KEY } from '../../functions/ledger/keys.ts';
import { parsedState } from '../../functions/sweep/sweep-state.ts';
import { LEDGER, start, world } from '../support/world.ts';

/**
 * Objects as the functions wrote them that knew this format: `<format>.jsonl` has one in each line. These files are
 * never changed, because ledgers hold such objects for as long as entries are kept. If a test fails, correct the code.
 * A new format has a file of its own, with an object in each state that it adds to.
 */
const FORMATS = new URL('formats/', import.meta.url);

interface Fixture {
  readonly what: string;
  readonly key: string;
  readonly body: Readonly<Record<string, unknown>>;
}

const fixturesOf = (format: number): readonly Fixture[] =>
  readFileSync(new URL(`${format}.jsonl`, FORMATS), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

/** The first format that is read. All later ones are. */
const FIRST = 6;
const formats = Array.from({ length: LEDGER_FORMAT - FIRST + 1 }, (_, index) => FIRST + index);
const all = formats.flatMap((format) => fixturesOf(format).map((fixture) => ({ format, ...fixture })));
const never = new AbortController().signal;

it('each format has its fixtures', () => {
  expect(readdirSync(FORMATS).sort()).toEqual(formats.map((format) => `${format}.jsonl`));
});

it.each(all)('format $format: $what, is read with all of its members', async ({ format, key, body }) => {
  await start();
  await world.put(LEDGER, key, JSON.stringify(body));
  const [folder, file = ''] = key.split('/');
  const id = file.replace('.json', '');
  if (folder === 'uploads') {
    const { nonce: _, ...entry } = body;
    expect(entry.schema).toBe(format);
    expect((await world.ports.ledger.read(id, never))?.entry).toEqual(entry);
  } else if (folder === 'chains') {
    expect(await world.ports.chains.read(id, never)).toEqual(body);
  } else if (key === HOLDS_KEY) {
    // What a version that was not released kept of open flows is dropped: these stay counted.
    const { reservations: _, ...kept } = body;
    expect(await world.ports.holds.read(never)).toEqual({ ...kept, changes: [] });
  } else {
    expect(key).toBe(SWEEP_KEY);
    const { state, damaged } = parsedState(JSON.stringify(body), Date.UTC(2030, 0));
    expect([{ schema: format, ...state }, damaged]).toEqual([body, []]);
  }
});
