import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { describe, expect, it } from 'vitest';
import type { Checked } from '../../operations/checks.ts';
import { folderWith, temporaryFolder } from '../support/folder.ts';
import { serveProxy } from '../support/proxy.ts';
import { answering, serveStandIn, web } from '../support/servers.ts';
import { type Ran, runFlowdrop } from './support.ts';

const TOKEN = 'fake-token-of-a-test';
const ROUTE = { name: 'pictures', mediaTypes: ['image/png'], template: 'model_generate_fromimage' };
type Files = Readonly<Record<string, unknown>>;

/** A folder with a cdk.json, as a clone has it, and with these files. */
const cloneWith = (context: object, files: Files = {}) =>
  folderWith({ 'cdk.json': { context: { flowdrop: context } }, ...files });

/** Runs the checks of a configuration in cdk.json with a token in the environment. */
const checkedWith = (context: object, { token = TOKEN, files = {} }: { token?: string; files?: Files } = {}) =>
  runFlowdrop(['doctor', '--before-deployment', '--json'], {
    directory: cloneWith(context, files),
    env: token === '' ? {} : { FLOWDROP_TOKEN: token },
  });

const resultOf = ({ output }: Ran, check: string): Checked | undefined =>
  JSON.parse(output).checks.find((each: Checked) => each.check === check);

const standIn = () => serveStandIn({ tokens: [TOKEN], flowMs: 10 });

