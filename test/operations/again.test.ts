import { DeleteObjectCommand, ListObjectVersionsCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { INBOX_BUCKET, RESULTS_BUCKET } from '../../local/pipeline.ts';
import { act, plan } from '../../operations/act.ts';
import type { Generation } from '../../operations/compare.ts';
import { issuesOf } from '../support/json-schema.ts';
import { PATIENCE } from '../support/patience.ts';
import { Operated, signal } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const price = { amount: 0.4, currency: 'EUR' };
const budget = { per: 'month', amount: 40, currency: 'EUR', timezone: 'UTC' } as const;
const ECHO = { input: 'file', template: 'bytes_echo', price } as const;
const ROUTES = [
  { ...ECHO, name: 'pictures', suffixes: ['.png'], budget, revision: 'model-1' },
  { ...ECHO, name: 'texts', suffixes: ['.txt'], overrides: true },
  { ...ECHO, name: 'checked', after: 'texts' },
] as const;

let operated: Operated;
beforeAll(async () => {
  operated = await Operated.start({ routes: ROUTES });
});
afterAll(() => operated[Symbol.asyncDispose]());

const flows = (): number => operated.standIn.flows.length;

const json = async (...words: readonly string[]) => {
  const { output } = await operated.run(...words, '--json');
  return JSON.parse(output);
};

describe('again', () => {
  it('makes a file anew after it has said what that costs, and compare shows both generations', async () => {
    const { id } = await operated.put('robot.png', 'succeeded');
    const asked = await operated.run('again', 'robot.png');
    expect(asked).toMatchObject({ code: 2, output: '' });
    expect(asked.errors).toContain('The budget of the route pictures');
    expect(asked.errors).toMatch(/0\.40 of 40\.00 EUR spent, 39\.60 left\.\n/);
    expect(asked.errors).toContain('1 file would be made anew, and may be paid for: 1 flow, 0.40 EUR. Go on?');

    const ran = await operated.run('again', 'robot.png', '--yes', '--wait');
    expect(ran).toMatchObject({ code: 0, output: 'robot.png  succeeded, with 1 result\n' });
    const answer = await json('compare', 'robot.png');
    expect(issuesOf('compare', answer)).toBe('');
    expect(answer).toMatchObject({ id, generations: [{ generation: 1 }, { generation: 2 }] });
    const [first, second] = answer.generations;
    expect(first.assets[0].key).not.toBe(second.assets[0].key);
    expect(issuesOf('statusOfUpload', await json('status', 'robot.png'))).toBe('');

    const { output } = await operated.run('compare', 'robot.png');
    expect(output).toMatch(/generation +1 +2\n/);
    expect(output).toMatch(/revision +model-1 [0-9a-f]{12} +model-1 [0-9a-f]{12}\n/);
    expect(output).toMatch(/price +0\.40 EUR +0\.40 EUR\n/);
    expect(output).toContain(first.assets[0].key);
  });

  it('takes other parameters and another template where the route allows it, and says so', async () => {
    await operated.put('fox.txt', 'succeeded');
    const words = ['again', 'fox.txt', '--parameters', '{"copies":2}', '--template', 'bytes_echo'];
    // Its chain ends a moment later.
    await vi.waitFor(async () => {
      const { errors } = await operated.run(...words);
      expect(errors).toContain('1 file would be made anew, with other parameters and template, and may be paid');
    }, PATIENCE);
    const ran = await operated.run('again', 'fox.txt', '--parameters', '{"copies":2}', '--yes', '--wait');
    expect(ran.output).toContain('fox.txt  succeeded, with 2 results\n');
    expect((await operated.run('compare', 'fox.txt')).output).toMatch(/parameters +\{"copies":2\}\n/);
    const refused = await operated.run('again', 'robot.png', '--template', 'other', '--yes');
    expect(refused).toMatchObject({ code: 1, errors: expect.stringContaining('does not allow other parameters') });
  });

  it('compares a later stage with what it made of the generations before of its file, asset by asset', async () => {
    const copies = { Metadata: { 'flow-parameters': '{"copies":2}' } };
    await operated.upload('pair.txt', 'a pair', copies);
    const { id } = await operated.becomes('pair.txt', 'succeeded');
    const chainEnds = () =>
      vi.waitFor(async () => expect((await json('status', 'pair.txt')).chain?.state).toBe('succeeded'), PATIENCE);
    await chainEnds();
    expect((await json('compare', 'pair.txt')).stages).toBeUndefined();
    expect((await operated.run('again', 'pair.txt', '--yes', '--wait')).code).toBe(0);
    await chainEnds();
    expect((await operated.run('again', 'pair.txt', '--from', 'checked', '--yes', '--wait')).code).toBe(0);

    const { chain } = await json('status', 'pair.txt');
    const present: readonly string[] = chain.root.uploads.map((node: { id: string }) => node.id);
    expect(present).toHaveLength(2);
    const answer = await json('compare', 'pair.txt');
    expect(issuesOf('compare', answer)).toBe('');
    expect(answer.generations.map((each: Generation) => [each.id, each.generation])).toEqual([
      [id, 1],
      [id, 2],
    ]);
    expect(answer.stages).toHaveLength(2);
    const takenBy = ({ stage }: Generation) => stage?.parent.asset;
    for (const [index, { generations }] of answer.stages.entries()) {
      // The file was made anew, and then the stage alone.
      expect(generations.map(({ generation, stage }: Generation) => [stage?.parent.generation, generation])).toEqual([
        [1, 1],
        [2, 1],
        [2, 2],
      ]);
      const [first, second, third] = generations;
      expect([first.id === second.id, second.id === third.id]).toEqual([false, true]);
      const madeBy = (at: number): string => answer.generations[at].assets[index].key;
      expect(madeBy(0)).toContain(`/${takenBy(first)}`);
      expect(madeBy(1)).toContain(`/${takenBy(second)}`);
      const own = await json('compare', third.id);
      expect(issuesOf('compare', own)).toBe('');
      expect(own.generations).toEqual(generations);
    }

    const { output } = await operated.run('compare', present[0] ?? '');
    expect(output).toMatch(/generation +1 of [0-9a-f]{8} +1 of ([0-9a-f]{8}) +2 of \1\n/);
    expect(output).toMatch(/made from +pair\.txt, generation 1 +pair\.txt, generation 2 +pair\.txt, generation 2\n/);
  });

  it('counts the files of a route without making one, and leaves out what would be made as before', async () => {
    for (const key of ['a.png', 'gone.png', 'replaced.png']) await operated.put(key, 'succeeded');
    await operated.put('replaced.png', 'succeeded', 'another content');
    await operated.pipeline.s3.send(new DeleteObjectCommand({ Bucket: INBOX_BUCKET, Key: 'gone.png' }));
    const paid = flows();
    const all = await operated.run('again', '--route', 'pictures', '--dry-run');
    expect(all.output).toBe('3 files would be made anew, and may be paid for: 3 flows, 1.20 EUR.\n');
    expect(all.errors).toContain('1 file skipped, such as replaced.png: another file is at its key\n');
    expect(all.errors).toContain('1 file skipped, such as gone.png: the file is gone from the inbox');
    const answer = await json('again', '--route', 'pictures', '--dry-run');
    expect(issuesOf('change', answer)).toBe('');
    expect(answer).toMatchObject({ planned: { length: 3 }, costs: { flows: 3, amounts: { EUR: 1.2 } } });
    expect(answer.planned.map(({ key }: { key: string }) => key).sort()).toEqual([
      'a.png',
      'replaced.png',
      'robot.png',
    ]);

    const none = await operated.run('again', '--route', 'pictures', '--before', '2020-01-01', '--dry-run');
    expect(none.output).toBe('There is nothing to do.\n');
    const same = await operated.run('again', '--route', 'pictures', '--only-if-changed', '--dry-run');
    expect(same).toMatchObject({ code: 0, output: 'There is nothing to do.\n' });
    expect(same.errors).toContain('its routes would make the same');
    expect(flows()).toBe(paid);
  });

  it('finds what other parameters or another template would make otherwise', async () => {
    const chosen = async (given: object) => {
      const asked = { action: 'again', onlyIfChanged: true, ...given } as const;
      const { uploads } = await plan(asked, { words: ['fox.txt'] }, operated.deployment, signal);
      return uploads.length;
    };
    expect(await chosen({ parameters: { copies: 2 }, template: 'bytes_echo' })).toBe(0);
    expect(await chosen({ parameters: { copies: 3 } })).toBe(1);
    expect(await chosen({ template: 'other' })).toBe(1);
  });

  it('finds what the routes would make otherwise: another request, another name for it, or another stage after it', async () => {
    const { settings } = operated.deployment;
    const chosen = async (route: string, change: (route: object) => object) => {
      const routes = settings.routes.map((each) => (each.name === route ? { ...each, ...change(each) } : each));
      const deployment = { ...operated.deployment, settings: { ...settings, routes } };
      const asked = { action: 'again', onlyIfChanged: true } as const;
      const { uploads } = await plan(asked, { words: ['a.png', 'fox.txt'] }, deployment, signal);
      return uploads.map(({ key }) => key);
    };
    expect(await chosen('pictures', () => ({ price: { amount: 1, currency: 'EUR' } }))).toEqual([]);
    expect(await chosen('pictures', () => ({ parameters: { copies: 1 } }))).toEqual(['a.png']);
    expect(await chosen('pictures', () => ({ revision: 'model-2' }))).toEqual(['a.png']);
    expect(await chosen('checked', () => ({ template: 'other' }))).toEqual(['fox.txt']);
    expect(await chosen('checked', () => ({ after: 'pictures' }))).toEqual(['a.png', 'fox.txt']);
  });

  it('says before it pays that the file is gone, and that no route takes it any more', async () => {
    const { s3 } = operated.pipeline;
    const { Versions = [] } = await s3.send(
      new ListObjectVersionsCommand({ Bucket: INBOX_BUCKET, Prefix: 'gone.png' }),
    );
    for (const { Key, VersionId } of Versions)
      await s3.send(new DeleteObjectCommand({ Bucket: INBOX_BUCKET, Key, VersionId }));
    expect(await operated.run('again', 'gone.png', '--yes')).toMatchObject({
      code: 1,
      errors: 'gone.png: nothing is done: the file is gone from the inbox, and its results stay\n',
    });
    const { settings } = operated.deployment;
    const deployment = { ...operated.deployment, settings: { ...settings, routes: settings.routes.slice(1) } };
    const { left } = await plan({ action: 'again' }, { words: ['a.png'] }, deployment, signal);
    expect(left).toEqual([{ key: 'a.png', why: 'no route takes it any more' }]);
  });

  it.each([
    [[], 'Name files, or add --route, not both'],
    [['a.png', '--route', 'pictures'], 'Name files, or add --route, not both'],
    [['a.png', '--before', '2026-01-01'], '--before and --since go with --route'],
    [['--route', 'texts', '--from', 'checked', '--only-if-changed'], '--from does not go with --parameters'],
  ])('is not understood with %j', async (words, why) => {
    expect(await operated.run('again', ...words)).toMatchObject({ code: 2, errors: expect.stringContaining(why) });
  });
});

describe('a stage that was added after files had succeeded', () => {
  let later: Operated;
  beforeAll(async () => {
    const routes = [
      { ...ECHO, name: 'before', prefixes: ['old/'] },
      { ...ECHO, name: 'pictures', suffixes: ['.png'] },
      { ...ECHO, name: 'refined', after: 'pictures', price: { amount: 0.25, currency: 'EUR' } },
      { ...ECHO, name: 'sheet', after: 'refined', inputs: 'all' },
    ] as const;
    later = await Operated.start({ routes });
  });
  afterAll(() => later[Symbol.asyncDispose]());

  /** A file of the route `pictures` from before that route had later stages. Returns the key of its result. */
  async function putBefore(key: string, content?: string): Promise<string> {
    const { id } = await later.put(key, 'succeeded', content);
    const { ledger } = later.deployment;
    const stored = await ledger.read(id, signal);
    if (stored?.entry.state !== 'succeeded') throw new Error(`${key} has not succeeded`);
    const { entry } = stored;
    await ledger.replace(stored, { ...entry, route: { ...entry.route, name: 'pictures' } }, signal);
    return entry.assets[0]?.key ?? '';
  }
  const remove = (Bucket: string, Key: string) => later.pipeline.s3.send(new DeleteObjectCommand({ Bucket, Key }));
  const bulk = ['again', '--route', 'pictures', '--from', 'refined'];

  it('begins in each chain without it, at the price of the stages that begin, and tells which cannot', async () => {
    for (const key of ['old/a.png', 'old/unsent.png']) await putBefore(key);
    await remove(INBOX_BUCKET, 'old/unsent.png');
    await remove(RESULTS_BUCKET, await putBefore('old/expired.png'));
    await putBefore('old/replaced.png');
    await later.put('old/replaced.png', 'succeeded', 'another content');
    await later.put('new.png', 'succeeded');
    // Five files with one stage, and one with three.
    await vi.waitFor(() => expect(later.standIn.flows).toHaveLength(8), PATIENCE);
    const paid = 8;

    const dry = await later.run(...bulk, '--dry-run');
    expect(dry.output).toContain('The stage refined of 2 files would begin, and may be paid for: 4 flows, 1.30 EUR. ');
    expect(dry.errors).toContain('1 file skipped, such as new.png: it has the stage refined already\n');
    expect(dry.errors).toContain('1 file skipped, such as old/replaced.png: another file is at its key\n');
    expect(dry.errors).toMatch(
      /such as old\/expired.png: the stage refined takes old\/expired.png\/.*, which is gone from/,
    );
    expect((await later.run('again', 'old/expired.png', '--from', 'refined', '--yes')).code).toBe(1);
    expect(later.standIn.flows).toHaveLength(paid);

    const ran = await later.run(...bulk, '--yes', '--wait');
    expect([ran.code, ran.output]).toEqual([0, expect.stringContaining('old/a.png')]);
    expect(later.standIn.flows).toHaveLength(paid + 4);
    const shown = (await later.run('status', 'old/a.png')).output;
    expect(shown).toContain('refined');
    expect(shown).toContain('sheet');
    expect((await later.run(...bulk, '--dry-run')).output).toBe('There is nothing to do.\n');
  });

  it('is named beside the stage that comes before it, which begins first', async () => {
    await putBefore('old/c.png');
    expect((await later.run('again', 'old/c.png', '--from', 'sheet', '--yes')).errors).toContain(
      'its chain has no stage sheet. Its stages: pictures, refined',
    );
    const asked = await later.run('again', 'old/c.png', '--from', 'refined');
    expect(asked.errors).toContain('The stage refined of old/c.png would begin, and may be paid for: 2 flows');
    const both = await later.run('again', 'old/c.png', 'new.png', '--from', 'refined');
    expect(both.errors).toContain(
      'The stage refined of 2 files would begin or be made anew, and may be paid for: 4 flows',
    );
  });

  it('is paid for once by two operators who agree to the same plan', async () => {
    const asked = { action: 'again', from: 'refined' } as const;
    const planned = () => plan(asked, { words: ['old/c.png'] }, later.deployment, signal);
    const [mine, yours] = [await planned(), await planned()];
    const results = await act(mine, later.deployment, signal);
    expect(results).toMatchObject([{ isDone: true }]);
    await vi.waitFor(async () => expect((await planned()).stages).toHaveLength(1), PATIENCE);
    const paid = later.standIn.flows.length;
    expect(await act(yours, later.deployment, signal)).toMatchObject([
      { key: 'old/c.png', isDone: false, result: 'somebody else has sent it again since then' },
    ]);
    expect(later.standIn.flows).toHaveLength(paid);
  });

  it('is asked for in few requests, of which each begins what it can', async () => {
    const invoke = vi.spyOn(later.deployment.collecting, 'invoke');
    invoke.mockImplementation(async (event) => {
      const { again } = event as { readonly again: readonly string[] };
      return again.map((upload) => ({ upload, result: 'resubmitted' }));
    });
    const stageOf = (id: string, count: number) => ({
      ...{ id, key: id, generation: 0 },
      begins: Array.from({ length: count }, (_, index) => ({ id: `${id}/${index}`, key: id })),
    });
    const stages = [
      ...Array.from({ length: 201 }, (_, index) => stageOf(`one ${index}`, 1)),
      stageOf('large', 2_000),
      ...['a', 'b', 'c'].map((id) => stageOf(id, 500)),
    ];
    const plan = { action: 'again', from: 'refined', uploads: [], stages } as const;
    await act(plan, later.deployment, signal);
    const asked = invoke.mock.calls.map(([event]) => (event as { readonly again: readonly string[] }).again.length);
    expect(asked).toEqual([200, 1, 1, 2, 1]);
    invoke.mockRestore();
  });
});
