import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { pathToFileURL } from 'node:url';
import { crc32 } from 'node:zlib';
import { answerCalls } from './child.ts';

/** The cost of one call. */
export interface Cost {
  readonly wallMs: number;
  readonly cpuMs: number;
  /** Bytes that were logged. */
  readonly loggedBytes: number;
  /** Names of the metrics that were written. */
  readonly metrics: readonly string[];
}

/** An address at 127.0.0.1. */
interface Place {
  readonly port: number;
  readonly path: string;
}

type Handler = (event: unknown, context: object) => Promise<unknown>;

/** Remaining time of an invocation, in milliseconds. Lambda's maximum, and longer than any run takes. */
const REMAINING_MS = 900_000;

/** As long as Lambda's, because each line of the log has it. */
const CONTEXT = {
  functionName: 'flowdrop-collect-outputs',
  invokedFunctionArn: 'arn:aws:lambda:us-east-1:123456789012:function:flowdrop-collect-outputs',
  memoryLimitInMB: '512',
  awsRequestId: '00000000-0000-0000-0000-000000000000',
};

let handler: Handler;
let loadCpuMs = 0;

/** Bytes that a function has logged. */
let loggedBytes = 0;
/** Metrics that a function has written, in lines of its log. */
const metrics = new Set<string>();
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = ((...args: Parameters<typeof write>) => {
  loggedBytes += Buffer.byteLength(args[0]);
  if (String(args[0]).includes('"_aws"')) {
    const [{ Metrics }] = JSON.parse(String(args[0]))._aws.CloudWatchMetrics;
    for (const { Name } of Metrics) metrics.add(Name);
  }
  return write(...args);
}) as typeof write;

const calls = {
  async load({ path }: { path: string }): Promise<void> {
    ({
      value: { handler },
      cpuMs: loadCpuMs,
    } = await measured(() => import(pathToFileURL(path).href) as Promise<{ handler: Handler }>));
  },
  /** Processor time of loading the bundle, in milliseconds. */
  loadCpuMs: () => loadCpuMs,
  invoke: ({ event, remainingMs = REMAINING_MS }: { event: unknown; remainingMs?: number }) =>
    measured(() => handler(event, { ...CONTEXT, getRemainingTimeInMillis: () => remainingMs })),
  /** Moves bytes from one server to another as they arrive: the least that a function can cost. */
  relay: (transfer: Transfer) => measured(() => relay(transfer)),
  /** Names of the modules of Node.js that are loaded. */
  loaded: (): readonly string[] => (process as unknown as { moduleLoadList: string[] }).moduleLoadList,
};
export type SubjectCalls = typeof calls;

async function measured<T>(body: () => Promise<T>): Promise<Cost & { readonly value: T }> {
  loggedBytes = 0;
  metrics.clear();
  const cpu = process.cpuUsage();
  const started = performance.now();
  const value = await body();
  const wallMs = performance.now() - started;
  const { user, system } = process.cpuUsage(cpu);
  return {
    value,
    wallMs,
    cpuMs: (user + system) / 1000,
    loggedBytes,
    metrics: [...metrics],
  };
}

interface Transfer {
  readonly from: Place;
  readonly to: Place & { readonly method: 'POST' | 'PUT' };
  /** Lengths of the received and the sent body. */
  readonly receivedBytes: number;
  readonly sentBytes: number;
  /** True if the sent bytes are hashed, as those of an asset. */
  readonly isHashed: boolean;
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

async function relay(transfer: Transfer): Promise<void> {
  // Not imported: the part "start" measures which modules the functions load, and an import here would load some.
  const https = process.getBuiltinModule('node:https');
  const { from, to, sentBytes, isHashed } = transfer;
  const portionsOf = portions(transfer);
  const { promise: answered, resolve, reject } = Promise.withResolvers<void>();
  const headers = { 'Content-Length': sentBytes };
  const sink = https.request({ host: '127.0.0.1', ...to, headers }, (answer) => {
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
  https.get({ host: '127.0.0.1', ...from }, receive).on('error', reject);
  await answered;
}

answerCalls(calls);
