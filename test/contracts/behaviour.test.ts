import {
  AbortMultipartUploadCommand,
  CopyObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { presignedGet } from '../../functions/s3/objects.ts';
import { eventBridgeEvent, testEvent } from '../../local/aws/s3/events.ts';
import { complete, head, list, put, read, refusal, refused, remove, uploadParts } from '../support/s3-calls.ts';
import { behaviour, type Given, target } from './support.ts';
import type { BucketKind } from './target.ts';

const RACERS = 10;
const MIB = 1024 ** 2;

/** The names of the errors of racing writers. A writer that won has none. */
async function race(writers: readonly Promise<unknown>[]): Promise<string[]> {
  const results = await Promise.allSettled(writers);
  return results.flatMap((result) => (result.status === 'rejected' ? [(result.reason as Error).name] : []));
}

const LOST = /^(?:PreconditionFailed|ConditionalRequestConflict)$/;

describe('conditional writes', () => {
  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('PUT with If-None-Match: * creates an object that is absent', 'any', async (given) => {
    await put(given, 'first', { IfNoneMatch: '*' });
    expect(await read(given)).toBe('first');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('PUT with If-None-Match: * answers 412 where there is an object, and leaves it', 'any', async (given) => {
    await put(given, 'first');
    expect(await refusal(put(given, 'second', { IfNoneMatch: '*' }))).toBe('412 PreconditionFailed');
    expect(await read(given)).toBe('first');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('PUT with If-Match of the current ETag replaces the object', 'any', async (given) => {
    const { ETag } = await put(given, 'first');
    await put(given, 'second', { IfMatch: ETag });
    expect(await read(given)).toBe('second');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('PUT with If-Match of an older ETag answers 412, and leaves the object', 'any', async (given) => {
    const { ETag } = await put(given, 'first');
    await put(given, 'second');
    expect(await refusal(put(given, 'third', { IfMatch: ETag }))).toBe('412 PreconditionFailed');
    expect(await read(given)).toBe('second');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('PUT with If-Match answers 404 where there is no object', 'any', async (given) => {
    const { ETag } = await put(given, 'first');
    await remove(given);
    expect(await refusal(put(given, 'second', { IfMatch: ETag }))).toBe('404 NoSuchKey');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('of racing PUTs with If-None-Match: * exactly one succeeds', 'any', async (given) => {
    const writers = Array.from({ length: RACERS }, (_, writer) => put(given, `by ${writer}`, { IfNoneMatch: '*' }));
    const errors = await race(writers);
    expect(errors).toHaveLength(RACERS - 1);
    expect(errors.every((name) => LOST.test(name))).toBe(true);
    expect(await read(given)).toMatch(/^by \d$/);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('of racing PUTs with If-Match of one ETag exactly one succeeds', 'any', async (given) => {
    const { ETag } = await put(given, 'first');
    const errors = await race(Array.from({ length: RACERS }, (_, n) => put(given, `by ${n}`, { IfMatch: ETag })));
    expect(errors).toHaveLength(RACERS - 1);
    expect(errors.every((name) => LOST.test(name))).toBe(true);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html
  test('a conditional PUT can answer 409, and succeeds when it is sent again', async ({ skip }) => {
    const bucket = target.bucket('any');
    if (target.provokeConflict === undefined || 'missing' in bucket) {
      return skip('a conflict cannot be provoked in a bucket; the racing PUTs accept one');
    }
    const given = { client: target.client, Bucket: bucket.name, Key: `${target.prefix}conflict` };
    target.provokeConflict();
    expect(await refusal(put(given, 'first', { IfNoneMatch: '*' }))).toBe('409 ConditionalRequestConflict');
    await put(given, 'first', { IfNoneMatch: '*' });
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
  behaviour('PUT with If-None-Match: * takes a delete marker for absence', 'Enabled', async (given) => {
    const { ETag } = await put(given, 'first');
    await remove(given);
    expect(await refusal(put(given, 'second', { IfMatch: ETag }))).toMatch(/^404 /);
    await put(given, 'second', { IfNoneMatch: '*' });
    expect(await read(given)).toBe('second');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
  behaviour(
    'completing a multipart upload with If-None-Match: * answers 412 where there is an object',
    'any',
    async (given) => {
      await put(given, 'first');
      const uploaded = await uploadParts(given, ['second']);
      expect(await refusal(complete(given, uploaded, { IfNoneMatch: '*' }))).toBe('412 PreconditionFailed');
      expect(await read(given)).toBe('first');
    },
  );

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
  behaviour(
    'completing a multipart upload with If-None-Match: * creates an object that is absent',
    'any',
    async (given) => {
      await complete(given, await uploadParts(given, ['first']), { IfNoneMatch: '*' });
      expect(await read(given)).toBe('first');
    },
  );
});

describe('deleting', () => {
  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObject.html
  behaviour('DELETE of an object that is absent succeeds', 'any', async (given) => {
    const { $metadata } = await remove(given);
    expect($metadata.httpStatusCode).toBe(204);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/DeleteMarker.html
  behaviour('DELETE puts a delete marker, and the version below it can still be read', 'Enabled', async (given) => {
    const { VersionId } = await put(given, 'first');
    const deleted = await remove(given);
    expect(deleted.DeleteMarker).toBe(true);
    expect(deleted.VersionId).not.toBe(VersionId);
    expect((await refused(read(given))).$response?.headers).toMatchObject({ 'x-amz-delete-marker': 'true' });
    expect(await read(given, VersionId)).toBe('first');
  });
});

describe('consistency', () => {
  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel
  behaviour('a read after a write, an overwrite or a deletion sees it', 'any', async (given) => {
    expect(await refusal(read(given))).toBe('404 NoSuchKey');
    await put(given, 'first');
    expect(await read(given)).toBe('first');
    await put(given, 'second');
    expect(await read(given)).toBe('second');
    await remove(given);
    expect(await refusal(read(given))).toBe('404 NoSuchKey');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel
  behaviour('a listing after a write or a deletion shows it', 'any', async (given) => {
    await put(given, 'first');
    expect(await list(given, { Prefix: given.Key })).toEqual([given.Key]);
    await remove(given);
    expect(await list(given, { Prefix: given.Key })).toEqual([]);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel
  behaviour('a read that began before an overwrite gives the whole of the older object', 'any', async (given) => {
    const old = Buffer.alloc(8 * MIB, 'old ');
    await put(given, old);
    const { Body } = await given.client.send(new GetObjectCommand(given));
    await put(given, 'new');
    expect(Buffer.compare((await Body?.transformToByteArray()) ?? Buffer.alloc(0), old)).toBe(0);
    expect(await read(given)).toBe('new');
  });
});

describe('listing', () => {
  // U+FF5E comes before U+1F600 in UTF-8, and after it in UTF-16, where the latter is a surrogate pair.
  const IN_ORDER = ['A', 'a', 'a/b', 'b', 'z', 'é', '～', '😀'];

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/ListingKeysUsingAPIs.html
  behaviour('a listing is in the order of the bytes of the keys in UTF-8, across pages', 'any', async (given) => {
    const prefix = `${given.Key}/`;
    for (const name of IN_ORDER.toReversed()) await put({ ...given, Key: prefix + name }, name);
    const seen: string[] = [];
    let ContinuationToken: string | undefined;
    do {
      const page = await given.client.send(
        new ListObjectsV2Command({ Bucket: given.Bucket, Prefix: prefix, MaxKeys: 3, ContinuationToken }),
      );
      expect(page.Contents?.length).toBeLessThanOrEqual(3);
      seen.push(...(page.Contents ?? []).map(({ Key }) => (Key ?? '').slice(prefix.length)));
      ContinuationToken = page.NextContinuationToken;
    } while (ContinuationToken !== undefined);
    expect(seen).toEqual(IN_ORDER);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
  behaviour('start-after begins after a key, whether or not there is such a key', 'any', async (given) => {
    const prefix = `${given.Key}/`;
    for (const name of ['a', 'c', 'e']) await put({ ...given, Key: prefix + name }, name);
    expect(await list(given, { Prefix: prefix, StartAfter: `${prefix}a` })).toEqual([`${prefix}c`, `${prefix}e`]);
    expect(await list(given, { Prefix: prefix, StartAfter: `${prefix}d` })).toEqual([`${prefix}e`]);
    expect(await list(given, { Prefix: prefix, StartAfter: `${prefix}e` })).toEqual([]);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
  behaviour('a listing shows the ETag, size and time that a HEAD answers', 'any', async (given) => {
    await put(given, 'first');
    const facts = await head(given);
    const { Contents } = await given.client.send(new ListObjectsV2Command({ Bucket: given.Bucket, Prefix: given.Key }));
    expect(Contents?.[0]).toMatchObject({ ETag: facts.ETag, Size: 5, LastModified: facts.LastModified });
    expect(facts.ETag).toMatch(/^"[0-9a-f]{32}"$/);
    expect(facts.LastModified?.getMilliseconds()).toBe(0);
  });
});

describe('reading', () => {
  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
  behaviour('GET with If-Match answers 412 once the object has been replaced', 'any', async (given) => {
    const { ETag } = await put(given, 'first');
    const { Body } = await given.client.send(new GetObjectCommand({ ...given, IfMatch: ETag }));
    expect(await Body?.transformToString()).toBe('first');
    await put(given, 'second');
    expect(await refusal(given.client.send(new GetObjectCommand({ ...given, IfMatch: ETag })))).toBe(
      '412 PreconditionFailed',
    );
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/RetrievingObjectVersions.html
  behaviour('GET of a version gives that version after it was replaced', 'Enabled', async (given) => {
    const { VersionId } = await put(given, 'first');
    await put(given, 'second');
    expect(await read(given, VersionId)).toBe('first');
    expect(await read(given)).toBe('second');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
  behaviour(
    'a presigned GET of a version gives it with the media type that the address names',
    'Enabled',
    async (given) => {
      const { client, ...where } = given;
      const { VersionId = '' } = await put(given, 'first');
      await put(given, 'second');
      const ResponseContentType = 'text/plain; charset=utf-8';
      const object = { ...where, VersionId, ResponseContentType };
      const address = await presignedGet(client, object, { seconds: 60, now: Date.now() });
      // S3 signs a blank as %20, and does not say what it takes a plus for.
      expect(address).not.toContain('+');
      const answer = await fetch(address);
      expect([answer.headers.get('content-type'), await answer.text()]).toEqual([ResponseContentType, 'first']);
      const late = await presignedGet(client, object, { seconds: 60, now: Date.now() - 120_000 });
      expect((await fetch(late)).status).toBe(403);
    },
  );

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/DeleteMarker.html
  behaviour('GET of a version that is a delete marker answers 405', 'Enabled', async (given) => {
    await put(given, 'first');
    const { VersionId } = await remove(given);
    const refusing = read(given, VersionId);
    expect(await refusal(refusing)).toBe('405 MethodNotAllowed');
    expect((await refused(refusing)).$response?.headers).toMatchObject({ 'x-amz-delete-marker': 'true' });
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
  behaviour('GET of a version that was deleted answers 404', 'Enabled', async (given) => {
    const { VersionId } = await put(given, 'first');
    await remove(given, { VersionId });
    expect(await refusal(read(given, VersionId))).toBe('404 NoSuchVersion');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
  test('GET of a version that was deleted answers 403 or 404 to a caller without s3:ListBucket', async ({ skip }) => {
    const bucket = target.bucket('Enabled');
    const client = target.clientWithoutListBucket;
    if ('missing' in bucket) return skip(bucket.missing);
    if (client === undefined) return skip('it needs credentials without s3:ListBucket');
    const given = { client: target.client, Bucket: bucket.name, Key: `${target.prefix}deleted-version` };
    const { VersionId } = await put(given, 'first');
    await put(given, 'second');
    await remove(given, { VersionId });
    const answer = await refusal(read({ ...given, client }, VersionId));
    expect(['403 AccessDenied', '404 NoSuchVersion']).toContain(answer);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
  test('an absent object answers 403 to a caller without s3:ListBucket', async ({ skip }) => {
    const bucket = target.bucket('any');
    const client = target.clientWithoutListBucket;
    if (client === undefined || 'missing' in bucket) return skip('it needs credentials without s3:ListBucket');
    const given = { client, Bucket: bucket.name, Key: `${target.prefix}absent` };
    expect(await refusal(read(given))).toMatch(/^403 /);
    expect(await refusal(read({ ...given, client: target.client }))).toMatch(/^404 /);
  });
});

describe('versions', () => {
  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/Versioning.html
  behaviour('an object has no version id where versioning was never enabled', 'unversioned', async (given) => {
    expect((await put(given, 'first')).VersionId).toBeUndefined();
    expect((await head(given)).VersionId).toBeUndefined();
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/AddingObjectstoVersioningEnabledBuckets.html
  behaviour('every PUT has a version id of its own where versioning is enabled', 'Enabled', async (given) => {
    const [first, second] = [await put(given, 'same'), await put(given, 'same')];
    expect(first.VersionId).toMatch(/^\S{8,}$/);
    expect(second.VersionId).not.toBe(first.VersionId);
    expect(second.ETag).toBe(first.ETag);
    expect((await head(given)).VersionId).toBe(second.VersionId);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/AddingObjectstoVersionSuspendedBuckets.html
  behaviour(
    'the version id is null where versioning is suspended, and the next PUT replaces it',
    'Suspended',
    async (given) => {
      const { ETag } = await put(given, 'first');
      await put(given, 'second', { IfMatch: ETag });
      expect((await head(given)).VersionId).toBe('null');
      expect(await read(given, 'null')).toBe('second');
    },
  );
});

describe('uploads', () => {
  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html
  behaviour('LastModified of a multipart upload is when it was initiated', 'any', async (given) => {
    const uploaded = await uploadParts(given, ['in parts']);
    const between = { ...given, Key: `${given.Key}-between` };
    await put(between, 'at once');
    await target.passTime(3000);
    await complete(given, uploaded);
    const initiated = (await head(given)).LastModified;
    const later = (await head(between)).LastModified;
    expect(initiated?.getTime()).toBeLessThanOrEqual(later?.getTime() ?? 0);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
  behaviour('the ETag of a multipart upload ends with the number of its parts', 'any', async (given) => {
    const bodies = [Buffer.alloc(5 * MIB, 'a'), Buffer.from('the last may be small')];
    await complete(given, await uploadParts(given, bodies));
    const facts = await head(given);
    expect(facts.ETag).toMatch(/^"[0-9a-f]{32}-2"$/);
    expect(await read(given)).toBe(Buffer.concat(bodies).toString());
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
  behaviour('a multipart upload is invisible until it is completed', 'any', async (given) => {
    const uploaded = await uploadParts(given, ['in parts']);
    expect(await refusal(read(given))).toBe('404 NoSuchKey');
    expect(await list(given, { Prefix: given.Key })).toEqual([]);
    await complete(given, uploaded);
    expect(await list(given, { Prefix: given.Key })).toEqual([given.Key]);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_AbortMultipartUpload.html
  behaviour('an aborted multipart upload leaves nothing and cannot be completed', 'any', async (given) => {
    const uploaded = await uploadParts(given, ['in parts']);
    const { client, Bucket, Key } = given;
    await client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId: uploaded.UploadId }));
    expect(await refusal(complete(given, uploaded))).toBe('404 NoSuchUpload');
    expect(await refusal(read(given))).toBe('404 NoSuchKey');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
  behaviour('a body that does not match its checksum is refused and leaves nothing', 'any', async (given) => {
    expect(await refusal(put(given, 'first', { ChecksumCRC32: 'AAAAAA==' }))).toBe('400 BadDigest');
    expect(await refusal(read(given))).toBe('404 NoSuchKey');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
  behaviour('a key may have 1,024 bytes and no more', 'any', async (given) => {
    const longest = `${given.Key.padEnd(1022, 'k')}é`;
    await put({ ...given, Key: longest }, 'first');
    expect(await read({ ...given, Key: longest })).toBe('first');
    expect(await refusal(put({ ...given, Key: `${longest}k` }, 'first'))).toBe('400 KeyTooLongError');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
  behaviour('a key is taken as it is', 'any', async (given) => {
    for (const odd of ['/', '//b', ' +%20&?#', 'line\nend', '😀', 'dots..', '~!*()\'"<>']) {
      const Key = given.Key + odd;
      await put({ ...given, Key }, odd);
      expect(await read({ ...given, Key })).toBe(odd);
      const { Contents } = await given.client.send(
        new ListObjectsV2Command({ Bucket: given.Bucket, Prefix: Key, EncodingType: 'url', MaxKeys: 1 }),
      );
      expect(decodeURIComponent((Contents?.[0]?.Key ?? '').replaceAll('+', ' '))).toBe(Key);
    }
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html
  behaviour('names of user metadata come back in lower case, values in US-ASCII as they were', 'any', async (given) => {
    const Metadata = { 'Flow-Template': 'a b', title: `=?UTF-8?B?${Buffer.from('Käse').toString('base64')}?=` };
    await put(given, 'first', { Metadata });
    const facts = await head(given);
    expect(facts.Metadata?.['flow-template']).toBe('a b');
    // Other values are encoded by RFC 2047.
    expect(facts.Metadata?.title).toBe('=?UTF-8?B?S8Okc2U=?=');
  });
});

describe('events', () => {
  const NO_EVENTS = 'S3 sends its events to a queue or a bus, which a bucket alone does not have';

  async function eventOf(given: Given, act: () => Promise<unknown>) {
    const before = target.events?.length ?? 0;
    await act();
    const event = target.events?.slice(before).find(({ s3 }) => s3.bucket.name === given.Bucket);
    if (event === undefined) throw new Error('S3 sent no event for this bucket.');
    return event;
  }

  function eventBehaviour(name: string, kind: BucketKind, ask: (given: Given) => Promise<void>): void {
    test(name, async ({ skip }) => {
      const bucket = target.bucket(kind);
      if (target.events === undefined || 'missing' in bucket) return skip(NO_EVENTS);
      await ask({ client: target.client, Bucket: bucket.name, Key: `${target.prefix}event/ +%&é😀\n(1)~*.png` });
    });
  }

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
  eventBehaviour('the key in an S3 event is URL-encoded, its ETag without quotes', 'unversioned', async (given) => {
    const event = await eventOf(given, () => put(given, 'hello'));
    expect(event.eventName).toBe('ObjectCreated:Put');
    expect(event.s3.object).toEqual({
      key: `${target.prefix}event/+%2B%25%26%C3%A9%F0%9F%98%80%0A%281%29%7E*.png`,
      size: 5,
      eTag: '5d41402abc4b2a76b9719d911017c592',
      sequencer: expect.stringMatching(/^[0-9A-F]{16,}$/),
    });
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html
  eventBehaviour('the key in an EventBridge event is not encoded', 'Enabled', async (given) => {
    let VersionId: string | undefined;
    const event = await eventOf(given, async () => {
      ({ VersionId } = await put(given, 'hello'));
    });
    const bridged = eventBridgeEvent(event);
    expect(bridged).toMatchObject({ source: 'aws.s3', 'detail-type': 'Object Created' });
    expect(bridged?.detail).toMatchObject({ bucket: { name: given.Bucket }, reason: 'PutObject' });
    expect(bridged?.detail.object).toEqual({
      key: given.Key,
      size: 5,
      etag: '5d41402abc4b2a76b9719d911017c592',
      'version-id': VersionId,
      sequencer: event.s3.object.sequencer,
    });
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
  eventBehaviour('of two events of one key the later has the greater sequencer', 'unversioned', async (given) => {
    const first = await eventOf(given, () => put(given, 'first'));
    const second = await eventOf(given, () => put(given, 'second'));
    expect(second.s3.object.sequencer > first.s3.object.sequencer).toBe(true);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
  eventBehaviour('the event of a multipart upload has the time of its end', 'unversioned', async (given) => {
    const uploaded = await uploadParts(given, ['in parts']);
    await target.passTime(3000);
    const { eventTime } = await eventOf(given, () => complete(given, uploaded));
    const initiated = (await head(given)).LastModified?.getTime() ?? 0;
    expect(Date.parse(eventTime)).toBeGreaterThanOrEqual(initiated + 2000);
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-how-to-event-types-and-destinations.html
  eventBehaviour('a copy is announced as a copy, even onto itself', 'Enabled', async (given) => {
    const { Bucket, Key } = given;
    await put(given, 'hello');
    const CopySource = `${Bucket}/${encodeURIComponent(Key)}`;
    const copying = new CopyObjectCommand({ Bucket, Key, CopySource, MetadataDirective: 'REPLACE' });
    const event = await eventOf(given, () => given.client.send(copying));
    expect(event.eventName).toBe('ObjectCreated:Copy');
    expect(event.s3.object).toMatchObject({ size: 5, eTag: '5d41402abc4b2a76b9719d911017c592' });
    expect(eventBridgeEvent(event)?.detail.reason).toBe('CopyObject');
  });

  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
  eventBehaviour('the first message to a queue is a test event without records', 'unversioned', async ({ Bucket }) => {
    const message = testEvent(Bucket);
    expect(message).toMatchObject({ Service: 'Amazon S3', Event: 's3:TestEvent', Bucket });
    expect(message).not.toHaveProperty('Records');
  });
});
