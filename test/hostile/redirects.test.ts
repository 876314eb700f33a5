import { inspect } from 'node:util';
import { describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../functions/base/clock.ts';
import { isLoopback } from '../../functions/flow-service/addresses.ts';
import { ForbiddenAddressError, UnavailableError } from '../../functions/flow-service/errors.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import type { Transport } from '../../functions/flow-service/transport.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { streamed } from '../flow-service/chunks.ts';
import { clientOf, never, scripted, scriptedToken } from '../flow-service/scripted.ts';
import { TOKEN, type World } from '../support/world.ts';
import { hostileWorld, settledReceipt } from './support.ts';

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
};

vi.mock('node:dns', async (original) => {
  const dns = await original<typeof import('node:dns')>();
  const lookup = ((hostname: string, options: object, callback: (error: unknown, all?: unknown) => void) => {
    if (!hostname.endsWith('.example')) return dns.lookup(hostname, options, callback as never);
    const addresses = NAMES[hostname];
    if (addresses === undefined)
      return callback(Object.assign(new Error(`ENOTFOUND ${hostname}`), { code: 'ENOTFOUND' }));
    return callback(null, addresses);
  }) as typeof dns.lookup;
  return { ...dns, lookup, default: { ...dns, lookup } };
});

async function running(): Promise<World> {
  const world = await hostileWorld({ settings: { attemptsMax: 2, flowAgeMaxSeconds: 3_600 } });
  await world.send('a');
  return world;
}

