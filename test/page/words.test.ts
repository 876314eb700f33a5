import { describe, expect, it } from 'vitest';
import { enteredValue, fieldsOf, undescribed } from '../../page/app/parameter-fields.ts';
import { clockTime, duration, plural, size, splitKey, timeAgo, waitLine } from '../../page/app/words.ts';

describe('words', () => {
  it('are short for sizes, times and numbers', () => {
    expect([0, 1, 999, 1_000, 7_700, 999_499, 999_500, 5e12].map(size)).toEqual([
      ...['0 bytes', '1 byte', '999 bytes', '1.0 KB', '7.7 KB', '999 KB', '1.0 MB', '5.0 TB'],
    ]);
    expect([-5, 40, 900, 12_000, 180_000, 7_200_000, 200_000_000].map(duration)).toEqual([
      ...['less than 0.1 s', 'less than 0.1 s', '0.9 s', '12 s', '3 min', '2 h', '2 days'],
    ]);
    expect([plural(1, 'file'), plural(12_034, 'file'), plural(2, 'entry', 'entries')]).toEqual([
      ...['1 file', '12,034 files', '2 entries'],
    ]);
    const now = Date.parse('2026-03-10T12:00:00Z');
    expect(timeAgo('2026-03-10T11:59:58Z', now)).toBe('now');
    expect(timeAgo('2026-03-10T11:48:00Z', now)).toBe('12 min. ago');
    // The clock of the server may be ahead.
    expect(timeAgo('2026-03-10T12:00:30Z', now)).toBe('now');
  });

  it('say when a waiting file is tried next, until then, and its message as it is', () => {
    const now = Date.parse('2026-03-10T12:00:00Z');
    const until = '2026-03-10T12:05:30.188Z';
    const shown = clockTime(until, now);
    expect(shown).toMatch(/^\d\d:\d\d:30$/);
    const quoted = 'The service: "quota $& resets at 2026-03-11T00:00:00Z"';
    expect(waitLine(quoted, until, now)).toBe(`Next try ${shown} · ${quoted}`);
    expect(waitLine(quoted, until, Date.parse(until))).toBe(quoted);
  });

  it('split a key at its last folder', () => {
    expect(splitKey('a/b/c.png')).toEqual({ folder: 'a/b/', name: 'c.png' });
    expect(splitKey('c.png')).toEqual({ folder: '', name: 'c.png' });
    expect(splitKey('a/b/')).toEqual({ folder: 'a/', name: 'b/' });
  });
});

describe('the fields of a form', () => {
  const quality = { type: 'string', enum: ['low', 'high'] };

  it('are made from parameters by name, a list of parameters, or a JSON Schema', () => {
    const expected = [
      expect.objectContaining({ name: 'quality', kind: 'text', options: ['low', 'high'], value: 'low' }),
    ];
    const present = { quality: 'low' };
    expect(fieldsOf({ quality }, present)).toEqual(expected);
    expect(fieldsOf([{ name: 'quality', ...quality }], present)).toEqual(expected);
    expect(fieldsOf({ type: 'object', properties: { quality } }, present)).toEqual(expected);
  });

  it('are none if the service writes its parameters in another way', () => {
    for (const other of [undefined, null, 'quality', 7, ['quality']]) expect(fieldsOf(other, {})).toEqual([]);
  });

  it('give back values of their type, and nothing if they are empty', () => {
    const value = (type: string, entered: string) => {
      const [field] = fieldsOf({ it: { type } }, undefined);
      return field && enteredValue(field, entered);
    };
    expect(value('integer', '7')).toBe(7);
    expect(value('boolean', 'false')).toBe(false);
    expect(value('string', '7')).toBe('7');
    expect(value('array', '[1]')).toEqual([1]);
    expect(() => value('object', '{')).toThrow(SyntaxError);
    expect(value('integer', '')).toBeUndefined();
  });
});

describe('a form of parameters', () => {
  it('leaves what nobody touched as it was sent, whatever type the service names', () => {
    const present = { steps: 30, shape: { of: 'round' }, size: null, other: [1] };
    const described = { steps: { type: 'int' }, shape: {}, size: { type: ['integer', 'null'] } };
    const fields = fieldsOf(described, present);
    expect(fields.map((field) => enteredValue(field, field.value))).toEqual([30, { of: 'round' }, null]);
    expect(undescribed(fields, present)).toEqual({ other: [1] });
  });
});
