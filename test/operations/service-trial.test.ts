import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { Json } from '../../functions/base/json.ts';
import { merged, type ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { FLOWS, SERVICES } from '../../functions/flow-service/services.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';
import { StandInJobService } from '../../local/flow-service/job-service.ts';
import { SHAPES, type ShapeName } from '../../local/flow-service/shapes.ts';
import { type TrialFile, tryListings, tryService } from '../../operations/service-trial.ts';
import { PATIENCE } from '../support/patience.ts';
import { answering, serveStandIn, web } from '../support/servers.ts';
import { speaking } from '../support/speaking.ts';

const TOKEN = 'fake-token-of-a-test';
const PICTURE = readFileSync(new URL('../../examples/robot.png', import.meta.url));

const file = (template: string, input: 'file' | 'text' = 'file'): TrialFile => ({
  ...{ name: 'robot.png', mediaType: 'image/png', content: input === 'file' ? PICTURE : Buffer.from('a robot') },
  route: { name: 'pictures', template, input },
});

/** What a trial of a service prints, and whether a result came. */
function trial(url: string, speaks: ServiceDescription, sent = file('bytes_echo'), trialMs?: number) {
  const lines: string[] = [];
  const interrupted = new AbortController();
  const options = {
    service: { url, token: TOKEN, speaks },
    settings: SETTINGS_DEFAULT,
    ...{ file: sent, trialMs, pollMs: 20, print: (line: string) => void lines.push(line) },
  };
  const listed = () => tryListings(options, interrupted.signal);
  const ran = () => tryService(options, interrupted.signal);
  return { listed, ran, interrupted, printed: () => lines.join('\n') };
}

it('a trial prints what it understood of each answer, and a result comes', async () => {
  const { url, service } = await serveStandIn({ tokens: [TOKEN], flowMs: 50 });
  const { listed, ran, printed } = trial(url, FLOWS);
  await listed();
  expect(service.flows).toHaveLength(0);
  expect(await ran()).toBe(true);
  expect(printed()).toMatch(/^templates:\n {2}It offers \d+ templates\.\nlisting: good\nwords and pages: /);
  expect(printed()).toMatch(
    /creation: POST \/flows\n {2}sent with Idempotency-Key: [0-9a-f]{24}-[0-9a-f]{8}-1-1\n {2}id, \/flow_id: /,
  );
  expect(printed()).toContain('  word, /state: "completed"');
  expect(printed()).toContain('  The flow counts as completed.');
  expect(printed()).toContain('listing: GET /flows\n  The flow is found by what was attached to it.\n');
  expect(printed()).toMatch(/outputs: GET .*\n {2}items, \/outputs: a list of 1 item\n/);
  expect(printed()).toMatch(/result \S+: image\/png, 6,458 bytes, (?:as bytes|in JSON) from http:\/\/127/);
  expect(printed()).toMatch(/abort: PATCH \/flows\/\{id\} was not tried\.\n1 result of 1 came, and was not kept\.$/);
  expect(printed()).not.toContain(TOKEN);
  expect(service.flows).toHaveLength(1);
});

it.each(Object.keys(SHAPES) as ShapeName[])('a trial of %s gets its results', async (shape) => {
  const standIn = new StandInJobService({ shape, token: TOKEN, jobMs: 50 });
  const results = await serveFlowService({ handle: standIn.results });
  standIn.resultsOrigin = results.url;
  const server = await serveFlowService(standIn);
  onTestFinished(() => Promise.all([server.close(), results.close(), standIn.close()]).then(() => {}));
  const sent = file(
    shape === 'tripo' ? 'text_to_model' : shape === 'fal' ? 'fal-ai/hunyuan3d' : 'any',
    shape === 'tripo' ? 'text' : 'file',
  );
  const { ran, printed } = trial(server.url, SERVICES[shape] as ServiceDescription, sent);
  expect([await ran(), printed()]).toEqual([true, expect.stringMatching(/came, and (?:was|were) not kept\.$/)]);
});

it.each<[string, Json, RegExp]>([
  [
    'create.id',
    { create: { id: '/task' } },
    /correct "create\.id".*has \/.*\nA flow that was asked for may still run/s,
  ],
  ['state.word', { state: { word: '/phase' } }, /correct "state\.word".*\nThe flow \S+ may still run/s],
  ['outputs.items', { outputs: { items: '/files' } }, /correct "outputs\.items".*has \/flow_id, \/outputs/],
  ['outputs.id', { outputs: { id: '/ref' } }, /correct "outputs\.id".*No result came/s],
  ['outputs.addresses', { outputs: { addresses: ['/files'], isWhole: true } }, /correct "outputs\.addresses"/],
  [
    'outputs.asset',
    { outputs: { asset: '/files/{id}/{asset}' } },
    /result \S+: asset: 404.*No result came: correct "outputs"/s,
  ],
  [
    'create.path',
    { create: { path: '/jobs' } },
    /Check "create\.path", "create\.body" in the description\. create: 404/,
  ],
  [
    'token',
    { token: { scheme: 'Key' } },
    /Check the token in FLOWDROP_TOKEN\. It was sent as "Authorization: Key \[token\]": .*correct "token" in the description\. create: 401/,
  ],
])('a wrong %s ends a trial, and the member is named', async (_, changes, told) => {
  const { url } = await serveStandIn({ tokens: [TOKEN], flowMs: 0 });
  const { ran, printed } = trial(url, speaking(changes));
  expect([await ran(), printed()]).toEqual([false, expect.stringMatching(told)]);
});

it('an empty answer to a creation leads to the pointer to the id, and not to the path that was right', async () => {
  const { url, service } = await serveStandIn({ tokens: [TOKEN] });
  service.intercept = (_, { operation }) =>
    operation === 'createFlow' ? { status: 202, headers: { 'operation-location': '/jobs/7' }, body: '' } : undefined;
  const { ran, printed } = trial(url, FLOWS);
  expect(await ran()).toBe(false);
  expect(printed()).toMatch(
    /^Check "create\.id" in .* empty \(status 202\)\. If its header operation-location names the flow, declare "create"/m,
  );
});

it('a listing that does not show what was attached to the flow is told', async () => {
  const { url } = await serveStandIn({ tokens: [TOKEN], flowMs: 0 });
  const { ran, printed } = trial(url, speaking({ state: { additional: '/labels' } }));
  expect(await ran()).toBe(true);
  expect(printed()).toMatch(
    /listing: .*\n {2}The flow is not found .* \(the listing shows no additional data.*"inDoubt"/,
  );
});

it('a state that is not there is told at the end, although a result comes', async () => {
  const { url } = await serveStandIn({ tokens: [TOKEN], flowMs: 0 });
  const { ran, printed } = trial(url, speaking({ state: { path: '/jobs/{id}' } }));
  expect(await ran()).toBe(true);
  expect(printed()).toMatch(/was not kept\.\nNo state was read\. If the service shows the state .*"state\.path"\.$/);
});

it('a state that leads on to the outputs once it has ended is no fault', async () => {
  const { url, service } = await serveStandIn({ tokens: [TOKEN], flowMs: 0 });
  service.intercept = (request, { operation }) =>
    operation === 'getFlow' ? { status: 303, headers: { location: `${request.url}/outputs` } } : undefined;
  const { ran, printed } = trial(url, FLOWS);
  expect(await ran()).toBe(true);
  expect(printed()).toContain('The outputs must tell when the flow has ended.');
  expect(printed()).toMatch(/was not kept\.$/);
});

it('a trial says what a lost answer costs, and where the errors have their words', async () => {
  const { origin } = await web(answering(404, { problem: 'no such job' }));
  const { listed, printed } = trial(origin, speaking({ list: null, templates: null }));
  await listed();
  expect(printed()).toMatch(
    /^errors:\n {2}The answer .* no words at \/detail: correct "errors\.words".* has \/problem\.$/m,
  );
  expect(printed()).toMatch(/^a lost answer:\n {2}The file is sent again, and may be paid for twice/m);
});

it.each([
  [
    502,
    /^errors:\n {2}An unknown flow is answered with get: 502: gone wrong\. After a lost answer, a file waits for a day/m,
  ],
  [500, /^errors:\n {2}An unknown flow is answered with get: 500: gone wrong$/m],
])(
  'a trial warns of a service without a listing that seems to be down for an unknown flow: %i',
  async (status, said) => {
    const { origin } = await web(answering(status, { detail: 'gone wrong' }));
    const { listed, printed } = trial(origin, speaking({ list: null, templates: null }));
    await listed();
    expect(printed()).toMatch(said);
  },
);

it('a flow that fails ends a trial with its words', async () => {
  const { origin } = await web((request, response) =>
    answering(200, request.method === 'POST' ? { id: 'f1' } : { state: 'failed', error: 'no fox' })(request, response),
  );
  const { ran, printed } = trial(origin, FLOWS);
  expect([await ran(), printed()]).toEqual([
    false,
    expect.stringMatching(/counts as failed \("state\.failed"\): no fox\.$/),
  ]);
});

it('a flow that an error in place of its state ends, as declared, is said to have failed', async () => {
  const { origin } = await web((request, response) =>
    request.method === 'POST'
      ? answering(200, { id: 'f1' })(request, response)
      : answering(422, { detail: 'no fox' })(request, response),
  );
  const speaks = speaking({ outputs: { addresses: ['/output'], failed: [422], isWhole: true }, list: null });
  const { ran, printed } = trial(origin, speaks);
  expect([await ran(), printed()]).toEqual([
    false,
    expect.stringMatching(/\nThe flow counts as failed \("outputs\.failed"\): no fox\.$/),
  ]);
});

it('a trial ends at its bound, names the word that is not declared, and the flow that may run on', async () => {
  const { origin } = await web((request, response) =>
    answering(200, request.method === 'POST' ? { id: 'f1' } : { state: 'succeed' })(request, response),
  );
  const { ran, printed } = trial(origin, FLOWS, undefined, 200);
  expect(await ran()).toBe(false);
  expect(printed()).toMatch(/The word "succeed" is not declared.*\n.*Ctrl-C ends that/s);
  expect(printed().match(/Ctrl-C/g)).toHaveLength(1);
  expect(printed()).toMatch(
    /No result came within 1 minutes?\.\nThe last word, "succeed", is not declared: add it to "state" in the description\.\nThe flow f1 may still run at http:.*, and may be paid for\.$/,
  );
});

it('a word that is not declared is not told at the end, if a declared one came after it', async () => {
  const words = ['warming', 'failed'];
  const { origin } = await web((request, response) =>
    answering(200, request.method === 'POST' ? { id: 'f1' } : { state: words.shift() })(request, response),
  );
  const { ran, printed } = trial(origin, FLOWS);
  expect(await ran()).toBe(false);
  expect(printed()).toMatch(/"warming" is not declared.*counts as failed \("state\.failed"\)\.$/s);
});

it('an interrupted trial names the flow that may run on', async () => {
  const { url } = await serveStandIn({ tokens: [TOKEN], flowMs: 3_600_000 });
  const { ran, interrupted, printed } = trial(
    url,
    merged(FLOWS as unknown as Json, {}) as unknown as ServiceDescription,
  );
  const ended = ran();
  await vi.waitFor(() => expect(printed()).toContain('counts as running'), PATIENCE);
  interrupted.abort();
  await expect(ended).rejects.toThrow();
  expect(printed()).toMatch(/\nThe flow \S+ may still run at .*, and may be paid for\.$/);
});

it('a trial names the requests for a flow whose state has a body as they are sent', async () => {
  const { origin } = await web((request, response) =>
    request.method === 'GET'
      ? response.writeHead(200, { 'content-type': 'model/obj' }).end('v 0 0 0')
      : answering(200, { id: 'f1', state: 'completed', outputs: [{ id: 'a' }] })(request, response),
  );
  const speaks = speaking({ state: { body: { job: '{id}' } }, outputs: { path: '/flows/{id}' } });
  const { ran, printed } = trial(origin, speaks);
  expect(await ran()).toBe(true);
  expect(printed()).toContain('state: POST /flows/{id}\n');
  expect(printed()).toContain('outputs: POST /flows/{id}\n');
});
