import type { TransportRequest } from '../../functions/flow-service/transport.ts';
import type { Fault as ServiceFault } from '../../local/flow-service/fault.ts';
import type { Fault } from './faults.ts';
import type { Random } from './random.ts';
import { SECOND, type Timeline } from './timeline.ts';

const JSON_HEADERS = { 'content-type': 'application/json' };

/** How a proxy may quote the header of a request. */
const QUOTATIONS: readonly ((header: string) => string)[] = [
  (header) => header,
  (header) => Buffer.from(header).toString('base64'),
  encodeURIComponent,
];

/** Logins in place of an asset. One does not say what it is. */
const PAGES: readonly ServiceFault[] = [
  { headers: { 'content-type': 'text/html; charset=utf-8' }, body: '<title>Log in</title>' },
  { headers: { 'content-type': 'application/octet-stream' }, body: '\n<!DOCTYPE html><title>Log in</title>' },
];

const ENDLESS_CHUNK = Buffer.alloc(1024 * 1024, ' ');

/** Time between two bytes of an answer that trickles, in milliseconds: no single wait exceeds a limit. */
const TRICKLE_MS = 20 * SECOND;

/** The script of the stand-in service for a fault. */
export function scriptOf(
  fault: Fault | undefined,
  { headers }: TransportRequest,
  random: Random,
  timeline: Timeline,
): ServiceFault {
  // Proxies quote the request. The functions must redact the token in such a quote.
  const quotation = QUOTATIONS[timeline.now() % QUOTATIONS.length]?.(headers.Authorization ?? '');
  const sentence = (text: string) => ({
    headers: JSON_HEADERS,
    body: JSON.stringify({ detail: `${text} ${quotation}` }),
  });
  const before = random.chance(0.5) ? { at: 'before-body' as const } : {};
  switch (fault) {
    case 'lost':
      return { reset: 'after-effect' };
    case 'half':
      return { reset: random.chance(0.8) ? 'mid-body' : 'before-body' };
    case '401':
    case '402':
    case '403':
    case '404':
    case '422':
    case '500':
    case '502':
    case '503':
      return { status: Number(fault), ...before, ...sentence('Simulated.') };
    case '429 without Retry-After':
      return { status: 429, ...before, ...sentence('Slower, please.') };
    case '429 in seconds':
      return { status: 429, ...before, headers: { 'retry-after': String(random.int(0, 120)) } };
    case '429 with a date': {
      const date = new Date(timeline.now() + random.int(-10_000, 300_000)).toUTCString();
      return { status: 429, ...before, headers: { 'retry-after': date } };
    }
    case '500 after':
      return { status: 500, at: 'after-effect' };
    case '503 in seconds':
      // Sometimes hours: a doubt is settled long before.
      return {
        status: 503,
        ...before,
        headers: { 'retry-after': String(random.int(1, random.chance(0.2) ? 7_200 : 60)) },
      };
    case 'hung':
      return { hang: random.chance(0.5) ? true : 'mid-body' };
    case 'hung after':
      return { hang: 'after-effect' };
    case 'truncated':
      return { truncate: random.int(0, 60) };
    case 'cut cleanly':
      return { truncateCleanly: random.int(0, 20) };
    case 'garbled':
      return { garble: true };
    case 'no ids':
      return { status: 200, at: 'after-effect', ...sentence('No ids.') };
    case 'failed list':
      return { status: 200, headers: JSON_HEADERS, body: '{"flows":[],"outputs":[],"error":"Storage timeout"}' };
    case 'endless':
      return { status: 200, at: 'after-effect', headers: JSON_HEADERS, body: endless() };
    case 'gateway':
      return { ...random.pick(GATEWAY_ANSWERS), at: random.chance(0.7) ? 'after-effect' : 'after-body' };
    case 'trickled':
      return { status: 200, at: 'after-effect', headers: JSON_HEADERS, body: trickling(timeline) };
    case 'page':
      return { status: 200, ...PAGES[timeline.now() % PAGES.length] };
    default:
      return {};
  }
}

/** Answers of gateways and firewalls. None has the form of the service. */
const GATEWAY_ANSWERS: readonly ServiceFault[] = [
  ...[403, 404, 405, 408, 409, 425, 501].flatMap((status) => [
    { status },
    { status, headers: JSON_HEADERS, body: '{"message":"Forbidden"}' },
    { status, headers: { 'content-type': 'text/html' }, body: '<!doctype html><html>Forbidden</html>' },
  ]),
  ...[301, 302, 303, 307].map((status) => ({ status, headers: { location: 'https://login.example/' } })),
];

async function* endless(): AsyncGenerator<Uint8Array> {
  for (;;) yield ENDLESS_CHUNK;
}

/** White space, bytes that may be data, or just more of them than the minimum rate demands. */
const TRICKLES = [Buffer.from(' '), Buffer.from('x'), Buffer.alloc((TRICKLE_MS / SECOND) * 5_000, 'x')] as const;

async function* trickling(timeline: Timeline): AsyncGenerator<Uint8Array> {
  const piece = TRICKLES[timeline.now() % TRICKLES.length] as Buffer;
  for (;;) {
    yield piece;
    await new Promise<void>((resolve) => timeline.schedule(timeline.now() + TRICKLE_MS, resolve));
  }
}
