import { expect, it } from 'vitest';
import type { Checked } from '../../operations/checks.ts';
import { folderWith } from '../support/folder.ts';
import { runFlowdrop } from './support.ts';

// Nobody answers there: a sample needs no request.
const CONTEXT = {
  baseUrl: 'http://127.0.0.1:9',
  routes: [{ name: 'pictures', mediaTypes: ['image/png'], template: 'model_generate_fromimage' }],
};
const LINKED = { addresses: ['/output'], isWhole: true };

/** What the doctor says of a sample. @param service what differs in the description. */
async function sampled(sample: unknown, service: object = {}, env: Record<string, string> = {}) {
  const directory = folderWith({
    'cdk.json': { context: {} },
    'flowdrop.json': { ...CONTEXT, service: { from: 'flows', ...service } },
    'answer.json': sample,
  });
  const words = ['doctor', '--before-deployment', '--json', '--sample', 'answer.json'];
  const { code, output } = await runFlowdrop(words, { directory, env });
  const checks: readonly Checked[] = JSON.parse(output).checks;
  const of = (part: string) => checks.find(({ check }) => check === `sample: the ${part}`);
  return { code, output, creation: of('creation'), state: of('state'), outputs: of('outputs') };
}

it('a sample of all answers shows what each pointer finds', async () => {
  const { code, creation, state, outputs } = await sampled({
    create: { id: 'gm3q' },
    state: { state: 'completed', progress: 100, error: null },
    outputs: {
      outputs: [
        { asset_id: 'a', status: 'ready' },
        { id: 'b', status: 'failed' },
      ],
    },
  });
  expect(code).toBe(0);
  expect(creation).toMatchObject({
    result: 'good',
    what: 'id, /flow_id: nothing\nid, /id: "gm3q"\nThe id of the flow is "gm3q".',
  });
  expect(state).toMatchObject({ result: 'good', what: expect.stringContaining('word, /state: "completed"') });
  expect(state?.what).toContain('progress, /progress: 100');
  expect(state?.what).toContain('The flow counts as completed.');
  expect(outputs).toMatchObject({
    result: 'good',
    what: expect.stringContaining('items, /outputs: a list of 2 items'),
  });
  expect(outputs?.what).toMatch(/output "a": ready\noutput "b": failed/);
});

it('what no pointer finds is a fault, and the places where it may be are named', async () => {
  const { code, creation, state, outputs } = await sampled({
    create: { data: { task_id: 'gm3q' } },
    state: { data: { status: 'success' } },
    outputs: { result: { files: [] } },
  });
  expect(code).toBe(1);
  expect(creation).toMatchObject({ result: 'fault', todo: expect.stringContaining('/data/task_id') });
  expect(state).toMatchObject({ result: 'fault', todo: expect.stringContaining('/data/status') });
  expect(outputs).toMatchObject({ result: 'fault', todo: expect.stringContaining('/result/files') });
});

it('words and pages that are not declared are a warning', async () => {
  const { code, state, outputs } = await sampled({
    state: { state: 'succeed' },
    outputs: { outputs: [{ id: 'a', status: 'cooking' }], next: 'x' },
  });
  expect(code).toBe(0);
  expect(state).toMatchObject({ result: 'warning', what: expect.stringContaining('"succeed" is not declared') });
  expect(outputs).toMatchObject({
    result: 'warning',
    what: expect.stringMatching(/"cooking" is not declared.*there is more \(\/next\)/s),
  });
  const answered = { outputs: [{ id: 'a' }], total: 9 };
  const short = await sampled({ create: { id: 'x' }, outputs: answered });
  expect(short.outputs).toMatchObject({
    result: 'warning',
    what: expect.stringContaining('It counts 9 outputs but shows 1.'),
  });
});

