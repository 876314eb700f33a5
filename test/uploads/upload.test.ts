import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  firstOf,
  hashIn,
  ordinalOf,
  pinnedVersion,
  putAt,
  secondDigits,
  secondsIn,
  spreadOf,
  stageUpload,
  UPLOAD_ID,
  type Upload,
  unquoted,
  uploadId,
} from '../../functions/uploads/upload.ts';
import { firstKeyOf, stageOfName, uploadName } from '../../operations/upload-name.ts';

describe('an upload id', () => {
  const upload = { bucket: 'b', key: 'k', versionId: 'v', etag: 'e', lastModified: 1_700_000_000_000 };

  it('is the second of LastModified, and then 32 digits of a hash that never changes', () => {
    // Computed once with other tools: printf '%x' 1700000000; printf '%s' '["b","k","version","v"]' | sha256sum
    expect(uploadId(upload)).toBe('6553f10098064873907270e93ff53252bdd5ba22');
  });

  it('of a version depends on bucket, key, version and the second of LastModified', () => {
    expect(uploadId({ ...upload, etag: 'x', lastModified: upload.lastModified + 999 })).toBe(uploadId(upload));
    for (const other of [
      { bucket: 'c' },
      { key: 'c' },
      { versionId: 'c' },
      { lastModified: upload.lastModified + 1000 },
    ]) {
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
    // printf '%s' '["b","k","etag","e"]' | sha256sum
    expect(uploadId({ ...upload, versionId: undefined })).toBe('6553f10047efccdb8561c9b1cdb66d8ec53ff4f8');
  });

  it('tells where the bucket ends and the key begins', () => {
    expect(uploadId({ ...upload, bucket: 'ab', key: 'c' })).not.toBe(uploadId({ ...upload, bucket: 'a', key: 'bc' }));
  });

  it('sorts by the time of the upload, at any time that a date can name', () => {
    const times = [
      Number.NEGATIVE_INFINITY,
      -1,
      0,
      1_000,
      15_000,
      1e12,
      1.7e12,
      1.7e12 + 1_000,
      2 ** 32 * 1000,
      8.64e15,
    ];
    const ids = times.map((lastModified) => uploadId({ ...upload, lastModified }));
    expect(ids.map((id) => id.slice(0, 8))).toEqual(ids.map((id) => id.slice(0, 8)).toSorted());
    for (const id of ids) expect(id).toMatch(UPLOAD_ID);
  });

  it('sorts after the digits of every time up to its own, and before those of a later second', () => {
    const id = uploadId(upload);
    expect(id > secondDigits(upload.lastModified)).toBe(true);
    expect(id < secondDigits(upload.lastModified + 1_000)).toBe(true);
  });

  it('spreads uploads of the same second evenly', () => {
    const spreads = Array.from({ length: 4_000 }, (_, n) => spreadOf(uploadId({ ...upload, key: `${n}` })));
    for (const quarter of [0, 1, 2, 3]) {
      expect(spreads.filter((spread) => Math.floor(spread * 4) === quarter).length).toBeGreaterThan(900);
    }
  });

  it('of a version differs from any that an ETag and a date could have', () => {
    expect(uploadId({ ...upload, versionId: 'e' })).not.toBe(uploadId({ ...upload, versionId: undefined }));
  });
});

describe('an upload of a later stage', () => {
  const first = {
    ...{ bucket: 'b', key: 'in/a.png', versionId: 'v', etag: 'e', bytes: 5, mediaType: 'image/png' },
    ...{ lastModified: 1_700_000_000_000, currentAt: 1_700_000_000_500, sequencer: '0a' },
  };
  const file = { ...first, id: uploadId(first) };
  const parent = { id: file.id, key: file.key, generation: 1, asset: 'asset-1' };
  const stage = { first: { id: file.id, key: file.key }, route: 'made small', parent };
  const input = { bytes: 7, mediaType: 'model/gltf-binary' };
  const upload = stageUpload(file, stage, input);

  it('has the times of the first file, a key below it, and the size and type of its input', () => {
    expect(upload).toEqual({
      ...{ id: upload.id, bucket: 'b', key: `in/a.png/chain/made%20small/${upload.id}`, etag: '' },
      ...{ bytes: 7, mediaType: 'model/gltf-binary', lastModified: 1_700_000_000_000 },
      ...{ currentAt: 1_700_000_000_500, sequencer: '0a', stage },
    });
  });

  it('has an id that never changes, and that each of its facts decides', () => {
    const facts = JSON.stringify([file.id, 'made small', file.id, 1, 'asset-1']);
    const hash = createHash('sha256').update(facts).digest('hex').slice(0, 32);
    expect(upload.id).toBe(`6553f100${hash}`);
    const others = [
      { ...stage, first: { ...stage.first, id: 'f'.repeat(40) } },
      { ...stage, route: 'other' },
      ...[{ id: 'f'.repeat(40) }, { generation: 2 }, { asset: 'asset-2' }, { asset: undefined }].map((change) => ({
        ...stage,
        parent: { ...parent, ...change },
      })),
    ];
    const ids = others.map((other) => stageUpload(file, other, input).id);
    expect(new Set([upload.id, ...ids]).size).toBe(others.length + 1);
  });

  it('is named by the first file and the route', () => {
    expect(uploadName(upload.key)).toBe('in/a.png › made small');
    expect(uploadName(`a/chain/b/c.png/chain/%2Ex%2F%C3%A4/${upload.id}`)).toBe('a/chain/b/c.png › .x/ä');
    const noNames = [file.key, `in/a.png/chain/small/${'g'.repeat(40)}`, `in/a.png/chain/%E4/${upload.id}`];
    expect(noNames.map(uploadName)).toEqual(noNames);
    expect(stageOfName('in/a › b.png › made small')).toEqual({ firstKey: 'in/a › b.png', route: 'made small' });
    expect(['in/a.png', ' › small'].map(stageOfName)).toEqual([undefined, undefined]);
    expect(firstKeyOf('in/a.png › made small')).toBe('in/a.png');
    expect(firstKeyOf('in/a.png')).toBe('in/a.png');
    expect([firstOf(upload), firstOf(file)]).toEqual([stage.first, stage.first]);
  });
});

describe('the order of uploads at one key', () => {
  it('is that of their sequencers, the shorter padded with zeros on the right, and in either case of letters', () => {
    const inOrder = ['0055AED6DCD90281E5', '0055aed6dcd90281e6', '0055AED6DCD90281E60', '0055AED6DCD90281E601'];
    const ordinals = inOrder.map((sequencer) => ordinalOf({ sequencer }));
    expect(ordinals).toEqual(ordinals.toSorted());
    expect(ordinals[1]).toBe(ordinals[2]);
    expect(new Set(ordinals).size).toBe(3);
  });

  it('has an upload without a sequencer last', () => {
    expect(ordinalOf({ sequencer: undefined }) > ordinalOf({ sequencer: 'f'.repeat(64) })).toBe(true);
  });
});

describe('the time at which an upload was put', () => {
  const facts = { lastModified: 5_000, currentAt: 65_000, sequencer: '0055' };
  const at = (more: object) => putAt({ ...facts, ...more } as unknown as Upload);

  it('is that of its message, which says when a multipart upload was completed', () => {
    expect(at({})).toBe(65_000);
  });

  it('is its date if the message of S3 is not there, or is older', () => {
    expect(at({ sequencer: undefined })).toBe(5_000);
    expect(at({ currentAt: undefined })).toBe(5_000);
    expect(at({ currentAt: 4_000 })).toBe(5_000);
  });
});

describe('the parts of an upload id', () => {
  it('are its second and its hash', () => {
    const id = `69570ee5${'ab'.repeat(16)}`;
    expect([secondsIn(id), hashIn(id)]).toEqual(['69570ee5', 'ab'.repeat(16)]);
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
