import { createHash } from 'node:crypto';
import { HeadObjectCommand, ListMultipartUploadsCommand } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it } from 'vitest';
import { MultipartUpload } from '../../functions/results/multipart-upload.ts';
import { KeyTakenError, Results } from '../../functions/results/results.ts';
import type { S3Response } from '../../local/aws/s3/call.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';
import { clientThrough } from '../support/embedded-s3.ts';
import { RESULTS, start, world } from '../support/world.ts';

const MIB = 1024 * 1024;
const destination = { key: 'a/f/1.bin', mediaType: 'application/x-test', metadata: { 'flowdrop-upload': 'u' } };
const unlimited = new AbortController().signal;

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** Deterministic bytes that repeat nowhere near a part's size. */
function bytesOf(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let i = 0; i + 4 <= length; i += 4) bytes.writeUInt32LE(Math.imul(i, 2654435761) >>> 0, i);
  return bytes;
}

async function* inChunks(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  // All chunks share one buffer, as in the decoder, so that a writer must copy what it keeps.
  const reused = Buffer.alloc(size);
  for (let at = 0; at < bytes.length; at += size) {
    const length = bytes.copy(reused, 0, at, at + size);
    yield reused.subarray(0, length);
  }
}

beforeEach(() => start());

const unfinished = async () =>
  (await world.s3.send(new ListMultipartUploadsCommand({ Bucket: RESULTS }))).Uploads?.length ?? 0;

interface Storing {
  readonly to?: typeof destination;
  readonly bytesMax?: number | undefined;
  readonly signal?: AbortSignal;
}

const store = (chunks: AsyncIterable<Uint8Array>, { to = destination, bytesMax, signal = unlimited }: Storing = {}) =>
  world.ports.results.store({ to, chunks, bytesMax }, { signal, received() {} });

/** Chunks of these bytes, as a download gives them. */
const chunksOf = (length: number) => inChunks(bytesOf(length), 48_000);

