import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { CLOCK_SKEW_MAX_MS, type Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import { UnreadableEntryError } from '../ledger/store.ts';
import { DUE_AGAIN_MS, SWEEP_REACH_MS } from '../ledger/waits.ts';
import type { UploadQueue } from '../resubmit/resubmit.ts';
import type { Settings } from '../settings/environment.ts';
import type { Inbox, ListedUpload } from '../uploads/inbox.ts';
import { isWantedByKey, mayMatch, routeFor } from '../uploads/routes.ts';
import { secondDigits } from '../uploads/upload.ts';
import { isFolderMarker, messageFor } from '../uploads/upload-event.ts';
import { incompleteEntry, type RepairPorts, repair } from './entry-repair.ts';
import { type Hold, PassProgress } from './pass-progress.ts';
import { NOTHING_DONE, type SweepCounts, type SweepKind, type SweepPass, type SweepState } from './sweep-state.ts';

/** Uploads and entries that are compared side by side. */
const SWEEP_CONCURRENCY = 32;

/** Age up to which an upload or entry may still be on its ordinary way, in milliseconds. */
const SETTLING_MS = 15 * 60_000;

const DAY_MS = 24 * 3_600_000;

/**
 * Longest time from a claim to the last write of its invocation, in milliseconds: the 15 minutes of a function, and
 * clocks that differ. (AWS Lambda Developer Guide, "Lambda quotas".)
 */
const CLAIMED_MS = 60 * 60_000;

export interface SweepPorts extends RepairPorts {
  readonly inbox: Inbox;
  readonly queue: UploadQueue;
  readonly clock: Clock;
  readonly settings: Settings;
  readonly s3: S3Client;
  /** Returns a different string each time: it identifies a run. */
  readonly nonce: () => string;
}

/** The work done on a pass, by this run and earlier ones. */
export interface SweepSummary extends SweepCounts {
  readonly kind: SweepKind;
  /** True if the pass came to its end. If false, the next ticks continue it. */
  readonly complete: boolean;
}

/** Returns the time from which entries have not expired. An upload without its entry would be paid for again. */
export const keptFrom = ({ ledgerRetentionDays }: Settings, now: number): number =>
  ledgerRetentionDays === 'forever' ? 0 : now - ledgerRetentionDays * DAY_MS + SETTLING_MS;

/** One run of one pass: first through the uploads in the inbox, then through the entries of the ledger. */
export class SweepRun {
  readonly #watermark: number;
  readonly #progress: PassProgress;
  readonly #ports: SweepPorts;
  readonly #invocation: Invocation;
  readonly #counts: { -readonly [name in keyof SweepCounts]: number };
  /** By upload id. The failure of one upload does not stop the pass. */
  readonly #failures = new Map<string, unknown>();
  /** Uploads whose media type S3 was asked for. */
  #asked = 0;

  constructor(
    { state, pass, hold }: { readonly state: SweepState; readonly pass: SweepPass; readonly hold: Hold },
    ports: SweepPorts,
    invocation: Invocation,
  ) {
    this.#watermark = state.watermark;
    this.#counts = { ...(pass.counts ?? NOTHING_DONE) };
    this.#progress = new PassProgress(pass, hold, ports.clock, invocation);
    this.#ports = ports;
    this.#invocation = invocation;
  }

  /** @throws {AggregateError} the failures of single uploads, at the end of the run. */
  async run(): Promise<SweepSummary> {
    const complete = (await this.#throughInbox()) && (await this.#throughLedger());
    if (complete) await this.#progress.end(this.#progress.pass.startedAt - SETTLING_MS, this.#counts);
    else await this.#progress.release();
    const summary = { kind: this.#progress.kind, complete, ...this.#counts };
    const event = complete ? 'Sweep ended' : 'Sweep was cut off. The next ticks continue it.';
    this.#ports.telemetry.log.info(event, { ...summary, asked: this.#asked });
    if (this.#failures.size > 0) {
      const message = `${this.#failures.size} uploads could not be swept`;
      throw new AggregateError([...this.#failures.values()], message);
    }
    return summary;
  }

  /** Goes through the current versions in the inbox, page by page. Returns false if the run must end. */
  async #throughInbox(): Promise<boolean> {
    const { position } = this.#progress.pass;
    if (position.in !== 'inbox') return true;
    const { inboxBucket, inboxPrefix } = this.#ports.settings;
    const pages = this.#ports.inbox.pages(inboxBucket, inboxPrefix, position.after, this.#invocation.closing);
    for await (const { uploads, last } of pages) {
      const missing = await this.#missingOf(uploads.filter((upload) => this.#isWanted(upload)));
      for (const upload of missing) {
        if (!(await this.#submit(upload))) return false;
      }
      const next = last === undefined ? ({ in: 'ledger' } as const) : ({ in: 'inbox', after: last } as const);
      if (!(await this.#progress.stepTo(next, { ...this.#counts }))) return false;
    }
    return true;
  }

  #isWanted(upload: ListedUpload): boolean {
    const { since, startedAt, force } = this.#progress.pass;
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

  /** Returns the uploads that a route wants. If the media type decides, S3 is asked: a listing does not tell it. */
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
      if (current?.id !== id) return;
      // Of an upload that S3 refuses to show, the media type is unknown. A route may want it.
      if (current.isDenied || routeFor(settings.routes, current) !== undefined) wanted.add(id);
    });
    return uploads.filter(({ id }) => wanted.has(id));
  }

  /**
   * Runs `one` for all items side by side. A failure is logged, and thrown at the end of the run.
   * @returns the ids of the items that failed.
   */
  async #each<T extends { readonly id: string }>(
    all: readonly T[],
    one: (item: T) => Promise<void>,
  ): Promise<readonly string[]> {
    const { log, metrics } = this.#ports.telemetry;
    const failed: string[] = [];
    await pMap(
      all,
      async (item) => {
        try {
          await one(item);
        } catch (error) {
          log.error('This upload could not be swept', { uploadId: item.id, error: error as Error });
          const isNew = !this.#failures.has(item.id);
          if (isNew && error instanceof UnreadableEntryError) metrics.add('EntriesUnreadable');
          this.#failures.set(item.id, error);
          failed.push(item.id);
        }
      },
      { concurrency: SWEEP_CONCURRENCY },
    );
    return failed;
  }

  /**
   * A time at which the uploads of this pass were current, by S3's clock. They were put before the pass began, and are
   * listed as current after that. The difference allows for a fast clock of ours.
   */
  get #currentAt(): number {
    return this.#progress.pass.startedAt - CLOCK_SKEW_MAX_MS;
  }

  /** Submits one upload, at the pace of the pass. Returns false if the run must end. */
  async #submit(upload: ListedUpload): Promise<boolean> {
    const { queue, clock, telemetry } = this.#ports;
    this.#counts.missed += 1;
    if (this.#progress.isDryRun) return true;
    telemetry.log.info('The sweep submits an upload that has no entry', {
      uploadId: upload.id,
      key: upload.key,
    });
    // Only a daily pass shows that notifications do not come. A backfill is for uploads that had none.
    telemetry.metrics.add(this.#progress.kind === 'daily' ? 'UploadsMissed' : 'UploadsBackfilled');
    await queue.send(messageFor({ ...upload, currentAt: this.#currentAt }), this.#invocation.closing);
    try {
      await clock.sleep(1000 / this.#progress.pass.uploadsPerSecond, this.#invocation.work);
    } catch {
      return false; // The time is over. The pass goes on from its position.
    }
    return this.#progress.renew();
  }

  /**
   * Goes through the entries that changed since the last pass. The ids begin with the time of the upload, so the
   * listing can leave out old uploads: a marker leads to any of them that changes. Returns false if the run must end.
   */
  async #throughLedger(): Promise<boolean> {
    const { position, since } = this.#progress.pass;
    const { closing } = this.#invocation;
    const changedSince = this.#progress.kind === 'daily' ? this.#watermark : Math.min(since, this.#watermark);
    const uploadedSince = Math.min(since, this.#watermark - SWEEP_REACH_MS - CLAIMED_MS);
    const first = secondDigits(uploadedSince);
    const after = position.in === 'ledger' ? (position.after ?? first) : first;
    for await (const { entries, last } of this.#ports.ledger.entryPages(after, closing)) {
      const changed = entries.filter(({ lastModified }) => lastModified >= changedSince);
      const failed = await this.#each(changed, ({ id }) => this.#repair(id));
      if (!this.#progress.isDryRun) await this.#markForTicks(failed);
      if (!(await this.#progress.stepTo({ in: 'ledger', after: last }, { ...this.#counts }))) return false;
    }
    return true;
  }

  async #repair(id: string): Promise<void> {
    const { closing } = this.#invocation;
    const incomplete = await incompleteEntry(id, this.#ports, closing);
    if (incomplete === undefined) return;
    this.#counts.repaired += 1;
    if (!this.#progress.isDryRun) await repair(incomplete, this.#ports, closing);
  }

  /** Leaves entries that could not be repaired to the ticks. The next pass does not look at them again. */
  async #markForTicks(uploadIds: readonly string[]): Promise<void> {
    const { ledger, clock } = this.#ports;
    const notBefore = clock.now() + DUE_AGAIN_MS;
    for (const uploadId of uploadIds) {
      await ledger.putWaitingMarker({ uploadId, notBefore }, this.#invocation.closing);
    }
  }
}
