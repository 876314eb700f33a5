import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { type ChecksumAlgorithm, GetObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { createHasher } from '../../../../local/aws/s3/checksums.ts';
import { temporaryFolder } from '../../../support/folder.ts';
import { head, list, put, read, refusal } from '../../../support/s3-calls.ts';
import { signedHeaders } from '../../../support/sigv4.ts';
import { BUCKET, CREDENTIALS, raw, startS3 } from './support.ts';

const HELLO_CRC32 = 'NhCmhg==';

describe('checksums', () => {
  // The check values in the catalogues of CRC algorithms: the checksums of these nine characters.
  test.each([
    ['crc32', 'cbf43926'],
    ['crc32c', 'e3069283'],
    ['crc64nvme', 'ae8b14860a799888'],
  ] as const)('%s of 123456789 is %s, in one chunk or in nine', (algorithm, expected) => {
    const whole = createHasher(algorithm);
    whole.update(Buffer.from('123456789'));
    expect(whole.digest().toString('hex')).toBe(expected);
    const pieces = createHasher(algorithm);
    for (const character of '123456789') pieces.update(Buffer.from(character));
    expect(pieces.digest().toString('hex')).toBe(expected);
  });

  const right: [ChecksumAlgorithm, string][] = [
    ['CRC32', 'NhCmhg=='],
    ['CRC32C', 'mnG7TA=='],
    ['SHA1', 'qvTGHdzF6KLavt4PO0gs2a6pQ00='],
    ['SHA256', 'LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ='],
  ];
  test.each(right)('%s is verified, stored and returned', async (ChecksumAlgorithm, value) => {
    const { at } = await startS3();
    await put(at, 'hello', { ChecksumAlgorithm });
    expect(await head(at, { ChecksumMode: 'ENABLED' })).toHaveProperty(`Checksum${ChecksumAlgorithm}`, value);
  });

  test('CRC64NVME is verified', async () => {
    const { endpoint } = await startS3();
    const headers = { 'x-amz-checksum-crc64nvme': Buffer.from('ae8b14860a799888', 'hex').toString('base64') };
    const upload = async (body: string) => (await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body })).outcome;
    expect([await upload('123456789'), await upload('12345678')]).toEqual(['200', '400 BadDigest']);
  });

  test('an object that was uploaded without a checksum has none', async () => {
    const { endpoint, at } = await startS3();
    await raw(endpoint, 'PUT', `/${BUCKET}/k`, { body: 'hello' });
    expect(await read(at)).toBe('hello');
    expect((await head(at, { ChecksumMode: 'ENABLED' })).ChecksumType).toBeUndefined();
  });

  const RIGHT_CRC32C = { 'x-amz-checksum-crc32c': 'mnG7TA==' };
  const wrong: [string, Record<string, string>, string][] = [
    ['CRC32 of the wrong length', { 'x-amz-checksum-crc32': 'AAAA' }, '400 InvalidRequest'],
    ['CRC32C', { 'x-amz-checksum-crc32c': 'AAAAAA==' }, '400 BadDigest'],
    ['SHA1', { 'x-amz-checksum-sha1': Buffer.alloc(20).toString('base64') }, '400 BadDigest'],
    ['SHA256', { 'x-amz-checksum-sha256': Buffer.alloc(32).toString('base64') }, '400 BadDigest'],
    ['pair of checksums', { 'x-amz-checksum-crc32': HELLO_CRC32, ...RIGHT_CRC32C }, '400 InvalidRequest'],
    ['unsupported algorithm', { 'x-amz-checksum-xxhash64': 'AAAAAAAAAAA=' }, '501 NotImplemented'],
    ['Content-MD5', { 'content-md5': Buffer.alloc(16).toString('base64') }, '400 BadDigest'],
    ['Content-MD5 of the wrong length', { 'content-md5': 'AAAA' }, '400 InvalidDigest'],
    ['x-amz-content-sha256', { 'x-amz-content-sha256': '0'.repeat(64) }, '400 XAmzContentSHA256Mismatch'],
  ];
  test.each(wrong)('refuses a wrong %s and stores nothing', async (_, headers, expected) => {
    const { at, endpoint } = await startS3();
    const { outcome } = await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body: 'hello' });
    expect(outcome).toBe(expected);
    expect(await list(at)).toEqual([]);
  });

  test('accepts a correct Content-MD5 and x-amz-content-sha256', async () => {
    const { endpoint } = await startS3();
    const headers = {
      'content-md5': 'XUFAKrxLKna5cZ2REBfFkg==',
      'x-amz-content-sha256': createHash('sha256').update('hello').digest('hex'),
    };
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body: 'hello' })).status).toBe(200);
  });
});

