import { expect, test } from 'vitest';
import { put } from '../../../support/s3-calls.ts';
import { BUCKET, raw, startS3, VERSIONED } from './support.ts';

test.each([BUCKET, VERSIONED])('in the bucket %s, a slow conditional PUT loses to a later one', async (bucket) => {
  const { s3 } = await startS3();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const request = (body: AsyncIterable<Uint8Array>) => ({
    method: 'PUT',
    url: `/${bucket}/k`,
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

test('simulated conflicts never affect an unconditional write', async () => {
  const { at } = await startS3({ conflict: () => true });
  await put(at, 'x');
});

test.each<Record<string, string>>([
  { 'if-none-match': '"5d41402abc4b2a76b9719d911017c592"' },
  { 'if-match': '*' },
  { 'if-match': '"x"', 'if-none-match': '*' },
])('a condition that S3 does not support on a PUT answers 501: %j', async (headers) => {
  const { endpoint } = await startS3();
  const { outcome } = await raw(endpoint, 'PUT', `/${BUCKET}/k`, { headers, body: 'x' });
  expect(outcome).toBe('501 NotImplemented');
});
