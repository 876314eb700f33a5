import { expect, it } from 'vitest';
import { printable, printableJson } from '../../functions/base/printable.ts';

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
