import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import type { Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import { type Entry, isTerminal, waitingMarkerOf } from '../ledger/entry.ts';
import { type Ledger, UnreadableEntryError } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import { type Receipts, receiptOf } from '../publish/receipts.ts';
import type { UploadQueue } from '../resubmit/resubmit.ts';
import type { Settings } from '../settings/config.ts';
import type { Inbox, ListedUpload } from '../uploads/inbox.ts';
import { isWantedByKey, mayMatch, routeFor } from '../uploads/routes.ts';
import { isFolderMarker, messageFor } from '../uploads/upload.ts';
import type { SweepKind, SweepPass, SweepPosition, SweepState, SweepStateStore } from './sweep-state.ts';

/** Uploads and entries looked at side by side. */
const SWEEP_CONCURRENCY = 32;

/** Whatever is younger than this may still be on its ordinary way, in milliseconds. */
const SETTLING_MS = 15 * 60_000;

const DAY_MS = 24 * 3_600_000;

/**
 * How often a run that submits says where it stands, in milliseconds, so that a pass which an operator gave up ends soon:
 * a page of a listing may take minutes.
 */
const STEP_MS = 10_000;

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
  /** Entries whose marker or receipt was missing and was written again. */
  readonly repaired: number;
}

/** Entries of uploads from this time on have not expired. An upload without its entry would be paid for again. */
export const keptFrom = ({ ledgerRetentionDays }: Settings, now: number): number =>
  ledgerRetentionDays === 'forever' ? 0 : now - ledgerRetentionDays * DAY_MS + SETTLING_MS;

/** Where a run writes down how far it has come. */
export interface Hold {
  readonly kind: SweepKind;
  readonly memory: SweepStateStore;
}

/** One run of one pass. */
export class SweepRun {
  readonly #state: SweepState;
  #pass: SweepPass;
  /** Absent in a dry run, which changes nothing. */
  readonly #hold: Hold | undefined;
  readonly #ports: SweepPorts;
  readonly #invocation: Invocation;
  readonly #counts = { compared: 0, missed: 0, repaired: 0 };
  /** What could not be seen to: each is that upload's alone, and the pass goes on. */
  readonly #failures = new Map<string, unknown>();
  /** Uploads whose media type was asked for. */
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
    const { since, startedAt, force } = this.#pass;
    const { clock, settings } = this.#ports;
    // Entries go on expiring while a long pass is under way.
    const earliest = force ? since : Math.max(since, keptFrom(settings, clock.now()));
    return (
      upload.isCurrent &&
      upload.lastModified >= earliest &&
      upload.lastModified < startedAt - SETTLING_MS &&
      !isFolderMarker(upload) &&
      mayMatch(settings.routes, upload.key)
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

  /** The uploads that a route wants. Where the media type decides, S3 is asked: a listing does not tell it. */
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
    if (entry.state !== 'failed' || entry.isTold !== true) return false;
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
