import {
  CompleteMultipartUploadCommand,
  CopyObjectCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  PutObjectCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { expect, test } from 'vitest';
import { encodeKey, eventBridgeEvent, testEvent } from '../../../../local/aws/s3/events.ts';
import type { S3EventRecord } from '../../../../local/aws/s3/s3.ts';
import { BUCKET, refusal, startS3, VERSIONED } from './support.ts';

async function listening() {
  const events: S3EventRecord[] = [];
  const running = await startS3({
    clock: { now: () => Date.UTC(2026, 0, 2, 3, 4, 5, 678) },
    onEvent: (event) => {
      events.push(event);
    },
  });
  return { ...running, events, names: () => events.map(({ eventName }) => eventName) };
}

test('a PUT is told in the form of S3, once it can be read', async () => {
  const { client, events } = await listening();
  const { VersionId } = await client.send(new PutObjectCommand({ Bucket: VERSIONED, Key: 'a b/é', Body: 'hello' }));
  expect(events).toHaveLength(1);
  expect(events[0]).toMatchObject({
    eventVersion: '2.1',
    eventSource: 'aws:s3',
    awsRegion: 'us-east-1',
    eventTime: '2026-01-02T03:04:05.678Z',
    eventName: 'ObjectCreated:Put',
    s3: {
      bucket: { name: VERSIONED, arn: `arn:aws:s3:::${VERSIONED}` },
      object: { key: 'a+b/%C3%A9', size: 5, eTag: '5d41402abc4b2a76b9719d911017c592', versionId: VersionId },
    },
  });
});

test('an event comes after the commit and before the answer', async () => {
  const order: string[] = [];
  const { client } = await startS3({
    onEvent: async ({ eventName }) => {
      const { Body } = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'k' }));
      order.push(`${eventName} of ${await Body?.transformToString()}`);
    },
  });
  await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'hello' }));
  order.push('answered');
  expect(order).toEqual(['ObjectCreated:Put of hello', 'answered']);
});

test('every way to create and to remove an object has its event, and what is refused has none', async () => {
  const { client, events, names } = await listening();
  const at = { Bucket: BUCKET, Key: 'k' };
  await client.send(new PutObjectCommand({ ...at, Body: 'x' }));
  await refusal(client.send(new PutObjectCommand({ ...at, Body: 'x', IfNoneMatch: '*' })));
  await client.send(new CopyObjectCommand({ ...at, Key: 'copy', CopySource: `${BUCKET}/k` }));
  const { UploadId } = await client.send(new CreateMultipartUploadCommand(at));
  const { ETag } = await client.send(new UploadPartCommand({ ...at, UploadId, PartNumber: 1, Body: 'x' }));
  const MultipartUpload = { Parts: [{ PartNumber: 1, ETag }] };
  await client.send(new CompleteMultipartUploadCommand({ ...at, UploadId, MultipartUpload }));
  await client.send(new DeleteObjectCommand(at));
  await client.send(new DeleteObjectCommand(at));
  await client.send(new DeleteObjectsCommand({ Bucket: BUCKET, Delete: { Objects: [{ Key: 'copy' }] } }));
  await client.send(new DeleteObjectCommand({ ...at, Bucket: VERSIONED }));
  expect(names()).toEqual([
    'ObjectCreated:Put',
    'ObjectCreated:Copy',
    'ObjectCreated:CompleteMultipartUpload',
    'ObjectRemoved:Delete',
    'ObjectRemoved:Delete',
    'ObjectRemoved:DeleteMarkerCreated',
  ]);
  expect(events.map((event) => eventBridgeEvent(event)?.detail.reason)).toEqual([
    'PutObject',
    'CopyObject',
    'CompleteMultipartUpload',
    undefined,
    undefined,
    undefined,
  ]);
  const sequencers = events.map(({ s3 }) => s3.object.sequencer);
  expect(sequencers).toEqual(sequencers.toSorted());
  expect(new Set(sequencers).size).toBe(sequencers.length);
});

test('a request fails when its event cannot be told, although it took effect', async () => {
  const { client } = await startS3({ onEvent: () => Promise.reject(new Error('no queue')) });
  const put = client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'x' }));
  await expect(put).rejects.toMatchObject({ $metadata: { httpStatusCode: 500 } });
  await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'k' }));
});

test('an EventBridge event has the key as it is', async () => {
  const { client, events } = await listening();
  const Key = 'a b+c%20/é😀\n';
  await client.send(new PutObjectCommand({ Bucket: BUCKET, Key, Body: 'hello' }));
  const [event] = events;
  expect(event && eventBridgeEvent(event)).toMatchObject({
    version: '0',
    'detail-type': 'Object Created',
    source: 'aws.s3',
    time: '2026-01-02T03:04:05Z',
    resources: [`arn:aws:s3:::${BUCKET}`],
    detail: {
      version: '0',
      bucket: { name: BUCKET },
      object: { key: Key, size: 5, etag: '5d41402abc4b2a76b9719d911017c592', sequencer: event?.s3.object.sequencer },
      reason: 'PutObject',
    },
  });
});

test.each([
  ['a b', 'a+b'],
  ['a+b', 'a%2Bb'],
  ['a/b', 'a/b'],
  ['-_.*', '-_.*'],
  ["!'()~", '%21%27%28%29%7E'],
  ['é😀', '%C3%A9%F0%9F%98%80'],
  ['%&=?#\n', '%25%26%3D%3F%23%0A'],
])('the key %j is encoded as %s', (key, encoded) => {
  expect(encodeKey(key)).toBe(encoded);
});

test('the test event has no records', () => {
  expect(testEvent('b', 0)).toMatchObject({
    Service: 'Amazon S3',
    Event: 's3:TestEvent',
    Time: '1970-01-01T00:00:00.000Z',
    Bucket: 'b',
  });
});
