import {
  DeleteObjectCommand,
  GetObjectTaggingCommand,
  PutObjectCommand,
  PutObjectTaggingCommand,
  type PutObjectTaggingCommandInput,
} from '@aws-sdk/client-s3';
import { describe, expect, it } from 'vitest';
import type { ChainReport } from '../../functions/publish/report-schemas.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { S3Access } from '../../local/aws/s3/call.ts';
import { dyingAt, ECHO, INBOX, LEDGER, RESULTS, start, type WorldOptions, world } from '../support/world.ts';

const TAG: Route = { ...ECHO, afterSuccess: 'tag' };
const DELETE: Route = { ...ECHO, afterSuccess: 'delete' };
const NEXT: Route = { ...ECHO, name: 'next', after: 'echo' };
/** One of its three outputs fails. */
const partial = (route: Route): Route => ({ ...route, parameters: { copies: 3, failed_outputs: 1 } });

const begin = (routes: readonly Route[], more: WorldOptions = {}) => start({ routes, isVirtual: true, ...more });

async function put(key: string, body: string): Promise<string | undefined> {
  const { VersionId } = await world.s3.send(new PutObjectCommand({ Bucket: INBOX, Key: key, Body: Buffer.from(body) }));
  return VersionId;
}

async function tagsOf(VersionId?: string): Promise<readonly string[]> {
  const { TagSet = [] } = await world.s3.send(new GetObjectTaggingCommand({ Bucket: INBOX, Key: 'a', VersionId }));
  return TagSet.map(({ Key, Value }) => `${Key}=${Value}`);
}

const setTags = (names: readonly string[]) =>
  world.s3.send(
    new PutObjectTaggingCommand({
      Bucket: INBOX,
      Key: 'a',
      Tagging: { TagSet: names.map((Key) => ({ Key, Value: '1' })) },
    }),
  );
const inbox = () => world.keys(INBOX);
const chain = () => world.json<ChainReport>(RESULTS, 'a/chain.json');
const ended = async (key = 'a') => (await world.settled(key)).status;

/** S3 refuses these actions. */
const refusing =
  (...actions: readonly string[]) =>
  ({ action, resource }: S3Access): boolean =>
    !(actions.includes(action) && resource.includes(`:${INBOX}/`));

describe('with "afterSuccess": "tag", a file', () => {
  it('is tagged in exactly the version that was sent, and keeps its other tags', async () => {
    await begin([TAG]);
    const first = await put('a', '1');
    await setTags(['mine']);
    await world.deliver();
    const second = await put('a', '2');
    world.takeMessages();
    await world.settle();
    expect([await tagsOf(first), await tagsOf(second)]).toEqual([['mine=1', 'flowdrop=succeeded'], []]);
  });

  it.each([
    ['its flow failed', { ...TAG, parameters: { fail: true } }, 'failed'],
    ['the service refused it', { ...TAG, template: 'typo' }, 'failed'],
    ['an output failed', partial(TAG), 'succeeded'],
  ])('is tagged as failed if %s', async (_, route, status) => {
    await begin([route]);
    await put('a', '1');
    expect(await ended()).toBe(status);
    expect(await tagsOf()).toEqual(['flowdrop=failed']);
  });

  it('is not tagged if a newer file takes its place before it is sent', async () => {
    await begin([{ ...TAG, settleSeconds: 60 }], { versioning: 'Enabled' });
    const first = await put('a', '1');
    const second = await put('a', '2');
    await world.settle();
    expect((await world.entries()).map(({ state }) => state).toSorted()).toEqual(['failed', 'succeeded']);
    expect([await tagsOf(first), await tagsOf(second)]).toEqual([[], ['flowdrop=succeeded']]);
  });

  it('is tagged anew by the next end', async () => {
    await begin([{ ...TAG, parameters: { fail: true } }]);
    await put('a', '1');
    await world.settle();
    world.redeploy({ routes: [TAG] });
    await world.retry();
    await world.settle();
    expect(await tagsOf()).toEqual(['flowdrop=succeeded']);
  });

  it('is told of in the receipt if it has ten tags already', async () => {
    await begin([TAG]);
    await put('a', '1');
    await setTags(Array.from({ length: 10 }, (_, n) => `mine ${n}`));
    await world.settle();
    expect(await world.receipt('a')).toMatchObject({
      status: 'succeeded',
      sourceIssue: 'The file has 10 tags already, and S3 allows no more.',
    });
    expect(await tagsOf()).toHaveLength(10);
  });

  it('is told of in the receipt if the inbox keeps no versions', async () => {
    await begin([TAG], { versioning: undefined });
    await put('a', '1');
    await world.settle();
    expect((await world.receipt('a')).sourceIssue).toContain('Turn on versioning');
    expect(await tagsOf()).toEqual([]);
  });

  it('is told of in the receipt if S3 refuses it, until S3 allows it', async () => {
    let refused = true;
    const authorize = (access: S3Access) => !refused || refusing('s3:PutObjectVersionTagging')(access);
    await begin([TAG], { s3: { authorize } });
    await put('a', '1');
    expect(await ended()).toBe('succeeded');
    expect((await world.receipt('a')).sourceIssue).toMatch(/^S3 refused to tag the file: /);
    expect(world.events.map(({ detail }) => Object.keys(JSON.parse(detail)).includes('sourceIssue'))).toEqual([false]);
    expect(await world.keys(LEDGER, 'running/')).toEqual([]);
    refused = false;
    const { upload } = await world.entry();
    await world.collect({ collect: [upload.id] });
    await world.settle();
    expect(await world.receipt('a')).not.toHaveProperty('sourceIssue');
    expect(await tagsOf()).toEqual(['flowdrop=succeeded']);
  });
});

