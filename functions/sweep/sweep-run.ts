import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { CLOCK_SKEW_MAX_MS, type Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import { mediaTypeOf } from '../base/media-type.ts';
import type { ChainStore } from '../chains/chain-store.ts';
import {
  deletionDueAt,
  type Entry,
  failedMarkerOf,
  isTerminal,
  isUntold,
  runningMarkerOf,
  waitingMarkerOf,
} from '../ledger/entry.ts';
import { type Ledger, UnreadableEntryError } from '../ledger/store.ts';
import { DUE_AGAIN_MS, keptFrom, SETTLING_MS, SWEEP_REACH_MS } from '../ledger/waits.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import type { Receipts } from '../publish/receipts.ts';
import type { Settings } from '../settings/environment.ts';
import { type Inbox, isInside, type ListedUpload, type UploadPage } from '../uploads/inbox.ts';
import { isJobFile } from '../uploads/job-keys.ts';
import { jobFilesFor } from '../uploads/job-routes.ts';
import { isWantedByKey, jobsRouteOf, mayMatch, routeFor, whySkipped } from '../uploads/routes.ts';
import { hashIn, secondDigits } from '../uploads/upload.ts';
import type { UploadQueue } from '../uploads/upload-event.ts';
import { isFolderMarker, isFolderType, messageFor } from '../uploads/upload-event.ts';
import {
  NOTHING_DONE,
  type SweepCounts,
  type SweepKind,
  type SweepPass,
  type SweepPosition,
  type SweepState,
  type SweepStateStore,
} from './sweep-state.ts';

/** Uploads and entries that are compared side by side. */
const SWEEP_CONCURRENCY = 32;

/**
 * Time after which a run that submits asks whether its pass was stopped, in milliseconds. A page of a listing may take
 * minutes, and a backfill that an operator stopped must end soon.
 */
const CHECK_MS = 10_000;

/**
 * Messages that may wait in the queue while a backfill sends more. The queue is first come, first served, so a live file
 * waits for these at most.
 */
const QUEUED_MAX = 100;

/** Time after which a backfill asks again whether the queue is short, in milliseconds. */
const QUEUE_ASKED_MS = 1_000;

const DAY_MS = 24 * 3_600_000;

/**
 * Time after which the entry of an upload that waits is written again: a third of the shortest
 * `settings.ledgerRetentionDays`. A flow may run for half of that time, in which its chain is not written. The rest is for
 * daily passes that fail. A longer retention changes nothing: S3 could expire entries before the first pass after a
 * deployment that shortens it.
 */
const RENEWED_AFTER_MS = 10 * DAY_MS;

/**
 * Longest time from a claim to the last write of its invocation, in milliseconds: the 15 minutes of a function, and
 * clocks that differ. (AWS Lambda Developer Guide, "Lambda quotas".)
 */
const CLAIMED_MS = 60 * 60_000;

export interface SweepPorts extends PublishPorts {
  readonly ledger: Ledger;
  readonly receipts: Receipts;
  readonly chains: ChainStore;
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

/** What a run has taken. */
interface TakenPass {
  readonly kind: SweepKind;
  readonly pass: SweepPass;
  readonly store: SweepStateStore;
  /** The watermark when the pass was taken. */
  readonly watermark: number;
  /** Since when each bucket and prefix has been the inbox. */
  readonly inboxes: NonNullable<SweepState['inboxes']>;
}

/**
 * One run of one pass: first through the uploads in the inbox, then through the entries of the ledger. It submits the
 * current versions in the inbox that have no entry. It puts the markers and receipts again that may be missing beside
 * the entries that changed since the last pass. At its end, a daily pass keeps what waits from expiring.
 */
export class SweepRun {
  readonly #kind: SweepKind;
  readonly #pass: SweepPass;
  readonly #store: SweepStateStore;
  readonly #watermark: number;
  readonly #inboxes: TakenPass['inboxes'];
  readonly #ports: SweepPorts;
  readonly #invocation: Invocation;
  readonly #counts: { -readonly [name in keyof SweepCounts]: SweepCounts[name] };
  /** By upload id. The failure of one upload does not stop the pass. */
  readonly #failures = new Map<string, unknown>();
  /** Uploads whose media type S3 was asked for. */
  #asked = 0;
  /** When the stored state was last read or written. */
  #checkedAt: number;
  /** How many messages a backfill may send before it asks for the length of the queue. */
  #queueRoom = 0;

  constructor({ kind, pass, store, watermark, inboxes }: TakenPass, ports: SweepPorts, invocation: Invocation) {
    this.#kind = kind;
    this.#pass = pass;
    this.#store = store;
    this.#watermark = watermark;
    this.#inboxes = inboxes;
    this.#counts = { ...(pass.counts ?? NOTHING_DONE) };
    this.#ports = ports;
    this.#invocation = invocation;
    this.#checkedAt = ports.clock.now();
  }

  /** @throws {AggregateError} the failures of single uploads, at the end of the run. */
  async run(): Promise<SweepSummary> {
    const complete = (await this.#throughInbox()) && (await this.#throughLedger()) && (await this.#throughWaiting());
    if (complete) await this.#end();
    else await this.#change((state, pass) => ({ ...state, [this.#kind]: { ...pass, heldUntil: 0 } }));
    const { missedByRoute: _, ...counts } = this.#counts;
    const summary = { kind: this.#kind, complete, ...counts };
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
    const { position } = this.#pass;
    if (position.in !== 'inbox') return true;
    const { inboxBucket, inboxPrefix } = this.#ports.settings;
    const pages = this.#ports.inbox.pages(inboxBucket, inboxPrefix, position.after, this.#invocation.closing);
    for await (const { uploads, last } of pages) {
      const swept = uploads.filter((upload) => this.#isInReach(upload));
      await this.#countUnnamed(swept);
      this.#countSkipped(swept);
      const missing = await this.#missingOf(swept.filter(({ key }) => mayMatch(this.#ports.settings.routes, key)));
      for (const upload of missing) {
        if (!(await this.#submit(upload, { uploads, last }))) return false;
      }
      const next = last === undefined ? ({ in: 'ledger' } as const) : ({ in: 'inbox', after: last } as const);
      if (!(await this.#stepTo(next))) return false;
    }
    return true;
  }

  /** True for the current version of a file of the time that this pass covers. */
  #isInReach(upload: ListedUpload): boolean {
    const { since, startedAt, force, isNamed } = this.#pass;
    const { clock, settings } = this.#ports;
    // Entries go on expiring while a long pass is under way.
    const earliest = force ? since : Math.max(since, keptFrom(settings, clock.now()));
    return (
      upload.isCurrent &&
      upload.lastModified >= earliest &&
      upload.lastModified < startedAt - SETTLING_MS &&
      !isFolderMarker(upload) &&
      (this.#kind === 'backfill' || isNamed || upload.lastModified >= this.#inboxSince(upload))
    );
  }

  /** Since when files with this key have been put into the inbox. A deployment may have replaced it, or its prefix. */
  #inboxSince({ bucket, key }: ListedUpload): number {
    const of = Object.entries(this.#inboxes).filter(([inbox]) => `${bucket}/${key}`.startsWith(inbox));
    return Math.min(...of.map(([, since]) => since));
  }

  /** Counts the files below the prefixes of jobs that no job takes. Nobody else would ever tell of them. */
  async #countUnnamed(uploads: readonly ListedUpload[]): Promise<void> {
    const { settings, telemetry } = this.#ports;
    await this.#each(uploads, async ({ id, bucket, key }) => {
      const owner = jobsRouteOf(settings.routes, key);
      if (owner === undefined || isJobFile(key)) return;
      for (const jobKey of jobFilesFor(key, owner.jobs)) {
        if (await this.#mayTake({ bucket, key: jobKey }, key)) return;
      }
      this.#counts.unnamed = (this.#counts.unnamed ?? 0) + 1;
      if (this.#kind === 'daily') telemetry.metrics.add('UploadsUnnamed');
      telemetry.log.info('No job takes this file, so nothing is sent of it', { uploadId: id, key });
    });
  }

  /** Counts the files that no route may take, whatever it says. */
  #countSkipped(uploads: readonly ListedUpload[]): void {
    const { settings, telemetry } = this.#ports;
    for (const { id, key, bytes } of uploads) {
      const why = whySkipped(settings.routes, { key, bytes });
      if (why === undefined) continue;
      this.#counts.skipped = (this.#counts.skipped ?? 0) + 1;
      telemetry.log.info(why, { uploadId: id, key });
    }
  }

  /**
   * False if there is no such job, or it has gone on without the file. The job file itself is not read: this function
   * has no right to decrypt it.
   */
  async #mayTake(job: Pick<ListedUpload, 'bucket' | 'key'>, key: string): Promise<boolean> {
    const { inbox, ledger, settings } = this.#ports;
    const { closing } = this.#invocation;
    if (!isInside(settings, job)) return false;
    const current = await inbox.current(job.bucket, job.key, closing);
    if (current === undefined) return false;
    const entry = (await ledger.read(current.id, closing))?.entry;
    if (entry === undefined || entry.job !== undefined) return true;
    return entry.inputs?.some((input) => input.key === key) === true;
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
    await this.#each(uploads, async ({ id, bucket, key, bytes }) => {
      // An empty object may be a folder, which its media type tells.
      if (bytes > 0 && isWantedByKey(settings.routes, key)) {
        wanted.add(id);
        return;
      }
      this.#asked += 1;
      const current = await inbox.current(bucket, key, this.#invocation.closing);
      if (current?.id !== id || isFolderType(current.mediaType)) return;
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
    return this.#pass.startedAt - CLOCK_SKEW_MAX_MS;
  }

  #countRoute({ key }: ListedUpload): void {
    const { name } = routeFor(this.#ports.settings.routes, { key, mediaType: mediaTypeOf(undefined, key) }) ?? {};
    if (name === undefined) return;
    const { missedByRoute = {} } = this.#counts;
    this.#counts.missedByRoute = { ...missedByRoute, [name]: (missedByRoute[name] ?? 0) + 1 };
  }

  /** True if the object may be a copy of the one before it at its key, which stands behind it on the page. */
  async #mayBeCopy(upload: ListedUpload, { uploads, last }: UploadPage): Promise<boolean> {
    const { id, bucket, key, bytes, versionId } = upload;
    const { inbox, receipts } = this.#ports;
    const { closing } = this.#invocation;
    if (versionId === undefined) {
      const told = await receipts.uploadAt(key, closing);
      return told !== undefined && told !== id && hashIn(told) === hashIn(id);
    }
    let before = uploads[uploads.indexOf(upload) + 1];
    if (before === undefined && last !== undefined) {
      for await (const next of inbox.pages(bucket, key, last, closing)) {
        before = next.uploads[0];
        break;
      }
    }
    return before?.key === key && before.bytes === bytes;
  }

  /** Submits one upload of a page, at the pace of the pass. Returns false if the run must end. */
  async #submit(upload: ListedUpload, page: UploadPage): Promise<boolean> {
    const { queue, clock, telemetry } = this.#ports;
    const isBackfill = this.#kind === 'backfill';
    if (isBackfill && !(await this.#hasShortQueue())) return false;
    this.#counts.missed += 1;
    if (this.#isDryRun) {
      this.#countRoute(upload);
      return true;
    }
    telemetry.log.info('The sweep submits an upload that has no entry', {
      uploadId: upload.id,
      key: upload.key,
    });
    // Only a daily pass shows that notifications do not come. A backfill is for uploads that had none. create-flow looks
    // whether an upload is a copy, which has no entry either.
    if (!(await this.#mayBeCopy(upload, page))) {
      telemetry.metrics.add(this.#kind === 'daily' ? 'UploadsMissed' : 'UploadsBackfilled');
    }
    const message = messageFor({ ...upload, currentAt: this.#currentAt }, isBackfill || undefined);
    await queue.send(message, this.#invocation.closing);
    try {
      await clock.sleep(1000 / this.#pass.uploadsPerSecond, this.#invocation.work);
    } catch {
      return false; // The time is over. The pass goes on from its position.
    }
    return this.#isStillOurs();
  }

  /** Waits until the queue is short. Returns false if the run must end. */
  async #hasShortQueue(): Promise<boolean> {
    const { queue, clock } = this.#ports;
    while (this.#queueRoom <= 0) {
      this.#queueRoom = QUEUED_MAX - (await queue.waitingCount(this.#invocation.closing));
      if (this.#queueRoom > 0) break;
      try {
        await clock.sleep(QUEUE_ASKED_MS, this.#invocation.work);
      } catch {
        return false;
      }
      if (!(await this.#isStillOurs())) return false;
    }
    this.#queueRoom -= 1;
    return true;
  }

  /**
   * Goes through the entries that changed since the last pass. The ids begin with the time of the upload, so the
   * listing can skip old uploads. If one changes, it has a marker. Returns false if the run must end.
   */
  async #throughLedger(): Promise<boolean> {
    const { position, since } = this.#pass;
    const { closing } = this.#invocation;
    if (position.in === 'waiting') return true;
    const changedSince = this.#kind === 'daily' ? this.#watermark : Math.min(since, this.#watermark);
    const uploadedSince = Math.min(since, this.#watermark - SWEEP_REACH_MS - CLAIMED_MS);
    const first = secondDigits(uploadedSince);
    const after = position.in === 'ledger' ? (position.after ?? first) : first;
    for await (const { entries, last } of this.#ports.ledger.entryPages(after, closing)) {
      const changed = entries.filter(({ lastModified }) => lastModified >= changedSince);
      const failed = await this.#each(changed, ({ id }) => this.#repair(id));
      if (!this.#isDryRun) await this.#markForTicks(failed);
      if (!(await this.#stepTo({ in: 'ledger', after: last }))) return false;
    }
    return true;
  }

  /**
   * Writes again the entries of uploads that have waited for long, and their chains: S3 expires them by the time of
   * their last write, and a hold may last for longer. Returns false if the run must end.
   */
  async #throughWaiting(): Promise<boolean> {
    const { position } = this.#pass;
    const { clock, ledger } = this.#ports;
    const { closing } = this.#invocation;
    if (this.#kind !== 'daily') return true;
    const before = clock.now() - RENEWED_AFTER_MS;
    const renewed = new Set<string>();
    const after = position.in === 'waiting' ? position.after : undefined;
    for await (const { ids, last } of ledger.waitingPages(after, closing)) {
      // An entry is not older than its upload.
      const old = ids.filter((id) => id < secondDigits(before)).map((id) => ({ id }));
      await this.#each(old, ({ id }) => this.#renew(id, before, renewed));
      if (!(await this.#stepTo({ in: 'waiting', after: last ?? after }))) return false;
    }
    return true;
  }

  /** @param renewed the chains that need not be read again. */
  async #renew(id: string, before: number, renewed: Set<string>): Promise<void> {
    const { chains, ledger } = this.#ports;
    const { closing } = this.#invocation;
    const stored = await ledger.read(id, closing);
    if (stored?.entry.state !== 'waiting') return;
    const { writtenAt = before, entry } = stored;
    if (writtenAt < before) await ledger.replace(stored, entry, closing);
    const firstId = entry.upload.stage?.first.id ?? id;
    if (renewed.has(firstId)) return;
    renewed.add(firstId);
    await chains.renew(firstId, before, closing);
  }

  /** Puts again what may be missing beside an entry. What is there already stays as it is. */
  async #repair(id: string): Promise<void> {
    const { ledger } = this.#ports;
    const { closing } = this.#invocation;
    const entry = (await ledger.read(id, closing))?.entry;
    const missing = entry === undefined ? [] : await this.#missingBeside(entry);
    if (entry === undefined) return;
    if (missing.length > 0) this.#counts.repaired += 1;
    if (this.#isDryRun) return;
    if (entry.state === 'running') await ledger.putRunningMarker(runningMarkerOf(entry.upload, entry.flow), closing);
    const waiting = waitingMarkerOf(entry, this.#ports.settings);
    if (waiting !== undefined) await ledger.putWaitingMarker(waiting, closing);
    const deletionAt = isTerminal(entry) ? deletionDueAt(entry, this.#ports.settings.routes) : undefined;
    if (deletionAt !== undefined) await ledger.putWaitingMarker({ uploadId: id, notBefore: deletionAt }, closing);
    if (entry.state === 'failed' && missing.includes('failed marker')) {
      await ledger.putFailedMarker(failedMarkerOf(entry), closing);
    }
    if (isTerminal(entry) && missing.includes('receipt')) await publish(entry, this.#ports, closing);
    // After a cancel, a crash leaves the running marker, or a slow create-flow puts it. If the service does not show that
    // the flow has ended, it would be polled up to its maximum age.
    if (entry.state === 'failed' && entry.flow !== undefined) {
      await ledger.deleteRunningMarker(runningMarkerOf(entry.upload, entry.flow), closing);
    }
  }

  async #missingBeside(entry: Entry): Promise<readonly ('marker' | 'failed marker' | 'receipt')[]> {
    const { ledger, receipts } = this.#ports;
    const { closing } = this.#invocation;
    if (!isTerminal(entry)) return ['marker'];
    const isTold = entry.state === 'failed' && !isUntold(entry);
    // Publishing puts the marker of a failure that is not told yet.
    const hasMarker = !isTold || (await ledger.hasFailedMarker(failedMarkerOf(entry), closing));
    // The marker of a flow that succeeded stays until its receipt is out.
    const isOut = isTold && (entry.flow !== undefined || (await receipts.isPublished(entry, closing)));
    const hasReceipt = entry.state === 'succeeded' || isOut;
    return [...(hasMarker ? [] : (['failed marker'] as const)), ...(hasReceipt ? [] : (['receipt'] as const))];
  }

  /** Leaves entries that could not be repaired to the ticks. The next pass does not read them again. */
  async #markForTicks(uploadIds: readonly string[]): Promise<void> {
    const { ledger, clock } = this.#ports;
    const notBefore = clock.now() + DUE_AGAIN_MS;
    for (const uploadId of uploadIds) {
      await ledger.putWaitingMarker({ uploadId, notBefore }, this.#invocation.closing);
    }
  }

  get #isDryRun(): boolean {
    return this.#kind === 'dryRun';
  }

  /** Writes the position, with what was done up to it. Returns false if the run must end. */
  async #stepTo(position: SweepPosition): Promise<boolean> {
    const done = { position, counts: { ...this.#counts } };
    return this.#isOurs(await this.#change((state, pass) => ({ ...state, [this.#kind]: { ...pass, ...done } })));
  }

  /** Returns false if the run must end. Asks the stored state, unless that was done within ten seconds. */
  async #isStillOurs(): Promise<boolean> {
    const { clock } = this.#ports;
    if (clock.now() < this.#checkedAt + CHECK_MS) return true;
    this.#checkedAt = clock.now();
    return this.#isOurs(await this.#store.read(this.#invocation.closing));
  }

  /** False if the run's time is over, or the pass was stopped. */
  #isOurs(state: SweepState): boolean {
    return state[this.#kind]?.holder === this.#pass.holder && !this.#invocation.work.aborted;
  }

  /** Ends the pass, and moves the watermark to its beginning if the pass left no gap before it. */
  async #end(): Promise<void> {
    const endedAt = this.#ports.clock.now();
    await this.#change((state, { since, startedAt }) => {
      // A backfill whose `since` is after the watermark leaves a gap. A dry run has submitted nothing.
      const hasNoGap = this.#kind === 'daily' || (this.#kind === 'backfill' && since <= state.watermark);
      return {
        ...state,
        [this.#kind]: undefined,
        watermark: hasNoGap ? Math.max(startedAt - SETTLING_MS, state.watermark) : state.watermark,
        ended: { ...state.ended, [this.#kind]: { since, startedAt, endedAt, counts: this.#counts } },
      };
    });
  }

  /** Changes the stored state, if the pass was not stopped. */
  #change(change: (state: SweepState, pass: SweepPass) => SweepState): Promise<SweepState> {
    this.#checkedAt = this.#ports.clock.now();
    return this.#store.update((state) => {
      const pass = state[this.#kind];
      return pass?.holder === this.#pass.holder ? change(state, pass) : state;
    }, this.#invocation.closing);
  }
}
