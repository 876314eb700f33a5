import { chmod, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { keepPort, lastPort, temporaryState, watchState } from '../../../local/start/state.ts';
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

it('keeps the ports of the page and of S3, and no key, in a file that others cannot read', async () => {
  await mkdir(root);
  expect([lastPort(root, 'page'), lastPort(root, 's3')]).toEqual([undefined, undefined]);
  expect(keepPort(root, 'page', 'http://127.0.0.1:8321/#key=k')).toBe(8321);
  expect(keepPort(root, 's3', 'http://127.0.0.1:8322')).toBe(8322);
  expect([lastPort(root, 'page'), lastPort(root, 's3')]).toEqual([8321, 8322]);
  for (const [file, port] of [
    ['page.json', 8321],
    ['s3.json', 8322],
  ] as const) {
    expect(JSON.parse(await readFile(join(root, file), 'utf8'))).toEqual({ port });
    expect(await modeOf(join(root, file))).toBe(0o600);
  }
});

it('forgets the key that an earlier version kept, and takes a damaged file for none', async () => {
  await mkdir(root);
  await writeFile(join(root, 'page.json'), JSON.stringify({ port: 8321, key: 'k'.repeat(43) }));
  keepPort(root, 'page', `http://127.0.0.1:${lastPort(root, 'page')}`);
  expect(JSON.parse(await readFile(join(root, 'page.json'), 'utf8'))).toEqual({ port: 8321 });
  for (const text of ['{', '{"port":0}', '{"port":"8321"}']) {
    await writeFile(join(root, 'page.json'), text);
    expect(lastPort(root, 'page')).toBeUndefined();
  }
});
