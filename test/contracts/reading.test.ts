import { GetObjectCommand, type GetObjectCommandOutput } from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { head, put } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

/** The answer to a GET, or the code of its refusal. A HEAD must answer the same, without a body. */
async function answerTo(given: Given, Range: string) {
  const orRefusal = (error: Error & Pick<GetObjectCommandOutput, '$metadata'>) => error;
  const got = await given.client.send(new GetObjectCommand({ ...given, Range })).catch(orRefusal);
  const headed = await head(given, { Range }).catch(orRefusal);
  const status = got.$metadata.httpStatusCode;
  expect(headed.$metadata.httpStatusCode).toBe(status);
  if (got instanceof Error) return got.name;
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
  for (const [Range, answer] of Object.entries(answers)) expect(await answerTo(given, Range), Range).toEqual(answer);
});

for (const [ChecksumAlgorithm, value] of [
  ['CRC32', 'NhCmhg=='],
  ['SHA1', 'qvTGHdzF6KLavt4PO0gs2a6pQ00='],
  ['SHA256', 'LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ='],
] as const) {
  behaviour(`a ${ChecksumAlgorithm} is verified, stored and returned`, 'any', async (given) => {
    await put(given, 'hello', { ChecksumAlgorithm });
    expect(await head(given, { ChecksumMode: 'ENABLED' })).toHaveProperty(`Checksum${ChecksumAlgorithm}`, value);
  });
}

behaviour('an object comes back with its headers', 'any', async (given) => {
  const headers = { ContentType: 'image/png', CacheControl: 'no-store', ContentEncoding: 'gzip' };
  await put(given, '', { ...headers, Metadata: { Name: 'value' } });
  expect(await head(given)).toMatchObject({ ...headers, ContentLength: 0, Metadata: { name: 'value' } });
});
