import { Readable } from 'node:stream';
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { expect, onTestFinished, test } from 'vitest';
import { s3RequestHandler } from '../../../../local/aws/s3/request-handler.ts';
import { EmbeddedS3, type S3Options } from '../../../../local/aws/s3/s3.ts';
import { list, type Place, put, read, refusal } from '../../../support/s3-calls.ts';
import { BUCKET, CREDENTIALS } from './support.ts';

function start(options: S3Options = {}): Place {
  const s3 = new EmbeddedS3(options);
  s3.createBucket(BUCKET);
  onTestFinished(() => s3.close());
  const client = new S3Client({
    requestHandler: s3RequestHandler(s3),
    region: 'eu-west-1',
    credentials: CREDENTIALS,
    maxAttempts: 1,
  });
  return { client, Bucket: BUCKET, Key: 'a b/../é+?' };
}

test('the SDK works without a socket: strings, buffers, streams, listings, refusals', async () => {
  const at = start();
  const Body = Readable.from([Buffer.from('hel'), Buffer.from('lo')]);
  await at.client.send(new PutObjectCommand({ ...at, Body, ContentLength: 5, Metadata: { M: '1' } }));
  const got = await at.client.send(new GetObjectCommand(at));
  expect(got.Body).toBeInstanceOf(Readable);
  expect(await got.Body?.transformToString()).toBe('hello');
  expect(got.Metadata).toEqual({ m: '1' });
  await put({ ...at, Key: 'buffer' }, Buffer.from('hello'));
  expect(await list(at, { StartAfter: 'a b/' })).toEqual([at.Key, 'buffer']);
  expect(await refusal(read({ ...at, Key: 'absent' }))).toBe('404 NoSuchKey');
});

test('the caller may reuse a buffer after it was sent', async () => {
  const at = start();
  const body = Buffer.from('first');
  await put(at, body);
  body.write('other');
  expect(await read(at)).toBe('first');
});

test('an abort ends an upload that waits for its body, and nothing is stored', async () => {
  const at = start();
  const abort = new AbortController();
  const { promise: waiting, resolve: nowWaiting } = Promise.withResolvers<void>();
  async function* stuck() {
    yield Buffer.alloc(10);
    nowWaiting();
    await new Promise(() => {});
  }
  const putting = new PutObjectCommand({ ...at, Body: Readable.from(stuck()), ContentLength: 20 });
  const sent = at.client.send(putting, { abortSignal: abort.signal });
  await waiting;
  abort.abort();
  await expect(sent).rejects.toMatchObject({ name: 'AbortError' });
  expect(await list(at)).toEqual([]);
});

test('an abort ends the wait for an answer', async () => {
  const { promise: telling, resolve: nowTelling } = Promise.withResolvers<void>();
  const at = start({
    onEvent: () => {
      nowTelling();
      return new Promise(() => {});
    },
  });
  const abort = new AbortController();
  const sent = at.client.send(new PutObjectCommand({ ...at, Body: 'x' }), { abortSignal: abort.signal });
  await telling;
  abort.abort();
  await expect(sent).rejects.toMatchObject({ name: 'AbortError' });
});

test('an abort ends an answer that is being read', async () => {
  const at = start();
  await put(at, Buffer.alloc(1024 ** 2));
  const abort = new AbortController();
  const { Body } = await at.client.send(new GetObjectCommand(at), { abortSignal: abort.signal });
  const read = async () => {
    for await (const _ of Body as Readable) abort.abort();
  };
  await expect(read()).rejects.toMatchObject({ name: 'AbortError' });
});

test('an already aborted signal sends nothing', async () => {
  const at = start();
  const sent = at.client.send(new PutObjectCommand({ ...at, Body: 'x' }), { abortSignal: AbortSignal.abort() });
  await expect(sent).rejects.toMatchObject({ name: 'AbortError' });
  expect(await list(at)).toEqual([]);
});

test('refuses a header that HTTP cannot carry', async () => {
  await expect(put(start(), 'x', { Metadata: { m: '😀' } })).rejects.toThrow('Invalid character in header content');
});

test('the same requests at the same times get the same ids in every run', async () => {
  const run = async () => {
    const { ETag, VersionId, $metadata } = await put(start({ clock: { now: () => 0 } }), 'x');
    return { ETag, VersionId, requestId: $metadata.requestId };
  };
  expect(await run()).toEqual(await run());
});
