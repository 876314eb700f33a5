import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { onTestFinished, vi } from 'vitest';
import { flowdropProgram } from '../../command-line/flowdrop/program.ts';
import { failed } from '../../command-line/flowdrop/run.ts';
import type { TickSummary } from '../../functions/collect-outputs/tick.ts';
import type { WaitingEntry } from '../../functions/ledger/entry.ts';
import { COLLECTORS_PREFIX, RUNNING_PREFIX, WAITING_PREFIX } from '../../functions/ledger/keys.ts';
import type { S3EventRecord } from '../../local/aws/s3/events.ts';
import type { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import { listenOnLoopback } from '../../local/loopback.ts';
import {
  COLLECT_FUNCTION,
  INBOX_BUCKET,
  LEDGER_BUCKET,
  type Pipeline,
  type PipelineOptions,
  startPipeline,
} from '../../local/pipeline.ts';
import { writeRunFile } from '../../local/start/state.ts';
import type { Checked } from '../../operations/checks.ts';
import { connectLocal, connectStack, type Deployment } from '../../operations/deployment.ts';
import { doctor } from '../../operations/doctor.ts';
import { list } from '../../operations/list.ts';
import { runningMarkers } from '../../operations/listing.ts';
import type { UploadStatus } from '../../operations/status.ts';
import { status } from '../../operations/status.ts';
import { bundles } from '../support/bundles.ts';
import { PATIENCE } from '../support/patience.ts';

export const signal = new AbortController().signal;

/** Takes every picture; and texts as texts, whose metadata may override the route. */
export const ROUTES: PipelineOptions['routes'] = [
  { name: 'pictures', input: 'file', template: 'bytes_echo', mediaTypes: ['image/*'] },
  { name: 'texts', input: 'text', template: 'text', suffixes: ['.txt'], overrides: true },
];

/** A running pipeline, and an operator who reaches it. */
export class Operated implements AsyncDisposable {
  readonly pipeline: Pipeline;
  /** The working directory of the operator, where the run has its file. */
  readonly directory: string;
  readonly deployment: Deployment;
  readonly #work: WorkOfTicks;
  readonly #closing: AsyncDisposableStack;

  static async start(options: Partial<Omit<PipelineOptions, 'onS3Event'>> = {}): Promise<Operated> {
    const closing = new AsyncDisposableStack();
    const directory = await mkdtemp(join(tmpdir(), 'flowdrop-operated-'));
    closing.defer(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
    const state = join(directory, '.flowdrop');
    await mkdir(state, { mode: 0o700 });
    const work = new WorkOfTicks();
    const pipeline = await startPipeline({
      bundleDir: bundles(),
      name: 'operated',
      routes: ROUTES,
      standIn: { flowMs: 0 },
      tickIntervalMs: 300,
      onS3Event: (record) => work.take(record),
      ...options,
    });
    // Here, the content of a picture is words. No plain answer may have these under the type of a picture.
    if (pipeline.standIn !== undefined) pipeline.standIn.variation.assetForm = 'json';
    work.leaveOutIdleTicks(pipeline);
    closing.defer(() => pipeline.close());
    closing.defer(writeRunFile(state, pipeline.operator));
    const deployment = await connectLocal(directory, signal);
    closing.defer(() => deployment.close());
    return new Operated(pipeline, { directory, deployment, work, closing });
  }

  /** Starts one that ends with the test. */
  static async forTest(...options: Parameters<typeof Operated.start>): Promise<Operated> {
    const operated = await Operated.start(...options);
    onTestFinished(() => operated[Symbol.asyncDispose]());
    return operated;
  }

  private constructor(
    pipeline: Pipeline,
    rest: {
      readonly directory: string;
      readonly deployment: Deployment;
      readonly work: WorkOfTicks;
      readonly closing: AsyncDisposableStack;
    },
  ) {
    this.pipeline = pipeline;
    this.directory = rest.directory;
    this.deployment = rest.deployment;
    this.#work = rest.work;
    this.#closing = rest.closing;
  }

  async upload(key: string, body: string | Uint8Array, more: object = {}): Promise<void> {
    const Body = Buffer.from(body);
    await this.pipeline.s3.send(new PutObjectCommand({ Bucket: INBOX_BUCKET, Key: key, Body, ...more }));
  }

  /** Waits until an upload is in a state, with the marker of that state. If it has ended, its end is published. */
  becomes(key: string, state: UploadStatus['state']): Promise<UploadStatus> {
    let last: { readonly changes: number; readonly error: Error } | undefined;
    return vi.waitFor(async () => {
      // To look takes several requests, and shows nothing new while the ledger is the same.
      const { changes } = this.#work;
      if (last?.changes === changes) throw last.error;
      const found = await status(key, this.deployment, signal);
      if (found.kind === 'upload' && found.state === state && (await this.#isComplete(found))) return found;
      last = { changes, error: new Error(`${key} is no ${state} upload yet: ${JSON.stringify(found)}`) };
      throw last.error;
    }, PATIENCE);
  }

  async #isComplete({ id, state }: UploadStatus): Promise<boolean> {
    if (state === 'waiting' || state === 'running' || state === 'failed') {
      const { uploads } = await list({ state }, this.deployment, signal);
      if (!uploads.some((upload) => upload.id === id)) return false;
    }
    if (state === 'running') return true;
    // The marker of a flow is deleted last, after the receipt was put.
    for await (const { uploadId } of runningMarkers(this.deployment, signal)) if (uploadId === id) return false;
    return true;
  }

  /** Uploads a file and waits until it is in a state. */
  async put(key: string, state: UploadStatus['state'], body = `content of ${key}`): Promise<UploadStatus> {
    await this.upload(key, body);
    return this.becomes(key, state);
  }

  /** Has an upload wait for another reason, for an hour. */
  async waitsInstead(key: string, wait: Pick<WaitingEntry, 'reason' | 'message'>): Promise<void> {
    const { id } = await this.becomes(key, 'waiting');
    const { ledger, clock } = this.deployment;
    const stored = await ledger.read(id, signal);
    if (stored?.entry.state !== 'waiting') throw new Error(`${key} does not wait`);
    const { won } = await ledger.replace(
      stored,
      { ...stored.entry, ...wait, notBefore: clock.now() + 3_600_000 },
      signal,
    );
    if (!won) throw new Error(`${key} was changed meanwhile`);
  }

  /** The flow service of the pipeline. */
  get standIn(): StandInFlowService {
    const { standIn } = this.pipeline;
    if (standIn === undefined) throw new Error('There is no stand-in');
    return standIn;
  }

  /** From now on the service answers a creation with this status. */
  refuse(status: number | undefined): void {
    if (status === undefined) this.standIn.intercept = undefined;
    else this.refuseAfter(0, status);
  }

  /** The service takes so many flows more. It answers the creations after them with this status. */
  refuseAfter(count: number, status: number): void {
    let taken = 0;
    this.standIn.intercept = (_, { operation }) => {
      if (operation === 'createFlow') taken += 1;
      return operation === 'createFlow' && taken > count ? { status } : undefined;
    };
  }

  /** Uploads files that the service refuses, and waits until they are listed. It takes the next ones again. */
  async putRefused(...keys: readonly string[]): Promise<void> {
    this.refuse(422);
    for (const key of keys) await this.put(key, 'failed');
    this.refuse(undefined);
  }

  /** Runs a command in this process, as a user would in the working directory. */
  run(...words: readonly string[]): Promise<Ran> {
    return runFlowdrop(words, { directory: this.directory });
  }

  /** Runs a command that is asked a question, and answers it. */
  runAnswering(answer: string, ...words: readonly string[]): Promise<Ran> {
    return runFlowdrop(words, { directory: this.directory, answer });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#closing.disposeAsync();
  }
}

/** From one idle tick to the next, in milliseconds. The time between two ticks of a deployed pipeline. */
const IDLE_TICK_MS = 60_000;

/**
 * Knows whether a tick has anything to do: something runs or waits, or the ledger has changed since the tick before. A
 * tick takes 30 ms of processor time, and most ticks of a test would find nothing.
 */
class WorkOfTicks {
  readonly #markers = new Set<string>();
  /** Changes of the ledger so far, without those of leases. */
  changes = 0;
  #isChanged = true;
  #startedAt = 0;

  take({ eventName, s3: { bucket, object } }: S3EventRecord): void {
    const { key } = object;
    // Each tick writes the object of its lease.
    if (bucket.name !== LEDGER_BUCKET || key.startsWith(COLLECTORS_PREFIX)) return;
    this.changes += 1;
    this.#isChanged = true;
    if (!key.startsWith(RUNNING_PREFIX) && !key.startsWith(WAITING_PREFIX)) return;
    if (eventName.startsWith('ObjectCreated:')) this.#markers.add(key);
    else this.#markers.delete(key);
  }

  /** Leaves out the other ticks, but for one each minute. */
  leaveOutIdleTicks({ functions }: Pipeline): void {
    const collecting = functions[COLLECT_FUNCTION];
    const invoke = collecting.invoke.bind(collecting);
    collecting.invoke = async (event) => {
      const isIdle = !this.#isChanged && this.#markers.size === 0;
      if (isIdle && Date.now() - this.#startedAt < IDLE_TICK_MS) return undefined;
      this.#startedAt = Date.now();
      this.#isChanged = false;
      let isCompleted = false;
      try {
        const summary = await invoke(event);
        isCompleted = (summary as TickSummary).result === 'completed';
        return summary;
      } finally {
        if (!isCompleted) this.#isChanged = true;
      }
    };
  }
}

/** What one check of `flowdrop doctor` says of a deployment. */
export const checkOf = async (check: string, deployment: Deployment): Promise<Checked | undefined> =>
  (await doctor(deployment, signal)).checks.find((each) => each.check === check);

/** The deployment with other servers for some services of AWS. They prove nothing, so they are asked as AWS is. */
export const withEndpoints = (deployment: Deployment, endpoints: Deployment['access']['endpoints']): Deployment => {
  const { access } = deployment;
  return { ...deployment, access: { ...access, fetch: undefined, endpoints: { ...access.endpoints, ...endpoints } } };
};

/** The deployment as it will be seen so many milliseconds later. */
export const later = (ms: number, deployment: Deployment): Deployment => ({
  ...deployment,
  clock: { ...deployment.clock, now: () => Date.now() + ms },
});

/** What a command printed, and its exit code. */
export interface Ran {
  readonly code: number;
  readonly output: string;
  readonly errors: string;
  /** Each change of the terminal's raw mode, in which it does not show what is typed. */
  readonly modes: readonly boolean[];
}

interface Around {
  readonly directory: string;
  readonly env?: Readonly<Record<string, string>>;
  /** What a person at a terminal types, who sees the questions there. Default: there is nobody. */
  readonly answer?: string;
  /** Columns of the terminal that shows all that is printed. Default: there is none. */
  readonly columns?: number;
  /** True if the standard error goes into a file all the same. */
  readonly isErrorsFile?: boolean;
  /** Aborts as Ctrl-C does. Default: never. */
  readonly signal?: AbortSignal;
}

export async function runFlowdrop(words: readonly string[], around: Around): Promise<Ran> {
  const { printed, ended, modes } = startFlowdrop(words, around);
  const code = await ended;
  // After two seconds a command prints its progress, on a busy machine at any time.
  const text =
    around.columns === undefined ? stripVTControlCharacters(printed.errors).replaceAll('\r', '') : printed.errors;
  const errors = text.replaceAll(/^.* \.\.\.\n/gm, '');
  return { code, output: printed.output, errors, modes };
}

/** Starts a command in this process. What it has printed so far can be read while it runs. */
export function startFlowdrop(
  words: readonly string[],
  { directory, env = {}, answer, columns, isErrorsFile = false, signal: stop = signal }: Around,
): { readonly printed: Pick<Ran, 'output' | 'errors'>; readonly ended: Promise<number>; readonly modes: boolean[] } {
  const printed = { output: '', errors: '' };
  const stream = (name: keyof typeof printed, isTTY = columns !== undefined) =>
    Object.assign(new PassThrough(), isTTY ? { isTTY, columns } : {}).on('data', (chunk) => {
      printed[name] += chunk;
    });
  const modes: boolean[] = [];
  const setRawMode = (isRaw: boolean) => modes.push(isRaw);
  const input = Object.assign(new PassThrough(), answer === undefined ? {} : { isTTY: true, setRawMode });
  if (answer !== undefined) input.write(`${answer}\n`);
  const streams = {
    input,
    output: stream('output'),
    errors: stream('errors', (columns ?? answer) !== undefined && !isErrorsFile),
  };
  const surroundings = { streams, env, directory, userDirectory: directory, signal: stop };
  const { command, exitCode } = flowdropProgram(surroundings, words);
  const ended = command
    .parseAsync([...words], { from: 'user' })
    .then(exitCode)
    .catch((error: unknown) => failed(error, surroundings, words));
  return { printed, ended, modes };
}

/** The stack of a pipeline, which the pipeline's own servers stand in for, a CloudFormation that knows it, and a CloudWatch without alarms or log lines. */
export async function deployedAs(
  stack: string,
  { operator }: Pipeline,
  outputs: Readonly<Record<string, string>> = {
    CollectFunction: operator.collectFunction,
    DeadLetterQueue: operator.deadLetterQueueUrl,
  },
): Promise<{ connect: (name?: string) => Promise<Deployment>; asked: string[] } & AsyncDisposable> {
  const asked: string[] = [];
  const server = await listenOnLoopback(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const target = request.headers['x-amz-target'];
    if (typeof target === 'string') {
      response.end(target.endsWith('.DescribeAlarms') ? '{"MetricAlarms":[]}' : '{"events":[]}');
      return;
    }
    asked.push(`${request.headers.authorization?.split(' ')[0]} ${body}`);
    response.setHeader('content-type', 'text/xml');
    const name = new URLSearchParams(body).get('StackName');
    if (name === stack) response.end(describedStack(outputs));
    else response.writeHead(400).end(errorXml(`Stack with id ${name} does not exist`));
  });
  const { accessKeyId, secretAccessKey } = operator.credentials;
  return {
    asked,
    connect: (name = stack) =>
      connectStack(
        {
          stack: name,
          region: operator.region,
          credentials: async () => ({ accessKeyId, secretAccessKey }),
          endpoints: { ...operator.endpoints, cloudformation: server.url, monitoring: server.url, logs: server.url },
        },
        signal,
      ),
    [Symbol.asyncDispose]: () => server.close(),
  };
}

/** @see https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStacks.html ("Examples") */
function describedStack(outputs: Readonly<Record<string, string>>): string {
  const members = Object.entries(outputs).map(
    ([key, value]) => `<member><OutputKey>${key}</OutputKey><OutputValue>${value}</OutputValue></member>`,
  );
  return `<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
  <DescribeStacksResult><Stacks><member><StackName>any</StackName><Outputs>${members.join('')}</Outputs>
  <StackStatus>CREATE_COMPLETE</StackStatus></member></Stacks></DescribeStacksResult>
  <ResponseMetadata><RequestId>b9b4b068-3a41-11e5-94eb-example</RequestId></ResponseMetadata></DescribeStacksResponse>`;
}

const errorXml = (message: string): string =>
  `<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>${message}</Message></Error></ErrorResponse>`;
