import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { type Advice, FAILURES, OUTPUT_FAILURES } from '../../functions/ledger/failures.ts';

const PAGE = fileURLToPath(new URL('../../docs/failures.md', import.meta.url));
const UPDATE = 'To write the lists of codes: npx vitest run test/ledger/failures.test.ts --update';

/** The codes of a list, one after the other. */
const CODES = /(?:^- `[^\n]*\n)+/gm;

/** A receipt has the advice for an upload. For an output, only the page has it. */
const lists = [
  Object.entries<Advice>(FAILURES).map(([code, { meaning }]) => `- \`${code}\`: ${meaning}\n`),
  Object.entries<Advice>(OUTPUT_FAILURES).map(([code, { meaning, action }]) => `- \`${code}\`: ${meaning} ${action}\n`),
].map((codes) => codes.join(''));

describe('the page of failure codes', () => {
  it('says what the code says', async () => {
    const page = readFileSync(PAGE, 'utf8');
    expect(page.match(CODES)).toHaveLength(lists.length);
    let list = 0;
    await expect(
      page.replace(CODES, () => lists[list++] ?? ''),
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