/** The error of downloading an asset that a service redirects to `location`, and the requests sent. */
async function failureAfter(
  location: string,
  { baseUrl = PUBLIC_BASE, address = '93.184.216.34', token = scriptedToken() } = {},
): Promise<{ error: unknown; requested: readonly string[] }> {
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

describe('an asset of a public service that is redirected to', () => {
  const forbidden: readonly (readonly [what: string, location: string])[] = [
    ['http', 'http://cdn.example/a'],
    ['http of its own', 'http://flows.example.com/a'],
    ['a file', 'file:///etc/passwd'],
    ['data', 'data:text/plain,a'],
    ['localhost', 'https://localhost/a'],
    ['loopback', 'https://127.0.0.1/a'],
    ['loopback in octal', 'https://0177.0.0.1/a'],
    ['loopback as a number', 'https://2130706433/a'],
    ['the metadata of a cloud', 'https://169.254.169.254/latest/meta-data/'],
    ['a private address', 'https://10.0.0.1/a'],
    ['IPv6 loopback', 'https://[::1]/a'],
    ['an IPv4-mapped link-local address', 'https://[::ffff:a9fe:a9fe]/a'],
    ['a name of loopback', 'https://loopback.example/a'],
    ['a name of a private address', 'https://private.example/a'],
    ['a name of IPv6 loopback', 'https://six.example/a'],
    ['a name without an address', 'https://nothing.example/a'],
    ['credentials and a port of loopback', 'https://user:pass@127.0.0.1:22/a'],
  ];
  it.each(forbidden)('%s is not followed, and the error does not show the address', async (_, location) => {
    const { error, requested } = await failureAfter(`${location}?signature=fake`);
    expect(error).toBeInstanceOf(ForbiddenAddressError);
    expect(inspect(error, { depth: 10 })).not.toContain('signature');
    // Other addresses go to the transport, which refuses to connect to them.
    const url = new URL(location);
    const isForbiddenAtOnce = url.protocol !== 'https:' || isLoopback(url);
    expect(requested).toEqual(isForbiddenAtOnce ? [PUBLIC_BASE.origin] : [PUBLIC_BASE.origin, url.origin]);
  });

  it.each([
    ['a user', 'https://user@cdn.example/a'],
    ['a user and a password', 'https://user:pass@cdn.example/a'],
    ['a password', 'https://:pass@cdn.example/a'],
    ['a user of the service itself', 'https://user:pass@flows.example.com/flows/f1'],
    ['our token as the user', `https://${TOKEN}@cdn.example/a`],
    ['our token in its path', `https://cdn.example/${TOKEN}/a`],
    ['our token in its query', `https://cdn.example/a?by=${encodeURIComponent(TOKEN)}`],
    ['our token in base64', `https://cdn.example/a?by=${Buffer.from(`Bearer ${TOKEN}`).toString('base64url')}`],
    ['our token below the base address', `https://flows.example.com/flows/f1?by=${TOKEN}`],
  ])('an address with %s is not requested, and the error says why', async (_, location) => {
    const token = { ...scriptedToken(), get: async () => TOKEN };
    const { error, requested } = await failureAfter(location, { token });
    expect(error).toBeInstanceOf(ForbiddenAddressError);
    expect(error).toMatchObject({ message: expect.stringContaining('a user, a password or the token') });
    expect(inspect(error, { depth: 10 })).not.toMatch(/user:|:pass/);
    expect(inspect(error, { depth: 10 })).not.toContain(TOKEN);
    expect(requested).toEqual([PUBLIC_BASE.origin]);
  });

  it('an unknown name is unavailable', async () => {
    expect((await failureAfter('https://unknown.example/a')).error).toBeInstanceOf(UnavailableError);
  });

  it('an address that holds our token is redacted', async () => {
    const token = { ...scriptedToken(), get: async () => TOKEN };
    const { error } = await failureAfter(`http://${TOKEN}.evil.example/${TOKEN}?${TOKEN}`, { token });
    expect(error).toMatchObject({ message: expect.stringContaining('[token].evil.example') });
    expect(inspect(error, { depth: 10 })).not.toContain(TOKEN);
  });
});

const NETWORK = { baseUrl: new URL('https://flows.internal/api'), address: '10.1.2.3' };
const MACHINE = { baseUrl: new URL('http://127.0.0.1:1/'), address: '127.0.0.1' };

describe('an asset of a service that is redirected', () => {
  it.each([
    ['a private address', '127.0.0.1', NETWORK],
    ['a private address', '[::1]', NETWORK],
    ['a private address', '0', NETWORK],
    ['a private address', '169.254.169.254', NETWORK],
    ['a private address', '[fd00:ec2::254]', NETWORK],
    ['a private address', 'loopback.example', NETWORK],
    ['a private address', 'unspecified.example', NETWORK],
    ['a private address', 'zone.example', NETWORK],
    ['a loopback address', 'private.example', MACHINE],
    ['a loopback address', '169.254.169.254', MACHINE],
    ['a loopback address', '8.8.8.8', MACHINE],
  ] as const)('from %s to %s is not followed', async (_, host, service) => {
    const { error } = await failureAfter(`https://${host}/a?signature=fake`, service);
    expect(error).toBeInstanceOf(ForbiddenAddressError);
    expect(inspect(error, { depth: 10 })).not.toContain('signature');
  });
});

describe('an asset of a service on this machine that is redirected', () => {
  /** A server on another origin. */
  const elsewhere = (status: number, headers: Record<string, string>, body = '') =>
    scripted((_, response) => response.writeHead(status, headers).end(body));
  const redirectTo = ({ url }: { readonly url: URL }): Fault => {
    return { status: 302, headers: { location: `${url.origin}/asset?signature=fake` } };
  };

  it('elsewhere is followed once, without the token', async () => {
    await using there = await elsewhere(200, { 'content-type': 'text/plain' }, 'from elsewhere');
    const world = await running();
    world.fault('getAsset', redirectTo(there));
    const receipt = await settledReceipt(world);
    expect(receipt).toMatchObject({ status: 'succeeded', assets: [{ bytes: 14, mediaType: 'text/plain' }] });
    expect(there.requests).toHaveLength(1);
    const headers = there.requests[0]?.headers;
    expect(JSON.stringify(headers)).not.toContain(TOKEN);
    expect(headers).not.toHaveProperty('authorization');
    expect(headers).not.toHaveProperty('cookie');
  });

  it.each([
    ['that redirects back', 302, 'forbidden-address'],
    ['whose address has expired', 403, 'unavailable'],
    ['that wants credentials', 401, 'unavailable'],
  ])('to a server %s fails with a known error, and our token is not suspected', async (_, status, code) => {
    await using there = await elsewhere(status, { location: '/' });
    const world = await running();
    world.fault('getAsset', redirectTo(there));
    expect(await settledReceipt(world)).toMatchObject({ status: 'failed', failedOutputs: [{ code }] });
    expect(world.count('TokenRejected')).toBe(0);
    expect(JSON.stringify(there.requests.map(({ headers }) => headers))).not.toContain(TOKEN);
  });
});
