import { CopyObjectCommand, type CopyObjectCommandInput, GetObjectCommand } from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { complete, head, put, read, refusal, remove, uploadParts } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

const DAY_MS = 24 * 3600 * 1000;

function copy(given: Given, more: Partial<CopyObjectCommandInput> = {}) {
  const { client, Bucket, Key } = given;
  const CopySource = `${Bucket}/${encodeURIComponent(Key)}`;
  return client.send(new CopyObjectCommand({ Bucket, Key: copyOf(given).Key, CopySource, ...more }));
}

function copyOf(given: Given): Given {
  return { ...given, Key: `${given.Key}-copy` };
}

behaviour('a copy has the bytes and headers of its source, or new headers', 'any', async (given) => {
  const source = { ...given, Key: `${given.Key} b/é+.txt` };
  await put(source, 'hello', { ContentType: 'a/b', Metadata: { m: '1' } });
  const { CopyObjectResult } = await copy(source);
  expect(CopyObjectResult?.ETag).toBe('"5d41402abc4b2a76b9719d911017c592"');
  const copied = await given.client.send(new GetObjectCommand(copyOf(source)));
  expect(await copied.Body?.transformToString()).toBe('hello');
  expect(copied).toMatchObject({ ContentType: 'a/b', Metadata: { m: '1' } });
  expect(CopyObjectResult?.LastModified).toEqual(copied.LastModified);
  const replaced = { MetadataDirective: 'REPLACE', ContentType: 'c/d', Metadata: { n: '2' } } as const;
  await copy(source, { Key: source.Key, ...replaced });
  const itself = await head(source);
  expect(itself).toMatchObject({ ContentType: 'c/d', Metadata: { n: '2' } });
});

behaviour('a copy is of the source that its conditions ask for, or answers 412', 'any', async (given) => {
  const { ETag } = await put(given, 'body');
  const { LastModified } = await head(given);
  const modified = LastModified as Date;
  const before = new Date(modified.getTime() - DAY_MS);
  const other = '"5d41402abc4b2a76b9719d911017c592"';
  const answers: [Partial<CopyObjectCommandInput>, number | string][] = [
    [{ CopySourceIfMatch: ETag }, 200],
    [{ CopySourceIfMatch: other }, 'PreconditionFailed'],
    [{ CopySourceIfNoneMatch: other }, 200],
    [{ CopySourceIfNoneMatch: ETag }, 'PreconditionFailed'],
    [{ CopySourceIfModifiedSince: before }, 200],
    [{ CopySourceIfModifiedSince: modified }, 'PreconditionFailed'],
    [{ CopySourceIfModifiedSince: new Date(Date.now() + DAY_MS) }, 200],
    [{ CopySourceIfUnmodifiedSince: modified }, 200],
    [{ CopySourceIfUnmodifiedSince: before }, 'PreconditionFailed'],
    [{ CopySourceIfMatch: ETag, CopySourceIfUnmodifiedSince: before }, 200],
    [{ CopySourceIfMatch: other, CopySourceIfUnmodifiedSince: modified }, 'PreconditionFailed'],
    [{ CopySourceIfNoneMatch: ETag, CopySourceIfModifiedSince: before }, 'PreconditionFailed'],
  ];
  for (const [condition, answer] of answers) {
    const answered = copy(given, condition).then(({ $metadata }) => $metadata.httpStatusCode);
    expect(await answered.catch(({ name }: Error) => name), JSON.stringify(condition)).toBe(answer);
  }
});

behaviour('a copy replaces only what its conditions on the destination allow', 'any', async (given) => {
  await put(given, 'new');
  const IfMatch = '"5d41402abc4b2a76b9719d911017c592"';
  expect(await refusal(copy(given, { IfMatch }))).toBe('404 NoSuchKey');
  await copy(given, { IfNoneMatch: '*' });
  const { ETag } = await put(copyOf(given), 'old');
  expect(await refusal(copy(given, { IfNoneMatch: '*' }))).toBe('412 PreconditionFailed');
  expect(await refusal(copy(given, { IfMatch }))).toBe('412 PreconditionFailed');
  expect(await read(copyOf(given))).toBe('old');
  await copy(given, { IfMatch: ETag });
  expect(await read(copyOf(given))).toBe('new');
});

behaviour('a copy of an absent object, or onto itself without a change, is refused', 'any', async (given) => {
  expect(await refusal(copy(given))).toBe('404 NoSuchKey');
  await put(given, 'body');
  expect(await refusal(copy(given, { Key: given.Key }))).toBe('400 InvalidRequest');
  expect(await refusal(copy(given, { CopySource: given.Bucket }))).toBe('400 InvalidArgument');
  const MetadataDirective = 'MERGE' as 'COPY';
  expect(await refusal(copy(given, { MetadataDirective }))).toBe('400 InvalidArgument');
});

behaviour('an older version is copied, even over the newest of its key, and names itself', 'Enabled', async (given) => {
  const { VersionId } = await put(given, 'old');
  await put(given, 'new');
  const CopySource = `/${given.Bucket}/${given.Key}?versionId=${VersionId}`;
  const copied = await copy(given, { Key: given.Key, CopySource });
  expect(copied.CopySourceVersionId).toBe(VersionId);
  expect(copied.VersionId).not.toBe(VersionId);
  expect(await read(given)).toBe('old');
});

behaviour('a delete marker cannot be copied', 'Enabled', async (given) => {
  await put(given, 'body');
  const { VersionId } = await remove(given);
  expect(await refusal(copy(given))).toBe('404 NoSuchKey');
  const CopySource = `${given.Bucket}/${given.Key}?versionId=${VersionId}`;
  expect(await refusal(copy(given, { CopySource }))).toBe('400 InvalidRequest');
});

behaviour('a copy has the checksum that the request asks for', 'any', async (given) => {
  await put(given, 'hello', { ChecksumAlgorithm: 'CRC32' });
  const { CopyObjectResult } = await copy(given, { ChecksumAlgorithm: 'SHA256' });
  expect(CopyObjectResult?.ChecksumSHA256).toBe('LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=');
  expect(await head(copyOf(given), { ChecksumMode: 'ENABLED' })).toMatchObject({
    ChecksumSHA256: CopyObjectResult?.ChecksumSHA256,
    ChecksumType: 'FULL_OBJECT',
  });
});

behaviour('a copy of an object in parts has the ETag and checksum of an object in one piece', 'any', async (given) => {
  const more = { ChecksumAlgorithm: 'CRC32' } as const;
  const { UploadId, parts } = await uploadParts(given, ['hello'], more);
  await complete(given, { UploadId, parts: parts.map((part) => ({ ...part, ChecksumCRC32: 'NhCmhg==' })) });
  const { CopyObjectResult } = await copy(given);
  expect(CopyObjectResult).toMatchObject({
    ETag: '"5d41402abc4b2a76b9719d911017c592"',
    ChecksumCRC32: 'NhCmhg==',
    ChecksumType: 'FULL_OBJECT',
  });
});
