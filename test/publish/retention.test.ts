import { GetObjectTaggingCommand, PutObjectTaggingCommand } from '@aws-sdk/client-s3';
import { expect, it } from 'vitest';
import type { Changed } from '../../functions/operator/changes.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { dyingAt, ECHO, HOUR, MINUTE, RESULTS, start, world } from '../support/world.ts';

const MIDDLE: Route = { ...ECHO, name: 'middle', after: 'echo' };
const LAST: Route = { ...ECHO, name: 'last', after: 'middle' };
const ALL: Route = { ...LAST, inputs: 'all' };
const EXPIRES = ['flowdrop=asset'];

const begin = (routes: readonly Route[]) => start({ routes, resultsRetentionDays: 30 });

async function tagsOf(key: string): Promise<readonly string[]> {
  const { TagSet = [] } = await world.s3.send(new GetObjectTaggingCommand({ Bucket: RESULTS, Key: key }));
  return TagSet.map(({ Key, Value }) => `${Key}=${Value}`);
}

/** The tags of all results, by the part of the key that tells which they are: a stage's name, or that of a file. */
async function allTags(): Promise<Readonly<Record<string, readonly string[]>>> {
  const tags: Record<string, readonly string[]> = {};
  for (const key of await world.keys(RESULTS)) {
    const { metadata } = await world.object(RESULTS, key);
    const stage = /\/chain\/([a-z]+)\//.exec(key)?.[1] ?? 'echo';
    const isAsset = 'flowdrop-asset' in metadata;
    tags[isAsset ? stage : key.replace(/^.*\//, '')] = await tagsOf(key);
  }
  return tags;
}

/** Removes the assets of a stage, as S3 does once they have expired. */
async function expire(stage: string): Promise<void> {
  for (const key of await world.keys(RESULTS)) {
    const { metadata } = await world.object(RESULTS, key);
    const isOfIt = stage === 'echo' ? !key.includes('/chain/') : key.includes(`/chain/${stage}/`);
    if ('flowdrop-asset' in metadata && isOfIt) await world.remove(key, RESULTS);
  }
}

const idOf = async (route: string): Promise<string> =>
  (await world.entries()).find((entry) => entry.route.name === route)?.upload.id ?? '';
const ask = async (event: object): Promise<readonly unknown[]> =>
  ((await world.collect(event)) as readonly Changed[]).map(({ result }) => result);

it.each([
  ['a small one', 10],
  ['a large one', 12_000_000],
])('an asset that no stage takes is put with the tag by which it expires: %s', async (_, bytes) => {
  await begin([{ ...ECHO, parameters: { bytes }, alias: 'latest/{key}' }]);
  let tagged = 0;
  world.beforeS3((call) => {
    if (call.endsWith('Tagging')) tagged += 1;
  });
  await world.send('a');
  await world.settle();
  expect(tagged).toBe(0);
  expect(await allTags()).toEqual({ echo: EXPIRES, 'receipt.json': [], a: [] });
});

it('without the setting no asset has a tag', async () => {
  await start({ routes: [ECHO, MIDDLE] });
  await world.send('a');
  await world.settle();
  expect(new Set(Object.values(await allTags()).flat())).toEqual(new Set());
});

it('assets that a stage may take get the tag when the whole chain has ended, and keep other tags', async () => {
  await begin([ECHO, MIDDLE, ALL]);
  await world.send('a');
  await world.deliverAndTick(1, 2 * MINUTE);
  const [key = ''] = await world.keys(RESULTS);
  const Tagging = { TagSet: [{ Key: 'scan', Value: 'clean' }] };
  await world.s3.send(new PutObjectTaggingCommand({ Bucket: RESULTS, Key: key, Tagging }));
  await world.deliverAndTick(1, 2 * MINUTE);
  expect(await allTags()).toEqual({ echo: ['scan=clean'], middle: [], 'receipt.json': [] });
  await world.settle();
  const reports = { 'receipt.json': [], 'chain.json': [] };
  const before = ['scan=clean', ...EXPIRES];
  expect(await allTags()).toEqual({ echo: before, middle: EXPIRES, last: EXPIRES, ...reports });
});

it('assets that a stage takes which was added while they were stored do not expire before it', async () => {
  await begin([{ ...ECHO, parameters: { copies: 2 } }]);
  world.service.intercept = (_, { operation, n }) =>
    operation === 'getAsset' && n === 2 ? { status: 503 } : undefined;
  await world.send('a');
  await world.deliverAndTick(1, 2 * MINUTE);
  expect(await allTags()).toEqual({ echo: EXPIRES });
  world.redeploy({ routes: [ECHO, { ...MIDDLE, review: true }], resultsRetentionDays: 30 });
  await world.deliverAndTick(8, 2 * MINUTE);
  expect((await world.entries()).map(({ state }) => state).toSorted()).toEqual(['succeeded', 'waiting', 'waiting']);
  const assets = (await world.keys(RESULTS)).filter((key) => !key.endsWith('.json'));
  expect(await Promise.all(assets.map(tagsOf))).toEqual([[], []]);
});

it('assets expire too if the stage that would have taken them was removed while they were stored', async () => {
  await begin([{ ...ECHO, parameters: { copies: 2 } }]);
  await world.send('a');
  // The flow was sent without the stage, which is there for its first asset only.
  world.redeploy({ routes: [{ ...ECHO, parameters: { copies: 2 } }, MIDDLE], resultsRetentionDays: 30 });
  world.service.intercept = (_, { operation, n }) =>
    operation === 'getAsset' && n === 2 ? { status: 503 } : undefined;
  await world.deliverAndTick(1, 2 * MINUTE);
  expect(await allTags()).toEqual({ echo: [] });
  world.redeploy({ routes: [ECHO], resultsRetentionDays: 30 });
  await world.settle();
  expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded']);
  const assets = (await world.keys(RESULTS)).filter((key) => !key.endsWith('.json'));
  expect(await Promise.all(assets.map(tagsOf))).toEqual([EXPIRES, EXPIRES]);
});

it('a retry of what the chain has forgotten lets no input expire of another that is retried with it', async () => {
  await begin([ECHO, MIDDLE]);
  await world.send('a');
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  await world.settle();
  const forgotten = await idOf('middle');
  world.service.intercept = undefined;
  await ask({ again: [await idOf('echo')] });
  await world.deliver();
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  await world.settle();
  const stages = (await world.entries()).filter(({ upload }) => upload.stage !== undefined);
  const own = stages.find(({ upload }) => upload.id !== forgotten);
  await world.collect({ hold: { action: 'pause', route: 'middle' } });
  // The chain hears of the other one first.
  world.beforeS3((call, { Key }) =>
    call === 'PutObject' && Key === `uploads/${own?.upload.id}.json` ? world.clock.sleep(1_000) : undefined,
  );
  expect(await ask({ retry: [forgotten, own?.upload.id] })).toEqual(['resubmitted', 'resubmitted']);
  const keys = own?.inputs?.map(({ key }) => key) ?? [];
  expect(keys).toHaveLength(1);
  expect(await Promise.all(keys.map(tagsOf))).toEqual([[]]);
});

/** A chain with two uploads of the stage `middle` that have failed. The end of the second one was not told. */
async function twoFailures(): Promise<readonly [string, string]> {
  await begin([{ ...ECHO, parameters: { copies: 2 } }, MIDDLE]);
  await world.send('a');
  await world.deliverAndTick(1, 2 * MINUTE);
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  const stages = (await world.entries()).flatMap(({ upload }) => (upload.stage === undefined ? [] : [upload.id]));
  const [told = '', untold = ''] = stages;
  expect(stages).toHaveLength(2);
  const { receipts } = world.ports;
  const put = receipts.put;
  receipts.put = (receipt, signal) =>
    receipt.upload.id === untold ? Promise.reject(new Error('killed')) : put.call(receipts, receipt, signal);
  await world.deliver();
  receipts.put = put;
  world.service.intercept = undefined;
  await world.collect({ hold: { action: 'pause', route: 'middle' } });
  return [told, untold];
}

it('an end of a chain that is told only with a retry lets no input expire that the retry takes', async () => {
  const [told, untold] = await twoFailures();
  // The chain hears of this one after it has ended.
  world.beforeS3((call, { Key }) =>
    call === 'PutObject' && Key === `uploads/${told}.json` ? world.clock.sleep(1_000) : undefined,
  );
  expect(await ask({ retry: [told, untold] })).toEqual(['resubmitted', 'resubmitted']);
  const assets = (await world.keys(RESULTS)).filter((key) => !key.endsWith('.json'));
  expect(await Promise.all(assets.map(tagsOf))).toEqual([[], []]);
});

it('an end of a chain that is being told while an upload of it is retried lets none of its inputs expire', async () => {
  const [told] = await twoFailures();
  let retry: Promise<readonly unknown[]> | undefined;
  world.beforeS3(async (call) => {
    if (call !== 'PutObjectTagging' || retry !== undefined) return;
    retry = ask({ retry: [told] });
    await retry;
  });
  world.clock.advance(HOUR);
  await world.deliver();
  expect(await retry).toEqual(['resubmitted']);
  const assets = (await world.keys(RESULTS)).filter((key) => !key.endsWith('.json'));
  expect(await Promise.all(assets.map(tagsOf))).toEqual([[], []]);
});

it('an end of a chain lets no input expire of a retry that died before the chain had heard of it', async () => {
  const [told] = await twoFailures();
  const live = dyingAt(world.ports.chains, 'update');
  await expect(ask({ retry: [told] })).rejects.toThrow('killed');
  live();
  world.clock.advance(20 * MINUTE);
  await world.tick();
  world.clock.advance(HOUR);
  await world.deliver();
  const assets = (await world.keys(RESULTS)).filter((key) => !key.endsWith('.json'));
  expect(await Promise.all(assets.map(tagsOf))).toEqual([[], []]);
});

it('a request that dies before the chain has heard of it leaves everything to expire', async () => {
  await begin([ECHO, MIDDLE]);
  await world.send('a');
  await world.settle();
  const live = dyingAt(world.ports.chains, 'update');
  await expect(ask({ again: [await idOf('echo')], from: 'middle' })).rejects.toThrow('killed');
  live();
  await world.deliverAndTick(3, HOUR);
  expect(await allTags()).toMatchObject({ echo: EXPIRES, middle: EXPIRES });
});

it.each([
  ['retried', async () => ({ retry: [await idOf('middle')] })],
  ['made anew', async () => ({ again: [await idOf('echo')], from: 'middle' })],
])('what a stage takes stays if the invocation dies by which it is %s', async (_, request) => {
  await begin([ECHO, { ...MIDDLE, parameters: { fail: true } }]);
  await world.send('a');
  await world.settle();
  await world.collect({ hold: { action: 'pause', route: 'middle' } });
  const live = dyingAt(world.ports.sources, 'keep');
  await expect(ask(await request())).rejects.toThrow('killed');
  live();
  await world.deliverAndTick(2, 20 * MINUTE);
  expect((await world.entries()).map(({ state }) => state).toSorted()).toEqual(['succeeded', 'waiting']);
  expect(await allTags()).toMatchObject({ echo: [] });
});

it('the last upload of a chain may fail before it has a flow, and an invocation may die', async () => {
  await begin([ECHO, MIDDLE, LAST]);
  await world.send('a');
  await world.deliverAndTick(1, 2 * MINUTE);
  await world.deliverAndTick(1, 2 * MINUTE);
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  const live = dyingAt(world.ports.sources, 'expire', 2);
  await world.deliver();
  live();
  expect(await allTags()).not.toMatchObject({ echo: EXPIRES, middle: EXPIRES });
  await world.settle();
  expect(await allTags()).toMatchObject({ echo: EXPIRES, middle: EXPIRES });
});

it('a chain ends although S3 refuses to tag its assets, and the log says so', async () => {
  const authorize = ({ action }: { readonly action: string }) => action !== 's3:PutObjectTagging';
  await start({ routes: [ECHO, MIDDLE], s3: { authorize } });
  await world.send('a');
  await world.deliverAndTick(1, 2 * MINUTE);
  world.redeploy({ resultsRetentionDays: 30, routes: [ECHO, { ...MIDDLE, template: 'typo' }] });
  await world.settle();
  expect(await world.json(RESULTS, 'a/chain.json')).toMatchObject({ status: 'failed' });
  expect(world.logged.map(({ message }) => message).join()).toContain('S3 refused to change the tag of an asset');
});

it('what a stage takes anew stays until that has ended, and what it replaces expires', async () => {
  await begin([ECHO, MIDDLE, LAST]);
  await world.send('a');
  await world.settle();
  const first = await idOf('echo');
  const old = (await world.keys(RESULTS)).filter((key) => key.includes('/chain/middle/'));
  expect(await ask({ again: [first], from: 'middle' })).toEqual(['resubmitted']);
  await world.deliverAndTick(1, 2 * MINUTE);
  expect(
    await tagsOf((await world.keys(RESULTS)).find((key) => !key.includes('/chain/') && !key.includes('.json')) ?? ''),
  ).toEqual([]);
  await world.settle();
  const assets = Object.entries(await allTags()).filter(([name]) => !name.includes('.json'));
  expect(new Set(assets.flatMap(([, tags]) => tags))).toEqual(new Set(EXPIRES));
  expect(old.length).toBeGreaterThan(0);
});

it.each([
  ['each', LAST],
  ['all', ALL],
])('a stage whose inputs have expired is not made anew, and nothing is paid for: %s', async (_, last) => {
  await begin([ECHO, MIDDLE, last]);
  await world.send('a');
  await world.settle();
  const first = await idOf('echo');
  const flows = world.service.flows.length;
  const before = await allTags();
  await expire('middle');
  expect(await ask({ again: [first], from: 'last' })).toEqual(['source gone']);
  expect(await ask({ retry: [await idOf('last')] })).toEqual(['succeeded already']);
  await world.settle();
  const { middle: ___, ...left } = before;
  expect([world.service.flows.length, await allTags()]).toEqual([flows, left]);
  expect(await ask({ again: [first], from: 'middle' })).toEqual(['resubmitted']);
  await world.settle();
  expect(world.service.flows.length).toBe(flows + 2);
});

it('a failed stage is not retried once its input has expired', async () => {
  await begin([ECHO, { ...MIDDLE, parameters: { fail: true } }]);
  await world.send('a');
  await world.settle();
  const [middle, flows] = [await idOf('middle'), world.service.flows.length];
  expect(await allTags()).toMatchObject({ echo: EXPIRES });
  await expire('echo');
  expect(await ask({ retry: [middle] })).toEqual(['source gone']);
  await world.settle();
  expect(world.service.flows.length).toBe(flows);
});

it('assets that have expired are fetched again on request, and expire again', async () => {
  await begin([ECHO]);
  await world.send('a');
  await world.settle();
  await expire('echo');
  expect(await ask({ collect: [await idOf('echo')] })).toEqual(['begun']);
  await world.settle();
  expect(await allTags()).toEqual({ echo: EXPIRES, 'receipt.json': [] });
});

it('an alias stays after its asset has expired, and is not made again without it', async () => {
  await begin([{ ...ECHO, alias: 'latest/{key}' }]);
  await world.send('a', 'x');
  await world.settle();
  const { flow, upload } = await world.receipt('a');
  await expire('echo');
  expect(await world.keys(RESULTS)).toEqual(['a/receipt.json', 'latest/a']);
  await world.remove('latest/a', RESULTS);
  expect(await ask({ alias: { upload: upload.id, to: flow?.id } })).toEqual(['not shown']);
});
