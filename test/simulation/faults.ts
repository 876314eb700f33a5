import type { Random } from './random.ts';

export const S3_CALLS = [
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
export type S3CallKind = (typeof S3_CALLS)[number];

export const SERVICE_CALLS = [
  'flow.create',
  'flow.get',
  'flow.outputs',
  'flow.asset',
  'flow.download',
  'flow.abort',
  'flows.list',
] as const;
export type ServiceCallKind = (typeof SERVICE_CALLS)[number];

export const OTHER_CALLS = ['secret.read', 'queue.send', 'event.send'] as const;
export type CallKind = S3CallKind | ServiceCallKind | (typeof OTHER_CALLS)[number];

const CALLS: readonly CallKind[] = [...S3_CALLS, ...SERVICE_CALLS, ...OTHER_CALLS];

/** Everything that can go wrong with a call, each with what it means and the calls it can happen to. */
const FAULTS = {
  /** It fails before it takes effect: no connection. */
  refused: () => true,
  /** It takes effect, and the answer is lost. */
  lost: () => true,
  /** It takes most of a minute. */
  slow: () => true,
  /** The connection breaks half-way through the body: of the request where there is one, else of the answer. */
  half: (call) => ![...S3_NO_BODY, 'secret.read', 'queue.send', 'event.send'].includes(call),
  /** The client gives up, and only then it takes effect. */
  late: (call) => !isService(call),
  /** The process is killed before the call, or when the call has taken effect. */
  'killed before': () => true,
  'killed after': () => true,
  /** The process stands still from here on, for longer than a claim holds, or only a little. */
  frozen: () => true,
  // S3's own.
  'slow down': isS3,
  'internal error': isS3,
  /** The same answer, although the call has taken effect. */
  'internal error after': (call) => isS3(call) && !call.endsWith('.list') && !/\.(get|head)$/.test(call),
  conflict: (call) =>
    ['entry.create', 'entry.replace', 'lease.put', 'asset.put', 'asset.complete', 'receipt.put'].includes(call),
  // Of Secrets Manager, SQS and EventBridge.
  throttled: isOther,
  // The service's own.
  '401': isAuthorised,
  '402': isAuthorised,
  '403': isAuthorised,
  '404': isAuthorised,
  '422': isAuthorised,
  '429 without Retry-After': isAuthorised,
  '429 in seconds': isAuthorised,
  '429 with a date': isAuthorised,
  '500': isService,
  '500 after': (call) => call === 'flow.create' || call === 'flow.abort',
  '502': isService,
  '503': isService,
  '503 in seconds': isService,
  /** No answer comes, and the call has no effect, or has one. */
  hung: isService,
  'hung after': isService,
  /** The answer ends early, with or without the connection telling so. */
  truncated: (call) => isService(call),
  'cut cleanly': (call) => isService(call) && call !== 'flow.asset' && call !== 'flow.download',
  /** A byte in the middle becomes one that no JSON has. */
  garbled: (call) => isService(call) && call !== 'flow.asset' && call !== 'flow.download',
  /** JSON that says nothing. */
  'no ids': (call) => isService(call) && call !== 'flow.asset' && call !== 'flow.download' && call !== 'flow.abort',
  endless: isService,
} satisfies Record<string, (call: CallKind) => boolean>;

export type Fault = keyof typeof FAULTS;

/** Faults that say nothing of the file: the account, the token or the service is the cause. */
export const isAccountFault = (fault: Fault): boolean =>
  fault.startsWith('429') || fault === '402' || fault === '503 in seconds' || fault === '401';

export const ALL_FAULTS = Object.keys(FAULTS) as readonly Fault[];

const S3_NO_BODY: readonly CallKind[] = ['inbox.head', 'receipt.head', 'marker.delete', 'asset.abort', 'asset.begin'];

function isS3(call: CallKind): boolean {
  return (S3_CALLS as readonly string[]).includes(call);
}

function isOther(call: CallKind): boolean {
  return (OTHER_CALLS as readonly string[]).includes(call);
}

function isService(call: CallKind): boolean {
  return (SERVICE_CALLS as readonly string[]).includes(call);
}

/** A download from elsewhere bears no token, and so knows nothing of accounts. */
function isAuthorised(call: CallKind): boolean {
  return isService(call) && call !== 'flow.download';
}

export const isApplicable = (fault: Fault, call: CallKind): boolean => FAULTS[fault](call);

/** Every pair of a call and a fault that can happen to it. */
export const PAIRS: readonly string[] = CALLS.flatMap((call) =>
  ALL_FAULTS.filter((fault) => isApplicable(fault, call)).map((fault) => pair(call, fault)),
);

export function pair(call: CallKind, fault: Fault): string {
  return `${call} × ${fault}`;
}

/** A call that a seed looks at most of all, and the faults that it is to meet there. */
export interface Focus {
  readonly call: CallKind;
  readonly faults: readonly Fault[];
}

/** Faults that a seed in focus has for its call. */
const FOCUS_FAULTS = 4;

/** All pairs, a few of one call at a time. */
const FOCUSES: readonly Focus[] = CALLS.flatMap((call) => {
  const faults = ALL_FAULTS.filter((fault) => isApplicable(fault, call));
  return Array.from({ length: Math.ceil(faults.length / FOCUS_FAULTS) }, (_, at) => ({
    call,
    faults: faults.slice(at * FOCUS_FAULTS, (at + 1) * FOCUS_FAULTS),
  }));
});

/**
 * Chance alone would leave rare calls without rare faults for thousands of seeds. So every other seed has a focus, and
 * they take turns: a few hundred seeds in a row go once through all pairs.
 */
export const focusOf = (seed: number): Focus | undefined =>
  seed % 2 === 0 ? FOCUSES[(seed / 2) % FOCUSES.length] : undefined;

/** How often what happened to a call. */
export type FaultTable = Record<string, number>;

export interface FaultPlanOptions {
  /** Share of calls that something happens to, from 0 to 1. */
  readonly rate: number;
  readonly faults: readonly Fault[];
  /** Only these calls are touched. */
  readonly calls?: readonly CallKind[] | undefined;
  /** Share of faults that stay for every further attempt of the same call. */
  readonly persistence: number;
  /** Its faults happen once each, as soon as its call is made often enough. */
  readonly focus?: Focus | undefined;
}

/** Calls that a tick makes whether there is work or not: nearly all faults would be theirs. */
const IDLE_CALLS: readonly CallKind[] = ['lease.get', 'lease.put', 'markers.list', 'sweep.get', 'secret.read'];
/** Calls that are made rarely, and are as important as any. */
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
  'flow.download',
  'queue.send',
  'event.send',
];
/** Calls of which there is one in many worlds. */
const SINGULAR_CALLS: readonly CallKind[] = ['asset.complete', 'asset.abort', 'flow.abort'];
const IDLE_SHARE = 0.25;
const RARE_SHARE = 4;
const SINGULAR_SHARE = 12;
/** Share of the calls in focus that meet one of its faults, until all have been met. */
const FOCUS_SHARE = 0.7;

function shareOf(call: CallKind): number {
  if (IDLE_CALLS.includes(call)) return IDLE_SHARE;
  if (SINGULAR_CALLS.includes(call)) return SINGULAR_SHARE;
  return RARE_CALLS.includes(call) ? RARE_SHARE : 1;
}

/** What goes wrong, until it clears up. */
export class FaultPlan {
  readonly table: FaultTable = {};
  readonly calls: Record<string, number> = {};
  readonly #random: Random;
  readonly #options: FaultPlanOptions;
  /** What has still to happen to the call in focus. */
  readonly #due: Fault[];
  /** While it is clear nothing goes wrong. */
  isClear = true;

  constructor(random: Random, options: FaultPlanOptions) {
    this.#random = random;
    this.#options = options;
    this.#due = [...(options.focus?.faults ?? [])];
  }

  /** What happens to this call. */
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
    const possible = this.#options.faults.filter((fault) => isApplicable(fault, call));
    return possible.length === 0 ? undefined : this.#random.pick(possible);
  }

  /** Whether the next attempt of a call meets the same fate. */
  stays(): boolean {
    return !this.isClear && this.#random.chance(this.#options.persistence);
  }
}
