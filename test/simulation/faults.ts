import type { Random } from './random.ts';

const S3_CALLS = [
  'inbox.get',
  'inbox.head',
  'inbox.list',
  'entry.get',
  'entry.create',
  'entry.replace',
  'entries.list',
  'marker.put',
  'marker.delete',
  'markers.list',
  'lease.get',
  'lease.put',
  'sweep.get',
  'sweep.put',
  'asset.put',
  'asset.begin',
  'asset.put-part',
  'asset.complete',
  'asset.abort',
  'asset.get',
  'receipt.put',
  'receipt.head',
] as const;

const SERVICE_CALLS = ['flow.create', 'flow.get', 'flow.outputs', 'flow.asset', 'flow.abort', 'flows.list'] as const;
/** Calls that `deleteFlow` of a route makes. They come last of all, for the same reason. */
const DELETION_CALLS = ['flow.delete'] as const;
export type ServiceCallKind = (typeof SERVICE_CALLS | typeof DELETION_CALLS)[number];

const OTHER_CALLS = ['secret.read', 'queue.send', 'event.send'] as const;

/** Calls of S3 that only chains make. They come last, so that the focus of the others' seeds stays. */
const CHAIN_CALLS = ['chain.get', 'chain.put'] as const;
/** Calls that only backfills make. */
const BACKFILL_CALLS = ['queue.ask'] as const;

/** Calls about holds. They come last for the same reason. */
const HOLD_CALLS = ['hold.get', 'hold.put'] as const;

/** Calls that `afterSuccess` of a route makes. They come last for the same reason. */
const SOURCE_CALLS = ['source.tags', 'source.tag', 'source.delete'] as const;
/** Calls that the aliases of routes make, beside the beginning and the end of multipart uploads. */
const ALIAS_CALLS = ['alias.get', 'alias.put', 'alias.head', 'alias.copy', 'alias.complete', 'alias.delete'] as const;
/** Calls about assets that later stages have taken: to take them anew, and to let them expire. */
const TAKEN_CALLS = ['asset.head', 'asset.tags', 'asset.tag'] as const;
export type S3CallKind = (
  | typeof S3_CALLS
  | typeof CHAIN_CALLS
  | typeof HOLD_CALLS
  | typeof SOURCE_CALLS
  | typeof ALIAS_CALLS
  | typeof TAKEN_CALLS
)[number];
export type CallKind = S3CallKind | ServiceCallKind | (typeof OTHER_CALLS | typeof BACKFILL_CALLS)[number];

const CALLS: readonly CallKind[] = [
  ...S3_CALLS,
  ...SERVICE_CALLS,
  ...OTHER_CALLS,
  ...CHAIN_CALLS,
  ...BACKFILL_CALLS,
  ...HOLD_CALLS,
  ...SOURCE_CALLS,
  ...ALIAS_CALLS,
  ...DELETION_CALLS,
  ...TAKEN_CALLS,
];
const S3_NO_BODY: readonly CallKind[] = [
  'asset.head',
  'alias.head',
  'alias.copy',
  'alias.delete',
  'inbox.head',
  'receipt.head',
  'marker.delete',
  'asset.abort',
  'asset.begin',
  'source.delete',
];

const oneOf =
  (calls: readonly CallKind[]) =>
  (call: CallKind): boolean =>
    calls.includes(call);
const isS3 = oneOf([...S3_CALLS, ...CHAIN_CALLS, ...HOLD_CALLS, ...SOURCE_CALLS, ...ALIAS_CALLS, ...TAKEN_CALLS]);
const isService = oneOf([...SERVICE_CALLS, ...DELETION_CALLS]);
const isOther = oneOf([...OTHER_CALLS, ...BACKFILL_CALLS]);
/** The answer of these calls is JSON, and not an asset. */
const hasJsonAnswer = (call: CallKind): boolean => isService(call) && call !== 'flow.asset';