describe('aws-chunked bodies', () => {
  const headers = (sha256: string, more: Record<string, string> = {}) => ({
    'content-encoding': 'aws-chunked',
    'x-amz-content-sha256': sha256,
    'x-amz-decoded-content-length': '5',
    ...more,
  });
  const trailer = { 'x-amz-trailer': 'x-amz-checksum-crc32' };
  const UNSIGNED = headers('STREAMING-UNSIGNED-PAYLOAD-TRAILER', trailer);
  const UNSIGNED_BODY = `3\r\nhel\r\n2\r\nlo\r\n0\r\nx-amz-checksum-crc32:${HELLO_CRC32}\r\n\r\n`;

  test.each<[string, Record<string, string>, string]>([
    ['STREAMING-UNSIGNED-PAYLOAD-TRAILER', UNSIGNED, UNSIGNED_BODY],
    ['a body without the last empty line', UNSIGNED, UNSIGNED_BODY.slice(0, -2)],
    ['gzip and aws-chunked', { ...UNSIGNED, 'content-encoding': 'aws-chunked, gzip' }, UNSIGNED_BODY],
  ])('decodes %s, in one chunk or byte by byte', async (_, sent, body) => {
    const { client, at, endpoint, s3 } = await startS3();
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: sent, body })).status).toBe(200);
    async function* bytes() {
      for (const byte of Buffer.from(body)) yield Buffer.of(byte);
    }
    expect((await s3.handle({ method: 'PUT', url: `/${BUCKET}/l`, headers: sent, body: bytes() })).status).toBe(200);
    for (const Key of ['k', 'l']) {
      const got = await client.send(new GetObjectCommand({ ...at, Key }));
      expect(await got.Body?.transformToString()).toBe('hello');
      expect(got.ContentEncoding).toBe(sent['content-encoding']?.includes('gzip') ? 'gzip' : undefined);
    }
  });

  const declaring = (bytes: string) => ({ ...UNSIGNED, 'x-amz-decoded-content-length': bytes });
  test.each<[string, Record<string, string>, string, string]>([
    ['a wrong checksum', UNSIGNED, UNSIGNED_BODY.replace(HELLO_CRC32, 'AAAAAA=='), 'BadDigest'],
    ['no trailer', UNSIGNED, '5\r\nhello\r\n0\r\n\r\n', 'MalformedTrailerError'],
    ['a trailer that is not a header', UNSIGNED, '5\r\nhello\r\n0\r\nnonsense\r\n\r\n', 'MalformedTrailerError'],
    ['fewer bytes than declared', declaring('6'), UNSIGNED_BODY, 'IncompleteBody'],
    ['more bytes than declared', declaring('4'), UNSIGNED_BODY, 'IncompleteBody'],
    ['no last chunk', UNSIGNED, '5\r\nhello\r\n', 'IncompleteBody'],
    ['an end inside a chunk', UNSIGNED, '5\r\nhel', 'IncompleteBody'],
    ['a chunk that is longer than its length', UNSIGNED, '4\r\nhello\r\n0\r\n\r\n', 'InvalidRequest'],
    ['an invalid length', UNSIGNED, 'five\r\nhello\r\n0\r\n\r\n', 'InvalidRequest'],
    ['bytes after the end', UNSIGNED, `${UNSIGNED_BODY}more`, 'IncompleteBody'],
  ])('refuses %s and stores nothing', async (_, sent, body, code) => {
    const { at, endpoint } = await startS3();
    const { outcome } = await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: sent, body });
    expect(outcome).toBe(`400 ${code}`);
    expect(await list(at)).toEqual([]);
  });
});

