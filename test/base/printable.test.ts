import { expect, it } from 'vitest';
import { messageOf, printable, printableJson, quoted, shorten, toldIssues } from '../../functions/base/printable.ts';

it.each([
  ['a control sequence', 'a\u001b[2J\u001b]0;title\u0007.png', 'a\\u001b[2J\\u001b]0;title\\u0007.png'],
  ['a control character of C1', 'a\u009b2J\u0085b', 'a\\u009b2J\\u0085b'],
  ['DEL and NUL', '\u007f\u0000', '\\u007f\\u0000'],
  ['line breaks and tabs', 'a\nb\rc\td\u000b\u000c', 'a\\nb\\rc\\td\\u000b\\u000c'],
  ['separators of lines and paragraphs', 'a\u2028b\u2029', 'a\\u2028b\\u2029'],
  [
    'bidirectional overrides and embeddings',
    '\u202egnp.exe\u202c\u202a\u202b\u202d',
    '\\u202egnp.exe\\u202c\\u202a\\u202b\\u202d',
  ],
  ['bidirectional isolates', '\u2066a\u2067b\u2068c\u2069', '\\u2066a\\u2067b\\u2068c\\u2069'],
  ['bidirectional marks', '\u061c\u200e\u200f', '\\u061c\\u200e\\u200f'],
  ['halves of a surrogate pair', '\ud800a\udfff', '\\ud800a\\udfff'],
])('shows %s as escapes', (_, text, shown) => {
  expect(printable(text)).toBe(shown);
});

it('leaves all other text as it is', () => {
  const text = 'ü 🎁 👩‍🔬 שלום مرحبا 日本語 100% a\\b.png';
  expect(printable(text)).toBe(text);
});

it('writes JSON without such characters, which means the same', () => {
  const value = { 'k\u009b\u202e': 'a\u0085\u2028\u2029\u007f\n\ud800 ü' };
  const text = printableJson(value);
  expect(text).toBe('{\n  "k\\u009b\\u202e": "a\\u0085\\u2028\\u2029\\u007f\\n\\ud800 ü"\n}');
  expect(JSON.parse(text)).toEqual(value);
});

/** JSON that is nested so deep, made without a recursion. */
const nested = (depth: number): unknown => JSON.parse('['.repeat(depth) + ']'.repeat(depth));

it('shortens a text between characters, and leaves no half of one', () => {
  expect(shorten('abc', 3)).toBe('abc');
  expect(shorten('abcd', 3)).toBe('abc...');
  expect(shorten('a🎁🎁🎁', 3)).toBe('a🎁🎁...');
  expect(shorten('🎁🎁🎁', 3)).toBe('🎁🎁🎁');
  expect(shorten('\ud83c', 3)).toBe('\ufffd');
  expect(shorten('x'.repeat(2 ** 24))).toBe(`${'x'.repeat(80)}...`);
});

it.each([
  [null, 'null'],
  [-1.5e300, '-1.5e+300'],
  ['a "b"', '"a \\"b\\""'],
  [[1, [], {}, [true]], '[1,[],{},[true]]'],
  [{ a: { 'b"': 'c' }, d: null }, '{"a":{"b\\"":"c"},"d":null}'],
  [JSON.parse('{"__proto__": {"a": 1}}'), '{"__proto__":{"a":1}}'],
])('quotes %j as its JSON', (value, json) => {
  expect([quoted(value), quoted(value)]).toEqual([json, JSON.stringify(value)]);
});

it('quotes only the beginning of a long value, and of a deep one', () => {
  expect(quoted('x'.repeat(2 ** 24), 4)).toBe('"xxx...');
  expect(quoted(Array(2 ** 20).fill(1), 4)).toBe('[1,1...');
  expect(quoted(Object.fromEntries(Array.from({ length: 2 ** 16 }, (_, index) => [`k${index}`, 1])), 6)).toBe(
    '{"k0":...',
  );
  const shown = `${'['.repeat(32)}nested too deeply to be shown${']'.repeat(32)}`;
  expect(quoted(nested(200_000))).toBe(`${shown.slice(0, 80)}...`);
  expect(quoted(nested(200_000), 100_000)).toBe(shown);
  expect(quoted(nested(200_000), 10)).toBe(`${'['.repeat(10)}...`);
});

it('tells ten issues, and counts the others', () => {
  const issues = Array.from({ length: 20_000 }, (_, index) => `${index}`);
  expect(toldIssues(issues)).toEqual([...issues.slice(0, 10), 'and 19,990 more']);
  expect(toldIssues(issues.slice(0, 10))).toEqual(issues.slice(0, 10));
});

it('tells what was thrown: an error, several that Node has put together, or no error', () => {
  const several = new AggregateError([new Error('refused by ::1'), new Error('refused by 127.0.0.1')]);
  expect([new Error('No'), several, 'no error'].map(messageOf)).toEqual([
    'No',
    'refused by ::1; refused by 127.0.0.1',
    'no error',
  ]);
});
