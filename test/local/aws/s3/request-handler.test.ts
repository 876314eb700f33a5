import { Readable } from 'node:stream';
import { GetObjectCommand, ListObjectsV2Command, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { expect, onTestFinished, test } from 'vitest';
import { s3RequestHandler } from '../../../../local/aws/s3/request-handler.ts';
import { EmbeddedS3, type S3Options } from '../../../../local/aws/s3/s3.ts';
import { BUCKET, CREDENTIALS, refusal } from './support.ts';

function start(options: S3Options = {}): S3Client {
  const s3 = new EmbeddedS3(options);
  s3.createBucket(BUCKET);
  onTestFinished(() => s3.close());
  return new S3Client({
    requestHandler: s3RequestHandler(s3),
    region: 'eu-west-1',
    credentials: CREDENTIALS,
    maxAttempts: 1,
  });
}

const at = { Bucket: BUCKET, Key: 'a b/../é+?' };

test('the SDK works without a socket: strings, buffers, streams, listings, refusals', async () => {
  const client = start();
  const Body = Readable.from([Buffer.from('hel'), Buffer.from('lo')]);
  await client.send(new PutObjectCommand({ ...at, Body, ContentLength: 5, Metadata: { M: '1' } }));
  const got = await client.send(new GetObjectCommand(at));
  expect(got.Body).toBeInstanceOf(Readable);
  expect(await got.Body?.transformToString()).toBe('hello');
  expect(got.Metadata).toEqual({ m: '1' });
  await client.send(new PutObjectCommand({ ...at, Key: 'buffer', Body: Buffer.from('hello') }));
  const { Contents } = await client.send(new ListObjectsV2Command({ Bucket: BUCKET, StartAfter: 'a b/' }));
  expect(Contents?.map(({ Key }) => Key)).toEqual([at.Key, 'buffer']);
  expect(await refusal(client.send(new GetObjectCommand({ ...at, Key: 'absent' })))).toEqual({
    status: 404,
    code: 'NoSuchKey',
  });
});

test('the caller may reuse a buffer after it was sent', async () => {
  const client = start();
  const Body = Buffer.from('first');
  await client.send(new PutObjectCommand({ ...at, Body }));
  Body.write('other');
  expect(await (await client.send(new GetObjectCommand(at))).Body?.transformToString()).toBe('first');
});

test('an abort ends an upload that waits for its body, and nothing is stored', async () => {
  const client = start();
  const abort = new AbortController();
  const { promise: waiting, resolve: nowWaiting } = Promise.withResolvers<void>();
  async function* stuck() {
    yield Buffer.alloc(10);
    nowWaiting();
    await new Promise(() => {});
  }
  const put = client.send(new PutObjectCommand({ ...at, Body: Readable.from(stuck()), ContentLength: 20 }), {
    abortSignal: abort.signal,
  });
  await waiting;
  abort.abort();
  await expect(put).rejects.toMatchObject({ name: 'AbortError' });
  expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(0);
});

test('an abort ends the wait for an answer', async () => {
  const { promise: telling, resolve: nowTelling } = Promise.withResolvers<void>();
  const client = start({
    onEvent: () => {
      nowTelling();
      return new Promise(() => {});
    },
  });
  const abort = new AbortController();
  const put = client.send(new PutObjectCommand({ ...at, Body: 'x' }), { abortSignal: abort.signal });
  await telling;
  abort.abort();
  await expect(put).rejects.toMatchObject({ name: 'AbortError' });
});

test('an abort ends an answer that is being read', async () => {
  const client = start();
  await client.send(new PutObjectCommand({ ...at, Body: Buffer.alloc(1024 ** 2) }));
  const abort = new AbortController();
  const { Body } = await client.send(new GetObjectCommand(at), { abortSignal: abort.signal });
  const read = async () => {
    for await (const _ of Body as Readable) abort.abort();
  };
  await expect(read()).rejects.toMatchObject({ name: 'AbortError' });
});

test('an already aborted signal sends nothing', async () => {
  const client = start();
  const put = client.send(new PutObjectCommand({ ...at, Body: 'x' }), { abortSignal: AbortSignal.abort() });
  await expect(put).rejects.toMatchObject({ name: 'AbortError' });
  expect((await client.send(new ListObjectsV2Command({ Bucket: BUCKET }))).KeyCount).toBe(0);
});

test('refuses a header that HTTP cannot carry', async () => {
  const client = start();
  await expect(client.send(new PutObjectCommand({ ...at, Body: 'x', Metadata: { m: '😀' } }))).rejects.toThrow(
    'Invalid character in header content',
  );
});

test('the same requests at the same times get the same ids in every run', async () => {
  const run = async () => {
    const client = start({ clock: { now: () => 0 } });
    const { ETag, VersionId, $metadata } = await client.send(new PutObjectCommand({ ...at, Body: 'x' }));
    return { ETag, VersionId, requestId: $metadata.requestId };
  };
  expect(await run()).toEqual(await run());
});
