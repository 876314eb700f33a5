import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  type CreateMultipartUploadCommandInput,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  ListPartsCommand,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { BUCKET, refusal, startS3 } from './support.ts';

const PART_BYTES = 5 * 1024 ** 2;
const at = { Bucket: BUCKET, Key: 'k' };
const BODIES = [Buffer.alloc(PART_BYTES, 'a'), Buffer.alloc(PART_BYTES + 1, 'b'), Buffer.from('end')];

async function create(client: S3Client, more: Partial<CreateMultipartUploadCommandInput> = {}): Promise<string> {
  const { UploadId } = await client.send(new CreateMultipartUploadCommand({ ...at, ...more }));
  return UploadId ?? '';
}

async function part(
  client: S3Client,
  UploadId: string,
  PartNumber: number,
  Body: Buffer | string,
): Promise<CompletedPart> {
  const { ETag, ChecksumCRC32 } = await client.send(new UploadPartCommand({ ...at, UploadId, PartNumber, Body }));
  return { PartNumber, ETag, ChecksumCRC32 };
}

function complete(client: S3Client, UploadId: string, Parts: CompletedPart[], more: object = {}) {
  return client.send(new CompleteMultipartUploadCommand({ ...at, UploadId, MultipartUpload: { Parts }, ...more }));
}

test('parts become one object, in the order of their numbers, with the headers of the upload', async () => {
  const { client } = await startS3();
  const uploadId = await create(client, { ContentType: 'a/b', Metadata: { m: '1' } });
  const parts: CompletedPart[] = [];
  for (const number of [3, 1, 2]) parts[number - 1] = await part(client, uploadId, number, BODIES[number - 1] ?? '');
  const completed = await complete(client, uploadId, parts);
  expect(completed.ETag).toMatch(/^"[0-9a-f]{32}-3"$/);
  const got = await client.send(new GetObjectCommand(at));
  expect(Buffer.compare((await got.Body?.transformToByteArray()) ?? Buffer.of(), Buffer.concat(BODIES))).toBe(0);
  expect(got).toMatchObject({ ContentType: 'a/b', Metadata: { m: '1' }, ETag: completed.ETag });
  const across = await client.send(new GetObjectCommand({ ...at, Range: `bytes=${PART_BYTES - 1}-${PART_BYTES}` }));
  expect(await across.Body?.transformToString()).toBe('ab');
  expect((await client.send(new ListMultipartUploadsCommand({ Bucket: BUCKET }))).Uploads).toBeUndefined();
});

test('the ETag is the MD5 of the MD5s of the parts', async () => {
  const { client } = await startS3();
  const uploadId = await create(client);
  const { ETag } = await complete(client, uploadId, [await part(client, uploadId, 1, 'hello')]);
  // printf hello | md5sum | xxd -r -p | md5sum
  expect(ETag).toBe('"62109206880d38a4010a98e11243924a-1"');
});

test('a part that is sent again replaces the first, and unlisted parts are dropped', async () => {
  const { client } = await startS3();
  const uploadId = await create(client);
  await part(client, uploadId, 1, 'first');
  const second = await part(client, uploadId, 1, 'second');
  await part(client, uploadId, 7, 'not named');
  const { Parts } = await client.send(new ListPartsCommand({ ...at, UploadId: uploadId }));
  expect(Parts?.map(({ PartNumber, Size }) => [PartNumber, Size])).toEqual([
    [1, 6],
    [7, 9],
  ]);
  expect(Parts?.[0]?.ETag).toBe(second.ETag);
  await complete(client, uploadId, [second]);
  expect(await (await client.send(new GetObjectCommand(at))).Body?.transformToString()).toBe('second');
});

