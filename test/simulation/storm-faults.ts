import { ALL_FAULTS, type CallKind, type Fault, type FaultPlanOptions } from './faults.ts';
import type { Random } from './random.ts';

/** Faults that leave open whether a flow was made. */
export const DOUBTFUL: readonly Fault[] = [
  'lost',
  '500 after',
  '500',
  '502',
  'hung after',
  'truncated',
  'garbled',
  'no ids',
  'failed list',
  'endless',
  'trickled',
  'gateway',
  'killed after',
  'cut cleanly',
];
export const THROTTLING: readonly Fault[] = [
  '429 without Retry-After',
  '429 in seconds',
  '429 with a date',
  '503 in seconds',
];
const KILLING: readonly Fault[] = ['killed before', 'killed after', 'lost'];
const S3_TROUBLE: readonly Fault[] = [
  'refused',
  'lost',
  'slow',
  'half',
  'late',
  'slow down',
  'internal error',
  'internal error after',
  'conflict',
];

export function stormFaultsOf(random: Random): FaultPlanOptions {
  const mood = random.int(1, 20);
  const persistence = random.pick([0, 0.3, 0.8, 1]);
  const rate = random.pick([0.02, 0.05, 0.1, 0.2]);
  const strong = random.pick([0.1, 0.25, 0.5]);
  const only = (faults: readonly Fault[], share: number, calls?: readonly CallKind[]): FaultPlanOptions => ({
    rate: share,
    faults,
    calls,
    persistence,
  });
  if (mood === 1) return only([], 0);
  if (mood === 2) return only(THROTTLING, random.pick([0.3, 0.6, 0.9]));
  if (mood === 3) return only(['401', '403'], strong);
  if (mood === 4) return only(['gateway'], strong, ['flow.create']);
  if (mood <= 6) return only(DOUBTFUL, strong, random.chance(0.5) ? ['flow.create'] : ['flow.create', 'flows.list']);
  if (mood <= 8) return only(KILLING, random.pick([0.02, 0.05, 0.1]));
  if (mood === 9) return only(['frozen', 'slow', 'late'], random.pick([0.02, 0.05, 0.1]));
  if (mood <= 11) return only(S3_TROUBLE, random.pick([0.1, 0.25]));
  if (mood === 12) return only(['truncated', 'half', 'garbled', 'cut cleanly', 'endless', 'hung'], rate);
  if (mood === 13) return only(['lost', 'killed after', 'internal error after', 'late'], rate);
  return only(random.chance(0.3) ? random.some(ALL_FAULTS, 0.4) : ALL_FAULTS, rate);
}

const BIG_CALLS = [
  'asset.begin',
  'asset.put-part',
  'asset.complete',
  'asset.abort',
  'asset.get',
  'flow.asset',
] as const;

/** Faults of the calls that store a large asset. */
export function bigAssetFaultsOf(random: Random): FaultPlanOptions {
  return { rate: 0.12, faults: ALL_FAULTS, calls: BIG_CALLS, persistence: random.pick([0, 1]) };
}
