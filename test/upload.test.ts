import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  isFolderMarker,
  messageFor,
  pinnedVersion,
  UnrecognisedEventError,
  unquoted,
  uploadId,
  uploadsOf,
} from '../functions/upload.ts';

/** An S3 notification as S3 documents it, with the key as S3 encodes it. */
const notification = (object: object, eventName = 'ObjectCreated:Put') => ({
  Records: [
    {
      eventVersion: '2.1',
      eventSource: 'aws:s3',
      eventName,
      s3: { bucket: { name: 'inbox', arn: 'arn:aws:s3:::inbox' }, object },
    },
  ],
});

const bridged = (object: object, detailType = 'Object Created') => ({
  source: 'aws.s3',
  'detail-type': detailType,
  detail: { bucket: { name: 'inbox' }, object, reason: 'PutObject' },
});

const KEYS: readonly (readonly [what: string, key: string, encoded: string])[] = [
  ['spaces', 'my summer photo.png', 'my+summer+photo.png'],
  ['a plus sign', '1+1=2.png', '1%2B1%3D2.png'],
  ['a percent sign', '100%.png', '100%25.png'],
  ['what looks encoded already', 'a%20b+c.png', 'a%2520b%2Bc.png'],
  ['unicode', 'Straße/写真 🖼.png', 'Stra%C3%9Fe/%E5%86%99%E7%9C%9F+%F0%9F%96%BC.png'],
  ['a question mark and a hash', 'who?#1.png', 'who%3F%231.png'],
  ['a newline', 'two\nlines.png', 'two%0Alines.png'],
];

describe('an S3 notification', () => {
  it.each(KEYS)('has its key decoded once: %s', (_, key, encoded) => {
    expect(uploadsOf(notification({ key: encoded, size: 3, eTag: 'abc', versionId: 'v1' }))).toEqual([
      { bucket: 'inbox', key, versionId: 'v1', etag: 'abc', bytes: 3, uploadId: undefined },
    ]);
  });

  it('tells of every record that it has', () => {
    const [first] = notification({ key: 'a' }).Records;
    const [second] = notification({ key: 'b' }).Records;
    expect(uploadsOf({ Records: [first, second] }).map(({ key }) => key)).toEqual(['a', 'b']);
  });

  it.each([
    'ObjectCreated:Post',
    'ObjectCreated:Copy',
    'ObjectCreated:CompleteMultipartUpload',
    's3:ObjectCreated:Put',
  ])('of %s is an upload', (eventName) => {
    expect(uploadsOf(notification({ key: 'a' }, eventName))).toHaveLength(1);
  });

  it.each(['ObjectRemoved:Delete', 'ObjectTagging:Put', 'LifecycleExpiration:Delete'])('of %s is none', (eventName) => {
    expect(uploadsOf(notification({ key: 'a' }, eventName))).toEqual([]);
  });

  it('from a bucket without versions pins none', () => {
    expect(uploadsOf(notification({ key: 'a', versionId: '' }))[0]?.versionId).toBeUndefined();
    expect(uploadsOf(notification({ key: 'a', versionId: 'null' }))[0]?.versionId).toBeUndefined();
  });

  it('for a test tells of no upload', () => {
    expect(uploadsOf({ Service: 'Amazon S3', Event: 's3:TestEvent', Bucket: 'inbox' })).toEqual([]);
  });
});

describe('an EventBridge event', () => {
  it.each(KEYS)('has its key taken as it is: %s', (_, key) => {
    expect(uploadsOf(bridged({ key, size: 3, etag: 'abc', 'version-id': 'v1' }))).toEqual([
      { bucket: 'inbox', key, versionId: 'v1', etag: 'abc', bytes: 3 },
    ]);
  });

  it('of another kind tells of no upload', () => {
    expect(uploadsOf(bridged({ key: 'a' }, 'Object Deleted'))).toEqual([]);
  });
});

describe('anything else', () => {
  it.each([
    ['null', null],
    ['text', 'hello'],
    ['a list', []],
    ['an empty object', {}],
    ['a record without s3', { Records: [{ eventName: 'ObjectCreated:Put' }] }],
    ['a record that is null', { Records: [null] }],
    ['a record without a key', notification({ size: 1 })],
    ['a record with an empty key', notification({ key: '' })],
    ['a record whose key is a number', notification({ key: 5 })],
    ['a key that is not URL-encoded', notification({ key: '%zz' })],
    ['a key that is not UTF-8', notification({ key: '%ff' })],
    ['an event of another service', { source: 'aws.ec2', 'detail-type': 'Object Created', detail: {} }],
    [
      'an event without a bucket',
      { source: 'aws.s3', 'detail-type': 'Object Created', detail: { object: { key: 'a' } } },
    ],
  ])('is refused by name: %s', (_, message) => {
    expect(() => uploadsOf(message)).toThrow(UnrecognisedEventError);
  });

  it('never makes the parser fail in another way', () => {
    fc.assert(
      fc.property(fc.anything({ maxDepth: 6 }), (message) => {
        try {
          uploadsOf(message);
        } catch (error) {
          expect(error).toBeInstanceOf(UnrecognisedEventError);
        }
      }),
    );
  });
});

describe('a message that sends an upload again', () => {
  it('names the same upload, whatever its key', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', minLength: 1 }),
        fc.option(fc.stringMatching(/^[0-9a-zA-Z._]+$/), { nil: undefined }),
        (key, versionId) => {
          const upload = {
            id: 'f'.repeat(40),
            bucket: 'inbox',
            key,
            versionId,
            etag: 'abc',
            bytes: 5,
            lastModified: 0,
            mediaType: 'text/plain',
          };
          expect(uploadsOf(JSON.parse(messageFor(upload)))).toEqual([
            { bucket: 'inbox', key, versionId: pinnedVersion(versionId), etag: 'abc', bytes: 5, uploadId: upload.id },
          ]);
        },
      ),
    );
  });
});

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

  it('cannot be confused by where bucket ends and key begins', () => {
    expect(uploadId({ ...upload, bucket: 'ab', key: 'c' })).not.toBe(uploadId({ ...upload, bucket: 'a', key: 'bc' }));
  });

  it('of a version is none that an ETag and a date could have', () => {
    expect(uploadId({ ...upload, versionId: 'e' })).not.toBe(uploadId({ ...upload, versionId: undefined }));
  });
});

describe('small words', () => {
  it('a folder marker is empty and ends with a slash', () => {
    expect(isFolderMarker({ key: 'a/', bytes: 0 })).toBe(true);
    expect(isFolderMarker({ key: 'a/' })).toBe(true);
    expect(isFolderMarker({ key: 'a/', bytes: 1 })).toBe(false);
    expect(isFolderMarker({ key: 'a', bytes: 0 })).toBe(false);
  });

  it('an ETag loses its quotes, and a weak one its sign', () => {
    expect(unquoted('"abc"')).toBe('abc');
    expect(unquoted('W/"abc"')).toBe('abc');
    expect(unquoted('abc')).toBe('abc');
  });
});
