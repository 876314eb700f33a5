import type { ChildProcess } from 'node:child_process';
import type { ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { MEMORY_MIB } from '../../infra/function-limits.ts';
import { answerOf, functionProcess } from '../support/function-process.ts';
import { web } from '../support/servers.ts';
import type { MemoryOperation, MemoryOutcome, MemoryTask } from './memory-process.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const { pollConcurrency, uploadConcurrency, assetConcurrency } = SETTINGS_DEFAULT;

/** Memory of the assets that are stored meanwhile. Half of the large ones fill a second part of 5 MiB. */
const ASSETS_BYTES = assetConcurrency * 7.5 * MIB;

/** Calls of each operation that a function has under way at a time. Of pages, four are read and the others wait. */
const SIDE_BY_SIDE: Readonly<Record<MemoryOperation, number>> = {
  create: uploadConcurrency,
  'create from a text': uploadConcurrency,
  find: uploadConcurrency,
  get: pollConcurrency,
  outputs: 16,
  list: 1,
  abort: pollConcurrency,
  asset: assetConcurrency,
};

type Answer = (response: ServerResponse) => void;

async function served(answer: Answer): Promise<string> {
  const { origin } = await web((request, response) => {
    response.on('error', () => {});
    request.resume().on('end', () => answer(response));
  });
  return origin;
}

/** Runs an operation in a process. */
async function ran(
  child: ChildProcess,
  operation: MemoryOperation,
  answer: Answer,
  sideBySide = SIDE_BY_SIDE[operation],
): Promise<MemoryOutcome> {
  const task: MemoryTask = { url: await served(answer), operation, sideBySide, heldBytes: ASSETS_BYTES };
  return (await answerOf(child, { ...task })) as MemoryOutcome;
}

const saying =
  (body: string | Buffer, status = 200): Answer =>
  (response) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(body);

/** The largest answers that the client takes, written out here because the client's own limits are under test. */
const SMALL_BYTES = 4 * MIB;
const PAGE_BYTES = 8 * MIB;
const PAGE_PARTS = 250_000;

/** Parts that fill most of the MiB that may stand behind the data of an asset. */
const ENVELOPE_PARTS = 10_000;

/** As many objects with a form of their own as `parts` allow. Each costs the parser more than any other value. */
const shapes = (parts: number): string =>
  Array.from({ length: Math.floor(parts / 4) - 20 }, (_, n) => `{"${n.toString(36)}":0}`).join(',');

const ids = (parts: number): string =>
  Array.from({ length: Math.floor(parts / 4) - 20 }, (_, n) => `{"id":"${n}"}`).join(',');

/** `before` and `behind`, with as much text between them as makes it `bytes` long. */
const filled = (bytes: number, before: string, behind: string): string =>
  before + 'x'.repeat(bytes - Buffer.byteLength(before + behind)) + behind;

const record = (more: string): string => `{"flow_id":"f1","state":"running",${more}}`;

const taken: readonly (readonly [operation: MemoryOperation, what: string, body: () => string])[] = [
  ['create', 'one long text', () => filled(SMALL_BYTES, '{"flow_id":"f1","error":"ü', '"}')],
  ['create', 'many objects', () => record(`"additional":[${shapes(PAGE_PARTS)}]`)],
  ['get', 'one long text', () => filled(SMALL_BYTES, '{"flow_id":"f1","state":"running","error":"ü', '"}')],
  ['get', 'many objects', () => record(`"additional":[${shapes(PAGE_PARTS)}]`)],
  ['outputs', 'one long text', () => filled(PAGE_BYTES, '[{"id":"f1","error":"ü', '"}]')],
  ['outputs', 'ten thousand ids', () => `[${ids(40_000)}]`],
  ['list', 'many objects', () => `[${shapes(PAGE_PARTS)}]`],
  ['find', 'one long text', () => filled(PAGE_BYTES, '[{"id":"f1","error":"ü', '"}]')],
  ['find', 'many ids', () => `[${ids(PAGE_PARTS)}]`],
  ['abort', 'any text', () => 'x'.repeat(SMALL_BYTES)],
  [
    'asset',
    'an envelope with much behind its data',
    () => filled(MIB, `{"data":"data:,x","a":[${shapes(ENVELOPE_PARTS)}],"b":"`, '"}'),
  ],
];

const refused: readonly (readonly [operation: MemoryOperation, what: string, answer: Answer, message: string])[] = [
  ['get', '16 MiB of empty objects', saying(`[${'{},'.repeat((16 * MIB) / 3)}{}]`), 'at most 4194304 are read'],
  [
    'get',
    '4 MB of empty objects',
    saying(`{"id":"f","a":[${'{},'.repeat(1_300_000)}{}]}`),
    'at most 250000 are parsed',
  ],
  ['outputs', '16 MiB of empty objects', saying(`[${'{},'.repeat((16 * MIB) / 3)}{}]`), 'at most 8388608 are read'],
  ['outputs', '8 MB of empty objects', saying(`[${'{},'.repeat(2_600_000)}{}]`), 'at most 250000 are parsed'],
  ['outputs', '250,000 numbers', saying(`[${'1,'.repeat(249_990)}1]`), 'does not fit the description'],
  ['outputs', '8 MiB of NaN', saying('NaN '.repeat(2 * MIB)), 'at most 250000 are parsed'],
  ['get', 'chunks of one byte', byByte, 'at most 4194304 are read'],
];

/** An answer without end. Each of its first 200,000 bytes is a chunk, which costs its reader a hundred bytes. */
function byByte(response: ServerResponse): void {
  const { socket } = response;
  const bytes = '1\r\nx\r\n'.repeat(10_000);
  const rest = `10000\r\n${'x'.repeat(65_536)}\r\n`;
  let sent = 0;
  socket?.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
  const next = (): string => (++sent <= 20 ? bytes : rest);
  const more = (): void => {
    while (socket?.destroyed === false && socket.write(next()));
    if (socket?.destroyed === false) socket.once('drain', more);
  };
  more();
}

// As in a function, one process does one after another. The peak of its memory is that of all so far.
describe('the memory of a function holds', () => {
  let child: ChildProcess;
  beforeAll(() => {
    child = functionProcess(fileURLToPath(new URL('memory-process.ts', import.meta.url)));
  });
  afterAll(() => void child.kill());

  it.each(taken)('%s: the largest answer (%s), as many as come side by side', async (operation, _, body) => {
    const { peakBytes, message } = await ran(child, operation, saying(body()));
    expect(message ?? '').not.toMatch(/at most|does not fit/);
    expect(peakBytes).toBeLessThan(MEMORY_MIB * MIB);
  });

  it('as many long texts as are sent side by side', async () => {
    const { peakBytes, outcomes } = await ran(child, 'create from a text', saying('{"flow_id":"f1"}', 201));
    expect(outcomes).toEqual({ answered: uploadConcurrency });
    expect(peakBytes).toBeLessThan(MEMORY_MIB * MIB);
  });

  it.each(refused)('what is refused: %s, %s', async (operation, _, answer, expected) => {
    const { peakBytes, message } = await ran(child, operation, answer, 4);
    expect(message).toContain(expected);
    expect(peakBytes).toBeLessThan(MEMORY_MIB * MIB);
  });
});
