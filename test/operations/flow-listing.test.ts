import { expect, it } from 'vitest';
import type { Finding } from '../../operations/checks.ts';
import { outcomeOfListing } from '../../operations/flow-listing.ts';

const GOOD = { flows: 20, hasMore: false, isNewestFirst: true, showsAdditional: true, showsEnded: true };
const listing = (changes: Partial<typeof GOOD>) => ({ listing: { ...GOOD, ...changes } });
const issue = (code: string) => ({ issue: { code, message: `list: ${code}` } });

it.each([
  ['any-order', listing({})],
  ['any-order', listing({ isNewestFirst: false, hasMore: true })],
  ['newest-first', listing({})],
  ['newest-first', listing({ hasMore: true })],
  ['newest-first', listing({ flows: 0, showsAdditional: false, showsEnded: false })],
  [undefined, issue('not-served')],
  [undefined, listing({ showsAdditional: false })],
] as const)('the listing %s fits %j', (declared, answer) => {
  expect(outcomeOfListing(declared, answer)).toBe('good');
});

it.each([
  ['any-order', issue('not-served'), 'warning', 'null'],
  ['newest-first', issue('not-found'), 'warning', 'null'],
  ['newest-first', listing({ isNewestFirst: false }), 'warning', '"any-order"'],
  ['any-order', listing({ hasMore: true }), 'note', '"newest-first"'],
  ['any-order', listing({ showsAdditional: false }), 'note', 'null'],
  ['newest-first', listing({ showsEnded: false }), 'note', 'null'],
  [undefined, listing({}), 'note', '"any-order"'],
  [undefined, listing({ hasMore: true }), 'note', '"newest-first"'],
] as const)('the listing %s does not fit %j', (declared, answer, severity, todo) => {
  const finding = outcomeOfListing(declared, answer) as Finding;
  expect([finding.severity, finding.todo]).toEqual([severity, expect.stringContaining(todo)]);
});

it('is not checked while the listing cannot be read', () => {
  expect(outcomeOfListing('any-order', issue('throttled'))).toEqual({
    notChecked: expect.stringContaining('throttled'),
  });
});
