import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { LocalFunction } from '../../local/lambda/function.ts';
import { type Check, mib, type Report, size } from '../report.ts';
import type { Stage } from '../stage.ts';

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;
const WARM_UP_BYTES = 100_000;
const TIMEOUT_SECONDS = 900;
const MEMORY_MIB = 512;

interface MemoryCase {
  readonly bytes: number;
  readonly streams: number;
}

/** Concurrent streams of one batch or tick, in the case with many. */
const STREAMS_MANY = 16;

export const MEMORY_CASES = {
  quick: [{ bytes: 256 * MIB, streams: 1 }],
  full: [
    { bytes: GIB, streams: 1 },
    { bytes: 4 * GIB, streams: 1 },
    { bytes: 64 * MIB, streams: STREAMS_MANY },
  ],
} as const satisfies Record<string, readonly MemoryCase[]>;

/** Maximum memory that one stream adds to the idle process, in bytes. */
const ABOVE_IDLE_BYTES_MAX: Readonly<Record<FunctionName, number>> = {
  'create-flow': 40 * MIB,
  'collect-outputs': 56 * MIB,
};
/** Maximum memory of the whole process, with one stream and with many, in bytes. */
const ONE_BYTES_MAX = 256 * MIB;
const MANY_BYTES_MAX = 320 * MIB;

/** Margin of the gate. Allocators and page sizes of machines differ, but a function that holds a file exceeds this. */
const MARGIN = 2;

/**
 * Resident memory of the functions' processes: the bundles as deployed, run by AWS's runtime interface client over
 * TLS, with the flags that Lambda gives Node.
 */
export async function memory(stage: Stage, cases: readonly MemoryCase[]): Promise<Report> {
  const figures: { name: FunctionName; case: MemoryCase; idle: number; warm: number; peak: number }[] = [];
  for (const each of cases) {
    for (const name of ['create-flow', 'collect-outputs'] as const) {
      figures.push({ name, case: each, ...(await measure(stage, name, each)) });
    }
  }
  const checks = figures.flatMap(({ name, case: { bytes, streams }, idle, peak }): Check[] => {
    const what = `memory: ${name}, ${streams} x ${size(bytes)}`;
    const check = (found: number, unit: string, max: number, isExact: boolean): Check => ({
      what,
      found: `${mib(found)} ${unit}`,
      wanted: `at most ${mib(max)}${isExact ? ', with a margin for other machines' : ''}`,
      holds: found <= max,
      isExact,
    });
    const limits: readonly (readonly [number, string, number])[] =
      streams === 1
        ? [
            [peak - idle, 'MiB above idle', ABOVE_IDLE_BYTES_MAX[name]],
            [peak, 'MiB in all', ONE_BYTES_MAX],
          ]
        : [[peak, 'MiB in all', MANY_BYTES_MAX]];
    return limits.flatMap(([found, unit, max]) => [
      check(found, unit, max, false),
      check(found, unit, max * MARGIN, true),
    ]);
  });
  return {
    tables: [
      {
        title: 'Resident memory, in MiB',
        columns: ['function', 'streams', 'loaded', 'after a small file', 'highest', 'above loaded'],
        rows: figures.map(({ name, case: { bytes, streams }, idle, warm, peak }) => [
          name,
          `${streams} x ${size(bytes)}`,
          mib(idle),
          mib(warm),
          mib(peak),
          mib(peak - idle),
        ]),
        note: 'The bundles as deployed, run by the runtime interface client, over TLS.',
      },
    ],
    checks,
  };
}

async function measure(stage: Stage, name: FunctionName, { bytes, streams }: MemoryCase) {
  const settings: Partial<PipelineSettings> =
    streams === 1 ? {} : { uploadConcurrency: streams, assetConcurrency: streams };
  const fn = new LocalFunction(
    {
      name,
      bundleDir: dirname(stage.bundles.ours[name]),
      environment: stage.environment('tls', settings),
      timeoutSeconds: TIMEOUT_SECONDS,
      memoryMiB: MEMORY_MIB,
    },
    { concurrency: 1 },
  );
  try {
    const invoke = async (bytes: number, count: number): Promise<void> => {
      if (name === 'create-flow') {
        await fn.invoke(stage.uploads(bytes, count));
        return;
      }
      await stage.addEnded(bytes, count);
      const summary = (await fn.invoke({})) as { succeeded?: number };
      if (summary.succeeded !== count) throw new Error(`Not ${count} flows collected: ${JSON.stringify(summary)}`);
    };
    // The process starts with its first invocation. An event without work shows its idle memory.
    await (name === 'create-flow' ? fn.invoke({ Event: 's3:TestEvent' }) : fn.invoke({ retry: ['0'.repeat(40)] }));
    const [pid = Number.NaN] = fn.pids;
    const idle = (await residentMemory(pid)).bytes;
    await invoke(WARM_UP_BYTES, 1);
    const warm = (await residentMemory(pid)).bytes;
    await invoke(bytes, streams);
    return { idle, warm, peak: (await residentMemory(pid)).peakBytes };
  } finally {
    await fn.close();
  }
}

/** Resident memory of a process in bytes, current and peak. Linux only: it reads `/proc`. */
async function residentMemory(pid: number): Promise<{ readonly bytes: number; readonly peakBytes: number }> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]);
  return { bytes: kib('VmRSS') * 1024, peakBytes: kib('VmHWM') * 1024 };
}
