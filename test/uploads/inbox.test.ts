import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  type BucketVersioningStatus,
  DeleteObjectCommand,
  PutBucketVersioningCommand,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { s3Client } from '../../functions/s3/client.ts';
import { Inbox, type UploadPage } from '../../functions/uploads/inbox.ts';
import type { OpenedInput, OpenedUpload } from '../../functions/uploads/opened-upload.ts';
import { unquoted } from '../../functions/uploads/upload.ts';
import { UploadDeniedError, UploadGoneError, UploadUnreadableError } from '../../functions/uploads/upload-errors.ts';
import { web } from '../support/servers.ts';
import { INBOX, start, type WorldOptions, world } from '../support/world.ts';

const signal = new AbortController().signal;
/** More than a socket holds unread, so that a broken connection cannot go unnoticed. */
const LARGE = Buffer.alloc(4 * 1024 * 1024, 'flowdrop');

/** Sees every answer to a command, and may change it. */
function onAnswer(command: string, see: (output: object) => void): void {
  world.s3.middlewareStack.add(
    (next, { commandName }) =>
      async (args) => {
        const result = await next(args);
        if (commandName === command) see(result.output as object);
        return result;
      },
    { step: 'initialize' },
  );
}

const open = (reference: object = {}) => world.ports.inbox.open({ bucket: INBOX, key: 'a', ...reference }, signal);
const read = async ({ inputs: [own] }: OpenedUpload) => buffer(await (own as OpenedInput).source.open(signal));

it.each(['crc32', 'crc32c', 'crc64nvme', 'md5', 'sha1', 'sha256', 'sha512', 'xxhash64', 'xxhash3', 'xxhash128'])(
  'an object has the checksum that S3 keeps of it: %s',
  async (algorithm) => {
    const { origin } = await web(({ url = '' }, response) => {
      const sum = url.endsWith('/none') ? {} : { [`x-amz-checksum-${algorithm}`]: url.slice(-1) };
      response.writeHead(200, { 'x-amz-checksum-type': 'FULL_OBJECT', ...sum }).end();
    });
    const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
    const s3 = s3Client({ endpoint: origin, forcePathStyle: true, region: 'us-east-1', credentials });
    const inbox = new Inbox(s3, systemClock);
    const checksum = async (key: string) => (await inbox.facts({ bucket: INBOX, key }, signal))?.checksum;
    const [one, same, other, none] = await Promise.all(['1', 'x/1', '2', 'none'].map(checksum));
    expect([one === same, one === other, one, none]).toEqual([true, false, expect.any(String), undefined]);
  },
);

