import {
  CopyObjectCommand,
  DeleteObjectTaggingCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  PutObjectTaggingCommand,
} from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { complete, head, put, refusal, remove, uploadParts } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

async function tagsOf({ client, Bucket, Key }: Given, VersionId?: string): Promise<string[]> {
  const { TagSet = [] } = await client.send(new GetObjectTaggingCommand({ Bucket, Key, VersionId }));
  return TagSet.map(({ Key: key, Value }) => `${key}=${Value}`).toSorted();
}

function tag({ client, Bucket, Key }: Given, tags: Readonly<Record<string, string>>, VersionId?: string) {
  return tagAll({ client, Bucket, Key }, Object.entries(tags), VersionId);
}

function tagAll({ client, Bucket, Key }: Given, tags: readonly (readonly [string, string])[], VersionId?: string) {
  const TagSet = tags.map(([key, Value]) => ({ Key: key, Value }));
  return client.send(new PutObjectTaggingCommand({ Bucket, Key, VersionId, Tagging: { TagSet } }));
}

behaviour('tags are put, replaced as a whole and deleted', 'any', async (given) => {
  await put(given, 'body');
  expect(await tagsOf(given)).toEqual([]);
  await tag(given, { a: '1', 'b c': 'd+e' });
  expect(await tagsOf(given)).toEqual(['a=1', 'b c=d+e']);
  await tag(given, { z: '' });
  expect(await tagsOf(given)).toEqual(['z=']);
  const { $metadata } = await given.client.send(new DeleteObjectTaggingCommand(given));
  expect($metadata.httpStatusCode).toBe(204);
  expect(await tagsOf(given)).toEqual([]);
});

behaviour('tags of an object change neither its ETag nor its time', 'any', async (given) => {
  await put(given, 'body');
  const before = await head(given);
  await tag(given, { a: '1' });
  const after = await head(given);
  expect([after.ETag, after.LastModified]).toEqual([before.ETag, before.LastModified]);
});

behaviour('a PUT brings its tags in a header', 'any', async (given) => {
  await put(given, 'body', { Tagging: 'a=1&b+c=d%2Be&empty=&bare&&' });
  expect(await tagsOf(given)).toEqual(['a=1', 'b c=d+e', 'bare=', 'empty=']);
});

behaviour('GET and HEAD answer the number of tags if there are any', 'any', async (given) => {
  await put(given, 'body', { Tagging: 'a=1&b=2' });
  expect((await head(given)).TagCount).toBe(2);
  const got = await given.client.send(new GetObjectCommand(given));
  await got.Body?.transformToString();
  expect(got.TagCount).toBe(2);
  await put(given, 'without tags');
  expect(await tagsOf(given)).toEqual([]);
  expect((await head(given)).TagCount).toBeUndefined();
});

behaviour('a multipart upload has the tags with which it was initiated', 'any', async (given) => {
  await complete(given, await uploadParts(given, ['in parts'], { Tagging: 'a=1' }));
  expect(await tagsOf(given)).toEqual(['a=1']);
});

behaviour('a copy has the tags of its source, or those in the request', 'any', async (given) => {
  const { client, Bucket, Key } = given;
  await put(given, 'body', { Tagging: 'a=1' });
  const copy = (more: object) =>
    client.send(new CopyObjectCommand({ Bucket, Key: `${Key}-copy`, CopySource: `${Bucket}/${Key}`, ...more }));
  const copied = { ...given, Key: `${Key}-copy` };
  await copy({});
  expect(await tagsOf(copied)).toEqual(['a=1']);
  await copy({ TaggingDirective: 'REPLACE', Tagging: 'b=2' });
  expect(await tagsOf(copied)).toEqual(['b=2']);
  await copy({ TaggingDirective: 'REPLACE' });
  expect(await tagsOf(copied)).toEqual([]);
  expect(await refusal(copy({ TaggingDirective: 'MERGE' }))).toBe('400 InvalidArgument');
});

behaviour('every version has tags of its own', 'Enabled', async (given) => {
  const { VersionId: first } = await put(given, 'first', { Tagging: 'a=1' });
  const { VersionId: second } = await put(given, 'second');
  expect((await tag(given, { b: '2' })).VersionId).toBe(second);
  await tag(given, { c: '3' }, first);
  expect(await tagsOf(given, first)).toEqual(['c=3']);
  expect(await tagsOf(given, second)).toEqual(['b=2']);
  const deleted = await given.client.send(new DeleteObjectTaggingCommand({ ...given, VersionId: first }));
  expect(deleted.VersionId).toBe(first);
  expect([await tagsOf(given, first), await tagsOf(given)]).toEqual([[], ['b=2']]);
});

behaviour('an absent object has no tags, and neither has a delete marker', 'Enabled', async (given) => {
  expect(await refusal(tagsOf(given))).toBe('404 NoSuchKey');
  expect(await refusal(tag(given, { a: '1' }))).toBe('404 NoSuchKey');
  await put(given, 'body');
  const { VersionId } = await remove(given);
  expect(await refusal(tagsOf(given))).toBe('405 MethodNotAllowed');
  expect(await refusal(tag(given, { a: '1' }, VersionId))).toBe('405 MethodNotAllowed');
});

behaviour('an object has at most ten tags', 'any', async (given) => {
  await put(given, 'body');
  const tags = Array.from({ length: 11 }, (_, n): [string, string] => [`tag-${n}`, '']);
  await tagAll(given, tags.slice(1));
  expect(await refusal(tagAll(given, tags))).toBe('400 BadRequest');
  const Tagging = tags.map(([name]) => name).join('&');
  expect(await refusal(put(given, 'body', { Tagging }))).toBe('400 BadRequest');
  expect(await tagsOf(given)).toHaveLength(10);
});

behaviour('a tag has a key of 1 to 128 characters and a value of up to 256', 'any', async (given) => {
  await put(given, 'body');
  await tag(given, { ['k'.repeat(128)]: 'v'.repeat(256) });
  for (const [key, value] of [
    ['k'.repeat(129), ''],
    ['', 'v'],
    ['k', 'v'.repeat(257)],
  ] as const) {
    expect(await refusal(tag(given, { [key]: value }))).toBe('400 InvalidTag');
  }
  const Tagging = `${'k'.repeat(129)}=`;
  expect(await refusal(put(given, 'body', { Tagging }))).toBe('400 InvalidTag');
});

behaviour('a tag consists of letters, digits, spaces and some other characters', 'any', async (given) => {
  await put(given, 'body');
  await tag(given, { 'aZ9 +-=._:/@é': 'Ж 漢' });
  expect(await tagsOf(given)).toEqual(['aZ9 +-=._:/@é=Ж 漢']);
  for (const [key, value] of [
    ['a#b', ''],
    ['a', 'b,c'],
    ['aws:a', ''],
  ] as const) {
    expect(await refusal(tag(given, { [key]: value }))).toBe('400 InvalidTag');
  }
});

behaviour('a key of a tag appears once', 'any', async (given) => {
  await put(given, 'body');
  const twice = ['1', '2'].map((value) => ['a', value] as const);
  expect(await refusal(tagAll(given, twice))).toBe('400 InvalidTag');
  for (const Tagging of ['a=1&a=2', 'a=b=c', 'a=%ff']) {
    expect(await refusal(put(given, 'body', { Tagging }))).toBe('400 InvalidArgument');
  }
});
