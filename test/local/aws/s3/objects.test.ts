import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import {
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { BUCKET, type RawResponse, raw, refusal, SUSPENDED, startS3, VERSIONED } from './support.ts';

const MIB = 1024 ** 2;

describe('putting and getting', () => {
  test('returns an object with its bytes, media type, metadata, ETag and checksum', async () => {
    const { client } = await startS3({ clock: { now: () => Date.UTC(2026, 0, 2, 3, 4, 5, 678) } });
    const put = await client.send(
      new PutObjectCommand({
        Bucket: BUCKET,
        Key: 'a.png',
        Body: 'hello',
        ContentType: 'image/png',
        CacheControl: 'no-store',
        ContentEncoding: 'gzip',
        Metadata: { Name: 'value' },
      }),
    );
    expect(put).toMatchObject({ ETag: '"5d41402abc4b2a76b9719d911017c592"', ChecksumCRC32: 'NhCmhg==' });
    const got = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'a.png' }));
    expect(await got.Body?.transformToString()).toBe('hello');
    expect(got).toMatchObject({
      ContentType: 'image/png',
      ContentLength: 5,
      ContentEncoding: 'gzip',
      CacheControl: 'no-store',
      Metadata: { name: 'value' },
      ETag: '"5d41402abc4b2a76b9719d911017c592"',
      LastModified: new Date('2026-01-02T03:04:05.000Z'),
      ChecksumCRC32: 'NhCmhg==',
      ChecksumType: 'FULL_OBJECT',
    });
  });

  test('returns a streamed object of several MiB unchanged', async () => {
    const { client } = await startS3();
    const chunks = Array.from({ length: 40 }, (_, n) => Buffer.alloc(100_000 + n, n));
    const ContentLength = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: Readable.from(chunks), ContentLength }));
    const { Body } = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'k' }));
    const bytes = (await Body?.transformToByteArray()) ?? new Uint8Array();
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      createHash('sha256').update(Buffer.concat(chunks)).digest('hex'),
    );
  });

  test('stores an empty object, and an object without a media type', async () => {
    const { client } = await startS3();
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: new Uint8Array() }));
    const got = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'k' }));
    expect(await got.Body?.transformToByteArray()).toHaveLength(0);
    expect(got).toMatchObject({ ContentLength: 0, ContentType: 'application/octet-stream' });
    const { endpoint } = await startS3();
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
    '%',
    '%2F',
    '?query=1&x',
    '#fragment',
    '\r\n\t',
    '\u0001\u001f\u007f',
    'e\u0301',
    'C:\\x',
  ])('stores, lists and deletes an object under the key %j', async (Key) => {
    const { client } = await startS3();
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key, Body: Key }));
    const { Body } = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key }));
    expect(await Body?.transformToString()).toBe(Key);
    const { Contents } = await client.send(new ListObjectsV2Command({ Bucket: BUCKET, EncodingType: 'url' }));
    expect(Contents?.map((object) => decodeURIComponent((object.Key ?? '').replaceAll('+', ' ')))).toEqual([Key]);
    await client.send(new DeleteObjectCommand({ Bucket: BUCKET, Key }));
    expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(0);
  });

  test('refuses a path that is not percent-encoded UTF-8', async () => {
    const { endpoint } = await startS3();
    const { status, body } = await raw(endpoint, 'GET', `/${BUCKET}/%ff`);
    expect(status).toBe(400);
    expect(body).toContain('<Code>InvalidURI</Code>');
  });
});