it('a receipt that is published again says what the last attempt came to', async () => {
  let refused = true;
  const authorize = (access: S3Access) => !refused || refusing('s3:PutObjectVersionTagging')(access);
  await begin([TAG], { s3: { authorize } });
  await put('a', '1');
  await world.deliver();
  const live = dyingAt(world.ports.ledger, 'deleteRunningMarker');
  await expect(world.tickAfter(5 * 60_000)).rejects.toThrow('could not be processed');
  live();
  expect((await world.receipt('a')).sourceIssue).toMatch(/^S3 refused/);
  refused = false;
  await world.settle();
  expect(await world.receipt('a')).not.toHaveProperty('sourceIssue');
  expect(await tagsOf()).toEqual(['flowdrop=succeeded']);
});

describe('with "afterSuccess": "delete", a file', () => {
  it.each(['Enabled', 'Suspended', undefined] as const)('is deleted with versioning %s', async (versioning) => {
    await begin([DELETE], { versioning });
    const version = await put('a', '1');
    expect(await ended()).toBe('succeeded');
    expect(await inbox()).toEqual([]);
    if (versioning === 'Enabled') expect(await tagsOf(version)).toEqual([]); // The version is there.
    expect(await world.receipt('a')).not.toHaveProperty('sourceIssue');
  });

  it.each([
    ['its flow failed', { ...DELETE, parameters: { fail: true } }],
    ['an output failed', partial(DELETE)],
    ['its route asks for nothing', ECHO],
  ])('stays if %s', async (_, route) => {
    await begin([route]);
    await put('a', '1');
    await world.settle();
    expect(await inbox()).toEqual(['a']);
  });

  it.each([
    ['Enabled', '2'],
    ['Enabled', '1'],
    [undefined, '2'],
    [undefined, '1'],
  ] as const)(
    'stays if another one came to its key, with versioning %s and the content %s',
    async (versioning, body) => {
      await begin([DELETE], { versioning });
      await put('a', '1');
      await world.deliver();
      world.clock.advance(5_000);
      await put('a', body);
      world.takeMessages();
      await world.tick();
      await world.tickAfter(60_000);
      expect((await world.receipt('a')).status).toBe('succeeded');
      expect(await inbox()).toEqual(['a']);
    },
  );

  it('stays if another one comes just before the deletion', async () => {
    await begin([DELETE], { versioning: undefined });
    await put('a', '1');
    let isPut = false;
    world.beforeS3(async (call, { Key }) => {
      if (call !== 'DeleteObject' || Key !== 'a' || isPut) return;
      isPut = true;
      await put('a', '2');
    });
    await world.deliver();
    await world.tickAfter(5 * 60_000);
    expect([isPut, await inbox()]).toEqual([true, ['a']]);
  });

  it('cannot be sent again once its version is gone, and the retry says so', async () => {
    await begin([{ ...DELETE, parameters: { fail: true } }]);
    const version = await put('a', '1');
    await world.settle();
    await world.remove('a');
    expect(await world.retry()).toBe('resubmitted');
    await world.settle();
    await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'a', VersionId: version }));
    expect(await world.retry()).toBe('source gone');
    expect(await world.entry()).toMatchObject({ state: 'failed', generation: 2 });
  });

  it('stays if it is the canary, of which the next one is made', async () => {
    await begin([DELETE], { settings: { canaryKey: 'a' } });
    await put('a', '1');
    expect(await ended()).toBe('succeeded');
    expect(await inbox()).toEqual(['a']);
  });

  it('is told of in the receipt if S3 refuses it', async () => {
    await begin([DELETE], { s3: { authorize: refusing('s3:DeleteObject') } });
    await put('a', '1');
    await world.settle();
    expect((await world.receipt('a')).sourceIssue).toMatch(/^S3 refused to delete the file: /);
  });
});