describe('flowdrop doctor --before-deployment', () => {
  it('finds nothing wrong with a good configuration, and begins no flow', async () => {
    const { url, service } = await standIn();
    const ran = await checkedWith({ baseUrl: `${url}/`, routes: [ROUTE] });
    expect(JSON.parse(ran.output)).toEqual({
      deployment: 'the configuration in cdk.json',
      checks: [
        { check: 'configuration', result: 'good' },
        { check: 'routes', result: 'good' },
        { check: 'the flow service', result: 'good' },
        { check: 'the token', result: 'good' },
        { check: 'templates of the routes', result: 'good' },
        { check: 'listing of flows', result: 'good' },
        { check: 'words and pages', result: 'not checked', what: 'the listing shows no flows' },
        {
          check: 'a lost answer',
          result: 'good',
          what: 'It costs nothing: the flow is found in the listing of the service.',
        },
        {
          check: 'the account',
          result: 'not checked',
          what: 'the environment has no credentials of AWS: set AWS_PROFILE to have AWS asked too',
        },
      ],
    });
    expect(ran.code).toBe(0);
    expect(service.flows).toEqual([]);
  });

  it('reads the file of your own, and the stage that is named', async () => {
    const { url } = await standIn();
    const own = { baseUrl: url, routes: [ROUTE] };
    const files = { 'flowdrop.json': own, 'flowdrop.test.json': { routes: [{ ...ROUTE, template: 'absent' }] } };
    const directory = cloneWith({}, files);
    const run = (...words: readonly string[]) =>
      runFlowdrop(['doctor', '--before-deployment', '--json', ...words], { directory, env: { FLOWDROP_TOKEN: TOKEN } });
    const whole = await run();
    expect([whole.code, JSON.parse(whole.output).deployment]).toEqual([0, 'the configuration in flowdrop.json']);
    const stage = await run('--stage', 'test');
    expect(stage.code).toBe(1);
    expect(JSON.parse(stage.output).deployment).toBe('the configuration in flowdrop.json, flowdrop.test.json');
    expect(resultOf(stage, 'templates of the routes')?.what).toContain('absent');
  });

  it('asks through the proxy of this machine, and says so', async () => {
    const { url, service } = await standIn();
    const proxy = await serveProxy();
    const directory = cloneWith({ baseUrl: url, routes: [ROUTE] });
    const checked = (env: Record<string, string>) =>
      runFlowdrop(['doctor', '--before-deployment', '--json'], { directory, env: { FLOWDROP_TOKEN: TOKEN, ...env } });
    const ran = await checked({ http_proxy: proxy.url.href.replace('//', '//me:fake@') });
    const { host } = new URL(url);
    expect(resultOf(ran, 'the proxy')).toEqual({
      ...{ check: 'the proxy', result: 'good' },
      what: `Requests to ${host} go through the proxy ${proxy.url.origin}, and so do those for results at other addresses.`,
    });
    expect(resultOf(ran, 'templates of the routes')?.result).toBe('good');
    expect(new Set(proxy.asked.map(({ target }) => target))).toEqual(new Set([host]));
    expect(ran.output).not.toContain('fake@');

    const asked = proxy.asked.length;
    const past = await checked({ http_proxy: proxy.url.href, NO_PROXY: 'localhost,127.0.0.1' });
    expect([resultOf(past, 'the proxy'), resultOf(past, 'the flow service')?.result]).toEqual([undefined, 'good']);
    expect(proxy.asked.length).toBe(asked);

    const { listTemplates } = service.counts;
    const wrong = await checked({ http_proxy: 'socks5://me:fake@proxy.example' });
    expect(resultOf(wrong, 'the proxy')).toMatchObject({
      result: 'fault',
      what: expect.stringMatching(/^HTTP_PROXY: /),
    });
    expect(resultOf(wrong, 'the flow service')).toMatchObject({ result: 'not checked' });
    expect(wrong.output).not.toContain('fake@');
    expect(service.counts.listTemplates).toBe(listTemplates);
  });

  it('reads the stage that stands in cdk.json, as the synth does', async () => {
    const cdk = { context: { stage: 'none', flowdrop: { baseUrl: 'https://flows.example.com', routes: [ROUTE] } } };
    expect(resultOf(await checkedWith({}, { files: { 'cdk.json': cdk } }), 'configuration')?.what).toContain(
      'flowdrop.none.json',
    );
  });

  it('prints every issue, of the functions and of the deployment, on a line of its own, and exits with 1', async () => {
    const deployment = { removalPolicy: 'keep' };
    const directory = cloneWith({ baseUrl: 'http://flows.example.org', routes: [ROUTE], deployment });
    const { code, output } = await runFlowdrop(['doctor', '--before-deployment'], { directory });
    expect(code).toBe(1);
    expect(output).toBe(`the configuration in cdk.json:
  configuration: fault
    cdk.json: 2 issues:
    - context.flowdrop.baseUrl: expected https:, or http: on a loopback host, got http://flows.example.org
    - context.flowdrop.deployment.removalPolicy: expected "retain" or "destroy", got "keep"
    Correct cdk.json.
  routes: not checked, because the configuration cannot be used
  the flow service: not checked, because the configuration cannot be used
  the token: not checked, because the configuration cannot be used
  templates of the routes: not checked, because the configuration cannot be used
  listing of flows: not checked, because the configuration cannot be used
  words and pages: not checked, because the configuration cannot be used
  a lost answer: not checked, because the configuration cannot be used
  the account: not checked, because the configuration cannot be used

1 fault, 0 warnings, 8 not checked
`);
  });

  it.each([
    ...['--stack=a', '--function=a', '--region=a', '--local', '--canary=a'].map(
      (option) => [['--before-deployment', option], '--before-deployment looks at no pipeline'] as const,
    ),
    [['--local', '--stage', 'a'], '--stage is for --before-deployment'] as const,
  ])('takes no options of another kind: %j', async (options, why) => {
    const { code, errors } = await runFlowdrop(['doctor', ...options], { directory: '.' });
    expect([code, errors]).toEqual([2, expect.stringContaining(why)]);
  });

  it('loads no CDK', async () => {
    const { metafile } = await build({
      entryPoints: [fileURLToPath(new URL('../../command-line/flowdrop.ts', import.meta.url))],
      bundle: true,
      packages: 'external',
      write: false,
      metafile: true,
      format: 'esm',
      platform: 'node',
    });
    const loaded = Object.values(metafile.inputs).flatMap(({ imports }) => imports.map(({ path }) => path));
    expect(loaded).toEqual(expect.arrayContaining(['infra/deployment.ts', 'commander']));
    expect(loaded.filter((each) => /^(?:aws-cdk-lib|constructs)(?:\/|$)/.test(each))).toEqual([]);
  });
});