describe('an asset', () => {
  it.each([0, 1, 65_536, 65_537, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 10 * MIB, 12 * MIB + 3])(
    'of %i bytes is stored whole, with its media type and metadata',
    async (length) => {
      const bytes = bytesOf(length);
      const facts = await store(inChunks(bytes, 48_000));
      expect(facts).toEqual({ bytes: length, sha256: sha256(bytes), etag: expect.stringMatching(/^[^"]+$/) });
      const stored = await world.object(RESULTS, destination.key);
      expect(stored.bytes.equals(bytes)).toBe(true);
      expect(stored.mediaType).toBe('application/x-test');
      expect(stored.metadata).toEqual({ 'flowdrop-upload': 'u' });
      expect(await unfinished()).toBe(0);
    },
  );

  it.each([0, 1_000, 9 * MIB])('of %i bytes in an answer of 12 MiB is stored whole', async (length) => {
    const bytes = bytesOf(length);
    const facts = await store(inChunks(bytes, 48_000), { bytesMax: 12 * MIB });
    expect(facts).toMatchObject({ bytes: length, sha256: sha256(bytes) });
    expect((await world.object(RESULTS, destination.key)).bytes.equals(bytes)).toBe(true);
    expect(await unfinished()).toBe(0);
  });

  it.each([
    ['of an unknown size', 1_000, undefined],
    ['of an unknown size', 9 * MIB, undefined],
    ['that is known to be large', 10, 12 * MIB],
  ])('%s whose download breaks off after %i bytes leaves nothing behind', async (_, length, bytesMax) => {
    async function* breaking() {
      yield* chunksOf(length);
      throw new Error('cut');
    }
    await expect(store(breaking(), { bytesMax })).rejects.toThrow('cut');
    expect(await world.keys(RESULTS)).toEqual([]);
    expect(await unfinished()).toBe(0);
  });

  it.each([1_000, 9 * MIB])(
    'of %i bytes does not replace an object at its key, and takes the facts of that object',
    async (length) => {
      const first = bytesOf(length);
      await store(inChunks(first, 48_000));
      const facts = await store(inChunks(Buffer.from(first).fill(1), 48_000));
      expect(facts).toEqual({ bytes: length, sha256: sha256(first), etag: expect.stringMatching(/^[^"]+$/) });
      expect((await world.object(RESULTS, destination.key)).bytes.equals(first)).toBe(true);
      expect(await unfinished()).toBe(0);
    },
  );

  it.each<[number, Record<string, string>]>([
    [1_000, {}],
    [1_000, { 'flowdrop-upload': 'another' }],
    [1_000, { 'flowdrop-upload': 'u', 'flowdrop-flow': 'f', 'flowdrop-asset': 'another' }],
    [1_000, { 'flowdrop-upload': 'u', 'flowdrop-flow': 'another', 'flowdrop-asset': '1' }],
    [9 * MIB, { 'flowdrop-upload': 'u' }],
  ])('of %i bytes leaves an object of another writer alone, and fails: %j', async (length, metadata) => {
    const ours = { 'flowdrop-upload': 'u', 'flowdrop-flow': 'f', 'flowdrop-asset': '1' };
    const { key } = destination;
    await world.put(RESULTS, key, 'somebody else put this here', metadata);
    const storing = store(chunksOf(length), { to: { ...destination, metadata: ours } });
    await expect(storing).rejects.toThrow(KeyTakenError);
    await expect(storing).rejects.toThrow(key);
    const there = await world.object(RESULTS, key);
    expect([there.bytes.toString(), there.metadata]).toEqual(['somebody else put this here', metadata]);
    expect(await unfinished()).toBe(0);
  });

  it.each([
    ['in one piece', 'text/html', 10, 'attachment'],
    ['in parts', 'text/html', 6 * MIB, 'attachment'],
    ['in one piece', 'image/png', 10, undefined],
  ])('%s of the media type %s, of %i bytes, has the disposition %s', async (_, mediaType, length, disposition) => {
    await store(chunksOf(length), { to: { ...destination, mediaType } });
    const head = await world.s3.send(new HeadObjectCommand({ Bucket: RESULTS, Key: destination.key }));
    expect(head.ContentType).toBe(mediaType);
    expect(head.ContentDisposition).toBe(disposition);
  });

  it('that ten callers store at once is stored once, and all of them get its facts', async () => {
    const all = await Promise.all(Array.from({ length: 10 }, (_, i) => store(inChunks(Buffer.alloc(1000, i), 100))));
    const stored = await world.object(RESULTS, destination.key);
    for (const facts of all) expect(facts.sha256).toBe(sha256(stored.bytes));
  });

  it('is aborted at once when the time is over', async () => {
    const controller = new AbortController();
    async function* endless() {
      for (let i = 0; ; i += 1) {
        if (i === 200) controller.abort(new Error('over'));
        yield Buffer.alloc(100_000);
      }
    }
    await expect(store(endless(), controller)).rejects.toThrow();
    expect(await world.keys(RESULTS)).toEqual([]);
    expect(await unfinished()).toBe(0);
  });
});

describe('a conditional write', () => {
  it('is retried while S3 answers 409', async () => {
    let conflicts = 0;
    await start({ s3: { conflict: () => ++conflicts <= 3 } });
    const bytes = bytesOf(1000);
    const facts = await store(inChunks(bytes, 100));
    expect(facts.sha256).toBe(sha256(bytes));
    expect(conflicts).toBe(4);
  });
});

describe('a large asset, if S3 answers late', () => {
  const ERROR = '<?xml version="1.0"?>\n<Error><Code>InternalError</Code></Error>\n';
  const failed: S3Response = { status: 200, headers: { 'content-type': 'application/xml' }, body: Buffer.from(ERROR) };
  const lost: S3Response = { status: 503, headers: {}, body: new Uint8Array() };

  /** An S3 that answers the requests of one kind so. @param index of the request among those of its kind. */
  async function s3With(
    kind: 'completion' | 'copy',
    answerTo: (handled: () => Promise<S3Response>, index: number) => Promise<S3Response>,
  ) {
    const embedded = new EmbeddedS3({});
    embedded.createBucket(RESULTS);
    let count = 0;
    const handle: EmbeddedS3['handle'] = async (request) => {
      const handled = () => embedded.handle(request);
      const isCompletion = request.method === 'POST' && request.url.includes('uploadId=');
      const isMeant = kind === 'completion' ? isCompletion : request.headers['x-amz-copy-source'] !== undefined;
      return isMeant ? answerTo(handled, count++) : handled();
    };
    const s3 = await clientThrough(embedded, handle);
    const results = new Results({ s3, bucket: RESULTS, log: world.ports.telemetry.log, assetsMax: 1 });
    const storing = () =>
      results.store({ to: destination, chunks: chunksOf(9 * MIB) }, { signal: unlimited, received() {} });
    return { s3, storing };
  }

  it('is taken from its key if the answer to its completion was lost', async () => {
    const { storing } = await s3With('completion', async (handled, index) => {
      const response = await handled();
      return index === 0 ? lost : response;
    });
    expect(await storing()).toMatchObject({ bytes: 9 * MIB, sha256: sha256(bytesOf(9 * MIB)) });
  });

  it('is taken from its key if S3 says within a success that the key is taken', async () => {
    const { storing } = await s3With('completion', async (handled) => {
      const response = await handled();
      return response.status === 412 ? { ...response, status: 200 } : response;
    });
    const first = await storing();
    expect(await storing()).toEqual(first);
  });

  it('is not stored if a success holds an error, whatever stands behind that', async () => {
    const { storing } = await s3With('completion', async (handled, index) => (index === 0 ? failed : handled()));
    await expect(storing()).rejects.toThrow('S3 answered 200, and did not do it');
    expect(await storing()).toMatchObject({ bytes: 9 * MIB, etag: expect.stringMatching(/-2$/) });
  });

  it('is not copied if a success holds an error', async () => {
    const { s3, storing } = await s3With('copy', async () => failed);
    const { etag, bytes } = await storing();
    const target = { Bucket: RESULTS, Key: 'copy', ContentType: 'x/y', Metadata: {} };
    const upload = new MultipartUpload(s3, target, unlimited);
    const copying = upload.copy({ bucket: RESULTS, key: destination.key, etag, bytes });
    await expect(copying).rejects.toThrow('S3 answered 200, and did not do it');
    await upload.abort();
  });
});