/** All faults, each with its meaning and the calls that can meet it. */
const FAULTS = {
  /** No connection: the call fails before it takes effect. */
  refused: () => true,
  /** The call takes effect, and the answer is lost. */
  lost: () => true,
  /** The call takes most of a minute. */
  slow: () => true,
  /** The connection breaks in the middle of the request's body, or of the answer's if the request has none. */
  half: (call) => !S3_NO_BODY.includes(call) && !isOther(call),
  /** The call takes effect after the client has given up. */
  late: (call) => !isService(call),
  /** The process is killed before the call, or after it has taken effect. */
  'killed before': () => true,
  'killed after': () => true,
  /** The process is frozen, for longer or shorter than a claim holds. */
  frozen: () => true,
  // Faults of S3.
  'slow down': isS3,
  'internal error': isS3,
  /** The same answer, although the call has taken effect. */
  'internal error after': (call) => isS3(call) && !call.endsWith('.list') && !/\.(get|head|tags)$/.test(call),
  conflict: (call) =>
    /^(entry\.(create|replace)|(lease|chain|hold|receipt)\.put|asset\.(put|complete)|source\.delete|alias\.(put|complete|delete))$/.test(
      call,
    ),
  // A fault of Secrets Manager, SQS and EventBridge.
  throttled: isOther,
  // Faults of the service.
  '401': isService,
  '402': isService,
  '403': isService,
  '404': isService,
  '422': isService,
  '429 without Retry-After': isService,
  '429 in seconds': isService,
  '429 with a date': isService,
  '500': isService,
  '500 after': (call) => ['flow.create', 'flow.abort', 'flow.delete'].includes(call),
  '502': isService,
  '503': isService,
  '503 in seconds': isService,
  /** No answer comes. The call has no effect, or has one. */
  hung: isService,
  'hung after': isService,
  /** The answer ends early: the connection breaks, or closes as if all had been sent. */
  truncated: isService,
  'cut cleanly': hasJsonAnswer,
  /** A byte in the middle becomes one that is not allowed in JSON. */
  garbled: hasJsonAnswer,
  /** JSON without any id. */
  'no ids': (call) => hasJsonAnswer(call) && call !== 'flow.abort' && call !== 'flow.delete',
  /** A list without entries, which says of itself that it failed. */
  'failed list': (call) => call === 'flows.list' || call === 'flow.outputs',
  endless: isService,
  /** A gateway answers in place of the service, mostly after the call has taken effect. */
  gateway: (call) => call === 'flow.create',
  /** The call takes effect, and its answer comes a byte at a time, without end. */
  trickled: (call) => call === 'flow.create',
  /** A login comes as a page, with 200. */
  page: (call) => call === 'flow.asset',
} satisfies Record<string, (call: CallKind) => boolean>;

export type Fault = keyof typeof FAULTS;

/** True if a fault is not the file's: the account, the token or the service is the cause. */
export const isAccountFault = (fault: Fault): boolean =>
  fault.startsWith('429') || fault === '402' || fault === '503 in seconds' || fault === '401';

export const ALL_FAULTS = Object.keys(FAULTS) as readonly Fault[];

/** The faults that a call can meet, of all or of some. */
const faultsOf = (call: CallKind, some = ALL_FAULTS): readonly Fault[] => some.filter((fault) => FAULTS[fault](call));

/** Every pair of a call and a fault that it can meet. */
export const PAIRS: readonly string[] = CALLS.flatMap((call) => faultsOf(call).map((fault) => pair(call, fault)));

function pair(call: CallKind, fault: Fault): string {
  return `${call} × ${fault}`;
}

/** The call that a seed concentrates on, and the faults that the call must meet. */
export interface Focus {
  readonly call: CallKind;
  readonly faults: readonly Fault[];
}

/** Number of faults in a focus. */
const FOCUS_FAULTS = 4;

/** All pairs, as focuses on one call with a few faults each. */
const FOCUSES: readonly Focus[] = CALLS.flatMap((call) => {
  const faults = faultsOf(call);
  return Array.from({ length: Math.ceil(faults.length / FOCUS_FAULTS) }, (_, at) => ({
    call,
    faults: faults.slice(at * FOCUS_FAULTS, (at + 1) * FOCUS_FAULTS),
  }));
});

/**
 * The focus of a seed. By chance alone, rare calls would not meet rare faults for thousands of seeds. Therefore every
 * other seed has a focus. They take turns: a few hundred seeds in a row go through all pairs.
 */
