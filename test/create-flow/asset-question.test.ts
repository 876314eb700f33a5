import { expect, it } from 'vitest';
import { type AssetAnswer, createFlowsOrAnswer } from '../../functions/create-flow/asset-question.ts';
import type { BatchResponse } from '../../functions/create-flow/batch.ts';
import { INBOX, RESULTS, start, world } from '../support/world.ts';

const KEY = 'photo.png/1/2.glb';
const ASSET = { key: KEY, bytes: 5 };

const ask = (asset: object): Promise<AssetAnswer | BatchResponse> =>
  world.invoke((invocation) => createFlowsOrAnswer({ asset }, world.ports, invocation));

/** From now on S3 answers a GET so. The embedded S3 has no encryption. */
function refuse(name: string, status: number): void {
  world.beforeS3((call, { Bucket }) => {
    if (call !== 'GetObject' || Bucket !== RESULTS) return;
    throw Object.assign(new Error('Refused'), { name, $metadata: { httpStatusCode: status } });
  });
}

it('create-flow tells that it can read an asset, and makes no flow', async () => {
  await start();
  await world.put(RESULTS, KEY, 'model');
  expect(await ask(ASSET)).toEqual({ asset: 'readable' });
  expect(world.service.flows).toEqual([]);
});

it('create-flow reads exactly the version that it is asked for', async () => {
  await start({ resultsVersioning: 'Enabled' });
  await world.put(RESULTS, KEY, 'model');
  const current = await world.ports.inbox.current(RESULTS, KEY, new AbortController().signal);
  await world.put(RESULTS, KEY, 'other');
  expect(await ask({ ...ASSET, versionId: current?.versionId })).toEqual({ asset: 'readable' });
  expect(await ask({ ...ASSET, etag: current?.etag })).toMatchObject({ asset: 'gone' });
});

it.each([
  ['the policy of the bucket', 'AccessDenied', 403],
  ['a KMS key that it may not use', 'AccessDenied', 403],
  ['a disabled KMS key', 'KMS.DisabledException', 400],
])('create-flow tells that it is refused an asset by %s', async (_, name, status) => {
  await start();
  await world.put(RESULTS, KEY, 'model');
  refuse(name, status);
  expect(await ask(ASSET)).toEqual({
    asset: 'refused',
    message: `S3 refuses to hand out results/${KEY}: ${name}`,
  });
});

it('create-flow tells that it is refused an asset if it may not list the bucket either', async () => {
  await start();
  await world.put(RESULTS, KEY, 'model');
  world.beforeS3((_, { Bucket }) => {
    if (Bucket !== RESULTS) return;
    throw Object.assign(new Error('Refused'), { name: 'AccessDenied', $metadata: { httpStatusCode: 403 } });
  });
  expect(await ask(ASSET)).toMatchObject({ asset: 'refused' });
});

it('create-flow does not take an asset that is gone, or an error of S3, for a refusal', async () => {
  await start();
  expect(await ask(ASSET)).toMatchObject({ asset: 'gone' });
  await world.put(RESULTS, KEY, 'model');
  refuse('InternalError', 500);
  expect(await ask(ASSET)).toMatchObject({ asset: 'unread', message: `results/${KEY} could not be opened` });
});

it('create-flow says of an archived asset that it is not there', async () => {
  await start();
  await world.put(RESULTS, KEY, 'model');
  refuse('InvalidObjectState', 403);
  expect(await ask(ASSET)).toMatchObject({ asset: 'gone', message: `results/${KEY} is archived` });
});

it('create-flow still takes notifications that came without a queue', async () => {
  await start();
  await world.upload('a.png', 'bytes');
  const [body = ''] = world.takeMessages();
  const event = JSON.parse(body);
  expect(event.Records[0].s3.bucket.name).toBe(INBOX);
  expect(await world.invoke((invocation) => createFlowsOrAnswer(event, world.ports, invocation))).toEqual({
    batchItemFailures: [],
  });
  expect(world.service.flows).toHaveLength(1);
});
