import {
  DeleteObjectCommand,
  ListObjectsCommand,
  ListObjectsV2Command,
  ListObjectVersionsCommand,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { BUCKET, raw, refusal, startS3, VERSIONED } from './support.ts';

async function fill(client: S3Client, keys: readonly string[], Bucket = BUCKET): Promise<void> {
  for (const Key of keys) await client.send(new PutObjectCommand({ Bucket, Key, Body: 'x' }));
}

describe('ListObjectsV2', () => {
  test.each([1, 2, 3, 1000])('groups keys by common prefix, with %i entries on a page', async (MaxKeys) => {
    const { client } = await startS3();
    await fill(client, ['a', 'b/', 'b/1', 'b/2/3', 'c', 'd/1', 'd/2', '～/1', '😀/1']);
    const seen: string[] = [];
    let ContinuationToken: string | undefined;
    do {
      const page = await client.send(
        new ListObjectsV2Command({ Bucket: BUCKET, MaxKeys, ContinuationToken, Delimiter: '/' }),
      );
      const entries = [
        ...(page.Contents ?? []).map(({ Key }) => Key ?? ''),
        ...(page.CommonPrefixes ?? []).map(({ Prefix }) => Prefix ?? ''),
      ];
      expect(entries).toHaveLength(page.KeyCount ?? 0);
      expect(page.IsTruncated).toBe(page.NextContinuationToken !== undefined);
      seen.push(...entries);
      ContinuationToken = page.NextContinuationToken;
    } while (ContinuationToken !== undefined);
    expect(seen.toSorted()).toEqual(['a', 'b/', 'c', 'd/', '😀/', '～/']);
  });

  test.each<[string, object, string[], string[]]>([
    ['a prefix', { Prefix: 'b/' }, ['b/', 'b/1', 'b/2/3'], []],
    ['a prefix and a delimiter', { Prefix: 'b/', Delimiter: '/' }, ['b/', 'b/1'], ['b/2/']],
    ['a prefix that is not a key', { Prefix: 'b' }, ['b/', 'b/1', 'b/2/3', 'b0'], []],
    ['a prefix without keys', { Prefix: 'x' }, [], []],
    ['a longer delimiter', { Delimiter: '/2/' }, ['a', 'b/', 'b/1', 'b0'], ['b/2/']],
    ['start-after before the prefix', { StartAfter: 'a', Prefix: 'b/2' }, ['b/2/3'], []],
    ['start-after after the prefix', { StartAfter: 'c', Prefix: 'b' }, [], []],
    ['start-after within a common prefix', { StartAfter: 'b/1', Delimiter: '/' }, ['b0'], []],
    ['a page of zero keys', { MaxKeys: 0 }, [], []],
  ])('lists with %s', async (_, input, keys, prefixes) => {
    const { client } = await startS3();
    await fill(client, ['a', 'b/', 'b/1', 'b/2/3', 'b0']);
    const page = await client.send(new ListObjectsV2Command({ Bucket: BUCKET, ...input }));
    expect((page.Contents ?? []).map(({ Key }) => Key)).toEqual(keys);
    expect((page.CommonPrefixes ?? []).map(({ Prefix }) => Prefix)).toEqual(prefixes);
    expect(page.IsTruncated).toBe(false);
  });

  test('lists at most 1,000 keys on a page, even if the client asks for more', async () => {
    const { s3, client } = await startS3();
    for (let n = 0; n < 1001; n++) {
      await s3.handle({ method: 'PUT', url: `/${BUCKET}/${n}`, headers: { 'content-length': '0' }, body: nothing() });
    }
    const page = await client.send(new ListObjectsV2Command({ Bucket: BUCKET, MaxKeys: 5000 }));
    expect([page.KeyCount, page.MaxKeys, page.IsTruncated]).toEqual([1000, 1000, true]);
  });

  test('encodes keys that XML forbids if the client asks for it, and otherwise escapes them', async () => {
    const { client, endpoint } = await startS3();
    await fill(client, ['a b&<\n\u0001é(*']);
    const encoded = await raw(endpoint, 'GET', `/${BUCKET}?list-type=2&encoding-type=url`);
    expect(encoded.body).toContain('<Key>a+b%26%3C%0A%01%C3%A9%28*</Key>');
    expect(encoded.body).toContain('<EncodingType>url</EncodingType>');
    const plain = await raw(endpoint, 'GET', `/${BUCKET}?list-type=2`);
    expect(plain.body).toContain('<Key>a b&amp;&lt;&#xa;&#x1;é(*</Key>');
  });

  test('refuses invalid values in the query', async () => {
    const { client, endpoint } = await startS3();
    const list = (input: object) => refusal(client.send(new ListObjectsV2Command({ Bucket: BUCKET, ...input })));
    expect((await list({ ContinuationToken: 'nonsense' })).code).toBe('InvalidArgument');
    expect((await list({ EncodingType: 'rot13' })).code).toBe('InvalidArgument');
    expect((await raw(endpoint, 'GET', `/${BUCKET}?list-type=2&max-keys=-1`)).status).toBe(400);
    expect(await refusal(client.send(new ListObjectsV2Command({ Bucket: 'absent' })))).toEqual({
      status: 404,
      code: 'NoSuchBucket',
    });
  });
});

test('ListObjects continues after a marker', async () => {
  const { client } = await startS3();
  await fill(client, ['a', 'b/1', 'b/2', 'c']);
  const first = await client.send(new ListObjectsCommand({ Bucket: BUCKET, Delimiter: '/', MaxKeys: 2 }));
  expect([first.Contents?.[0]?.Key, first.CommonPrefixes?.[0]?.Prefix, first.NextMarker]).toEqual(['a', 'b/', 'b/']);
  const second = await client.send(
    new ListObjectsCommand({ Bucket: BUCKET, Delimiter: '/', MaxKeys: 2, Marker: first.NextMarker }),
  );
  expect([second.Contents?.map(({ Key }) => Key), second.IsTruncated]).toEqual([['c'], false]);
  const plain = await client.send(new ListObjectsCommand({ Bucket: BUCKET, MaxKeys: 2 }));
  expect([plain.IsTruncated, plain.NextMarker]).toEqual([true, undefined]);
});

describe('ListObjectVersions', () => {
  async function history(client: S3Client): Promise<string[]> {
    const all: string[] = [];
    for (const [Key, deleted] of [
      ['a', false],
      ['b/1', false],
      ['a', false],
      ['a', true],
      ['c', false],
    ] as const) {
      const at = { Bucket: VERSIONED, Key };
      const { VersionId } = deleted
        ? await client.send(new DeleteObjectCommand(at))
        : await client.send(new PutObjectCommand({ ...at, Body: 'x' }));
      all.push(`${Key} ${VersionId}`);
    }
    const [first, other, second, marker, last] = all as [string, string, string, string, string];
    return [marker, second, first, other, last];
  }

  test.each([1, 2, 3, 1000])('lists every version, newest first, with %i on a page', async (MaxKeys) => {
    const { client } = await startS3();
    const expected = await history(client);
    const versions: string[] = [];
    const markers: string[] = [];
    let next: { KeyMarker?: string; VersionIdMarker?: string } = {};
    for (;;) {
      const page = await client.send(new ListObjectVersionsCommand({ Bucket: VERSIONED, MaxKeys, ...next }));
      versions.push(...(page.Versions ?? []).map(({ Key, VersionId }) => `${Key} ${VersionId}`));
      markers.push(...(page.DeleteMarkers ?? []).map(({ Key, VersionId }) => `${Key} ${VersionId}`));
      if (!page.IsTruncated) break;
      next = { KeyMarker: page.NextKeyMarker, VersionIdMarker: page.NextVersionIdMarker };
    }
    expect(markers).toEqual(expected.slice(0, 1));
    expect(versions).toEqual(expected.slice(1));
  });

  test('marks the latest version, and groups keys by common prefix', async () => {
    const { client } = await startS3();
    await history(client);
    const page = await client.send(new ListObjectVersionsCommand({ Bucket: VERSIONED, Delimiter: '/' }));
    expect(page.DeleteMarkers?.map(({ IsLatest }) => IsLatest)).toEqual([true]);
    expect(page.Versions?.map(({ Key, IsLatest }) => [Key, IsLatest])).toEqual([
      ['a', false],
      ['a', false],
      ['c', true],
    ]);
    expect(page.CommonPrefixes).toEqual([{ Prefix: 'b/' }]);
    expect(
      (await client.send(new ListObjectsV2Command({ Bucket: VERSIONED }))).Contents?.map(({ Key }) => Key),
    ).toEqual(['b/1', 'c']);
  });
});

async function* nothing(): AsyncGenerator<Uint8Array> {}

test('keysMax limits a page, even if the client asks for more', async () => {
  const { client } = await startS3({ keysMax: 2 });
  await fill(client, ['a', 'b', 'c']);
  await fill(client, ['a', 'b', 'c'], VERSIONED);
  const page = await client.send(new ListObjectsV2Command({ Bucket: BUCKET, MaxKeys: 1000 }));
  expect([page.KeyCount, page.MaxKeys, page.IsTruncated]).toEqual([2, 2, true]);
  const rest = await client.send(
    new ListObjectsV2Command({ Bucket: BUCKET, ContinuationToken: page.NextContinuationToken }),
  );
  expect(rest.Contents?.map(({ Key }) => Key)).toEqual(['c']);
  const versions = await client.send(new ListObjectVersionsCommand({ Bucket: VERSIONED }));
  expect([versions.Versions?.length, versions.IsTruncated, versions.NextKeyMarker]).toEqual([2, true, 'b']);
});
