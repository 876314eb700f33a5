import {
  type CompletedPart,
  GetObjectCommand,
  ListPartsCommand,
  UploadPartCopyCommand,
  type UploadPartCopyCommandInput,
} from '@aws-sdk/client-s3';
import { describe, expect } from 'vitest';
import { complete, head, type Part, put, read, refusal, uploadPart, uploadParts } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

const PART_BYTES = 5 * 1024 ** 2;
const BODIES = [Buffer.alloc(PART_BYTES, 'a'), Buffer.alloc(PART_BYTES + 1, 'b'), Buffer.from('end')];

behaviour(
  'parts become one object in the order of their numbers, with the headers of the upload',
  'any',
  async (given) => {
    const { UploadId } = await uploadParts(given, [], { ContentType: 'a/b', Metadata: { m: '1' } });
    const parts: Part[] = [];
    for (const number of [3, 1, 2])
      parts[number - 1] = await uploadPart(given, UploadId, number, BODIES[number - 1] as Buffer);
    const { ETag } = await complete(given, { UploadId, parts });
    const got = await given.client.send(new GetObjectCommand(given));
    expect(Buffer.compare((await got.Body?.transformToByteArray()) ?? Buffer.of(), Buffer.concat(BODIES))).toBe(0);
    expect(got).toMatchObject({ ContentType: 'a/b', Metadata: { m: '1' }, ETag });
    const across = await given.client.send(
      new GetObjectCommand({ ...given, Range: `bytes=${PART_BYTES - 1}-${PART_BYTES}` }),
    );
    expect(await across.Body?.transformToString()).toBe('ab');
  },
);

behaviour('the ETag is the MD5 of the MD5s of the parts', 'any', async (given) => {
  const { ETag } = await complete(given, await uploadParts(given, ['hello']));
  // printf hello | md5sum | xxd -r -p | md5sum
  expect(ETag).toBe('"62109206880d38a4010a98e11243924a-1"');
});

behaviour('a part that is sent again replaces the first, and unlisted parts are dropped', 'any', async (given) => {
  const { UploadId } = await uploadParts(given, ['first']);
  const second = await uploadPart(given, UploadId, 1, 'second');
  await uploadPart(given, UploadId, 7, 'not named');
  const { Parts, Owner, Initiator } = await given.client.send(new ListPartsCommand({ ...given, UploadId }));
  expect(Parts?.map(({ PartNumber, Size, ETag }) => [PartNumber, Size, ETag])).toEqual([
    [1, 6, second.ETag],
    [7, 9, expect.anything()],
  ]);
  expect([Owner?.ID, Initiator?.ID]).toEqual([expect.stringMatching(/./), expect.stringMatching(/./)]);
  await complete(given, { UploadId, parts: [second] });
  expect(await read(given)).toBe('second');
});

behaviour('parts are listed in pages', 'any', async (given) => {
  const { UploadId } = await uploadParts(given, ['a', 'b', 'c']);
  const page = (PartNumberMarker?: string) =>
    given.client.send(new ListPartsCommand({ ...given, UploadId, MaxParts: 2, PartNumberMarker }));
  const first = await page();
  expect([first.Parts?.map(({ PartNumber }) => PartNumber), first.IsTruncated]).toEqual([[1, 2], true]);
  const second = await page(first.NextPartNumberMarker);
  expect([second.Parts?.map(({ PartNumber }) => PartNumber), second.IsTruncated]).toEqual([[3], false]);
});

behaviour('part numbers are from 1 to 10,000', 'any', async (given) => {
  const { UploadId } = await uploadParts(given, []);
  for (const number of [0, 10_001]) {
    expect(await refusal(uploadPart(given, UploadId, number, 'x'))).toBe('400 InvalidArgument');
  }
  await uploadPart(given, UploadId, 10_000, 'x');
});

