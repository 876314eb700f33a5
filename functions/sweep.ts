import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import type { Clock } from './clock.ts';
import type { Settings } from './config.ts';
import type { Invocation } from './invocation.ts';
import { type Entry, isTerminal, waitingMarkerOf } from './ledger/entry.ts';
import { type Ledger, UnreadableEntryError } from './ledger/store.ts';
import {
  type SweepKind,
  SweepMemory,
  type SweepPass,
  type SweepPosition,
  type SweepState,
} from './ledger/sweep-state.ts';
import type { Inbox, ListedUpload } from './objects/inbox.ts';
import { type Receipts, receiptOf } from './objects/receipts.ts';
import { type PublishPorts, publish } from './publish.ts';
import { isWantedByKey, mayMatch, routeFor } from './routes.ts';
import type { UploadQueue } from './send-again.ts';
import { isFolderMarker, messageFor } from './upload.ts';

/** Uploads and entries looked at side by side. */
const SWEEP_CONCURRENCY = 32;

/** Whatever is younger than this may still be on its ordinary way, in milliseconds. */
const SETTLING_MS = 15 * 60_000;

/**
 * How far back each pass looks again, in milliseconds: a multipart upload bears the date of its beginning, and appears
 * only at its end. (Amazon S3 API Reference, "CreateMultipartUpload".)
 */
const LONGEST_UPLOAD_MS = 48 * 3_600_000;

const DAY_MS = 24 * 3_600_000;

/** How many missed uploads are submitted in a second, unless somebody says otherwise: today's files go first. */
const UPLOADS_PER_SECOND = 10;

/**
 * How often a run that submits says where it stands, in milliseconds, so that a pass which an operator gave up ends soon:
 * a page of a listing may take minutes.
 */
const STEP_MS = 10_000;

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

export interface SweepPorts extends PublishPorts {
  readonly inbox: Inbox;
  readonly ledger: Ledger;
  readonly receipts: Receipts;
  readonly queue: UploadQueue;
  readonly clock: Clock;
  readonly settings: Settings;
  readonly s3: S3Client;
  /** A different string each time: it names a run. */
  readonly nonce: () => string;
}

export interface SweepSummary {
  /**
   * Whether the pass came to its end. If not, the next ticks go on with it, or another run is at it just now; a dry run
   * only says what it has seen.
   */
  readonly complete: boolean;
  /** Uploads in the inbox that were compared with the ledger. */
  readonly compared: number;
  /** Uploads that a route wants and the ledger did not know. */
  readonly missed: number;
  /** Entries of which the marker was put again, or the receipt. */
  readonly repaired: number;
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
    return new Sweep(state, pass, undefined, ports, invocation).run();
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

const memoryOf = ({ s3, settings, clock, telemetry }: SweepPorts): SweepMemory =>
  new SweepMemory(s3, settings.ledgerBucket, clock, telemetry.log);

/** Takes a pass, if there is one and no other run holds it, and goes through it. */
async function runHeld(
  kind: SweepKind,
  passOf: (state: SweepState) => SweepPass | undefined,
  { since, uploadsPerSecond }: SweepRequest,
  ports: SweepPorts,
  invocation: Invocation,
): Promise<SweepSummary> {
  const { clock, nonce } = ports;
  const memory = memoryOf(ports);
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
    return { ...current, [kind]: isHeld ? paced : { ...paced, holder, heldUntil: invocation.endsAt } };
  }, invocation.closing);
  const pass = state[kind];
  if (pass?.holder !== holder) return NOTHING_DONE;
  return new Sweep(state, pass, { kind, memory }, ports, invocation).run();
}

/** @throws {SinceTooEarlyError} */
function newPass(
  { firstDay, watermark }: SweepState,
  { since, force = false, uploadsPerSecond = UPLOADS_PER_SECOND }: SweepRequest,
  now: number,
  { ledgerRetentionDays }: Settings,
): SweepPass {
  // An upload whose entry may have expired would be paid for again.
  const keptFrom = ledgerRetentionDays === 'forever' ? 0 : now - ledgerRetentionDays * DAY_MS + SETTLING_MS;
  if (since !== undefined && since < keptFrom && !force) {
    const limit = `entries are kept for ${ledgerRetentionDays} days, so ${new Date(keptFrom).toISOString()} is the earliest`;
    const remedy =
      'with "force": true, uploads from before then are sent again and paid for again if their entries expired';
    throw new SinceTooEarlyError(`since ${new Date(since).toISOString()}: ${limit}; ${remedy}`);
  }
  return {
    startedAt: now,
    uploadsPerSecond,
    since: since ?? Math.max(firstDay, watermark - LONGEST_UPLOAD_MS, keptFrom),
    position: { in: 'inbox' },
    holder: '',
    heldUntil: 0,
  };
}

