import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import {
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  ListObjectVersionsCommand,
  PutObjectCommand,
  PutObjectTaggingCommand,
  S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { expect, onTestFinished, test } from 'vitest';
import { s3RequestHandler } from '../../../../local/aws/s3/request-handler.ts';
import { EmbeddedS3 } from '../../../../local/aws/s3/s3.ts';
import { BUCKET, CREDENTIALS, refusal } from './support.ts';

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'flowdrop-s3-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  return dir;
}

function open(dir: string): { s3: EmbeddedS3; client: S3Client } {
  const s3 = new EmbeddedS3({ dir });
  const client = new S3Client({ requestHandler: s3RequestHandler(s3), region: 'us-east-1', credentials: CREDENTIALS });
  return { s3, client };
}

async function text(client: S3Client, input: { Bucket: string; Key: string; VersionId?: string }) {
  return (await client.send(new GetObjectCommand(input))).Body?.transformToString();
}

test('buckets, versions, metadata and unfinished uploads survive a restart', async () => {
  const dir = join(folder(), 'made', 'if absent');
  const first = open(dir);
  first.s3.createBucket(BUCKET, { versioning: 'Enabled' });
  const at = { Bucket: BUCKET, Key: '../a//😀\n' };
  const put = await first.client.send(new PutObjectCommand({ ...at, Body: 'first', Metadata: { m: '1' } }));
  await first.client.send(new PutObjectCommand({ ...at, Body: 'second' }));
  const upload = { Bucket: BUCKET, Key: 'parts' };
  const { UploadId } = await first.client.send(new CreateMultipartUploadCommand(upload));
  const part = new UploadPartCommand({ ...upload, UploadId, PartNumber: 1, Body: 'in parts' });
  const { ETag } = await first.client.send(part);
  first.s3.close();

  const second = open(dir);
  expect(() => second.s3.createBucket(BUCKET)).toThrow('you already own it');
  expect(await text(second.client, at)).toBe('second');
  expect(await text(second.client, { ...at, VersionId: put.VersionId })).toBe('first');
  const MultipartUpload = { Parts: [{ PartNumber: 1, ETag }] };
  await second.client.send(new CompleteMultipartUploadCommand({ ...upload, UploadId, MultipartUpload }));
  expect(await text(second.client, upload)).toBe('in parts');
  const third = await second.client.send(new PutObjectCommand({ ...at, Body: 'third' }));
  const { Versions } = await second.client.send(new ListObjectVersionsCommand({ Bucket: BUCKET, Prefix: '../' }));
  expect(Versions?.[0]?.VersionId).toBe(third.VersionId);
  expect(new Set(Versions?.map(({ VersionId }) => VersionId)).size).toBe(3);
  second.s3.close();
});

test('deletes bodies without metadata: replaced, deleted, refused, or left by a crash', async () => {
  const dir = folder();
  const bodies = () => readdirSync(join(dir, 'bodies'));
  const { s3, client } = open(dir);
  s3.createBucket(BUCKET);
  const at = { Bucket: BUCKET, Key: 'k' };
  await client.send(new PutObjectCommand({ ...at, Body: 'first' }));
  await client.send(new PutObjectCommand({ ...at, Body: 'second' }));
  await refusal(client.send(new PutObjectCommand({ ...at, Body: 'third', IfNoneMatch: '*' })));
  await refusal(client.send(new PutObjectCommand({ ...at, Body: 'fourth', ChecksumCRC32: 'AAAAAA==' })));
  expect(bodies()).toHaveLength(1);
  await client.send(new PutObjectCommand({ ...at, Key: 'gone', Body: 'x' }));
  await client.send(new DeleteObjectCommand({ ...at, Key: 'gone' }));
  expect(bodies()).toHaveLength(1);
  s3.close();

  writeFileSync(join(dir, 'bodies', 'half'), 'an upload under way');
  const again = open(dir);
  expect(bodies()).toHaveLength(1);
  expect(await text(again.client, at)).toBe('second');
  again.s3.close();
});

test('a read continues to its end after the object is replaced and deleted', async () => {
  const dir = folder();
  const { s3, client } = open(dir);
  s3.createBucket(BUCKET);
  const at = { Bucket: BUCKET, Key: 'k' };
  // Two parts: the second one's file is opened only after the first has been read.
  const parts = [Buffer.alloc(5 * 1024 ** 2, 'old '), Buffer.from('end')];
  const old = Buffer.concat(parts);
  const { UploadId } = await client.send(new CreateMultipartUploadCommand(at));
  const Parts = [];
  for (const [index, Body] of parts.entries()) {
    const { ETag } = await client.send(new UploadPartCommand({ ...at, UploadId, PartNumber: index + 1, Body }));
    Parts.push({ PartNumber: index + 1, ETag });
  }
  await client.send(new CompleteMultipartUploadCommand({ ...at, UploadId, MultipartUpload: { Parts } }));
  const { Body } = await client.send(new GetObjectCommand(at));
  const unread = await client.send(new GetObjectCommand(at));
  await client.send(new PutObjectCommand({ ...at, Body: 'new' }));
  await client.send(new DeleteObjectCommand(at));
  expect(Buffer.compare((await Body?.transformToByteArray()) ?? Buffer.of(), old)).toBe(0);
  const given = unread.Body as unknown as { destroy(): void; once(event: 'close', then: () => void): void };
  await new Promise<void>((resolve) => {
    given.once('close', resolve);
    given.destroy();
  });
  await expect.poll(() => readdirSync(join(dir, 'bodies'))).toEqual([]);
  s3.close();
});

test('a folder has one owner at a time', () => {
  const dir = folder();
  const { s3 } = open(dir);
  s3.createBucket(BUCKET);
  expect(() => new EmbeddedS3({ dir })).toThrow('locked');
  s3.close();
});

test('a folder of version 0.1.0, which had no tags, is opened with its objects', async () => {
  const dir = folder();
  const first = open(dir);
  first.s3.createBucket(BUCKET);
  const at = { Bucket: BUCKET, Key: 'k' };
  await first.client.send(new PutObjectCommand({ ...at, Body: 'old' }));
  const { UploadId } = await first.client.send(new CreateMultipartUploadCommand({ ...at, Key: 'parts' }));
  first.s3.close();
  const database = new DatabaseSync(join(dir, 'catalog.sqlite'));
  database.exec(`ALTER TABLE versions DROP COLUMN tags; ALTER TABLE uploads DROP COLUMN tags;
    ALTER TABLE buckets DROP COLUMN notification; ALTER TABLE buckets DROP COLUMN tags; PRAGMA user_version = 0`);
  database.close();

  const second = open(dir);
  expect(await text(second.client, at)).toBe('old');
  const Tagging = { TagSet: [{ Key: 'a', Value: '1' }] };
  await second.client.send(new PutObjectTaggingCommand({ ...at, Tagging }));
  const part = { ...at, Key: 'parts', UploadId, PartNumber: 1, Body: 'in parts' };
  const { ETag } = await second.client.send(new UploadPartCommand(part));
  const MultipartUpload = { Parts: [{ PartNumber: 1, ETag }] };
  await second.client.send(new CompleteMultipartUploadCommand({ ...at, Key: 'parts', UploadId, MultipartUpload }));
  second.s3.close();

  const third = open(dir);
  expect((await third.client.send(new GetObjectTaggingCommand(at))).TagSet).toEqual(Tagging.TagSet);
  third.s3.close();
});
