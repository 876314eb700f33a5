import { gzipSync } from 'node:zlib';
import type { Fault } from '../../local/flow-service/fault.ts';
import { endless, saying } from './support.ts';

export const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
export const html = '<!doctype html><html><body><h1>Bad Gateway</h1></body></html>';
export const zipped = (bytes: string | Buffer, type = 'application/json'): Fault =>
  saying(typeof bytes === 'string' ? gzipSync(bytes) : bytes, {
    headers: { 'content-type': type, 'content-encoding': 'gzip' },
  });
const MIB = 1024 * 1024;
/** 64 KiB of gzip that become 64 MiB. */
const BOMB = gzipSync(Buffer.alloc(64 * MIB));

/**
 * Bodies that are no valid response to any request. `test/flow-service/no-answers.test.ts` has what the client says to
 * each.
 */
export const NO_ANSWERS: readonly (readonly [what: string, fault: () => Fault])[] = [
  ['nothing', () => saying('')],
  ['nothing, with 204', () => ({ status: 204 })],
  ['white space', () => saying(' \n ')],
  ['null', () => saying('null')],
  ['true', () => saying('true')],
  ['a number', () => saying('5')],
  ['text', () => saying('"65f0"')],
  ['a page', () => saying(html, { headers: { 'content-type': 'text/html' } })],
  ['a page that calls itself JSON', () => saying(html)],
  ['cut JSON', () => saying('{"flow_id":"65f0')],
  ['JSON with another value behind it', () => saying('{"flow_id":"65f0"} {}')],
  ['JSON that is not UTF-8', () => saying(Buffer.from('{"flow_id":"\xff"}', 'latin1'))],
  ['UTF-16', () => saying(Buffer.from('{"flow_id":"65f0"}', 'utf16le'))],
  ['lists in lists, 100,000 deep', () => saying(nested(100_000))],
  ['objects in objects, 100,000 deep', () => saying(`${'{"flow_id":'.repeat(100_000)}1${'}'.repeat(100_000)}`)],
  ['compressed', () => zipped('{"flow_id":"65f0"}')],
  ['64 megabytes in 64 kilobytes of gzip', () => zipped(BOMB)],
  ['17 MiB', () => saying(`{"flow_id":"${'x'.repeat(17 * MIB)}"}`)],
  ['without end', () => ({ status: 200, body: endless(' ') })],
];

/** One for each way in which the client finds out: at once, by the form, by the compression and by the length. */
export const NO_ANSWER_OF_EACH_KIND = NO_ANSWERS.filter(([what]) =>
  ['nothing', 'a page', '64 megabytes in 64 kilobytes of gzip', 'without end'].includes(what),
);

/** Ids that no flow and no output can have. */
export const UNUSABLE_IDS: readonly unknown[] = [
  undefined,
  null,
  '',
  '.',
  '..',
  'x'.repeat(257),
  'x'.repeat(10_000),
  'ä'.repeat(129),
  '\ud800',
  'a\udfffb',
  {},
  { toString: 1 },
  [],
  ['65f0'],
  true,
  1.5,
  1e300,
];
