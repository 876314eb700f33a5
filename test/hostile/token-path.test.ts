import { describe, expect, it } from 'vitest';
import type { FlowService } from '../../functions/flow-service/types.ts';
import { collect } from '../flow-service/chunks.ts';
import { clientOf, never, scripted, TOKEN } from '../flow-service/scripted.ts';

/** Addresses on the service's origin that are not below the base path `/team/v1`, or that a server may take for such. */
const OUTSIDE: readonly (readonly [what: string, address: string])[] = [
  ['the root', '/'],
  ['another path', '/other/flows'],
  ['the base path itself', '/team/v1'],
  ['a path that only begins like it', '/team/v1evil/flows'],
  ['the base path with a query', '/team/v1?x=/team/v1/'],
  ['another case', '/TEAM/v1/flows'],
  ['dots', '/team/v1/../../other'],
  ['dots at the end', '/team/v1/flows/../..'],
  ['encoded dots', '/team/v1/%2e%2e/%2E%2E/other'],
  ['half encoded dots', '/team/v1/.%2e/other'],
  ['backslashes', '/team/v1\\..\\..\\other'],
  ['dots behind an encoded slash', '/team/v1/..%2fother'],
  ['dots before an encoded slash', '/team/v1/x%2f..%2f..%2fother'],
  ['encoded backslashes', '/team/v1/..%5cother'],
  ['dots that are encoded twice', '/team/v1/%252e%252e/other'],
  ['slashes that are encoded twice', '/team/v1/..%252fother'],
  ['a path parameter of Java', '/team/v1/..;/other'],
  ['a path parameter with a value', '/team/v1/flows/..;a=b/other'],
  ['two slashes', '/team/v1//other'],
  ['two slashes at the start', '//team/v1/flows'],
  ['a tab within dots', '/team/v1/.\t./other'],
  ['an encoded line break', '/team/v1/%0d%0aother'],
  ['an encoded null', '/team/v1/flows%00'],
  ['a user', 'USER/team/v1/flows'],
];

type Scripted = Awaited<ReturnType<typeof scripted>>;

interface Shared {
  readonly server: Scripted;
  readonly flows: FlowService;
}

/** A service at `/team/v1` of an origin that others use as well. It names `address` as the next one, in whatever way. */
async function shared(address: (server: Scripted) => string, base = '/team/v1'): Promise<Shared & AsyncDisposable> {
  const server = await scripted((request, response) => {
    const isAsset = request.url?.endsWith('/outputs/a1');
    if (isAsset) return response.writeHead(302, { location: encodeURI(address(server)).replaceAll('%25', '%') }).end();
    const isFirst = request.url === `${base}/flows` || request.url === `${base}/flows/f1/outputs`;
    response.writeHead(200, { 'content-type': 'application/json' });
    return response.end(JSON.stringify(isFirst ? { flows: [], outputs: [{ id: 'a1' }], next: address(server) } : []));
  });
  const flows = clientOf(new URL(base, server.url), { outputsPath: 'flows' });
  return { server, flows, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

const addressOn = (server: Scripted, address: string): string => {
  const origin = server.url.origin;
  if (address.startsWith('USER')) return `${origin.replace('//', '//user:pass@')}${address.slice(4)}`;
  return address.startsWith('//') ? `${origin}${address}` : address;
};

const withToken = ({ requests }: Scripted): readonly string[] =>
  requests.filter(({ headers }) => JSON.stringify(headers).includes(TOKEN)).map(({ url }) => url);

describe('the token', () => {
  it.each(OUTSIDE)('does not go to %s of its origin by the address of a next page', async (_, address) => {
    await using service = await shared((server) => addressOn(server, address));
    await service.flows.outputs('f1', never).catch(() => {});
    for await (const _page of service.flows.list(never));
    expect(new Set(withToken(service.server))).toEqual(new Set(['/team/v1/flows/f1/outputs', '/team/v1/flows']));
    expect(service.server.requests).toHaveLength(2);
  });

  it.each(OUTSIDE)('does not go to %s of its origin by a redirect of an asset', async (_, address) => {
    await using service = await shared((server) => addressOn(server, address));
    const answer = await service.flows.asset('f1', 'a1', never).catch((error: unknown) => error);
    if (!(answer instanceof Error))
      await collect((answer as { chunks: AsyncIterable<Uint8Array> }).chunks).catch(() => {});
    expect(withToken(service.server)).toEqual(['/team/v1/flows/f1/outputs/a1']);
  });

  it.each([
    '/team/v1/flows?page=2',
    'flows?cursor=..%2f..%2f',
    '?cursor=a//b\\c',
    './flows/page/2',
    '/team/v1/files/a.b.c',
    '/team/./v1/x/../flows;v=1',
    '/team/v1/caf%C3%A9/.hidden/a..b',
  ])('goes to %s below the base path', async (address) => {
    await using service = await shared(() => address);
    for await (const _page of service.flows.list(never));
    expect(withToken(service.server)).toHaveLength(2);
  });

  it.each(['', '/'])('goes to any path of a service whose base path is %j', async (base) => {
    await using service = await shared(() => '/flows/other?page=2', base.replace(/\/$/, ''));
    for await (const _page of service.flows.list(never));
    expect(withToken(service.server)).toEqual(['/flows', '/flows/other?page=2']);
  });
});

describe('the address of a next page', () => {
  it('that is too long for any server ends the reading, and the error names the limit', async () => {
    await using service = await shared(() => `/team/v1/flows?cursor=${'x'.repeat(8_192)}`);
    await expect(service.flows.outputs('f1', never)).rejects.toThrow('at most 8192 are sent');
    expect(service.server.requests).toHaveLength(1);
  });
});
