import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Route } from '../../functions/uploads/route.ts';
import { INBOX_BUCKET } from '../../local/pipeline.ts';
import { folderWith } from '../support/folder.ts';
import { issuesOf } from '../support/json-schema.ts';
import { Operated, ROUTES } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

const VIEWS: Route = { name: 'views', input: 'file', template: 'bytes_echo', jobs: 'multiview/', makes: ['*/*'] };

let operated: Operated;
beforeAll(async () => {
  operated = await Operated.start({ routes: [VIEWS, ...ROUTES] });
});
afterAll(() => operated[Symbol.asyncDispose]());

const jobFile = (inputs: readonly unknown[], more: object = {}) => JSON.stringify({ inputs, ...more });

/** Runs a command of the operator, who names files of another folder. */
const runWith = (files: Readonly<Record<string, string>>, ...words: readonly string[]) => {
  const folder = folderWith(files);
  return operated.run(...words.map((word) => (word.endsWith('/') ? join(folder, word) : word)));
};

const inbox = async (prefix: string) => {
  const keys: string[] = [];
  for await (const { uploads } of operated.deployment.inbox.pages(INBOX_BUCKET, prefix, undefined, signal)) {
    keys.push(...uploads.map(({ key }) => key));
  }
  return keys.sort();
};
const { signal } = new AbortController();
const flows = () => operated.standIn.flows.length;

