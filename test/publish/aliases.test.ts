import { PutObjectCommand } from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import type { TerminalEntry } from '../../functions/ledger/entry.ts';
import { aliasKey } from '../../functions/results/results-keys.ts';
import { issueOfAlias } from '../../functions/uploads/results-key-pattern.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { S3Access } from '../../local/aws/s3/call.ts';
import { never } from '../flow-service/scripted.ts';
import { dyingAt, ECHO, LEDGER, RESULTS, start, type WorldOptions, world } from '../support/world.ts';

const ALIAS: Route = { ...ECHO, alias: 'models/{folder}/{name}{ext}' };
const KEY = 'models/a/photo.txt';
const begin = (route: Route = ALIAS, more: WorldOptions = {}) => start({ routes: [route], ...more });
const upload = (body: string, key = 'a/photo.png') => world.upload(key, body, { ContentType: 'text/plain' });

/** What the alias shows. Undefined if there is none. */
async function shown(key = KEY): Promise<string | undefined> {
  const keys = await world.keys(RESULTS, key);
  return keys.includes(key) ? (await world.object(RESULTS, key)).bytes.toString() : undefined;
}
const aliases = async () => (await world.keys(RESULTS)).filter((key) => key.startsWith('models/'));
const receipt = (key = 'a/photo.png') => world.receipt(key);
const lastFlow = () => world.service.flows.at(-1)?.id as string;

async function succeed(body: string, key?: string): Promise<void> {
  await upload(body, key);
  await world.settle();
}

const NUMBERED: Route = { ...ALIAS, alias: 'models/{key}/{n}{ext}', overrides: true };
const FOLDER = 'models/a/photo.png';

/** Has a file succeed that has its number of outputs as its content. */
async function succeedWith(copies: number): Promise<void> {
  const Metadata = { 'flow-parameters': `{"copies":${copies}}` };
  await world.upload('a/photo.png', String(copies), { ContentType: 'text/plain', Metadata });
  await world.settle();
}

describe('a pattern', () => {
  it.each([
    ['models/{folder}/{name}{ext}', 'a/b/photo.png', 'models/a/b/photo.glb'],
    ['models/{folder}/{name}{ext}', 'photo.png', 'models/photo.glb'],
    ['models/{folder}/{name}{ext}', 'a/.hidden', 'models/a/.hidden.glb'],
    ['models/{key}{ext}', 'a/photo.png', 'models/a/photo.png.glb'],
    ['models/{key}/{n}{ext}', 'a/photo.png', 'models/a/photo.png/2.glb'],
    ['m/{folder}/{name}-{n}{ext}', 'a/photo.png', 'm/a/photo-2.glb'],
    ['m/{folder}/{name}.json', 'a/receipt.png', 'm/a/%72eceipt.json'],
  ])('%s makes of %s %s', (pattern, key, alias) => {
    expect(issueOfAlias(pattern)).toBeUndefined();
    expect(aliasKey('', pattern, { key, mediaType: 'model/gltf-binary', n: 2 })).toBe(alias);
  });

  it.each([
    ['models/{name}{ext}', '{key}, or both'],
    ['models/{folder}/model{ext}', '{key}, or both'],
    ['models/{key}/{name}', '{key}, or both'],
    ['{key}{ext}', 'a folder of its own'],
    ['/models/{key}', 'a folder of its own'],
    ['*/{key}', 'a folder of its own'],
    ['m?/{key}', 'a folder of its own'],
    ['модели/{key}', 'a folder of its own'],
    ['models/{folder}{name}', 'a slash before'],
    ['models/x{key}', 'a slash before'],
    ['models/{folder}/{name}{n}{ext}', 'a slash before'],
    ['models/{folder}/{name}-1{n}{ext}', '{n} between'],
    ['models/{key}{ext}/x', '{ext} at the end'],
    ['models//{key}', 'no two slashes'],
    ['models/{key}/', 'no two slashes'],
    ['models/{key}/{flowId}', 'expected only'],
    ['models/{key}/{key}', 'each placeholder once'],
    ['models/{key}}', 'every brace'],
  ])('%s is refused', (pattern, issue) => {
    expect(issueOfAlias(pattern)).toContain(issue);
  });
});

