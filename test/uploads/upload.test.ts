import { describe, expect, it } from 'vitest';
import { pinnedVersion, unquoted, uploadId } from '../../functions/uploads/upload.ts';

describe('an upload id', () => {
  const upload = { bucket: 'b', key: 'k', versionId: 'v', etag: 'e', lastModified: 1_700_000_000_000 };

  it('is 40 hexadecimal digits that never change', () => {
    // Computed once with another tool: printf '%s' '["b","k","version","v"]' | sha256sum
    expect(uploadId(upload)).toBe('98064873907270e93ff53252bdd5ba2228c60855');
  });

  it('of a version depends on bucket, key and version alone', () => {
    expect(uploadId({ ...upload, etag: 'x', lastModified: 5 })).toBe(uploadId(upload));
    for (const other of [{ bucket: 'c' }, { key: 'c' }, { versionId: 'c' }]) {
      expect(uploadId({ ...upload, ...other })).not.toBe(uploadId(upload));
    }
  });

  it.each([undefined, '', 'null'])(
    'without a version (%j) depends on ETag and the second of LastModified',
    (versionId) => {
      const unversioned = { ...upload, versionId };
      expect(uploadId({ ...unversioned, lastModified: upload.lastModified + 999 })).toBe(uploadId(unversioned));
      expect(uploadId({ ...unversioned, lastModified: upload.lastModified + 1000 })).not.toBe(uploadId(unversioned));
      expect(uploadId({ ...unversioned, etag: 'x' })).not.toBe(uploadId(unversioned));
      expect(uploadId({ ...unversioned, etag: '"e"' })).toBe(uploadId(unversioned));
    },
  );

  it('without a version never changes', () => {
    // printf '%s' '["b","k","etag","e",1700000000]' | sha256sum
    expect(uploadId({ ...upload, versionId: undefined })).toBe('b2673fa4defb75b4721abbf7e3beab8b1f482938');
  });

  it('tells where the bucket ends and the key begins', () => {
    expect(uploadId({ ...upload, bucket: 'ab', key: 'c' })).not.toBe(uploadId({ ...upload, bucket: 'a', key: 'bc' }));
  });

  it('of a version differs from any that an ETag and a date could have', () => {
    expect(uploadId({ ...upload, versionId: 'e' })).not.toBe(uploadId({ ...upload, versionId: undefined }));
  });
});

describe('a version id and an ETag', () => {
  it('identify a version, unless it is that of an unversioned object', () => {
    expect([undefined, null, '', 'null'].map(pinnedVersion)).toEqual(Array(4).fill(undefined));
    expect(pinnedVersion('v')).toBe('v');
  });

  it('lose quotes, and the sign of a weak ETag', () => {
    expect(unquoted('"abc"')).toBe('abc');
    expect(unquoted('W/"abc"')).toBe('abc');
    expect(unquoted('abc')).toBe('abc');
    expect(unquoted('a"b"')).toBe('a"b"');
    expect(unquoted('"a"b')).toBe('"a"b');
  });
});
