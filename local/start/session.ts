import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { S3Client } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { systemClock } from '../../functions/base/clock.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import { mediaTypeOf } from '../../functions/uploads/media-type.ts';
import { routeFor } from '../../functions/uploads/routes.ts';
import { uploadsOf } from '../../functions/uploads/upload-event.ts';
import { COLLECT_FUNCTION, INBOX_BUCKET, type Pipeline, type PipelineOptions, startPipeline } from '../pipeline.ts';
import { DeliveredReceipts } from './delivered-receipts.ts';
import { Follower, type Progress } from './follower.ts';
import { type Content, FileChangedError, type InboxFile, versionOf } from './inbox-file.ts';
import { InboxFolder } from './inbox-folder.ts';
import { InboxWatch, UPLOADS_MAX } from './inbox-watch.ts';
import type { KnownFiles } from './known-files.ts';
import type { FunctionLogs } from './logs.ts';
import { ResultsFolder } from './results-folder.ts';
import type { S3Access } from './s3-access.ts';
import { type Screen, size } from './screen.ts';
import { shownPath } from './shown-path.ts';
import { abortUnfinishedUploads, isUploaded, uploadFile } from './upload-file.ts';

const INBOX_POLL_INTERVAL_MS = 400;
/** Above this number of files, the status line counts them instead of naming them. */
const NAMED_IN_STATUS_MAX = 4;

/** From this size on, the status says how much of a file is uploaded. */
const PERCENT_BYTES_MIN = 5_000_000;
/** How often a named file is read again that changes while it is read, and the time between two tries in milliseconds. */
const CHANGES_MAX = 5;
const CHANGE_WAIT_MS = 1_000;

/** Reasons that only the user can resolve. A run that processes files and exits does not wait for them. */
const NEEDS_THE_USER: readonly string[] = ['unauthorised', 'misaddressed', 'held'];

/** `given-up`: it has not ended, but this run does not wait for it. */
type End = 'succeeded' | 'failed' | 'given-up';

/** One version of a file on its way. Several versions of a key may be under way at the same time. */
interface Tracked {
  readonly key: string;
  readonly since: number;
  state: string;
  /** The version of the object. Undefined until S3 has answered. */
  versionId?: string | undefined;
  readonly end: PromiseWithResolvers<End>;
}

/** An upload that S3 has answered. */
interface Uploaded {
  readonly content: Content;
  readonly end: Promise<End>;
}

export interface SessionOptions {
  readonly pipeline: Pick<
    PipelineOptions,
    'bundleDir' | 'stateDir' | 'name' | 'routes' | 'inboxDir' | 'service' | 'standIn'
  > & {
    readonly settings: PipelineSettings;
  };
  readonly resultsDir: string;
  readonly screen: Screen;
  readonly logs: FunctionLogs;
  /** Paths on the screen are relative to this folder. */
  readonly cwd: string;
}

/** Uploads files to the pipeline and shows the progress of each on the screen. */
export class Session {
  readonly #options: SessionOptions;
  readonly #tracked = new Set<Tracked>();
  /** The files that were not uploaded because the session was interrupted. */
  readonly #interrupted = new Set<string>();
  /** The uploads whose bytes are all sent, until S3 has answered with their version: by key, of which one is uploaded at a time. */
  readonly #answers = new Map<string, Promise<unknown>>();
  #pipeline!: Pipeline;
  #follower!: Follower;
  #isClosing = false;

