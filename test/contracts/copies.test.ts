import {
  type CompletedPart,
  CopyObjectCommand,
  type CopyObjectCommandInput,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import {
  complete,
  head,
  type Multipart,
  type Place,
  put,
  read,
  refusal,
  remove,
  uploadParts,
} from '../support/s3-calls.ts';
import { behaviour, type Given, target } from './support.ts';

const MIB = 1024 ** 2;

const sourceOf = ({ Bucket, Key }: Place, versionId?: string): string =>
  `${Bucket}/${encodeURIComponent(Key)}${versionId === undefined ? '' : `?versionId=${versionId}`}`;

type Options = Partial<Omit<CopyObjectCommandInput, 'Bucket' | 'Key'>>;

/** Copies an object to another key, which begins with its own. */
function copy(given: Given, more: Options = {}, Key = copyKeyOf(given)) {
  const { client, Bucket } = given;
  return client.send(new CopyObjectCommand({ Bucket, Key, CopySource: sourceOf(given), ...more }));
}
const copyKeyOf = ({ Key }: Given): string => `${Key}-copy`;
const copied = (given: Given): Given => ({ ...given, Key: copyKeyOf(given) });
const copyOntoItself = (given: Given, more: Options = {}) => copy(given, more, given.Key);

describe('a copy', () => {
  behaviour('has the content and all headers of its source', 'any', async (given) => {
    const headers = { ContentType: 'image/png', CacheControl: 'no-store', Metadata: { a: '1' } };
    const { ETag } = await put(given, 'first', headers);
    const { CopyObjectResult } = await copy(given, { ContentType: 'text/plain', Metadata: { b: '2' } });
    expect(CopyObjectResult?.ETag).toBe(ETag);
    expect(await head(copied(given))).toMatchObject({ ...headers, ETag, LastModified: CopyObjectResult?.LastModified });
    expect(await read(copied(given))).toBe('first');
    expect(await read(given)).toBe('first');
  });

  behaviour('has the headers of the request, if its metadata are replaced', 'any', async (given) => {
    await put(given, 'first', { ContentType: 'image/png', CacheControl: 'no-store', Metadata: { a: '1' } });
    await copy(given, { MetadataDirective: 'REPLACE', ContentType: 'text/plain', Metadata: { b: '2' } });
    const facts = await head(copied(given));
    expect(facts).toMatchObject({ ContentType: 'text/plain', Metadata: { b: '2' } });
    expect(facts.CacheControl).toBeUndefined();
  });

  behaviour('of an object in parts has the ETag of its whole content', 'any', async (given) => {
    await complete(given, await uploadParts(given, ['hello']));
    const { CopyObjectResult } = await copy(given);
    expect(CopyObjectResult?.ETag).toBe('"5d41402abc4b2a76b9719d911017c592"'); // printf hello | md5sum
  });

  behaviour('has the checksum that the request asks for, or that of its source', 'any', async (given) => {
    await put(given, 'hello', { ChecksumAlgorithm: 'SHA1' });
    const own = await copy(given);
    expect(own.CopyObjectResult).toMatchObject({
      ChecksumSHA1: 'qvTGHdzF6KLavt4PO0gs2a6pQ00=',
      ChecksumType: 'FULL_OBJECT',
    });
    await copy(given, { ChecksumAlgorithm: 'CRC32' });
    expect(await head(copied(given), { ChecksumMode: 'ENABLED' })).toMatchObject({ ChecksumCRC32: 'NhCmhg==' });
  });

  behaviour('finds its source by every key', 'any', async (given) => {
    for (const odd of [' +%20&?#', '?versionId=no', 'line\nend', 'é😀', '//dots..', '~!*()\'"<>']) {
      const from = { ...given, Key: given.Key + odd };
      await put(from, odd);
      await copy(from);
      expect(await read(copied(from)), odd).toBe(odd);
    }
  });

  behaviour('takes a plus sign in the name of its source for a space', 'any', async (given) => {
    await put({ ...given, Key: `${given.Key} a` }, 'with a space');
    await copy(given, { CopySource: `/${given.Bucket}/${given.Key}+a` });
    expect(await read(copied(given))).toBe('with a space');
  });

  behaviour('is refused if its source is absent, and without a key of a source', 'any', async (given) => {
    expect(await refusal(copy(given))).toBe('404 NoSuchKey');
    expect(await refusal(copy(given, { CopySource: given.Bucket }))).toBe('400 InvalidArgument');
    expect(await refusal(copy(given, { CopySource: `${given.Bucket}/%ff` }))).toBe('400 InvalidArgument');
  });

  behaviour('with If-None-Match: * replaces no object', 'any', async (given) => {
    await put(given, 'first');
    await copy(given, { IfNoneMatch: '*' });
    expect(await refusal(copy(given, { IfNoneMatch: '*' }))).toBe('412 PreconditionFailed');
  });

  behaviour('names its version and that of its source', 'Enabled', async (given) => {
    const first = await put(given, 'first');
    const second = await put(given, 'second');
    const latest = await copy(given);
    const older = await copy(given, { CopySource: sourceOf(given, first.VersionId) });
    expect([latest.CopySourceVersionId, older.CopySourceVersionId]).toEqual([second.VersionId, first.VersionId]);
    expect(await read(copied(given), latest.VersionId)).toBe('second');
    expect(await read(copied(given))).toBe('first');
  });

  behaviour('of a delete marker is refused', 'Enabled', async (given) => {
    await put(given, 'first');
    const { VersionId } = await remove(given);
    expect(await refusal(copy(given))).toBe('404 NoSuchKey');
    expect(await refusal(copy(given, { CopySource: sourceOf(given, VersionId) }))).toBe('400 InvalidRequest');
  });

  test('of an absent object answers 403 to a caller without s3:ListBucket', async ({ skip }) => {
    const bucket = target.bucket('any');
    const client = target.clientWithoutListBucket;
    if (client === undefined || 'missing' in bucket) return skip('it needs credentials without s3:ListBucket');
    const given = { client, Bucket: bucket.name, Key: `${target.prefix}absent` };
    expect(await refusal(copy(given))).toBe('403 AccessDenied');
  });
});

describe('a copy of an object onto itself', () => {
  behaviour('is refused if it changes nothing', 'any', async (given) => {
    await put(given, 'first', { Metadata: { a: '1' } });
    expect(await refusal(copyOntoItself(given))).toBe('400 InvalidRequest');
    expect(await refusal(copyOntoItself(given, { Metadata: { b: '2' } }))).toBe('400 InvalidRequest');
    expect((await head(given)).Metadata).toEqual({ a: '1' });
  });

  behaviour('changes its metadata', 'any', async (given) => {
    const { ETag } = await put(given, 'first', { Metadata: { a: '1' } });
    await copyOntoItself(given, { MetadataDirective: 'REPLACE', Metadata: { b: '2' } });
    expect(await head(given)).toMatchObject({ ETag, Metadata: { b: '2' } });
    expect(await read(given)).toBe('first');
  });

  behaviour('is done if it names a storage class', 'any', async (given) => {
    await put(given, 'first');
    await copyOntoItself(given, { StorageClass: 'STANDARD' });
    expect(await read(given)).toBe('first');
  });

  behaviour('brings back a version that it names', 'Enabled', async (given) => {
    const { VersionId } = await put(given, 'first');
    await put(given, 'second');
    await copyOntoItself(given, { CopySource: sourceOf(given, VersionId) });
    expect(await read(given)).toBe('first');
  });
});

behaviour('a copy under a condition is made only if its source meets it', 'any', async (given) => {
  const { ETag } = await put(given, 'first');
  const { LastModified: at = new Date() } = await head(given);
  const before = new Date(at.getTime() - 3_600_000);
  const other = '"5d41402abc4b2a76b9719d911017c592"';
  const cases: [Options, '200' | '412 PreconditionFailed'][] = [
    [{ CopySourceIfMatch: ETag }, '200'],
    [{ CopySourceIfMatch: other }, '412 PreconditionFailed'],
    [{ CopySourceIfNoneMatch: other }, '200'],
    [{ CopySourceIfNoneMatch: ETag }, '412 PreconditionFailed'],
    [{ CopySourceIfModifiedSince: before }, '200'],
    [{ CopySourceIfModifiedSince: at }, '412 PreconditionFailed'],
    [{ CopySourceIfUnmodifiedSince: at }, '200'],
    [{ CopySourceIfUnmodifiedSince: before }, '412 PreconditionFailed'],
    // The ETag outweighs the time.
    [{ CopySourceIfMatch: ETag, CopySourceIfUnmodifiedSince: before }, '200'],
    [{ CopySourceIfNoneMatch: ETag, CopySourceIfModifiedSince: before }, '412 PreconditionFailed'],
  ];
  for (const [condition, outcome] of cases) {
    const answer = outcome === '200' ? copy(given, condition).then(() => '200') : refusal(copy(given, condition));
    expect(await answer, JSON.stringify(condition)).toBe(outcome);
  }
});

describe('a part', () => {
  const partOf = (given: Given, UploadId: string | undefined, PartNumber: number, more: object = {}) => {
    const { client, Bucket } = given;
    const CopySource = sourceOf(given);
    const input = { Bucket, Key: copyKeyOf(given), UploadId, PartNumber, CopySource, ...more };
    return client.send(new UploadPartCopyCommand(input));
  };

  behaviour('may be a copy of an object, or of a range of it', 'any', async (given) => {
    const content = Buffer.concat([Buffer.alloc(5 * MIB, 'a'), Buffer.from('bcd')]);
    await put(given, content, { Metadata: { a: '1' } });
    for (const ChecksumAlgorithm of ['CRC32', 'CRC64NVME'] as const) {
      const { UploadId } = await uploadParts(copied(given), [], { ChecksumAlgorithm });
      const ranges = [undefined, `bytes=${5 * MIB}-${5 * MIB + 1}`];
      const parts: CompletedPart[] = [];
      for (const [index, CopySourceRange] of ranges.entries()) {
        const { CopyPartResult } = await partOf(given, UploadId, index + 1, { CopySourceRange });
        const { LastModified, ...part } = CopyPartResult ?? {};
        expect(part).toHaveProperty(`Checksum${ChecksumAlgorithm}`);
        parts.push({ PartNumber: index + 1, ...part });
      }
      await complete(copied(given), { UploadId, parts } as Multipart);
      expect(await read(copied(given))).toBe(`${content}bc`);
      const { Metadata, ...facts } = await head(copied(given), { ChecksumMode: 'ENABLED' });
      expect(facts).toHaveProperty(`Checksum${ChecksumAlgorithm}`);
      expect(Metadata).toEqual({});
    }
  });

  behaviour('is refused with a range that its source does not have, or that S3 does not know', 'any', async (given) => {
    await put(given, Buffer.alloc(5 * MIB + 1));
    const { UploadId } = await uploadParts(copied(given), []);
    const ranges = [`bytes=0-${5 * MIB + 1}`, 'bytes=2-1', 'bytes=5-', 'bytes=-5', 'lines=0-1'];
    for (const CopySourceRange of ranges) {
      const answer = await refusal(partOf(given, UploadId, 1, { CopySourceRange }));
      expect(answer, CopySourceRange).toBe('400 InvalidArgument');
    }
    const ETag = '"5d41402abc4b2a76b9719d911017c592"';
    expect(await refusal(partOf(given, UploadId, 1, { CopySourceIfMatch: ETag }))).toBe('412 PreconditionFailed');
    expect(await refusal(partOf(given, 'absent', 1))).toBe('404 NoSuchUpload');
  });

  behaviour('is a range only of an object of more than 5 MiB', 'any', async (given) => {
    await put(given, Buffer.alloc(5 * MIB));
    const { UploadId } = await uploadParts(copied(given), []);
    expect(await refusal(partOf(given, UploadId, 1, { CopySourceRange: 'bytes=0-1' }))).toBe('400 InvalidRequest');
  });
});
