import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createServer as createTcpServer } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { inspect } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { selfSigned } from '../../bench/certificate.ts';
import { type Clock, systemClock } from '../../functions/base/clock.ts';
import { ForbiddenAddressError, UnavailableError } from '../../functions/flow-service/errors.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { ProxyError, proxyFor } from '../../functions/flow-service/proxy.ts';
import { TRANSPORT_LIMITS, TransportError, type TransportRequest } from '../../functions/flow-service/transport.ts';
import { refusing, serveProxy } from '../support/proxy.ts';
import { answering, listening } from '../support/servers.ts';
import { collect, streamed } from './chunks.ts';
import {
  bodyOf,
  clientOf,
  largeSource,
  never,
  requestOf,
  StillClock,
  scripted,
  scriptedRaw,
  until,
} from './scripted.ts';

const MIB = 1024 * 1024;

const get = (url: string | URL): TransportRequest => ({ method: 'GET', url: new URL(url), headers: {} });

const text = async (body: AsyncIterable<Uint8Array>): Promise<string> => (await collect(body)).toString();

/** A transport whose requests to any address go through a proxy. */
const through = (proxy: URL, clock: Clock = systemClock) =>
  httpTransport({ clock, proxies: { https: proxy, http: proxy } });

const failureOf = (sending: Promise<unknown>): Promise<unknown> =>
  sending.then(
    () => 'sent',
    (error: unknown) => error,
  );

/**
 * An https server on loopback, until the test ends. This process trusts its certificate.
 * @param until the end of the certificate's validity, in milliseconds since the epoch. Default: tomorrow.
 */
async function secure(listener: RequestListener, until?: number) {
  const { key, certificate: cert } = await selfSigned(until);
  const trusted = getCACertificates('default');
  onTestFinished(() => setDefaultCACertificates(trusted));
  setDefaultCACertificates([...trusted, cert]);
  const server = createTlsServer({ key, cert }, listener);
  const address = await listening(server);
  onTestFinished(() => server.closeAllConnections());
  return { url: new URL(`https://${address}`), address, certificate: { key, cert } };
}

