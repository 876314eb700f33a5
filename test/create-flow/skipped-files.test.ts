import { describe, expect, it } from 'vitest';
import { showSweep } from '../../command-line/flowdrop/show-changes.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { skippedNameOf, skipping, whySkipped } from '../../functions/uploads/routes.ts';
import { SKIPPED_NAMES } from '../../functions/uploads/skipped-names.ts';
import { dyingAt, ECHO, MINUTE, start, world } from '../support/world.ts';

const UNMEANT = [
  ...[
    '._photo.png',
    'a/__MACOSX/photo.png',
    '__MACOSX/._photo.png',
    '.DS_Store',
    'a/b/.ds_store',
    'Thumbs.db',
    'x/desktop.ini',
  ],
  ...['big.filepart', 'big.png.PART', 'a.crdownload', 'a.tmp', 'upload.info', 'photos_$folder$'],
  ...['a.partial', 'a.download', 'a.temp', '.a.png.swp', 'a.png~', '~$a.docx', 'a.png.aria2', 'a.png.opdownload'],
  ...['a.png:Zone.Identifier', 'System Volume Information/WPSettings.dat', 'ehthumbs.db'],
  ...['.photo.jpg.Xa1b2C', '.trashed-1700000000-a.jpg', '.nfs0001', '.thumbnails/a.jpg', 'x/.Trash-1000/files/a.jpg'],
  ...['@eaDir/a.jpg/THUMB.jpg', 'x/#recycle/a.jpg', '$RECYCLE.BIN/a.jpg', '@Recycle/a.jpg', 'lost+found/a.jpg'],
];
const MEANT = [
  'photo.png',
  'a._b.png',
  'part',
  'part.png',
  'my.DS_Store.png',
  'thumbs.db.png',
  '__MACOSX',
  'tmp/a',
  'info',
  'a.b/c.d.png',
  '@customer/a.png',
  'recycle/a.png',
];

describe('a file that no person meant', () => {
  it('is skipped by a route that would take it by its key, counted, and has neither entry nor flow', async () => {
    await start();
    for (const key of UNMEANT) await world.upload(key, 'x');
    await world.deliverAll();
    expect(await world.entries()).toEqual([]);
    expect(world.count('UploadsSkipped')).toBe(UNMEANT.length);
  });

  it('is known by its name, and no other file is', () => {
    expect(UNMEANT.filter((key) => skippedNameOf([ECHO], key) === undefined)).toEqual([]);
    expect(MEANT.filter((key) => skippedNameOf([ECHO], key) !== undefined)).toEqual([]);
  });

  it('is taken by a route whose own suffix names it, and skipped by the others', async () => {
    const info: Route = { ...ECHO, name: 'info', suffixes: ['.info'] };
    await start({ routes: [ECHO, info] });
    for (const key of ['a.info', 'a.tmp', '__MACOSX/a.info']) await world.upload(key, 'x');
    await world.deliverAll();
    expect((await world.entries()).map(({ upload, route }) => [upload.key, route.name])).toEqual([['a.info', 'info']]);
  });

  it('is not taken by a route whose suffix is that of all pictures, and is by one whose prefix names its folder', () => {
    const pictures = [{ ...ECHO, suffixes: ['.jpg'] }];
    const keys = ['.trashed-1-a.jpg', '.thumbnails/a.jpg', '@eaDir/a.jpg', '._a.jpg'];
    expect(keys.map((key) => skippedNameOf(pictures, key))).toEqual(['.*', '.*/', '@eaDir/', '.*']);
    const own = [{ ...ECHO, prefixes: ['.well-known/', '.hidden-'] }];
    expect(skippedNameOf(own, '.well-known/a.jpg')).toBeUndefined();
    expect(skippedNameOf(own, '.hidden-a.jpg')).toBeUndefined();
    expect(skippedNameOf(own, '.well-known/.a.jpg')).toBe('.*');
    expect(skippedNameOf(own, '.well-known/@eaDir/a.jpg')).toBe('@eaDir/');
  });

  it('is another one if the setting says so', () => {
    const routes = skipping([ECHO], ['*.bak', 'old/']);
    expect(['a.bak', 'x/OLD/y.png'].map((key) => skippedNameOf(routes, key))).toEqual(['*.bak', 'old/']);
    expect(UNMEANT.filter((key) => skippedNameOf(routes, key) !== undefined)).toEqual([]);
    expect(skippedNameOf(skipping([ECHO], []), '.DS_Store')).toBeUndefined();
  });

  it('is no file of a route that does not want it anyway', () => {
    expect(skippedNameOf([{ ...ECHO, suffixes: ['.png'] }], 'a.tmp')).toBeUndefined();
    expect(SKIPPED_NAMES).toContain('.*');
  });

  it('is counted by the sweep, and not submitted', async () => {
    await start();
    await world.upload('a.tmp', 'x');
    await world.upload('b.png', 'x');
    world.takeMessages();
    world.clock.advance(60 * MINUTE);
    expect(await world.sweep({ since: '2026-01-01' })).toMatchObject({ missed: 1, skipped: 1 });
  });

  it('is told as skipped by the sweep, and not as the file of a chain', () => {
    const [, , , skipped] = showSweep({ since: '', startedAt: '', compared: 3, missed: 0, repaired: 0, skipped: 2 });
    expect(skipped).toBe('2 files skipped: a name of settings.skippedNames, or the key of a later stage of a chain.');
  });
});

