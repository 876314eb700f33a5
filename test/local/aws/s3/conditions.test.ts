import { GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { BUCKET, raw, refusal, startS3, VERSIONED } from './support.ts';

describe.each([BUCKET, VERSIONED])('in the bucket %s', (Bucket) => {
  test('of 50 racing writers with If-None-Match: * exactly one wins, and its bytes stay', async () => {
    const { client } = await startS3();
    const writers = Array.from({ length: 50 }, (_, n) =>
      client.send(new PutObjectCommand({ Bucket, Key: 'k', Body: `by ${n}`, IfNoneMatch: '*' })).then(() => `by ${n}`),
    );
    const results = await Promise.allSettled(writers);
    const won = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
    expect(won).toHaveLength(1);
    const lost = results.flatMap((result) => (result.status === 'rejected' ? [(result.reason as Error).name] : []));
    expect(new Set(lost)).toEqual(new Set(['PreconditionFailed']));
    const { Body } = await client.send(new GetObjectCommand({ Bucket, Key: 'k' }));
    expect(await Body?.transformToString()).toBe(won[0]);
  });

  test('of 50 racing writers with If-Match of one ETag exactly one wins', async () => {
    const { client } = await startS3();
    const { ETag } = await client.send(new PutObjectCommand({ Bucket, Key: 'k', Body: 'first' }));
    const results = await Promise.allSettled(
      Array.from({ length: 50 }, (_, n) =>
        client.send(new PutObjectCommand({ Bucket, Key: 'k', Body: `by ${n}`, IfMatch: ETag })),
      ),
    );
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });
});

test('a slow conditional PUT loses to one that began later and ended earlier', async () => {
  const { s3 } = await startS3();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const request = (body: AsyncIterable<Uint8Array>) => ({
    method: 'PUT',
    url: `/${BUCKET}/k`,
    headers: { 'content-length': '4', 'if-none-match': '*' },
    body,
  });
  async function* bytes(wait?: Promise<void>) {
    yield Buffer.from('ab');
    await wait;
    yield Buffer.from('cd');
  }
  const slow = s3.handle(request(bytes(released)));
  expect((await s3.handle(request(bytes()))).status).toBe(200);
  release();
  expect((await slow).status).toBe(412);
});

test('conflicts come when they are asked for, to conditional writes alone', async () => {
  const { client } = await startS3({ conflict: () => true });
  const put = (more: object) => client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'x', ...more }));
  expect(await refusal(put({ IfNoneMatch: '*' }))).toEqual({ status: 409, code: 'ConditionalRequestConflict' });
  await put({});
});

test.each<Record<string, string>>([
  { 'if-none-match': '"5d41402abc4b2a76b9719d911017c592"' },
  { 'if-match': '*' },
  { 'if-match': '"x"', 'if-none-match': '*' },
])('a condition that S3 does not take on a PUT answers 501: %j', async (headers) => {
  const { endpoint } = await startS3();
  const { status, body } = await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body: 'x' });
  expect(status).toBe(501);
  expect(body).toContain('<Code>NotImplemented</Code>');
});
