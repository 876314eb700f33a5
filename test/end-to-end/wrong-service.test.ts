import { once } from 'node:events';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener, request as requestTo } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net';
import { join } from 'node:path';
import { generate } from 'selfsigned';
import { expect, it, onTestFinished } from 'vitest';
import { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import { Home } from './npm-start.ts';

const TOKEN = 'fake-token-of-a-test';
const TIMEOUT = { timeout: 60_000 };

async function home(): Promise<Home> {
  const made = await Home.make();
  onTestFinished(() => made[Symbol.asyncDispose]());
  await writeFile(join(made.path, 'fox.txt'), 'a fox');
  return made;
}

async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A web server, and the methods and paths that it was asked for. */
async function web(answer: RequestListener): Promise<{ url: string; requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    answer(request, response);
  });
  onTestFinished(() => server.closeAllConnections());
  return { url: `http://${await listening(server)}/v1`, requests };
}

const answering =
  (status: number, body: unknown, headers: Record<string, string> = {}): RequestListener =>
  (_request, response) => {
    const isJson = typeof body !== 'string';
    response.writeHead(status, {
      'content-type': isJson ? 'application/json' : 'text/html; charset=utf-8',
      ...headers,
    });
    response.end(isJson ? JSON.stringify(body) : body);
  };

/** A certificate for 127.0.0.1 that nobody has signed, with its key. */
async function certificate(): Promise<{ key: string; cert: string }> {
  const made = await generate([{ name: 'commonName', value: 'flowdrop test' }], {
    extensions: [
      { name: 'basicConstraints', cA: true },
      { name: 'subjectAltName', altNames: [{ type: 7, ip: '127.0.0.1' }] },
    ],
  });
  return { key: made.private, cert: made.cert };
}

const PAGE = '<!doctype html><title>Welcome</title>';

it.each<[string, RequestListener, RegExp]>([
  ['401', answering(401, { detail: 'Invalid key' }), /refuses the token \(401.*FLOWDROP_TOKEN/],
  ['403', answering(403, { detail: 'No access' }), /forbids.*\(403: No access\).*FLOWDROP_TOKEN/],
  ['402', answering(402, { detail: 'Budget exhausted' }), /budget.*\(402: Budget exhausted\)/],
  ['404', answering(404, { detail: 'Not Found' }), /no flow service at this address \(404\)/],
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
    (_request, response) => {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ message: 'no Route matched', request_id: Math.random() }));
    },
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
    '302 to a login page',
    (_request, response) => {
      response.writeHead(302, { location: 'https://login.example.com/start?secret=fake-secret' }).end();
    },
    /redirects to https:\/\/login\.example\.com\/start/,
  ],
  ['a web page', answering(200, PAGE), /web page.*API/],
  ['500', answering(500, { detail: 'Boom' }), /fails \(500: Boom\)/],
  ['502 with a web page', answering(502, PAGE), /fails \(502\)/],
  ['429', answering(429, { detail: 'Slow down' }, { 'retry-after': '30' }), /fewer requests \(429.*30 s/],
])(
  'a service that answers with %s is told in one sentence before any upload',
  TIMEOUT,
  async (_name, answer, sentence) => {
    const folder = await home();
    const { url, requests } = await web(answer);
    for (const arguments_ of [
      ['fox.txt', '--service', url],
      ['--service', url],
    ]) {
      const { code, output } = await folder.run('start', arguments_, { env: { FLOWDROP_TOKEN: TOKEN } }).ended;
      expect(output).toMatch(sentence);
      expect(output.trim().split('\n')).toHaveLength(1);
      expect(output).toContain(url);
      expect(output).not.toMatch(/throttled|fake-secret|fake-token/);
      expect(code).toBe(1);
    }
    expect(requests.filter((each) => !each.startsWith('GET '))).toEqual([]);
    expect(await readdir(folder.path)).toEqual(['fox.txt']);
  },
);

it('a connection that fails is told in one sentence, by its cause', TIMEOUT, async () => {
  const folder = await home();
  const gone = createTcpServer();
  const refused = await listening(gone);
  gone.close();
  const tls = await listening(createTlsServer(await certificate(), answering(200, { templates: [] })));
  const plain = (await web(answering(200, { templates: [] }))).url.slice('http://'.length);
  const closing = await listening(createTcpServer((socket) => void socket.destroy()));
  const greeting = await listening(createTcpServer((socket) => void socket.end('SSH-2.0-server\r\n')));
  const cases: [string, RegExp][] = [
    [`http://${refused}`, /connection is refused/],
    ['https://flows.invalid', /host name flows\.invalid/],
    [`https://${tls}`, /certificate.*NODE_EXTRA_CA_CERTS/],
    [`https://${plain}`, /does not speak https/],
    [`http://${closing}`, /closed without an answer/],
    [`http://${greeting}`, /does not speak HTTP/],
  ];
  for (const [url, sentence] of cases) {
    const env = { FLOWDROP_TOKEN: TOKEN };
    const { code, output } = await folder.run('start', ['fox.txt', '--service', url], { env }).ended;
    expect(output).toMatch(sentence);
    expect(output.trim().split('\n')).toHaveLength(1);
    expect(code).toBe(1);
  }
});

