import { createHash, randomBytes } from 'node:crypto';
import {
  appendFileSync,
  mkdirSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  CreateMultipartUploadCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectVersionsCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  abortUnfinishedUploads,
  FileChangedError,
  type InboxFile,
  isUploaded,
  uploadFile,
  versionOf,
} from '../../../local/start/inbox-file.ts';
import { type Running, startS3, VERSIONED } from '../../support/embedded-s3.ts';
import { temporaryFolder } from '../../support/folder.ts';

const MIB = 1024 * 1024;
const NEVER = new AbortController().signal;

describe('the upload of a file', () => {
  let dir: string;
  let s3: Running;
  let requests: string[];
  beforeEach(async () => {
    dir = await temporaryFolder();
    requests = [];
    s3 = await startS3({
      authorize: ({ request }) => requests.push(`${request.method} ${request.query.get('partNumber')}`) > 0,
    });
  });
  const at = (name: string) => join(dir, name);
  const fileAt = async (name: string): Promise<InboxFile> => ({
    path: at(name),
    key: name,
    root: dir,
    ...versionOf(await stat(at(name))),
  });
  async function file(content: string | Buffer): Promise<InboxFile> {
    await writeFile(at('a.bin'), content);
    return fileAt('a.bin');
  }
  const target = () => ({ s3: s3.client, bucket: VERSIONED, key: 'a.bin' });
  const upload = (version: InboxFile, more: Partial<Parameters<typeof uploadFile>[1]> = {}) =>
    uploadFile(version, { ...target(), signal: NEVER, ...more });
  async function stored(): Promise<{ versions: number; unfinished: number }> {
    const { Versions = [] } = await s3.client.send(new ListObjectVersionsCommand({ Bucket: VERSIONED }));
    const { Uploads = [] } = await s3.client.send(new ListMultipartUploadsCommand({ Bucket: VERSIONED }));
    return { versions: Versions.length, unfinished: Uploads.length };
  }
  const sha256 = (bytes: string | Buffer) => createHash('sha256').update(bytes).digest('hex');
  async function storedSha256(VersionId: string | undefined): Promise<string> {
    const { Body } = await s3.client.send(new GetObjectCommand({ Bucket: VERSIONED, Key: 'a.bin', VersionId }));
    return sha256(Buffer.from((await Body?.transformToByteArray()) ?? []));
  }

  it.each([
    ['an empty file', Buffer.alloc(0)],
    ['a small file', Buffer.from('a fox')],
    ['a file of exactly one part', randomBytes(5 * MIB)],
    ['a file of two and a half parts', randomBytes(12.5 * MIB)],
  ])('stores %s, and names its version and content', async (_, bytes) => {
    const version = await file(bytes);
    const progress: number[] = [];
    const { versionId, content } = await upload(version, { onProgress: (sent) => progress.push(sent) });
    expect(content).toEqual({
      bytes: bytes.length,
      modifiedMs: version.modifiedMs,
      changedMs: version.changedMs,
      sha256: sha256(bytes),
    });
    expect(await storedSha256(versionId)).toBe(sha256(bytes));
    expect(await stored()).toEqual({ versions: 1, unfinished: 0 });
    expect(progress.at(-1)).toBe(bytes.length);
    expect(progress).toHaveLength(bytes.length > 5 * MIB ? 3 : 1);
  });

  /** Changes the file that is being uploaded, at once. */
  const replaceBy = (name: string) => {
    const { size, mtime } = statSync(at('a.bin'));
    writeFileSync(at(name), randomBytes(size));
    utimesSync(at(name), mtime, mtime);
    renameSync(at(name), at('a.bin'));
  };
  it.each<[string, () => void]>([
    ['grows', () => appendFileSync(at('a.bin'), 'more')],
    ['is cut', () => truncateSync(at('a.bin'), 1)],
    ['is written with its old size and time', () => replaceBy('a.bin')],
    ['is replaced by rename', () => replaceBy('.new')],
    ['is deleted', () => rmSync(at('a.bin'))],
    ['is renamed', () => renameSync(at('a.bin'), at('b.bin'))],
    [
      'becomes a folder',
      () => {
        rmSync(at('a.bin'));
        mkdirSync(at('a.bin'));
      },
    ],
  ])('gives S3 nothing, and keeps no parts, if the file %s meanwhile', async (_, change) => {
    for (const bytes of [5, 6 * MIB]) {
      const version = await file(randomBytes(bytes));
      let readings = 0;
      const signal = {
        ...NEVER,
        throwIfAborted() {
          readings += 1;
          if (readings === 2) change(); // Between two readings.
        },
      } as AbortSignal;
      await expect(upload(version, { signal })).rejects.toThrow(FileChangedError);
      expect(await stored()).toEqual({ versions: 0, unfinished: 0 });
      await rm(at('a.bin'), { recursive: true, force: true });
    }
  });

  it('does not begin if the file is no longer the version that was seen, or leads out of the inbox', async () => {
    const version = await file('a fox');
    await writeFile(at('a.bin'), 'a cat');
    await expect(upload(version)).rejects.toThrow(FileChangedError);

    const outside = await temporaryFolder();
    await writeFile(join(outside, 'a.bin'), 'private');
    const facts = versionOf(await stat(join(outside, 'a.bin')));
    await symlink(outside, at('sub'));
    const swapped = { path: join(dir, 'sub', 'a.bin'), key: 'a.bin', root: dir, ...facts };
    await expect(upload(swapped)).rejects.toThrow(FileChangedError);
    expect(requests).toEqual([]);
  });

  it.each([5, 12 * MIB])('ends at once when it is interrupted, and keeps no parts: %d bytes', async (bytes) => {
    const version = await file(randomBytes(bytes));
    const interrupted = new AbortController();
    const progress = () => interrupted.abort(new Error('interrupted'));
    if (bytes === 5) progress();
    await expect(upload(version, { signal: interrupted.signal, onProgress: progress })).rejects.toThrow('interrupted');
    expect(await stored()).toEqual({ versions: 0, unfinished: 0 });
  });

  it('rejects with the error of S3, and keeps no parts', async () => {
    const version = await file(randomBytes(12 * MIB));
    const failing = await startS3({ authorize: ({ request }) => request.query.get('partNumber') !== '2' });
    await expect(upload(version, { s3: failing.client })).rejects.toMatchObject({ name: 'AccessDenied' });
    const { Uploads } = await failing.client.send(new ListMultipartUploadsCommand({ Bucket: VERSIONED }));
    expect(Uploads).toBeUndefined();
  });

  it('is found again by exactly the version of the file', async () => {
    const version = await file('a fox');
    expect(await isUploaded(version, { ...target(), signal: NEVER })).toBe(false);
    await upload(version);
    expect(await isUploaded(version, { ...target(), signal: NEVER })).toBe(true);
    const other = { ...version, changedMs: version.changedMs + 1 };
    expect(await isUploaded(other, { ...target(), signal: NEVER })).toBe(false);
    await upload(await file('a cat'));
    expect(await isUploaded(version, { ...target(), signal: NEVER })).toBe(false);
  });

  it('leaves parts if the process is killed, which the next one removes', async () => {
    for (const Key of ['a.bin', 'b ü.bin']) {
      const { UploadId } = await s3.client.send(new CreateMultipartUploadCommand({ Bucket: VERSIONED, Key }));
      await s3.client.send(
        new UploadPartCommand({ Bucket: VERSIONED, Key, UploadId, PartNumber: 1, Body: Buffer.alloc(5 * MIB) }),
      );
    }
    expect(await stored()).toEqual({ versions: 0, unfinished: 2 });
    await abortUnfinishedUploads(s3.client, VERSIONED);
    expect(await stored()).toEqual({ versions: 0, unfinished: 0 });
  });
});
