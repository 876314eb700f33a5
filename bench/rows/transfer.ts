import { RECEIPT_NAME } from '../../functions/results/results-keys.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { ChildError } from '../child.ts';
import { BUCKETS } from '../names.ts';
import { atLeast, atMost, type Check, figure, inTurns, type Report, size, withRange } from '../report.ts';
import { asset } from '../servers/bytes.ts';
import { doneFlow } from '../servers/flow-service.ts';
import type { Stage, Subject } from '../stage.ts';
import { ratio, type Spread, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';

type Direction = 'in' | 'out';

type Contestant = 'ours' | 'described' | 'naive' | 'relay';

const CONTESTANTS: Readonly<Record<Direction, readonly Contestant[]>> = {
  in: ['ours', 'described', 'naive', 'relay'],
  out: ['ours', 'naive', 'relay'],
};

/** The file stands deep in the body, behind other members and before one. */
const DESCRIBED = {
  from: 'flows',
  create: {
    body: {
      ...{ template: null, parameters: null, inputs: null }, // Those of FLOWS.
      input: { '...': '{parameters}', image: { uri: '{input}' } },
      version: '{template}',
    },
  },
};

const MB = 1e6;
const FUNCTION: Readonly<Record<Direction, FunctionName>> = { in: 'create-flow', out: 'collect-outputs' };

/** Small files come first, to open connections and compile code. Only a cold function lacks these. */
const WARM_UP_BYTES = 100_000;
const WARM_UP_CALLS = 3;

/** Targets from 64 MB on, and at 256 MB. */
const RELAY_RATIO_MAX = 1.4;
const NAIVE_RATIO_MIN: Readonly<Record<Direction, number>> = { in: 4, out: 2 };

interface TransferOptions {
  readonly direction: Direction;
  readonly sizes: readonly number[];
  /** How often everything is measured. Each round starts with another contestant. */
  readonly rounds: number;
}

/** What files of one size took: one cost for each round. The naive function has none if it failed. */
interface Figures {
  readonly name: string;
  readonly bytes: number;
  readonly costs: Readonly<Record<Contestant, Cost[]>>;
}

/**
 * Sends one file through a whole invocation of the function, over TLS, and compares with two others. `naive` is the naive
 * function. `described` is ours with a service that takes the file elsewhere in the body. `relay` moves as many bytes between the same servers through Node.js's HTTP client. On the way out it also
 * computes the hashes that an asset needs: SHA-256 for the receipt and CRC32 for S3. No function on Node.js can take
 * less.
 */
export async function transfer(stage: Stage, options: TransferOptions): Promise<Report> {
  const { direction, sizes, rounds } = options;
  const figures = sizes.map((bytes): Figures => {
    const name = `${direction} ${size(bytes)}`;
    return { name, bytes, costs: { ours: [], described: [], naive: [], relay: [] } };
  });
  for (const contestant of inTurns(CONTESTANTS[direction], rounds))
    await measure(stage, { direction, contestant }, figures);
  return {
    tables: tablesOf(direction, figures),
    checks: figures.flatMap((each) => checksOf(direction, each)),
  };
}

const WALL = ({ wallMs }: Cost): number => wallMs;
const CPU = ({ cpuMs }: Cost): number => cpuMs;

const of = ({ costs }: Figures, contestant: Contestant, value: (cost: Cost) => number): readonly number[] =>
  costs[contestant].map(value);
const medianOf = (...args: Parameters<typeof of>): number => spread(of(...args)).median;
const toRelay = (figures: Figures, value: (cost: Cost) => number, contestant: Contestant = 'ours'): Spread =>
  ratio(of(figures, contestant, value), of(figures, 'relay', value));
const naiveToOurs = (figures: Figures, value: (cost: Cost) => number): Spread =>
  ratio(of(figures, 'naive', value), of(figures, 'ours', value));

function tablesOf(direction: Direction, all: readonly Figures[]): Report['tables'] {
  const title = direction === 'in' ? 'In: an object becomes the input of a flow' : 'Out: an asset becomes an object';
  const columns = ['file', ...CONTESTANTS[direction], 'ours : relay', 'naive : ours'];
  const note = 'Medians. "-" if the naive function fails.';
  const rows = (value: (cost: Cost) => number) =>
    all.map((each) => [
      each.name,
      ...CONTESTANTS[direction].map((contestant) => figure(medianOf(each, contestant, value))),
      withRange(toRelay(each, value)),
      withRange(naiveToOurs(each, value)),
    ]);
  return [
    { title: `${title}, wall, ms`, columns, rows: rows(WALL), note },
    { title: `${title}, processor, ms`, columns, rows: rows(CPU), note },
  ];
}

function checksOf(direction: Direction, figures: Figures): readonly Check[] {
  const { name, bytes } = figures;
  if (bytes < 64 * MB) return [];
  return [
    atMost(`${name}: wall, ours : relay`, toRelay(figures, WALL).median, RELAY_RATIO_MAX),
    ...(direction === 'in'
      ? [atMost(`${name}: wall, described : relay`, toRelay(figures, WALL, 'described').median, RELAY_RATIO_MAX)]
      : []),
    ...(bytes === 256 * MB
      ? [atLeast(`${name}: wall, naive : ours`, naiveToOurs(figures, WALL).median, NAIVE_RATIO_MIN[direction])]
      : []),
  ];
}

/** One process of one contestant. */
interface Trial {
  readonly direction: Direction;
  readonly contestant: Contestant;
}

/** Measures all sizes in one new process, in the order given. The naive function may fail. */
async function measure(stage: Stage, trial: Trial, all: readonly Figures[]): Promise<void> {
  // A flow that the last contestant failed to collect would make this one fail too.
  await stage.aws.call('clear');
  const { direction, contestant } = trial;
  const isDescribed = contestant === 'described';
  const environment = { ...stage.environment('tls'), ...(isDescribed && { SERVICE: JSON.stringify(DESCRIBED) }) };
  await using subject =
    contestant === 'relay'
      ? stage.relay()
      : await stage.subject(isDescribed ? 'ours' : contestant, FUNCTION[direction], environment);
  for (let call = 0; call < WARM_UP_CALLS; call += 1) await once(stage, subject, trial, WARM_UP_BYTES);
  for (const { bytes, costs } of all) {
    try {
      costs[contestant].push(await once(stage, subject, trial, bytes));
    } catch (error) {
      if (contestant !== 'naive' || !(error instanceof ChildError)) throw error;
    }
  }
}

/** Sends one file in one invocation, and checks that it arrived. */
async function once(stage: Stage, subject: Subject, trial: Trial, bytes: number): Promise<Cost> {
  const { direction, contestant } = trial;
  if (contestant === 'relay') return relayOnce(stage, subject, trial, bytes);
  if (direction === 'in') {
    const { value, ...cost } = await subject.call('invoke', { event: stage.uploads(bytes, 1) });
    const { receivedBytes = 0 } = await stage.service.call('takeCounts');
    if (receivedBytes < (bytes * 4) / 3) throw new Error(`${contestant}: ${JSON.stringify(value)}`);
    return cost;
  }
  const [upload] = await stage.addRunning([doneFlow(bytes, stage.next())], contestant === 'naive' ? 'naive' : 'ours');
  const { value, ...cost } = await subject.call('invoke', { event: {} });
  if (contestant === 'ours') {
    const key = `${upload?.key}/${RECEIPT_NAME}`;
    const receipt = JSON.parse((await stage.aws.call('text', { bucket: BUCKETS.results, key })) ?? '{}');
    if (receipt.assets?.[0]?.bytes !== bytes) throw new Error(`${JSON.stringify(receipt)} ${JSON.stringify(value)}`);
  }
  return cost;
}

async function relayOnce(stage: Stage, subject: Subject, { direction }: Trial, bytes: number): Promise<Cost> {
  const aws = { port: stage.port('aws', 'tls') };
  const service = { port: stage.port('service', 'tls') };
  const encodedBytes = asset(bytes).bytes;
  const { value: _, ...cost } = await subject.call(
    'relay',
    direction === 'in'
      ? {
          from: { ...aws, path: `/${BUCKETS.inbox}/${bytes}/relayed` },
          to: { ...service, method: 'POST', path: '/flows' },
          receivedBytes: bytes,
          sentBytes: encodedBytes,
          isHashed: false,
        }
      : {
          from: { ...service, path: `/flows/${doneFlow(bytes, stage.next())}/outputs/asset` },
          to: { ...aws, method: 'PUT', path: `/${BUCKETS.results}/relayed` },
          receivedBytes: encodedBytes,
          sentBytes: bytes,
          isHashed: true,
        },
  );
  return cost;
}