it('a certificate in NODE_EXTRA_CA_CERTS is trusted, by the functions too', TIMEOUT, async () => {
  const folder = await home();
  const service = new StandInFlowService({ tokens: [TOKEN], flowMs: 10 });
  const { url, close } = await serveFlowService(service);
  onTestFinished(async () => {
    await close();
    service.close();
  });
  const { key, cert } = await certificate();
  const forward: RequestListener = (request, response) => {
    const { method } = request;
    const headers = { ...request.headers, host: new URL(url).host }; // The stand-in refuses other hosts.
    request.pipe(
      requestTo(`${url}${request.url}`, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 0, answer.headers);
        answer.pipe(response);
      }),
    );
  };
  const tls = await listening(createTlsServer({ key, cert }, forward));
  await writeFile(join(folder.path, 'ca.pem'), cert);
  const env = { FLOWDROP_TOKEN: TOKEN, NODE_EXTRA_CA_CERTS: 'ca.pem' };
  const { code, output } = await folder.run('start', ['fox.txt', '--service', `https://${tls}`], { env }).ended;
  expect(output).toContain('fox.txt  done');
  expect(code).toBe(0);
});

it('a service that never answers is given up within seconds', TIMEOUT, async () => {
  const folder = await home();
  const { url } = await web(() => {});
  const env = { FLOWDROP_TOKEN: TOKEN };
  const { code, output } = await folder.run('start', ['fox.txt', '--service', url], { env }).ended;
  expect(output).toMatch(/no answer within \d+ s/);
  expect(code).toBe(1);
});

it('Ctrl-C ends the question too', TIMEOUT, async () => {
  const folder = await home();
  const asked = Promise.withResolvers<void>();
  const { url } = await web(() => asked.resolve());
  const { child, ended } = folder.run('start', ['--service', url], { env: { FLOWDROP_TOKEN: TOKEN } });
  await asked.promise;
  child.kill('SIGINT');
  expect(await ended).toEqual({ code: 130, output: 'Interrupted.\n' });
});

it.each<[string, Partial<Variation>]>([
  ['lists no templates', { listTemplates: 404 }],
  ['lists no flows', { listFlows: 404 }],
  ['lists neither', { listTemplates: 404, listFlows: 404 }],
  ['lists neither, with its outputs at the root', { listTemplates: 404, listFlows: 404, outputsPath: 'root' }],
  ['has neither method', { listTemplates: 405, listFlows: 405 }],
  ['has neither implemented', { listTemplates: 501, listFlows: 501 }],
])('a service that %s is used', TIMEOUT, async (_name, variation) => {
  const folder = await home();
  const service = new StandInFlowService({ tokens: [TOKEN], flowMs: 10, variation: { getFlow: 404, ...variation } });
  const { url, close } = await serveFlowService(service);
  onTestFinished(async () => {
    await close();
    service.close();
  });
  const env = { FLOWDROP_TOKEN: TOKEN };
  const { code, output } = await folder.run('start', ['fox.txt', '--service', url], { env }).ended;
  expect(output).toContain('fox.txt  done');
  expect(code).toBe(0);
});

it(
  'a service with nothing but POST that can be told from a wrong address is used with --skip-check',
  TIMEOUT,
  async () => {
    const folder = await home();
    await mkdir(join(folder.path, 'inbox'));
    const posted = Promise.withResolvers<void>();
    const { url, requests } = await web((request, response) => {
      if (request.method === 'POST') posted.resolve();
      answering(request.method === 'POST' ? 422 : 404, {})(request, response);
    });
    const { ended } = folder.run('start', ['fox.txt', '--service', url, '--skip-check'], {
      env: { FLOWDROP_TOKEN: TOKEN },
    });
    await posted.promise;
    expect(requests[0]).toBe('POST /v1/flows');
    expect((await ended).code).toBe(1);
  },
);

it.each([
  [undefined, /FLOWDROP_TOKEN/],
  ['', /FLOWDROP_TOKEN/],
  ['fake\ntoken', /FLOWDROP_TOKEN.*line break/],
  ['fake token', /FLOWDROP_TOKEN.*space/],
  ['fake-tökén', /FLOWDROP_TOKEN/],
])('the token %j is told at once', TIMEOUT, async (token, sentence) => {
  const folder = await home();
  const env = { FLOWDROP_TOKEN: token };
  const { code, output } = await folder.run('start', ['--service', 'https://flows.invalid'], { env }).ended;
  expect(output).toMatch(sentence);
  expect(output).not.toMatch(/fake/);
  expect(output.trim().split('\n')).toHaveLength(1);
  expect(code).toBe(2);
});