describe('through a proxy', () => {
  it('a request gets its answer, over http and https, by a tunnel to the target', async () => {
    const proxy = await serveProxy();
    await using plain = await scripted((_, response) => response.end('plain'));
    const tls = await secure((_, response) => void response.end('secured'));
    const transport = through(proxy.url);
    expect(await text((await transport(get(plain.url), never)).body)).toBe('plain');
    expect(await text((await transport(get(tls.url), never)).body)).toBe('secured');
    expect(proxy.asked.map(({ target }) => target)).toEqual([plain.url.host, tls.address]);
    expect(proxy.others).toEqual([]);
  });

  it('that itself speaks https, a request gets its answer', async () => {
    const { address, certificate } = await secure((_, response) => void response.end('secured'));
    const proxy = await serveProxy(undefined, createTlsServer(certificate) as never);
    const url = new URL(proxy.url.href.replace('http:', 'https:'));
    const { body } = await through(url)(get(`https://${address}`), never);
    expect(await text(body)).toBe('secured');
    expect(proxy.asked.map(({ target }) => target)).toEqual([address]);
  });

  it('a large body is streamed', async () => {
    const proxy = await serveProxy();
    let received = 0;
    const { url } = await secure((request, response) => {
      request.on('data', (chunk: Buffer) => {
        received += chunk.byteLength;
      });
      request.on('end', () => response.end(String(received)));
    });
    const chunks = streamed(Array.from({ length: 64 }, () => Buffer.alloc(MIB)));
    const request = { ...get(url), method: 'POST', body: { bytes: 64 * MIB, chunks } } as const;
    const response = await through(proxy.url)(request, never);
    expect(response).toMatchObject({ sent: 'all', address: '127.0.0.1' });
    expect(await text(response.body)).toBe(String(64 * MIB));
  });

  it('requests without a body share a tunnel, and a closed one is replaced', async () => {
    const proxy = await serveProxy();
    const { url } = await secure((_, response) => void response.end('ok'));
    const transport = through(proxy.url);
    for (let index = 0; index < 3; index += 1) await text((await transport(get(url), never)).body);
    expect(proxy.asked.length).toBe(1);
    for (const socket of proxy.open) socket.destroy();
    await until(() => proxy.open.size === 0);
    expect(await text((await transport(get(url), never)).body)).toBe('ok');
    expect(proxy.asked.length).toBe(2);
  });

  it('an answer that stops is cut at its time limit', async () => {
    const proxy = await serveProxy();
    const { url } = await secure((_, response) => void response.write('first'));
    const clock = new StillClock();
    const { body } = await through(proxy.url, clock)(get(url), never);
    const reading = body[Symbol.asyncIterator]();
    await reading.next();
    const outcome = expect(reading.next()).rejects.toMatchObject({ timedOut: true });
    await systemClock.sleep(5);
    clock.pass(TRANSPORT_LIMITS.idleMs);
    await outcome;
    expect(clock.sleepers.size).toBe(0);
    await until(() => proxy.open.size === 0);
  });

  it.each(['while the proxy makes the tunnel', 'during the handshake in the tunnel', 'while the service works'])(
    'an abort %s closes the connection',
    async (when) => {
      const isHanging = when.startsWith('while the proxy');
      const proxy = await serveProxy(isHanging ? () => {} : undefined);
      await using silent = await scriptedRaw(() => {});
      const asked = Promise.withResolvers<void>();
      const { address } = await secure(() => asked.resolve());
      const target = when.startsWith('during') ? silent.url.host : address;
      const abort = new AbortController();
      const failure = failureOf(through(proxy.url)(get(`https://${target}`), abort.signal));
      if (when.endsWith('works')) await asked.promise;
      else await until(() => proxy.asked.length === 1 && (isHanging || silent.connections === 1));
      abort.abort(new Error('no longer wanted'));
      expect(await failure).toMatchObject({ message: 'The request was aborted' });
      await until(() => proxy.open.size === 0);
    },
  );

  it('a tunnel that is never made is given up in time', async () => {
    const proxy = await serveProxy(() => {});
    const clock = new StillClock();
    const failure = failureOf(through(proxy.url, clock)(get('https://flows.example'), never));
    await until(() => proxy.asked.length === 1);
    clock.pass(TRANSPORT_LIMITS.connectMs);
    expect(await failure).toMatchObject({
      message: `No connection within 10000 ms, through the proxy ${proxy.url.origin}`,
      ...{ sent: 'nothing', timedOut: true },
    });
    await until(() => proxy.open.size === 0);
  });

  it('the address of the service is not that of the proxy', async () => {
    const proxy = await serveProxy();
    await using server = await scripted((_, response) => response.end('ok'));
    const url = new URL(server.url);
    url.hostname = 'localhost';
    const { address, body } = await through(proxy.url)(get(url), never);
    await text(body);
    expect(address).toBe(undefined);
  });
});

describe('the login of a proxy', () => {
  const withLogin = (url: URL) => new URL(url.href.replace('//', '//us%40er:fake%3Apass@'));

  it('is sent to the proxy, and not to the service', async () => {
    const proxy = await serveProxy();
    await using server = await scripted((_, response) => response.end('ok'));
    await text((await through(withLogin(proxy.url))(get(server.url), never)).body);
    expect(proxy.asked[0]?.authorization).toBe(`Basic ${Buffer.from('us@er:fake:pass').toString('base64')}`);
    expect(server.requests[0]?.headers).not.toHaveProperty('proxy-authorization');
  });

  it.each([
    ['is refused', refusing('407 Proxy Authentication Required')],
    ['meets a proxy that fails', refusing('500 Broken')],
    ['meets a server that closes', (_: unknown, socket: { destroy(): void }) => socket.destroy()],
  ])('is in no error if it %s', async (_, refuse) => {
    const proxy = await serveProxy(refuse as never);
    const error = await failureOf(through(withLogin(proxy.url))(get('https://flows.example'), never));
    expect(error).toBeInstanceOf(ProxyError);
    const shown = inspect(error, { depth: 10 });
    expect(shown).toContain(`the proxy ${proxy.url.origin}`);
    expect(shown).not.toMatch(/fake|us%40er|us@er|Basic [A-Za-z0-9]{8}|dXNAZX/);
  });
});