describe('an alias', () => {
  it('is a copy of the asset, and the receipt names it, but the event does not', async () => {
    await begin();
    await succeed('one');
    expect(await shown()).toBe('one');
    expect((await world.object(RESULTS, KEY)).mediaType).toBe('text/plain');
    expect((await receipt()).aliases).toEqual([KEY]);
    expect(JSON.parse(world.events[0]?.detail ?? '')).not.toHaveProperty('aliases');
  });

  it('is put before the receipt', async () => {
    await begin();
    const puts: string[] = [];
    world.beforeS3((call, { Bucket, Key = '' }) => {
      if (Bucket === RESULTS && ['PutObject', 'CompleteMultipartUpload'].includes(call)) puts.push(Key);
    });
    await succeed('one');
    expect(puts.slice(-2)).toEqual([KEY, 'a/photo.png/receipt.json']);
  });

  it('moves to a newer upload, and to a new generation, and stays if they fail', async () => {
    await begin();
    await succeed('one');
    await succeed('two');
    expect(await shown()).toBe('two');
    world.redeploy({ routes: [{ ...ALIAS, parameters: { fail: true } }] });
    await succeed('three');
    expect(await shown()).toBe('two');
    world.redeploy({ routes: [ALIAS] });
    await world.collect({ retry: [(await receipt()).upload.id] });
    await world.settle();
    expect(await shown()).toBe('three');
  });

  it('is not moved by an older upload that ends later', async () => {
    let flows = 0;
    const flowMs = () => {
      flows += 1;
      return flows === 1 ? 3_600_000 : 60_000;
    };
    await begin(ALIAS, { service: { flowMs } });
    await upload('old');
    await world.deliver();
    world.clock.advance(5_000);
    await succeed('new');
    expect((await world.entries()).map(({ state }) => state)).toEqual(['succeeded', 'succeeded']);
    expect([await shown(), (await receipt()).aliases]).toEqual(['new', [KEY]]);
  });

  it('shows the newest success although a late writer put an older one over the same bytes', async () => {
    await begin();
    await succeed('same');
    const [first] = (await world.entries()) as TerminalEntry[];
    world.clock.advance(5_000);
    await upload('other');
    await world.deliver();
    // A third success, newer than the second, has the bytes of the first. So the ETag is the one that was read.
    const newest = {
      ...first,
      upload: { ...first?.upload, lastModified: world.clock.now() + 60_000 },
    } as TerminalEntry;
    let isPut = false;
    world.beforeS3(async (call, { Key }) => {
      if (call !== 'CompleteMultipartUpload' || Key !== KEY || isPut) return;
      isPut = true;
      await world.ports.aliases.show(newest, never);
    });
    await world.tickAfter(5 * 60_000);
    expect([isPut, await shown()]).toEqual([true, 'same']);
    expect((await receipt()).aliases).toBeUndefined();
  });

  it('of an asset that the newer success does not have is removed', async () => {
    await begin(NUMBERED);
    await succeedWith(3);
    expect(await aliases()).toHaveLength(3);
    await succeedWith(1);
    expect(await aliases()).toEqual([`${FOLDER}/1.txt`]);
    expect(await shown(`${FOLDER}/1.txt`)).toBe('1');
  });

  it('of an earlier pattern is removed by the next success', async () => {
    await begin();
    await succeed('one');
    world.redeploy({ routes: [{ ...ALIAS, alias: 'models/{key}' }] });
    await succeed('two');
    expect([await aliases(), await shown('models/a/photo.png')]).toEqual([['models/a/photo.png'], 'two']);
  });

  it('stays with the first of two files that have the same one, and the receipt of the other says so', async () => {
    await begin();
    await succeed('png');
    await succeed('jpg', 'a/photo.jpg');
    expect(await shown()).toBe('png');
    expect((await receipt('a/photo.jpg')).aliasIssue).toContain('object of something else');
    expect((await receipt('a/photo.jpg')).status).toBe('succeeded');
  });

  it('leaves an object alone that somebody else has put there', async () => {
    await begin();
    await world.s3.send(new PutObjectCommand({ Bucket: RESULTS, Key: KEY, Body: 'mine' }));
    await succeed('one');
    expect([await shown(), (await receipt()).aliases]).toEqual(['mine', undefined]);
  });

  it('is told of in the receipt if S3 refuses it, and the upload succeeds', async () => {
    const authorize = ({ action, resource }: S3Access) => !(action === 's3:PutObject' && resource.endsWith(KEY));
    await begin(ALIAS, { s3: { authorize } });
    await succeed('one');
    expect(await receipt()).toMatchObject({
      status: 'succeeded',
      aliasIssue: expect.stringContaining('could not be put'),
    });
  });

  it('is made by a later tick if an invocation dies at any of its calls', async () => {
    const calls = [
      ...['HeadObject', 'CreateMultipartUpload', 'UploadPartCopy', 'CompleteMultipartUpload'].map((call) => [
        call,
        KEY,
      ]),
      ...['GetObject', 'PutObject'].map((call) => [call, 'state/aliases/']),
    ] as const;
    for (const [failing, at = ''] of calls) {
      await begin();
      let failures = 0;
      world.beforeS3((call, { Key = '' }) => {
        if (call !== failing || !Key.startsWith(at) || failures > 0) return;
        failures += 1;
        throw new Error('killed');
      });
      await upload('one');
      await world.deliver();
      await expect(world.tickAfter(5 * 60_000), failing).rejects.toThrow('could not be processed');
      await world.settle();
      expect([failing, failures, await shown(), (await receipt()).aliases]).toEqual([failing, 1, 'one', [KEY]]);
    }
  });

  it('is named by the receipt although the answer of S3 to its completion was lost', async () => {
    await begin();
    let isLost = false;
    world.s3.middlewareStack.add(
      (next, { commandName }) =>
        async (args) => {
          const answer = await next(args);
          if (commandName !== 'CompleteMultipartUploadCommand' || isLost) return answer;
          isLost = true;
          throw Object.assign(new Error('lost'), {
            name: 'TimeoutError',
            $metadata: { httpStatusCode: 500 },
            $retryable: {},
          });
        },
      { step: 'finalizeRequest', priority: 'low' },
    );
    await succeed('one');
    expect([isLost, await shown(), await receipt()]).toMatchObject([true, 'one', { aliases: [KEY] }]);
    expect(await receipt()).not.toHaveProperty('aliasIssue');
  });

  it('is put, and an older one removed, although another one of the same success is taken', async () => {
    await begin(NUMBERED);
    await succeedWith(3);
    await world.put(RESULTS, `${FOLDER}/1.txt`, 'mine');
    await succeedWith(2);
    expect(await aliases()).toEqual([`${FOLDER}/1.txt`, `${FOLDER}/2.txt`]);
    expect([await shown(`${FOLDER}/1.txt`), await shown(`${FOLDER}/2.txt`)]).toEqual(['mine', '2']);
    expect(await receipt()).toMatchObject({
      aliases: [`${FOLDER}/2.txt`],
      aliasIssue: expect.stringContaining(`The alias ${FOLDER}/1.txt could not be put`),
    });
  });

  it('with a state that cannot be read is told of in the receipt, and the upload succeeds', async () => {
    await begin();
    await succeed('one');
    const [state = ''] = await world.keys(LEDGER, 'state/aliases/');
    await world.put(LEDGER, state, '{');
    await succeed('two');
    expect(await receipt()).toMatchObject({ status: 'succeeded', aliasIssue: expect.stringContaining('is not JSON') });
    expect([await shown(), await world.keys(LEDGER, 'running/')]).toEqual(['one', []]);
  });

  it.each([
    ['moves from the first route of a chain to a later one', ALIAS, { ...ECHO }],
    ['moves to a later route with another name', { ...ALIAS, name: 'before', after: 'echo' }, { ...ECHO }],
  ] as const)('%s with its setting', async (_, owner, first) => {
    await start({ routes: owner.after === undefined ? [owner] : [first, owner] });
    await succeed('one');
    expect(await shown()).toBe('one');
    world.redeploy({ routes: [first, { ...ALIAS, name: 'next', after: 'echo' }] });
    await succeed('two');
    expect(await shown()).toBe('two');
  });

  it('is right after a crash behind the write of its state', async () => {
    await begin();
    await upload('one');
    await world.deliver();
    const live = dyingAt(world.ports.receipts, 'put');
    await expect(world.tickAfter(5 * 60_000)).rejects.toThrow('could not be processed');
    live();
    await world.settle();
    expect([await shown(), (await receipt()).aliases]).toEqual(['one', [KEY]]);
  });

  it('of a later stage shows what that stage made', async () => {
    await start({ routes: [ECHO, { ...ALIAS, name: 'next', after: 'echo' }] });
    await succeed('one');
    expect([await aliases(), await shown()]).toEqual([[KEY], 'one']);
    const [stage] = (await world.entries()).filter(({ upload: { stage: at } }) => at !== undefined);
    expect((await receipt(stage?.upload.key)).aliases).toEqual([KEY]);
  });

  it.each([
    ['echo', 'each'],
    ['echo', 'all'],
    ['middle', 'each'],
    ['middle', 'all'],
    ['next', 'all'],
  ])('of a later stage is not moved by a retry of what it made before %s was made anew: %s', async (from, inputs) => {
    const next: Route = { ...ALIAS, name: 'next', after: 'middle', ...(inputs === 'all' && { inputs }) };
    const routes = [ECHO, { ...ECHO, name: 'middle', after: 'echo' }];
    await start({ routes: [...routes, { ...next, parameters: { fail: true } }] });
    await succeed('one');
    const uploads = async () => (await world.entries()).filter(({ upload: { stage } }) => stage?.route === 'next');
    const [before] = await uploads();
    world.redeploy({ routes: [...routes, next] });
    const first = before?.upload.stage?.first.id;
    await world.collect({ again: [first], from: from === 'echo' ? undefined : from });
    await world.settle();
    const newest = lastFlow();
    await world.collect({ retry: [before?.upload.id] });
    await world.settle();
    expect((await uploads()).map(({ state }) => state)).toEqual(['succeeded', 'succeeded']);
    expect(lastFlow()).not.toBe(newest);
    expect((await world.object(RESULTS, KEY)).metadata).toMatchObject({ 'flowdrop-flow': newest });
  });
});

