import { describe, expect, it } from 'vitest';
import { encodedId } from '../../functions/base/key-segment.ts';

describe('an id from the service', () => {
  it.each([
    ['../../etc', '%2E./../etc'.replaceAll('/', '%2F')],
    ['a/b', 'a%2Fb'],
    ['.', '%2E'],
    ['a.b', 'a.b'],
    ['..', '%2E.'],
    ["it's(*)!", 'it%27s%28%2A%29%21'],
    ['naïve ☃', 'na%C3%AFve%20%E2%98%83'],
    ['lone \ud800 surrogate', 'lone%20%EF%BF%BD%20surrogate'],
    ['65f0c0ffee', '65f0c0ffee'],
  ])('becomes one harmless segment of a key: %j', (id, segment) => {
    expect(encodedId(id)).toBe(segment);
  });
});
