import dns from 'node:dns';
import { once } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import { connect } from 'node:net';
import { inspect } from 'node:util';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { ForbiddenAddressError, UnavailableError } from '../../functions/flow-service/errors.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { TRANSPORT_LIMITS, type Transport } from '../../functions/flow-service/transport.ts';
import { collect, streamed } from './chunks.ts';
import { clientOf, never, scriptedToken } from './scripted.ts';

const PUBLIC_BASE = new URL('https://flows.example.com');

/** The answers of a resolver that may be hostile. */
const NAMES: Readonly<Record<string, readonly { readonly address: string; readonly family: number }[]>> = {
  'loopback.example': [{ address: '127.0.0.1', family: 4 }],
  'private.example': [{ address: '10.0.0.1', family: 4 }],
  'six.example': [{ address: '::1', family: 6 }],
  'nothing.example': [],
  'unspecified.example': [
    { address: '0.0.0.0', family: 4 },
    { address: '::', family: 6 },
  ],
  'zone.example': [{ address: 'fe80::1%lo', family: 6 }],
  'far.example': [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ],
};

const { lookup } = dns;
const resolve = (hostname: string, options: object, callback: (error: unknown, all?: unknown) => void) => {
  if (!hostname.endsWith('.example')) return lookup(hostname, options, callback as never);
  const addresses = NAMES[hostname];
  return addresses === undefined ? callback(new Error(`ENOTFOUND ${hostname}`)) : callback(null, addresses);
};
const useLookup = (used: typeof lookup): void => {
  dns.lookup = used;
  syncBuiltinESMExports();
};
beforeAll(() => useLookup(resolve as typeof lookup));
afterAll(() => useLookup(lookup));

/** A token that can be part of a host's name. */
const TOKEN = 'obviously-fake-token';
const token = { ...scriptedToken(), get: async () => TOKEN };

/** The error of downloading an asset that a service redirects to `location`, and the origins of the requests sent. */
async function failureAfter(location: string, { baseUrl = PUBLIC_BASE, address = '93.184.216.34' } = {}) {
  const requested: string[] = [];
  const real = httpTransport({ clock: systemClock });
  const transport: Transport = async (request, signal) => {
    requested.push(request.url.origin);
    if (request.url.origin !== baseUrl.origin) return real(request, signal);
    return { status: 302, headers: { location }, address, body: streamed([]), destroy() {} };
  };
  const reading = clientOf(baseUrl, { transport, token }).asset('f1', 'a1', never);
  return { error: await reading.catch((thrown: unknown) => thrown), requested };
}

const NETWORK = { baseUrl: new URL('https://flows.internal/api'), address: '10.1.2.3' };
const MACHINE = { baseUrl: new URL('http://127.0.0.1:1/'), address: '127.0.0.1' };