describe('the operator', () => {
  const move = async (to: string) => {
    const { id } = (await receipt()).upload;
    return world.collect({ alias: { upload: id, to } });
  };

  it('moves an alias back to an older flow, until a newer success comes', async () => {
    await begin();
    await succeed('one');
    const first = lastFlow();
    await succeed('two');
    expect(await move(first)).toMatchObject([{ result: 'shown' }]);
    expect(await shown()).toBe('one');
    // A repeated end of the second upload does not move it again.
    const [, second] = await world.entries();
    await world.ports.aliases.show(second as TerminalEntry, never);
    expect(await shown()).toBe('one');
    await succeed('three');
    expect(await shown()).toBe('three');
  });

  it('puts no older flow over a newer success that came in the meantime', async () => {
    await begin();
    await succeed('one');
    const first = lastFlow();
    await succeed('two');
    let completions = 0;
    world.beforeS3(async (call, { Key }) => {
      if (call !== 'CompleteMultipartUpload' || Key !== KEY) return;
      completions += 1;
      if (completions === 1) await succeed('three');
    });
    await move(first);
    // The first two are those of the operator, which fails, and of the newer success.
    expect([completions, await shown()]).toEqual([2, 'three']);
  });

  it.each(['the file', 'the generation'])(
    'gives each asset of a flow the alias that it had, if a newer one of %s succeeded',
    async (what) => {
      await begin(NUMBERED);
      await succeedWith(5);
      const first = lastFlow();
      const [{ assets, upload: of }] = (await world.entries()) as [TerminalEntry];
      if (what === 'the file') await succeedWith(1);
      else {
        await world.collect({ again: [of.id] });
        await world.settle();
      }
      expect(await move(first)).toMatchObject([{ result: 'shown' }]);
      const [state = ''] = await world.keys(LEDGER, 'state/aliases/');
      const { files } = await world.json<{ files: { key: string }[] }>(LEDGER, state);
      expect(files.map(({ key }) => key)).toEqual(assets.map(({ key }) => key));
      expect((await world.object(RESULTS, `${FOLDER}/5.txt`)).metadata).toMatchObject({ 'flowdrop-upload': of.id });
    },
  );

  it('hears that assets of a flow are gone, and no alias shows another flow than the others', async () => {
    await begin(NUMBERED);
    await succeedWith(3);
    const first = lastFlow();
    const [{ assets }] = (await world.entries()) as [TerminalEntry];
    await succeedWith(2);
    await world.remove(assets[1]?.key ?? '', RESULTS);
    expect(await move(first)).toMatchObject([{ result: 'not shown', why: expect.stringContaining('not in the') }]);
    expect([await shown(`${FOLDER}/1.txt`), await shown(`${FOLDER}/2.txt`)]).toEqual(['2', '2']);
    expect(await aliases()).toHaveLength(2);
  });

  it('has the same flow shown at the names of a new pattern', async () => {
    await begin();
    await succeed('one');
    world.redeploy({ routes: [{ ...ALIAS, alias: 'models/{key}' }] });
    expect(await move(lastFlow())).toMatchObject([{ result: 'shown' }]);
    expect([await aliases(), await shown('models/a/photo.png')]).toEqual([['models/a/photo.png'], 'one']);
  });

  it('hears of a flow that the key does not have, and of a route without an alias', async () => {
    await begin();
    await succeed('one');
    expect(await move('other')).toMatchObject([{ result: 'no such flow' }]);
    world.redeploy({ routes: [ECHO] });
    expect(await move(lastFlow())).toMatchObject([{ result: 'without an alias' }]);
  });
});