describe('an opened upload', () => {
  it('has the time and the sequencer of its event, unless the event is of an earlier put of the same content', async () => {
    await start();
    await world.upload('a', 'x');
    const { lastModified } = (await open()).upload;
    const event = { currentAt: lastModified + 1, sequencer: '1' };
    expect((await open(event)).upload).toMatchObject(event);
    const earlier = (await open({ ...event, currentAt: lastModified - 1 })).upload;
    expect(earlier).toEqual((await open()).upload);
  });

  it('has the sequencer of its event if the version is named, also if S3 dates the event before the version', async () => {
    await start();
    await world.upload('a', 'x');
    const { lastModified, versionId } = (await open()).upload;
    const event = { versionId, currentAt: lastModified - 1, sequencer: '1' };
    expect((await open(event)).upload).toMatchObject({ currentAt: lastModified, sequencer: '1' });
  });

  it('has no time of an event from the future, which would hold the receipt against all later uploads', async () => {
    await start();
    await world.upload('a', 'x');
    const { versionId } = (await open()).upload;
    const made = (aheadMs: number) => ({ versionId, currentAt: world.clock.now() + aheadMs, sequencer: 'f' });
    expect((await open(made(4 * 60_000))).upload).toMatchObject({ sequencer: 'f' });
    expect((await open(made(6 * 60_000))).upload).toEqual((await open()).upload);
  });

  let bodies: Readable[];
  /** Over a socket, and with the bodies of all answers so far. */
  async function openedLarge() {
    await start({ isVirtual: false });
    bodies = [];
    onAnswer('GetObjectCommand', (output) => bodies.push((output as { Body: Readable }).Body));
    await world.upload('a', LARGE);
    return open();
  }

  it('is read from the request that opened it, if that was just now', async () => {
    expect((await read(await openedLarge())).equals(LARGE)).toBe(true);
    expect(bodies).toHaveLength(1);
  });

  it('ends with the reason of the signal, and closes its connection, if S3 stops sending', async () => {
    const { promise: closed, resolve: close } = Promise.withResolvers<void>();
    const { origin } = await web((_, response) => {
      response.writeHead(200, { 'content-length': 10, etag: '"e"', 'last-modified': new Date(0).toUTCString() });
      response.on('close', () => close());
      response.write('abc');
    });
    const credentials = { accessKeyId: 'fake', secretAccessKey: 'fake' };
    const inbox = new Inbox(
      s3Client({ endpoint: origin, forcePathStyle: true, region: 'us-east-1', credentials }),
      systemClock,
    );
    const over = new AbortController();
    const { inputs } = await inbox.open({ bucket: INBOX, key: 'a' }, signal);
    const chunks = (await (inputs[0] as OpenedInput).source.open(over.signal))[Symbol.asyncIterator]();
    expect(String((await chunks.next()).value)).toBe('abc');
    const rest = chunks.next();
    over.abort(new Error('The time is over'));
    await expect(rest).rejects.toThrow('The time is over');
    await closed;
  });

  it('is requested again after ten seconds without a reader, and the first connection is closed', async () => {
    const opened = await openedLarge();
    world.clock.advance(10_000);
    expect((await read(opened)).equals(LARGE)).toBe(true);
    expect(bodies).toHaveLength(2);
    expect(bodies[0]?.destroyed).toBe(true);
  });

  it('is requested again if the connection broke before anything was read', async () => {
    const opened = await openedLarge();
    bodies[0]?.destroy(new Error('read ECONNRESET'));
    expect((await read(opened)).equals(LARGE)).toBe(true);
    expect(bodies).toHaveLength(2);
  });

  it('is empty if the file is empty', async () => {
    await start();
    await world.upload('a', '');
    expect(await read(await open())).toHaveLength(0);
  });
});

describe('an upload from a time of suspended versioning', () => {
  const switchTo = (Status: BucketVersioningStatus) =>
    world.s3.send(new PutBucketVersioningCommand({ Bucket: INBOX, VersioningConfiguration: { Status } }));

  /** Puts a null version, and returns its ETag. */
  async function unversioned(): Promise<string> {
    await start();
    await switchTo('Suspended');
    const { ETag = '' } = await world.s3.send(new PutObjectCommand({ Bucket: INBOX, Key: 'a', Body: 'first' }));
    return unquoted(ETag);
  }

  it('is opened, although versioning is on again and a newer upload has its key', async () => {
    const etag = await unversioned();
    const { id } = (await open()).upload;
    await switchTo('Enabled');
    await world.upload('a', 'second');
    const opened = await open({ etag, id });
    expect(opened.upload).toMatchObject({ id, versionId: undefined, bytes: 5 });
    expect((await read(opened)).toString()).toBe('first');
    world.clock.advance(10_000);
    expect((await read(opened)).toString()).toBe('first');
  });

  it('is opened, although its key was deleted with versioning on', async () => {
    const etag = await unversioned();
    await switchTo('Enabled');
    await world.remove('a');
    expect((await read(await open({ etag }))).toString()).toBe('first');
  });

  it('is gone after another upload replaced it, or after its version was deleted', async () => {
    const etag = await unversioned();
    await world.upload('a', 'second');
    await expect(open({ etag })).rejects.toThrow(UploadGoneError);
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a', VersionId: 'null' }));
    await expect(open({ etag })).rejects.toThrow(UploadGoneError);
    await expect(open()).rejects.toThrow(UploadGoneError);
  });

  it('becomes a flow, although its message comes only after versioning was switched on again', async () => {
    await unversioned();
    await switchTo('Enabled');
    await world.upload('a', 'second!');
    await world.settle();
    expect(world.service.flows.map(({ inputs }) => inputs[0]?.bytes).sort()).toEqual([5, 7]);
    expect((await world.receipt('a')).upload.bytes).toBe(7);
  });
});

