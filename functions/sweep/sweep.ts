import type { Invocation } from '../base/invocation.ts';
import { secondsBetween } from '../base/telemetry.ts';
import { SWEEP_REACH_MS } from '../ledger/waits.ts';
import type { Settings } from '../settings/environment.ts';
import { keptFrom, type SweepPorts, SweepRun, type SweepSummary } from './sweep-run.ts';
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

/** Missed uploads that are submitted in a second by default. Few, so that today's files need not wait for them. */
const UPLOADS_PER_SECOND_DEFAULT = 10;

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
  /** Stop the backfill and the dry run that are under way, and do nothing else. */
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

/** Another backfill or dry run is under way. Two backfills would submit the same uploads twice. */
export class PassUnderWayError extends Error {
  override readonly name = 'PassUnderWayError';
}

/** The request covers a time whose entries may have expired, and does not say `force`. */
export class SinceTooEarlyError extends Error {
  override readonly name = 'SinceTooEarlyError';
}

/**
 * Records a request for a pass. The ticks run it, because a pass may take hours, and a client that waits for the answer
 * of an invocation gives up after a minute and sends the request again. The same request joins the pass that is under
 * way, at the pace that it names.
 * @throws {SinceTooEarlyError} @throws {PassUnderWayError}
 */
export async function requestSweep(
  { stop, status, ...request }: SweepRequest,
  ports: SweepPorts,
  invocation: Invocation,
): Promise<SweepReport> {
  const { clock, settings } = ports;
  const store = storeOf(ports);
  if (status === true) return reportOf(await store.read(invocation.closing));
  if (stop === true) {
    const stopped = { backfill: undefined, dryRun: undefined };
    return reportOf(await store.update((state) => ({ ...state, ...stopped }), invocation.closing));
  }
  const kind = request.dryRun === true ? 'dryRun' : request.since === undefined ? 'daily' : 'backfill';
  const state = await store.update((current) => {
    const pass = current[kind];
    if (pass === undefined) return { ...current, [kind]: newPass(current, request, clock.now(), settings) };
    const { since = pass.since, uploadsPerSecond = pass.uploadsPerSecond } = request;
    if (since !== pass.since) throw underWayError(kind, pass);
    const force = pass.force || request.force || undefined;
    if (uploadsPerSecond === pass.uploadsPerSecond && force === pass.force) return current;
    return { ...current, [kind]: { ...pass, uploadsPerSecond, force } };
  }, invocation.closing);
  const report = reportOf(state);
  ports.telemetry.log.info('Sweep requested', { kind, since: report.underWay[kind]?.since });
  return report;
}

/**
 * Sweeps the inbox and the ledger, so that every upload gets an outcome even if its notification was lost. Begins the
 * daily pass if it is due. Runs the open passes that no other run holds, side by side. A pass goes through the current
 * versions in the inbox and submits those without an entry. Then it goes through the entries that changed since the
 * last pass, and puts markers and receipts again that may be missing. It lists uploads back to 49 hours before that
 * pass.
 *
 * All of it can be done twice without harm, so a pass may be cut off anywhere and resumed.
 * @throws {AggregateError} the failures of single uploads, at the end of the run.
 */
export async function continueSweep(ports: SweepPorts, invocation: Invocation): Promise<readonly SweepSummary[]> {
  const state = await withDailyPass(await storeOf(ports).read(invocation.closing), ports, invocation);
  const open = SWEEP_KINDS.filter((kind) => state[kind] !== undefined);
  const results = await Promise.allSettled(open.map((kind) => runHeld(kind, ports, invocation)));
  const failures = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  if (failures.length === 1) throw failures[0];
  if (failures.length > 1) throw new AggregateError(failures, `${failures.length} passes of the sweep failed`);
  return results.flatMap((result) => (result.status === 'fulfilled' ? (result.value ?? []) : []));
}

/**
 * Begins the daily pass if it is due. It needs no schedule of its own: if this tick cannot begin it, the tick of the
 * next minute does.
 */
