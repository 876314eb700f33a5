import { ended, firstClaim, running } from '../../functions/ledger/entry.ts';
import { entryKey, SWEEP_KEY } from '../../functions/ledger/keys.ts';
import type { SweepState } from '../../functions/sweep/sweep-state.ts';
import { BUCKETS, FILE_MODIFIED } from '../names.ts';
import { exactly, figure, type Report } from '../report.ts';
import type { Stage } from '../stage.ts';
import { type Counts, total } from './requests.ts';

interface SweepOptions {
  /** Uploads since the last sweep. All of them have succeeded. */
  readonly uploads: number;
  /** Entries of uploads that ended in the year before. */
  readonly oldEntries: number;
}

interface Pass {
  readonly oldEntries: number;
  readonly s3: Counts;
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** Measures a daily sweep over one day's uploads, without history and beside a year of it. */
export async function sweep(stage: Stage, { uploads, oldEntries }: SweepOptions): Promise<Report> {
  const passes: Pass[] = [];
  try {
    for (const old of [0, oldEntries]) passes.push(await pass(stage, { uploads, oldEntries: old }));
  } finally {
    await stage.aws.call('clear');
  }
  const [without, beside] = passes.map(({ s3 }) => total(s3));
  return {
    name: 'sweep',
    figures: passes,
    checks: [
      exactly(`sweep: S3 requests beside ${oldEntries} old entries`, beside ?? Number.NaN, without ?? Number.NaN),
    ],
    tables: [
      {
        title: `A daily sweep after ${uploads} uploads`,
        columns: ['old entries', 'S3 requests', 'of these listings', 'wall s', 'cpu s'],
        rows: passes.map(({ oldEntries: old, s3, wallMs, cpuMs }) => [
          String(old),
          String(total(s3)),
          String((s3.ListObjectsV2 ?? 0) + (s3.ListObjectVersions ?? 0)),
          figure(wallMs / 1000),
          figure(cpuMs / 1000),
        ]),
        note: 'Every upload is compared with its entry, and every entry that changed is read. The tick around it is included.',
      },
    ],
  };
}

async function pass(stage: Stage, { uploads, oldEntries }: SweepOptions): Promise<Pass> {
  await stage.aws.call('clear');
  if (oldEntries > 0) await stage.aws.call('fill', { entries: oldEntries });
  await addSucceeded(stage, uploads);
  const at = Date.parse(FILE_MODIFIED);
  const state: SweepState = { firstDay: at - 1000, watermark: at - 1000 };
  await stage.aws.call('put', [{ bucket: BUCKETS.ledger, key: SWEEP_KEY, body: JSON.stringify(state) }]);
  await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('plain'));
  await subject.call('invoke', { event: { sweep: {} } });
  await stage.aws.call('takeCounts');
  const { wallMs, cpuMs } = await subject.call('invoke', { event: {} });
  const { GetSecretValue: _, ...s3 } = await stage.aws.call('takeCounts');
  const swept = JSON.parse((await stage.aws.call('text', { bucket: BUCKETS.ledger, key: SWEEP_KEY })) ?? '');
  const { compared, missed } = (swept as SweepState).ended?.daily?.counts ?? { compared: 0, missed: 0 };
  if (compared !== uploads || missed > 0) throw new Error(`${compared} of ${uploads} compared, ${missed} missed`);
  return { oldEntries, s3, wallMs, cpuMs };
}

/** Adds uploads that have succeeded, to the inbox and to the ledger. */
async function addSucceeded(stage: Stage, count: number): Promise<void> {
  const now = Date.now();
  const route = { name: 'all', input: 'file', template: 'bytes_echo' } as const;
  const keys: string[] = [];
  for (let done = 0; done < count; done += 10_000) {
    const objects = Array.from({ length: Math.min(10_000, count - done) }, () => {
      const upload = stage.upload(1);
      keys.push(upload.key);
      const claim = firstClaim(upload, route, { claimedAt: now, deadline: now, pipeline: 'bench' });
      const entry = ended(running(claim, { id: upload.id, createdAt: now }), {}, now);
      return { bucket: BUCKETS.ledger, key: entryKey(upload.id), body: JSON.stringify({ ...entry, nonce: '' }) };
    });
    await stage.aws.call('put', objects);
  }
  await stage.aws.call('listInbox', keys);
}
