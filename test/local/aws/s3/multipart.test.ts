import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  type CreateMultipartUploadCommandInput,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  ListPartsCommand,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { BUCKET, raw, refusal, startS3 } from './support.ts';

const PART_BYTES = 5 * 1024 ** 2;
const at = { Bucket: BUCKET, Key: 'k' };

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

describe('refuses to complete an upload', () => {
  test('with a wrong checksum of a part', async () => {
    const { client } = await startS3();
    const uploadId = await create(client);
    const parts = [await part(client, uploadId, 1, 'hello')];
    const wrong = parts.map((each) => ({ ...each, ChecksumCRC32: 'AAAAAA==' }));
    expect((await refusal(complete(client, uploadId, wrong))).code).toBe('InvalidPart');
    await complete(client, uploadId, parts);
  });

  test.each(['0x1', '1.0', '', 'one'])('with the part number %j, as MalformedXML', async (number) => {
    const { client, endpoint } = await startS3();
    const uploadId = await create(client);
    const { ETag } = await part(client, uploadId, 1, 'hello');
    const body = `<CompleteMultipartUpload><Part><PartNumber>${number}</PartNumber><ETag>${ETag}</ETag></Part></CompleteMultipartUpload>`;
    const answer = await raw(endpoint, 'POST', `/${BUCKET}/k?uploadId=${uploadId}`, { body });
    expect(answer.body).toContain('<Code>MalformedXML</Code>');
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
    const parts = [
      await part(client, uploadId, 1, Buffer.alloc(PART_BYTES, 'a')),
      await part(client, uploadId, 2, 'end'),
    ];
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
