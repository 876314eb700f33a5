import { ListObjectsV2Command, ListObjectVersionsCommand } from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { list, put, refusal } from '../../../support/s3-calls.ts';
import { BUCKET, raw, startS3, VERSIONED } from './support.ts';

describe('ListObjectsV2', () => {
  test('has at most 1,000 keys on a page, even if the client asks for more', async () => {
    const { client } = await startS3();
    expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET, MaxKeys: 5000 }))).MaxKeys).toBe(1000);
  });

  test('encodes keys that XML forbids if the client asks for it, and otherwise escapes them', async () => {
    const { at, endpoint } = await startS3();
    await put({ ...at, Key: 'a b&<\n\u0001é(*' }, 'x');
    const encoded = await raw(endpoint, 'GET', `/${BUCKET}?list-type=2&encoding-type=url`);
    expect(encoded.body).toContain('<Key>a+b%26%3C%0A%01%C3%A9%28*</Key>');
    expect(encoded.body).toContain('<EncodingType>url</EncodingType>');
    const plain = await raw(endpoint, 'GET', `/${BUCKET}?list-type=2`);
    expect(plain.body).toContain('<Key>a b&amp;&lt;&#xa;&#x1;é(*</Key>');
  });

  test('refuses invalid values in the query', async () => {
    const { at, endpoint } = await startS3();
    const queries = ['list-type=2&encoding-type=rot13', 'list-type=2&max-keys=-1', 'list-type=3'];
    for (const query of [...queries, 'versions&key-marker=k&version-id-marker=']) {
      expect((await raw(endpoint, 'GET', `/${BUCKET}?${query}`)).outcome, query).toBe('400 InvalidArgument');
    }
    expect(await refusal(list({ ...at, Bucket: 'absent' }))).toBe('404 NoSuchBucket');
  });
});

test('keysMax limits a page, even if the client asks for more', async () => {
  const { client, at, versioned } = await startS3({ keysMax: 2 });
  for (const Key of ['a', 'b', 'c']) await Promise.all([at, versioned].map((place) => put({ ...place, Key }, 'x')));
  const page = await client.send(new ListObjectsV2Command({ Bucket: BUCKET, MaxKeys: 1000 }));
  expect([page.KeyCount, page.MaxKeys, page.IsTruncated]).toEqual([2, 2, true]);
  expect(await list(at, { ContinuationToken: page.NextContinuationToken })).toEqual(['c']);
  const versions = await client.send(new ListObjectVersionsCommand({ Bucket: VERSIONED }));
  expect([versions.Versions?.length, versions.IsTruncated, versions.NextKeyMarker]).toEqual([2, true, 'b']);
});
