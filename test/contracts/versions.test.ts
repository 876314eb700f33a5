import { DeleteObjectsCommand } from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { list, put, read, refusal, remove } from '../support/s3-calls.ts';
import { behaviour } from './support.ts';

behaviour('deleting the newest version restores the version before it', 'Enabled', async (given) => {
  await put(given, 'first');
  const { VersionId: second } = await put(given, 'second');
  const { VersionId: marker } = await remove(given);
  expect(await refusal(read(given))).toBe('404 NoSuchKey');
  const undone = await remove(given, { VersionId: marker });
  expect(undone).toMatchObject({ DeleteMarker: true, VersionId: marker });
  expect(await read(given)).toBe('second');
  await remove(given, { VersionId: second });
  expect(await read(given)).toBe('first');
});

behaviour('a delete marker replaces the null version where versioning is suspended', 'Suspended', async (given) => {
  expect((await put(given, 'first')).VersionId).toBe('null');
  const deleted = await remove(given);
  expect(deleted).toMatchObject({ VersionId: 'null', DeleteMarker: true });
  expect(await refusal(read(given, 'null'))).toBe('405 MethodNotAllowed');
});

behaviour('a version id that S3 cannot have issued is refused', 'any', async (given) => {
  await put(given, 'body');
  expect(await refusal(read(given, 'nonsense'))).toBe('400 InvalidArgument');
});

behaviour('DELETE with If-Match: * deletes any object, and answers 412 without one', 'any', async (given) => {
  expect(await refusal(remove(given, { IfMatch: '*' }))).toBe('412 PreconditionFailed');
  await put(given, 'body');
  await remove(given, { IfMatch: '*' });
  expect(await list(given, { Prefix: given.Key })).toEqual([]);
});

behaviour('one request deletes many objects, each with its own result', 'Enabled', async (given) => {
  const { client, Bucket } = given;
  const [a, odd, absent] = ['a', ' b&<\r\n ', 'absent'].map((name) => `${given.Key}/${name}`) as [
    string,
    string,
    string,
  ];
  for (const Key of [a, odd]) await put({ ...given, Key }, Key);
  const removeAll = (Objects: { Key: string; ETag?: string; VersionId?: string }[], Quiet = false) =>
    client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects, Quiet } }));
  const mixed = [{ Key: a }, { Key: odd, ETag: '"x"' }, { Key: absent, VersionId: 'nonsense' }];
  const { Deleted, Errors } = await removeAll(mixed);
  const DeleteMarkerVersionId = expect.stringMatching(/^\S{8,}$/);
  expect(Deleted).toEqual([{ Key: a, DeleteMarker: true, DeleteMarkerVersionId }]);
  expect(Errors?.map(({ Key, Code }) => [Key, Code])).toEqual([
    [odd, 'PreconditionFailed'],
    [absent, expect.stringMatching(/^(?:InvalidArgument|NoSuchVersion)$/)],
  ]);
  const quiet = await removeAll([{ Key: odd }, { Key: a, ETag: '"x"' }], true);
  expect([quiet.Deleted, quiet.Errors?.map(({ Key }) => Key)]).toEqual([undefined, [a]]);
  expect(await list(given, { Prefix: given.Key })).toEqual([]);
});

behaviour(
  'the result of a deleted version names it, and says whether it was a delete marker',
  'Enabled',
  async (given) => {
    const { client, Bucket, Key } = given;
    const { VersionId } = await put(given, 'body');
    const { VersionId: marker } = await remove(given);
    const Objects = [
      { Key, VersionId: marker },
      { Key, VersionId },
    ];
    const { Deleted } = await client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects } }));
    expect(Deleted).toEqual([
      { Key, VersionId: marker, DeleteMarker: true, DeleteMarkerVersionId: marker },
      { Key, VersionId },
    ]);
  },
);