describe('why no route takes an object', () => {
  const JOBS: Route = { ...ECHO, name: 'jobs', jobs: 'orders/' };
  const ROUTES = [JOBS, ECHO];
  const STAGE = `chain/echo/${'0'.repeat(40)}`;

  it.each([
    ['a folder', { key: 'a/', bytes: 0 }, /^It is a folder/],
    ['a folder of jobs', { key: 'orders/7/', bytes: 0 }, /^It is a folder/],
    ['a folder of a tool', { key: '__MACOSX/', bytes: 0 }, /^It is a folder/],
    ['a folder by its type', { key: 'a', bytes: 3, mediaType: 'application/x-directory' }, /^It is a folder/],
    ['the key of a later stage', { key: `a.png/${STAGE}`, bytes: 3 }, /^Its key has the form of a later stage/],
    ['both', { key: `__MACOSX/a.png/${STAGE}`, bytes: 3 }, /^Its key has the form of a later stage/],
    ['a name of tools', { key: 'a.tmp' }, /^Its name fits "\*\.tmp"/],
    ['a job file of a tool', { key: 'orders/__MACOSX/job.json' }, /^Its name fits "__MACOSX\/"/],
    ['an input of a job, whatever its name', { key: 'orders/7/a.tmp', bytes: 3 }, undefined],
    ['an input of a job with the key of a stage', { key: `orders/7/${STAGE}`, bytes: 3 }, undefined],
    ['a file with a slash at its end', { key: 'a/', bytes: 3 }, undefined],
    ['any other file', { key: 'a.png', bytes: 0, mediaType: 'image/png' }, undefined],
  ])('%s', (_, object, why) => {
    const skipped = whySkipped(ROUTES, object);
    if (why === undefined) expect(skipped).toBeUndefined();
    else expect(skipped).toMatch(why);
  });

  it('is the same for creation and sweep', async () => {
    await start({ routes: ROUTES });
    const keys = ['a.tmp', `a.png/${STAGE}`, 'orders/__MACOSX/job.json'];
    for (const key of keys) await world.upload(key, '{}');
    await world.deliverAll();
    expect(world.count('UploadsSkipped')).toBe(keys.length);
    world.clock.advance(60 * MINUTE);
    expect(await world.sweep({ since: '2026-01-01' })).toMatchObject({ missed: 0, skipped: keys.length });
  });
});

it.each([0, 3])('an object of the type of a folder is skipped, with %i bytes', async (bytes) => {
  await start();
  await world.upload('folder', 'x'.repeat(bytes), { ContentType: 'application/x-directory; charset=UTF-8' });
  await world.deliverAll();
  expect(await world.entries()).toEqual([]);
  expect(world.count('UploadsSkipped')).toBe(1);
});

describe('an empty file', () => {
  it.each([undefined, 'Enabled'] as const)(
    'that gets its content within seconds is one upload: versioning %s',
    async (versioning) => {
      await start({ versioning });
      await world.upload('photo.png', '');
      const { sleep } = world.clock;
      world.clock.sleep = async (ms, signal) => {
        if (ms === 5_000) await world.upload('photo.png', 'content');
        return sleep.call(world.clock, ms, signal);
      };
      await world.deliver();
      world.clock.sleep = sleep;
      await world.settle();
      expect((await world.entries()).map(({ state, upload }) => [state, upload.bytes])).toEqual([['succeeded', 7]]);
    },
  );

  it('that has failed has its receipt, also if it is replaced before that was put', async () => {
    await start();
    await world.upload('photo.png', '');
    const revive = dyingAt(world.ports.receipts, 'put');
    await world.deliver();
    revive();
    await world.upload('photo.png', 'content');
    world.clock.advance(10 * MINUTE);
    await world.settle();
    const [empty] = (await world.entries()).filter(({ upload }) => upload.bytes === 0);
    expect(empty).toMatchObject({ state: 'failed', isTold: true });
  });

  it('that stays empty fails, with its receipt', async () => {
    await start();
    await world.send('photo.png', '');
    expect(await world.receipt('photo.png')).toMatchObject({ status: 'failed', failure: { code: 'input-empty' } });
  });
});

it.each([' ', '\n\t \r\n', '\uFEFF', '\u00a0\u2003'])(
  'a blank text fails with its receipt, and nothing is sent: %j',
  async (text) => {
    await start({ routes: [{ ...ECHO, input: 'text' }] });
    await world.send('prompt.txt', text);
    expect(await world.receipt('prompt.txt')).toMatchObject({ status: 'failed', failure: { code: 'input-blank' } });
    expect(world.service.counts.createFlow).toBe(0);
  },
);
