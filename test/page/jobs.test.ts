import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import type { UploadRow } from '../../page/api.ts';
import { servePage } from '../../page/server/serve-page.ts';
import { Operated, ROUTES } from '../operations/support.ts';
import { PATIENCE } from '../support/patience.ts';
import { APP, QUICK, Visitor } from './support.ts';

const VIEWS = { name: 'views', input: 'file', template: 'bytes_echo', jobs: 'multiview/' } as const;

let operated: Operated;
let visitor: Visitor;
const closing = new AsyncDisposableStack();
beforeAll(async () => {
  operated = closing.use(await Operated.start({ routes: [VIEWS, ...ROUTES] }));
  const served = await servePage(operated.deployment, { appFiles: async () => APP, pace: QUICK });
  closing.defer(() => served.close());
  visitor = await Visitor.open(served.url);
});
afterAll(() => closing.disposeAsync());

const routed = async (...files: readonly object[]) => (await visitor.post('/api/route', { files })).json;
const jobFile = (key: string, inputs: readonly unknown[]) => {
  const job = JSON.stringify({ inputs });
  return { key, bytes: job.length, job };
};

/** What is paid for if the job begins. */
const ONE_FLOW = { flows: 1, later: 0, unpriced: 1, amounts: {} };

it('the folder of a job goes below the prefix of its route, and its files are inputs, not uploads', async () => {
  const files = [
    { key: 'chair/front.png', bytes: 5 },
    { key: 'chair/empty.png', bytes: 0 },
    { key: 'chair/notes.txt', bytes: 5 },
    jobFile('chair/job.json', ['front.png', 'empty.png', 'back.png']),
    { key: 'robot.png', bytes: 5 },
  ];
  const inputOf = ['multiview/chair/job.json'];
  expect(await routed(...files)).toEqual([
    { key: 'multiview/chair/front.png', inputOf },
    { key: 'multiview/chair/empty.png', inputOf, reason: 'The file is empty.' },
    {
      key: 'multiview/chair/notes.txt',
      reason: 'It is not sent: no job.json names it, and below multiview/ only jobs are sent.',
    },
    {
      ...{ key: 'multiview/chair/job.json', route: 'views', template: 'bytes_echo', costs: ONE_FLOW },
      ...{ missing: ['back.png'], hints: [] },
    },
    { key: 'robot.png', route: 'pictures', template: 'bytes_echo', costs: ONE_FLOW },
  ]);
});

it('a job file that cannot be used is refused with all that is wrong', async () => {
  const [bad, large] = await routed(jobFile('bad/job.json', ['../a', 7]), { key: 'large/job.json', bytes: 300_000 });
  expect(bad.reason).toMatch(/^multiview\/bad\/job\.json cannot be used: \(1\) inputs\[0\]: .*; \(2\) inputs\[1\]: /);
  expect(large.reason).toBe('multiview/large/job.json has 300000 bytes, and at most 262144 are read.');
  expect(await routed(jobFile('job.json', ['a.png']), { key: 'a.png', bytes: 1 })).toEqual([
    { key: 'job.json', reason: expect.stringContaining('Name the folder') },
    { key: 'a.png', reason: expect.stringContaining('Name the folder') },
  ]);
});

it('a job file that is nested too deep, or has very many mistakes, is refused in few words', async () => {
  const nested = `{"inputs":["a.png"],"parameters":${'['.repeat(4_457)}${']'.repeat(4_457)}}`;
  const many = `{"inputs":["a.png"]${Array.from({ length: 20_000 }, (_, index) => `,"m${index}":1`).join('')}}`;
  const jobs = Object.entries({ nested, many }).map(([name, job]) => ({ key: `${name}/job.json`, bytes: 1, job }));
  const answers = await routed(...jobs);
  expect(answers.map(({ reason = '' }) => reason.length < 8_000)).toEqual([true, true]);
  expect(answers[0].reason).toContain('parameters: expected something that JSON can say, nested at most 32 deep');
  expect(answers[1].reason).toMatch(/; and 19,990 more$/);
});

it('an input of a job of the inbox is taken, and its row says what the job waits for until then', async () => {
  const { job } = jobFile('', ['front.png', 'back.png']);
  await visitor.put('multiview/sofa/job.json', job);
  await visitor.put('multiview/sofa/front.png', 'front');
  const row = async (state: UploadRow['state']): Promise<UploadRow> =>
    vi.waitFor(async () => {
      const { uploads } = (await visitor.ask('/api/uploads?name=sofa')).json;
      expect(uploads).toEqual([expect.objectContaining({ key: 'multiview/sofa/job.json', state })]);
      return uploads[0];
    }, PATIENCE);
  await vi.waitFor(async () => {
    const { wait } = await row('waiting');
    expect(wait).toMatchObject({ reason: 'inputs', message: 'Missing inputs: back.png.' });
  }, PATIENCE);
  const detail = (await visitor.ask(`/api/uploads/${(await row('waiting')).id}`)).json;
  expect(detail.sooner).toBe('It goes on when they are in the inbox, below multiview/sofa/.');
  expect(detail.timeline.at(-1)).toEqual({
    kind: 'waiting',
    isNow: true,
    text: 'Missing inputs: back.png.',
  });
  expect(
    await routed({ key: 'multiview/sofa/back.png', bytes: 4 }, { key: 'multiview/sofa/top.png', bytes: 3 }),
  ).toEqual([
    { key: 'multiview/sofa/back.png', inputOf: ['multiview/sofa/job.json'], costs: ONE_FLOW },
    { key: 'multiview/sofa/top.png', reason: expect.stringContaining('no job.json names it') },
  ]);
  await visitor.put('multiview/sofa/back.png', 'back');
  await row('succeeded');
});

it('a missing input that is easily taken for a file that is there is told with it', async () => {
  const [job] = await routed(jobFile('near/job.json', ['front.png']), { key: 'near/Front.PNG', bytes: 1 });
  expect(job).toMatchObject({
    missing: ['front.png'],
    hints: ['Front.PNG is there; the job names front.png.'],
  });
});
