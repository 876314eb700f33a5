import { S3Client } from '@aws-sdk/client-s3';
import { systemClock } from '../../functions/base/clock.ts';
import { downloadAsset } from '../../functions/flow-service/asset-download.ts';
import { createFlowService } from '../../functions/flow-service/client.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { FlowService } from '../../functions/flow-service/types.ts';
import { powertools } from '../../functions/lambda/powertools.ts';
import { peakKib } from '../support/peak-memory.ts';

/** What a process of the memory test has to do. It does one after another. */
export interface MemoryTask {
  readonly url: string;
  readonly operation: MemoryOperation;
  /** Number of calls at the same time. */
  readonly sideBySide: number;
  /** Memory that the process holds meanwhile, in bytes. It is the same for all tasks. */
  readonly heldBytes: number;
}

/** What became of it. */
export interface MemoryOutcome {
  readonly peakBytes: number;
  /** By the name of the error, or `answered`: the number of calls that ended so. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** The message of one error. Undefined if every call was answered. */
  readonly message: string | undefined;
}

export type MemoryOperation = 'create' | 'create from a text' | 'get' | 'outputs' | 'list' | 'find' | 'abort' | 'asset';

const signal = new AbortController().signal;
const tag = { pipeline: 'test', upload: 'u', generation: 1 };

const operations: Readonly<Record<MemoryOperation, (flows: FlowService, n: number) => Promise<unknown>>> = {
  create: (flows, n) => {
    const source = { bytes: 1, open: async () => one() };
    const input = { as: 'file', mediaType: 'text/plain', source, additional: {} } as const;
    return flows.create({ template: 't', tag: { ...tag, upload: `u${n}` }, inputs: [input] }, signal);
  },
  'create from a text': (flows, n) => {
    const source = { bytes: LONG_TEXT_BYTES, open: async () => longText() };
    const input = { as: 'text', mediaType: 'text/plain', source, additional: {} } as const;
    return flows.create({ template: 't', tag: { ...tag, upload: `u${n}` }, inputs: [input] }, signal);
  },
  get: (flows, n) => flows.get(`f${n}`, signal),
  outputs: (flows, n) => flows.outputs(`f${n}`, signal),
  list: async (flows) => {
    const all = [];
    for await (const page of flows.list(signal)) all.push(page);
    return all;
  },
  find: (flows) => flows.find([{ tag, since: 0, mayBeAbsent: true }], signal),
  abort: (flows, n) => flows.abort(`f${n}`, signal),
  asset: async (flows, n) => {
    const { chunks } = await flows.asset(`f${n}`, 'a1', signal);
    for await (const _ of chunks);
  },
};

const LONG_TEXT_BYTES = 32 * 1024 * 1024;
/** Quotes become two bytes each. The piece has 64 KiB. */
const LONG_TEXT_PIECE = Buffer.from('"ü!'.repeat(16 * 1024));

async function* longText(): AsyncGenerator<Uint8Array> {
  for (let sent = 0; sent < LONG_TEXT_BYTES; sent += LONG_TEXT_PIECE.byteLength) yield LONG_TEXT_PIECE;
}

async function* one(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('x');
}

/** What the process holds from its first task on. The deployed functions load the SDK and the Powertools as well. */
let held: readonly unknown[] = [];

async function perform({ url, operation, sideBySide, heldBytes }: MemoryTask): Promise<MemoryOutcome> {
  if (held.length === 0) held = [new S3Client({ region: 'eu-west-1' }), powertools('test'), Buffer.alloc(heldBytes, 1)];
  const flows = createFlowService({
    download: downloadAsset,
    baseUrl: new URL(url),
    token: { get: async () => 'obviously-fake/token-1', renew: async () => 'obviously-fake/token-2' },
    clock: systemClock,
    service: FLOWS,
    assetBytesMax: 1024 * 1024,
  });
  const outcomes: Record<string, number> = {};
  let message: string | undefined;
  const kept = await Promise.all(
    Array.from({ length: sideBySide }, async (_, n) => {
      try {
        const value = await operations[operation](flows, n);
        outcomes.answered = (outcomes.answered ?? 0) + 1;
        return value;
      } catch (error) {
        const { name, message: why, cause } = error as Error;
        outcomes[name] = (outcomes[name] ?? 0) + 1;
        message = cause instanceof Error ? `${why}: ${cause.message}` : why;
        return error;
      }
    }),
  );
  if (kept.length + held.length === 0) throw new Error('Nothing is kept');
  return { peakBytes: peakKib() * 1024, outcomes, message };
}

// The process ends when its parent disconnects.
process.on('message', async (task: MemoryTask) => process.send?.(await perform(task)));
