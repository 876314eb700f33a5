import { appendFile, mkdir, mkdtemp, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InboxFolder, KnownFiles } from '../../../local/start/inbox-folder.ts';

describe('the inbox folder', () => {
  let dir: string;
  let now: number;
  let inbox: InboxFolder;
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'flowdrop-inbox-'));
    now = 0;
    inbox = new InboxFolder(dir, { now: () => now });
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));
  const pollAfter = async (ms: number) => {
    now += ms;
    return (await inbox.poll()).map(({ key, bytes }) => [key, bytes]);
  };

  it('returns a growing file once, and only when it is complete', async () => {
    const path = join(dir, 'large.bin');
    await writeFile(path, 'one');
    expect(await pollAfter(0)).toEqual([]);
    await appendFile(path, 'two');
    expect(await pollAfter(900)).toEqual([]);
    await appendFile(path, 'three');
    expect(await pollAfter(900)).toEqual([]);
    expect(await pollAfter(900)).toEqual([]);
    expect(await pollAfter(100)).toEqual([['large.bin', 11]]);
    expect(await pollAfter(5_000)).toEqual([]);
  });

  it('waits for a file whose size is constant while its modification time changes', async () => {
    const path = join(dir, 'preallocated.bin');
    await writeFile(path, 'xxxx');
    await pollAfter(0);
    await utimes(path, 1_000, 1_000);
    expect(await pollAfter(1_000)).toEqual([]);
    expect(await pollAfter(1_000)).toEqual([['preallocated.bin', 4]]);
  });

  it('returns a file again after a change', async () => {
    await writeFile(join(dir, 'a.txt'), 'first');
    await pollAfter(0);
    expect(await pollAfter(1_000)).toEqual([['a.txt', 5]]);
    await writeFile(join(dir, 'a.txt'), 'the second');
    expect(await pollAfter(1_000)).toEqual([]);
    expect(await pollAfter(1_000)).toEqual([['a.txt', 10]]);
  });

  it('finds files in subfolders, under keys with slashes', async () => {
    await mkdir(join(dir, 'a b', 'ü'), { recursive: true });
    await writeFile(join(dir, 'a b', 'ü', '100%+?#\n🎁.png'), '');
    await pollAfter(0);
    expect(await pollAfter(1_000)).toEqual([['a b/ü/100%+?#\n🎁.png', 0]]);
  });

  it('follows a link to a file, but not a link to a folder or a broken one', async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), 'flowdrop-elsewhere-'));
    await writeFile(join(elsewhere, 'linked.txt'), 'linked');
    await symlink(join(elsewhere, 'linked.txt'), join(dir, 'link.txt'));
    await symlink(elsewhere, join(dir, 'folder'));
    await symlink(join(elsewhere, 'none'), join(dir, 'dangling.txt'));
    await pollAfter(0);
    expect(await pollAfter(1_000)).toEqual([['link.txt', 6]]);
    await rm(elsewhere, { recursive: true });
  });

  it('ignores hidden and unfinished files, and forgets deleted ones', async () => {
    await mkdir(join(dir, '.git'));
    const names = ['.hidden', '.git/config', 'a.part', 'b.CRDOWNLOAD', 'c.tmp', 'd.png~', '~$e.docx', 'gone.txt'];
    for (const name of names) await writeFile(join(dir, name), 'x');
    expect(await pollAfter(0)).toEqual([]);
    await rm(join(dir, 'gone.txt'));
    expect(await pollAfter(1_000)).toEqual([]);
    await writeFile(join(dir, 'gone.txt'), 'x');
    expect(await pollAfter(1_000)).toEqual([]);
  });

  it('remembers across restarts which version of a file was processed', async () => {
    const path = join(dir, '.state', 'known.json');
    const file = { path: join(dir, 'a'), key: 'a', bytes: 1, modifiedMs: 1.5 };
    const known = await KnownFiles.load(path);
    expect(known.has(file)).toBe(false);
    await Promise.all([known.add(file), known.add({ ...file, key: '__proto__' })]);

    const later = await KnownFiles.load(path);
    expect(later.has(file)).toBe(true);
    expect(later.has({ ...file, modifiedMs: 2 })).toBe(false);
    expect(later.has({ ...file, key: 'b' })).toBe(false);
  });
});