it('one answer may have only some of the parts', async () => {
  const one = await sampled({ id: 'gm3q', state: 'running' });
  expect([one.creation?.result, one.state?.result, one.outputs?.result]).toEqual(['good', 'good', 'not checked']);
  const other = await sampled({ outputs: [{ id: 'a' }] });
  expect([other.creation?.result, other.state?.result, other.outputs?.result]).toEqual([
    'not checked',
    'not checked',
    'good',
  ]);
  const none = await sampled({ anything: 'else' });
  expect([none.code, none.creation?.result, none.state?.result]).toEqual([1, 'fault', 'fault']);
});

it('addresses of results are told, and what is none', async () => {
  const good = await sampled(
    { id: 'x', state: 'completed', output: ['https://cdn.example.com/a.glb'] },
    { outputs: LINKED },
  );
  expect(good.outputs).toMatchObject({ result: 'good', what: expect.stringContaining('output output-0: an address') });
  const bad = await sampled({ state: { state: 'completed' }, outputs: { output: 'soon' } }, { outputs: LINKED });
  expect(bad.outputs).toMatchObject({ result: 'warning', what: expect.stringContaining('It is no address') });
  const elsewhere = await sampled(
    { create: { id: 'x' }, outputs: { url: 'https://cdn.example.com/a' } },
    { outputs: LINKED },
  );
  expect(elsewhere.outputs).toMatchObject({ result: 'fault', todo: expect.stringContaining('/url') });
  const files = [1, 2].map((n) => ({ name: `${n}`, links: [{ url: `https://cdn.example.com/${n}` }] }));
  const listed = await sampled({ create: { id: 'x' }, outputs: { files } }, { outputs: LINKED });
  expect(listed.outputs).toMatchObject({ todo: expect.stringMatching(/The answer has \/files\.$/) });
});

it.each<[string, object, string]>([
  ['it says that more follow', { next: 'https://api.example.com/x?skip=1' }, 'Not all outputs are there: it says that'],
  ['it counts more', { total: 9 }, 'Not all outputs are there: the listing counts 9 entries but shows 1'],
  ['it shows the flow as running', { state: 'running' }, 'It shows the flow as running'],
])('an answer with addresses of results is a warning if %s', async (_, more, what) => {
  const answered = { output: ['https://cdn.example.com/a.glb'], ...more };
  const { outputs } = await sampled({ create: { id: 'x' }, outputs: answered }, { outputs: LINKED });
  expect(outputs).toMatchObject({ result: 'warning', what: expect.stringContaining(what) });
});

it('an address that names the flow is told with the id in it, and is a fault if it leads elsewhere', async () => {
  const create = { id: '/url' };
  const sample = { create: { url: 'https://api.example.com/v1/jobs/7' }, state: {} };
  const fit = await sampled(sample, { create, state: { path: '/jobs/{id}' } });
  expect(fit.creation).toMatchObject({ result: 'good', what: expect.stringContaining('The id of the flow is "7".') });
  const unfit = await sampled(sample, { create, state: { path: '/status/{id}' } });
  expect(unfit.creation).toMatchObject({ result: 'fault', what: expect.stringContaining('No id of a flow is found.') });
});

it('a file that is no JSON is a fault, and the token is not shown', async () => {
  const { code, creation } = await sampled('{');
  expect(code).toBe(1);
  expect(creation).toMatchObject({ result: 'fault', what: 'answer.json cannot be read: it is no JSON.' });
  const token = 'fake-token-of-a-test';
  const { output } = await sampled({ id: token, state: 'running' }, {}, { FLOWDROP_TOKEN: token });
  expect(output).not.toContain(token);
});

it('a sample is only for a check before the deployment, and must be there', async () => {
  const directory = folderWith({ 'cdk.json': { context: {} }, 'flowdrop.json': CONTEXT });
  const without = await runFlowdrop(['doctor', '--local', '--sample', 'a.json'], { directory });
  expect([without.code, without.errors]).toEqual([2, expect.stringContaining('--sample is for --before-deployment')]);
  const gone = await runFlowdrop(['doctor', '--before-deployment', '--sample', 'a.json'], { directory });
  expect([gone.code, gone.errors]).toEqual([2, expect.stringContaining('There is no file a.json')]);
});
