import type { RequestListener } from 'node:http';
import { createSecureServer } from 'node:http2';
import { createServer as createTlsServer } from 'node:https';
import { createServer as createTcpServer } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { selfSigned } from '../../bench/certificate.ts';
import type { JsonObject } from '../../functions/base/json.ts';
import { FLOWS, SERVICES } from '../../functions/flow-service/services.ts';
import type { Proxies } from '../../functions/flow-service/types.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';
import { StandInJobService } from '../../local/flow-service/job-service.ts';
import { SHAPES, type ShapeName } from '../../local/flow-service/shapes.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import { issueOfService, proxyInUse } from '../../operations/service-check.ts';
import { refusing, serveProxy } from '../support/proxy.ts';
import { answering, listening, serveStandIn, web } from '../support/servers.ts';
import { speaking } from '../support/speaking.ts';

const TOKEN = 'fake-token-of-a-test';
const PAGE = '<!doctype html><title>Welcome</title>';
const WORDS = { address: '--service', goOn: 'add --skip-check' };

/** The issue as `npm start` prints it. */
async function issueAt(url: string, speaks = FLOWS, proxies: Proxies = {}): Promise<string | undefined> {
  const issue = await issueOfService({ url, token: TOKEN, speaks, proxies }, WORDS, new AbortController().signal);
  return issue && `The flow service at ${url} ${issue.what}. ${issue.todo}`;
}

describe('a service whose description has no listing', () => {
  const speaks = speaking({ list: null, templates: null, state: { path: '/jobs/{id}' } });
  const asked = async (status: number, body: unknown) => {
    const { origin: url } = await web(answering(status, body));
    return issueOfService({ url, token: TOKEN, speaks }, WORDS, new AbortController().signal);
  };

  it('may not know a job that nobody made', async () => {
    expect(await asked(404, { detail: 'no such job' })).toBeUndefined();
    expect(await asked(200, { state: 'unknown' })).toBeUndefined();
  });

  it('is asked for a job, and its refusal of the token is told', async () => {
    expect(await asked(401, { detail: 'bad key' })).toMatchObject({
      of: 'token',
      what: expect.stringContaining('401'),
    });
  });

  it('is none if a page comes', async () => {
    expect(await asked(404, PAGE)).toMatchObject({
      ...{ of: 'answer', todo: 'Check the path in --service. If all is right, add --skip-check' },
      what: 'does not answer for an unknown flow: there is no flow service at this address (404)',
    });
  });

  it('is told where to look for its words, if they are not where the description says', async () => {
    const todo =
      'Check the path in --service. If the answer is its own, it has no words at /detail: correct "errors.words" in the description; the answer has /error/text. If all is right, add --skip-check';
    expect(await asked(404, { error: { text: 'no such job' } })).toMatchObject({ todo });
  });
});

