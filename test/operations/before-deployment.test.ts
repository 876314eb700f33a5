import type { RequestListener } from 'node:http';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { describe, expect, it } from 'vitest';
import type { Checked } from '../../operations/checks.ts';
import { folderWith, temporaryFolder } from '../support/folder.ts';
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
    expect(resultOf(await run('--stage', 'none'), 'configuration')?.what).toBe(
      'stage none: expected the file flowdrop.none.json beside cdk.json',
    );
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
    2 issues:
    - flowdrop.baseUrl: expected https:, or http: on a loopback host, got http://flows.example.org
    - flowdrop.deployment.removalPolicy: expected "retain" or "destroy", got "keep"
    Correct cdk.json.
  routes: not checked, because the configuration cannot be used
  the flow service: not checked, because the configuration cannot be used
  the token: not checked, because the configuration cannot be used
  templates of the routes: not checked, because the configuration cannot be used
  listing of flows: not checked, because the configuration cannot be used

1 fault, 0 warnings, 5 not checked
`);
  });

  it.each(['--stack=a', '--function=a', '--region=a', '--local', '--canary=a'])(
    'cannot be combined with %s',
    async (option) => {
      const { code, errors } = await runFlowdrop(['doctor', '--before-deployment', option], { directory: '.' });
      expect([code, errors]).toEqual([2, expect.stringContaining('--before-deployment looks at no pipeline')]);
    },
  );

  it('alone knows a stage', async () => {
    const { code, errors } = await runFlowdrop(['doctor', '--local', '--stage', 'a'], { directory: '.' });
    expect([code, errors]).toEqual([2, expect.stringContaining('--stage is for --before-deployment')]);
  });

  it('loads no CDK', async () => {
    const { metafile } = await build({
      entryPoints: [fileURLToPath(new URL('../../command-line/flowdrop.ts', import.meta.url))],
      bundle: true,
      write: false,
      metafile: true,
      format: 'esm',
      platform: 'node',
    });
    const inputs = Object.keys(metafile.inputs);
    expect(inputs).toContain('infra/deployment.ts');
    expect(inputs.filter((each) => /aws-cdk-lib|\/constructs\//.test(each))).toEqual([]);
  });
});

it('the check of the configuration names a file that is no JSON, and a folder without one', async () => {
  const ran = await checkedWith({}, { files: { 'flowdrop.json': '{' } });
  expect(resultOf(ran, 'configuration')?.what).toMatch(/^flowdrop\.json: /);
  const directory = await temporaryFolder();
  const without = await runFlowdrop(['doctor', '--before-deployment', '--json'], { directory });
  expect(resultOf(without, 'configuration')?.what).toBe(`cdk.json: expected this file in ${directory}`);
});

it('the check of the routes warns of what is most likely a mistake', async () => {
  const { url } = await standIn();
  const ran = await checkedWith({ baseUrl: url, routes: [{ ...ROUTE, mediaTypes: ['image/png', 'image/jpg'] }] });
  expect(resultOf(ran, 'routes')).toEqual({
    check: 'routes',
    result: 'warning',
    what:
      'flowdrop.routes[0].mediaTypes[1]: no extension of a file name stands for image/jpg, so only an upload with ' +
      'this Content-Type fits. Did you mean image/jpeg?',
    todo: 'Correct cdk.json, if this is not meant.',
  });
});

describe('the check of the flow service', () => {
  it.each<[string, RequestListener, RegExp, string]>([
    [
      'a redirect',
      (request, response) => {
        response.writeHead(301, { location: `https://flows.example.org${request.url}` }).end();
      },
      /^The flow service at http:\/\/127.* redirects to https:\/\/flows\.example\.org\/v1\/templates \(301\), and uploads follow no redirect\.$/,
      'Use baseUrl https://flows.example.org/v1.',
    ],
    [
      'a path that is not there',
      answering(404, { detail: 'Not Found' }),
      /there is no flow service at this address \(404\)\.$/,
      'Check the path in baseUrl. If the path is right, deploy all the same.',
    ],
  ])('tells %s', async (_, answer, what, todo) => {
    const { origin } = await web(answer);
    const ran = await checkedWith({ baseUrl: `${origin}/v1`, routes: [ROUTE] });
    expect(resultOf(ran, 'the flow service')).toMatchObject({
      result: 'fault',
      what: expect.stringMatching(what),
      todo,
    });
    expect(resultOf(ran, 'the token')).toMatchObject({
      result: 'not checked',
      what: 'the service does not answer as it should',
    });
    expect(resultOf(ran, 'templates of the routes')).toMatchObject({ result: 'not checked' });
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
  it('tells that the service refuses it, without the token', async () => {
    const { url } = await standIn();
    const ran = await checkedWith({ baseUrl: url, routes: [ROUTE] }, { token: 'fake-token-of-another' });
    expect(ran.code).toBe(1);
    expect(resultOf(ran, 'the token')).toMatchObject({
      result: 'fault',
      what: expect.stringMatching(/^The flow service at http.* refuses the token \(401.*\)\.$/),
      todo: 'Set the environment variable FLOWDROP_TOKEN to a valid one.',
    });
    expect(resultOf(ran, 'the flow service')).toMatchObject({ what: 'it does not accept the token' });
    expect(`${ran.output}${ran.errors}`).not.toContain('fake-token');
  });

  it('warns of a token that may not list anything', async () => {
    const { origin } = await web(answering(403, { detail: `No access for ${TOKEN}` }));
    const ran = await checkedWith({ baseUrl: origin, routes: [ROUTE] });
    expect(resultOf(ran, 'the token')).toMatchObject({
      result: 'warning',
      what: expect.stringMatching(/forbids the request \(403: No access for \[token\]\)\.$/),
    });
    expect(ran.code).toBe(0);
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

  it('takes one that is typed at a terminal, which does not show it', async () => {
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
  });

  it('is interrupted by Ctrl-C while it asks', async () => {
    const directory = cloneWith({ baseUrl: 'https://flows.example.org', routes: [ROUTE] });
    const ran = await runFlowdrop(['doctor', '--before-deployment'], { directory, answer: '\u0003' });
    expect([ran.code, ran.output]).toEqual([130, '']);
    expect(ran.modes).toEqual([true, false]);
  });
});

describe('the check of the templates', () => {
  it('names a route whose template the service does not know, and what there is', async () => {
    const { url } = await standIn();
    const ran = await checkedWith({ baseUrl: url, routes: [{ ...ROUTE, template: 'model_generate_fromimge' }] });
    expect(resultOf(ran, 'templates of the routes')).toMatchObject({
      result: 'fault',
      what: 'The service does not know the template model_generate_fromimge (route pictures).',
      todo: expect.stringMatching(/^Correct the routes, and try again\. There is .*model_generate_fromimage.*\.$/),
    });
    expect(ran.code).toBe(1);
  });

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
    const { url } = await serveStandIn({ tokens: [TOKEN], flowMs: 10, variation: { listTemplates: 404 } });
    const ran = await checkedWith({ baseUrl: url, routes: [ROUTE] });
    expect(resultOf(ran, 'templates of the routes')).toMatchObject({
      result: 'not checked',
      what: expect.stringContaining('the service lists no templates: '),
    });
    expect(ran.code).toBe(0);
  });
});
