import { appendFile, mkdir, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Route } from '../../../functions/uploads/route.ts';
import { isLeftOut, skipping } from '../../../functions/uploads/routes.ts';
import { InboxFolder } from '../../../local/start/inbox-folder.ts';
import { temporaryFolder } from '../../support/folder.ts';
import { ECHO } from '../../support/world.ts';

const isLeftOutBy = (routes: readonly Route[]) => (key: string) => isLeftOut(routes, key);

describe('the inbox folder', () => {
  let parent: string;
  let dir: string;
  let now: number;
  let inbox: InboxFolder;
  beforeEach(async () => {
    parent = await temporaryFolder();
    dir = join(parent, 'inbox');
    await mkdir(dir);
    now = 0;
    inbox = new InboxFolder(dir, { now: () => now }, isLeftOutBy([ECHO]));
  });
  const pollAfter = async (ms: number) => {
    now += ms;
    return (await inbox.poll()).map(({ key, bytes }) => [key, bytes]);
  };
  /** What the folder returns after a second in which nothing changes. */
  const settled = async () => {
    await pollAfter(0);
    return pollAfter(1_000);
  };

  it('returns a growing file once, and only when it is complete', async () => {
    const path = join(dir, 'large.bin');
    await writeFile(path, 'one');
    expect(await pollAfter(0)).toEqual([]);
    await appendFile(path, 'two');
    expect(await pollAfter(900)).toEqual([]);
    await appendFile(path, 'three');
    // It must rest for three times its longest pause, which is not this one.
    expect(await pollAfter(600)).toEqual([]);
    expect(await pollAfter(900)).toEqual([]);
    expect(await pollAfter(1_700)).toEqual([]);
    expect(await pollAfter(100)).toEqual([['large.bin', 11]]);
    expect(await pollAfter(50_000)).toEqual([]);
  });

  it('returns a file once that grows with pauses which become longer', async () => {
    const path = join(dir, 'slow.bin');
    let ms = 0;
    for (const pause of [800, 1_500, 2_500, 4_000, 6_000]) {
      await appendFile(path, 'x');
      for (let rest = 0; rest < pause; rest += 100) {
        expect(await pollAfter(100)).toEqual([]);
        ms += 100;
      }
    }
    expect(ms).toBe(14_800);
    expect(await pollAfter(30_000)).toEqual([['slow.bin', 5]]);
  });

  it('does not let a file wait that was edited a while ago', async () => {
    const path = join(dir, 'prompt.txt');
    await writeFile(path, 'a fox');
    expect(await settled()).toHaveLength(1);
    await pollAfter(40_000);
    await writeFile(path, 'a red fox');
    expect(await pollAfter(400)).toEqual([]);
    expect(await pollAfter(1_000)).toEqual([['prompt.txt', 9]]);
  });

  it('does not let a file wait for more than half a minute', async () => {
    const path = join(dir, 'slow.bin');
    for (const pause of [900, 2_600, 7_700, 23_000]) {
      await appendFile(path, 'x');
      await pollAfter(0);
      expect(await pollAfter(pause)).toEqual([]);
    }
    await appendFile(path, 'x');
    await pollAfter(0);
    expect(await pollAfter(29_900)).toEqual([]);
    expect(await pollAfter(100)).toEqual([['slow.bin', 5]]);
  });

  it('returns a corrected file soon: the time since it was returned is no pause of a writer', async () => {
    const path = join(dir, 'picture.png');
    await writeFile(path, 'text');
    expect(await settled()).toEqual([['picture.png', 4]]);
    await pollAfter(5_000);
    await writeFile(path, 'a picture');
    expect(await settled()).toEqual([['picture.png', 9]]);
  });

  it('returns a file that is written with pauses of seven seconds three times, and not at each pause', async () => {
    const path = join(dir, 'recording.bin');
    const returned: unknown[] = [];
    for (let n = 0; n < 8; n += 1) {
      await appendFile(path, 'x');
      for (let rest = 0; rest < 7_000; rest += 500) returned.push(...(await pollAfter(500)));
    }
    for (let rest = 0; rest < 30_000; rest += 500) returned.push(...(await pollAfter(500)));
    // The second time it may be a correction. From then on it must rest for three times its longest pause.
    expect(returned).toEqual([
      ['recording.bin', 1],
      ['recording.bin', 2],
      ['recording.bin', 8],
    ]);
  });

  it.each([
    ['in place', (path: string) => writeFile(path, 'v2')],
    [
      'by rename',
      async (path: string) => {
        await writeFile(`${path}.tmp`, 'v2');
        await utimes(`${path}.tmp`, 1_000, 1_000);
        await rename(`${path}.tmp`, path);
      },
    ],
  ])(
    'returns a file again whose content is replaced %s, with the same size and modification time',
    async (_, replace) => {
      const path = join(dir, 'a.txt');
      await writeFile(path, 'v1');
      await utimes(path, 1_000, 1_000);
      expect(await settled()).toHaveLength(1);
      await replace(path);
      await utimes(path, 1_000, 1_000);
      expect(await settled()).toEqual([['a.txt', 2]]);
    },
  );

  it('returns the files of a folder that was removed and made again', async () => {
    await mkdir(join(dir, 'sub'));
    await writeFile(join(dir, 'sub', 'a.txt'), 'first');
    expect(await settled()).toHaveLength(1);
    await rm(join(dir, 'sub'), { recursive: true });
    expect(await pollAfter(400)).toEqual([]);
    await mkdir(join(dir, 'sub', 'deeper'), { recursive: true });
    await writeFile(join(dir, 'sub', 'deeper', 'b.txt'), 'second');
    await pollAfter(400);
    expect(await pollAfter(1_000)).toEqual([['sub/deeper/b.txt', 6]]);
    expect(inbox.troubles).toEqual([]);
  });

  it('says once it is gone, forgets no file meanwhile, and goes on when it is back', async () => {
    await writeFile(join(dir, 'a.txt'), 'first');
    expect(await settled()).toHaveLength(1);
    await rename(dir, `${dir}-away`);
    expect(await pollAfter(400)).toEqual([]);
    expect(inbox.troubles).toEqual([`The inbox ${dir} is gone. Make it again, and its files are taken.`]);
    await rename(`${dir}-away`, dir);
    expect(await pollAfter(400)).toEqual([]);
    expect(await pollAfter(5_000)).toEqual([]);
    expect(inbox.troubles).toEqual([]);
  });

  it('returns a file again, later, that could not be uploaded', async () => {
    await writeFile(join(dir, 'a.txt'), 'first');
    expect(await settled()).toHaveLength(1);
    inbox.offerAgain('a.txt', 60_000);
    expect(await pollAfter(60_000)).toEqual([]);
    expect(await pollAfter(1_000)).toEqual([['a.txt', 5]]);
  });

  it('waits for a file whose size is constant while its modification time changes', async () => {
    const path = join(dir, 'preallocated.bin');
    await writeFile(path, 'xxxx');
    await pollAfter(0);
    await utimes(path, 1_000, 1_000);
    expect(await pollAfter(1_000)).toEqual([]);
    expect(await pollAfter(1_000)).toEqual([['preallocated.bin', 4]]);
  });

  it('finds files in subfolders, under keys with slashes', async () => {
    await mkdir(join(dir, 'a b', 'ü'), { recursive: true });
    await writeFile(join(dir, 'a b', 'ü', '100%+?#\n🎁.png'), '');
    expect(await settled()).toEqual([['a b/ü/100%+?#\n🎁.png', 0]]);
  });

  it('follows no link that leads out of it, and says so', async () => {
    const elsewhere = join(parent, 'elsewhere');
    await mkdir(elsewhere);
    await writeFile(join(elsewhere, 'private.txt'), 'private');
    await symlink(join(elsewhere, 'private.txt'), join(dir, 'link.txt'));
    await symlink('link.txt', join(dir, 'chain.txt'));
    await symlink(elsewhere, join(dir, 'folder'));
    await symlink(join(elsewhere, 'none'), join(dir, 'dangling.txt'));
    await symlink('loop.txt', join(dir, 'loop.txt'));
    await symlink(`${dir}-sibling`, join(dir, 'sibling.txt'));
    await writeFile(`${dir}-sibling`, 'beside');
    expect(await settled()).toEqual([]);
    expect([...inbox.troubles].sort()).toEqual(
      ['chain.txt', 'folder', 'link.txt', 'sibling.txt'].map(
        (name) => `The link ${join(dir, name)} leads out of the inbox, so it is not followed. Copy the file.`,
      ),
    );
  });

  it('follows a link to a file that is in it, and takes the files of a linked folder once', async () => {
    await mkdir(join(dir, 'sub'));
    await writeFile(join(dir, 'sub', 'a.txt'), 'linked');
    await symlink(join('sub', 'a.txt'), join(dir, 'link.txt'));
    await symlink('sub', join(dir, 'folder'));
    expect((await settled()).sort()).toEqual([
      ['link.txt', 6],
      ['sub/a.txt', 6],
    ]);
    expect(inbox.troubles).toEqual([]);
  });

  it('may itself be a link', async () => {
    await writeFile(join(dir, 'a.txt'), 'first');
    await symlink(dir, join(parent, 'link'));
    inbox = new InboxFolder(join(parent, 'link'), { now: () => now }, isLeftOutBy([ECHO]));
    expect(await settled()).toEqual([['a.txt', 5]]);
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

  it('takes an unfinished file as soon as it has its own name, and has rested for a second', async () => {
    await writeFile(join(dir, 'photo.png.part'), 'x');
    expect(await settled()).toEqual([]);
    await rename(join(dir, 'photo.png.part'), join(dir, 'photo.png'));
    expect(await settled()).toEqual([['photo.png', 1]]);
  });

  it.each([
    ['the setting', skipping([ECHO], ['*.old', 'drafts/']), ['a.part', 'b.tmp']],
    ['a suffix of a route', [ECHO, { ...ECHO, name: 'parts', suffixes: ['.part'] }], ['a.part']],
    ['the prefix of a job', [ECHO, { ...ECHO, name: 'jobs', jobs: 'drafts/' }], ['drafts/c.tmp']],
  ])('leaves out what the functions skip, as changed by %s', async (_, routes, taken) => {
    inbox = new InboxFolder(dir, { now: () => now }, isLeftOutBy(routes));
    await mkdir(join(dir, 'drafts'));
    for (const name of ['a.part', 'b.tmp', 'drafts/c.tmp', 'd.old']) await writeFile(join(dir, name), 'x');
    const skipped = routes[0]?.skippedNames === undefined ? ['d.old'] : [];
    expect((await settled()).map(([key]) => key).sort()).toEqual([...taken, ...skipped].sort());
  });
});