it.each([
  ['no listing', { list: null, templates: null }],
  ['a listing', { list: { items: '/data' }, templates: null }],
])('a service with %s that refuses the token with a success is told, if its words are declared', async (_, listed) => {
  const errors = { words: '/msg', tokenRefused: [401, { status: 200, says: 'login fail' }] };
  const { origin } = await web(answering(200, { code: 1004, msg: 'login fail: check your key', data: null }));
  expect(await issueAt(origin, speaking({ ...listed, errors }))).toMatch(/refuses the token \(200: login fail: check/);
  const { origin: other } = await web(answering(200, { data: [{ id: '7', note: 'login fail' }], state: 'x' }));
  if (listed.list !== null) expect(await issueAt(other, speaking({ ...listed, errors }))).toBeUndefined();
});

describe('a service that answers with', () => {
  it.each<[string, RequestListener, RegExp]>([
    [
      '401',
      answering(401, { detail: 'Invalid key' }),
      /refuses the token \(401.*FLOWDROP_TOKEN to a valid one\. It was sent as "Authorization: Bearer \[token\]": .*"token"/,
    ],
    ['403', answering(403, { detail: 'No access' }), /forbids.*\(403: No access\).*FLOWDROP_TOKEN/],
    ['402', answering(402, { detail: 'Budget exhausted' }), /budget.*\(402: Budget exhausted\)/],
    [
      '404',
      answering(404, { detail: 'Not Found' }),
      /no flow service at this address \(404\)\. Check the path in --service\. If all/,
    ],
    [
      '404 in words elsewhere',
      answering(404, { error: 'x' }),
      /lists neither.*\(404\)\. .*no words at \/detail: .*\/error\./,
    ],
    [
      '404 with a page that names the path',
      (request, response) => {
        response.writeHead(404, { 'content-type': 'text/html' });
        response.end(`<pre>Cannot GET ${request.url}</pre>`);
      },
      /no flow service at this address \(404\)/,
    ],
    [
      '404 with an id of the request',
      (request, response) =>
        answering(404, { message: 'no Route matched', request_id: Math.random() })(request, response),
      /no flow service at this address \(404\)/,
    ],
    [
      '301 to another address',
      (request, response) => {
        response.writeHead(301, { location: `https://flows.example.com${request.url}` }).end();
      },
      /redirects to https:\/\/flows\.example\.com\/v1.*--service https:\/\/flows\.example\.com\/v1/,
    ],
    [
      '307 to the same path with a slash',
      (request, response) => {
        response.writeHead(307, { location: `${request.url}/` }).end();
      },
      /wants a slash at the end of its paths: it redirects \/templates to \/templates\/ \(307\)\. Declare.*"path": "\/templates\/"/,
    ],
    [
      '302 to a login page',
      answering(302, {}, { location: 'https://login.example.com/start?secret=fake-secret' }),
      /redirects to https:\/\/login\.example\.com\/start/,
    ],
    ['a web page', answering(200, PAGE), /web page\. Give the address of its API in --service, not of its website/],
    ['500', answering(500, { detail: 'Boom' }), /fails \(500: Boom\)/],
    ['502 with a web page', answering(502, PAGE), /fails \(502\)/],
    ['429', answering(429, { detail: 'Slow down' }, { 'retry-after': '30' }), /fewer requests \(429.*30 s/],
    ['our token', answering(500, { detail: `Bearer ${TOKEN}` }), /fails \(500: Bearer \[token\]\)/],
  ])('%s is told in one sentence, from requests that cost nothing', async (_, answer, sentence) => {
    const { origin, requests } = await web(answer);
    const issue = await issueAt(`${origin}/v1`);
    expect(issue).toMatch(sentence);
    expect(issue).toContain(`${origin}/v1`);
    expect(issue).not.toMatch(/\n|throttled|fake-secret|fake-token/);
    expect(requests.length).toBeGreaterThan(0);
    expect(requests.filter((each) => !each.startsWith('GET '))).toEqual([]);
  });

  it.each<[string, number, string, object, RegExp | undefined]>([
    ['spent credit', 403, 'Insufficient balance', { outOfCredit: [{ status: 403, says: 'balance' }] }, /budget.*\(403/],
    ['a refused token', 403, 'bad key', { tokenRefused: [401, 403] }, /refuses the token \(403: bad key\)/],
    ['a refused token', 404, 'bad key', { tokenRefused: [404] }, /refuses the token \(404/],
    ['too many requests', 420, 'calm', { throttled: [420] }, /fewer requests \(420: calm\)/],
    ['nothing', 402, 'a page of a listing costs', { outOfCredit: [] }, undefined],
    ['no refused token', 401, 'no listing for you', { tokenRefused: [] }, /forbids the request \(401/],
  ])('what its description calls %s (%i) is told as that', async (_, status, detail, errors, sentence) => {
    const { origin } = await web(answering(status, { detail }));
    const issue = await issueAt(origin, speaking({ errors: errors as JsonObject }));
    if (sentence === undefined) expect(issue).toBeUndefined();
    else expect(issue).toMatch(sentence);
  });

  it('a redirect is told also if its paths have a query', async () => {
    const speaks = { ...FLOWS, templates: { path: '/models?kind=3d', items: '' } };
    const slash = await web((request, response) => {
      response.writeHead(307, { location: request.url?.replace('?', '/?') }).end();
    });
    expect(await issueAt(`${slash.origin}/v1`, speaks)).toMatch(
      /redirects \/models\?kind=3d to \/models\/\?kind=3d \(307/,
    );
    const other = await web((request, response) => {
      response.writeHead(301, { location: `https://flows.example.com${request.url}` }).end();
    });
    expect(await issueAt(`${other.origin}/v1`, speaks)).toMatch(/Use --service https:\/\/flows\.example\.com\/v1$/);
  });

  it('a redirect is told also if its paths have the signs of a pattern', async () => {
    const { origin } = await web((request, response) => {
      response.writeHead(301, { location: `https://flows.example.com${request.url}` }).end();
    });
    const speaks = { ...FLOWS, templates: { path: '/models(all', items: '' } };
    expect(await issueAt(`${origin}/v1`, speaks)).toMatch(/Use --service https:\/\/flows\.example\.com\/v1$/);
  });
});

describe.each(Object.keys(SHAPES) as ShapeName[])('a service without listings, such as %s', (shape) => {
  const issueWith = async (token: string) => {
    const service = new StandInJobService({ shape, token: TOKEN });
    const server = await serveFlowService(service);
    onTestFinished(() => server.close());
    const speaks = SERVICES[shape] ?? FLOWS;
    return issueOfService({ url: server.url, token, speaks }, WORDS, new AbortController().signal);
  };

  it('is known by its own words about an unknown job', async () => {
    expect(await issueWith(TOKEN)).toBeUndefined();
  });

  it('says that the token is refused', async () => {
    expect(await issueWith('another-fake-token')).toMatchObject({ of: 'token', severity: 'fault' });
  });

  it('is not what answers with pages', async () => {
    const { origin } = await web(answering(404, PAGE));
    const speaks = SERVICES[shape] ?? FLOWS;
    const issue = await issueOfService({ url: origin, token: TOKEN, speaks }, WORDS, new AbortController().signal);
    expect(issue?.what).toContain('no flow service at this address');
  });
});

describe('a connection that fails', () => {
  it('is told in one sentence, by its cause', async () => {
    const gone = createTcpServer();
    const refused = await listening(gone);
    gone.close();
    const { key, certificate: cert } = await selfSigned();
    const tls = await listening(createTlsServer({ key, cert }, answering(200, { templates: [] })));
    const trusted = getCACertificates('default');
    onTestFinished(() => setDefaultCACertificates(trusted));
    const { key: keyOfH2, certificate: certOfH2 } = await selfSigned();
    setDefaultCACertificates([...trusted, certOfH2]);
    const http2 = await listening(createSecureServer({ key: keyOfH2, cert: certOfH2, allowHTTP1: false }));
    const { origin } = await web(answering(200, { templates: [] }));
    const closing = await listening(createTcpServer((socket) => void socket.destroy()));
    const greeting = await listening(createTcpServer((socket) => void socket.end('SSH-2.0-server\r\n')));
    const cases: [string, RegExp][] = [
      [`http://${refused}`, /connection is refused/],
      ['https://flows.invalid', /host name flows\.invalid/],
      [`https://${tls}`, /certificate.*NODE_EXTRA_CA_CERTS/],
      [`https://${http2}`, /speaks only HTTP\/2.*HTTP\/1\.1/],
      [origin.replace('http:', 'https:'), /does not speak https/],
      [`http://${closing}`, /closed without an answer/],
      [`http://${greeting}`, /does not speak HTTP/],
    ];
    for (const [url, sentence] of cases) expect(await issueAt(url)).toMatch(sentence);
  });

  it('is told through a proxy too, and what the proxy refuses as its own', async () => {
    const { key, certificate: cert } = await selfSigned();
    const { key: keyOfPast, certificate: certOfPast } = await selfSigned(Date.now() - 1_000);
    const trusted = getCACertificates('default');
    onTestFinished(() => setDefaultCACertificates(trusted));
    setDefaultCACertificates([...trusted, cert]);
    const http2 = await listening(createSecureServer({ key, cert, allowHTTP1: false }));
    const closing = await listening(createTcpServer((socket) => void socket.destroy()));
    setDefaultCACertificates([...trusted, certOfPast]);
    const past = await listening(createTlsServer({ key: keyOfPast, cert: certOfPast }));
    const { url: proxy } = await serveProxy();
    const { url: login } = await serveProxy(refusing('407 Proxy Authentication Required'));
    const { url: closed } = await serveProxy(refusing('403 Forbidden'));
    const cases: [string, URL, RegExp, CA?: string][] = [
      [`https://${http2}`, proxy, /speaks only HTTP\/2.*HTTP\/1\.1/, cert],
      [`https://${past}`, proxy, /certificate is not valid today \(certificate has expired, through the proxy/],
      [`https://${closing}`, proxy, /closed.*through the proxy http:\/\/127/],
      ['https://flows.example', login, /cannot be reached: the proxy http:\/\/127\S+ asks for a login \(407/],
      ['https://flows.example', closed, /cannot be reached: the proxy http:\/\/127\S+ refuses.*\(403.*NO_PROXY/],
    ];
    for (const [url, https, sentence, ca = certOfPast] of cases) {
      setDefaultCACertificates([...trusted, ca]);
      const issue = await issueAt(url, FLOWS, { https });
      expect(issue).toMatch(sentence);
      expect(issue).not.toMatch(/token/);
    }
  });

  it('is given up after ten seconds if nothing is ever answered', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    onTestFinished(() => void vi.useRealTimers());
    const asked = Promise.withResolvers<void>();
    const { origin } = await web(() => asked.resolve());
    const issue = issueAt(origin);
    await asked.promise;
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await issue).toMatch(/no answer within 10 s/);
  });
});

describe('nothing is wrong with a service that', () => {
  it.each<[string, templates: number, Partial<Variation>]>([
    ['lists both', 200, {}],
    ['lists no templates', 404, {}],
    ['lists no flows', 200, { listFlows: 404 }],
    ['lists neither', 404, { listFlows: 404 }],
    ['lists neither, with its outputs at the root', 404, { listFlows: 404, outputsPath: 'root' }],
    ['has neither method', 405, { listFlows: 405 }],
    ['has neither implemented', 501, { listFlows: 501 }],
  ])('%s', async (_, templates, variation) => {
    const options = { tokens: [TOKEN], flowMs: 10, variation: { getFlow: 404, ...variation } } as const;
    const { url, service } = await serveStandIn(options);
    service.intercept = (_request, { operation }) =>
      operation === 'listTemplates' && templates !== 200 ? { status: templates } : undefined;
    expect(await issueAt(url)).toBe(undefined);
  });
});

it('which requests go through a proxy is told in one sentence', () => {
  const https = new URL('http://me:fake@proxy.example:3128');
  const service = new URL('https://flows.example/v1');
  expect(proxyInUse(service, { https })).toBe(
    'Requests to flows.example go through the proxy http://proxy.example:3128, and so do those for results at other addresses.',
  );
  expect(proxyInUse(service, { https, except: ['flows.example'] })).toBe(
    'Requests to flows.example go past the proxy http://proxy.example:3128. Those for results at other addresses go through it.',
  );
  expect(proxyInUse(service, {})).toBe(undefined);
  expect(proxyInUse(new URL('http://127.0.0.1:9'), { https, http: https })).toBe(undefined);
});
