import { atMost, type Check, exactly, figure, type Report, size } from '../report.ts';
import { doneFlow } from '../servers/flow-service.ts';
import type { Stage } from '../stage.ts';
import { spread } from '../statistics.ts';

const ASSETS = 200;
const ASSET_BYTES = 100_000;
/** Delay of every answer of every server, in milliseconds. */
const ANSWER_MS = 50;
const WALL_MS_MAX = 3_000;

interface Round {
  readonly wallMs: number;
  readonly cpuMs: number;
  readonly downloads: number;
}

/** Measures one tick that finds one flow ended, with many small assets. Every server answers with a delay. */
export async function manyAssets(stage: Stage, { rounds }: { readonly rounds: number }): Promise<Report> {
  const each: Round[] = [];
  for (let round = 0; round < rounds; round += 1) each.push(await store(stage));
  const wall = spread(each.map(({ wallMs }) => wallMs));
  const cpu = spread(each.map(({ cpuMs }) => cpuMs));
  const downloads = Math.max(...each.map(({ downloads }) => downloads));
  const what = `assets: ${ASSETS} of ${size(ASSET_BYTES)}`;
  const checks: readonly Check[] = [
    atMost(`${what}, stored`, wall.median / 1000, WALL_MS_MAX / 1000, ' s'),
    exactly(`${what}, downloads`, downloads, ASSETS),
  ];
  return {
    name: 'assets',
    checks,
    figures: each,
    tables: [
      {
        title: `One flow with ${ASSETS} assets of ${size(ASSET_BYTES)}, every server answers after ${ANSWER_MS} ms`,
        columns: ['wall ms', 'fastest', 'slowest', 'cpu ms'],
        rows: [[wall.median, wall.min, wall.max, cpu.median].map(figure)],
        note: 'The whole tick: lease, listing, poll, assets, receipt and event.',
      },
    ],
  };
}

async function store(stage: Stage): Promise<Round> {
  await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('plain'));
  const setAnswerMs = (answerMs: number) =>
    Promise.all([stage.aws.call('setAnswerMs', { answerMs }), stage.service.call('setAnswerMs', { answerMs })]);
  try {
    const collect = async (assets: number) => {
      await stage.addRunning([doneFlow('raw', ASSET_BYTES, stage.next(), assets)], 'ours');
      const { value, ...cost } = await subject.call('invoke', { event: {} });
      const { succeeded } = value as { succeeded?: number };
      if (succeeded !== 1) throw new Error(`Not 1 flow collected: ${JSON.stringify(value)}`);
      return cost;
    };
    await collect(1);
    await stage.service.call('takeCounts');
    await setAnswerMs(ANSWER_MS);
    const { wallMs, cpuMs } = await collect(ASSETS);
    const { asset: downloads = 0 } = await stage.service.call('takeCounts');
    return { wallMs, cpuMs, downloads };
  } finally {
    await setAnswerMs(0);
  }
}