describe('lengths', () => {
  test('refuses a body without a length', async () => {
    const { endpoint, s3 } = await startS3();
    const chunked = { 'transfer-encoding': 'chunked' };
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers: chunked, body: 'x' })).status).toBe(501);
    async function* nothing(): AsyncGenerator<Uint8Array> {}
    expect((await s3.handle({ method: 'PUT', url: `/${BUCKET}/k`, headers: {}, body: nothing() })).status).toBe(411);
  });

  test('refuses a PUT of more than 5 GiB before reading it', async () => {
    const { s3 } = await startS3();
    const untouched: AsyncIterable<Uint8Array> = {
      [Symbol.asyncIterator]() {
        throw new Error('The body was read.');
      },
    };
    const headers = { 'content-length': String(5 * 1024 ** 3 + 1) };
    expect((await s3.handle({ method: 'PUT', url: `/${BUCKET}/k`, headers, body: untouched })).status).toBe(400);
  });

  test('stores nothing if the client disconnects in the middle of its body', async () => {
    const dir = await temporaryFolder();
    const { at, endpoint } = await startS3({ dir });
    await put(at, 'whole');
    const stored = () => readdirSync(join(dir, 'bodies')).length;
    const { hostname, port } = new URL(endpoint);
    const socket = connect(Number(port), hostname);
    const begun = { method: 'PUT', path: `/${BUCKET}/k`, headers: { 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' } };
    const headers = await signedHeaders(begun, { endpoint, service: 's3', credentials: CREDENTIALS });
    const fields = Object.entries({ ...headers, 'content-length': '1000000' });
    const lines = fields.map(([name, value]) => `${name}: ${value}`);
    socket.write(`PUT /${BUCKET}/k HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
    socket.write(Buffer.alloc(500_000));
    await expect.poll(stored).toBe(2);
    socket.destroy();
    await expect.poll(stored).toBe(1);
    expect(await read(at)).toBe('whole');
  });

  test('a client that is still sending gets a refusal from the middle of its body', async () => {
    const { endpoint } = await startS3();
    const headers = {
      'x-amz-content-sha256': 'STREAMING-UNSIGNED-PAYLOAD-TRAILER',
      'x-amz-decoded-content-length': '5',
    };
    const body = Buffer.concat([Buffer.from('five\r\n'), Buffer.alloc(8 * 1024 ** 2)]);
    expect((await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body })).outcome).toBe('400 InvalidRequest');
  });

  test.each([
    ['a list of keys of more than 4 MiB', 'POST', '?delete', 16 * 1024 ** 2],
    ['other XML of more than 256 KiB', 'PUT', '?tagging', 256 * 1024 + 1],
  ])('refuses %s, with an answer', async (_, method, query, bytes) => {
    const { endpoint } = await startS3();
    const body = Buffer.alloc(bytes, '<Delete>');
    const headers = { 'content-md5': 'unused' };
    const { outcome } = await raw(endpoint, method, `/${BUCKET}${query}`, { headers, body });
    expect(outcome).toBe('400 MaxMessageLengthExceeded');
  });

  test('a client that is still sending gets an early refusal', async () => {
    const { at } = await startS3();
    const body = Buffer.alloc(8 * 1024 ** 2);
    expect(await refusal(put({ ...at, Bucket: 'absent' }, body))).toBe('404 NoSuchBucket');
  });
});