describe('the listing of the inbox', () => {
  /** Keys that XML cannot hold, or that its parser changes, and keys that an encoded listing writes otherwise. */
  const KEYS = [
    ' ',
    '  a  ',
    '\n',
    '\u0000',
    '&#65;',
    '&amp;lt;',
    '__proto__',
    'in/ b',
    'in/%41',
    'in/&<>"\'',
    'in/+',
    'in/\t\n\r',
    'in/\u0001\u001f\u007f\u0085',
    'in/\u0002',
    'in/ü/😀',
    'in/\ufffe\uffff',
  ];

  /** The keys of a listing that begins anew with each page, as the runs of the sweep do. */
  async function listed(prefix: string): Promise<string[]> {
    const keys: string[] = [];
    let after: UploadPage['last'];
    do {
      const page: UploadPage = (await world.ports.inbox.pages(INBOX, prefix, after, signal).next()).value;
      for (const { key, isCurrent } of page.uploads) keys.push(`${key} ${isCurrent}`);
      after = page.last;
      expect(keys.length).toBeLessThanOrEqual(2 * KEYS.length + 1);
    } while (after !== undefined);
    return keys;
  }

  it.each([1, 2, 1000])('shows every key as it is, on pages of %i', async (keysMax) => {
    await start({ s3: { keysMax } });
    for (const key of [...KEYS, 'other', ...KEYS]) await world.upload(key, 'x');
    const expected = [...KEYS.flatMap((key) => [`${key} true`, `${key} false`]), 'other true'];
    expect((await listed('')).toSorted()).toEqual(expected.toSorted());
  });

  it.each(['a b+/%41', '\u0001/', '&\r/'])('can be below a prefix such as %j', async (prefix) => {
    await start();
    await world.upload(`${prefix}a`, 'x');
    await world.upload('other', 'x');
    expect(await listed(prefix)).toEqual([`${prefix}a true`]);
  });
});

describe('a version for which S3 answers 403', () => {
  /** Refuses to read any version. S3 may answer so for an absent one. */
  const forbidden = (others: readonly string[] = []): WorldOptions['s3'] => ({
    authorize: ({ action }) => !['s3:GetObjectVersion', ...others].includes(action),
    keysMax: 1,
  });
  const put = async (key: string) =>
    (await world.s3.send(new PutObjectCommand({ Bucket: INBOX, Key: key, Body: key }))).VersionId ?? '';
  const remove = (key: string, VersionId: string) =>
    world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: key, VersionId }));

  it.each([
    ['a', 3],
    ['a', 0],
    ['a b+c%20/d', 3],
    ['a\u0001\u00e9&<', 3],
  ])(
    'is gone if the listing of its key lacks it, and denied if it is on any page: %j, %i newer',
    async (key, newer) => {
      await start({ s3: forbidden() });
      const versionId = await put(key);
      for (let n = 0; n < newer; n += 1) await put(key);
      await put(`${key}/other`);
      await expect(open({ key, versionId })).rejects.toThrow(UploadDeniedError);
      await remove(key, versionId);
      await expect(open({ key, versionId })).rejects.toThrow(UploadGoneError);
    },
  );

  it('is unreadable if the listing is refused as well', async () => {
    await start({ s3: forbidden(['s3:ListBucketVersions']) });
    const versionId = await put('a');
    await remove('a', versionId);
    await expect(open({ versionId })).rejects.toThrow(UploadUnreadableError);
  });

  it('is unreadable if the listing does not end', async () => {
    await start({ s3: forbidden() });
    const versionId = await put('a');
    await put('a');
    await remove('a', versionId);
    const more = { IsTruncated: true, NextKeyMarker: 'a', NextVersionIdMarker: 'null' };
    onAnswer('ListObjectVersionsCommand', (output) => Object.assign(output, more));
    await expect(open({ versionId })).rejects.toThrow(UploadUnreadableError);
  });

  it('is gone if it is the null version of a key at which another null version is now', async () => {
    await start({ s3: forbidden(), versioning: 'Suspended' });
    await put('a');
    const etag = '0'.repeat(32);
    await expect(open({ etag })).rejects.toThrow(UploadGoneError);
  });
});
