import { crc32 } from 'node:zlib';
import { type CompletedPart, GetObjectCommand, UploadPartCommand } from '@aws-sdk/client-s3';
import { describe, expect } from 'vitest';
import {
  complete,
  head,
  type Multipart,
  type Part,
  read,
  refusal,
  uploadPart,
  uploadParts,
} from '../support/s3-calls.ts';
import { behaviour } from './support.ts';

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
  await complete(given, { UploadId, parts: [second] });
  expect(await read(given)).toBe('second');
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

behaviour('of racing completions with If-None-Match: * exactly one succeeds', 'any', async (given) => {
  const uploads = await Promise.all(Array.from({ length: 10 }, (_, n) => uploadParts(given, [`by ${n}`])));
  const results = await Promise.allSettled(uploads.map((each) => complete(given, each, { IfNoneMatch: '*' })));
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
});

describe('the checksum', () => {
  const crc32Of = (body: string | Buffer) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(crc32(body));
    return bytes.toString('base64');
  };
  const named = ({ UploadId, parts }: Multipart, checksums: readonly string[]): Multipart => ({
    UploadId,
    parts: parts.map((each, index) => ({ ...each, ChecksumCRC32: checksums[index] })),
  });

  behaviour('of an upload in parts requires that of every part, and is stored', 'any', async (given) => {
    const bodies = [Buffer.alloc(PART_BYTES, 'a'), 'end'];
    const uploaded = await uploadParts(given, bodies, { ChecksumAlgorithm: 'CRC32' });
    expect(await refusal(complete(given, uploaded))).toBe('400 InvalidRequest');
    expect(await refusal(complete(given, named(uploaded, ['AAAAAA==', crc32Of('end')])))).toBe('400 InvalidPart');
    const completed = await complete(given, named(uploaded, bodies.map(crc32Of)));
    expect(completed).toMatchObject({ ChecksumCRC32: expect.stringMatching(/^.{8}-2$/), ChecksumType: 'COMPOSITE' });
    expect((await head(given, { ChecksumMode: 'ENABLED' })).ChecksumCRC32).toBe(completed.ChecksumCRC32);
  });

  behaviour('of the whole object is computed, and compared with that of the client', 'any', async (given) => {
    const uploaded = await uploadParts(given, ['hello'], { ChecksumAlgorithm: 'CRC32', ChecksumType: 'FULL_OBJECT' });
    expect(await refusal(complete(given, uploaded, { ChecksumCRC32: 'AAAAAA==' }))).toBe('400 BadDigest');
    const completed = await complete(given, uploaded, { ChecksumCRC32: 'NhCmhg==' });
    expect(completed).toMatchObject({ ChecksumCRC32: 'NhCmhg==', ChecksumType: 'FULL_OBJECT' });
  });

  behaviour('of a part must be right', 'any', async (given) => {
    const { UploadId } = await uploadParts(given, []);
    const part = new UploadPartCommand({ ...given, UploadId, PartNumber: 1, Body: 'x', ChecksumCRC32: 'AAAAAA==' });
    expect(await refusal(given.client.send(part))).toBe('400 BadDigest');
  });
});