it('the check of the configuration names a file that is no JSON, and a folder without one', async () => {
  const ran = await checkedWith({}, { files: { 'flowdrop.json': '{' } });
  expect(resultOf(ran, 'configuration')?.what).toMatch(/^flowdrop\.json: /);
  const directory = await temporaryFolder();
  const without = await runFlowdrop(['doctor', '--before-deployment', '--json'], { directory });
  expect(resultOf(without, 'configuration')?.what).toBe(`cdk.json: expected this file in ${directory}`);
});

describe('the words and pages of the listing', () => {
  const wordsOf = async (answer: object, service: object = {}): Promise<Checked | undefined> => {
    const { origin } = await web(answering(200, answer));
    const list = { pages: null };
    const speaks = { from: 'flows', list, templates: null, ...service };
    return resultOf(await checkedWith({ baseUrl: origin, routes: [ROUTE], service: speaks }), 'words and pages');
  };
  const flow = (id: string, state: string) => ({ id, state });

  it('are told if all are declared', async () => {
    expect(await wordsOf({ flows: [flow('a', 'completed'), flow('b', 'completed'), flow('c', 'running')] })).toEqual({
      check: 'words and pages',
      result: 'good',
      what: 'It shows 3 flows on 1 page.\nDeclared words: "completed" as completed (2), "running" as running (1).',
    });
  });

  it('are a warning if some are not', async () => {
    const found = await wordsOf({ flows: [flow('a', 'succeed'), flow('b', 'failed')], next_page_token: 'x' });
    expect(found).toMatchObject({
      result: 'warning',
      what: expect.stringMatching(/so they count as running: "succeed" \(1\).*\/next_page_token/s),
      todo: expect.stringMatching(/"state".*"pages"/s),
    });
  });

  it('cannot be read if the list is not where the description says', async () => {
    const { origin } = await web(answering(200, { jobs: [flow('a', 'completed')] }));
    const speaks = { from: 'flows', list: { items: '/flows', pages: null }, templates: null };
    const ran = await checkedWith({ baseUrl: origin, routes: [ROUTE], service: speaks });
    expect(resultOf(ran, 'listing of flows')).toMatchObject({
      result: 'warning',
      what: expect.stringContaining('no list at /flows: correct "list.items" in the description; the answer has /jobs'),
    });
  });

  it('cannot be read if its flows have no id where the description says', async () => {
    const found = await wordsOf({ flows: [flow('a', 'completed')] }, { list: { id: '/task' } });
    expect(found).toMatchObject({ result: 'warning', todo: expect.stringContaining('"id" of "list"') });
  });
});

describe('what a lost answer costs', () => {
  const create = { idempotency: { hours: 24 } };
  it.each([
    ['nothing with a key', { create, list: null }, {}, 'good', 'for 24 hours the same request is sent again'],
    ['a second payment', { list: null }, {}, 'note', 'sent again, and may be paid for twice'],
    ['a decision', { list: null }, { inDoubt: 'ask' }, 'note', 'waits for your decision'],
  ] as const)('is told: %s', async (_, service, settings, result, words) => {
    const ran = await checkedWith({
      baseUrl: 'https://flows.example.com',
      routes: [ROUTE],
      service: { from: 'flows', ...service },
      settings,
    });
    expect(resultOf(ran, 'a lost answer')).toMatchObject({ result, what: expect.stringContaining(words) });
  });
});

