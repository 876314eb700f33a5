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