describe('refuses to complete an upload', () => {
  test.each<[string, (parts: CompletedPart[]) => CompletedPart[], string]>([
    ['with parts out of order', ([a, b, c]) => [b, a, c] as CompletedPart[], 'InvalidPartOrder'],
    ['with a part twice', ([a]) => [a, a] as CompletedPart[], 'InvalidPartOrder'],
    ['with an absent part', ([a]) => [a, { PartNumber: 9, ETag: '"x"' }] as CompletedPart[], 'InvalidPart'],
    ['with another ETag', () => [{ PartNumber: 1, ETag: '"5d41402abc4b2a76b9719d911017c592"' }], 'InvalidPart'],
    ['with a wrong checksum', ([a]) => [{ ...a, ChecksumCRC32: 'AAAAAA==' }], 'InvalidPart'],
    [
      'with a part before the last under 5 MiB',
      ([a, , c]) => [a, c, { ...c, PartNumber: 4 }] as CompletedPart[],
      'EntityTooSmall',
    ],
    ['without parts', () => [], 'MalformedXML'],
  ])('%s, and keeps the upload', async (_, choose, code) => {
    const { client } = await startS3();
    const uploadId = await create(client);
    const parts = [];
    for (const [index, body] of BODIES.entries()) parts.push(await part(client, uploadId, index + 1, body));
    await part(client, uploadId, 4, 'end');
    expect((await refusal(complete(client, uploadId, choose(parts)))).code).toBe(code);
    expect(await refusal(client.send(new HeadObjectCommand(at)))).toEqual({ status: 404, code: 'NotFound' });
    await complete(client, uploadId, parts);
  });

  test('with a size other than the sum of the parts', async () => {
    const { client } = await startS3();
    const uploadId = await create(client);
    const parts = [await part(client, uploadId, 1, 'hello')];
    expect((await refusal(complete(client, uploadId, parts, { MpuObjectSize: 6 }))).code).toBe('InvalidRequest');
    await complete(client, uploadId, parts, { MpuObjectSize: 5 });
  });

  test('a second time, and refuses a part after an abort', async () => {
    const { client } = await startS3();
    const uploadId = await create(client);
    const parts = [await part(client, uploadId, 1, 'hello')];
    await complete(client, uploadId, parts);
    expect(await refusal(complete(client, uploadId, parts))).toEqual({ status: 404, code: 'NoSuchUpload' });
    const aborted = await create(client);
    await client.send(new AbortMultipartUploadCommand({ ...at, UploadId: aborted }));
    expect((await refusal(part(client, aborted, 1, 'x'))).code).toBe('NoSuchUpload');
  });
});

test('exactly one of several racing completions with If-None-Match: * wins', async () => {
  const { client } = await startS3();
  const uploads = await Promise.all(
    Array.from({ length: 10 }, async (_, n) => {
      const uploadId = await create(client);
      return { uploadId, parts: [await part(client, uploadId, 1, `by ${n}`)] };
    }),
  );
  const results = await Promise.allSettled(
    uploads.map(({ uploadId, parts }) => complete(client, uploadId, parts, { IfNoneMatch: '*' })),
  );
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
});

describe('checksums', () => {
  test('a composite checksum requires that of every part, and is stored', async () => {
    const { client } = await startS3();
    const uploadId = await create(client, { ChecksumAlgorithm: 'CRC32' });
    const parts = [await part(client, uploadId, 1, BODIES[0] ?? ''), await part(client, uploadId, 2, 'end')];
    const without = parts.map(({ PartNumber, ETag }) => ({ PartNumber, ETag }));
    expect((await refusal(complete(client, uploadId, without))).code).toBe('InvalidRequest');
    const completed = await complete(client, uploadId, parts);
    expect(completed).toMatchObject({ ChecksumCRC32: expect.stringMatching(/^.{8}-2$/), ChecksumType: 'COMPOSITE' });
    const got = await client.send(new GetObjectCommand(at));
    expect(got.ChecksumCRC32).toBe(completed.ChecksumCRC32);
    expect(await got.Body?.transformToByteArray()).toHaveLength(PART_BYTES + 3);
  });

  test('the checksum of the whole object is computed, and verified if the client sends it', async () => {
    const { client } = await startS3();
    const more = { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' } as const;
    const uploadId = await create(client, more);
    const parts = [await part(client, uploadId, 1, 'hello')];
    expect((await refusal(complete(client, uploadId, parts, { ChecksumCRC32: 'AAAAAA==' }))).code).toBe('BadDigest');
    const completed = await complete(client, uploadId, parts, { ChecksumCRC32: 'NhCmhg==' });
    expect(completed).toMatchObject({ ChecksumCRC32: 'NhCmhg==', ChecksumType: 'FULL_OBJECT' });
  });

  test('refuses a part with a wrong checksum', async () => {
    const { client } = await startS3();
    const UploadId = await create(client);
    const send = client.send(
      new UploadPartCommand({ ...at, UploadId, PartNumber: 1, Body: 'hello', ChecksumCRC32: 'AAAAAA==' }),
    );
    expect((await refusal(send)).code).toBe('BadDigest');
    expect((await client.send(new ListPartsCommand({ ...at, UploadId }))).Parts).toBeUndefined();
  });
});

test('accepts part numbers from 1 to 10,000', async () => {
  const { client } = await startS3();
  const uploadId = await create(client);
  expect((await refusal(part(client, uploadId, 0, 'x'))).code).toBe('InvalidArgument');
  expect((await refusal(part(client, uploadId, 10_001, 'x'))).code).toBe('InvalidArgument');
  await part(client, uploadId, 10_000, 'x');
});

test('lists unfinished uploads in pages, and shows them nowhere else', async () => {
  const { client } = await startS3();
  const ids: string[] = [];
  for (const Key of ['b', 'a', 'b', '😀', '～', 'p/1']) ids.push(await create(client, { Key }));
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
  const under = await client.send(new ListMultipartUploadsCommand({ Bucket: BUCKET, Prefix: 'p/' }));
  expect(under.Uploads?.map(({ UploadId }) => UploadId)).toEqual([p]);
  expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(0);
});
