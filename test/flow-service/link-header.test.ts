import { describe, expect, it } from 'vitest';
import { nextLink } from '../../functions/flow-service/link-header.ts';

describe('a Link header', () => {
  it.each<[string, string | undefined]>([
    ['<a>; rel=next', 'a'],
    ['<a>; rel="next"', 'a'],
    ['<a>;REL="Next"', 'a'],
    ['<a> ; title="x" ; rel = "next"', 'a'],
    ['<a>; rel="prev next"', 'a'],
    ['<a>; rel=prev, <b>; rel=next', 'b'],
    ['<a>; rel=next, <b>; rel=next', 'a'],
    ['<a>; rel=prev; rel=next', undefined],
    ['<a?x=1,2;3>; rel=next', 'a?x=1,2;3'],
    ['<a>; title="b, <c>; rel=prev"; rel=next', 'a'],
    ['<a>; title="a \\" b, "; rel=next', 'a'],
    ['<a>; title="without an end, <b>; rel=next', undefined],
    ['<a>', undefined],
    ['<a', undefined],
    ['a; rel=next', undefined],
    ['<a>; rel', undefined],
    ['', undefined],
  ])('%j leads to %s', (header, address) => {
    expect(nextLink(header)).toBe(address);
  });
});
