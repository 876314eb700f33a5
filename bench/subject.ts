import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { pathToFileURL } from 'node:url';
import { crc32 } from 'node:zlib';
import { answerCalls } from './child.ts';

/** The cost of one call. */
export interface Cost {
  readonly wallMs: number;
  readonly cpuMs: number;
  /** Highest resident memory during the call, and the memory before the first call, in bytes. */
  readonly peakBytes: number;
  readonly idleBytes: number;
  /** Bytes that were logged. */
  readonly loggedBytes: number;
}

/** An address at 127.0.0.1. */
interface Place {
  readonly port: number;
  readonly isTls: boolean;
  readonly path: string;
}

interface EmbeddedMetrics {
  readonly _aws: {
    readonly CloudWatchMetrics: readonly { readonly Metrics: readonly { readonly Name: string }[] }[];
  };
}

type Handler = (event: unknown, context: object) => Promise<unknown>;

/** Remaining time of an invocation, in milliseconds. Lambda's maximum, and longer than any run takes. */
const REMAINING_MS = 900_000;

const CONTEXT = { functionName: 'benchmark', awsRequestId: 'benchmark' };

let handler: Handler;
let idleBytes = 0;
let loadMs = 0;

/** Bytes that a function has logged, and the line with its metrics. */
let loggedBytes = 0;
let metricsLine = '';
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = ((...args: Parameters<typeof write>) => {
  loggedBytes += Buffer.byteLength(args[0]);
  if (typeof args[0] === 'string' && args[0].startsWith('{"_aws"')) metricsLine = args[0];
  return write(...args);
}) as typeof write;

const calls = {
  async load({ path }: { path: string }): Promise<void> {
    const started = performance.now();
    ({ handler } = (await import(pathToFileURL(path).href)) as { handler: Handler });
    loadMs = performance.now() - started;
  },
  /** How long it took to load the bundle, in milliseconds. */
  loadMs: () => loadMs,
  /** Takes the present memory as idle memory. */
  settle(): void {
    globalThis.gc?.();
    idleBytes = process.memoryUsage.rss();
  },
  invoke: ({ event, remainingMs = REMAINING_MS }: { event: unknown; remainingMs?: number }) =>
    measured(() => handler(event, { ...CONTEXT, getRemainingTimeInMillis: () => remainingMs })),
  /** Copies bytes from one server to another as they arrive. The cost is that of the network and Node.js's sockets. */
  copy: (transfer: Transfer) => measured(() => copy(transfer)),
  /** The same through Node.js's HTTP client, with or without hashes: the least that a function can cost. */
  relay: ({ isHashed, ...transfer }: Transfer & { readonly isHashed: boolean }) =>
    measured(() => relay(transfer, isHashed)),
  /** Names of the metrics that the latest call has logged in the embedded metric format. */
  metrics: (): readonly string[] =>
    (JSON.parse(metricsLine) as EmbeddedMetrics)._aws.CloudWatchMetrics.flatMap(({ Metrics }) =>
      Metrics.map(({ Name }) => Name),
    ),
  /** Names of the modules of Node.js that are loaded. */
  loaded: (): readonly string[] => (process as unknown as { moduleLoadList: string[] }).moduleLoadList,
};
export type SubjectCalls = typeof calls;

async function measured<T>(body: () => Promise<T>): Promise<Cost & { readonly value: T }> {
  forgetPeak();
  loggedBytes = 0;
  const cpu = process.cpuUsage();
  const started = performance.now();
  const value = await body();
  const wallMs = performance.now() - started;
  const { user, system } = process.cpuUsage(cpu);
  return {
    value,
    wallMs,
    cpuMs: (user + system) / 1000,
    peakBytes: process.resourceUsage().maxRSS * 1024,
    idleBytes,
    loggedBytes,
  };
}

/** Resets the highest memory, on Linux. Elsewhere it includes the memory of the start, which is small. */
function forgetPeak(): void {
  if (process.platform === 'linux') writeFileSync('/proc/self/clear_refs', '5');
}

interface Transfer {
  readonly from: Place;
  readonly to: Place & { readonly method: 'POST' | 'PUT' };
  /** Lengths of the received and the sent body. */
  readonly receivedBytes: number;
  readonly sentBytes: number;
}

/**
 * Returns what to send for each received chunk. Parts of a chunk are repeated or left out, so that the lengths match in
 * the end. Nothing reads a byte.
 */
function portions({ receivedBytes, sentBytes }: Transfer): (chunk: Buffer) => readonly Buffer[] {
  let received = 0;
  let sent = 0;
  return (chunk) => {
    received += chunk.byteLength;
    const due = received === receivedBytes ? sentBytes : Math.round((received / receivedBytes) * sentBytes);
    const pieces: Buffer[] = [];
    while (sent < due) {
      const piece = chunk.subarray(0, due - sent);
      sent += piece.byteLength;
      pieces.push(piece);
    }
    return pieces;
  };
}

async function copy(transfer: Transfer): Promise<void> {
  const { from, to, sentBytes } = transfer;
  const portionsOf = portions(transfer);
  const [source, sink] = await Promise.all([open(from), open(to)]);
  const { promise: answered, resolve, reject } = Promise.withResolvers<void>();
  source.on('error', reject);
  sink.on('error', reject);
  sink.once('data', () => resolve());
  sink.on('drain', () => source.resume());
  let isBody = false;
  source.on('data', (chunk: Buffer) => {
    if (!isBody) {
      const end = chunk.indexOf('\r\n\r\n');
      if (end === -1) throw new Error('The head of the answer came in several chunks, which copy() does not support');
      isBody = true;
      chunk = chunk.subarray(end + 4);
    }
    for (const piece of portionsOf(chunk)) if (!sink.write(piece)) source.pause();
  });
  sink.write(`${to.method} ${to.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${sentBytes}\r\n\r\n`);
  source.write(`GET ${from.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  await answered;
  source.destroy();
  sink.destroy();
}

async function relay(transfer: Transfer, isHashed: boolean): Promise<void> {
  // Not imported: the part "start" measures which modules the functions load, and an import here would load some.
  const [plain, tls] = [process.getBuiltinModule('node:http'), process.getBuiltinModule('node:https')];
  const { from, to, sentBytes } = transfer;
  const portionsOf = portions(transfer);
  const { promise: answered, resolve, reject } = Promise.withResolvers<void>();
  const headers = { 'Content-Length': sentBytes };
  const sink = (to.isTls ? tls : plain).request({ host: '127.0.0.1', ...to, headers }, (answer) => {
    answer.resume().on('end', resolve);
  });
  sink.on('error', reject);
  const sha256 = createHash('sha256');
  let crc = 0;
  const receive = (source: IncomingMessage): void => {
    sink.on('drain', () => source.resume());
    source.on('error', reject);
    source.on('data', (chunk: Buffer) => {
      for (const piece of portionsOf(chunk)) {
        if (isHashed) {
          sha256.update(piece);
          crc = crc32(piece, crc);
        }
        if (!sink.write(piece)) source.pause();
      }
    });
    source.on('end', () => sink.end());
  };
  (from.isTls ? tls : plain).get({ host: '127.0.0.1', ...from }, receive).on('error', reject);
  await answered;
}

function open({ port, isTls }: Place): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, noDelay: true };
    const socket = isTls ? connectTls(options, () => resolve(socket)) : connect(options, () => resolve(socket));
    socket.once('error', reject);
  });
}

answerCalls(calls);
