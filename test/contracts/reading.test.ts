import { GetObjectCommand, type GetObjectCommandInput, type GetObjectCommandOutput } from '@aws-sdk/client-s3';
import { describe, expect } from 'vitest';
import { complete, head, put, refusal, uploadParts } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

const MIB = 1024 ** 2;

type Reading = Partial<GetObjectCommandInput>;

/** The answer to a GET, or the code of its refusal. A HEAD must answer the same, without a body. */
async function answerTo(given: Given, reading: Reading) {
  const orRefusal = (error: Error & Pick<GetObjectCommandOutput, '$metadata'>) => error;
  const got = await given.client.send(new GetObjectCommand({ ...given, ...reading })).catch(orRefusal);
  const headed = await head(given, reading).catch(orRefusal);
  const status = got.$metadata.httpStatusCode;
  expect(headed.$metadata.httpStatusCode).toBe(status);
  if (got instanceof Error) return status === 304 ? 304 : got.name;
  const body = (await got.Body?.transformToString()) ?? '';
  expect((headed as GetObjectCommandOutput).ContentLength).toBe(body.length);
  return [status, body, got.ContentRange];
}

behaviour('a range is answered with its bytes, and one that S3 does not know with all', 'any', async (given) => {
  await put(given, '0123456789');
  const answers: Record<string, unknown> = {
    'bytes=0-0': [206, '0', 'bytes 0-0/10'],
    'bytes=2-4': [206, '234', 'bytes 2-4/10'],
    'bytes=7-': [206, '789', 'bytes 7-9/10'],
    'bytes=7-99': [206, '789', 'bytes 7-9/10'],
    'bytes=-2': [206, '89', 'bytes 8-9/10'],
    'bytes=-99': [206, '0123456789', 'bytes 0-9/10'],
    'bytes=4-2': [200, '0123456789', undefined],
    'bytes=0-1,3-4': [200, '0123456789', undefined],
    'lines=0-1': [200, '0123456789', undefined],
    'bytes=10-': 'InvalidRange',
    'bytes=10-12': 'InvalidRange',
    'bytes=-0': 'InvalidRange',
  };
  for (const [Range, answer] of Object.entries(answers))
    expect(await answerTo(given, { Range }), Range).toEqual(answer);
});

behaviour('the conditions of a read are combined as in HTTP', 'any', async (given) => {
  const { ETag } = await put(given, 'hello');
  const { LastModified } = await head(given);
  const modified = LastModified as Date;
  const before = new Date(modified.getTime() - 24 * 3600 * 1000);
  const read = [200, 'hello', undefined];
  const answers: [Reading, unknown][] = [
    [{ IfMatch: ETag?.replaceAll('"', '') }, read],
    [{ IfMatch: '*' }, read],
    [{ IfMatch: `"x", ${ETag}` }, read],
    [{ IfMatch: '"x"' }, 'PreconditionFailed'],
    [{ IfNoneMatch: ETag }, 304],
    [{ IfNoneMatch: '*' }, 304],
    [{ IfNoneMatch: '"x"' }, read],
    [{ IfModifiedSince: before }, read],
    [{ IfModifiedSince: modified }, 304],
    [{ IfUnmodifiedSince: modified }, read],
    [{ IfUnmodifiedSince: before }, 'PreconditionFailed'],
    [{ IfMatch: ETag, IfUnmodifiedSince: before }, read],
    [{ IfNoneMatch: '"x"', IfModifiedSince: modified }, read],
    [{ IfNoneMatch: ETag, IfModifiedSince: before }, 304],
  ];
  for (const [condition, answer] of answers) {
    expect(await answerTo(given, condition), JSON.stringify(condition)).toEqual(answer);
  }
});

behaviour('a read may override headers of the answer', 'any', async (given) => {
  await put(given, 'x', { ContentType: 'text/plain' });
  const overrides = { ResponseContentType: 'a/b', ResponseContentDisposition: 'inline' };
  const got = await given.client.send(new GetObjectCommand({ ...given, ...overrides }));
  expect(await got.Body?.transformToString()).toBe('x');
  expect(got).toMatchObject({ ContentType: 'a/b', ContentDisposition: 'inline' });
});

describe('a part number', () => {
  behaviour('reads one part of an object that was uploaded in parts', 'any', async (given) => {
    const bodies = [Buffer.alloc(5 * MIB, 'a'), Buffer.from('end')];
    await complete(given, await uploadParts(given, bodies));
    const whole = 5 * MIB + 3;
    expect(await answerTo(given, { PartNumber: 2 })).toEqual([206, 'end', `bytes ${5 * MIB}-${whole - 1}/${whole}`]);
    const first = await head(given, { PartNumber: 1 });
    expect([first.ContentLength, first.PartsCount]).toEqual([5 * MIB, 2]);
    expect((await head(given)).PartsCount).toBeUndefined();
    expect(await answerTo(given, { PartNumber: 3 })).toBe('InvalidPartNumber');
  });

  behaviour('takes an object that was put as its only part', 'any', async (given) => {
    await put(given, 'hello');
    expect(await answerTo(given, { PartNumber: 1 })).toEqual([206, 'hello', 'bytes 0-4/5']);
    expect((await head(given, { PartNumber: 1 })).PartsCount).toBeUndefined();
    expect(await answerTo(given, { PartNumber: 2 })).toBe('InvalidPartNumber');
  });

  behaviour('is from 1 to 10,000 and excludes a range', 'any', async (given) => {
    await put(given, 'hello');
    const get = (reading: Reading) => refusal(given.client.send(new GetObjectCommand({ ...given, ...reading })));
    expect(await get({ PartNumber: 0 })).toBe('400 InvalidArgument');
    expect(await get({ PartNumber: 10_001 })).toBe('400 InvalidArgument');
    expect(await get({ PartNumber: 1, Range: 'bytes=0-1' })).toBe('400 InvalidRequest');
  });
});
