import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import {
  GetObjectCommand,
  GetObjectTaggingCommand,
  ListObjectVersionsCommand,
  PutObjectTaggingCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { expect, test } from 'vitest';
import { s3RequestHandler } from '../../../../local/aws/s3/request-handler.ts';
import { EmbeddedS3 } from '../../../../local/aws/s3/s3.ts';
import { temporaryFolder } from '../../../support/folder.ts';
import {
  complete,
  head,
  type Place,
  put,
  read,
  refusal,
  remove,
  uploadPart,
  uploadParts,
} from '../../../support/s3-calls.ts';
import { BUCKET, CREDENTIALS } from './support.ts';

function open(dir: string, Key = 'k'): { s3: EmbeddedS3; at: Place } {
  const s3 = new EmbeddedS3({ dir });
  const client = new S3Client({ requestHandler: s3RequestHandler(s3), region: 'us-east-1', credentials: CREDENTIALS });
  return { s3, at: { client, Bucket: BUCKET, Key } };
}

test('buckets, versions, metadata and unfinished uploads survive a restart', async () => {
  const dir = join(await temporaryFolder(), 'made', 'if absent');
  const Key = '../a//😀\n';
  const first = open(dir, Key);
  first.s3.createBucket(BUCKET, { versioning: 'Enabled' });
  const { VersionId } = await put(first.at, 'first', { Metadata: { m: '1' } });
  await put(first.at, 'second');
  const uploaded = await uploadParts({ ...first.at, Key: 'parts' }, ['in parts']);
  first.s3.close();

  const { s3, at } = open(dir, Key);
  expect(() => s3.createBucket(BUCKET)).toThrow('you already own it');
  expect(await read(at)).toBe('second');
  expect(await read(at, VersionId)).toBe('first');
  expect((await head(at, { VersionId })).Metadata).toEqual({ m: '1' });
  const inParts = { ...at, Key: 'parts' };
  await complete(inParts, uploaded);
  expect(await read(inParts)).toBe('in parts');
  const third = await put(at, 'third');
  const { Versions } = await at.client.send(new ListObjectVersionsCommand({ Bucket: BUCKET, Prefix: '../' }));
  expect(Versions?.[0]?.VersionId).toBe(third.VersionId);
  expect(new Set(Versions?.map(({ VersionId }) => VersionId)).size).toBe(3);
  s3.close();
});

test('deletes bodies without metadata: replaced, deleted, refused, or left by a crash', async () => {
  const dir = await temporaryFolder();
  const bodies = () => readdirSync(join(dir, 'bodies'));
  const { s3, at } = open(dir);
  s3.createBucket(BUCKET);
  await put(at, 'first');
  await put(at, 'second');
  await refusal(put(at, 'third', { IfNoneMatch: '*' }));
  await refusal(put(at, 'fourth', { ChecksumCRC32: 'AAAAAA==' }));
  expect(bodies()).toHaveLength(1);
  await put({ ...at, Key: 'gone' }, 'x');
  await remove({ ...at, Key: 'gone' });
  expect(bodies()).toHaveLength(1);
  s3.close();

  writeFileSync(join(dir, 'bodies', 'half'), 'an upload under way');
  const again = open(dir);
  expect(bodies()).toHaveLength(1);
  expect(await read(again.at)).toBe('second');
  again.s3.close();
});

test('a read continues to its end after the object is replaced and deleted', async () => {
  const dir = await temporaryFolder();
  const { s3, at } = open(dir);
  s3.createBucket(BUCKET);
  // Two parts: the second one's file is opened only after the first has been read.
  const bodies = [Buffer.alloc(5 * 1024 ** 2, 'old '), Buffer.from('end')];
  await complete(at, await uploadParts(at, bodies));
  const { Body } = await at.client.send(new GetObjectCommand(at));
  const unread = await at.client.send(new GetObjectCommand(at));
  await put(at, 'new');
  await remove(at);
  expect(Buffer.compare((await Body?.transformToByteArray()) ?? Buffer.of(), Buffer.concat(bodies))).toBe(0);
  const given = unread.Body as unknown as { destroy(): void; once(event: 'close', then: () => void): void };
  await new Promise<void>((resolve) => {
    given.once('close', resolve);
    given.destroy();
  });
  await expect.poll(() => readdirSync(join(dir, 'bodies'))).toEqual([]);
  s3.close();
});

test('a folder has one owner at a time', async () => {
  const dir = await temporaryFolder();
  const { s3 } = open(dir);
  s3.createBucket(BUCKET);
  expect(() => new EmbeddedS3({ dir })).toThrow('locked');
  s3.close();
});

test('a folder of version 0.1.0, which had no tags, is opened with its objects', async () => {
  const dir = await temporaryFolder();
  const first = open(dir);
  first.s3.createBucket(BUCKET);
  await put(first.at, 'old');
  const { UploadId } = await uploadParts({ ...first.at, Key: 'parts' }, []);
  first.s3.close();
  const database = new DatabaseSync(join(dir, 'catalog.sqlite'));
  database.exec(`ALTER TABLE versions DROP COLUMN tags; ALTER TABLE uploads DROP COLUMN tags;
    ALTER TABLE buckets DROP COLUMN notification; ALTER TABLE buckets DROP COLUMN tags; PRAGMA user_version = 0`);
  database.close();

  const second = open(dir);
  expect(await read(second.at)).toBe('old');
  const Tagging = { TagSet: [{ Key: 'a', Value: '1' }] };
  await second.at.client.send(new PutObjectTaggingCommand({ ...second.at, Tagging }));
  const inParts = { ...second.at, Key: 'parts' };
  await complete(inParts, { UploadId, parts: [await uploadPart(inParts, UploadId, 1, 'in parts')] });
  second.s3.close();

  const { s3, at } = open(dir);
  expect((await at.client.send(new GetObjectTaggingCommand(at))).TagSet).toEqual(Tagging.TagSet);
  s3.close();
});
