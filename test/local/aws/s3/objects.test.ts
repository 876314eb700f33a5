import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { CopyObjectCommand, GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { head, list, put, read, refusal, remove } from '../../../support/s3-calls.ts';
import { BUCKET, raw, startS3, VERSIONED } from './support.ts';

const MIB = 1024 ** 2;

describe('putting and getting', () => {
  test('returns an object with its bytes, media type, metadata, ETag and checksum', async () => {
    const { client, at } = await startS3({ clock: { now: () => Date.UTC(2026, 0, 2, 3, 4, 5, 678) } });
    const headers = { ContentType: 'image/png', CacheControl: 'no-store', ContentEncoding: 'gzip' };
    const answer = await put(at, 'hello', { ...headers, Metadata: { Name: 'value' } });
    expect(answer).toMatchObject({ ETag: '"5d41402abc4b2a76b9719d911017c592"', ChecksumCRC32: 'NhCmhg==' });
    const got = await client.send(new GetObjectCommand(at));
    expect(await got.Body?.transformToString()).toBe('hello');
    expect(got).toMatchObject({
      ...headers,
      ContentLength: 5,
      Metadata: { name: 'value' },
      ETag: '"5d41402abc4b2a76b9719d911017c592"',
      LastModified: new Date('2026-01-02T03:04:05.000Z'),
      ChecksumCRC32: 'NhCmhg==',
      ChecksumType: 'FULL_OBJECT',
    });
  });

  test('returns a streamed object of several MiB unchanged', async () => {
    const { client, at } = await startS3();
    const chunks = Array.from({ length: 40 }, (_, n) => Buffer.alloc(100_000 + n, n));
    const ContentLength = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    await client.send(new PutObjectCommand({ ...at, Body: Readable.from(chunks), ContentLength }));
    const { Body } = await client.send(new GetObjectCommand(at));
    const bytes = (await Body?.transformToByteArray()) ?? new Uint8Array();
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      createHash('sha256').update(Buffer.concat(chunks)).digest('hex'),
    );
  });

  test('stores an empty object, and an object without a media type', async () => {
    const { at, endpoint } = await startS3();
    await put(at, Buffer.of());
    expect(await read(at)).toBe('');
    expect(await head(at)).toMatchObject({ ContentLength: 0, ContentType: 'application/octet-stream' });
    await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: { 'content-length': '0' } });
    const { headers } = await raw(endpoint, 'HEAD', `/${BUCKET}/k`);
    expect(headers['content-type']).toBe('binary/octet-stream');
  });

  test.each([
    '/',
    '//',
    '../x',
    '.',
    '..',
    './a/../b',
    'trailing space ',
    ' leading',
    '\r\n\t',
    '\u0001\u001f\u007f',
    'e\u0301',
    'C:\\x',
  ])('stores, lists and deletes an object under the key %j', async (Key) => {
    const { at } = await startS3();
    const odd = { ...at, Key };
    await put(odd, Key);
    expect(await read(odd)).toBe(Key);
    const listed = await list(at, { EncodingType: 'url' });
    expect(listed.map((key) => decodeURIComponent(key.replaceAll('+', ' ')))).toEqual([Key]);
    await remove(odd);
    expect(await list(at)).toEqual([]);
  });

  test('refuses a path that is not percent-encoded UTF-8', async () => {
    const { endpoint } = await startS3();
    expect((await raw(endpoint, 'GET', `/${BUCKET}/%ff`)).outcome).toBe('400 InvalidURI');
  });
});

test('returns exactly the bytes of a range across chunks', async () => {
  const { client, at } = await startS3();
  const body = Buffer.from(Array.from({ length: MIB }, (_, n) => (n * 31) & 0xff));
  await put(at, body);
  const got = await client.send(new GetObjectCommand({ ...at, Range: 'bytes=65000-400000' }));
  const bytes = (await got.Body?.transformToByteArray()) ?? new Uint8Array();
  expect(Buffer.compare(bytes, body.subarray(65_000, 400_001))).toBe(0);
  expect(got.ChecksumCRC32).toBeUndefined(); // The checksum is of the whole object.
});

test.each([
  ['no date', 'no date', 200],
  ['now', 'Thu, 01 Jan 2026 12:00:00 GMT', 304],
  ['in the future', 'Thu, 01 Jan 2026 12:00:01 GMT', 200],
])('If-Modified-Since that is %s answers %i', async (_, date, status) => {
  const { at, endpoint } = await startS3({ clock: { now: () => Date.UTC(2026, 0, 1, 12, 0, 0, 500) } });
  await put(at, 'hello');
  const answer = await raw(endpoint, 'GET', `/${BUCKET}/k`, { headers: { 'if-modified-since': date } });
  expect([answer.status, answer.body]).toEqual([status, status === 200 ? 'hello' : '']);
  expect(answer.headers.etag).toBe('"5d41402abc4b2a76b9719d911017c592"');
});

describe('metadata', () => {
  const putWith = (endpoint: string, headers: Record<string, string>) =>
    raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: { 'content-length': '0', ...headers } });

  test('returns a non-ASCII value encoded by RFC 2047, with its bytes read as Latin-1', async () => {
    const { endpoint } = await startS3();
    // The example in S3's documentation: the UTF-8 bytes of this text in a header, one character for each byte.
    const sent = Buffer.from('ÄMÄZÕÑ S3').toString('latin1');
    await putWith(endpoint, { 'x-amz-meta-nonascii': sent, 'x-amz-meta-Plain': 'AMAZONS3' });
    const { headers } = await raw(endpoint, 'HEAD', `/${BUCKET}/k`);
    expect(headers['x-amz-meta-nonascii']).toBe('=?UTF-8?B?w4PChE3Dg8KEWsODwpXDg8KRIFMz?=');
    expect(headers['x-amz-meta-plain']).toBe('AMAZONS3');
  });

  test('accepts 2 KB of names and values, and refuses one byte more', async () => {
    const { endpoint } = await startS3();
    expect((await putWith(endpoint, { 'x-amz-meta-ab': 'v'.repeat(2046) })).status).toBe(200);
    expect((await putWith(endpoint, { 'x-amz-meta-ab': 'v'.repeat(2047) })).outcome).toBe('400 MetadataTooLarge');
  });
});

test('a HEAD error has a status and no body', async () => {
  const { versioned, endpoint } = await startS3();
  await remove(versioned);
  const { status, headers, body } = await raw(endpoint, 'HEAD', `/${VERSIONED}/k`);
  expect({ status, body, marker: headers['x-amz-delete-marker'] }).toEqual({ status: 404, body: '', marker: 'true' });
  expect(await refusal(head(versioned))).toBe('404 NotFound');
});

test('a copy goes into another bucket', async () => {
  const { client, at, versioned } = await startS3();
  await put(at, 'hello');
  const { VersionId } = await client.send(new CopyObjectCommand({ ...versioned, CopySource: `${BUCKET}/k` }));
  expect(await read(versioned, VersionId)).toBe('hello');
});

test.each([
  ['STANDARD', '200'],
  ['GLACIER', '501 NotImplemented'],
  ['NONSENSE', '400 InvalidStorageClass'],
])('the storage class %s is answered with %s', async (storageClass, outcome) => {
  const { endpoint } = await startS3();
  const headers = { 'x-amz-storage-class': storageClass };
  expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body: 'x' })).outcome).toBe(outcome);
});