it('the check of the routes warns of what is most likely a mistake', async () => {
  const { url } = await standIn();
  const ran = await checkedWith({ baseUrl: url, routes: [{ ...ROUTE, mediaTypes: ['image/png', 'video/matroska'] }] });
  expect(resultOf(ran, 'routes')).toEqual({
    check: 'routes',
    result: 'warning',
    what:
      'routes[0].mediaTypes[1]: no extension of a file name stands for video/matroska, so only an upload with ' +
      'this Content-Type fits.',
    todo: 'Correct cdk.json, if this is not meant.',
  });
});

describe('the check of the flow service', () => {
  it('tells in its words what is wrong with the service, and makes no check that needs it', async () => {
    const { origin } = await web((request, response) => {
      response.writeHead(301, { location: `https://flows.example.org${request.url}` }).end();
    });
    const ran = await checkedWith({ baseUrl: `${origin}/v1`, routes: [ROUTE] });
    expect(resultOf(ran, 'the flow service')).toMatchObject({
      result: 'fault',
      what: expect.stringMatching(/^The flow service at http:\/\/127.* redirects to https:\/\/flows\.example\.org\/v1/),
      todo: 'Use baseUrl https://flows.example.org/v1.',
    });
    const result = 'not checked';
    expect(resultOf(ran, 'the token')).toMatchObject({ result, what: 'the service does not answer as it should' });
    expect(resultOf(ran, 'templates of the routes')).toMatchObject({ result });
    expect(ran.code).toBe(1);
  });

  it('does not send the token to the example of this repository', async () => {
    const ran = await checkedWith({ baseUrl: 'https://flows.example.com', routes: [ROUTE] });
    expect(resultOf(ran, 'the flow service')).toEqual({
      check: 'the flow service',
      result: 'fault',
      what:
        'baseUrl is still the example, https://flows.example.com/. ' +
        'No flow is made until it is the URL of your flow service.',
      todo: 'Set baseUrl in cdk.json.',
    });
    expect(resultOf(ran, 'the token')).toMatchObject({ what: 'baseUrl is still the example' });
  });
});

describe('the check of the token', () => {
  it.each([
    ['is refused', 401, 'fault', /refuses the token \(401: No access for \[token\]\)\.$/, 1],
    ['may not list anything', 403, 'warning', /forbids the request \(403: No access for \[token\]\)\.$/, 0],
  ])('tells of a token that %s, without the token', async (_, status, result, what, code) => {
    const { origin } = await web(answering(status, { detail: `No access for ${TOKEN}` }));
    const ran = await checkedWith({ baseUrl: origin, routes: [ROUTE] });
    expect(resultOf(ran, 'the token')).toMatchObject({ result, what: expect.stringMatching(what) });
    expect(ran.code).toBe(code);
    expect(`${ran.output}${ran.errors}`).not.toContain(TOKEN);
  });

  it('tells a token that no request can carry, and does not ask the service', async () => {
    const { origin, requests } = await web(answering(200, { templates: [] }));
    const ran = await checkedWith({ baseUrl: origin, routes: [ROUTE] }, { token: 'fake\ntoken' });
    expect(resultOf(ran, 'the token')).toEqual({
      check: 'the token',
      result: 'fault',
      what: 'The token holds a line break.',
      todo: 'Set FLOWDROP_TOKEN to the token alone.',
    });
    expect(requests).toEqual([]);
  });

  it('is not made without a token, and says how to give one', async () => {
    const { origin, requests } = await web(answering(200, { templates: [] }));
    const ran = await checkedWith({ baseUrl: origin, routes: [ROUTE] }, { token: '' });
    for (const check of ['the flow service', 'the token', 'templates of the routes']) {
      expect(resultOf(ran, check)).toEqual({
        check,
        result: 'not checked',
        what: 'there is no token: set the environment variable FLOWDROP_TOKEN',
      });
    }
    expect([ran.code, requests]).toEqual([0, []]);
  });

  it('takes one that is typed at a terminal, which does not show it, or ends by Ctrl-C', async () => {
    const { url } = await standIn();
    const directory = cloneWith({ baseUrl: url, routes: [ROUTE] });
    const { code, output, errors, modes } = await runFlowdrop(['doctor', '--before-deployment'], {
      directory,
      answer: TOKEN,
    });
    expect(output).toContain('the token: good');
    expect(code).toBe(0);
    expect(errors).toContain('The token of the flow service (it is not shown, and not stored): ');
    expect(`${output}${errors}`).not.toContain(TOKEN);
    // In its raw mode a terminal shows nothing by itself.
    expect(modes).toEqual([true, false]);
    const interrupted = await runFlowdrop(['doctor', '--before-deployment'], { directory, answer: '\u0003' });
    expect(interrupted).toMatchObject({ code: 130, output: '', modes: [true, false] });
  });
});

