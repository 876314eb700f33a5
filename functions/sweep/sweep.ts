import { iso } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import { secondsBetween } from '../base/telemetry.ts';
import { keptFrom, SWEEP_REACH_MS } from '../ledger/waits.ts';
import type { Settings } from '../settings/environment.ts';
import { type SweepPorts, SweepRun, type SweepSummary } from './sweep-run.ts';
import {
  type EndedPass,
  NOTHING_DONE,
  type PerKind,
  SWEEP_KINDS,
  type SweepCounts,
  type SweepKind,
  type SweepPass,
  type SweepState,
  SweepStateStore,
} from './sweep-state.ts';

/**
 * Time after which the sweep is due again, in milliseconds. It counts from the watermark, which only a pass that has
 * ended moves.
 */
const SWEEP_INTERVAL_MS = 24 * 3_600_000;

/** Age of the last sweep from which it is measured, in milliseconds. Its alarm is raised after two days. */
const MEASURED_AFTER_MS = SWEEP_INTERVAL_MS + 3_600_000;

/** Missed uploads that are submitted in a second by default. Few, so that today's files need not wait for them. */
const UPLOADS_PER_SECOND_DEFAULT = 10;

/**
 * Longest time from a deployment that replaces the inbox to its first tick, in milliseconds. Ticks may fail meanwhile, and
 * notifications may be lost.
 */
const FIRST_TICK_MAX_MS = 3_600_000;

interface SweepRequest {
  /**
   * Sweep the uploads from then on, also those from before the deployment's first day. Milliseconds since the epoch.
   */
  readonly since?: number | undefined;
  /** Only count the missed uploads and incomplete entries. */
  readonly dryRun?: boolean | undefined;
  /** Go back further than entries are kept. An upload whose entry has expired is paid for again. */
  readonly force?: boolean | undefined;
  readonly uploadsPerSecond?: number | undefined;
  /** Stop the backfill or dry run that is under way, and do nothing else. */
  readonly stop?: boolean | undefined;
  /** Answer which passes are under way and how the last ones ended, and do nothing else. */
  readonly status?: boolean | undefined;
}

/** How far a pass is, or how it ended. Times are in ISO 8601. */
export interface PassReport extends SweepCounts {
  readonly since: string;
  readonly startedAt: string;
  /** Undefined while the pass is under way. */
  readonly endedAt?: string;
}

/** The answer to a request: all passes. */
export interface SweepReport {
  readonly underWay: PerKind<PassReport>;
  /** The last pass of each kind that ended. */
  readonly ended: PerKind<PassReport>;
}

/** A pass is under way already. Two backfills would submit the same uploads twice. */
export class PassUnderWayError extends Error {
  override readonly name = 'PassUnderWayError';
}

/** The request covers a time whose entries may have expired, and does not say `force`. */
export class SinceTooEarlyError extends Error {
  override readonly name = 'SinceTooEarlyError';
}

/**
 * Records a request for a pass. The ticks run it, because a pass may take hours, and a client that waits for the answer
 * of an invocation gives up after a minute.
 * @throws {SinceTooEarlyError} @throws {PassUnderWayError}
 */
export async function requestSweep(
  { stop, status, ...request }: SweepRequest,
  ports: SweepPorts,
  { closing }: Invocation,
): Promise<SweepReport> {
  const { clock, settings, nonce, telemetry } = ports;
  const store = storeOf(ports);
  if (status === true) return reportOf(await store.read(closing));
  if (stop === true) {
    return reportOf(await store.update((state) => ({ ...state, backfill: undefined, dryRun: undefined }), closing));
  }
  const kind = request.dryRun === true ? 'dryRun' : request.since === undefined ? 'daily' : 'backfill';
  const [id, now] = [nonce(), clock.now()];
  const state = await store.update((current) => {
    if (current[kind]?.holder === id) return current; // The write succeeded, and only its answer was lost.
    demandNoPass(kind === 'daily' ? ['daily'] : ['backfill', 'dryRun'], current);
    return { ...current, [kind]: { ...newPass(current, request, now, settings), holder: id } };
  }, closing);
  const report = reportOf(state);
  telemetry.log.info('Sweep requested', { kind, since: report.underWay[kind]?.since });
  return report;
}

/** @throws {PassUnderWayError} one of these passes is under way. */
function demandNoPass(kinds: readonly SweepKind[], state: SweepState): void {
  const found = underWay(state, kinds);
  if (found === undefined) return;
  const { kind, pass } = found;
  const { compared, missed, repaired } = pass.counts ?? NOTHING_DONE;
  const name = { daily: 'daily pass', backfill: 'backfill', dryRun: 'dry run' }[kind];
  const done = `${compared} uploads compared, ${missed} missed, ${repaired} entries repaired`;
  const stop = kind === 'daily' ? '' : '; {"sweep": {"stop": true}} stops it';
  throw new PassUnderWayError(
    `A ${name} since ${iso(pass.since)} is under way (${done}) and continues with each tick${stop}`,
  );
}

