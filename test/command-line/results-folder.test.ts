import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { ResultsFolder } from '../../command-line/results-folder.ts';
import { temporaryFolder } from '../support/folder.ts';

describe('the results folder', () => {
  let parent: string;
  let dir: string;
  let results: ResultsFolder;
  beforeEach(async () => {
    parent = await temporaryFolder();
    dir = join(parent, 'results');
    results = new ResultsFolder(dir);
  });
  const write = async (key: string, text = key) => relative(dir, await results.write(key, [Buffer.from(text)]));

  it('writes an object under its key', async () => {
    expect(await write('a b/ü 🎁.png/flow/asset.glb', 'content')).toBe('a b/ü 🎁.png/flow/asset.glb');
    expect(await readFile(join(dir, 'a b/ü 🎁.png/flow/asset.glb'), 'utf8')).toBe('content');
  });

  it.each([
    ['../../escape', '%2E%2E', '%2E%2E', 'escape'],
    ['/absolute', '%', 'absolute'],
    ['a//b', 'a', '%', 'b'],
    ['./a/..', '%2E', 'a', '%2E%2E'],
    ['.git/config', '%2Egit', 'config'],
    ['a/.GIT/hooks/post-checkout', 'a', '%2EGIT', 'hooks', 'post-checkout'],
    ['.flowdrop/run.json', '%2Eflowdrop', 'run.json'],
    ['.incoming-1-a', '%2Eincoming-1-a'],
    ['\u200c.git/x', '%E2%80%8C.git', 'x'],
    ['GIT~1/config', 'GIT%7E1', 'config'],
    ['a\u009b2J\u0085', 'a%C2%9B2J%C2%85'],
    ['photo\u202egnp.exe', 'photo%E2%80%AEgnp.exe'],
    ['a\u2028b\u2029', 'a%E2%80%A8b%E2%80%A9'],
    ['\ud800', '%uD800'],
    ['\udc00', '%uDC00'],
    ['a\\..\\b', 'a%5C..%5Cb'],
    ['C:\\b', 'C%3A%5Cb'],
    ['nul\0\n', 'nul%00%0A'],
    ['con.txt', '%63on.txt'],
    ['dot.', 'dot%2E'],
    ['50%25', '50%2525'],
    ['what?*|<>"', 'what%3F%2A%7C%3C%3E%22'],
    ['folder/', 'folder', '%'],
  ])('writes the key %j inside the folder', async (key, ...segments) => {
    expect(await write(key)).toBe(segments.join(sep));
    expect(await readdir(parent)).toEqual(['results']);
  });

  it('finds another path for a key that the file system does not allow', async () => {
    const keys = ['a', 'a/b', 'c/d', 'c', `${'n'.repeat(300)}.glb`];
    const paths: string[] = [];
    for (const key of keys) paths.push(await write(key));
    expect(paths[0]).toBe('a');
    expect(paths[2]).toBe(join('c', 'd'));
    expect(paths[4]).toMatch(/^%[0-9a-f]{32}\.glb$/);
    expect(new Set(paths).size).toBe(keys.length);
    for (const [i, path] of paths.entries()) expect(await readFile(join(dir, path), 'utf8')).toBe(keys[i]);
  });

  it('replaces an older object of the same key', async () => {
    await write('receipt.json', 'first, and longer');
    await write('receipt.json', 'second');
    expect(await readFile(join(dir, 'receipt.json'), 'utf8')).toBe('second');
  });

  describe('removes what it wrote', () => {
    const digestOf = (text: string) => createHash('sha256').update(text).digest('hex');

    it.each([['models/oak.glb'], ['.git/config'], [`${'n'.repeat(300)}.glb`]])('at the key %j', async (key) => {
      const path = await write(key, 'content');
      await results.remove(key, digestOf('content'));
      await expect(readFile(join(dir, path))).rejects.toThrow('ENOENT');
      await results.remove(key, digestOf('content'));
    });

    it('unless it was changed', async () => {
      const path = join(dir, await write('models/oak.glb', 'content'));
      await writeFile(path, 'another content');
      const removed = results.remove('models/oak.glb', digestOf('content'));
      await expect(removed).rejects.toThrow(`${path} was changed after it was written, so it stays`);
      expect(await readFile(path, 'utf8')).toBe('another content');
    });

    it('and no folder, no symlink, and nothing that a symlink leads to', async () => {
      const outside = join(parent, 'outside');
      await mkdir(outside);
      await writeFile(join(outside, 'oak.glb'), 'content');
      await mkdir(dir);
      await symlink(outside, join(dir, 'models'));
      await symlink(join(outside, 'oak.glb'), join(dir, 'oak.glb'));
      await results.remove('models/oak.glb', digestOf('content'));
      await results.remove('oak.glb', digestOf('content'));
      await results.remove('models', digestOf('content'));
      expect(await readFile(join(outside, 'oak.glb'), 'utf8')).toBe('content');
      expect((await readdir(dir)).sort()).toEqual(['models', 'oak.glb']);
    });
  });

  it('leaves nothing of an object whose body fails', async () => {
    async function* broken() {
      yield Buffer.from('half');
      throw new Error('connection lost');
    }
    await expect(results.write('whole.glb', broken())).rejects.toThrow('connection lost');
    expect(await readdir(dir)).toEqual([]);
  });

  describe('with symlinks in it', () => {
    let outside: string;
    beforeEach(async () => {
      outside = join(parent, 'outside');
      await mkdir(join(outside, 'flow'), { recursive: true });
      await writeFile(join(outside, 'private.txt'), 'private');
      await mkdir(dir);
    });
    const outsideHolds = async () => [
      (await readdir(outside, { recursive: true })).sort(),
      await readFile(join(outside, 'private.txt'), 'utf8'),
    ];
    const UNTOUCHED = [['flow', 'private.txt'], 'private'];

    it('replaces a symlink in the place of a file', async () => {
      await symlink(join(outside, 'private.txt'), join(dir, 'receipt.json'));
      expect(await write('receipt.json', 'result')).toBe('receipt.json');
      expect(await readFile(join(dir, 'receipt.json'), 'utf8')).toBe('result');
      expect(await outsideHolds()).toEqual(UNTOUCHED);
    });

    it.each([
      ['a parent', 'a.png', 'a.png/flow/asset.glb'],
      ['a folder above a parent', 'a.png', 'a.png/flow/deep/asset.glb'],
    ])('does not write through a symlink in the place of %s', async (_, link, key) => {
      await symlink(outside, join(dir, link));
      const path = await write(key, 'result');
      expect(path).toMatch(/^%[0-9a-f]{32}\.glb$/);
      expect(await readFile(join(dir, path), 'utf8')).toBe('result');
      expect(await outsideHolds()).toEqual(UNTOUCHED);
    });

    it('does not write through a dangling symlink', async () => {
      await symlink(join(outside, 'new'), join(dir, 'a.png'));
      expect(await write('a.png/receipt.json')).toMatch(/^%/);
      expect(await outsideHolds()).toEqual(UNTOUCHED);
    });

    it('does not write through a symlink that takes the place of a folder while the body arrives', async () => {
      await write('a.png/first.glb');
      async function* body() {
        yield Buffer.from('result');
        await rename(join(dir, 'a.png'), join(dir, 'moved'));
        await symlink(outside, join(dir, 'a.png'));
      }
      const path = relative(dir, await results.write('a.png/second.glb', body()));
      expect(path).toMatch(/^%/);
      expect(await readFile(join(dir, path), 'utf8')).toBe('result');
      expect(await outsideHolds()).toEqual(UNTOUCHED);
    });

    it('writes to where the results folder itself leads', async () => {
      await rm(dir, { recursive: true });
      await symlink(join(outside, 'flow'), dir);
      expect(await write('a.png/asset.glb', 'result')).toBe(join('a.png', 'asset.glb'));
      expect(await readFile(join(outside, 'flow', 'a.png', 'asset.glb'), 'utf8')).toBe('result');
    });
  });

  it('removes the half of a file that a killed process left, and not that of another run', async () => {
    await mkdir(dir);
    const dead = spawnSync(process.execPath, ['-e', '']).pid;
    await writeFile(join(dir, `.incoming-${dead}-a`), 'half');
    await writeFile(join(dir, `.incoming-${process.ppid}-b`), 'half');
    await write('a');
    expect((await readdir(dir)).sort()).toEqual([`.incoming-${process.ppid}-b`, 'a']);
  });
});
