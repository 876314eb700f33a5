import { GetBucketVersioningCommand } from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { complete, head, put, read, refusal, remove, uploadParts } from '../support/s3-calls.ts';
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

behaviour('a DELETE or a completion with If-Match changes only the object of that ETag', 'any', async (given) => {
  const first = await put(given, 'first');
  await complete(given, await uploadParts(given, ['second']), { IfMatch: first.ETag });
  expect(await read(given)).toBe('second');
  const late = await uploadParts(given, ['third']);
  expect(await refusal(complete(given, late, { IfMatch: first.ETag }))).toMatch(/^412 /);
  expect(await refusal(remove(given, { IfMatch: first.ETag }))).toBe('412 PreconditionFailed');
  const { ETag } = await head(given);
  await remove(given, { IfMatch: ETag });
  expect(await refusal(remove(given, { IfMatch: ETag }))).toMatch(/^404 /);
});

for (const [kind, status] of [
  ['unversioned', undefined],
  ['Enabled', 'Enabled'],
  ['Suspended', 'Suspended'],
] as const) {
  behaviour(`a bucket says that its versioning is ${status ?? 'off'}`, kind, async ({ client, Bucket }) => {
    expect((await client.send(new GetBucketVersioningCommand({ Bucket }))).Status).toBe(status);
  });
}