describe('ranges', () => {
  const ranges: [string, number, string, string | undefined][] = [
    ['bytes=0-0', 206, '0', 'bytes 0-0/10'],
    ['bytes=2-4', 206, '234', 'bytes 2-4/10'],
    ['bytes=7-', 206, '789', 'bytes 7-9/10'],
    ['bytes=7-99', 206, '789', 'bytes 7-9/10'],
    ['bytes=-2', 206, '89', 'bytes 8-9/10'],
    ['bytes=-99', 206, '0123456789', 'bytes 0-9/10'],
    ['bytes=4-2', 200, '0123456789', undefined],
    ['bytes=0-1,3-4', 200, '0123456789', undefined],
    ['lines=0-1', 200, '0123456789', undefined],
  ];
  test.each(ranges)('%s answers %i', async (range, status, body, contentRange) => {
    const { client, endpoint } = await startS3();
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: '0123456789' }));
    const answer = await raw(endpoint, 'GET', `/${BUCKET}/k`, { headers: { range } });
    expect({ status: answer.status, body: answer.body, contentRange: answer.headers['content-range'] }).toEqual({
      status,
      body,
      contentRange,
    });
    const head = await raw(endpoint, 'HEAD', `/${BUCKET}/k`, { headers: { range } });
    expect(head.headers['content-length']).toBe(String(body.length));
  });

  test.each(['bytes=10-', 'bytes=10-12', 'bytes=-0'])('%s covers no byte and answers 416', async (Range) => {
    const { client } = await startS3();
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: '0123456789' }));
    expect(await refusal(client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'k', Range })))).toEqual({
      status: 416,
      code: 'InvalidRange',
    });
  });

  test('returns exactly the bytes of a range across chunks', async () => {
    const { client } = await startS3();
    const body = Buffer.from(Array.from({ length: MIB }, (_, n) => (n * 31) & 0xff));
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: body }));
    const got = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'k', Range: 'bytes=65000-400000' }));
    const bytes = (await got.Body?.transformToByteArray()) ?? new Uint8Array();
    expect(Buffer.compare(bytes, body.subarray(65_000, 400_001))).toBe(0);
    expect(got.ChecksumCRC32).toBeUndefined(); // The checksum is of the whole object.
  });
});

describe('conditional reads', () => {
  const modified = Date.UTC(2026, 0, 1, 12, 0, 0, 500);
  const at = (seconds: number) => new Date(modified - 500 + seconds * 1000).toUTCString();
  const etag = '"5d41402abc4b2a76b9719d911017c592"';
  test.each<[Record<string, string>, number]>([
    [{ 'if-match': etag.replaceAll('"', '') }, 200],
    [{ 'if-match': '*' }, 200],
    [{ 'if-match': `"x", ${etag}` }, 200],
    [{ 'if-none-match': etag }, 304],
    [{ 'if-none-match': '*' }, 304],
    [{ 'if-none-match': '"x"' }, 200],
    [{ 'if-modified-since': at(-1) }, 200],
    [{ 'if-modified-since': at(0) }, 304],
    [{ 'if-unmodified-since': at(0) }, 200],
    [{ 'if-unmodified-since': at(-1) }, 412],
    [{ 'if-match': etag, 'if-unmodified-since': at(-1) }, 200],
    [{ 'if-none-match': '"x"', 'if-modified-since': at(0) }, 200],
    [{ 'if-none-match': etag, 'if-modified-since': at(-1) }, 304],
    [{ 'if-modified-since': 'no date' }, 200],
  ])('%j answers %i', async (headers, status) => {
    const { client, endpoint } = await startS3({ clock: { now: () => modified } });
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'hello' }));
    const get = await raw(endpoint, 'GET', `/${BUCKET}/k`, { headers });
    expect(get.status).toBe(status);
    if (status === 304) expect([get.headers.etag, get.body]).toEqual([etag, '']);
    expect((await raw(endpoint, 'HEAD', `/${BUCKET}/k`, { headers })).status).toBe(status);
  });
});

describe('metadata', () => {
  const put = (endpoint: string, headers: Record<string, string>): Promise<RawResponse> =>
    raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: { 'content-length': '0', ...headers } });

  test('returns a non-ASCII value encoded by RFC 2047, with its bytes read as Latin-1', async () => {
    const { endpoint } = await startS3();
    // The example in S3's documentation: the UTF-8 bytes of this text in a header, one character for each byte.
    const sent = Buffer.from('ÄMÄZÕÑ S3').toString('latin1');
    await put(endpoint, { 'x-amz-meta-nonascii': sent, 'x-amz-meta-Plain': 'AMAZONS3' });
    const { headers } = await raw(endpoint, 'HEAD', `/${BUCKET}/k`);
    expect(headers['x-amz-meta-nonascii']).toBe('=?UTF-8?B?w4PChE3Dg8KEWsODwpXDg8KRIFMz?=');
    expect(headers['x-amz-meta-plain']).toBe('AMAZONS3');
  });

  test('accepts 2 KB of names and values, and refuses one byte more', async () => {
    const { endpoint } = await startS3();
    expect((await put(endpoint, { 'x-amz-meta-ab': 'v'.repeat(2046) })).status).toBe(200);
    const { status, body } = await put(endpoint, { 'x-amz-meta-ab': 'v'.repeat(2047) });
    expect(status).toBe(400);
    expect(body).toContain('<Code>MetadataTooLarge</Code>');
  });

  test('a query may override headers of the answer', async () => {
    const { client } = await startS3();
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'x', ContentType: 'text/plain' }));
    const got = await client.send(
      new GetObjectCommand({
        Bucket: BUCKET,
        Key: 'k',
        ResponseContentType: 'a/b',
        ResponseContentDisposition: 'inline',
      }),
    );
    expect(got).toMatchObject({ ContentType: 'a/b', ContentDisposition: 'inline' });
  });
});