describe('an upload is not completed, and stays,', () => {
  const cases: [string, (parts: CompletedPart[]) => CompletedPart[], string][] = [
    ['with parts out of order', ([a, b]) => [b, a] as CompletedPart[], 'InvalidPartOrder'],
    ['with a part twice', ([a]) => [a, a] as CompletedPart[], 'InvalidPartOrder'],
    ['with an absent part', ([a]) => [a, { PartNumber: 9, ETag: '"x"' }] as CompletedPart[], 'InvalidPart'],
    ['with another ETag', () => [{ PartNumber: 1, ETag: '"5d41402abc4b2a76b9719d911017c592"' }], 'InvalidPart'],
    ['with a part before the last under 5 MiB', (parts) => parts, 'EntityTooSmall'],
    ['without parts', () => [], 'MalformedXML'],
  ];
  for (const [name, choose, code] of cases) {
    behaviour(name, 'any', async (given) => {
      const { UploadId, parts } = await uploadParts(given, ['small', 'end']);
      const chosen = choose([...parts]) as typeof parts;
      expect(await refusal(complete(given, { UploadId, parts: chosen }))).toBe(`400 ${code}`);
      expect(await refusal(head(given))).toMatch(/^404 /);
      await complete(given, { UploadId, parts: parts.slice(0, 1) });
    });
  }
});

describe('a part can be copied', () => {
  function copied({ client, Bucket, Key }: Given, more: Omit<UploadPartCopyCommandInput, 'Bucket' | 'Key'>) {
    return client.send(new UploadPartCopyCommand({ Bucket, Key, ...more }));
  }

  behaviour('from an object, or from a range of its bytes', 'any', async (given) => {
    const { client, Bucket, Key } = given;
    await put({ ...given, Key: `${Key}-source` }, BODIES[0] as Buffer);
    await put({ ...given, Key: `${Key}-text` }, '0123456789');
    const { UploadId } = await uploadParts(given, []);
    const whole = await copied(given, { UploadId, PartNumber: 1, CopySource: `${Bucket}/${Key}-source` });
    const source = { CopySource: `${Bucket}/${Key}-text`, CopySourceRange: 'bytes=2-4' };
    const range = await copied(given, { UploadId, PartNumber: 2, ...source });
    expect(range.CopyPartResult?.ETag).toBe('"289dff07669d7a23de0ef88d2f7129e7"'); // printf 234 | md5sum
    const parts = [whole, range].map(({ CopyPartResult }, index) => ({
      PartNumber: index + 1,
      ETag: CopyPartResult?.ETag,
    }));
    await complete(given, { UploadId, parts });
    expect((await head(given)).ContentLength).toBe(PART_BYTES + 3);
    const end = await client.send(new GetObjectCommand({ ...given, Range: 'bytes=-4' }));
    expect(await end.Body?.transformToString()).toBe('a234');
  });

  behaviour('under conditions on its source, and only from bytes that there are', 'any', async (given) => {
    const { client, Bucket, Key } = given;
    const { ETag } = await put({ ...given, Key: `${Key}-source` }, '0123456789');
    const { UploadId } = await uploadParts(given, []);
    const CopySource = `${Bucket}/${Key}-source`;
    const copy = (more: object) => copied(given, { UploadId, PartNumber: 1, CopySource, ...more });
    expect(await refusal(copy({ CopySourceIfNoneMatch: ETag }))).toBe('412 PreconditionFailed');
    for (const CopySourceRange of ['bytes=0-10', 'bytes=4-2', 'bytes=0-', 'bytes=-2', '0-2']) {
      expect(await refusal(copy({ CopySourceRange }))).toBe('400 InvalidArgument');
    }
    expect(await refusal(copy({ CopySource: `${CopySource}-absent` }))).toBe('404 NoSuchKey');
    expect(await refusal(copy({ UploadId: 'absent' }))).toBe('404 NoSuchUpload');
    expect((await client.send(new ListPartsCommand({ Bucket, Key, UploadId }))).Parts).toBeUndefined();
  });
});
