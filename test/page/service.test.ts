import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { listenOnLoopback } from '../../local/loopback.ts';
import { CollectingFunction } from '../../operations/collecting-function.ts';
import { ServiceQuestions } from '../../operations/service-answer.ts';
import type { SentRequest, ServiceAnswer } from '../../page/api.ts';
import { servePage } from '../../page/server/serve-page.ts';
import { Operated, signal, withEndpoints } from '../operations/support.ts';
import { issuesOf } from '../support/json-schema.ts';
import { APP, messageOf, QUICK, Visitor } from './support.ts';

let operated: Operated;
let visitor: Visitor;
const closing = new AsyncDisposableStack();
beforeAll(async () => {
  // A tick in an hour: nobody asks but the page.
  operated = closing.use(await Operated.start({ fixedTicks: { firstAfterMs: 3_600_000, intervalMs: 3_600_000 } }));
  const served = await servePage(operated.deployment, { appFiles: async () => APP, pace: QUICK });
  closing.defer(() => served.close());
  visitor = await Visitor.open(served.url);
});
afterEach(() => {
  operated.standIn.intercept = undefined;
});
afterAll(() => closing.disposeAsync());

/** From now on, the service answers so about each flow. Returns how often it was asked. */
function answers(body: object, status = 200): () => number {
  const before = operated.standIn.counts.getFlow;
  const headers = { 'content-type': 'application/json' };
  operated.standIn.intercept = (_, { operation }) =>
    operation === 'getFlow' ? { status, headers, body: JSON.stringify(body) } : undefined;
  return () => operated.standIn.counts.getFlow - before;
}

const askedBy = async (id: string): Promise<ServiceAnswer> => (await visitor.ask(`/api/uploads/${id}/service`)).json;
const requestOf = async (id: string): Promise<SentRequest> => (await visitor.ask(`/api/uploads/${id}/request`)).json;

it('the page shows the word, the progress and the answer of the service, which are in no ledger', async () => {
  const { id } = await operated.put('rendering.png', 'running');
  answers({ state: 'rendering', progress: 0.4567, preview: 'https://a.test/x.png?sig=5ec7e7' });
  expect(await askedBy(id)).toEqual({
    askedAt: expect.stringMatching(/^\d{4}-.*Z$/),
    ...{ word: 'rendering', isDeclared: false, progress: 0.4567 },
    says: 'The service says "rendering", progress 0.46. This is not declared, so it counts as running.',
    answer: expect.stringContaining('"https://a.test/x.png?…"'),
  });
});

it('the service is asked once in a few seconds, however many visitors look', async () => {
  const { id } = await operated.put('many.png', 'running');
  const asked = answers({ state: 'running' });
  const all = await Promise.all(Array.from({ length: 5 }, () => askedBy(id)));
  expect(all).toEqual(Array.from({ length: 5 }, () => all[0]));
  expect(all[0]?.says).toBe('The service says "running".');
  expect(asked()).toBe(1);
});

it('the page says why there is no answer', async () => {
  const { id } = await operated.put('gone.png', 'running');
  answers({ detail: 'It was deleted' }, 404);
  expect(await askedBy(id)).toEqual({
    askedAt: expect.anything(),
    issue: expect.stringMatching(/404: It was deleted$/),
  });
});

it('a file without a flow asks for nothing, and an unknown one is not found', async () => {
  await operated.putRefused('refused.png');
  const asked = answers({ state: 'running' });
  const { id } = await operated.becomes('refused.png', 'failed');
  expect(await askedBy(id)).toMatchObject({ issue: 'The upload has no flow.' });
  expect(asked()).toBe(0);
  const unknown = await visitor.ask(`/api/uploads/${'0'.repeat(40)}/service`);
  expect([unknown.status, messageOf(unknown)]).toEqual([404, expect.anything()]);
});

it('a viewer is told which right the question needs', async () => {
  const { id } = await operated.put('viewed.png', 'running');
  const lambda = await listenOnLoopback((_, response) => {
    response.writeHead(403, { 'x-amzn-errortype': 'AccessDeniedException' }).end('{"Message":"not authorized"}');
  });
  closing.defer(() => lambda.close());
  const { access } = withEndpoints(operated.deployment, { lambda: lambda.url });
  const deployment = { ...operated.deployment, collecting: new CollectingFunction('collect-outputs', access) };
  const { issue } = await new ServiceQuestions(deployment, signal).ask(id, 'running');
  expect(issue).toBe('You may not have it asked: that needs grantOperate.');
});

it('the page shows the request of a file, as flowdrop explain does', async () => {
  const { id } = await operated.put('asked.png', 'running', 'x'.repeat(1_000));
  const { request = '', issue } = await requestOf(id);
  expect(issue).toBeUndefined();
  const [head = '', json = ''] = request.split('\n\n');
  expect(head).toMatch(/^POST \/flows\n.*\nAuthorization: Bearer \[token\](?:\n|$)/s);
  const body = JSON.parse(json);
  expect(body).toMatchObject({ template: 'bytes_echo', inputs: [{ additional: { key: 'asked.png' } }] });
  expect(body.inputs[0].data).toMatch(/^data:image\/png;base64,[\w=]+… \(1000 bytes in all\)$/);
  expect(JSON.parse((await operated.run('explain', id, '--json')).output).request).toEqual(body);
});

it('flowdrop status of a running file says what the service says', async () => {
  await operated.put('told.png', 'running');
  answers({ state: 'running', progress: 12 });
  const [text, json] = [await operated.run('status', 'told.png'), await operated.run('status', 'told.png', '--json')];
  expect(text.output).toContain('\n  The service says "running", progress 12.\n');
  const answer = JSON.parse(json.output);
  expect(answer.service).toMatchObject({ word: 'running', progress: 12 });
  expect(issuesOf('statusOfUpload', answer)).toBe('');

  answers({ detail: 'It is being restarted' }, 500);
  const { output, code } = await operated.run('status', 'told.png');
  expect(output).toMatch(/\n {2}There is no answer of the service: .*It is being restarted\n/);
  expect(code).toBe(0);
});
