import { RECEIPT_NAME } from '../../functions/results/results-keys.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { ChildError } from '../child.ts';
import { BUCKETS } from '../names.ts';
import { atMost, type Check, figure, mib, type Report, size, type Table } from '../report.ts';
import { asset, type Form } from '../servers/bytes.ts';
import { doneFlow } from '../servers/flow-service.ts';
import type { Stage, Subject, Transport } from '../stage.ts';
import { ratio, type Spread, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';

type Direction = 'in' | 'out';

const CONTESTANTS = ['ours', 'naive', 'relay', 'copy'] as const;
type Contestant = (typeof CONTESTANTS)[number];

const MB = 1e6;
const MIB = 1024 * 1024;
const FUNCTION: Readonly<Record<Direction, FunctionName>> = { in: 'create-flow', out: 'collect-outputs' };

/** Small files come first, to open connections and compile code. Only a cold function lacks these. */
const WARM_UP_BYTES = 100_000;
const WARM_UP_CALLS = 3;

interface TransferOptions {
  readonly direction: Direction;
  readonly transports: readonly Transport[];
  readonly sizes: readonly number[];
  /** How often everything is measured. Each round starts with another contestant. */
  readonly rounds: number;
}

/** One process of one contestant. */
interface Trial {
  readonly direction: Direction;
  readonly transport: Transport;
  readonly contestant: Contestant;
}

/** What one contestant took for files of one size: one cost per round, or the reason for a failure. */
type Costs = readonly (Cost | string)[];

/** All figures of one size over one transport. */
interface Figures {
  readonly direction: Direction;
  readonly transport: Transport;
  readonly bytes: number;
  readonly costs: Readonly<Record<Contestant, readonly Cost[]>>;
  readonly wall: Ratios;
  readonly cpu: Ratios;
  /** Memory above idle, in bytes. */
  readonly memory: Spread;
  /** Why the naive function failed, if it did. */
  readonly failure: string | undefined;
}

interface Ratios {
  readonly toCopy: Spread;
  readonly relayToCopy: Spread;
  readonly toRelay: Spread;
  readonly toNaive: Spread;
}

/**
 * Sends one file through a whole invocation of the function, and compares with three others. `naive` is the naive
 * function. `copy` copies as many bytes from socket to socket. `relay` does the same through Node.js's HTTP client. On
 * the way out it also computes the hashes that an asset needs: SHA-256 for the receipt and CRC32 for S3. No function on
 * Node.js can take less than `relay`.
 */
export async function transfer(stage: Stage, options: TransferOptions): Promise<Report> {
  const { direction, transports, sizes } = options;
  const costsOf = await measureAll(stage, options);
  const figures = transports.flatMap((transport) =>
    sizes.map((bytes) =>
      figuresOf({ direction, transport, bytes }, (contestant) => costsOf(transport, bytes, contestant)),
    ),
  );
  return { name: direction, tables: tablesOf(direction, figures), checks: figures.flatMap(checksOf), figures };
}

/** Runs all contestants round by round. Returns a function that finds their costs. */
async function measureAll(stage: Stage, { direction, transports, sizes, rounds }: TransferOptions) {
  const costs = new Map<string, (Cost | string)[]>();
  const costsOf = (transport: Transport, bytes: number, contestant: Contestant) => {
    const name = `${transport} ${bytes} ${contestant}`;
    const list = costs.get(name) ?? [];
    costs.set(name, list);
    return list;
  };
  for (let round = 0; round < rounds; round += 1) {
    for (const transport of transports) {
      for (let turn = 0; turn < CONTESTANTS.length; turn += 1) {
        const contestant = CONTESTANTS[(turn + round) % CONTESTANTS.length] as Contestant;
        for (const [bytes, cost] of await measure(stage, { direction, transport, contestant }, sizes)) {
          costsOf(transport, bytes, contestant).push(cost);
        }
      }
    }
  }
  return costsOf;
}

const isCost = (cost: Cost | string): cost is Cost => typeof cost !== 'string';
const memoryAboveIdle = ({ peakBytes, idleBytes }: Cost): number => peakBytes - idleBytes;

function figuresOf(
  file: Pick<Figures, 'direction' | 'transport' | 'bytes'>,
  costsOf: (contestant: Contestant) => Costs,
): Figures {
  const costs = {
    ours: costsOf('ours').filter(isCost),
    naive: costsOf('naive').filter(isCost),
    relay: costsOf('relay').filter(isCost),
    copy: costsOf('copy').filter(isCost),
  };
  const ratiosOf = (which: 'wallMs' | 'cpuMs'): Ratios => {
    const of = (contestant: Contestant) => costs[contestant].map((cost) => cost[which]);
    return {
      toCopy: ratio(of('ours'), of('copy')),
      toRelay: ratio(of('ours'), of('relay')),
      relayToCopy: ratio(of('relay'), of('copy')),
      toNaive: ratio(of('naive'), of('ours')),
    };
  };
  return {
    ...file,
    costs,
    wall: ratiosOf('wallMs'),
    cpu: ratiosOf('cpuMs'),
    memory: spread(costs.ours.map(memoryAboveIdle)),
    failure: costsOf('naive').find((cost) => !isCost(cost)) as string | undefined,
  };
}

function tablesOf(direction: Direction, figures: readonly Figures[]): readonly Table[] {
  const title = direction === 'in' ? 'In: an object becomes the input of a flow' : 'Out: an asset becomes an object';
  const ratios = ['ours : copy', 'relay : copy', 'ours : relay', 'naive : ours'];
  const note = 'Medians. Ratios are taken round by round, with the smallest and the largest in brackets.';
  const wall = figures.map((each) => rowOf(each, ({ wallMs }) => figure(wallMs), each.wall));
  const cpu = figures.map((each) => rowOf(each, ({ cpuMs }) => figure(cpuMs), each.cpu));
  const memory = figures.map((each) => rowOf(each, ({ peakBytes }) => mib(peakBytes)));
  return [
    { title: `${title}, wall, ms`, columns: ['file', ...CONTESTANTS, ...ratios], rows: wall, note },
    { title: `${title}, processor, ms`, columns: ['file', ...CONTESTANTS, ...ratios], rows: cpu, note },
    { title: `${title}, memory above idle, MiB`, columns: ['file', ...CONTESTANTS], rows: memory },
  ];
}

/** The median of each contestant, and the ratios between them. */
function rowOf(
  { direction, transport, bytes, costs, failure }: Figures,
  shown: (medians: { wallMs: number; cpuMs: number; peakBytes: number }) => string,
  ratios?: Ratios,
): string[] {
  const median = (contestant: Contestant) => {
    const of = (value: (cost: Cost) => number) => spread(costs[contestant].map(value)).median;
    return shown({
      wallMs: of(({ wallMs }) => wallMs),
      cpuMs: of(({ cpuMs }) => cpuMs),
      peakBytes: of(memoryAboveIdle),
    });
  };
  const within = ({ median, min, max }: Spread) => `${figure(median)} (${figure(min)}-${figure(max)})`;
  const orFailure = (text: string) => (failure === undefined ? text : 'fails');
  return [
    `${direction} ${transport} ${size(bytes)}`,
    median('ours'),
    orFailure(median('naive')),
    median('relay'),
    median('copy'),
    ...(ratios === undefined
      ? []
      : [within(ratios.toCopy), within(ratios.relayToCopy), within(ratios.toRelay), orFailure(within(ratios.toNaive))]),
  ];
}

const MEMORY_BYTES_MAX: Readonly<Record<Direction, number>> = { in: 40 * MIB, out: 56 * MIB };
/** Limit of the gate. It is above noise and other allocators, so a function that exceeds it holds the whole file. */
const MEMORY_BYTES_EXACT_MAX = 128 * MIB;
const NAIVE_RATIO_MIN: Readonly<Record<Direction, number>> = { in: 4, out: 2.5 };

function checksOf({ direction, transport, bytes, wall, cpu, memory: { median: memoryBytes } }: Figures): Check[] {
  const name = `${direction} ${transport} ${size(bytes)}`;
  const memory = memoryBytes / MIB;
  const checks: Check[] = [
    atMost(`${name}: MiB above idle`, memory, MEMORY_BYTES_MAX[direction] / MIB),
    {
      what: `${name}: memory does not grow with the file`,
      found: `${figure(memory)} MiB`,
      wanted: `at most ${MEMORY_BYTES_EXACT_MAX / MIB} MiB above idle`,
      holds: memoryBytes <= MEMORY_BYTES_EXACT_MAX,
      isExact: true,
    },
  ];
  if (bytes >= 64 * MB) {
    checks.push(
      atMost(`${name}: wall, ours : copy`, wall.toCopy.median, 1.18),
      atMost(`${name}: CPU, ours : copy`, cpu.toCopy.median, 1.3),
    );
  }
  if (bytes === 256 * MB) {
    const { median } = wall.toNaive;
    const min = NAIVE_RATIO_MIN[direction];
    checks.push({
      what: `${name}: wall, naive : ours`,
      found: figure(median),
      wanted: `at least ${min}`,
      holds: median >= min,
      isExact: false,
    });
  }
  return checks;
}

/** Measures all sizes in one new process, in the order given. If the naive function fails, its error is the result. */
async function measure(
  stage: Stage,
  trial: Trial,
  sizes: readonly number[],
): Promise<readonly (readonly [number, Cost | string])[]> {
  // A flow that the last contestant failed to collect would make this one fail too.
  await stage.aws.call('clear');
  const { direction, transport, contestant } = trial;
  await using subject =
    contestant === 'copy' || contestant === 'relay'
      ? stage.copier(transport)
      : await stage.subject(contestant, FUNCTION[direction], stage.environment(transport));
  for (let call = 0; call < WARM_UP_CALLS; call += 1) await once(stage, subject, trial, WARM_UP_BYTES);
  await subject.call('settle');
  const costs: [number, Cost | string][] = [];
  for (const bytes of sizes) {
    try {
      costs.push([bytes, await once(stage, subject, trial, bytes)]);
    } catch (error) {
      if (contestant !== 'naive' || !(error instanceof ChildError)) throw error;
      costs.push([bytes, error.message.split('\n')[0] ?? '']);
    }
  }
  return costs;
}

/** Sends one file in one invocation, and checks that it arrived. */
async function once(stage: Stage, subject: Subject, trial: Trial, bytes: number): Promise<Cost> {
  const { direction, contestant } = trial;
  if (contestant === 'copy' || contestant === 'relay') return copyOnce(stage, subject, trial, bytes);
  if (direction === 'in') {
    const { value, ...cost } = await subject.call('invoke', { event: stage.uploads(bytes, 1) });
    const { receivedBytes = 0 } = await stage.service.call('takeCounts');
    if (receivedBytes < (bytes * 4) / 3) throw new Error(`${contestant}: ${JSON.stringify(value)}`);
    return cost;
  }
  return outOnce(stage, subject, contestant, { bytes, form: 'uri' });
}

/** Collects one asset in one invocation, and checks the receipt. */
export async function outOnce(
  stage: Stage,
  subject: Subject,
  maker: 'ours' | 'naive',
  { bytes, form }: { readonly bytes: number; readonly form: Form },
): Promise<Cost> {
  const [upload] = await stage.addRunning([doneFlow(form, bytes, stage.next())], maker);
  const { value, ...cost } = await subject.call('invoke', { event: {} });
  if (maker === 'ours') {
    const receipt = JSON.parse(
      (await stage.aws.call('text', { bucket: BUCKETS.results, key: `${upload?.key}/${RECEIPT_NAME}` })) ?? '{}',
    );
    if (receipt.assets?.[0]?.bytes !== bytes) throw new Error(`${JSON.stringify(receipt)} ${JSON.stringify(value)}`);
  }
  return cost;
}

async function copyOnce(
  stage: Stage,
  subject: Subject,
  { direction, transport, contestant }: Trial,
  bytes: number,
): Promise<Cost> {
  const encodedBytes = asset(bytes, 'uri').bytes;
  const isTls = transport === 'tls';
  const aws = { port: stage.port('aws', transport), isTls };
  const service = { port: stage.port('service', transport), isTls };
  const between =
    direction === 'in'
      ? {
          from: { ...aws, path: `/${BUCKETS.inbox}/${bytes}/copied` },
          to: { ...service, method: 'POST' as const, path: '/flows' },
          receivedBytes: bytes,
          sentBytes: encodedBytes,
        }
      : {
          from: { ...service, path: `/flows/${doneFlow('uri', bytes, stage.next())}/outputs/asset` },
          to: { ...aws, method: 'PUT' as const, path: `/${BUCKETS.results}/copied` },
          receivedBytes: encodedBytes,
          sentBytes: bytes,
        };
  const { value: _, ...cost } =
    contestant === 'copy'
      ? await subject.call('copy', between)
      : await subject.call('relay', { ...between, isHashed: direction === 'out' });
  return cost;
}
