import { ListObjectsV2Command, ListObjectVersionsCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { BUCKET, raw, refusal, startS3, VERSIONED } from './support.ts';

async function fill(client: S3Client, keys: readonly string[], Bucket = BUCKET): Promise<void> {
  for (const Key of keys) await client.send(new PutObjectCommand({ Bucket, Key, Body: 'x' }));
}

describe('ListObjectsV2', () => {
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
    expect((await list({ EncodingType: 'rot13' })).code).toBe('InvalidArgument');
    expect((await raw(endpoint, 'GET', `/${BUCKET}?list-type=2&max-keys=-1`)).status).toBe(400);
    expect((await raw(endpoint, 'GET', `/${BUCKET}?list-type=3`)).body).toContain('<Code>InvalidArgument</Code>');
    const marker = 'versions&key-marker=k&version-id-marker=';
    expect((await raw(endpoint, 'GET', `/${BUCKET}?${marker}`)).body).toContain('<Code>InvalidArgument</Code>');
    expect(await refusal(client.send(new ListObjectsV2Command({ Bucket: 'absent' })))).toEqual({
      status: 404,
      code: 'NoSuchBucket',
    });
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
