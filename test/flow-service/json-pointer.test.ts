import { describe, expect, it } from 'vitest';
import { at, pointerOf, stepsOf } from '../../functions/flow-service/json-pointer.ts';

describe('a JSON pointer', () => {
  const answer = { data: { 'a/b': 1, 'm~n': 2, '': 3, 'x%7Ey': 4 }, list: ['first', { id: 'second' }] };

  it.each<[string, unknown]>([
    ['', answer],
    ['/data/a~1b', 1],
    ['/data/m~0n', 2],
    ['/data/', 3],
    ['/data/x%7Ey', 4],
    ['/list/1/id', 'second'],
  ])('%j finds the value there', (pointer, value) => {
    expect(at(answer, pointer)).toEqual(value);
    expect(pointerOf(stepsOf(pointer))).toBe(pointer);
  });

  it('leads through a text of JSON, but not through one that is none, is cut, or is too deep', () => {
    const texts = {
      ok: ' {"urls":["a"]}',
      list: '["a"]',
      cut: '{"urls":["a"',
      deep: `${'['.repeat(200)}${']'.repeat(200)}`,
    };
    expect(['/ok/urls/0', '/list/0', '/ok'].map((pointer) => at(texts, pointer))).toEqual(['a', 'a', texts.ok]);
    for (const pointer of ['/cut/urls/0', '/deep/0', '/ok/urls/length', '/ok/0'])
      expect(at(texts, pointer)).toBe(undefined);
  });

  it.each([
    '/other',
    '/list/2',
    '/list/01',
    '/list/-',
    '/list/length',
    '/list/0/length',
    '/data/constructor',
    '/__proto__',
  ])('%s finds nothing', (pointer) => {
    expect(at(answer, pointer)).toBe(undefined);
  });
});
