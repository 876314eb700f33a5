import { readdir, readFile, writeFile } from 'node:fs/promises';
import { type RequestListener, request as requestTo } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { selfSigned } from '../../bench/certificate.ts';
import { serveProxy } from '../support/proxy.ts';
import { answering, listening, serveStandIn, web } from '../support/servers.ts';
import { Home } from './npm-start.ts';

// What the check says to each answer is tested in test/operations/service-check.test.ts. Here it runs as `npm start`.
const TOKEN = 'fake-token-of-a-test';
async function home(): Promise<Home> {
  const made = await Home.make();
  await writeFile(join(made.path, 'fox.txt'), 'a fox');
  return made;
}

it('a service that cannot be used is told in one line before any upload', async () => {
  const folder = await home();
  const { origin, requests } = await web(answering(401, { detail: 'Invalid key' }));
  const arguments_ = ['fox.txt', '--service', `${origin}/v1`];
  const { code, output } = await folder.run('start', arguments_, { env: { FLOWDROP_TOKEN: TOKEN } }).ended;
  expect(output).toMatch(/refuses the token \(401.*FLOWDROP_TOKEN/);
  expect(output.trim().split('\n')).toHaveLength(1);
  expect(output).not.toContain(TOKEN);
  expect(code).toBe(1);
  expect(requests.filter((each) => !each.startsWith('GET '))).toEqual([]);
  expect(await readdir(folder.path)).toEqual(['fox.txt']);
});

it('a service is used with token, certificate and proxy of the environment, by the functions too', async () => {
  const folder = await home();
  const variation = { listFlows: 404 } as const;
  const { service, url } = await serveStandIn({ tokens: [TOKEN], flowMs: 10, variation });
  const { key, certificate: cert } = await selfSigned();
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
  const server = createTlsServer({ key, cert }, forward);
  let connections = 0;
  server.on('secureConnection', () => {
    connections += 1;
  });
  const tls = await listening(server);
  const proxy = await serveProxy();
  await writeFile(join(folder.path, 'ca.pem'), cert);
  const https_proxy = proxy.url.href.replace('//', '//me:fake-password@');
  const env = { FLOWDROP_TOKEN: TOKEN, NODE_EXTRA_CA_CERTS: 'ca.pem', https_proxy };
  const arguments_ = ['fox.txt', '--service', `https://${tls}`];
  const good = await folder.run('start', arguments_, { env }).ended;
  expect(good.output).toContain(`Requests to ${tls} go through the proxy ${proxy.url.origin}, `);
  expect(good.output).not.toContain('fake-password');
  const left = (await readdir(folder.path, { recursive: true, withFileTypes: true })).filter((each) => each.isFile());
  for (const { parentPath, name } of left) {
    expect(await readFile(join(parentPath, name), 'utf8')).not.toContain('fake-password');
  }
  // The check before the run, the creation of the flow, and the polls.
  expect(proxy.asked.length).toBeGreaterThan(2);
  expect(proxy.asked.length).toBe(connections);
  expect(new Set(proxy.asked.map(({ authorization }) => authorization))).toEqual(
    new Set([`Basic ${Buffer.from('me:fake-password').toString('base64')}`]),
  );
  expect(good.output).toContain('! The service does not list its flows');
  expect(good.output).toMatch(
    /^fox\.txt {2}done .*\nAll done\. Results are in \.\/results\. To drop more files on a page: npm start.*\n$/m,
  );
  expect(good.code).toBe(0);
  expect(service.flows).toMatchObject([{ template: 'model_generate_fromprompt' }]);

  const { listTemplates } = service.counts;
  const token = 'fake-refused-token';
  const refusedEnv = { ...env, FLOWDROP_TOKEN: token };
  const refused = await folder.run('start', [...arguments_, '--skip-check'], { env: refusedEnv }).ended;
  expect(refused.output).toMatch(/fox\.txt {2}waits since .*\n {4}Next try .*Set FLOWDROP_TOKEN/);
  expect(refused.output).not.toContain(token);
  expect(refused.code).toBe(1);
  expect(service.counts.listTemplates).toBe(listTemplates);
  expect(service.flows).toHaveLength(1);
});

it('a service is tried with one file, after a question', async () => {
  const folder = await home();
  const { service, url } = await serveStandIn({ tokens: [TOKEN], flowMs: 0 });
  const words = ['--check-service', url];
  const env = { FLOWDROP_TOKEN: TOKEN };
  const asked = await folder.run('start', words, { env }).ended;
  expect(asked).toMatchObject({ code: 2, output: expect.stringMatching(/may charge for it\. .* add --yes/) });
  expect(service.flows).toHaveLength(0);
  const tried = await folder.run('start', [...words, '--yes', 'fox.txt'], { env }).ended;
  expect(tried.output).toMatch(/^It takes 10 minutes at most\..*\n1 result of 1 came, and was not kept\.\n$/ms);
  expect(tried.code).toBe(0);
  expect(service.flows).toHaveLength(1);
});

it('Ctrl-C ends the question too', async () => {
  const folder = await home();
  const asked = Promise.withResolvers<void>();
  const { origin } = await web(() => asked.resolve());
  const { child, ended } = folder.run('start', ['--service', origin], { env: { FLOWDROP_TOKEN: TOKEN } });
  await asked.promise;
  child.kill('SIGINT');
  expect(await ended).toEqual({ code: 130, output: 'Interrupted.\n' });
});
