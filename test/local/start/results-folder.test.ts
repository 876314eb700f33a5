import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative, sep } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ResultsFolder } from '../../../local/start/results-folder.ts';

describe('the results folder', () => {
  let parent: string;
  let dir: string;
  let results: ResultsFolder;
  beforeEach(async () => {
    parent = await mkdtemp(join(tmpdir(), 'flowdrop-results-'));
    dir = join(parent, 'results');
    results = new ResultsFolder(dir);
  });
  afterEach(() => rm(parent, { recursive: true, force: true }));
  const write = async (key: string, text = key) => relative(dir, await results.write(key, [Buffer.from(text)]));

  it('writes an object under its key', async () => {
    expect(await write('a b/ü 🎁.png/flow/asset.glb', 'content')).toBe('a b/ü 🎁.png/flow/asset.glb');
    expect(await readFile(join(dir, 'a b/ü 🎁.png/flow/asset.glb'), 'utf8')).toBe('content');
  });

  it.each([
    ['../../escape', '.%2E', '.%2E', 'escape'],
    ['/absolute', '%', 'absolute'],
    ['a//b', 'a', '%', 'b'],
    ['./a/..', '%2E', 'a', '.%2E'],
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

  it('leaves nothing of an object whose body fails', async () => {
    async function* broken() {
      yield Buffer.from('half');
      throw new Error('connection lost');
    }
    await expect(results.write('whole.glb', broken())).rejects.toThrow('connection lost');
    expect(await readdir(dir)).toEqual([]);
  });
});