describe('the check of the templates', () => {
  it('tells that something else than a flow service answers with JSON', async () => {
    const { origin } = await web(answering(200, { hello: 'world' }));
    const ran = await checkedWith({ baseUrl: origin, routes: [ROUTE] });
    expect(resultOf(ran, 'templates of the routes')).toMatchObject({
      result: 'fault',
      what: expect.stringMatching(
        /^The service at http:\/\/127.* does not say what it offers: unintelligible-answer: /,
      ),
      todo: 'Check that baseUrl is that of the flow service.',
    });
    expect(ran.code).toBe(1);
  });

  it('is not made if the service lists none', async () => {
    const { url, service } = await serveStandIn({ tokens: [TOKEN], flowMs: 10 });
    service.intercept = (_, { operation }) => (operation === 'listTemplates' ? { status: 404, body: '{}' } : undefined);
    const ran = await checkedWith({ baseUrl: url, routes: [ROUTE] });
    expect(resultOf(ran, 'templates of the routes')).toMatchObject({
      result: 'not checked',
      what: expect.stringContaining('the service lists no templates (templates: 404)'),
    });
    expect(ran.code).toBe(0);
  });
});

describe('flowdrop explain without a pipeline', () => {
  const clone = () =>
    cloneWith(
      {},
      {
        'flowdrop.json': { baseUrl: 'https://flows.example.com', routes: [ROUTE] },
        'robot.png': 'a picture',
      },
    );

  it('takes the routes from the configuration of the folder', async () => {
    const { code, output } = await runFlowdrop(['explain', 'robot.png'], { directory: clone() });
    expect(output).toMatch(
      /^robot\.png: \d+ B, image\/png \(a file of this machine, as it would be uploaded\)\n {2}route pictures: takes it/,
    );
    expect(output).toContain('"template": "model_generate_fromimage"');
    expect(code).toBe(0);
  });

  it('needs a pipeline for a key, and a configuration that can be used', async () => {
    expect(await runFlowdrop(['explain', 'absent.png'], { directory: clone() })).toMatchObject({
      code: 2,
      errors: expect.stringMatching(/^There is no file absent\.png\. Name the deployment with --stack NAME/),
    });
    const wrong = cloneWith({ baseUrl: 'https://flows.example.com' }, { 'robot.png': 'a picture' });
    expect(await runFlowdrop(['explain', 'robot.png'], { directory: wrong })).toMatchObject({
      code: 2,
      errors: expect.stringContaining('routes: expected a list of 1 to 200 routes'),
    });
  });
});