async function withDailyPass(state: SweepState, ports: SweepPorts, { closing }: Invocation): Promise<SweepState> {
  const { clock, settings, telemetry } = ports;
  const now = clock.now();
  const isDue = ({ watermark }: SweepState): boolean => now - watermark >= SWEEP_INTERVAL_MS;
  if (!isDue(state)) return state;
  // Written only while a pass is due or under way: a metric costs money for the hours in which it is written.
  telemetry.metrics.add('SweepAgeSeconds', secondsBetween(state.watermark, now));
  if (state.daily !== undefined) return state;
  const begin = (current: SweepState): SweepState =>
    current.daily === undefined && isDue(current)
      ? { ...current, daily: newPass(current, {}, now, settings) }
      : current;
  return storeOf(ports).update(begin, closing);
}

const storeOf = ({ s3, settings, clock, telemetry }: SweepPorts): SweepStateStore =>
  new SweepStateStore(s3, settings.ledgerBucket, clock, telemetry);

const inboxOf = ({ inboxBucket, inboxPrefix }: Settings): string => `${inboxBucket}/${inboxPrefix}`;

/** Takes a pass, if there is one and no other run holds it, and runs it. */
async function runHeld(kind: SweepKind, ports: SweepPorts, invocation: Invocation): Promise<SweepSummary | undefined> {
  const { clock, nonce, settings } = ports;
  const store = storeOf(ports);
  const inbox = inboxOf(settings);
  const holder = nonce();
  const state = await store.update((current) => {
    const pass = current[kind];
    if (pass === undefined || pass.holder === holder || clock.now() < (pass.heldUntil ?? 0)) return current;
    const taken = { ...pass, holder, heldUntil: invocation.endsAt };
    if (pass.inbox === inbox) return { ...current, [kind]: taken };
    // The inbox was replaced since the pass began, so the pass begins again.
    return { ...current, [kind]: { ...taken, inbox, position: { in: 'inbox' }, counts: NOTHING_DONE } };
  }, invocation.closing);
  const pass = state[kind];
  if (pass?.holder !== holder) return undefined;
  return new SweepRun({ state, pass, hold: { kind, store } }, ports, invocation).run();
}

/** @throws {SinceTooEarlyError} */
function newPass(
  { firstDay, watermark }: SweepState,
  { since, force = false, uploadsPerSecond = UPLOADS_PER_SECOND_DEFAULT }: SweepRequest,
  now: number,
  settings: Settings,
): SweepPass {
  const earliest = keptFrom(settings, now);
  if (since !== undefined && since < earliest && !force) {
    const limit = `entries are kept for ${settings.ledgerRetentionDays} days, so ${isoOf(earliest)} is the earliest`;
    const remedy =
      'with "force": true, uploads from before then are submitted, and paid for again if their entries expired';
    throw new SinceTooEarlyError(`since ${isoOf(since)}: ${limit}; ${remedy}`);
  }
  return {
    startedAt: now,
    uploadsPerSecond,
    inbox: inboxOf(settings),
    force: force || undefined,
    since: since ?? Math.max(firstDay, watermark - SWEEP_REACH_MS, earliest),
    position: { in: 'inbox' },
    counts: NOTHING_DONE,
    holder: '',
    heldUntil: 0,
  };
}

function underWayError(kind: SweepKind, { since }: SweepPass): PassUnderWayError {
  const name = kind === 'dryRun' ? 'dry run' : 'backfill';
  const underWay = `A ${name} since ${isoOf(since)} is under way and continues with each tick`;
  return new PassUnderWayError(`${underWay}; {"sweep": {"stop": true}} stops it`);
}

const isoOf = (time: number): string => new Date(time).toISOString();

function reportOf(state: SweepState): SweepReport {
  return { underWay: reportsOf(state), ended: reportsOf(state.ended ?? {}) };
}

function reportsOf(passes: PerKind<SweepPass | EndedPass>): PerKind<PassReport> {
  const reports: { [kind in SweepKind]?: PassReport } = {};
  for (const kind of SWEEP_KINDS) {
    const pass = passes[kind];
    if (pass === undefined) continue;
    const { since, startedAt, counts = NOTHING_DONE } = pass;
    const ended = 'endedAt' in pass ? { endedAt: isoOf(pass.endedAt) } : {};
    reports[kind] = { since: isoOf(since), startedAt: isoOf(startedAt), ...ended, ...counts };
  }
  return reports;
}
