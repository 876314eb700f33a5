import {
  CopyObjectCommand,
  DeleteObjectTaggingCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  PutObjectTaggingCommand,
} from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { complete, head, put, refusal, uploadParts } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

/** The tags of an object, with the number of tags that a HEAD and a GET tell. */
async function tagsOf({ client, Bucket, Key }: Given, VersionId?: string) {
  const { TagSet } = await client.send(new GetObjectTaggingCommand({ Bucket, Key, VersionId }));
  const got = await client.send(new GetObjectCommand({ Bucket, Key, VersionId }));
  await got.Body?.transformToString();
  expect(got.TagCount ?? 0).toBe(TagSet?.length);
  return Object.fromEntries((TagSet ?? []).map((tag) => [tag.Key, tag.Value]));
}

function setTags({ client, Bucket, Key }: Given, tags: Readonly<Record<string, string>>, VersionId?: string) {
  const TagSet = Object.entries(tags).map(([name, Value]) => ({ Key: name, Value }));
  return client.send(new PutObjectTaggingCommand({ Bucket, Key, VersionId, Tagging: { TagSet } }));
}

const TAGS = { 'a b': 'c+d=e', Käse: '', '1.2_3:4/5@6-7': 'x' };
const AS_QUERY = 'a+b=c%2Bd%3De&K%C3%A4se=&1.2_3%3A4%2F5%406-7=x';

behaviour('tags are put, replaced and removed, and the object stays the same', 'any', async (given) => {
  await put(given, 'first', { Metadata: { a: '1' } });
  const before = await head(given);
  expect(await tagsOf(given)).toEqual({});
  await setTags(given, { old: '1' });
  await setTags(given, TAGS);
  expect(await tagsOf(given)).toEqual(TAGS);
  const { client, Bucket, Key } = given;
  await client.send(new DeleteObjectTaggingCommand({ Bucket, Key }));
  expect(await tagsOf(given)).toEqual({});
  const { $metadata: _, ...after } = await head(given);
  expect(before).toMatchObject(after);
});

behaviour('an upload at once or in parts brings its tags', 'any', async (given) => {
  await put(given, 'first', { Tagging: AS_QUERY });
  expect(await tagsOf(given)).toEqual(TAGS);
  await put(given, 'second');
  expect(await tagsOf(given)).toEqual({});
  await complete(given, await uploadParts(given, ['third'], { Tagging: AS_QUERY }));
  expect(await tagsOf(given)).toEqual(TAGS);
});

behaviour('a copy has the tags of its source, or those of the request', 'any', async (given) => {
  const { client, Bucket, Key } = given;
  await put(given, 'first', { Tagging: AS_QUERY });
  const copy = (more: object) =>
    client.send(new CopyObjectCommand({ Bucket, Key: `${Key}-copy`, CopySource: `${Bucket}/${Key}`, ...more }));
  const copied = { ...given, Key: `${Key}-copy` };
  await copy({ MetadataDirective: 'REPLACE', Metadata: { a: '1' } });
  expect(await tagsOf(copied)).toEqual(TAGS);
  await copy({ TaggingDirective: 'REPLACE', Tagging: 'b=2' });
  expect(await tagsOf(copied)).toEqual({ b: '2' });
  await copy({ TaggingDirective: 'REPLACE' });
  expect(await tagsOf(copied)).toEqual({});
});

behaviour('each version has tags of its own', 'Enabled', async (given) => {
  const { VersionId } = await put(given, 'first', { Tagging: 'a=1' });
  const second = await put(given, 'second');
  expect(await setTags(given, { a: '2' }, VersionId)).toMatchObject({ VersionId });
  expect(await setTags(given, { b: '3' })).toMatchObject({ VersionId: second.VersionId });
  expect(await tagsOf(given, VersionId)).toEqual({ a: '2' });
  expect(await tagsOf(given)).toEqual({ b: '3' });
});

const numbered = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${n}`, 'v']));

behaviour('tags that S3 does not allow are refused, and nothing is changed', 'any', async (given) => {
  await put(given, 'first', { Tagging: 'a=1' });
  const cases: [Record<string, string>, string][] = [
    [numbered(11), '400 BadRequest'],
    [{ '': 'v' }, '400 InvalidTag'],
    [{ ['k'.repeat(129)]: 'v' }, '400 InvalidTag'],
    [{ k: 'v'.repeat(257) }, '400 InvalidTag'],
    [{ 'k*': 'v' }, '400 InvalidTag'],
    [{ k: 'v\n' }, '400 InvalidTag'],
    [{ 'aws:k': 'v' }, '400 InvalidTag'],
  ];
  for (const [tags, outcome] of cases) {
    expect(await refusal(setTags(given, tags)), JSON.stringify(tags)).toBe(outcome);
    const Tagging = new URLSearchParams(tags).toString();
    expect(await refusal(put(given, 'second', { Tagging })), Tagging).toBe(outcome);
  }
  expect(await refusal(put(given, 'second', { Tagging: 'a=1&a=2' }))).toBe('400 InvalidArgument');
  expect(await tagsOf(given)).toEqual({ a: '1' });
  await setTags(given, { ...numbered(9), ['k'.repeat(128)]: 'v'.repeat(256) });
});

behaviour('an absent object has no tags', 'any', async (given) => {
  expect(await refusal(tagsOf(given))).toBe('404 NoSuchKey');
  expect(await refusal(setTags(given, { a: '1' }))).toBe('404 NoSuchKey');
});
