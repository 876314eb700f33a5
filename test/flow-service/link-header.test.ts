import { describe, expect, it } from 'vitest';
import { linksIn } from '../../functions/flow-service/link-header.ts';

describe('a Link header', () => {
  it.each<[string, Record<string, string>]>([
    ['<a>; rel=next', { next: 'a' }],
    ['<a>; rel="next"', { next: 'a' }],
    ['<a>;REL="Next"', { next: 'a' }],
    ['<a> ; title="x" ; rel = "next"', { next: 'a' }],
    ['<a>; rel="prev next"', { prev: 'a', next: 'a' }],
    ['<a>; rel=prev, <b>; rel=next', { prev: 'a', next: 'b' }],
    ['<a>; rel=next, <b>; rel=next', { next: 'a' }],
    ['<a>; rel=prev; rel=next', { prev: 'a' }],
    ['<a?x=1,2;3>; rel=next', { next: 'a?x=1,2;3' }],
    ['<a>; title="b, <c>; rel=prev"; rel=next', { next: 'a' }],
    ['<a>; title="a \\" b, "; rel=next', { next: 'a' }],
    ['<a>; title="without an end, <b>; rel=next', {}],
    ['<a>', {}],
    ['<a', {}],
    ['a; rel=next', {}],
    ['<a>; rel', {}],
    ['', {}],
  ])('%j is parsed', (header, links) => {
    expect(Object.fromEntries(linksIn(header))).toEqual(links);
  });
});
