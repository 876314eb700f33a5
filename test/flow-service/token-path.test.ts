import { describe, expect, it } from 'vitest';
import type { Transport } from '../../functions/flow-service/transport.ts';
import { speaking } from '../support/speaking.ts';
import { collect, streamed } from './chunks.ts';
import { clientOf, never, TOKEN } from './scripted.ts';

const ORIGIN = 'https://shared.example.com';

/** A service at `base` of an origin that others use as well. It names `address` as the next one, in whatever way. */
function shared(address: string, base = '/team/v1') {
  const requested: string[] = [];
  const withToken: string[] = [];
  const transport: Transport = async ({ url: { href }, headers }) => {
    const path = href.replace(ORIGIN, '');
    requested.push(path);
    if (JSON.stringify(headers).includes(TOKEN)) withToken.push(path);
    const isFirst = [`${base}/flows`, `${base}/flows/f1/outputs`].includes(path);
    const page = isFirst ? { flows: [], outputs: [{ id: 'a1' }], next: address } : [];
    return {
      status: path.endsWith('/a1') ? 302 : 200,
      headers: { location: address, 'content-length': String(JSON.stringify(page).length) },
      address: '93.184.216.34',
      body: streamed([Buffer.from(JSON.stringify(page))]),
      destroy() {},
    };
  };
  const byAddress = { by: 'address', at: '/next' };
  const service = speaking({ list: { pages: byAddress }, outputs: { pages: byAddress } });
  return { flows: clientOf(new URL(base, ORIGIN), { transport, service }), requested, withToken };
}

describe('the token of a service at /team/v1', () => {
  it.each([
    ...['/', '/other/flows', '/team/v1', '/team/v1evil/flows', '/team/v1?x=/team/v1/', '/TEAM/v1/flows'],
    // Dots, which the client or a server resolves.
    ...['/team/v1/../../other', '/team/v1/flows/../..', '/team/v1/%2e%2e/%2E%2E/other', '/team/v1/.%2e/other'],
    ...['/team/v1\\..\\..\\other', '/team/v1/..%2fother', '/team/v1/x%2f..%2f..%2fother', '/team/v1/..%5cother'],
    ...['/team/v1/%252e%252e/other', '/team/v1/..%252fother', '/team/v1/.\t./other'],
    // Path parameters of Java.
    ...['/team/v1/..;/other', '/team/v1/flows/..;a=b/other'],
    ...['/team/v1//other', `${ORIGIN}//team/v1/flows`, '/team/v1/%0d%0aother', '/team/v1/flows%00'],
    'https://user:pass@shared.example.com/team/v1/flows',
  ])('does not go to %j of its origin, as a next page or by a redirect', async (address) => {
    const { flows, requested, withToken } = shared(address);
    await flows.outputs('f1', never).catch(() => {});
    for await (const _page of flows.list(never));
    expect(requested).toEqual(['/team/v1/flows/f1/outputs', '/team/v1/flows']);
    const answer = await flows.asset('f1', 'a1', never).catch(() => undefined);
    if (answer !== undefined) await collect(answer.chunks);
    expect(withToken).toEqual([...requested.slice(0, 2), '/team/v1/flows/f1/outputs/a1']);
  });

  it.each([
    ...['/team/v1/flows?page=2', 'flows?cursor=..%2f..%2f', '?cursor=a//b\\c', './flows/page/2'],
    ...['/team/v1/files/a.b.c', '/team/./v1/x/../flows;v=1', '/team/v1/caf%C3%A9/.hidden/a..b'],
  ])('goes to %s below the base path', async (address) => {
    const { flows, withToken } = shared(address);
    for await (const _page of flows.list(never));
    expect(withToken).toHaveLength(2);
  });
});

it('the token goes to any path of a service at the root of its origin', async () => {
  const { flows, withToken } = shared('/flows/other?page=2', '');
  for await (const _page of flows.list(never));
  expect(withToken).toEqual(['/flows', '/flows/other?page=2']);
});

it('the address of a next page that is too long for any server ends the reading, and the error names the limit', async () => {
  const { flows, requested } = shared(`/team/v1/flows?cursor=${'x'.repeat(8_192)}`);
  await expect(flows.outputs('f1', never)).rejects.toThrow('at most 8192 are sent');
  expect(requested).toHaveLength(1);
});
