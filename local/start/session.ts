import { stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import type { NamedFile } from '../../command-line/named-files.ts';
import { ResultsFolder } from '../../command-line/results-folder.ts';
import { shownPath, size } from '../../command-line/texts.ts';
import { systemClock } from '../../functions/base/clock.ts';
import { mediaTypeOf } from '../../functions/base/media-type.ts';
import { isPrintable, messageOf } from '../../functions/base/printable.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { isWaitingJob } from '../../functions/ledger/entry.ts';
import { isSuccess, type TerminalState } from '../../functions/ledger/terminal-states.ts';
import type { ChainReport, Receipt } from '../../functions/publish/report-schemas.ts';
import { OWN_COMMAND } from '../../functions/settings/own-command.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import { routesAfter } from '../../functions/uploads/chain-routes.ts';
import { isJobFile } from '../../functions/uploads/job-keys.ts';
import { aliasFolderOf } from '../../functions/uploads/results-key-pattern.ts';
import { isLeftOut, routeFor } from '../../functions/uploads/routes.ts';
import { uploadsOf } from '../../functions/uploads/upload-event.ts';
import { uploadCommand } from '../../operations/commands.ts';
import { nearestRoute } from '../../operations/explain.ts';
import { inputRouteOf } from '../../operations/job-files.ts';
import { needsSomebody } from '../../operations/shown-state.ts';
import { firstKeyOf } from '../../operations/upload-name.ts';
import type { S3EventRecord } from '../aws/s3/events.ts';
import { toldLine } from '../notify.ts';
import {
  COLLECT_FUNCTION,
  INBOX_BUCKET,
  type OperatorAccess,
  type Pipeline,
  type PipelineOptions,
  RESULTS_BUCKET,
  startPipeline,
} from '../pipeline.ts';
import { chainLine, endLines, isReplaced, Waits } from './file-lines.ts';
import { DeliveredReceipts, Follower, isFullDisk, type Progress } from './follower.ts';
import {
  abortUnfinishedUploads,
  type Content,
  FileChangedError,
  type InboxFile,
  isUnchanged,
  isUploaded,
  uploadFile,
  versionOf,
} from './inbox-file.ts';
import { InboxFolder } from './inbox-folder.ts';
import { InboxWatch, type KnownFiles, UPLOADS_MAX } from './inbox-watch.ts';
import type { FunctionLogs } from './logs.ts';
import type { Screen } from './screen.ts';

const INBOX_POLL_INTERVAL_MS = 400;

/** From this size on, the status says how much of a file is uploaded. */
const PERCENT_BYTES_MIN = 5_000_000;
/**
 * How often a named file is read again that changes while it is read, and the time between two tries in milliseconds.
 */
const CHANGES_MAX = 5;
const CHANGE_WAIT_MS = 1_000;

/** `replaced`: a newer file took its place. `given-up`: it has not ended, but this run does not wait for it. */
type End = TerminalState | 'replaced' | 'given-up';

/** One version of a file on its way. Several versions of a key may be under way at the same time. */
interface Tracked {
  readonly key: string;
  readonly since: number;
  state: string;
  /** True if it belongs to a later stage of a chain. */
  isStage?: boolean;
  /** True if it waits for the service, and cannot go on by itself. */
  waits?: boolean;
  /** The version of the object. Undefined until S3 has answered. */
  versionId?: string | undefined;
  readonly end: PromiseWithResolvers<End>;
}

type Version = Pick<Tracked, 'key' | 'versionId'>;

const newlyTracked = (key: string, since = Date.now()): Tracked => ({
  key,
  since,
  state: 'uploading',
  end: Promise.withResolvers<End>(),
});

/** Longest time from the end of a stage until the next one begins or the chain ends, in milliseconds. */
const BETWEEN_STAGES_MAX_MS = 30_000;

/** Time until results are copied again for which the disk had no space, in milliseconds. */
const COPY_AGAIN_MS = 5_000;

/** Number of files that a line names. */
const NAMED_MAX = 3;

function namesOf(keys: readonly string[]): string {
  const named = keys.slice(0, NAMED_MAX).join(', ');
  return keys.length > NAMED_MAX ? `${named} and ${keys.length - NAMED_MAX} more` : named;
}

/** The file that a receipt or a chain is of, by its key. A later stage belongs to the first file of its chain. */
const fileOf = (key: string): string => key.slice(0, key.lastIndexOf('/')).replace(/\/chain\/[^/]+\/[0-9a-f]{40}$/, '');

/** An upload that S3 has answered. */
interface Uploaded {
  readonly content: Content;
  readonly end: Promise<End>;
}

export interface SessionOptions {
  readonly pipeline: Pick<
    PipelineOptions,
    | 'bundleDir'
    | 'stateDir'
    | 'name'
    | 'routes'
    | 'inboxDir'
    | 's3Port'
    | 'service'
    | 'speaks'
    | 'standIn'
    | 'tickIntervalMs'
    | 'notify'
    | 'resultsRetentionDays'
  > & {
    readonly settings: PipelineSettings;
  };
  readonly resultsDir: string;
  readonly screen: Screen;
  readonly logs: FunctionLogs;
  /** The command that processes a file, or the folder of a job, as this run does. Only a run with file names needs it. */
  readonly command?: ((path: string) => string) | undefined;
  /** Paths on the screen are relative to this folder. */
  readonly cwd: string;
}

/** Uploads files to the pipeline and shows the progress of each on the screen. */
export class Session {
  readonly #options: SessionOptions;
  readonly #tracked = new Set<Tracked>();
  /** The files that were not uploaded because the session was interrupted. */
  readonly #interrupted = new Set<string>();
  /** By key: uploads whose bytes are sent, and whose version S3 has not answered yet. A key has one at a time. */
  readonly #answers = new Map<string, Promise<unknown>>();
  #pipeline!: Pipeline;
  #follower!: Follower;
  #isClosing = false;
  #closed: Promise<void> | undefined;
  /** The changes of objects that are being followed. */
  readonly #following = new Set<Promise<void>>();
  readonly #ends = { done: 0, failed: 0, replaced: 0 };
  /** The first files of chains that go on after a stage that has ended. */
  readonly #openChains = new Set<string>();
  /** Keys of the files whose chains failed. A chain may fail although all of its uploads succeeded. */
  readonly #failedChains = new Set<string>();
  /** The ends that targets of `notify` are told of. */
  readonly #reports: (Receipt | ChainReport)[] = [];
  /** The files of the inbox that are not complete yet. */
  #changing: readonly InboxFile[] = [];
  /** True until a copy succeeds. */
  #isFullDiskTold = false;
  readonly #waits: Waits;
  /** By key: the paths of the files that were named. */
  readonly #named = new Map<string, string>();
  /** By their message: how many files have failed since the last success. */
  readonly #failuresTold = new Map<string, number>();

  static async start(options: SessionOptions): Promise<Session> {
    const session = new Session(options);
    const { logs, pipeline } = options;
    const { stateDir } = pipeline;
    session.#pipeline = await startPipeline({
      ...options.pipeline,
      onLog: (name, line) => logs.write(name, line),
      onFault: (name, error) => logs.fault(name, error),
      onS3Event: (record) => session.#follow(record),
      onTold: (told) => session.#isClosing || options.screen.line(toldLine(told)),
      onDeadLetter: (body) => {
        for (const { key, versionId } of uploadsOf(JSON.parse(body))) {
          const line = `${key}  failed: every attempt failed; ${logs.hint('create-flow')}`;
          session.#end(session.#find({ key, versionId }), 'given-up', line);
        }
      },
    });
    session.#follower = new Follower({
      s3: session.#pipeline.s3,
      results: new ResultsFolder(options.resultsDir),
      share: (object, path) => session.#pipeline.shareBlocks(object, path),
      delivered: new DeliveredReceipts(stateDir === undefined ? undefined : join(stateDir, 'delivered-receipts')),
      receiptSettings: {
        collectFunction: COLLECT_FUNCTION,
        command: OWN_COMMAND,
        localInbox: options.pipeline.inboxDir ?? '',
        resultsBucket: RESULTS_BUCKET,
        resultsPrefix: options.pipeline.settings.resultsPrefix,
        service: options.pipeline.speaks ?? FLOWS,
      },
      aliasFolders: options.pipeline.routes.flatMap(({ alias }) =>
        alias === undefined ? [] : [options.pipeline.settings.resultsPrefix + aliasFolderOf(alias)],
      ),
      onProgress: (progress) => session.#onProgress(progress),
    });
    await abortUnfinishedUploads(session.#pipeline.s3, INBOX_BUCKET);
    return session;
  }

  private constructor(options: SessionOptions) {
    this.#options = options;
    this.#waits = new Waits(this.#keepsNothing ? (key) => this.#again(key) : undefined);
  }

  /** True for a run with file names: no command of flowdrop reaches it. */
  get #keepsNothing(): boolean {
    return this.#options.pipeline.inboxDir === undefined;
  }

  /** How a named file is sent again, with the same route. */
  #again(name: string): string {
    const key = firstKeyOf(name);
    const { command, pipeline } = this.#options;
    const path = this.#named.get(key) ?? '';
    const isJob = isJobFile(key);
    const routeOf = (each: string) =>
      routeFor(pipeline.routes, { key: each, mediaType: mediaTypeOf(undefined, each) })?.name;
    const isSame = isJob || routeOf(this.#keyOf({ key: basename(path) })) === routeOf(key);
    const given =
      command !== undefined && isSame && isPrintable(path) ? command(isJob ? dirname(path) : path) : undefined;
    return given ?? 'name it again as before';
  }

  /** Number of files that have not ended. */
  get unfinished(): number {
    return new Set([...this.#interrupted, ...Array.from(this.#tracked, ({ key }) => key)]).size;
  }

  /** How commands reach this run. */
  get operator(): OperatorAccess {
    return this.#pipeline.operator;
  }

  /**
   * Continues with the uploads that an earlier run did not finish, and with the results that it did not copy.
   * @param otherInbox the folder that the earlier run watched, if this one watches another.
   */
  async resume(otherInbox?: string): Promise<void> {
    const { screen } = this.#options;
    const { uncopied, gone } = await this.#follower.leftovers();
    if (uncopied.length > 0) {
      const names = namesOf([...new Set(uncopied.map(fileOf))]);
      screen.line(`Results of the run before that were not copied are copied now: ${names}.`);
    }
    // The disk may still be full. The files of this run do not wait for that.
    void this.#copyAll([...uncopied, ...gone]);
    const entries = await this.#pipeline.resume();
    if (entries.length === 0) return;
    const which = otherInbox === undefined ? '' : `, which watched ${otherInbox},`;
    const { standIn, standInJobs } = this.#pipeline;
    const doGoOn = standIn === undefined && standInJobs === undefined;
    const names = namesOf(entries.map(({ upload }) => upload.key));
    screen.line(`Unfinished files of the run before${which} ${doGoOn ? 'go on' : 'are begun again'}: ${names}.`);
    for (const { upload, arrivedAt } of entries) this.#track(upload, arrivedAt);
    for (const entry of entries) if (doGoOn || isWaitingJob(entry)) this.#follower.show(entry);
    this.#drawStatus();
  }

  /** Ends the pipeline. Nothing is shown after this has resolved. May be called again. */
  close(): Promise<void> {
    this.#isClosing = true;
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#options.screen.clear();
    await this.#pipeline.close();
    // A result that is being copied counts. What can no longer be read fails at once.
    await Promise.allSettled(this.#following);
  }

  /**
   * Processes these files. Resolves with true if all succeeded.
   * @param allWaitMaxMs when every file has been waiting for this time, in milliseconds, they are given up.
   */
  async process(files: readonly NamedFile[], { allWaitMaxMs = ALL_WAIT_MAX_MS } = {}): Promise<boolean> {
    const doAllWait = () => this.#tracked.size > 0 && this.#tracked.values().every(({ waits }) => waits);
    for (const file of files) this.#named.set(this.#keyOf(file), file.path);
    using patience = new Patience(allWaitMaxMs, doAllWait, () => this.#giveUp());
    const takeIn = async (some: readonly NamedFile[]): Promise<readonly End[]> =>
      pMap(
        some,
        async (file) => {
          if (this.#isClosing) return 'given-up';
          if (!patience.isOver) return (await this.#uploadNamed(file))?.end ?? 'failed';
          const line = `${this.#keyOf(file)}  not sent: the files before it waited for too long`;
          this.#end(undefined, 'given-up', line);
          return 'given-up';
        },
        { concurrency: UPLOADS_MAX },
      );
    // A job that is put after its inputs need not wait for them.
    const [inputs, others] = [true, false].map((isInput) => files.filter((file) => this.#isInput(file) === isInput));
    const ends = [...(await takeIn(inputs ?? [])), ...(await takeIn(others ?? []))];
    const all = [...ends, ...(await this.#laterStages())];
    this.#giveUp(); // What is left needs the user.
    if (this.#options.pipeline.notify !== undefined) await this.#tellRest();
    return all.every(isSuccess) && this.#failedChains.size === 0;
  }

  /** Waits for the later stages of the files, until their chains have ended. */
  async #laterStages(): Promise<readonly End[]> {
    const ends: End[] = [];
    let idleMs = 0;
    while (!this.#isClosing && idleMs < BETWEEN_STAGES_MAX_MS) {
      const [next] = [...this.#tracked].filter(({ isStage }) => isStage === true);
      if (next !== undefined) {
        ends.push(await next.end.promise);
        this.#tracked.delete(next);
        idleMs = 0;
      } else if (this.#openChains.size === 0 || ends.includes('given-up')) return ends;
      else {
        await systemClock.sleep(CHECK_MS);
        idleMs += CHECK_MS;
      }
    }
    return ends;
  }

  /** A run that goes on tells by and by. */
  #noteEnd(report: Receipt | ChainReport): void {
    if (this.#keepsNothing && this.#options.pipeline.notify !== undefined) this.#reports.push(report);
  }

  /** Waits until all ends were told of. The event of an end follows its receipt. */
  async #tellRest(): Promise<void> {
    const isSent = ({ upload, generation, endedAt, ...rest }: Receipt | ChainReport): boolean =>
      this.#pipeline.eventBus.published.some(({ Detail }) => {
        const sent = JSON.parse(Detail);
        const isSame = sent.upload?.id === upload.id && sent.generation === generation && sent.endedAt === endedAt;
        return isSame && 'chain' in sent === 'chain' in rest;
      });
    for (let waitedMs = 0; waitedMs < TELL_REST_MS_MAX && !this.#isClosing; waitedMs += CHECK_MS) {
      if (this.#reports.every(isSent)) break;
      await systemClock.sleep(CHECK_MS);
    }
    await this.#pipeline.notified();
  }

  #giveUp(): void {
    if (this.#isClosing) return;
    for (const tracked of [...this.#tracked]) {
      this.#end(tracked, 'given-up', `${tracked.key}  given up: it ${tracked.state}`);
    }
  }

  /** Uploads the files that appear in the folder, until the signal aborts. */
  async watch(dir: string, { known, signal }: { known: KnownFiles; signal: AbortSignal }): Promise<void> {
    const { routes } = this.#options.pipeline;
    const inbox = new InboxFolder(dir, systemClock, (key) => isLeftOut(routes, this.#keyOf({ key })));
    const watch = new InboxWatch({
      inbox,
      known,
      signal,
      upload: async (file) => (await this.#upload(file, signal))?.content,
      isUploaded: (file) => isUploaded(file, { ...this.#target(file), signal }),
      onFailure: (file, error) => this.#warn(`${this.#keyOf(file)}: upload error: ${messageOf(error)}`),
      onInterruption: (file) => this.#interrupted.add(this.#keyOf(file)),
      onError: (error) => this.#warn(messageOf(error)),
    });
    let told: readonly string[] = [];
    while (!signal.aborted) {
      await watch.poll();
      const before = this.#changing;
      this.#changing = inbox.changing;
      if (before.length + this.#changing.length > 0) this.#drawStatus();
      told = this.#tellTroubles(inbox.troubles, told);
      await systemClock.sleep(INBOX_POLL_INTERVAL_MS, signal).catch(() => undefined);
    }
    await watch.idle();
  }

  /** Uploads a file that was named as an argument. Undefined if that failed. The screen then says why. */
  async #uploadNamed({ path, key }: NamedFile): Promise<Uploaded | undefined> {
    try {
      for (let changes = 0; ; changes += 1) {
        try {
          const file = { path, key, ...versionOf(await stat(path)) };
          return await this.#upload(file, new AbortController().signal);
        } catch (error) {
          if (!(error instanceof FileChangedError) || changes === CHANGES_MAX) throw error;
          await systemClock.sleep(CHANGE_WAIT_MS);
        }
      }
    } catch (error) {
      const line = `${this.#keyOf({ key })}  failed: upload error: ${messageOf(error)}`;
      if (!this.#isClosing) this.#end(undefined, 'failed', line);
      return undefined;
    }
  }

  /** True if the file may be an input of jobs. It is no upload of its own then, so it has no end. */
  #isInput(file: NamedFile): boolean {
    return inputRouteOf(this.#keyOf(file), this.#options.pipeline) !== undefined;
  }

  /**
   * Returns undefined if no route wants the file. The screen then says so.
   * @throws as `uploadFile` does.
   */
  async #upload(file: InboxFile, signal: AbortSignal): Promise<Uploaded | undefined> {
    const { screen, pipeline } = this.#options;
    const key = this.#keyOf(file);
    const facts = { key, mediaType: mediaTypeOf(undefined, key) };
    const isInput = this.#isInput(file);
    if (!isInput && !routeFor(pipeline.routes, facts)) {
      screen.line(`${key}  skipped: no route matches this file`);
      const known = this.#keepsNothing ? file.path : key;
      const explained = uploadCommand('explain', { key: known, id: file.path }, { command: OWN_COMMAND });
      screen.line(`    ${nearestRoute(pipeline.routes, facts)} For all routes: ${explained}`);
      return undefined;
    }
    const tracked = newlyTracked(key);
    this.#tracked.add(tracked);
    this.#drawStatus();
    const answer = Promise.withResolvers<void>();
    try {
      const { versionId, content } = await uploadFile(file, {
        ...this.#target(file),
        signal,
        onProgress: (bytes) => this.#showPercent(tracked, bytes, file.bytes),
        onRead: () => this.#answers.set(key, answer.promise),
      });
      tracked.versionId = versionId;
      tracked.state = 'uploaded';
      if (versionId !== undefined) {
        const object = { bucket: INBOX_BUCKET, key, versionId };
        await this.#pipeline.shareBlocks(object, file.path, () => isUnchanged(file)).catch(() => undefined);
      }
      if (isInput) {
        this.#tracked.delete(tracked);
        screen.line(`${key}  uploaded, for the jobs that name it`);
        tracked.end.resolve('succeeded');
      }
      return { content, end: tracked.end.promise };
    } catch (error) {
      this.#tracked.delete(tracked);
      throw error;
    } finally {
      this.#answers.delete(key);
      answer.resolve();
      this.#drawStatus();
    }
  }

  #follow(record: S3EventRecord): void {
    void this.#keepCopying(record.s3.object.key, () => this.#follower.follow(record));
  }

  /** Copies objects one after the other: there may be thousands. */
  async #copyAll(keys: readonly string[]): Promise<void> {
    for (const key of keys) if (!this.#isClosing) await this.#keepCopying(key, () => this.#follower.copy(key));
  }

  /** @param copy is made again while the disk is full. */
  #keepCopying(key: string, copy: () => Promise<void>): Promise<void> {
    const copied = this.#copyToEnd(copy)
      .catch((error) => this.#warn(`${key}: ${messageOf(error)}`))
      .finally(() => this.#following.delete(copied));
    this.#following.add(copied);
    return copied;
  }

  /** Copies results again while the disk is full. The next run copies what this one could not. */
  async #copyToEnd(copy: () => Promise<void>): Promise<void> {
    for (let wasFull = false; ; wasFull = true) {
      try {
        await copy();
        // Some have nothing to copy, and end well on a full disk too.
        if (wasFull) this.#isFullDiskTold = false;
        return;
      } catch (error) {
        if (!isFullDisk(error) || this.#isClosing) throw error;
        if (!this.#isFullDiskTold) this.#warn(`${this.#fullDisk()} Free some space.`);
        this.#isFullDiskTold = true;
      }
      for (let waited = 0; waited < COPY_AGAIN_MS && !this.#isClosing; waited += CHECK_MS) {
        await systemClock.sleep(CHECK_MS);
      }
    }
  }

  #fullDisk(): string {
    const { resultsDir, cwd } = this.#options;
    return `The disk has no space for results in ${shownPath(resultsDir, cwd)}. The copy is tried again every ${COPY_AGAIN_MS / 1_000} seconds.`;
  }

  #keyOf(file: Pick<InboxFile, 'key'>): string {
    return `${this.#options.pipeline.settings.inboxPrefix}${file.key}`;
  }

  /** Where S3 gets a file. */
  #target(file: InboxFile): { s3: S3Client; bucket: string; key: string } {
    return { s3: this.#pipeline.s3, bucket: INBOX_BUCKET, key: this.#keyOf(file) };
  }

  #showPercent(tracked: Tracked, bytes: number, of: number): void {
    if (of >= PERCENT_BYTES_MIN) tracked.state = `uploading ${Math.floor((100 * bytes) / of)}%`;
    this.#drawStatus();
  }

  /** Tracks an upload that this run did not make. Several may track it. */
  #track({ key, versionId }: Version, since?: number): Tracked {
    const tracked = this.#find({ key, versionId }) ?? { ...newlyTracked(key, since), state: 'uploaded', versionId };
    this.#tracked.add(tracked);
    return tracked;
  }

  #find({ key, versionId }: Version): Tracked | undefined {
    if (versionId === undefined) return undefined;
    return [...this.#tracked].find((each) => each.key === key && each.versionId === versionId);
  }

  /** An upload may make progress before S3's answer has named its version. */
  async #onProgress(progress: Progress): Promise<void> {
    if (this.#find(progress) === undefined) await this.#answers.get(progress.key);
    // The page, a command or an S3 client may have put it.
    const hasEnded = progress.kind === 'ended' || progress.kind === 'chain' || progress.kind === 'full-disk';
    this.#show(progress, hasEnded ? this.#find(progress) : this.#track(progress, Date.now()));
  }

  #show(progress: Progress, tracked: Tracked | undefined): void {
    switch (progress.kind) {
      case 'running':
        if (progress.obstacle === undefined) this.#waits.forget(progress.key);
        this.#showRunning(progress, tracked);
        break;
      case 'full-disk':
        if (tracked) Object.assign(tracked, { state: `has ended. ${this.#fullDisk()}`, waits: true });
        break;
      case 'chain':
        this.#noteEnd(progress.report);
        this.#openChains.delete(progress.key);
        if (progress.report.status === 'failed') this.#failedChains.add(progress.key);
        else this.#failedChains.delete(progress.key);
        this.#options.screen.line(chainLine(progress, this.#options.cwd));
        break;
      case 'waiting': {
        if (tracked) tracked.isStage ??= progress.versionId === progress.id;
        if (progress.wait.reason === 'stage') {
          if (tracked) tracked.state = 'begins';
          break;
        }
        const { state, lines } = this.#waits.show(progress);
        for (const line of lines) this.#options.screen.line(line);
        if (needsSomebody(progress.wait.ending)) tracked?.end.resolve('given-up');
        if (tracked) Object.assign(tracked, { state, waits: true });
        break;
      }
      case 'ended': {
        this.#noteEnd(progress.receipt);
        this.#waits.forget(progress.key);
        if (routesAfter(this.#options.pipeline.routes, progress.receipt.route).length > 0) {
          this.#openChains.add(firstKeyOf(progress.key));
        }
        const { cwd } = this.#options;
        const again = this.#keepsNothing ? this.#again(progress.key) : undefined;
        const lines = endLines(progress, { since: tracked?.since, cwd, told: this.#failuresTold, again });
        this.#end(tracked, isReplaced(progress.receipt) ? 'replaced' : progress.receipt.status, ...lines);
      }
    }
    this.#drawStatus();
  }

  #showRunning({ key, flowId, obstacle }: Progress & { kind: 'running' }, tracked: Tracked | undefined): void {
    const state = obstacle === undefined ? `flow ${flowId} runs` : `results are not stored yet: ${obstacle}`;
    if (obstacle !== undefined && this.#waits.isNews(obstacle)) {
      this.#options.screen.line(`${key}  its results are not stored yet: ${obstacle}`);
      this.#options.screen.line('    It is tried again by itself.');
    }
    if (tracked) Object.assign(tracked, { state, waits: obstacle !== undefined });
  }

  #end(tracked: Tracked | undefined, end: End, ...lines: readonly string[]): void {
    this.#ends[isSuccess(end) ? 'done' : end === 'replaced' ? 'replaced' : 'failed'] += 1;
    if (tracked) this.#tracked.delete(tracked);
    this.#drawStatus();
    for (const line of lines) this.#options.screen.line(line);
    tracked?.end.resolve(end);
  }

  /** Shows an error, unless the session is closing: then errors are expected. */
  #warn(text: string): void {
    if (!this.#isClosing) this.#options.screen.line(`! ${text}`);
  }

  /** Tells each trouble with the inbox once, and when it is over. Returns those that last. */
  #tellTroubles(troubles: readonly string[], told: readonly string[]): readonly string[] {
    for (const text of troubles) if (!told.includes(text)) this.#warn(text);
    for (const text of told) if (!troubles.includes(text)) this.#warn(`No longer: ${text}`);
    return troubles;
  }

  #drawStatus(): void {
    if (this.#isClosing) return;
    const changing = this.#changing.map((file) => ({
      name: this.#keyOf(file),
      state: `is still being written: ${size(file.bytes)}`,
    }));
    const files = [...Array.from(this.#tracked, ({ key, state }) => ({ name: key, state })), ...changing];
    const counts = { ...this.#ends, 'under way': this.#tracked.size };
    const shown = Object.entries(counts).filter(([, count]) => count > 0);
    const summary = shown.map(([what, count]) => `${count} ${what}`).join(', ');
    this.#options.screen.status(files, summary, { isIdle: files.length === 0 });
  }
}

/** A run that processes files and exits gives up after this time in which every file waits, in milliseconds. */
export const ALL_WAIT_MAX_MS = 5 * 60_000;
const CHECK_MS = 250;
/** Longest wait for the events of ends whose receipts are there, in milliseconds. */
const TELL_REST_MS_MAX = 10_000;

/** Watches for the time in which no file goes on. */
export class Patience implements Disposable {
  #goesOnAt = Date.now();
  #isOver = false;
  readonly #check: NodeJS.Timeout;

  /**
   * @param doAllWait tells whether there are files and every one of them waits.
   * @param onOver called once, when this has lasted for `maxMs` milliseconds.
   */
  constructor(maxMs: number, doAllWait: () => boolean, onOver: () => void) {
    this.#check = setInterval(() => {
      if (!doAllWait()) this.#goesOnAt = Date.now();
      if (Date.now() - this.#goesOnAt < maxMs) return;
      this.#isOver = true;
      clearInterval(this.#check);
      onOver();
    }, CHECK_MS).unref(); // An interrupted run ends although its files have not.
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#check);
  }
}
