import type { CallKind, FaultPlanOptions } from './faults.ts';
import { DOUBTFUL, THROTTLING } from './storm-faults.ts';
import { MINUTE } from './timeline.ts';

/** What a storm must have so that a rare call is made more than once. */
export interface StormNeeds {
  readonly isBig?: boolean;
  readonly areOverwritten?: boolean;
  /** True if flows end soon, with assets. */
  readonly areQuick?: boolean;
  readonly areTimedOut?: boolean;
  readonly areSwept?: boolean;
  readonly areRetried?: boolean;
  /** True if a backfill finds uploads whose notifications were lost. */
  readonly areBackfilled?: boolean;
  /** True if assets go on to later stages. */
  readonly areChained?: boolean;
  /** True if routes have an `afterSuccess`. */
  readonly areSettled?: boolean;
  /** True if routes have their flows deleted. */
  readonly areDeleted?: boolean;
  /** True if assets expire. */
  readonly doExpire?: boolean;
  /** True if the operator has stages of chains made anew. */
  readonly areMadeAnew?: boolean;
  /** True if routes have an alias. */
  readonly haveAliases?: boolean;
  /** True if a file is replaced by files of other types, so that its alias moves to another key. */
  readonly areAliasesMoved?: boolean;
  /** True if uploads are held. */
  readonly areHeld?: boolean;
  /** The faults that lead to the call. */
  readonly faultPlan?: FaultPlanOptions;
}

/** Time that a storm leaves for a backfill, in milliseconds. Its ticks may be five minutes apart. */
export const BACKFILL_MS = 15 * MINUTE;

/** The needs of the calls that most storms do not make. */
export const NEEDS: Partial<Record<CallKind, StormNeeds>> = {
  'inbox.head': {
    areRetried: true,
    faultPlan: { rate: 0.6, faults: ['422'], calls: ['flow.create'], persistence: 0 },
  },
  'inbox.list': { areSwept: true },
  'entries.list': { areSwept: true },
  'sweep.get': { areSwept: true },
  'sweep.put': { areSwept: true },
  'asset.put': { areQuick: true },
  'asset.begin': { isBig: true, areQuick: true },
  'asset.put-part': { isBig: true, areQuick: true },
  'asset.complete': { isBig: true, areQuick: true },
  'asset.abort': {
    isBig: true,
    areQuick: true,
    faultPlan: { rate: 0.6, faults: ['half'], calls: ['flow.asset'], persistence: 0 },
  },
  'asset.get': {
    areQuick: true,
    faultPlan: { rate: 0.6, faults: ['lost', 'internal error after'], calls: ['asset.put'], persistence: 0 },
  },
  'receipt.head': { areOverwritten: true },
  'flow.outputs': { areQuick: true },
  'flow.asset': { areQuick: true },
  'flow.abort': { areTimedOut: true },
  'flows.list': { faultPlan: { rate: 0.7, faults: DOUBTFUL, calls: ['flow.create'], persistence: 0 } },
  'chain.get': { areChained: true, areQuick: true },
  'chain.put': { areChained: true, areQuick: true },
  'hold.get': { areHeld: true, areQuick: true },
  'hold.put': { areHeld: true, areQuick: true },
  'source.tags': { areSettled: true, areQuick: true },
  'source.tag': { areSettled: true, areQuick: true },
  'source.delete': { areSettled: true, areQuick: true },
  'alias.get': { haveAliases: true, areQuick: true },
  'alias.put': { haveAliases: true, areQuick: true },
  'alias.head': { haveAliases: true, areQuick: true },
  'alias.copy': { haveAliases: true, areQuick: true },
  'alias.complete': { haveAliases: true, areQuick: true },
  'alias.delete': {
    haveAliases: true,
    areQuick: true,
    areAliasesMoved: true,
    faultPlan: { rate: 0, faults: [], persistence: 0 },
  },
  'asset.head': { areChained: true, areQuick: true, areMadeAnew: true },
  'asset.tags': { areChained: true, areQuick: true, doExpire: true },
  'asset.tag': { areChained: true, areQuick: true, doExpire: true },
  'flow.delete': { areDeleted: true, areQuick: true },
  'queue.ask': { areBackfilled: true, faultPlan: { rate: 0, faults: [], persistence: 0 } },
  'queue.send': { faultPlan: { rate: 0.7, faults: THROTTLING, calls: ['flow.create'], persistence: 0 } },
};