describe('an asset of a public service that is redirected', () => {
  it.each([
    ...['http://cdn.example', 'http://flows.example.com:8080', 'file:///etc/passwd', 'data:text/plain,a'],
    ...['https://localhost', 'https://127.0.0.1', 'https://0177.0.0.1', 'https://2130706433', 'https://[::1]'],
    'https://user:pass@127.0.0.1:22',
  ])('to %s is not followed, and nothing is requested there', async (location) => {
    const { error, requested } = await failureAfter(`${location}/a?signature=fake`);
    expect(error).toBeInstanceOf(ForbiddenAddressError);
    expect(inspect(error, { depth: 10 })).not.toContain('signature');
    expect(requested).toEqual([PUBLIC_BASE.origin]);
  });

  it.each([
    ...['https://169.254.169.254', 'https://10.0.0.1', 'https://[::ffff:a9fe:a9fe]', 'https://loopback.example'],
    ...['https://private.example', 'https://six.example', 'https://nothing.example'],
  ])('to %s is not followed, because the transport does not connect', async (location) => {
    const { error, requested } = await failureAfter(`${location}/a?signature=fake`);
    expect(error).toBeInstanceOf(ForbiddenAddressError);
    expect(inspect(error, { depth: 10 })).not.toContain('signature');
    expect(requested).toEqual([PUBLIC_BASE.origin, location]);
  });

  it.each([
    ...['https://user@cdn.example/a', 'https://user:pass@cdn.example/a', 'https://:pass@cdn.example/a'],
    ...['https://user:pass@flows.example.com/flows/f1', `https://${TOKEN}@cdn.example/a`],
    ...[`https://cdn.example/${TOKEN}/a`, `https://cdn.example/a?by=${encodeURIComponent(TOKEN)}`],
    `https://cdn.example/a?by=${Buffer.from(`Bearer ${TOKEN}`).toString('base64url')}`,
    `https://flows.example.com/flows/f1?by=${TOKEN}`,
  ])('to %s is not followed, and the error says why', async (location) => {
    const { error, requested } = await failureAfter(location);
    expect(error).toBeInstanceOf(ForbiddenAddressError);
    expect(error).toMatchObject({ message: expect.stringContaining('a user, a password or the token') });
    expect(inspect(error, { depth: 10 })).not.toMatch(/user:|:pass/);
    expect(inspect(error, { depth: 10 })).not.toContain(TOKEN);
    expect(requested).toEqual([PUBLIC_BASE.origin]);
  });

  it('to http on its own host is fetched by https', async () => {
    const requested: string[] = [];
    const transport: Transport = async ({ url }) => {
      const headers = { location: 'http://flows.example.com/files/a', 'content-length': '4' };
      const status = requested.push(url.href) === 1 ? 302 : 200;
      return { status, headers, address: '93.184.216.34', body: streamed([Buffer.from('glTF')]), destroy() {} };
    };
    await clientOf(PUBLIC_BASE, { transport, token }).asset('f1', 'a1', never);
    expect(requested[1]).toBe('https://flows.example.com/files/a');
  });

  it('to an unknown name is unavailable', async () => {
    expect((await failureAfter('https://unknown.example/a')).error).toBeInstanceOf(UnavailableError);
  });

  it('to an address that holds our token is refused without it', async () => {
    const { error } = await failureAfter(`http://${TOKEN}.evil.example/${TOKEN}?${TOKEN}`);
    expect(error).toMatchObject({ message: expect.stringContaining('[token].evil.example') });
    expect(inspect(error, { depth: 10 })).not.toContain(TOKEN);
  });
});

it.each([
  ...['127.0.0.1', '[::1]', 'localhost', '0', '169.254.169.254', '[fd00:ec2::254]'].map(
    (host) => [NETWORK, host] as const,
  ),
  ...['loopback.example', 'unspecified.example', 'zone.example'].map((host) => [NETWORK, host] as const),
  ...['private.example', '169.254.169.254', '8.8.8.8'].map((host) => [MACHINE, host] as const),
])('an asset of the service $0.address that is redirected to $1 is not followed', async (service, host) => {
  const { error } = await failureAfter(`https://${host}/a?signature=fake`, service);
  expect(error).toBeInstanceOf(ForbiddenAddressError);
  expect(inspect(error, { depth: 10 })).not.toContain('signature');
});

/** Accepts no connection for a while. The queue of connections takes two, and all others begin anew after a second. */
const BUSY_SERVER = `
const { parentPort } = require('node:worker_threads');
const server = require('node:http').createServer((_, response) => response.end('far away'));
server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
  parentPort.postMessage(server.address().port);
  setTimeout(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 900), 0);
});`;

it('a server with an address that does not answer, and another one that takes its time, is reached', async () => {
  const worker = new Worker(BUSY_SERVER, { eval: true });
  try {
    const [port] = await once(worker, 'message');
    const waiting = Array.from({ length: 4 }, () => connect(port, '127.0.0.1').on('error', () => {}));
    await systemClock.sleep(50);
    const limits = { ...TRANSPORT_LIMITS, connectMs: 60_000 };
    const transport = httpTransport({ clock: systemClock, limits });
    const url = new URL(`http://far.example:${port}`);
    const { body } = await transport({ method: 'GET', url, headers: {} }, never);
    expect((await collect(body)).toString()).toBe('far away');
    for (const socket of waiting) socket.destroy();
  } finally {
    await worker.terminate();
  }
});
