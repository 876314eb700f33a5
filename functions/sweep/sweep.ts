import type { Invocation } from '../base/invocation.ts';
import type { Settings } from '../settings/environment.ts';
import { keptFrom, type SweepPorts, SweepRun, type SweepSummary } from './sweep-run.ts';
import { type SweepKind, type SweepPass, type SweepState, SweepStateStore } from './sweep-state.ts';

export type { SweepPorts, SweepSummary } from './sweep-run.ts';

/**
 * Time before the watermark that each pass covers again, in milliseconds. A multipart upload bears the date of its
 * beginning and appears only at its end. (Amazon S3 API Reference, "CreateMultipartUpload".)
 */
const LONGEST_UPLOAD_MS = 48 * 3_600_000;

/** Missed uploads that are submitted in a second by default. Few, so that today's files need not wait for them. */
const UPLOADS_PER_SECOND_DEFAULT = 10;

export interface SweepRequest {
  /** Sweep the uploads from then on, also those from before the deployment's first day. Milliseconds since the epoch. */
  readonly since?: number | undefined;
  /** Only count the missed uploads and incomplete entries. */
  readonly dryRun?: boolean | undefined;
  /** Go back further than entries are kept. An upload whose entry has expired is paid for again. */
  readonly force?: boolean | undefined;
  readonly uploadsPerSecond?: number | undefined;
  /** Stop the backfill that is under way, and do nothing else. */
  readonly stop?: boolean | undefined;
}

/** Another backfill is under way. Two would submit the same uploads twice. */
export class BackfillUnderWayError extends Error {
  override readonly name = 'BackfillUnderWayError';
}

/** The request covers a time whose entries may have expired, and does not say `force`. */
export class SinceTooEarlyError extends Error {
  override readonly name = 'SinceTooEarlyError';
}

/**
 * Sweeps the inbox and the ledger, so that every upload gets an outcome even if its notification was lost. A pass goes
 * through the current versions in the inbox and submits those without an entry. Then it goes through the entries that
 * changed since the last pass, and puts the markers and receipts again that may be missing.
 *
 * All of it can be done twice without harm, so a pass may be cut off anywhere and resumed. There is one daily pass and
 * one backfill at a time, side by side. A request for a pass that is under way resumes it, unless another run holds it.
 * @throws {SinceTooEarlyError} @throws {BackfillUnderWayError}
 */
export async function sweep(request: SweepRequest, ports: SweepPorts, invocation: Invocation): Promise<SweepSummary> {
  const { clock, settings } = ports;
  const store = storeOf(ports);
  if (request.stop === true) {
    await store.update(({ backfill: _, ...state }) => state, invocation.closing);
    return NOTHING_DONE;
  }
  if (request.dryRun === true) {
    const state = await store.read(invocation.closing);
    const pass = newPass(state, request, clock.now(), settings);
    return new SweepRun({ state, pass }, ports, invocation).run();
  }
  const kind = request.since === undefined ? 'daily' : 'backfill';
  const passOf = (state: SweepState): SweepPass => state[kind] ?? newPass(state, request, clock.now(), settings);
  return runHeld({ kind, passOf, request }, ports, invocation);
}

/** Resumes the passes that were cut off and that no other run holds, side by side. */
export async function continueSweep(ports: SweepPorts, invocation: Invocation): Promise<readonly SweepSummary[]> {
  const state = await storeOf(ports).read(invocation.closing);
  const open = KINDS.filter((kind) => state[kind] !== undefined);
  const results = await Promise.allSettled(
    open.map((kind) => runHeld({ kind, passOf: (current) => current[kind], request: {} }, ports, invocation)),
  );
  const failures = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  if (failures.length > 0) throw new AggregateError(failures, `${failures.length} passes of the sweep failed`);
  return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
}

const KINDS: readonly SweepKind[] = ['daily', 'backfill'];

const NOTHING_DONE: SweepSummary = { complete: false, compared: 0, missed: 0, repaired: 0 };

const storeOf = ({ s3, settings, clock, telemetry }: SweepPorts): SweepStateStore =>
  new SweepStateStore(s3, settings.ledgerBucket, clock, telemetry.log);

const inboxOf = ({ inboxBucket, inboxPrefix }: Settings): string => `${inboxBucket}/${inboxPrefix}`;

/** How a run finds its pass. */
interface Taking {
  readonly kind: SweepKind;
  readonly passOf: (state: SweepState) => SweepPass | undefined;
  readonly request: SweepRequest;
}

/** Takes a pass, if there is one and no other run holds it, and runs it. */
async function runHeld(
  { kind, passOf, request: { since, uploadsPerSecond } }: Taking,
  ports: SweepPorts,
  invocation: Invocation,
): Promise<SweepSummary> {
  const { clock, nonce, settings } = ports;
  const store = storeOf(ports);
  const inbox = inboxOf(settings);
  const holder = nonce();
  const state = await store.update((current) => {
    const pass = passOf(current);
    if (pass === undefined || pass.holder === holder) return current;
    if (since !== undefined && pass.since !== since) {
      const underWay = `A backfill since ${new Date(pass.since).toISOString()} is under way and continues with each tick`;
      throw new BackfillUnderWayError(`${underWay}; {"sweep": {"stop": true}} stops it`);
    }
    const paced = { ...pass, uploadsPerSecond: uploadsPerSecond ?? pass.uploadsPerSecond };
    const isHeld = clock.now() < pass.heldUntil;
    if (isHeld && paced.uploadsPerSecond === pass.uploadsPerSecond) return current;
    if (isHeld) return { ...current, [kind]: paced };
    // If the inbox was replaced since the pass began, the pass begins again.
    const position = paced.inbox === inbox ? paced.position : ({ in: 'inbox' } as const);
    return { ...current, [kind]: { ...paced, inbox, position, holder, heldUntil: invocation.endsAt } };
  }, invocation.closing);
  const pass = state[kind];
  if (pass?.holder !== holder) return NOTHING_DONE;
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
    const limit = `entries are kept for ${settings.ledgerRetentionDays} days, so ${new Date(earliest).toISOString()} is the earliest`;
    const remedy =
      'with "force": true, uploads from before then are submitted, and paid for again if their entries expired';
    throw new SinceTooEarlyError(`since ${new Date(since).toISOString()}: ${limit}; ${remedy}`);
  }
  return {
    startedAt: now,
    uploadsPerSecond,
    inbox: inboxOf(settings),
    force: force || undefined,
    since: since ?? Math.max(firstDay, watermark - LONGEST_UPLOAD_MS, earliest),
    position: { in: 'inbox' },
    holder: '',
    heldUntil: 0,
  };
}
