import { crc32 } from 'node:zlib';
import {
  AbortMultipartUploadCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListPartsCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { complete, type Multipart, refusal, uploadPart, uploadParts } from '../../../support/s3-calls.ts';
import { BUCKET, raw, startS3 } from './support.ts';

const PART_BYTES = 5 * 1024 ** 2;

/** The checksum in base64, as in a header. */
function crc32Of(body: string | Buffer): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc32(body));
  return bytes.toString('base64');
}

/** The same upload, whose parts are named with these checksums. */
function withChecksums({ UploadId, parts }: Multipart, ...checksums: (string | undefined)[]): Multipart {
  return { UploadId, parts: parts.map((each, index) => ({ ...each, ChecksumCRC32: checksums[index] })) };
}

describe('refuses to complete an upload', () => {
  test('with a wrong checksum of a part', async () => {
    const { at } = await startS3();
    const uploaded = await uploadParts(at, ['hello']);
    expect(await refusal(complete(at, withChecksums(uploaded, 'AAAAAA==')))).toBe('400 InvalidPart');
    await complete(at, withChecksums(uploaded, 'NhCmhg=='));
  });

  test.each(['0x1', '1.0', '', 'one'])('with the part number %j, as MalformedXML', async (number) => {
    const { at, endpoint } = await startS3();
    const { UploadId, parts } = await uploadParts(at, ['hello']);
    const named = `<Part><PartNumber>${number}</PartNumber><ETag>${parts[0]?.ETag}</ETag></Part>`;
    const body = `<CompleteMultipartUpload>${named}</CompleteMultipartUpload>`;
    const answer = await raw(endpoint, 'POST', `/${BUCKET}/k?uploadId=${UploadId}`, { body });
    expect(answer.outcome).toBe('400 MalformedXML');
  });

  test('with a size other than the sum of the parts', async () => {
    const { at } = await startS3();
    const uploaded = await uploadParts(at, ['hello']);
    expect(await refusal(complete(at, uploaded, { MpuObjectSize: 6 }))).toBe('400 InvalidRequest');
    await complete(at, uploaded, { MpuObjectSize: 5 });
  });

  test('a second time, and refuses a part after an abort', async () => {
    const { client, at } = await startS3();
    const uploaded = await uploadParts(at, ['hello']);
    await complete(at, uploaded);
    expect(await refusal(complete(at, uploaded))).toBe('404 NoSuchUpload');
    const { UploadId } = await uploadParts(at, []);
    await client.send(new AbortMultipartUploadCommand({ ...at, UploadId }));
    expect(await refusal(uploadPart(at, UploadId, 1, 'x'))).toBe('404 NoSuchUpload');
  });
});

test('exactly one of several racing completions with If-None-Match: * wins', async () => {
  const { at } = await startS3();
  const uploads = await Promise.all(Array.from({ length: 10 }, (_, n) => uploadParts(at, [`by ${n}`])));
  const results = await Promise.allSettled(uploads.map((each) => complete(at, each, { IfNoneMatch: '*' })));
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
});

describe('checksums', () => {
  test('a composite checksum requires that of every part, and is stored', async () => {
    const { client, at } = await startS3();
    const bodies = [Buffer.alloc(PART_BYTES, 'a'), 'end'];
    const uploaded = await uploadParts(at, bodies, { ChecksumAlgorithm: 'CRC32' });
    expect(await refusal(complete(at, uploaded))).toBe('400 InvalidRequest');
    const completed = await complete(at, withChecksums(uploaded, ...bodies.map(crc32Of)));
    expect(completed).toMatchObject({ ChecksumCRC32: expect.stringMatching(/^.{8}-2$/), ChecksumType: 'COMPOSITE' });
    const got = await client.send(new GetObjectCommand(at));
    expect(got.ChecksumCRC32).toBe(completed.ChecksumCRC32);
    expect(await got.Body?.transformToByteArray()).toHaveLength(PART_BYTES + 3);
  });

  test('the checksum of the whole object is computed, and verified if the client sends it', async () => {
    const { at } = await startS3();
    const uploaded = await uploadParts(at, ['hello'], { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' });
    expect(await refusal(complete(at, uploaded, { ChecksumCRC32: 'AAAAAA==' }))).toBe('400 BadDigest');
    const completed = await complete(at, uploaded, { ChecksumCRC32: 'NhCmhg==' });
    expect(completed).toMatchObject({ ChecksumCRC32: 'NhCmhg==', ChecksumType: 'FULL_OBJECT' });
  });

  test('refuses a part with a wrong checksum', async () => {
    const { client, at } = await startS3();
    const { UploadId } = await uploadParts(at, []);
    const wrong = { ...at, UploadId, PartNumber: 1, Body: 'hello', ChecksumCRC32: 'AAAAAA==' };
    expect(await refusal(client.send(new UploadPartCommand(wrong)))).toBe('400 BadDigest');
    expect((await client.send(new ListPartsCommand({ ...at, UploadId }))).Parts).toBeUndefined();
  });
});

test('lists unfinished uploads in pages, in the order of their keys', async () => {
  const { client, at } = await startS3();
  const ids: (string | undefined)[] = [];
  for (const Key of ['b', 'a', 'b', '😀', '～', 'p/1']) ids.push((await uploadParts({ ...at, Key }, [])).UploadId);
  const [b, a, b2, emoji, tilde, p] = ids;
  const seen: (string | undefined)[] = [];
  let markers: { KeyMarker?: string; UploadIdMarker?: string } = {};
  for (;;) {
    const page = await client.send(new ListMultipartUploadsCommand({ Bucket: BUCKET, MaxUploads: 2, ...markers }));
    seen.push(...(page.Uploads ?? []).map(({ UploadId }) => UploadId));
    if (!page.IsTruncated) break;
    markers = { KeyMarker: page.NextKeyMarker, UploadIdMarker: page.NextUploadIdMarker };
  }
  expect([seen[0], new Set(seen.slice(1, 3)), seen.slice(3)]).toEqual([a, new Set([b, b2]), [p, tilde, emoji]]);
});
