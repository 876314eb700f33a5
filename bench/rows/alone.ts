import { setTimeout as sleep } from 'node:timers/promises';
import type { Monitoring } from '../../functions/base/telemetry.ts';
import { HOLDS_AGE_MAX_MS } from '../../functions/holds/hold-store.ts';
import { JOB_FILE } from '../../functions/uploads/job-keys.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { BUCKETS } from '../names.ts';
import type { Stage } from '../stage.ts';
import type { Cost } from '../subject.ts';
import { countAnew, plus, type Spent, spentOn, typical } from './spent.ts';

/*
 * Files that come alone: each message has an invocation of create-flow, and each end of a flow a tick. All requests to S3
 * are made then, because nothing is remembered from the file before.
 */

const FILE_BYTES = 20_000;

/** Every key begins with this: the bytes of the file. It is also the prefix of jobs. */
const PREFIX = `${FILE_BYTES}/`;

/** What comes alone. Every flow takes a minute, and makes one asset of 20 KB. */
export interface Case {
  readonly name: string;
  readonly routes: readonly Route[];
  /** The number of files. Default: 1. */
  readonly files?: number;
  /** True if they are the inputs of a job. Otherwise each has a flow of its own. */
  readonly isJob?: boolean;
  /** Flows that are made. */
  readonly flows: number;
  /** Requests by which the daily sweeps read one file or job. Counted by `test/bench/costs.test.ts`. */
  readonly sweepReads: number;
}

const all: Route = { name: 'all', input: 'file', template: 'bytes_echo' };
const jobs: Route = { ...all, jobs: PREFIX };

export const CASES = {
  file: { name: '20 KB, alone', routes: [all], flows: 1, sweepReads: 4 },
  pair: { name: '20 KB, two end together', routes: [all], files: 2, flows: 2, sweepReads: 4 },
  chain: { name: 'and a later stage', routes: [all, { ...all, name: 'later', after: 'all' }], flows: 2, sweepReads: 5 },
  jobOf2: { name: 'job of 2 such files', routes: [jobs], files: 2, isJob: true, flows: 1, sweepReads: 16 },
  jobOf3: { name: 'job of 3 such files', routes: [jobs], files: 3, isJob: true, flows: 1, sweepReads: 22 },
} as const satisfies Readonly<Record<string, Case>>;

/** How many files or jobs a case has. */
export const unitsOf = ({ files = 1, isJob = false }: Case): number => (isJob ? 1 : files);

/** What is put, in this order: the job file last, as `flowdrop put` does. */
export function putsOf(
  { files = 1, isJob = false }: Case,
  folder: string,
): readonly { readonly key: string; readonly job?: string }[] {
  const names = Array.from({ length: files }, (_, index) => `${index + 1}.png`);
  const at = (name: string): string => `${PREFIX}${folder}/${name}`;
  const puts = names.map((name) => ({ key: at(name) }));
  return !isJob ? puts : [...puts, { key: at(JOB_FILE), job: JSON.stringify({ inputs: names }) }];
}

interface Rounds {
  readonly monitoring: Monitoring;
  /** Those before the ones that are counted, with answers at once. A deployed process has seen many files. */
  readonly warmUp: number;
  readonly counted: number;
  /** Time that S3 and the flow service take to answer, in milliseconds. */
  readonly answerMs: number;
}

/**
 * Plays a case through both functions, up to its last receipt.
 * @param tick one that finds nothing. It is subtracted, because ticks are paid for anyway.
 * @throws {Error} not all flows were made, or not all assets fetched.
 */
export async function spentAlone(
  stage: Stage,
  one: Case,
  tick: Spent,
  { monitoring, warmUp, counted, answerMs }: Rounds,
): Promise<Spent> {
  await stage.aws.call('clear');
  await stage.service.call('endAtOnce', { bytes: FILE_BYTES });
  try {
    const environment = { ...stage.environment('tls'), MONITORING: monitoring, ROUTES: JSON.stringify(one.routes) };
    await using create = await stage.subject('ours', 'create-flow', environment);
    await using collect = await stage.subject('ours', 'collect-outputs', environment);
    let pauseMs = 0;
    const deliver = async (message: string): Promise<Cost> => {
      await sleep(pauseMs);
      return create.call('invoke', { event: stage.event([message]) });
    };
    const once = () => play(stage, one, deliver, () => collect.call('invoke', { event: {} }));
    for (let round = 0; round < warmUp; round += 1) await once();
    await stage.setAnswerMs(answerMs);
    // The holds are read again then.
    pauseMs = HOLDS_AGE_MAX_MS;
    const all: Spent[] = [];
    for (let round = 0; round < counted; round += 1) {
      await countAnew(stage);
      const { create: creations, ticks, puts } = await once();
      // S3 sends a message of each put. The event source receives and deletes each message.
      const received = creations.length;
      const queue = { SendMessage: puts, ReceiveMessage: received, DeleteMessage: received };
      const whole = await spentOn(stage, [...creations, ...ticks], queue);
      if (whole.served.create !== one.flows || whole.served.asset !== one.flows) {
        throw new Error(`${one.name}: expected ${one.flows} flows with an asset each: ${JSON.stringify(whole.served)}`);
      }
      all.push(plus(whole, tick, -ticks.length));
    }
    return typical(all);
  } finally {
    await stage.setAnswerMs(0);
    await stage.service.call('endAtOnce', {});
  }
}

interface Played {
  readonly create: readonly Cost[];
  readonly ticks: readonly Cost[];
  readonly puts: number;
}

async function play(
  stage: Stage,
  one: Case,
  deliver: (message: string) => Promise<Cost>,
  tick: () => Promise<Cost>,
): Promise<Played> {
  const create: Cost[] = [];
  const ticks: Cost[] = [];
  for (const { key, job } of putsOf(one, `${stage.next()}`)) {
    if (job !== undefined) await stage.aws.call('put', [{ bucket: BUCKETS.inbox, key, body: job }]);
    create.push(await deliver(stage.message(key, job?.length ?? FILE_BYTES)));
  }
  const puts = create.length;
  for (let messages: readonly string[] = ['']; messages.length > 0; ) {
    ticks.push(await tick());
    messages = await stage.aws.call('takeMessages');
    for (const message of messages) create.push(await deliver(message));
  }
  return { create, ticks, puts };
}
