import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { type Advice, FAILURES, OUTPUT_FAILURES } from '../../functions/ledger/failures.ts';

const PAGE = fileURLToPath(new URL('../../docs/failures.md', import.meta.url));
const UPDATE = 'To write the tables of codes: npx vitest run test/ledger/failures.test.ts --update';

/** The rows of a table, one after the other. */
const ROWS = /(?:^\| `[^\n]*\n)+/gm;

const tables = [FAILURES, OUTPUT_FAILURES].map((table: Readonly<Record<string, Advice>>) =>
  Object.entries(table)
    .map(([code, { meaning, action }]) => `| \`${code}\` | ${meaning} | ${action} |\n`)
    .join(''),
);

describe('the page of failure codes', () => {
  it('says what the code says', async () => {
    const page = readFileSync(PAGE, 'utf8');
    expect(page.match(ROWS)).toHaveLength(tables.length);
    let table = 0;
    await expect(
      page.replace(ROWS, () => tables[table++] ?? ''),
      UPDATE,
    ).toMatchFileSnapshot(PAGE);
  });
});

describe('the advice for a failure', () => {
  const all: readonly (readonly [string, Advice])[] = [FAILURES, OUTPUT_FAILURES].flatMap((table) =>
    Object.entries(table),
  );

  it.each(all)('%s is in whole sentences of one line', (_, { meaning, action }) => {
    for (const text of [meaning, action]) expect(text).toMatch(/^[A-Z][^\n|]+\.$/);
  });

  it.each(Object.entries(FAILURES))('%s speaks of a retry exactly if one can help', (_, { action, retry }) => {
    expect(/\bretry\b/i.test(action)).toBe(retry !== 'cannot-help');
  });

  it('names no command and no address that would differ between deployments', () => {
    const texts = all.flatMap(([, { meaning, action }]) => [meaning, action]);
    expect(texts.filter((text) => /aws |npm |https?:/.test(text))).toEqual([]);
  });
});
