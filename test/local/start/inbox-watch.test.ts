import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { GetObjectCommand, ListObjectVersionsCommand } from '@aws-sdk/client-s3';
import { beforeEach, describe, expect, it } from 'vitest';
import { FileChangedError, isUploaded, uploadFile } from '../../../local/start/inbox-file.ts';
import { InboxFolder } from '../../../local/start/inbox-folder.ts';
import { InboxWatch, KnownFiles } from '../../../local/start/inbox-watch.ts';
import { type Running, startS3, VERSIONED } from '../../support/embedded-s3.ts';
import { temporaryFolder } from '../../support/folder.ts';

/** Points at which a run can be stopped. What it does after them never happens. */
type Point = 'before-upload' | 'after-upload' | 'never';

describe('watching the inbox', () => {
  let dir: string;
  let knownPath: string;
  let s3: Running;
  let now = 0;
  beforeEach(async () => {
    dir = await temporaryFolder();
    knownPath = join(await temporaryFolder(), 'known.json');
    s3 = await startS3();
  });
  const write = (content: string, name = 'a.txt') => writeFile(join(dir, name), content);

  /** A run of Flowdrop. Each has a memory of its own, and shares the folder, S3 and the file of what is done. */
  async function start(killedAt: Point = 'never') {
    const interrupted = new AbortController();
    const { signal } = interrupted;
    const failures: string[] = [];
    const interruptions: string[] = [];
    const hooks: { beforeUpload: (key: string) => Promise<void>; error?: Error | undefined } = {
      beforeUpload: async () => {},
    };
    const inbox = new InboxFolder(dir, { now: () => now }, () => false);
    const target = (key: string) => ({ s3: s3.client, bucket: VERSIONED, key, signal });
    const dead = new Promise<never>(() => {});
    let upload: Promise<unknown> = Promise.resolve();
    const watch = new InboxWatch({
      inbox,
      known: await KnownFiles.load(knownPath),
      signal,
      upload: async (file) => {
        await hooks.beforeUpload(file.key);
        if (killedAt === 'before-upload') return dead;
        if (hooks.error) throw hooks.error;
        const uploading = uploadFile(file, target(file.key));
        upload = Promise.allSettled([uploading]);
        const { content } = await uploading;
        if (killedAt === 'after-upload') return dead;
        return content;
      },
      isUploaded: (file) => isUploaded(file, target(file.key)),
      onFailure: ({ key }, error) => failures.push(`${key}: ${(error as Error).message}`),
      onInterruption: ({ key }) => interruptions.push(key),
      onError: (error) => failures.push(String(error)),
    });
    /** Lets time pass, in which the watch polls every 400 ms. */
    const pass = async (ms: number) => {
      for (let left = ms; left > 0; left -= 400) {
        now += 400;
        await watch.poll();
        if (killedAt === 'never') await watch.idle();
        else await new Promise((resolve) => setTimeout(resolve, 50)).then(() => upload);
      }
    };
    return { pass, hooks, failures, interruptions, interrupt: () => interrupted.abort() };
  }

  /** The contents that S3 got, the oldest first. */
  async function sent(Key = 'a.txt'): Promise<string[]> {
    const { Versions = [] } = await s3.client.send(new ListObjectVersionsCommand({ Bucket: VERSIONED, Prefix: Key }));
    const bodies = Versions.map(async ({ VersionId }) => {
      const { Body } = await s3.client.send(new GetObjectCommand({ Bucket: VERSIONED, Key, VersionId }));
      return (await Body?.transformToString()) ?? '';
    });
    return (await Promise.all(bodies)).reverse();
  }

  it('sends only the last of several versions, if it changes while it waits for its upload', async () => {
    const run = await start();
    let changes = 0;
    run.hooks.beforeUpload = async () => {
      changes += 1;
      if (changes < 4) await write(`v${changes + 1}`);
    };
    await write('v1');
    await run.pass(8_000);
    expect(await sent()).toEqual(['v4']);
    expect(run.failures).toEqual([]);
  });

  it('sends a job file after the files of its folder, so that the job takes no earlier version of them', async () => {
    const { pass, hooks } = await start();
    await mkdir(join(dir, 'chair/sides'), { recursive: true });
    for (const name of ['job.json', 'front.png', 'sides/left.png']) await write(name, `chair/${name}`);
    const before: string[] = [];
    let underWay = 0;
    hooks.beforeUpload = async (key) => {
      before.push(`${key} with ${underWay}`);
      underWay += 1;
      await new Promise((resolve) => setTimeout(resolve, 100));
      underWay -= 1;
    };
    await pass(2_000);
    expect(before).toHaveLength(3);
    expect(before.at(-1)).toBe('chair/job.json with 0');
  });

  it('sends a file under its new name that is renamed before it is read', async () => {
    const run = await start();
    run.hooks.beforeUpload = () => rename(join(dir, 'a.txt'), join(dir, 'b.txt')).catch(() => {});
    await write('v1');
    await run.pass(4_000);
    expect(await sent('a.txt')).toEqual([]);
    expect(await sent('b.txt')).toEqual(['v1']);
    expect(run.failures).toEqual([]);
  });

  it('tries a file again that could not be uploaded, and says so each time', async () => {
    const run = await start();
    run.hooks.error = new Error('S3 is full');
    await write('v1');
    await run.pass(2_000);
    expect(run.failures).toEqual(['a.txt: S3 is full']);
    await run.pass(59_000);
    expect(run.failures).toHaveLength(1);
    await run.pass(3_000);
    expect(run.failures).toHaveLength(2);
    run.hooks.error = undefined;
    await run.pass(122_000);
    expect(await sent()).toEqual(['v1']);
    expect((await start()).failures).toEqual([]);

    // Its next content is tried again as soon as that of another file.
    run.hooks.error = new Error('S3 is full');
    await write('v2');
    await run.pass(64_000);
    expect(run.failures).toHaveLength(4);
  });

  it('says so if it cannot read a version that the folder keeps showing', async () => {
    const run = await start();
    run.hooks.error = new FileChangedError('a.txt was replaced or moved');
    await write('v1');
    await run.pass(2_000);
    expect(run.failures).toEqual([]);
    await run.pass(2_000);
    expect(run.failures).toEqual(['a.txt: a.txt was replaced or moved']);
    await run.pass(50_000);
    expect(run.failures).toHaveLength(1);
  });

  it.each<[Point]>([['before-upload'], ['after-upload']])(
    'neither loses nor repeats a file when it is killed %s',
    async (killedAt) => {
      const killed = await start(killedAt);
      await write('v1');
      await killed.pass(2_000);
      for (let run = 0; run < 2; run += 1) await (await start()).pass(2_000);
      expect(await sent()).toEqual(['v1']);
    },
  );

  it('sends the newer version when it was killed after the older one was uploaded', async () => {
    const killed = await start('after-upload');
    await write('v1');
    await killed.pass(2_000);
    await write('v2');
    const next = await start();
    await next.pass(2_000);
    expect(await sent()).toEqual(['v1', 'v2']);
  });

  it('uploads nothing more once it is interrupted, and leaves that to the next run', async () => {
    const run = await start();
    run.hooks.beforeUpload = async () => run.interrupt();
    for (let i = 0; i < 9; i += 1) await write('v1', `${i}.txt`);
    await run.pass(2_000);
    expect(await sent('')).toEqual([]);
    expect(run.failures).toEqual([]);
    expect(run.interruptions).toHaveLength(9);
    const next = await start();
    await next.pass(2_000);
    const { Versions = [] } = await s3.client.send(new ListObjectVersionsCommand({ Bucket: VERSIONED }));
    expect(Versions).toHaveLength(9);
  });
});
