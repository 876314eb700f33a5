import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import pMap from 'p-map';
import { systemClock } from '../../functions/base/clock.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import { mediaTypeOf } from '../../functions/uploads/media-type.ts';
import { routeFor } from '../../functions/uploads/routes.ts';
import { uploadsOf } from '../../functions/uploads/upload-event.ts';
import { INBOX_BUCKET, type Pipeline, type PipelineOptions, startPipeline } from '../pipeline.ts';
import { Follower, type Progress } from './follower.ts';
import { type InboxFile, InboxFolder, type KnownFiles } from './inbox-folder.ts';
import type { FunctionLogs } from './logs.ts';
import { ResultsFolder } from './results-folder.ts';
import { type Screen, size } from './screen.ts';
import { shownPath } from './shown-path.ts';

const UPLOADS_MAX = 4;
const INBOX_POLL_INTERVAL_MS = 400;
/** Above this number of files, the status line counts them instead of naming them. */
const NAMED_IN_STATUS_MAX = 4;

/** Reasons that only the user can resolve. A run that processes files and exits does not wait for them. */
const NEEDS_THE_USER: readonly string[] = ['unauthorised', 'held'];

type End = 'succeeded' | 'failed';

interface Tracked {
  readonly key: string;
  readonly since: number;
  state: string;
  readonly end: PromiseWithResolvers<End>;
}

export interface SessionOptions {
  readonly pipeline: Pick<PipelineOptions, 'bundleDir' | 'stateDir' | 'name' | 'routes' | 'service' | 'standIn'> & {
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
  readonly #tracked = new Map<string, Tracked>();
  #pipeline!: Pipeline;
  #follower!: Follower;
  #isClosing = false;

  static async start(options: SessionOptions): Promise<Session> {
    const session = new Session(options);
    const { logs } = options;
    session.#pipeline = await startPipeline({
      ...options.pipeline,
      onLog: (name, line) => logs.write(name, line),
      onFault: (name, error) => logs.fault(name, error),
      onS3Event: (record) => {
        session.#follower.follow(record).catch((error) => session.#warn(messageOf(error)));
      },
      onDeadLetter: (body) => {
        for (const { key } of uploadsOf(JSON.parse(body))) {
          session.#end(key, 'failed', `${key}  failed: every attempt failed; ${logs.hint('create-flow')}`);
        }
      },
    });
    session.#follower = new Follower({
      s3: session.#pipeline.s3,
      results: new ResultsFolder(options.resultsDir),
      onProgress: (progress) => session.#show(progress),
    });
    return session;
  }

  private constructor(options: SessionOptions) {
    this.#options = options;
  }

  /** Number of uploads that have not ended. */
  get unfinished(): number {
    return this.#tracked.size;
  }

  /** Continues with the uploads that an earlier run left in the inbox. */
  resume(): Promise<void> {
    return this.#pipeline.resume();
  }

  close(): Promise<void> {
    this.#isClosing = true;
    this.#options.screen.status('');
    return this.#pipeline.close();
  }

  /** Processes these files. Resolves with true if all succeeded. */
  async process(files: readonly InboxFile[]): Promise<boolean> {
    const ends = await pMap(
      files,
      async (file) => {
        const tracked = await this.#upload(file);
        return tracked ? tracked.end.promise : 'failed';
      },
      { concurrency: UPLOADS_MAX },
    );
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
    while (!signal.aborted) {
      const files = (await inbox.poll()).filter((file) => !known.has(file));
      await pMap(
        files,
        async (file) => {
          const tracked = await this.#upload(file);
          if (!tracked || remember === 'uploaded') await known.add(file);
          else tracked.end.promise.then(() => known.add(file)).catch((error) => this.#warn(messageOf(error)));
        },
        { concurrency: UPLOADS_MAX },
      );
      await systemClock.sleep(INBOX_POLL_INTERVAL_MS, signal).catch(() => undefined);
    }
  }

  /** Returns undefined if the file was skipped or could not be uploaded. The screen then says why. */
  async #upload(file: InboxFile): Promise<Tracked | undefined> {
    const { screen, pipeline } = this.#options;
    const { path, bytes } = file;
    const key = `${pipeline.settings.inboxPrefix}${file.key}`;
    const name = key;
    if (!routeFor(pipeline.routes, { key, mediaType: mediaTypeOf(undefined, key) })) {
      screen.line(`${name}  skipped: no route in cdk.json matches this file`);
      return undefined;
    }
    const tracked = { key, since: Date.now(), state: 'uploading', end: Promise.withResolvers<End>() };
    // If the file changed before its previous upload ended, only the new upload counts.
    this.#tracked.get(key)?.end.resolve('failed');
    this.#tracked.set(key, tracked);
    this.#drawStatus();
    try {
      await this.#pipeline.s3.send(
        new PutObjectCommand({ Bucket: INBOX_BUCKET, Key: key, Body: createReadStream(path), ContentLength: bytes }),
      );
    } catch (error) {
      this.#end(key, 'failed', `${name}  failed: upload error: ${messageOf(error)}`);
      return undefined;
    }
    screen.step(`${name}  uploaded, ${size(bytes)}`);
    if (tracked.state === 'uploading') tracked.state = 'uploaded';
    this.#drawStatus();
    return tracked;
  }

  #show(progress: Progress): void {
    const { screen } = this.#options;
    const name = progress.key;
    const tracked = this.#tracked.get(progress.key);
    switch (progress.kind) {
      case 'running':
        screen.step(`${name}  flow ${progress.flowId} created and running: ${progress.template}`);
        if (tracked) tracked.state = 'running';
        break;
      case 'waiting': {
        const until = new Date(progress.notBefore).toLocaleTimeString();
        const message = `${progress.message} (${progress.reason})`;
        if (NEEDS_THE_USER.includes(progress.reason)) tracked?.end.resolve('failed');
        screen.line(`${name}  waits until ${until}: ${message}`);
        if (tracked) tracked.state = 'waiting';
        break;
      }
      case 'ended':
        this.#end(progress.key, progress.receipt.status, ...this.#summary(progress, tracked));
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
      `    ${shown(receiptPath)}`,
    ];
  }

  #end(key: string, end: End, ...lines: readonly string[]): void {
    for (const line of lines) this.#options.screen.line(line);
    this.#tracked.get(key)?.end.resolve(end);
    this.#tracked.delete(key);
    this.#drawStatus();
  }

  /** Shows an error, unless the session is closing: then errors are expected. */
  #warn(text: string): void {
    if (!this.#isClosing) this.#options.screen.line(`! ${text}`);
  }

  #drawStatus(): void {
    const tracked = [...this.#tracked.values()];
    const each = tracked.map(({ key, state }) => `${key} ${state}`);
    const counts = Object.entries(Object.groupBy(tracked, ({ state }) => state)).map(
      ([state, those]) => `${those?.length} ${state}`,
    );
    this.#options.screen.status((tracked.length > NAMED_IN_STATUS_MAX ? counts : each).join(', '));
  }
}

/** A file given as an argument. */
export async function namedFile(path: string, key: string): Promise<InboxFile> {
  const { size: bytes, mtimeMs: modifiedMs } = await stat(path);
  return { path, key, bytes, modifiedMs };
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
