import { describe, expect, it } from 'vitest';
import { closingQuote, lengthWithoutCutEscape } from '../../functions/flow-service/json-string.ts';

describe('the closing quote of a JSON string', () => {
  it.each([
    ['"', 0],
    ['a"', 1],
    ['ab","c"', 2],
    ['\\""', 2],
    ['\\\\"', 2],
    ['a\\\\"', 3],
    ['\\\\\\"\\n"', 6],
  ])('is the first without an escape: %s', (text, at) => {
    expect(closingQuote(Buffer.from(text))).toBe(at);
  });

  it.each(['', 'a', '\\', '\\"', 'a\\"', '\\\\\\"'])('is missing: %s', (text) => {
    expect(closingQuote(Buffer.from(text))).toBeUndefined();
  });
});

describe('an escape at the end of a piece', () => {
  it.each(['', 'u', 'uvw', 'a\\n', 'a\\\\', 'a\\\\u', '\\u00e9', 'a\\u00e9', '\\u00e9\\n', 'a\\nb'])(
    'is whole: %s',
    (text) => expect(lengthWithoutCutEscape(Buffer.from(text))).toBe(text.length),
  );

  it.each([
    ['', '\\'],
    ['a', '\\'],
    ['\\\\', '\\'],
    ['\\n', '\\'],
    ['', '\\u'],
    ['a', '\\u00e'],
    ['\\\\', '\\u00'],
  ])('is cut, and waits for the next piece: %s%s', (whole, cut) => {
    expect(lengthWithoutCutEscape(Buffer.from(whole + cut))).toBe(whole.length);
  });
});
