import { RECEIPT_NAME } from '../../functions/results/results-keys.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { ChildError } from '../child.ts';
import { BUCKETS } from '../names.ts';
import { type Check, figure, mib, type Report, size, type Table } from '../report.ts';
import { asset, type Form } from '../servers/bytes.ts';
import { doneFlow } from '../servers/flow-service.ts';
import type { Stage, Subject, Transport } from '../stage.ts';
import { ratio, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';

export type Direction = 'in' | 'out';
type Contestant = 'ours' | 'naive' | 'relay' | 'copy';

const MB = 1e6;
const MIB = 1024 * 1024;
const FUNCTION: Readonly<Record<Direction, FunctionName>> = { in: 'create-flow', out: 'collect-outputs' };

/** A first small file, so that connections and compiled code are there, as in any function but one just started. */
const WARM_UP_BYTES = 100_000;
const WARM_UP_CALLS = 3;

export interface TransferOptions {
  readonly direction: Direction;
  readonly transports: readonly Transport[];
  readonly sizes: readonly number[];
  /** How often everything is done; the order goes round, so that nobody is always first. */
  readonly rounds: number;
}

/**
 * One file through a whole invocation of the function, against the naive function, a bare copy of as many bytes, and the
 * same copy through Node's HTTP client: on the way out with the hashes that an asset needs, SHA-256 for the receipt and
 * CRC32 for S3. What the last one takes no function on Node is without.
 */
export async function transfer(stage: Stage, options: TransferOptions): Promise<Report> {
  const { direction, transports, sizes, rounds } = options;
  const contestants: readonly Contestant[] = ['ours', 'naive', 'relay', 'copy'];
  const costs = new Map<string, (Cost | string)[]>();
  const costsOf = (...key: readonly (string | number)[]) => {
    const name = key.join(' ');
    const list = costs.get(name) ?? [];
    costs.set(name, list);
    return list;
  };
  for (let round = 0; round < rounds; round += 1) {
    for (const transport of transports) {
      for (let turn = 0; turn < contestants.length; turn += 1) {
        const contestant = contestants[(turn + round) % contestants.length] as Contestant;
        for (const [bytes, cost] of await measure(stage, direction, transport, contestant, sizes)) {
          costsOf(transport, bytes, contestant).push(cost);
        }
      }
    }
  }
  const figures = [];
  const walls: string[][] = [];
  const cpus: string[][] = [];
  const memories: string[][] = [];
  const checks: Check[] = [];
  for (const transport of transports) {
    for (const bytes of sizes) {
      const of = (contestant: Contestant) =>
        costsOf(transport, bytes, contestant).filter((cost) => typeof cost !== 'string') as Cost[];
      const [ours, naive, relay, copy] = [of('ours'), of('naive'), of('relay'), of('copy')];
      const [wall, cpu] = (['wallMs', 'cpuMs'] as const).map((which) => ({
        toCopy: ratio(
          ours.map((cost) => cost[which]),
          copy.map((cost) => cost[which]),
        ),
        toRelay: ratio(
          ours.map((cost) => cost[which]),
          relay.map((cost) => cost[which]),
        ),
        relayToCopy: ratio(
          relay.map((cost) => cost[which]),
          copy.map((cost) => cost[which]),
        ),
        toNaive: ratio(
          naive.map((cost) => cost[which]),
          ours.map((cost) => cost[which]),
        ),
      })) as [Ratios, Ratios];
      const failure = costsOf(transport, bytes, 'naive').find((cost) => typeof cost === 'string');
      const memory = spread(ours.map(({ peakBytes, idleBytes }) => peakBytes - idleBytes));
      figures.push({ direction, transport, bytes, costs: { ours, naive, relay, copy }, wall, cpu, memory, failure });
      const median = (list: readonly Cost[], which: (cost: Cost) => number) => spread(list.map(which)).median;
      const wallOf = (list: readonly Cost[]) => figure(median(list, ({ wallMs }) => wallMs));
      const cpuOf = (list: readonly Cost[]) => figure(median(list, ({ cpuMs }) => cpuMs));
      const memoryOf = (list: readonly Cost[]) =>
        mib(median(list, ({ peakBytes, idleBytes }) => peakBytes - idleBytes));
      const within = ({ median, min, max }: Ratios['toCopy']) => `${figure(median)} (${figure(min)}-${figure(max)})`;
      const orFailure = (text: string) => (failure === undefined ? text : 'fails');
      const file = `${direction} ${transport} ${size(bytes)}`;
      const rowOf = (of: (list: readonly Cost[]) => string, ratios: Ratios): string[] => [
        file,
        of(ours),
        orFailure(of(naive)),
        of(relay),
        of(copy),
        within(ratios.toCopy),
        within(ratios.relayToCopy),
        within(ratios.toRelay),
        orFailure(within(ratios.toNaive)),
      ];
      walls.push(rowOf(wallOf, wall));
      cpus.push(rowOf(cpuOf, cpu));
      memories.push([file, memoryOf(ours), orFailure(memoryOf(naive)), memoryOf(relay), memoryOf(copy)]);
      checks.push(...targets(direction, transport, bytes, wall, cpu, memory.median));
    }
  }
  const title = direction === 'in' ? 'In: an object becomes the input of a flow' : 'Out: an asset becomes an object';
  const versus = ['ours', 'naive', 'relay', 'copy'];
  const ratios = ['ours : copy', 'relay : copy', 'ours : relay', 'naive : ours'];
  const note = 'Medians; ratios round by round, with the smallest and the largest in brackets.';
  const tables: readonly Table[] = [
    { title: `${title}, wall, ms`, columns: ['file', ...versus, ...ratios], rows: walls, note },
    { title: `${title}, processor, ms`, columns: ['file', ...versus, ...ratios], rows: cpus, note },
    { title: `${title}, memory above idle, MiB`, columns: ['file', ...versus], rows: memories },
  ];
  return { name: direction, tables, checks, figures };
}

interface Ratios {
  readonly toCopy: ReturnType<typeof ratio>;
  readonly relayToCopy: ReturnType<typeof ratio>;
  readonly toRelay: ReturnType<typeof ratio>;
  readonly toNaive: ReturnType<typeof ratio>;
}

const MEMORY_BYTES_MAX: Readonly<Record<Direction, number>> = { in: 40 * MIB, out: 56 * MIB };
/** Beyond noise and another machine's allocator: what holds more than this holds the file. */
const MEMORY_BYTES_EXACT_MAX = 128 * MIB;
const NAIVE_RATIO_MIN: Readonly<Record<Direction, number>> = { in: 4, out: 2.5 };

function targets(
  direction: Direction,
  transport: Transport,
  bytes: number,
  wall: Ratios,
  cpu: Ratios,
  memoryBytes: number,
): readonly Check[] {
  const name = `${direction} ${transport} ${size(bytes)}`;
  const target = (what: string, value: number, wanted: string, holds: boolean): Check => ({
    what: `${name}: ${what}`,
    found: figure(value),
    wanted,
    holds,
    isExact: false,
  });
  const memory = memoryBytes / MIB;
  const memoryMax = MEMORY_BYTES_MAX[direction] / MIB;
  const checks: Check[] = [
    target('MiB above idle', memory, `at most ${memoryMax}`, memory <= memoryMax),
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
      target('wall, ours : copy', wall.toCopy.median, 'at most 1.18', wall.toCopy.median <= 1.18),
      target('CPU, ours : copy', cpu.toCopy.median, 'at most 1.3', cpu.toCopy.median <= 1.3),
    );
  }
  if (bytes === 256 * MB) {
    const min = NAIVE_RATIO_MIN[direction];
    checks.push(target('wall, naive : ours', wall.toNaive.median, `at least ${min}`, wall.toNaive.median >= min));
  }
  return checks;
}

