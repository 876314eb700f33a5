import type { Invocation } from '../base/invocation.ts';
import type { Settings } from '../settings/config.ts';
import { keptFrom, type SweepPorts, SweepRun, type SweepSummary } from './sweep-run.ts';
import { type SweepKind, type SweepPass, type SweepState, SweepStateStore } from './sweep-state.ts';

export type { SweepPorts, SweepSummary } from './sweep-run.ts';

/**
 * How far back each pass looks again, in milliseconds: a multipart upload bears the date of its beginning, and appears
 * only at its end. (Amazon S3 API Reference, "CreateMultipartUpload".)
 */
const LONGEST_UPLOAD_MS = 48 * 3_600_000;

/** How many missed uploads are submitted in a second, unless somebody says otherwise: today's files go first. */
const UPLOADS_PER_SECOND = 10;

export interface SweepRequest {
  /** Milliseconds since the epoch: uploads from then on, the deployment's first day notwithstanding. */
  readonly since?: number | undefined;
  /** Count what there would be to do, and do nothing. */
  readonly dryRun?: boolean | undefined;
  /** Go back further than the ledger remembers: an upload whose entry has expired is paid for once more. */
  readonly force?: boolean | undefined;
  readonly uploadsPerSecond?: number | undefined;
  /** Give up the backfill that is under way, and do nothing else. */
  readonly stop?: boolean | undefined;
}

/** Another backfill is under way. Two would submit the same uploads twice. */
export class BackfillUnderWayError extends Error {
  override readonly name = 'BackfillUnderWayError';
}

/** The request reaches back to when entries may have expired, and does not say that this is meant. */
export class SinceTooEarlyError extends Error {
  override readonly name = 'SinceTooEarlyError';
}

/**
 * The sweep: whatever the notifications did, every upload in the inbox has an outcome. It goes through the current
 * versions in the inbox and submits those that the ledger does not know, then through the entries that changed since
 * the last pass and puts again what may be missing beside them: markers, and receipts of what never ran.
 *
 * Everything that it does can be done again without harm, so a pass may be cut off anywhere and go on from there. There
 * is one daily pass and one backfill at a time, and each goes on beside the other. A request for a pass that is under
 * way goes on with it; one that another run holds is left to that run.
 * @throws {SinceTooEarlyError} @throws {BackfillUnderWayError}
 */
export async function sweep(request: SweepRequest, ports: SweepPorts, invocation: Invocation): Promise<SweepSummary> {
  const { clock, settings } = ports;
  const memory = memoryOf(ports);
  if (request.stop === true) {
    await memory.update(({ backfill: _, ...state }) => state, invocation.closing);
    return NOTHING_DONE;
  }
  if (request.dryRun === true) {
    const state = await memory.read(invocation.closing);
    const pass = newPass(state, request, clock.now(), settings);
    return new SweepRun(state, pass, undefined, ports, invocation).run();
  }
  const kind = request.since === undefined ? 'daily' : 'backfill';
  return runHeld(
    kind,
    (state) => state[kind] ?? newPass(state, request, clock.now(), settings),
    request,
    ports,
    invocation,
  );
}

/** Goes on with the passes that were cut off and that no other run is at, side by side. */
export async function continueSweep(ports: SweepPorts, invocation: Invocation): Promise<readonly SweepSummary[]> {
  const state = await memoryOf(ports).read(invocation.closing);
  const open = KINDS.filter((kind) => state[kind] !== undefined);
  const results = await Promise.allSettled(
    open.map((kind) => runHeld(kind, (current) => current[kind], {}, ports, invocation)),
  );
  const failures = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  if (failures.length > 0) throw new AggregateError(failures, `${failures.length} passes of the sweep failed`);
  return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
}

const KINDS: readonly SweepKind[] = ['daily', 'backfill'];

const NOTHING_DONE: SweepSummary = { complete: false, compared: 0, missed: 0, repaired: 0 };

const memoryOf = ({ s3, settings, clock, telemetry }: SweepPorts): SweepStateStore =>
  new SweepStateStore(s3, settings.ledgerBucket, clock, telemetry.log);

const inboxOf = ({ inboxBucket, inboxPrefix }: Settings): string => `${inboxBucket}/${inboxPrefix}`;

/** Takes a pass, if there is one and no other run holds it, and goes through it. */
async function runHeld(
  kind: SweepKind,
  passOf: (state: SweepState) => SweepPass | undefined,
  { since, uploadsPerSecond }: SweepRequest,
  ports: SweepPorts,
  invocation: Invocation,
): Promise<SweepSummary> {
  const { clock, nonce, settings } = ports;
  const memory = memoryOf(ports);
  const inbox = inboxOf(settings);
  const holder = nonce();
  const state = await memory.update((current) => {
    const pass = passOf(current);
    if (pass === undefined || pass.holder === holder) return current;
    if (since !== undefined && pass.since !== since) {
      const underWay = `A backfill since ${new Date(pass.since).toISOString()} is under way and goes on with the ticks`;
      throw new BackfillUnderWayError(`${underWay}; {"sweep": {"stop": true}} gives it up`);
    }
    const paced = { ...pass, uploadsPerSecond: uploadsPerSecond ?? pass.uploadsPerSecond };
    const isHeld = clock.now() < pass.heldUntil;
    if (isHeld && paced.uploadsPerSecond === pass.uploadsPerSecond) return current;
    if (isHeld) return { ...current, [kind]: paced };
    // A pass that began in an inbox which was replaced since has seen nothing of today's.
    const position = paced.inbox === inbox ? paced.position : ({ in: 'inbox' } as const);
    return { ...current, [kind]: { ...paced, inbox, position, holder, heldUntil: invocation.endsAt } };
  }, invocation.closing);
  const pass = state[kind];
  if (pass?.holder !== holder) return NOTHING_DONE;
  return new SweepRun(state, pass, { kind, memory }, ports, invocation).run();
}

/** @throws {SinceTooEarlyError} */
function newPass(
  { firstDay, watermark }: SweepState,
  { since, force = false, uploadsPerSecond = UPLOADS_PER_SECOND }: SweepRequest,
  now: number,
  settings: Settings,
): SweepPass {
  const earliest = keptFrom(settings, now);
  if (since !== undefined && since < earliest && !force) {
    const limit = `entries are kept for ${settings.ledgerRetentionDays} days, so ${new Date(earliest).toISOString()} is the earliest`;
    const remedy =
      'with "force": true, uploads from before then are sent again and paid for again if their entries expired';
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