describe('a proxy that gives no connection', () => {
  const HTML = 'content-type: text/html\r\ncontent-length: 6';

  it.each([
    ['403', refusing(`403 Forbidden\r\n${HTML}`, '<html>'), /refuses to lead to flows\.example:443 \(403 Forbidden\)/],
    ['407', refusing('407 Proxy Authentication Required'), /asks for a login \(407.*user:password@/],
    ['502', refusing('502 Bad Gateway'), /could not reach flows\.example:443 \(502 Bad Gateway\)/],
    ['503 and a wait', refusing('503 Busy\r\nretry-after: 60'), /could not reach/],
    ['401', refusing('401 Unauthorized'), /refuses to lead/],
    ['429', refusing('429 Too Many Requests'), /refuses to lead/],
    ['a redirect', refusing('302 Found\r\nlocation: https://login.example'), /refuses to lead/],
    ['a page', refusing(`200 OK\r\n${HTML}`, '<html>'), /answers with something else than a tunnel/],
    ['a greeting', refusing('200 OK', 'SSH-2.0-server\r\n'), /answers with something else than a tunnel/],
  ])('but %s is told as what it is, and nothing of the request was sent', async (_, refuse, words) => {
    const proxy = await serveProxy(refuse);
    const error = await failureOf(through(proxy.url)(get('https://flows.example'), never));
    expect(error).toBeInstanceOf(ProxyError);
    expect(error).toMatchObject({ sent: 'nothing', timedOut: false, message: expect.stringMatching(words) });
    expect((error as Error).message).toContain(`the proxy ${proxy.url.origin} `);
    await until(() => proxy.open.size === 0);
  });

  it('because it cannot be reached, or speaks no HTTP, is told as such', async () => {
    const gone = createTcpServer();
    const refused = await listening(gone);
    gone.close();
    await once(gone, 'close');
    const greeting = await listening(createTcpServer((socket) => void socket.end('SSH-2.0-server\r\n')));
    for (const [address, words] of [
      [refused, /ECONNREFUSED/],
      [greeting, /Parse Error/],
    ] as const) {
      const error = await failureOf(through(new URL(`http://${address}`))(get('https://flows.example'), never));
      expect(error).toBeInstanceOf(ProxyError);
      expect((error as Error).message).toMatch(words);
      expect((error as Error).message).toMatch(`the proxy http://${address} cannot be used`);
    }
  });

  it.each(['403 Forbidden', '407 Proxy Authentication Required', '502 Bad Gateway', '401 Unauthorized', '429 Slow'])(
    'to a creation (%s) leaves no doubt, refuses no token, and reads nothing of the file',
    async (head) => {
      const proxy = await serveProxy(refusing(head));
      const source = largeSource(MIB);
      const client = clientOf(new URL('https://flows.example'), { transport: through(proxy.url) });
      const error = await failureOf(client.create(requestOf(source), never));
      expect(error).toBeInstanceOf(UnavailableError);
      expect(error).toMatchObject({
        bodyStarted: false,
        message: expect.stringContaining('create: the proxy http://'),
      });
      expect(proxy.asked.length).toBe(1);
    },
  );

  it('in the middle of a body leaves no doubt', async () => {
    const proxy = await serveProxy();
    await using server = await scripted((request) => {
      request.once('data', () => {
        for (const socket of proxy.open) socket.destroy();
      });
    });
    const client = clientOf(server.url, { transport: through(proxy.url) });
    const error = await failureOf(client.create(requestOf(largeSource(64 * MIB)), never));
    expect(error).toBeInstanceOf(UnavailableError);
    expect(error).toMatchObject({ message: expect.stringContaining(`through the proxy ${proxy.url.origin}`) });
  });
});

it('a certificate that has expired is told as such through a proxy', async () => {
  const proxy = await serveProxy();
  const { url } = await secure(answering(200, {}), Date.now() - 1_000);
  const error = await failureOf(through(proxy.url)(get(url), never));
  expect(error).toBeInstanceOf(TransportError);
  expect(error).not.toBeInstanceOf(ProxyError);
  expect(error).toMatchObject({ sent: 'nothing', cause: { code: 'CERT_HAS_EXPIRED' } });
});

describe('where a service may lead', () => {
  it.each(['10.0.0.1', '169.254.169.254', '127.0.0.1', '[::1]', '[fd00::1]', 'localhost'])(
    'a public one leads not to %s, and a proxy is not asked for it',
    async (host) => {
      const proxy = await serveProxy();
      const request = { ...get(`https://${host}`), reach: 'public' } as const;
      expect(await failureOf(through(proxy.url)(request, never))).toBeInstanceOf(ForbiddenAddressError);
      expect(proxy.asked).toEqual([]);
    },
  );

  it('the names of others are left to the proxy, except from a service on this machine', async () => {
    const proxy = await serveProxy(refusing('502 Bad Gateway'));
    const from = (reach: 'public' | 'network' | 'machine') =>
      failureOf(through(proxy.url)({ ...get('https://private.example'), reach }, never));
    expect(await from('public')).toBeInstanceOf(ProxyError);
    expect(await from('network')).toBeInstanceOf(ProxyError);
    expect(await from('machine')).toBeInstanceOf(ForbiddenAddressError);
    expect(proxy.asked.length).toBe(2);
  });

  it('an asset at another origin comes through the proxy too, without the token', async () => {
    const proxy = await serveProxy();
    await using store = await scripted((_, response) =>
      response.writeHead(200, { 'content-type': 'image/gif' }).end('GIF89a'),
    );
    await using server = await scripted((_, response) =>
      response.writeHead(302, { location: `${store.url.href}signed` }).end(),
    );
    const client = clientOf(server.url, { transport: through(proxy.url) });
    const { chunks } = await client.asset('f1', 'a1', never);
    expect(await text(chunks)).toBe('GIF89a');
    expect(store.requests[0]?.headers).not.toHaveProperty('authorization');
    expect(proxy.asked.map(({ target }) => target)).toEqual([server.url.host, store.url.host]);
  });
});

describe('the proxy for an address', () => {
  const https = new URL('http://proxy.example:3128');
  const http = new URL('http://127.0.0.1:8080');

  it('depends on its scheme', () => {
    expect(proxyFor(new URL('https://flows.example'), { https, http })).toBe(https);
    expect(proxyFor(new URL('http://127.0.0.1:9'), { https, http })).toBe(http);
    expect(proxyFor(new URL('https://flows.example'), { http })).toBe(undefined);
  });

  it('of this machine is never that of another one', () => {
    for (const host of ['127.0.0.1', 'localhost', '[::1]']) {
      expect(proxyFor(new URL(`http://${host}:9`), { http: https })).toBe(undefined);
      expect(proxyFor(new URL(`https://${host}:9`), { https })).toBe(undefined);
      expect(proxyFor(new URL(`https://${host}:9`), { https: http })).toBe(http);
    }
  });

  it.each([
    ['*', 'https://flows.example', true],
    ['flows.example', 'https://flows.example', true],
    ['FLOWS.example', 'https://flows.Example', true],
    ['example', 'https://flows.example', true],
    ['.example', 'https://flows.example', true],
    ['*.example', 'https://flows.example', true],
    ['lows.example', 'https://flows.example', false],
    ['api.flows.example', 'https://flows.example', false],
    ['flows.example:443', 'https://flows.example', true],
    ['flows.example:8443', 'https://flows.example', false],
    ['flows.example:8443', 'https://flows.example:8443', true],
    ['10.0.0.0/8', 'https://10.1.2.3', true],
    ['10.0.0.0/8', 'https://11.1.2.3', false],
    ['10.0.0.0/8', 'https://flows.example', false],
    ['10.1.2.3', 'https://10.1.2.3:8443', true],
    ['10.1.2.3:8443', 'https://10.1.2.3:8443', true],
    ['10.1.2.3:8443', 'https://10.1.2.3', false],
    ['2.3', 'https://10.1.2.3', false],
    ['fd00::/8', 'https://[fd00::1]', true],
    ['fd00:0::1', 'https://[fd00::1]', true],
    ['[fd00::1]', 'https://[fd00::1]', true],
    ['[fd00::1]:443', 'https://[fd00::1]', true],
    ['10.0.0.0/99', 'https://10.1.2.3', false],
    ['', 'https://flows.example', false],
    ['.', 'https://flows.example', false],
  ])('except %j: is %s among it? %s', (entry, url, isExcepted) => {
    expect(proxyFor(new URL(url), { https, except: ['other.example', entry] })).toBe(isExcepted ? undefined : https);
  });
});

it('what goes past the proxy goes straight to its target', async () => {
  const proxy = await serveProxy();
  await using server = await scripted(async (request, response) => response.end(await bodyOf(request)));
  const proxies = { http: proxy.url, except: ['127.0.0.1'] };
  const { body } = await httpTransport({ clock: systemClock, proxies })(get(server.url), never);
  await text(body);
  expect(proxy.asked).toEqual([]);
});
