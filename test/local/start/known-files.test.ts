import { chmod, mkdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { contentOf, type InboxFile, versionOf } from '../../../local/start/inbox-file.ts';
import { KnownFiles } from '../../../local/start/inbox-watch.ts';
import { temporaryFolder } from '../../support/folder.ts';

const NEVER = new AbortController().signal;

describe('the known files', () => {
  let dir: string;
  let path: string;
  beforeEach(async () => {
    dir = await temporaryFolder();
    path = join(dir, 'state', 'known.json');
  });
  /** Writes a file with a modification time that says nothing. */
  async function file(content: string, key = 'a.txt'): Promise<InboxFile> {
    await writeFile(join(dir, key), content);
    await utimes(join(dir, key), 1_000, 1_000);
    return again(key);
  }
  const again = async (key = 'a.txt'): Promise<InboxFile> => ({
    path: join(dir, key),
    key,
    ...versionOf(await stat(join(dir, key))),
  });
  async function finish(known: KnownFiles, done: InboxFile) {
    const content = await contentOf(done, NEVER);
    known.uploaded(done.key, content);
    await known.done(done.key, content);
  }
  const load = () => KnownFiles.load(path);

  it('are known to the next run, by key and content', async () => {
    const known = await load();
    const a = await file('one');
    expect(await known.has(a, NEVER)).toBe(false);
    await Promise.all([finish(known, a), finish(known, await file('two', '__proto__'))]);

    const later = await load();
    expect(later.count).toBe(2);
    expect(await later.has(a, NEVER)).toBe(true);
    expect(await later.has({ ...a, key: 'b.txt' }, NEVER)).toBe(false);
    expect(await later.has({ ...a, modifiedMs: a.modifiedMs + 1 }, NEVER)).toBe(false);
    expect(await later.has({ ...a, bytes: 4 }, NEVER)).toBe(false);
    expect(await later.has(await again('__proto__'), NEVER)).toBe(true);
  });

  it('are not known by size and time alone', async () => {
    await finish(await load(), await file('one'));
    const changed = await file('two');
    const later = await load();
    expect(await later.has(changed, NEVER)).toBe(false);
  });

  it.each([
    ['its mode was changed', () => chmod(join(dir, 'a.txt'), 0o600)],
    [
      'it was moved away and back',
      async () => {
        await rename(join(dir, 'a.txt'), join(dir, 'b.txt'));
        await rename(join(dir, 'b.txt'), join(dir, 'a.txt'));
      },
    ],
  ])('know a content again if %s', async (_, change) => {
    await finish(await load(), await file('one'));
    await change();
    const changed = await again();
    expect(await (await load()).has(changed, NEVER)).toBe(true);
    // Its new facts are remembered, so it need not be read again.
    await rm(changed.path);
    expect(await (await load()).has(changed, NEVER)).toBe(true);
  });

  it('are not known to the next run before they are done, but to this one', async () => {
    const known = await load();
    const a = await file('one');
    known.uploaded(a.key, await contentOf(a, NEVER));
    expect(await known.has(a, NEVER)).toBe(true);
    expect(await (await load()).has(a, NEVER)).toBe(false);
  });

  it('do not take the end of an older content for that of the newer one', async () => {
    const known = await load();
    const first = await file('one');
    const firstContent = await contentOf(first, NEVER);
    known.uploaded('a.txt', firstContent);
    const second = await file('two');
    const secondContent = await contentOf(second, NEVER);
    known.uploaded('a.txt', secondContent);
    await known.done('a.txt', firstContent);
    expect(await (await load()).has(second, NEVER)).toBe(false);
    await known.done('a.txt', secondContent);
    expect(await (await load()).has(second, NEVER)).toBe(true);
    await known.done('a.txt', firstContent);
    expect(await (await load()).has(second, NEVER)).toBe(true);
  });

  it.each([{ sha256: '0'.repeat(64) }, { bytes: 4 }, { modifiedMs: 1 }])(
    'do not take the end of a content for that of one with another fact: %j',
    async (fact) => {
      const known = await load();
      const content = await contentOf(await file('one'), NEVER);
      known.uploaded('a.txt', { ...content, ...fact });
      await known.done('a.txt', content);
      expect((await load()).count).toBe(0);
    },
  );

  it('are read from the file of version 0.1.0', async () => {
    const a = await file('one');
    await mkdir(join(dir, 'state'));
    await writeFile(path, JSON.stringify({ 'a.txt': `3 bytes, changed ${a.modifiedMs}` }));
    const known = await load();
    expect(await known.has(a, NEVER)).toBe(true);
    expect(await known.has({ ...a, bytes: 4 }, NEVER)).toBe(false);
  });
});
