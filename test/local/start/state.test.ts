import { chmod, mkdir, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { keepPagePlace, lastPagePlace, temporaryState, watchState } from '../../../local/start/state.ts';
import { temporaryFolder } from '../../support/folder.ts';

let parent: string;
let root: string;
beforeEach(async () => {
  parent = await temporaryFolder();
  root = join(parent, '.flowdrop');
});
const modeOf = async (path: string) => (await stat(path)).mode & 0o777;

it.each([
  ['watches', () => watchState(root, { inboxDir: 'inbox', serviceUrl: 'https://flows.example.com' })],
  ['processes files', () => temporaryState(root)],
])('closes to other users what an earlier run left open, when it %s', async (_, open) => {
  await mkdir(join(root, 'log'), { recursive: true });
  await writeFile(join(root, 'log', 'create-flow.log'), 'private');
  await writeFile(join(parent, 'public.txt'), 'public');
  await symlink(join(parent, 'public.txt'), join(root, 'link'));
  for (const [path, mode] of [
    [root, 0o777],
    [join(root, 'log'), 0o755],
    [join(root, 'log', 'create-flow.log'), 0o666],
  ] as const) {
    await chmod(path, mode);
  }
  await chmod(join(parent, 'public.txt'), 0o644);
  const { dir, release } = open();
  expect(await modeOf(root)).toBe(0o700);
  expect(await modeOf(dir)).toBe(0o700);
  expect(await modeOf(join(root, 'log'))).toBe(0o700);
  expect(await modeOf(join(root, 'log', 'create-flow.log'))).toBe(0o600);
  // What a link leads to is not ours.
  expect(await modeOf(join(parent, 'public.txt'))).toBe(0o644);
  release();
});

it('keeps the place of the page in a file that others cannot read, and takes a damaged one for none', async () => {
  await mkdir(root);
  expect(lastPagePlace(root)).toBeUndefined();
  const place = { port: 8321, key: 'k'.repeat(43) };
  keepPagePlace(root, place);
  expect(lastPagePlace(root)).toEqual(place);
  expect(await modeOf(join(root, 'page.json'))).toBe(0o600);
  for (const text of ['{', '{"port":0,"key":"short"}', '{"port":"8321"}']) {
    await writeFile(join(root, 'page.json'), text);
    expect(lastPagePlace(root)).toBeUndefined();
  }
});