/**
 * Continues the sweep, so that every upload gets an outcome even if its notification was lost. Begins the daily pass if
 * it is due: if this tick cannot begin it, the tick of the next minute does. One run works at a time, on one pass. A
 * daily pass goes before a backfill or dry run, which then continues, so even a backfill of weeks does not delay it.
 *
 * All of it can be done twice without harm, so a pass may be cut off anywhere and resumed.
 * @returns what was done. Undefined if no pass is under way, or another run is at work.
 * @throws {AggregateError} the failures of single uploads, at the end of the run.
 */
export async function continueSweep(ports: SweepPorts, invocation: Invocation): Promise<SweepSummary | undefined> {
  const { clock, settings, nonce, telemetry } = ports;
  const { closing, endsAt: heldUntil } = invocation;
  const now = clock.now();
  const isDue = ({ watermark }: SweepState): boolean => now - watermark >= SWEEP_INTERVAL_MS;
  const store = storeOf(ports);
  const inbox = inboxOf(settings);
  const seen = await store.update((state) => withInbox(state, inbox, now), closing);
  // Not written for a pass in time: a metric costs money for the hours in which it is written.
  const isLate = now - seen.watermark >= MEASURED_AFTER_MS;
  if (isLate) telemetry.metrics.add('SweepAgeSeconds', secondsBetween(seen.watermark, now));
  if (!isDue(seen) && underWay(seen) === undefined) return undefined;
  const holder = nonce();
  const state = await store.update((current) => {
    if (SWEEP_KINDS.some((kind) => now < (current[kind]?.heldUntil ?? 0))) return current;
    const isBegun = current.daily !== undefined || !isDue(current);
    const open = isBegun ? current : { ...current, daily: newPass(current, {}, now, settings) };
    const found = underWay(open);
    if (found === undefined) return current;
    const { kind, pass } = found;
    // If the inbox was replaced since the pass began, the pass begins again.
    const anew = { inbox, position: { in: 'inbox' }, counts: NOTHING_DONE } as const;
    return { ...open, [kind]: { ...pass, ...(pass.inbox !== inbox && anew), holder, heldUntil } };
  }, closing);
  const taken = underWay(state);
  if (taken?.pass.holder !== holder) return undefined;
  // An older version that still runs during a deployment drops what it does not know.
  const { watermark, inboxes = {} } = withInbox(state, inbox, now);
  return new SweepRun({ ...taken, store, watermark, inboxes }, ports, invocation).run();
}

/** The state with the time since when a bucket and prefix has been the inbox. The first one has been since the first day. */
function withInbox(state: SweepState, inbox: string, now: number): SweepState {
  const { inboxes, firstDay } = state;
  if (inboxes?.[inbox] !== undefined) return state;
  return { ...state, inboxes: { ...inboxes, [inbox]: inboxes === undefined ? firstDay : now - FIRST_TICK_MAX_MS } };
}

/** The pass under way that comes first. */
function underWay(
  state: SweepState,
  kinds: readonly SweepKind[] = SWEEP_KINDS,
): { readonly kind: SweepKind; readonly pass: SweepPass } | undefined {
  const kind = kinds.find((each) => state[each] !== undefined);
  return kind && { kind, pass: state[kind] as SweepPass };
}

const storeOf = ({ s3, settings, clock, telemetry }: SweepPorts): SweepStateStore =>
  new SweepStateStore(s3, settings.ledgerBucket, clock, telemetry);

const inboxOf = ({ inboxBucket, inboxPrefix }: Settings): string => `${inboxBucket}/${inboxPrefix}`;

/** @throws {SinceTooEarlyError} */
function newPass(
  { firstDay, watermark }: SweepState,
  { since, force = false, uploadsPerSecond = UPLOADS_PER_SECOND_DEFAULT }: SweepRequest,
  now: number,
  settings: Settings,
): SweepPass {
  const earliest = keptFrom(settings, now);
  if (since !== undefined && since < earliest && !force) {
    const limit = `entries are kept for ${settings.ledgerRetentionDays} days, so ${iso(earliest)} is the earliest`;
    const remedy =
      'with "force": true, uploads from before then are submitted, and paid for again if their entries expired';
    throw new SinceTooEarlyError(`since ${iso(since)}: ${limit}; ${remedy}`);
  }
  return {
    startedAt: now,
    uploadsPerSecond,
    inbox: inboxOf(settings),
    force: force || undefined,
    isNamed: since === undefined ? undefined : true,
    since: since ?? Math.max(firstDay, watermark - SWEEP_REACH_MS, earliest),
    position: { in: 'inbox' },
    counts: NOTHING_DONE,
    holder: '',
    heldUntil: 0,
  };
}

const reportOf = (state: SweepState): SweepReport => ({
  underWay: reportsOf(state),
  ended: reportsOf(state.ended ?? {}),
});

function reportsOf(passes: PerKind<SweepPass | EndedPass>): PerKind<PassReport> {
  const reports = SWEEP_KINDS.flatMap((kind) => {
    const pass = passes[kind];
    if (pass === undefined) return [];
    const { since, startedAt, counts = NOTHING_DONE } = pass;
    const ended = 'endedAt' in pass ? { endedAt: iso(pass.endedAt) } : {};
    return [[kind, { since: iso(since), startedAt: iso(startedAt), ...ended, ...counts }] as const];
  });
  return Object.fromEntries(reports);
}
