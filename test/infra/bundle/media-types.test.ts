import otherTypes from 'mime/types/other.js';
import standardTypes from 'mime/types/standard.js';
import { describe, expect, it } from 'vitest';
import { packedTypes } from '../../../infra/bundle/media-types.ts';

const unpacked = async (module: string) =>
  (await import(`data:text/javascript,${encodeURIComponent(module)}`)).default as Record<string, string[]>;

describe('the packed tables of media types', () => {
  it.each([
    ['standard', standardTypes],
    ['other', otherTypes],
  ])('hold all types and extensions of the library, in less than 0.6 of the size: %s', async (_name, types) => {
    const module = packedTypes(types);
    expect(await unpacked(module)).toEqual({ ...types });
    expect(Buffer.byteLength(module)).toBeLessThan(0.6 * JSON.stringify(types).length);
  });

  it('may be in another order, because no two types of a table claim an extension', () => {
    for (const types of [standardTypes, otherTypes]) {
      // An extension with an asterisk is one that another type has.
      const extensions = Object.values(types)
        .flat()
        .filter((extension) => !extension.startsWith('*'));
      expect(extensions.filter((each, index) => extensions.indexOf(each) !== index)).toEqual([]);
    }
  });

  it('are not made of a name that would be read as two', () => {
    expect(() => packedTypes({ 'a/b': ['c,d'] })).toThrow('"c,d"');
    expect(() => packedTypes({ 'a/b c': ['d'] })).toThrow('"b c"');
  });
});