describe('a job file, before it is put', () => {
  const JOBS = {
    ...{ name: 'views', jobs: 'multi/', template: 'model_generate_multiview' },
    ...{ deadlineSeconds: 600, overrides: true },
  };
  const jobIn = (files: Files) =>
    cloneWith({}, { 'flowdrop.json': { baseUrl: 'https://flows.example.com', routes: [JOBS, ROUTE] }, ...files });
  const whole = {
    'chair/job.json': {
      inputs: ['front.png', { name: 'back.png', optional: true, additional: { view: 'back' } }, { text: 'oak, matt' }],
      parameters: { quality: 'high' },
    },
    'chair/front.png': 'the front',
    'chair/back.png': 'the back',
  };

  it('is explained with its inputs and the request', async () => {
    const { code, output } = await runFlowdrop(['explain', 'chair/job.json', '--json'], { directory: jobIn(whole) });
    expect([code, JSON.parse(output)]).toMatchObject([
      0,
      {
        key: 'multi/chair/job.json',
        job: {
          deadlineSeconds: 600,
          inputs: [{ key: 'multi/chair/front.png' }, { key: 'multi/chair/back.png' }, { text: 'oak, matt' }],
        },
        request: {
          template: 'model_generate_multiview',
          parameters: { quality: 'high' },
          inputs: [
            { additional: { key: 'multi/chair/front.png' } },
            { additional: { key: 'multi/chair/back.png', view: 'back' } },
            { additional: {}, data: 'oak, matt' },
          ],
        },
      },
    ]);
  });

  it('that is in a folder with the name of the prefix keeps its place below the prefix of the inbox', async () => {
    const configuration = {
      baseUrl: 'https://flows.example.com',
      settings: { inboxPrefix: 'in/' },
      routes: [{ ...JOBS, jobs: 'in/multi/' }],
    };
    const directory = cloneWith(
      {},
      { 'flowdrop.json': configuration, 'multi/job.json': { inputs: [{ text: 'oak' }] } },
    );
    const { output } = await runFlowdrop(['explain', 'multi/job.json', '--json'], { directory });
    expect(JSON.parse(output)).toMatchObject({ key: 'in/multi/job.json', job: { inputs: [{ text: 'oak' }] } });
  });

  it('passes the doctor, who sends nothing', async () => {
    const ran = await runFlowdrop(['doctor', '--job', 'chair/job.json', '--json'], { directory: jobIn(whole) });
    expect([ran.code, JSON.parse(ran.output)]).toEqual([
      0,
      {
        deployment: 'multi/chair/job.json',
        checks: ['route', 'job file', 'inputs', 'sizes'].map((check) => ({ check, result: 'good' })),
      },
    ]);
  });

  it.each<readonly [string, Files, string, Partial<Checked>, number]>([
    [
      'names a file that is not there',
      { 'chair/front.png': undefined },
      'inputs',
      { result: 'warning', what: 'Not there: multi/chair/front.png.', todo: expect.stringContaining('600 seconds') },
      0,
    ],
    [
      'cannot be used',
      { 'chair/job.json': { inputs: ['../front.png'], paramters: {} } },
      'job file',
      {
        result: 'fault',
        what: expect.stringMatching(
          /:\n {2}\(1\) inputs\[0\]: .*got "\.\.\/front\.png"\n {2}\(2\) .*Did you mean parameters\?/,
        ),
      },
      1,
    ],
    ['has an empty input', { 'chair/front.png': '' }, 'sizes', { result: 'fault' }, 1],
  ])('does not pass if it %s', async (_, files, check, expected, code) => {
    const all = Object.entries({ ...whole, ...files }).filter(([, content]) => content !== undefined);
    const directory = jobIn(Object.fromEntries(all));
    const ran = await runFlowdrop(['doctor', '--job', 'chair/job.json', '--json'], { directory });
    expect(resultOf(ran, check)).toMatchObject(expected);
    expect(ran.code).toBe(code);
  });

  it('does not pass if no route takes jobs there', async () => {
    const files = { 'flowdrop.json': { baseUrl: 'https://flows.example.com', routes: [ROUTE] }, ...whole };
    const ran = await runFlowdrop(['doctor', '--job', 'chair/job.json'], { directory: cloneWith({}, files) });
    expect(ran.output).toContain('route: fault');
    expect(ran.code).toBe(1);
  });
});