describe('flowdrop put of a folder with a job file', () => {
  it('uploads the job below the prefix of its route, waits for its one flow, and leaves out what it does not name', async () => {
    const before = flows();
    const { code, output, errors } = await runWith(
      {
        'chair/front.png': 'the front',
        'chair/job.json': jobFile(['front.png', 'sides/left.png']),
        'chair/notes.txt': 'not for the flow',
        'chair/sides/left.png': 'the left',
      },
      ...['put', 'chair/', '--wait', '--yes'],
    );
    expect(errors).toBe(
      'multiview/chair/notes.txt: not uploaded, because no job.json names it, and below multiview/ only jobs are sent\n',
    );
    expect({ code, output }).toEqual({ code: 1, output: 'multiview/chair/job.json  succeeded, with 2 results\n' });
    expect(flows()).toBe(before + 1);
    expect(await inbox('multiview/chair/')).toEqual([
      'multiview/chair/front.png',
      'multiview/chair/job.json',
      'multiview/chair/sides/left.png',
    ]);
  });

  it('asks for the flows that are paid for, and not for the files', async () => {
    const { code, errors } = await runWith(
      {
        'both/chair/job.json': jobFile(['front.png', 'back.png']),
        'both/chair/front.png': 'f',
        'both/chair/back.png': 'b',
        'both/robot.png': 'r',
      },
      ...['put', 'both/'],
    );
    expect({ code, errors }).toMatchObject({
      code: 2,
      errors: expect.stringContaining('4 files would be uploaded, and paid for: 2 flows. Go on?'),
    });
    expect(await inbox('multiview/both/')).toEqual([]);
  });

  it('uploads the inputs before the job, so that it does not wait', async () => {
    const put: string[] = [];
    const { output } = await runWith(
      { 'order/a.json': '{}', 'order/job.json': jobFile(['a.json', 'z.png']), 'order/z.png': 'z' },
      ...['put', 'order/', '--json', '--yes'],
    );
    const answer = JSON.parse(output);
    for (const { key } of answer.files) put.push(key);
    expect(put).toEqual(['multiview/order/a.json', 'multiview/order/z.png', 'multiview/order/job.json']);
    expect(answer.files.map(({ inputOf }: { inputOf?: string[] }) => inputOf)).toEqual([
      ['multiview/order/job.json'],
      ['multiview/order/job.json'],
      undefined,
    ]);
    expect(issuesOf('put', answer)).toBe('');
    const { upload } = await operated.becomes('multiview/order/job.json', 'succeeded');
    expect(upload?.generation).toBe(1);
  });

  it('takes a folder that is below the prefix already as it is', async () => {
    const { code, output } = await runWith(
      { 'multiview/table/job.json': jobFile(['top.png', { text: 'oak' }]), 'multiview/table/top.png': 'top' },
      ...['put', 'multiview/', '--yes'],
    );
    expect({ code, output }).toEqual({
      code: 0,
      output: expect.stringMatching(/^multiview\/table\/job\.json {2}uploaded with 1 input, \d+ B\n$/),
    });
    await operated.becomes('multiview/table/job.json', 'succeeded');
  });

  it('keeps the files of each job together, if two folders have the same name', async () => {
    const { output } = await runWith(
      {
        'one/chair2/job.json': jobFile(['front.png']),
        'one/chair2/front.png': 'f',
        'two/chair2/job.json': jobFile(['front.png', 'back.png']),
        'two/chair2/front.png': 'f',
        'two/chair2/back.png': 'b',
      },
      ...['put', 'one/chair2/', 'two/chair2/', '--wait', '--yes'],
    );
    expect(output).toBe(
      'multiview/chair2/job.json    succeeded, with 1 result\nmultiview/2/chair2/job.json  succeeded, with 2 results\n',
    );
  });

  it('says what a job waits for, and puts the missing input later', async () => {
    const { code, errors } = await runWith(
      {
        'sofa/job.json': jobFile(['front.png', 'back.png', { name: 'top.png', optional: true }]),
        'sofa/front.png': 'f',
      },
      ...['put', 'sofa/', '--yes'],
    );
    expect(code).toBe(0);
    expect(errors).toMatch(/^multiview\/sofa\/job\.json: the job waits for back\.png until \d.*, and fails then\n$/);
    await operated.becomes('multiview/sofa/job.json', 'waiting');
    const before = flows();
    const late = { 'multiview/sofa/back.png': 'b', 'multiview/sofa/other.png': 'o' };
    const asked = await runWith(late, 'put', 'multiview/');
    expect(asked.errors).toContain('1 file would be uploaded, and paid for: 1 flow. Go on?');
    const { output } = await runWith(late, 'put', 'multiview/', '--yes');
    expect(output).toBe('multiview/sofa/back.png  uploaded for multiview/sofa/job.json, 1 B\n');
    await operated.becomes('multiview/sofa/job.json', 'succeeded');
    expect(flows()).toBe(before + 1);
  });

  it.each<[string, Readonly<Record<string, string>>, readonly string[], RegExp]>([
    [
      'all that is wrong with all job files',
      {
        'bad/a/job.json': jobFile(['../a.png', 7]),
        'bad/b/job.json': '{',
        'bad/c/job.json': jobFile(['c.png']),
        'bad/c/c.png': 'c',
      },
      ['bad/'],
      /^multiview\/bad\/a\/job\.json cannot be used:\n {2}\(1\) inputs\[0\]: .*got "\.\.\/a\.png"\n {2}\(2\) inputs\[1\]: .*got 7\nmultiview\/bad\/b\/job\.json is not JSON/,
    ],
    [
      'parameters of a job file whose route allows no overrides',
      { 'bad/job.json': jobFile(['a.png'], { parameters: {} }), 'bad/a.png': 'a' },
      ['bad/'],
      /^multiview\/bad\/job\.json cannot be used: parameters: expected none, because the route views does not have/,
    ],
    [
      'in few words that a job file is nested too deep',
      { 'bad/job.json': `{"inputs":["a.png"],"parameters":${'['.repeat(4_457)}${']'.repeat(4_457)}}` },
      ['bad/'],
      /cannot be used:\n.*parameters: expected something that JSON can say, nested at most 32 deep, got \[{32}nested too deeply/,
    ],
    [
      'ten of very many mistakes, and how many more there are',
      { 'bad/job.json': `{"inputs":["a.png"]${Array.from({ length: 20_000 }, (_, at) => `,"m${at}":1`).join('')}}` },
      ['bad/'],
      /\n {2}\(10\) m9: unknown.*\n {2}and 19,990 more\.\n/,
    ],
    [
      'ten of very many job files that cannot be used, and how many more there are',
      Object.fromEntries(Array.from({ length: 25 }, (_, at) => [`bad/${at}/job.json`, '{'])),
      ['bad/'],
      /^(multiview\/bad\/\d+\/job\.json is not JSON.*\n){10}and 15 more\.\n/,
    ],
    [
      'a route that allows no overrides',
      { 'bad/job.json': jobFile(['a.png']), 'bad/a.png': 'a' },
      ['bad/', '--parameters', '{}'],
      /^The route views, which takes multiview\/bad\/job\.json, does not allow/,
    ],
  ])('uploads nothing, and says %s', async (_, files, words, why) => {
    expect(await runWith(files, 'put', ...words, '--yes')).toMatchObject({
      code: 2,
      errors: expect.stringMatching(why),
    });
    expect(await inbox('multiview/bad/')).toEqual([]);
  });

  it('says which file is there in place of a missing one, and whose name differs only in case or in %20', async () => {
    const { errors } = await runWith(
      {
        'near/job.json': jobFile(['front.png', 'the back.png', 'side.png']),
        'near/front.PNG': 'f',
        'near/the%20back.png': 'b',
      },
      ...['put', 'near/', '--yes'],
    );
    expect(errors).toMatch(
      /multiview\/near\/job\.json: the job waits for front\.png, the back\.png, side\.png until .*, and fails then\. front\.PNG is there; the job names front\.png\. the%20back\.png is there; the job names the back\.png\.\n/,
    );
  });

  it('says so of a file that is in the inbox', async () => {
    await operated.upload('multiview/kept/Front.png', 'f');
    const job = { 'multiview/kept/job.json': jobFile(['front.png', { name: 'side.png', optional: true }]) };
    const { errors } = await runWith(job, 'put', 'multiview/', '--yes');
    expect(errors).toContain('and fails then. Front.png is there; the job names front.png.\n');
    const { id } = await operated.becomes('multiview/kept/job.json', 'waiting');
    for (const named of ['multiview/kept/job.json', id]) {
      const { output } = await operated.run('explain', named);
      expect(output).toContain('It waits for multiview/kept/front.png. Front.png is there; the job names front.png.\n');
    }
  });

  it('finds a file whose name is written in another form of Unicode, as explain does', async () => {
    const [composed, decomposed] = ['sides/\u00e9 1.png', 'sides/e\u0301\u202f1.png'];
    const folder = folderWith({ 'forms/job.json': jobFile([composed]), [`forms/${decomposed}`]: 'e' });
    const local = await operated.run('explain', join(folder, 'forms', 'job.json'));
    expect(local.output).toContain(`input multiview/forms/${composed}: 1 B\n`);
    expect(local.output).toContain('The request would be POST /flows');
    const { code, errors, output } = await operated.run('put', join(folder, 'forms'), '--wait', '--yes');
    expect({ code, errors }).toEqual({ code: 0, errors: '' });
    expect(output).toContain('multiview/forms/job.json  succeeded');
    expect(await inbox('multiview/forms/sides/')).toEqual([`multiview/forms/${decomposed}`]);
    expect((await operated.run('explain', 'multiview/forms/job.json')).output).toContain('The request would be POST');
  });

  it('takes none of two files that one name fits, and explain says so', async () => {
    const folder = folderWith({
      'two/job.json': jobFile(['a 1.png']),
      'two/a\u00a01.png': 'x',
      'two/a\u202f1.png': 'y',
    });
    await operated.upload('multiview/two/a\u00a01.png', 'x');
    await operated.upload('multiview/two/a\u202f1.png', 'y');
    await operated.upload('multiview/two/job.json', jobFile(['a 1.png']));
    for (const named of [join(folder, 'two', 'job.json'), 'multiview/two/job.json']) {
      const { output } = await operated.run('explain', named);
      expect(output).toMatch(/job\.json names "a 1\.png", and "a\\u(00a0|202f)1\.png" and .* fit\. Name one of them/);
    }
  });

  it('asks for the folder, if the job file itself is named', async () => {
    const folder = folderWith({ 'job.json': jobFile(['a.png']) });
    expect(await operated.run('put', join(folder, 'job.json'), '--yes')).toMatchObject({
      code: 2,
      errors: expect.stringContaining('Name the folder, and not the job.json'),
    });
  });
});

it.each([['explain'], ['doctor', '--job']])('flowdrop %s %s refuses parameters without overrides', async (...words) => {
  const folder = folderWith({ 'job.json': jobFile(['a.png'], { parameters: {} }), 'a.png': 'a' });
  const { output, errors } = await operated.run(...words, join(folder, 'job.json'));
  expect(output + errors).toContain('parameters: expected none, because the route views does not have "overrides"');
});

it('the status of a folder is short, although a job file of it has very many mistakes', async () => {
  const many = `{"inputs":["a.png"]${Array.from({ length: 20_000 }, (_, at) => `,"m${at}":1`).join('')}}`;
  await operated.upload('multiview/many/job.json', many);
  await operated.upload('multiview/many/deep/job.json', `{"inputs":${'['.repeat(4_457)}${']'.repeat(4_457)}}`);
  for (let at = 0; at < 20; at += 1) await operated.upload(`multiview/many/${at}.png`, 'x');
  await operated.becomes('multiview/many/job.json', 'failed');
  await operated.becomes('multiview/many/deep/job.json', 'failed');
  for (const what of ['multiview/many/', 'multiview/many/job.json', 'multiview/many/deep/job.json']) {
    const { output, errors } = await operated.run('status', what);
    expect([errors, output.length < 20_000]).toEqual(['', true]);
  }
  // Each input says how its job failed.
  expect((await operated.run('status', 'multiview/many/', '--json')).output.length).toBeLessThan(40_000);
  expect((await operated.run('status', 'multiview/many/job.json')).output).toContain('and 19,990 more');
});

describe('flowdrop status', () => {
  const shown = async (key: string) => (await operated.run('status', key)).output;

  it('names what a job waits for, where that belongs, and when the job fails', async () => {
    await operated.upload('multiview/lamp/front.png', 'front');
    await operated.upload('multiview/lamp/notes.txt', 'notes');
    await operated.upload('multiview/lamp/job.json', jobFile(['front.png', 'back.png']));
    await operated.becomes('multiview/lamp/job.json', 'waiting');
    const job = await shown('multiview/lamp/job.json');
    expect(job).toMatch(/ {2}waits \(inputs\) since .*: Missing inputs: back\.png\.\n/);
    expect(job).toMatch(
      / {2}fails without them: .*\n {2}It goes on when they are in the inbox, below multiview\/lamp\/\./,
    );
    expect(job).not.toMatch(/next try|To try now/i);
    const { output } = await operated.run('list', '--waiting', '--code', 'inputs');
    expect(output).toMatch(
      /multiview\/lamp\/job\.json +views .* fails without them (\S+ )?\S+ UTC: Missing inputs: back\.png/,
    );
  });

  it.each([
    [
      'multiview/lamp/front.png',
      /: input of a job\n {2}It is an input of \S+job\.json, which waits for its inputs\. To see/,
    ],
    [
      'multiview/lamp/notes.txt',
      /: no input of a job\n {2}No job\.json in its folder or above names it, so nothing is/,
    ],
  ])('says of %s which job names it', async (key, expected) => {
    expect(await shown(key)).toMatch(expected);
    const { output } = await operated.run('status', key, '--json');
    expect(issuesOf('statusOfUpload', JSON.parse(output))).toBe('');
  });

  it('says that only a new job file begins a new flow, once the job has ended', async () => {
    await operated.upload('multiview/desk/front.png', 'front');
    await operated.put('multiview/desk/job.json', 'succeeded', jobFile(['front.png']));
    expect(await shown('multiview/desk/front.png')).toContain(
      'multiview/desk/job.json, which has succeeded: only a new job.json begins a new flow. To see more: ',
    );
  });

  it('says that a job file which could name it cannot be used', async () => {
    await operated.upload('multiview/broken/a.png', 'a');
    await operated.put('multiview/broken/job.json', 'failed', '{');
    expect(await shown('multiview/broken/a.png')).toContain(
      'multiview/broken/job.json cannot be used: see its status.',
    );
  });

  it('says each mistake of a job file in a line, and so does explain', async () => {
    await operated.put('multiview/wrong/job.json', 'failed', jobFile(['../a; b.png', 7]));
    const lines =
      /^ *(It fails: )?job\.json cannot be used:\n +\(1\) inputs\[0\]: .*got "\.\.\/a; b\.png"\n +\(2\) inputs\[1\]: .*got 7\.?$/m;
    expect(await shown('multiview/wrong/job.json')).toMatch(lines);
    expect((await operated.run('explain', 'multiview/wrong/job.json')).output).toMatch(lines);
  });

  it('tells inputs from jobs below a prefix', async () => {
    expect(await shown('multiview/lamp/')).toMatch(
      new RegExp(
        [
          '^1 upload, 1 input of jobs, 1 file that no job names below "multiview/lamp/": 1 waiting',
          ' {2}multiview/lamp/front\\.png +input of a job +multiview/lamp/job\\.json',
          ' {2}multiview/lamp/job\\.json +waiting .*',
          ' {2}multiview/lamp/notes\\.txt +no input of a job +No job\\.json in its folder or above names it.*\\n$',
        ].join('\\n'),
      ),
    );
    const answer = JSON.parse((await operated.run('status', 'multiview/lamp/', '--json')).output);
    expect(issuesOf('statusBelowPrefix', answer)).toBe('');
    expect(answer.counts).toEqual({ waiting: 1 });
    expect(answer.uploads.map(({ inputOf }: { inputOf?: string[] }) => inputOf)).toEqual([
      ['multiview/lamp/job.json'],
      undefined,
      [],
    ]);
  });

  it('counts no uploads below a prefix that has inputs alone', async () => {
    await operated.upload('multiview/alone/a.png', 'a');
    expect(await shown('multiview/alone/')).toMatch(/^1 file that no job names below "multiview\/alone\/"\n/);
  });

  it('is what a retry of a job shows that still lacks its inputs', async () => {
    await operated.put('multiview/bed/job.json', 'waiting', jobFile(['front.png']));
    expect((await operated.run('cancel', 'multiview/bed/job.json', '--yes')).code).toBe(0);
    const { output } = await operated.run('retry', 'multiview/bed/job.json', '--yes');
    expect(output).toMatch(
      /job\.json {2}waits again: Missing inputs: front\.png, fails without them .*\. It goes on when they are in the inbox/,
    );
  });
});

describe('flowdrop explain of the id of a job', () => {
  const idOf = async (key: string) => JSON.parse((await operated.run('status', key, '--json')).output).id;
  const explained = async (id: string) => JSON.parse((await operated.run('explain', id, '--json')).output);

  it('shows the inputs that the job has taken, although newer ones are there', async () => {
    await operated.upload('multiview/pot/front.png', 'first');
    await operated.put('multiview/pot/job.json', 'succeeded', jobFile(['front.png', { text: 'clay' }]));
    await operated.upload('multiview/pot/front.png', 'second');
    const answer = await explained(await idOf('multiview/pot/job.json'));
    expect(answer.request.inputs).toMatchObject([
      {
        additional: { key: 'multiview/pot/front.png', versionId: expect.any(String) },
        data: `data:image/png;base64,${Buffer.from('first').toString('base64')}`,
      },
      { data: 'clay' },
    ]);
    expect(answer.job.inputs).toMatchObject([{ key: 'multiview/pot/front.png', bytes: 5 }, { text: 'clay' }]);
  });

  it('says what the job waits for, and what is wrong with a job file that cannot be used', async () => {
    await operated.put('multiview/mug/job.json', 'waiting', jobFile(['front.png']));
    const waiting = await explained(await idOf('multiview/mug/job.json'));
    expect(waiting).toMatchObject({ issue: 'It waits for multiview/mug/front.png.', job: { deadlineSeconds: 3600 } });
    expect(waiting.request).toBeUndefined();
    await operated.put('multiview/jug/job.json', 'failed', '{}');
    const invalid = await explained(await idOf('multiview/jug/job.json'));
    expect(invalid.issue).toContain('inputs: expected a list of 1 to 32 inputs');
    expect(invalid.request).toBeUndefined();
  });
});

it('flowdrop put names the prefixes, if several routes are for jobs', async () => {
  const routes = [VIEWS, { ...VIEWS, name: 'texts of things', jobs: 'things/' }];
  await using several = await Operated.start({ routes });
  const job = jobFile([{ text: 'oak' }]);
  const folder = folderWith({ 'chair/job.json': job, 'things/chair/job.json': job });
  expect(await several.run('put', join(folder, 'chair'), '--yes')).toMatchObject({
    code: 2,
    errors: expect.stringMatching(
      /^The folder chair\/ holds a job\.json, and jobs may be below multiview\/ or things\/\. Put it into a folder/,
    ),
  });
  expect(await several.run('put', join(folder, 'things'), '--wait', '--yes')).toMatchObject({
    code: 0,
    output: 'things/chair/job.json  succeeded, with 1 result\n',
  });
});