  static async start(options: SessionOptions): Promise<Session> {
    const session = new Session(options);
    const { logs, pipeline } = options;
    const { stateDir } = pipeline;
    session.#pipeline = await startPipeline({
      ...options.pipeline,
      onLog: (name, line) => logs.write(name, line),
      onFault: (name, error) => logs.fault(name, error),
      onS3Event: (record) => {
        session.#follower.follow(record).catch((error) => session.#warn(messageOf(error)));
      },
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
      delivered: new DeliveredReceipts(stateDir === undefined ? undefined : join(stateDir, 'delivered-receipts')),
      retry: {
        collectFunction: COLLECT_FUNCTION,
        localInbox: options.pipeline.inboxDir ?? '',
        inboxPrefix: options.pipeline.settings.inboxPrefix,
      },
      onProgress: (progress) => session.#onProgress(progress),
    });
    await abortUnfinishedUploads(session.#pipeline.s3, INBOX_BUCKET);
    return session;
  }

  private constructor(options: SessionOptions) {
    this.#options = options;
  }

  /** Number of files that have not ended. */
  get unfinished(): number {
    return new Set([...this.#interrupted, ...Array.from(this.#tracked, ({ key }) => key)]).size;
  }

  /** How a client reaches the S3 of this run. */
  get s3Access(): S3Access {
    return { endpoint: this.#pipeline.s3Endpoint, credentials: this.#pipeline.s3Credentials };
  }

  /** Continues with the uploads that an earlier run left in the inbox, and with the results that it did not copy. */
  async resume(): Promise<void> {
    await this.#follower.catchUp((error) => this.#warn(messageOf(error)));
    await this.#pipeline.resume();
  }

  close(): Promise<void> {
    this.#isClosing = true;
    this.#options.screen.status('');
    return this.#pipeline.close();
  }

  /** Processes these files. Resolves with true if all succeeded. */
  async process(files: readonly InboxFile[]): Promise<boolean> {
    const ends = await pMap(files, async (file) => (await this.#uploadNamed(file))?.end ?? 'failed', {
      concurrency: UPLOADS_MAX,
    });
    return ends.every((end) => end === 'succeeded');
  }

  /**
   * Uploads the files that appear in the folder, until the signal aborts.
   * @param remember when a file counts as processed, so that later runs skip it.
   */
  async watch(
    dir: string,
    { known, remember, signal }: { known: KnownFiles; remember: 'uploaded' | 'ended'; signal: AbortSignal },
  ): Promise<void> {
    const inbox = new InboxFolder(dir, systemClock);
    const watch = new InboxWatch({
      ...{ inbox, known, remember, signal },
      upload: async (file) => {
        const uploaded = await this.#upload(file, signal);
        return uploaded && { content: uploaded.content, delivered: delivered(uploaded) };
      },
      isUploaded: (file) => isUploaded(file, { ...this.#target(file), signal }),
      onFailure: (file, error) => this.#warn(`${this.#keyOf(file)}: upload error: ${messageOf(error)}`),
      onInterruption: (file) => this.#interrupted.add(this.#keyOf(file)),
      onError: (error) => this.#warn(messageOf(error)),
    });
    let told: readonly string[] = [];
    while (!signal.aborted) {
      await watch.poll();
      told = this.#tellTroubles(inbox.troubles, told);
      await systemClock.sleep(INBOX_POLL_INTERVAL_MS, signal).catch(() => undefined);
    }
    await watch.idle();
  }

  /** Uploads a file that was named as an argument. Undefined if that failed. The screen then says why. */
  async #uploadNamed(file: InboxFile): Promise<Uploaded | undefined> {
    try {
      for (let changes = 0; ; changes += 1) {
        try {
          const current = changes === 0 ? file : await namedFile(file.path, file.key);
          return await this.#upload(current, new AbortController().signal);
        } catch (error) {
          if (!(error instanceof FileChangedError) || changes === CHANGES_MAX) throw error;
          await systemClock.sleep(CHANGE_WAIT_MS);
        }
      }
    } catch (error) {
      if (!this.#isClosing)
        this.#options.screen.line(`${this.#keyOf(file)}  failed: upload error: ${messageOf(error)}`);
      return undefined;
    }
  }

  /**
   * Returns undefined if no route wants the file. The screen then says so.
   * @throws as `uploadFile` does.
   */
  async #upload(file: InboxFile, signal: AbortSignal): Promise<Uploaded | undefined> {
    const { screen, pipeline } = this.#options;
    const key = this.#keyOf(file);
    if (!routeFor(pipeline.routes, { key, mediaType: mediaTypeOf(undefined, key) })) {
      screen.line(`${key}  skipped: no route in cdk.json matches this file`);
      return undefined;
    }
    const tracked: Tracked = { key, since: Date.now(), state: 'uploading', end: Promise.withResolvers<End>() };
    this.#tracked.add(tracked);
    this.#drawStatus();
    const answer = Promise.withResolvers<void>();
    try {
      const { versionId, content } = await uploadFile(file, {
        ...{ ...this.#target(file), signal },
        onProgress: (bytes) => this.#showPercent(tracked, bytes, file.bytes),
        onRead: () => this.#answers.set(key, answer.promise),
      });
      tracked.versionId = versionId;
      tracked.state = 'uploaded';
      screen.step(`${key}  uploaded, ${size(file.bytes)}`);
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

  #keyOf(file: InboxFile): string {
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

  #find({ key, versionId }: { key: string; versionId?: string | undefined }): Tracked | undefined {
    if (versionId === undefined) return undefined;
    return [...this.#tracked].find((each) => each.key === key && each.versionId === versionId);
  }

  /** An upload may make progress before S3's answer has named its version. */
  async #onProgress(progress: Progress): Promise<void> {
    if (this.#find(progress) === undefined) await this.#answers.get(progress.key);
    this.#show(progress, this.#find(progress));
  }

  #show(progress: Progress, tracked: Tracked | undefined): void {
    const { screen } = this.#options;
    const name = progress.key;
    switch (progress.kind) {
      case 'running':
        screen.step(`${name}  flow ${progress.flowId} created and running: ${progress.template}`);
        if (tracked) tracked.state = 'running';
        break;
      case 'waiting': {
        const until = new Date(progress.notBefore).toLocaleTimeString();
        const message = `${progress.message} (${progress.reason})`;
        if (NEEDS_THE_USER.includes(progress.reason)) tracked?.end.resolve('given-up');
        screen.line(`${name}  waits until ${until}: ${message}`);
        if (tracked) tracked.state = 'waiting';
        break;
      }
      case 'ended':
        this.#end(tracked, progress.receipt.status, ...this.#summary(progress, tracked));
    }
    this.#drawStatus();
  }

  #summary(
    { key, receipt, receiptPath, assets }: Progress & { kind: 'ended' },
    tracked: Tracked | undefined,
  ): string[] {
    const shown = (path: string) => shownPath(path, this.#options.cwd);
    const name = key;
    const took = tracked ? ` in ${((Date.now() - tracked.since) / 1000).toFixed(1)} s` : '';
    const count = `${assets.length} ${assets.length === 1 ? 'asset' : 'assets'}`;
    return [
      receipt.status === 'succeeded'
        ? `${name}  done${took}: ${count}`
        : `${name}  failed: ${receipt.failure?.message ?? 'see the receipt'}`,
      ...assets.map(({ path, bytes }) => `    ${shown(path)}  ${size(bytes)}`),
      ...receipt.failedOutputs.map(({ id, message }) => `    output ${id} is missing: ${message}`),
      receiptPath === undefined
        ? '    The receipt is that of a newer version of the file.'
        : `    ${shown(receiptPath)}`,
    ];
  }

  #end(tracked: Tracked | undefined, end: End, ...lines: readonly string[]): void {
    for (const line of lines) this.#options.screen.line(line);
    if (tracked) {
      tracked.end.resolve(end);
      this.#tracked.delete(tracked);
    }
    this.#drawStatus();
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
    const tracked = [...this.#tracked];
    const each = tracked.map(({ key, state }) => `${key} ${state}`);
    const counts = Object.entries(Object.groupBy(tracked, ({ state }) => state.split(' ')[0] ?? '')).map(
      ([state, those]) => `${those?.length} ${state}`,
    );
    this.#options.screen.status((tracked.length > NAMED_IN_STATUS_MAX ? counts : each).join(', '));
  }
}

/** A file given as an argument. */
export async function namedFile(path: string, key: string): Promise<InboxFile> {
  return { path, key, ...versionOf(await stat(path)) };
}

/** Resolves when the upload has ended with a receipt. Stays unresolved if this run gives it up. */
function delivered({ end }: Uploaded): Promise<void> {
  return new Promise((resolve) => {
    end.then((how) => how === 'given-up' || resolve());
  });
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
