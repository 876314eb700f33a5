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
import { encodeKey, eventBridgeEvent, type S3EventRecord } from '../../../../local/aws/s3/events.ts';
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

test('an event has the envelope of S3 and of EventBridge', async () => {
  const { client, events } = await listening();
  const { VersionId } = await client.send(new PutObjectCommand({ Bucket: VERSIONED, Key: 'k', Body: 'hello' }));
  expect(events).toHaveLength(1);
  expect(events[0]).toMatchObject({
    eventVersion: '2.1',
    eventSource: 'aws:s3',
    awsRegion: 'us-east-1',
    eventTime: '2026-01-02T03:04:05.678Z',
    eventName: 'ObjectCreated:Put',
    s3: {
      bucket: { name: VERSIONED, arn: `arn:aws:s3:::${VERSIONED}` },
      object: { versionId: VersionId },
    },
  });
  const [event] = events;
  expect(event && eventBridgeEvent(event)).toMatchObject({
    version: '0',
    time: '2026-01-02T03:04:05Z',
    resources: [`arn:aws:s3:::${VERSIONED}`],
    detail: { version: '0' },
  });
});

test('an event is sent after the commit and before the answer', async () => {
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

test('every operation that creates or removes an object sends its event, and a refused one sends none', async () => {
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

test('a request fails if its event cannot be sent, although it took effect', async () => {
  const { client } = await startS3({ onEvent: () => Promise.reject(new Error('no queue')) });
  const put = client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'k', Body: 'x' }));
  await expect(put).rejects.toMatchObject({ $metadata: { httpStatusCode: 500 } });
  await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: 'k' }));
});

test.each([
  ['-_.*', '-_.*'],
  ["!'", '%21%27'],
  ['=?#', '%3D%3F%23'],
])('the key %j is encoded as %s', (key, encoded) => {
  expect(encodeKey(key)).toBe(encoded);
});
