import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { FlowService } from '../../functions/flow-service/types.ts';
import type { Fault } from '../../local/flow-service/fault.ts';
import { serveStandIn } from '../support/servers.ts';
import { clientOf, nested, never, requestOf, sourceOf, TOKEN, UNUSABLE_IDS } from './scripted.ts';

const MIB = 1024 * 1024;
/** 64 KiB of gzip that become 64 MiB. */
const BOMB = gzipSync(Buffer.alloc(64 * MIB));
const PAGE = '<!doctype html><html><body><h1>Bad Gateway</h1></body></html>';

const saying = (body: NonNullable<Fault['body']>, headers: Record<string, string> = {}): Fault => ({
  status: 200,
  body,
  headers: { 'content-type': 'application/json', ...headers },
});

async function* endless(): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.alloc(64 * 1024, ' ');
  for (;;) yield bytes;
}

/** Bodies that are no valid response to any request. */
const NO_ANSWERS: readonly (readonly [what: string, fault: Fault])[] = [
  ['nothing', saying('')],
  ['nothing, with 204', { status: 204 }],
  ['white space', saying(' \n ')],
  ['null', saying('null')],
  ['true', saying('true')],
  ['a number', saying('5')],
  ['text', saying('"65f0"')],
  ['a page', saying(PAGE, { 'content-type': 'text/html' })],
  ['a page that calls itself JSON', saying(` ${PAGE}`)],
  ['cut JSON', saying('{"flow_id":"65f0')],
  ['JSON with another value behind it', saying('{"flow_id":"65f0"} {}')],
  ['JSON that is not UTF-8', saying(Buffer.from('{"flow_id":"\xff"}', 'latin1'))],
  ['UTF-16', saying(Buffer.from('{"flow_id":"65f0"}', 'utf16le'))],
  ['lists in lists, 100,000 deep', saying(nested(100_000))],
  ['objects in objects, 100,000 deep', saying(`${'{"flow_id":'.repeat(100_000)}1${'}'.repeat(100_000)}`)],
  ['compressed in a way that is not undone', saying('{"flow_id":"65f0"}', { 'content-encoding': 'zstd' })],
  ['compressed and cut', saying(gzipSync('{"flow_id":"65f0"}').subarray(0, 20), { 'content-encoding': 'gzip' })],
  [
    '70 megabytes of a text in 64 kilobytes',
    saying(gzipSync(`{"flow_id":"65f0","x":"${'x'.repeat(70 * MIB)}"}`), { 'content-encoding': 'gzip' }),
  ],
  ['64 megabytes in 64 kilobytes of gzip', saying(BOMB, { 'content-encoding': 'gzip' })],
  ['17 MiB', saying(`{"flow_id":"${'x'.repeat(17 * MIB)}"}`)],
  ['without end', { status: 200, body: { [Symbol.asyncIterator]: endless } }],
];

/** The flow service, whose stand-in answers everything with a fault. */
async function answeredWith(fault: Fault): Promise<FlowService> {
  const { service, url } = await serveStandIn({ tokens: [TOKEN] });
  service.intercept = () => fault;
  return clientOf(new URL(url));
}

/** What callers tell these answers by. A page comes from another server than the flow service. */
const errorOf = (what: string): string =>
  what.startsWith('a page') ? 'MisaddressedError' : 'UnintelligibleAnswerError';

describe('an answer that is', () => {
  it.each(NO_ANSWERS)('%s tells nothing of a flow or its outputs, and says why', async (what, fault) => {
    const flows = await answeredWith(fault);
    for (const read of [() => flows.get('f1', never), () => flows.outputs('f1', never)]) {
      const error = await read().catch((caught: unknown) => caught);
      expect(error).toMatchObject({ name: errorOf(what) });
      expect((error as Error).message).not.toBe('');
    }
  });

  it.each([
    ...NO_ANSWERS,
    ['an empty list', saying('[]')] as const,
    ...UNUSABLE_IDS.map((id) => {
      const body = JSON.stringify({ flow_id: id });
      return [`an id such as ${body.slice(11, 51)}`, saying(body)] as const;
    }),
  ])('%s leaves it in doubt whether a flow was created', async (what, fault) => {
    const flows = await answeredWith(fault);
    const error = await flows.create(requestOf(sourceOf('x')), never).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ name: 'InDoubtError', cause: { name: errorOf(what) } });
    expect((error as Error).message).toContain(what.startsWith('a page') ? 'Check baseUrl' : 'does not name it');
  });
});
