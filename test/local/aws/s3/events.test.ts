import { CopyObjectCommand, DeleteObjectsCommand } from '@aws-sdk/client-s3';
import { expect, test } from 'vitest';
import { encodeKey, eventBridgeEvent, type S3EventRecord } from '../../../../local/aws/s3/events.ts';
import { complete, put, read, refusal, remove, uploadParts } from '../../../support/s3-calls.ts';
import { BUCKET, startS3, VERSIONED } from './support.ts';

async function listening() {
  const events: S3EventRecord[] = [];
  const running = await startS3({
    clock: { now: () => Date.UTC(2026, 0, 2, 3, 4, 5, 678) },
    onEvent: (event) => void events.push(event),
  });
  return { ...running, events };
}

test('an event has the envelope of S3 and of EventBridge', async () => {
  const { versioned, events } = await listening();
  const { VersionId } = await put(versioned, 'hello');
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
  const { at } = await startS3({
    onEvent: async ({ eventName }) => void order.push(`${eventName} of ${await read(at)}`),
  });
  await put(at, 'hello');
  order.push('answered');
  expect(order).toEqual(['ObjectCreated:Put of hello', 'answered']);
});

test('every operation that creates or removes an object sends its event, and a refused one sends none', async () => {
  const { client, at, versioned, events } = await listening();
  await put(at, 'x');
  await refusal(put(at, 'x', { IfNoneMatch: '*' }));
  await client.send(new CopyObjectCommand({ ...at, Key: 'copy', CopySource: `${BUCKET}/k` }));
  await complete(at, await uploadParts(at, ['x']));
  await remove(at);
  await remove(at);
  await client.send(new DeleteObjectsCommand({ Bucket: BUCKET, Delete: { Objects: [{ Key: 'copy' }] } }));
  await remove(versioned);
  expect(events.map(({ eventName }) => eventName)).toEqual([
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
  const { at } = await startS3({ onEvent: () => Promise.reject(new Error('no queue')) });
  expect(await refusal(put(at, 'x'))).toMatch(/^500 /);
  expect(await read(at)).toBe('x');
});

test.each([
  ['-_.*', '-_.*'],
  ["!'", '%21%27'],
  ['=?#', '%3D%3F%23'],
])('the key %j is encoded as %s', (key, encoded) => {
  expect(encodeKey(key)).toBe(encoded);
});
