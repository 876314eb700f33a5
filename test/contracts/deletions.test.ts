import { DeleteObjectsCommand, type ObjectIdentifier } from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { list, put, read, refusal, remove } from '../support/s3-calls.ts';
import { behaviour, type Given } from './support.ts';

const OBJECTS_MAX = 1000;

function removeAll({ client, Bucket }: Given, Objects: ObjectIdentifier[], Quiet?: boolean) {
  return client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects, Quiet } }));
}

behaviour('a deletion of many objects deletes each, and one that is absent counts as deleted', 'any', async (given) => {
  const keys = ['a', 'b c+é', '<&>"\'', ' line\r\n end ', '😀'].map((name) => `${given.Key}/${name}`);
  for (const Key of keys) await put({ ...given, Key }, 'x');
  await put({ ...given, Key: `${given.Key}/ line\r\n end` }, 'stays');
  const all = [...keys, `${given.Key}/absent`];
  const { Deleted, Errors } = await removeAll(
    given,
    all.map((Key) => ({ Key })),
  );
  expect(Errors).toBeUndefined();
  expect(Deleted?.map(({ Key }) => Key)).toEqual(all);
  const left = await list(given, { Prefix: `${given.Key}/`, EncodingType: 'url' });
  expect(left.map(decodeURIComponent).join()).toContain('line');
  expect(left).toHaveLength(1);
});

behaviour('a quiet deletion of many objects names only those that failed', 'any', async (given) => {
  await put(given, 'first');
  const absent = { Key: `${given.Key}-other`, ETag: '"5d41402abc4b2a76b9719d911017c592"' };
  await put({ ...given, Key: absent.Key }, 'not hello');
  const { Deleted, Errors } = await removeAll(given, [{ Key: given.Key }, absent], true);
  expect(Deleted).toBeUndefined();
  expect(Errors).toMatchObject([{ Key: absent.Key, Code: 'PreconditionFailed' }]);
  expect(await read({ ...given, Key: absent.Key })).toBe('not hello');
  expect(await refusal(read(given))).toBe('404 NoSuchKey');
});

behaviour(
  'a deletion of many objects puts markers, and removes versions and markers by name',
  'Enabled',
  async (given) => {
    const { Key } = given;
    const { VersionId } = await put(given, 'first');
    const second = await put(given, 'second');
    const [marked] = (await removeAll(given, [{ Key }])).Deleted ?? [];
    expect(marked).toMatchObject({ Key, DeleteMarker: true });
    expect(marked?.VersionId).toBeUndefined();
    const marker = marked?.DeleteMarkerVersionId;
    const { Deleted } = await removeAll(given, [
      { Key, VersionId: marker },
      { Key, VersionId: second.VersionId },
    ]);
    expect(Deleted).toEqual([
      { Key, VersionId: marker, DeleteMarker: true, DeleteMarkerVersionId: marker },
      { Key, VersionId: second.VersionId },
    ]);
    expect(await read(given)).toBe('first');
    expect(await read(given, VersionId)).toBe('first');
  },
);

behaviour(`a deletion names from one to ${OBJECTS_MAX} objects`, 'any', async (given) => {
  await put(given, 'first');
  const many = Array.from({ length: OBJECTS_MAX }, (_, n) => ({ Key: `${given.Key}/&<${n}>` }));
  expect(await refusal(removeAll(given, [...many, { Key: given.Key }]))).toBe('400 MalformedXML');
  expect(await refusal(removeAll(given, []))).toBe('400 MalformedXML');
  expect(await read(given)).toBe('first');
  const { Deleted } = await removeAll(given, [...many.slice(1), { Key: given.Key }]);
  expect(Deleted).toHaveLength(OBJECTS_MAX);
  expect(await refusal(read(given))).toBe('404 NoSuchKey');
});

behaviour('an object of another ETag stays', 'any', async (given) => {
  const { ETag } = await put(given, 'first');
  await put(given, 'second');
  expect(await refusal(remove(given, { IfMatch: ETag }))).toBe('412 PreconditionFailed');
  const { Errors } = await removeAll(given, [{ Key: given.Key, ETag }]);
  expect(Errors).toMatchObject([{ Code: 'PreconditionFailed' }]);
  expect(await read(given)).toBe('second');
});