describe('versions', () => {
  test('deleting the newest version restores the version before it', async () => {
    const { client } = await startS3();
    const at = { Bucket: VERSIONED, Key: 'k' };
    await client.send(new PutObjectCommand({ ...at, Body: 'first' }));
    const { VersionId: second } = await client.send(new PutObjectCommand({ ...at, Body: 'second' }));
    const { VersionId: marker } = await client.send(new DeleteObjectCommand(at));
    expect(await refusal(client.send(new GetObjectCommand(at)))).toEqual({ status: 404, code: 'NoSuchKey' });
    const undone = await client.send(new DeleteObjectCommand({ ...at, VersionId: marker }));
    expect(undone).toMatchObject({ DeleteMarker: true, VersionId: marker });
    expect(await (await client.send(new GetObjectCommand(at))).Body?.transformToString()).toBe('second');
    await client.send(new DeleteObjectCommand({ ...at, VersionId: second }));
    expect(await (await client.send(new GetObjectCommand(at))).Body?.transformToString()).toBe('first');
  });

  test('in a suspended bucket a delete marker replaces the null version', async () => {
    const { client } = await startS3();
    const at = { Bucket: SUSPENDED, Key: 'k' };
    expect((await client.send(new PutObjectCommand({ ...at, Body: 'first' }))).VersionId).toBe('null');
    const deleted = await client.send(new DeleteObjectCommand(at));
    expect(deleted).toMatchObject({ VersionId: 'null', DeleteMarker: true });
    const read = client.send(new GetObjectCommand({ ...at, VersionId: 'null' }));
    expect(await refusal(read)).toEqual({ status: 405, code: 'MethodNotAllowed' });
  });

  test('refuses a version id that S3 cannot have issued', async () => {
    const { client } = await startS3();
    const read = client.send(new GetObjectCommand({ Bucket: VERSIONED, Key: 'k', VersionId: 'nonsense' }));
    expect(await refusal(read)).toEqual({ status: 400, code: 'InvalidArgument' });
  });

  test('a HEAD error has a status and no body', async () => {
    const { client, endpoint } = await startS3();
    await client.send(new DeleteObjectCommand({ Bucket: VERSIONED, Key: 'k' }));
    const { status, headers, body } = await raw(endpoint, 'HEAD', `/${VERSIONED}/k`);
    expect({ status, body, marker: headers['x-amz-delete-marker'] }).toEqual({ status: 404, body: '', marker: 'true' });
    const head = client.send(new HeadObjectCommand({ Bucket: VERSIONED, Key: 'k' }));
    expect(await refusal(head)).toEqual({ status: 404, code: 'NotFound' });
  });
});

describe('deleting', () => {
  test('If-Match: * deletes any object, and answers 412 without one', async () => {
    const { client } = await startS3();
    const at = { Bucket: BUCKET, Key: 'k', IfMatch: '*' };
    expect(await refusal(client.send(new DeleteObjectCommand(at)))).toEqual({
      status: 412,
      code: 'PreconditionFailed',
    });
    await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'x' }));
    await client.send(new DeleteObjectCommand(at));
    expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(0);
  });

  test('deletes many objects in one request, each with its own result', async () => {
    const { client } = await startS3();
    for (const Key of ['a', 'b&<']) await client.send(new PutObjectCommand({ Bucket: VERSIONED, Key, Body: Key }));
    const Objects = [{ Key: 'a' }, { Key: 'b&<', ETag: '"x"' }, { Key: 'absent', VersionId: 'nonsense' }];
    const answer = await client.send(new DeleteObjectsCommand({ Bucket: VERSIONED, Delete: { Objects } }));
    expect(answer.Deleted).toEqual([
      { Key: 'a', DeleteMarker: true, DeleteMarkerVersionId: expect.stringMatching(/^[\w.]{32}$/) },
    ]);
    expect(answer.Errors?.map(({ Key, Code }) => [Key, Code])).toEqual([
      ['b&<', 'PreconditionFailed'],
      ['absent', 'InvalidArgument'],
    ]);
    const quiet = await client.send(
      new DeleteObjectsCommand({ Bucket: VERSIONED, Delete: { Quiet: true, Objects: [{ Key: 'b&<' }] } }),
    );
    expect([quiet.Deleted, quiet.Errors]).toEqual([undefined, undefined]);
  });
});