export const focusOf = (seed: number): Focus | undefined =>
  seed % 2 === 0 ? FOCUSES[(seed / 2) % FOCUSES.length] : undefined;

/** Number of times that each pair of a call and a fault occurred. */
export type FaultTable = Record<string, number>;

export interface FaultPlanOptions {
  /** Share of calls that meet a fault, from 0 to 1. */
  readonly rate: number;
  readonly faults: readonly Fault[];
  /** The calls that can meet a fault. Default: all. */
  readonly calls?: readonly CallKind[] | undefined;
  /** Probability that the next attempt of a call meets the same fault. */
  readonly persistence: number;
  /** Its faults happen once each, if its call is made often enough. */
  readonly focus?: Focus | undefined;
}

/** Calls that a tick makes without any work to do. They get fewer faults, or they would get nearly all. */
const IDLE_CALLS: readonly CallKind[] = [
  'lease.get',
  'lease.put',
  'markers.list',
  'sweep.get',
  'secret.read',
  'hold.get',
];
/** Calls that are rare, and as important as the others. */
const RARE_CALLS: readonly CallKind[] = [
  'inbox.head',
  'inbox.list',
  'entries.list',
  'sweep.put',
  'asset.begin',
  'asset.put-part',
  'asset.get',
  'receipt.put',
  'receipt.head',
  'queue.send',
  'event.send',
  'chain.get',
  'chain.put',
  'source.tags',
  'source.tag',
  'source.delete',
  ...ALIAS_CALLS,
  ...DELETION_CALLS,
  ...TAKEN_CALLS,
];
/** Calls that only one world in many makes. */
const SINGULAR_CALLS: readonly CallKind[] = ['asset.complete', 'asset.abort', 'flow.abort', 'queue.ask'];
const IDLE_SHARE = 0.25;
const RARE_SHARE = 4;
const SINGULAR_SHARE = 12;
/** Share of the calls in focus that meet one of its faults, until each fault has happened. */
const FOCUS_SHARE = 0.7;

function shareOf(call: CallKind): number {
  if (IDLE_CALLS.includes(call)) return IDLE_SHARE;
  if (SINGULAR_CALLS.includes(call)) return SINGULAR_SHARE;
  return RARE_CALLS.includes(call) ? RARE_SHARE : 1;
}

/** Decides which fault each call meets, until the storm is over. */
export class FaultPlan {
  readonly table: FaultTable = {};
  readonly calls: Record<string, number> = {};
  readonly #random: Random;
  readonly #options: FaultPlanOptions;
  /** Faults that the call in focus has yet to meet. */
  readonly #due: Fault[];
  /** True if no call meets a fault. */
  isClear = true;

  constructor(random: Random, options: FaultPlanOptions) {
    this.#random = random;
    this.#options = options;
    this.#due = [...(options.focus?.faults ?? [])];
  }

  /** The fault that a call meets. */
  draw(call: CallKind): Fault | undefined {
    this.calls[call] = (this.calls[call] ?? 0) + 1;
    if (this.isClear) return undefined;
    const fault = this.#drawDue(call) ?? this.#drawAny(call);
    if (fault === undefined) return undefined;
    const name = pair(call, fault);
    this.table[name] = (this.table[name] ?? 0) + 1;
    return fault;
  }

  #drawDue(call: CallKind): Fault | undefined {
    if (call !== this.#options.focus?.call || this.#due.length === 0) return undefined;
    if (!this.#random.chance(FOCUS_SHARE)) return undefined;
    return this.#due.splice(this.#random.int(0, this.#due.length - 1), 1)[0];
  }

  #drawAny(call: CallKind): Fault | undefined {
    if (!this.#random.chance(Math.min(0.9, this.#options.rate * shareOf(call)))) return undefined;
    if (this.#options.calls?.includes(call) === false) return undefined;
    const faults = faultsOf(call, this.#options.faults);
    return faults.length === 0 ? undefined : this.#random.pick(faults);
  }

  /** True if the next attempt of a call meets the same fault. */
  stays(): boolean {
    return !this.isClear && this.#random.chance(this.#options.persistence);
  }
}