/** All sizes in one new process, the smallest first. Of a size that it cannot do, the reason. */
async function measure(
  stage: Stage,
  direction: Direction,
  transport: Transport,
  contestant: Contestant,
  sizes: readonly number[],
): Promise<readonly (readonly [number, Cost | string])[]> {
  // What somebody failed to collect would be the next one's to fail at.
  await stage.aws.call('clear');
  const subject =
    contestant === 'copy' || contestant === 'relay'
      ? stage.copier(transport)
      : (await stage.subject(contestant, FUNCTION[direction], stage.environment(transport))).subject;
  try {
    for (let call = 0; call < WARM_UP_CALLS; call += 1) {
      await once(stage, subject, direction, transport, contestant, WARM_UP_BYTES);
    }
    await subject.call('settle');
    const costs: [number, Cost | string][] = [];
    for (const bytes of sizes) {
      try {
        costs.push([bytes, await once(stage, subject, direction, transport, contestant, bytes)]);
      } catch (error) {
        if (contestant !== 'naive' || !(error instanceof ChildError)) throw error;
        costs.push([bytes, error.message.split('\n')[0] ?? '']);
      }
    }
    return costs;
  } finally {
    await subject.end();
  }
}

/** One file, one invocation; and a look at whether it arrived. */
async function once(
  stage: Stage,
  subject: Subject,
  direction: Direction,
  transport: Transport,
  contestant: Contestant,
  bytes: number,
): Promise<Cost> {
  if (contestant === 'copy' || contestant === 'relay') {
    return copyOnce(stage, subject, direction, transport, contestant, bytes);
  }
  if (direction === 'in') {
    const { value, ...cost } = await subject.call('invoke', { event: stage.uploads(bytes, 1) });
    const { receivedBytes = 0 } = await stage.service.call('takeCounts');
    if (receivedBytes < (bytes * 4) / 3) throw new Error(`${contestant}: ${JSON.stringify(value)}`);
    return cost;
  }
  return outOnce(stage, subject, contestant, bytes, 'uri');
}

/** One asset, collected in one invocation. */
export async function outOnce(
  stage: Stage,
  subject: Subject,
  maker: 'ours' | 'naive',
  bytes: number,
  form: Form,
): Promise<Cost> {
  const [upload] = await stage.run([doneFlow(form, bytes, stage.next())], maker);
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
  direction: Direction,
  transport: Transport,
  how: 'copy' | 'relay',
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
    how === 'copy'
      ? await subject.call('copy', between)
      : await subject.call('relay', { ...between, isHashed: direction === 'out' });
  return cost;
}