describe('the file of a chain', () => {
  it('is deleted when the whole chain has ended, and not before', async () => {
    await begin([DELETE, NEXT]);
    await put('a', '1');
    await world.deliver();
    await world.tickAfter(5 * 60_000);
    expect([(await world.receipt('a')).status, await inbox()]).toEqual(['succeeded', ['a']]);
    await world.settle();
    expect([(await chain()).status, await inbox()]).toEqual(['succeeded', []]);
  });

  it.each([
    ['a stage failed', { ...NEXT, parameters: { fail: true } }],
    ['an output of a stage failed', partial(NEXT)],
  ])('stays if %s', async (_, next) => {
    await begin([DELETE, next]);
    await put('a', '1');
    await world.settle();
    expect([(await chain()).stages.length, await inbox()]).toEqual([2, ['a']]);
  });

  it('is tagged once, by the end of the chain', async () => {
    await begin([TAG, { ...NEXT, template: 'typo' }]);
    const set: unknown[] = [];
    world.beforeS3((call, input) => {
      if (call === 'PutObjectTagging') set.push((input as PutObjectTaggingCommandInput).Tagging?.TagSet);
    });
    await put('a', '1');
    await world.settle();
    expect(set).toEqual([[{ Key: 'flowdrop', Value: 'failed' }]]);
  });

  it('is told of in chain.json if S3 refuses it', async () => {
    await begin([TAG, NEXT], { s3: { authorize: refusing('s3:GetObjectVersionTagging') } });
    await put('a', '1');
    await world.settle();
    expect((await chain()).sourceIssue).toMatch(/^S3 refused to tag the file: /);
    expect(await world.receipt('a')).not.toHaveProperty('sourceIssue');
  });
});

describe('if S3 does not answer', () => {
  it.each([
    ['tag', TAG, ['GetObjectTagging', 'PutObjectTagging']],
    ['delete', DELETE, ['HeadObject', 'DeleteObject']],
  ] as const)('the %s is done by a later tick', async (_, route, calls) => {
    for (const failing of calls) {
      await begin([route]);
      let failures = 0;
      world.beforeS3((call, { Bucket }) => {
        if (call !== failing || Bucket !== INBOX || failures > 0) return;
        failures += 1;
        throw new Error('No answer');
      });
      await put('a', '1');
      await world.deliver();
      await expect(world.tickAfter(5 * 60_000)).rejects.toThrow('could not be processed');
      expect(await world.keys(LEDGER, 'running/')).toHaveLength(1);
      await world.settle();
      expect(failures).toBe(1);
      if (route === TAG) expect(await tagsOf()).toEqual(['flowdrop=succeeded']);
      else expect(await inbox()).toEqual([]);
      expect(await world.receipt('a')).not.toHaveProperty('sourceIssue');
    }
  });
});