/** Where a run writes down how far it has come. */
interface Hold {
  readonly kind: SweepKind;
  readonly memory: SweepMemory;
}

/** One run of one pass. */
class Sweep {
  readonly #state: SweepState;
  #pass: SweepPass;
  /** Absent in a dry run, which changes nothing. */
  readonly #hold: Hold | undefined;
  readonly #ports: SweepPorts;
  readonly #invocation: Invocation;
  readonly #counts = { compared: 0, missed: 0, repaired: 0 };
  /** What could not be seen to: each is that upload's alone, and the pass goes on. */
  readonly #failures = new Map<string, unknown>();
  /** Uploads of which the media type was asked for. */
  #asked = 0;
  #steppedAt: number;

  constructor(state: SweepState, pass: SweepPass, hold: Hold | undefined, ports: SweepPorts, invocation: Invocation) {
    this.#state = state;
    this.#pass = pass;
    this.#hold = hold;
    this.#ports = ports;
    this.#invocation = invocation;
    this.#steppedAt = ports.clock.now();
  }

  async run(): Promise<SweepSummary> {
    const complete = (await this.#throughInbox()) && (await this.#throughLedger());
    if (complete) await this.#end();
    else await this.#stepTo(this.#pass.position, 0);
    const summary = { complete, ...this.#counts };
    this.#ports.telemetry.log.info('Sweep ended', {
      kind: this.#hold?.kind ?? 'dry run',
      ...summary,
      asked: this.#asked,
    });
    if (this.#failures.size > 0) {
      const message = `${this.#failures.size} uploads could not be swept; all others were`;
      throw new AggregateError([...this.#failures.values()], message);
    }
    return summary;
  }

  /** The current versions in the inbox, page by page. False where the run must end. */
  async #throughInbox(): Promise<boolean> {
    const { position } = this.#pass;
    if (position.in !== 'inbox') return true;
    const { inboxBucket, inboxPrefix } = this.#ports.settings;
    const pages = this.#ports.inbox.pages(inboxBucket, inboxPrefix, position.after, this.#invocation.closing);
    for await (const { uploads, last } of pages) {
      const missing = await this.#missingOf(uploads.filter((upload) => this.#isWanted(upload)));
      for (const upload of missing) {
        if (!(await this.#submit(upload))) return false;
      }
      if (!(await this.#stepTo(last === undefined ? { in: 'ledger' } : { in: 'inbox', after: last }))) return false;
    }
    return true;
  }

  #isWanted(upload: ListedUpload): boolean {
    const { since, startedAt } = this.#pass;
    return (
      upload.isCurrent &&
      upload.lastModified >= since &&
      upload.lastModified < startedAt - SETTLING_MS &&
      !isFolderMarker(upload) &&
      mayMatch(this.#ports.settings.routes, upload.key)
    );
  }

  async #missingOf(uploads: readonly ListedUpload[]): Promise<readonly ListedUpload[]> {
    const missing = new Set<string>();
    await this.#each(uploads, async ({ id }) => {
      if ((await this.#ports.ledger.read(id, this.#invocation.closing)) === undefined) missing.add(id);
    });
    this.#counts.compared += uploads.length;
    return this.#routed(uploads.filter(({ id }) => missing.has(id)));
  }

  /** Those that a route wants. Of some keys only the media type tells, which a listing does not have: S3 is asked. */
  async #routed(uploads: readonly ListedUpload[]): Promise<readonly ListedUpload[]> {
    const { inbox, settings } = this.#ports;
    const wanted = new Set<string>();
    await this.#each(uploads, async ({ id, bucket, key }) => {
      if (isWantedByKey(settings.routes, key)) {
        wanted.add(id);
        return;
      }
      this.#asked += 1;
      const current = await inbox.current(bucket, key, this.#invocation.closing);
      if (current?.id === id && routeFor(settings.routes, current) !== undefined) wanted.add(id);
    });
    return uploads.filter(({ id }) => wanted.has(id));
  }

  async #each<T extends { readonly id: string }>(all: readonly T[], one: (item: T) => Promise<void>): Promise<void> {
    await pMap(
      all,
      async (item) => {
        try {
          await one(item);
        } catch (error) {
          this.#ports.telemetry.log.error('This upload could not be swept', {
            uploadId: item.id,
            error: error as Error,
          });
          const isNew = !this.#failures.has(item.id);
          if (isNew && error instanceof UnreadableEntryError) this.#ports.telemetry.metrics.count('EntriesUnreadable');
          this.#failures.set(item.id, error);
        }
      },
      { concurrency: SWEEP_CONCURRENCY },
    );
  }

  /** One upload after another, at a measured pace. False where the run must end. */
  async #submit(upload: ListedUpload): Promise<boolean> {
    const { queue, clock, telemetry } = this.#ports;
    this.#counts.missed += 1;
    if (this.#hold === undefined) return true;
    telemetry.log.info('An upload that no notification brought', { uploadId: upload.id, key: upload.key });
    telemetry.metrics.count('UploadsMissed');
    await queue.send(messageFor(upload), this.#invocation.closing);
    try {
      await clock.sleep(1000 / this.#pass.uploadsPerSecond, this.#invocation.work);
    } catch {
      return false; // Only the time can have run out, and the pass goes on from where it stands.
    }
    return clock.now() < this.#steppedAt + STEP_MS || this.#stepTo(this.#pass.position);
  }

  /** The entries that changed since the last pass. False where the run must end. */
  async #throughLedger(): Promise<boolean> {
    const { position } = this.#pass;
    const { ledger } = this.#ports;
    const since = Math.min(this.#pass.since, this.#state.watermark);
    const after = position.in === 'ledger' ? position.after : undefined;
    for await (const { entries, last } of ledger.entryPages(after, this.#invocation.closing)) {
      const changed = entries.filter(({ lastModified }) => lastModified >= since);
      await this.#each(changed, ({ id }) => this.#repair(id));
      if (!(await this.#stepTo({ in: 'ledger', after: last }))) return false;
    }
    return true;
  }

  /** Puts beside an entry what belongs there. All of it may be there already: putting it again changes nothing. */
  async #repair(uploadId: string): Promise<void> {
    const { ledger } = this.#ports;
    const signal = this.#invocation.closing;
    const entry = (await ledger.read(uploadId, signal))?.entry;
    if (entry === undefined || (await this.#isComplete(entry))) return;
    this.#counts.repaired += 1;
    if (this.#hold === undefined) return;
    const waiting = waitingMarkerOf(entry);
    if (waiting !== undefined) await ledger.putWaitingMarker(waiting, signal);
    else if (isTerminal(entry)) await publish(entry, this.#ports, signal);
    else if (entry.state === 'running') {
      const { id: flowId, createdAt } = entry.flow;
      await ledger.putRunningMarker({ createdAt, uploadId, flowId }, signal);
    }
  }

  /** What ended after it had run keeps its marker until its receipt is out, so of what ended only the others may lack it. */
  async #isComplete(entry: Entry): Promise<boolean> {
    if (!isTerminal(entry)) return false;
    if (entry.flow !== undefined) return true;
    if (entry.isTold !== true) return false;
    const receipt = receiptOf(entry, this.#ports.settings.collectFunction);
    return this.#ports.receipts.isPublished(receipt, this.#invocation.closing);
  }

  /** Writes down how far the run has come. False where the run must end: its time is over, or the pass not its own. */
  async #stepTo(position: SweepPosition, heldUntil = this.#invocation.endsAt): Promise<boolean> {
    const { kind } = this.#hold ?? {};
    this.#steppedAt = this.#ports.clock.now();
    this.#pass = { ...this.#pass, position };
    if (kind === undefined) return !this.#invocation.work.aborted;
    const state = await this.#change((current, pass) => ({ ...current, [kind]: { ...pass, position, heldUntil } }));
    const pass = state?.[kind];
    if (pass?.holder !== this.#pass.holder) return false;
    this.#pass = pass; // Its pace may have been changed.
    return !this.#invocation.work.aborted;
  }

  async #end(): Promise<void> {
    const { kind } = this.#hold ?? {};
    await this.#change((current, { since, startedAt }) => {
      // A backfill may have begun after what the last pass had seen.
      const isWhole = kind === 'daily' || since <= current.watermark;
      const watermark = isWhole ? Math.max(startedAt - SETTLING_MS, current.watermark) : current.watermark;
      const { daily, backfill, ...rest } = current;
      return { ...rest, watermark, ...(kind === 'daily' ? { backfill } : { daily }) };
    });
  }

  /** Changes what is remembered of the pass, as long as it is this run's. */
  async #change(change: (state: SweepState, pass: SweepPass) => SweepState): Promise<SweepState | undefined> {
    if (this.#hold === undefined) return undefined;
    const { kind, memory } = this.#hold;
    const { holder } = this.#pass;
    return memory.update((current) => {
      const pass = current[kind];
      return pass?.holder === holder ? change(current, pass) : current;
    }, this.#invocation.closing);
  }
}
