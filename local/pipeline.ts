import { join } from 'node:path';
import { S3Client } from '@aws-sdk/client-s3';
import { systemClock } from '../functions/base/clock.ts';
import { inputUrlSeconds, type ServiceDescription } from '../functions/flow-service/service-description.ts';
import { FLOWS } from '../functions/flow-service/services.ts';
import type { Proxies } from '../functions/flow-service/types.ts';
import type { Entry } from '../functions/ledger/entry.ts';
import { RUNNING_PREFIX } from '../functions/ledger/keys.ts';
import type { Env } from '../functions/settings/environment.ts';
import { OWN_COMMAND } from '../functions/settings/own-command.ts';
import { shownVariables, variablesOf } from '../functions/settings/proxies.ts';
import type { PipelineSettings } from '../functions/settings/settings.ts';
import type { Route } from '../functions/uploads/route.ts';
import { FUNCTION_NAMES, type FunctionName } from '../infra/bundle/bundle.ts';
import { HIDDEN_BEYOND_TIMEOUT_SECONDS, MEMORY_MIB, RECEIVES_MAX } from '../infra/function-limits.ts';
import type { NotifyTarget } from '../infra/notify.ts';
import type { AwsAccess } from './aws/endpoint.ts';
import { type Credentials, REGION, randomCredentials, randomRoleCredentials } from './aws/endpoint.ts';
import { EventBus } from './aws/event-bridge.ts';
import { type ServedFunction, serveLambda } from './aws/lambda.ts';
import { S3Error } from './aws/s3/errors.ts';
import type { S3EventRecord } from './aws/s3/events.ts';
import { EmbeddedS3, type SharedObject } from './aws/s3/s3.ts';
import { SecretStore } from './aws/secrets-manager.ts';
import { type ServedAws, serveAws } from './aws/serve-aws.ts';
import { Queue } from './aws/sqs.ts';
import { StandInFlowService, type StandInOptions } from './flow-service/flow-service.ts';
import { serveFlowService } from './flow-service/http.ts';
import { StandInJobService } from './flow-service/job-service.ts';
import { shapeFor } from './flow-service/shapes.ts';
import { LocalFunction } from './lambda/function.ts';
import { type FixedTicks, Triggers } from './lambda/triggers.ts';
import { Notifier, type Told } from './notify.ts';
import { resume } from './resume.ts';
import { randomSecret } from './secrets.ts';

export const INBOX_BUCKET = 'inbox';
export const RESULTS_BUCKET = 'results';
export const LEDGER_BUCKET = 'ledger';
export const TOKEN_SECRET = 'flowdrop/token';
/** The function that a receipt's command invokes. */
export const COLLECT_FUNCTION: FunctionName = 'collect-outputs';
const EVENT_BUS = 'default';
const NAME_DEFAULT = 'local';

/** Shorter than the deployed 15 minutes: a local user does not wait that long for a function that hangs. */
const TIMEOUT_SECONDS = 300;
const CREATE_CONCURRENCY = 2;
const TICK_INTERVAL_MS = 2_000;
/** At a fixed rate a tick can start while the previous one runs. It finds the lease taken and ends at once. */
const FIXED_TICKS_CONCURRENCY = 2;

export interface PipelineOptions {
  /** Holds `create-flow/index.mjs` and `collect-outputs/index.mjs`, as `infra/bundle/bundle.ts` writes them. */
  readonly bundleDir: string;
  /** Keeps the buckets across restarts. Default: everything is in memory. */
  readonly stateDir?: string;
  /** Name of the deployment. Every flow tag contains it. Default `local`. */
  readonly name?: string;
  readonly routes: readonly Route[];
  readonly settings?: Partial<PipelineSettings>;
  /** The folder whose files are uploaded, if there is one. */
  readonly inboxDir?: string;
  /** The port of S3, if no other program has it. Default: any free one. */
  readonly s3Port?: number;
  /** A running flow service. Default: the pipeline starts a stand-in. */
  readonly service?: { readonly url: string; readonly token: string; readonly proxies?: Proxies | undefined };
  /** How the service speaks. Default: {@link FLOWS}. */
  readonly speaks?: ServiceDescription;
  readonly standIn?: StandInOptions;
  /** Timeout of both functions, in seconds. Default 300. */
  readonly timeoutSeconds?: number;
  /**
   * From the end of a tick to the start of the next, in milliseconds. Default 2,000. A new flow starts a tick at once.
   */
  readonly tickIntervalMs?: number;
  /**
   * Starts ticks at a fixed rate instead, as the deployed schedule does: even while the previous tick runs. A new flow
   * then starts no tick.
   */
  readonly fixedTicks?: FixedTicks;
  /** Maximum number of create-flow invocations at the same time. Default 2. The deployed default is 5. */
  readonly createConcurrency?: number;
  /**
   * Called for every object created or removed in the three buckets, after the pipeline itself has handled the event.
   */
  readonly onS3Event?: (record: S3EventRecord) => void;
  /**
   * Called for every request that a function makes to AWS, in the terms of an IAM policy: the function's role must
   * allow the action on the resource. `context` holds the request's condition keys.
   */
  readonly onCall?: (
    name: FunctionName,
    action: string,
    resource: string,
    context: Readonly<Record<string, string>>,
  ) => void;
  /** The same for every request that the operator makes to AWS. */
  readonly onOperatorCall?: (action: string, resource: string, context: Readonly<Record<string, string>>) => void;
  /** Called with every line that a function prints. */
  readonly onLog?: (name: FunctionName, line: string) => void;
  /** Called for every invocation that failed as a whole. */
  readonly onFault?: (name: FunctionName, error: unknown) => void;
  /** Who is told of events. Default: nobody. */
  readonly notify?: readonly NotifyTarget[] | undefined;
  /** Days after which assets would expire. They get the tag for that, and stay. Default: neither. */
  readonly resultsRetentionDays?: number;
  /** Variables of the functions that only a deployment has. Default: none. */
  readonly environment?: Partial<Env>;
  /** Called for every event that a target was told of, or should have been. */
  readonly onTold?: ((told: Told) => void) | undefined;
  /** Called for every message that was received too often. The body is the S3 notification. */
  readonly onDeadLetter?: (body: string) => void;
}

/** How an operator reaches the pipeline from another process: by AWS's protocols, as a deployed one. */
export interface OperatorAccess {
  readonly endpoints: { readonly s3: string; readonly sqs: string; readonly lambda: string; readonly events: string };
  readonly region: string;
  readonly credentials: Credentials;
  /** What a client of S3 signs its requests with. The other services refuse it. */
  readonly s3Credentials: Credentials;
  /** The name of the function whose configuration tells everything else. */
  readonly collectFunction: string;
  readonly deadLetterQueueUrl: string;
}

/** The running pipeline: everything that AWS does around the two functions, in this process. */
export interface Pipeline {
  readonly s3Endpoint: string;
  /** What a client of S3 signs its requests with. The other services refuse it. */
  readonly s3Credentials: Credentials;
  /** A client for the three buckets. It is closed with the pipeline. */
  readonly s3: S3Client;
  readonly operator: OperatorAccess;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  readonly secrets: SecretStore;
  readonly eventBus: EventBus;
  /** Resolves when the targets of `notify` were told of all events so far, or could not be. */
  notified(): Promise<void>;
  /** Undefined if the options name a service, or if {@link standInJobs} is there. */
  readonly standIn: StandInFlowService | undefined;
  /** The stand-in for a service of another shape, if the options describe one that ships with Flowdrop. */
  readonly standInJobs: StandInJobService | undefined;
  readonly functions: Readonly<Record<FunctionName, LocalFunction>>;
  /** Continues the work in a state directory that was used before. Resolves with the entries that had not ended. */
  resume(): Promise<readonly Entry[]>;
  /** Keeps an object as a clone of a file, where the file system can: see `EmbeddedS3`. */
  shareBlocks(object: SharedObject, path: string, isSame?: () => Promise<boolean>): Promise<void>;
  /** Ends everything at once, running invocations included. The state directory stays. */
  close(): Promise<void>;
}

/**
 * Starts the pipeline and connects its parts as the deployed stack does: buckets, queue, functions and schedule; and a
 * flow service, unless the options name one. The functions are the deployed bundles. Only the SDK's endpoint variables
 * differ.
 *
 * Other users of the machine reach its servers, and so do web pages in a browser. So every server demands a secret that
 * is made here for this run: credentials, the stand-in's token, and a secret of each function's process. The next run
 * makes new ones, because it may have the same port for S3. Otherwise a program that had the port between two runs could
 * keep a request that a client signed, and send it to the next run.
 */
export async function startPipeline(options: PipelineOptions): Promise<Pipeline> {
  const closing = new AsyncDisposableStack();
  try {
    const { queue, deadLetters } = createQueues(options);
    const keys: Keys = {
      process: randomCredentials(),
      operator: randomCredentials(),
      'create-flow': randomRoleCredentials(),
      'collect-outputs': randomRoleCredentials(),
    };
    const onAccess = accessReporter(options, keys);
    let triggers: Triggers | undefined;
    const embedded = openS3(options, onAccess, (record) => {
      const bucket = record.s3.bucket.name;
      const isCreated = record.eventName.startsWith('ObjectCreated:');
      if (isCreated && bucket === INBOX_BUCKET) queue.send(JSON.stringify({ Records: [record] }));
      // The user is watching: collect the new flow's outputs without waiting for the next tick.
      const isFlow = bucket === LEDGER_BUCKET && record.s3.object.key.startsWith(RUNNING_PREFIX);
      if (isCreated && isFlow) triggers?.tickNow();
    });
    closing.defer(() => embedded.close());

    const { service, standIn, standInJobs } = await openFlowService(options, closing);
    const secrets = new SecretStore({ clock: systemClock });
    secrets.put(TOKEN_SECRET, service.token);
    const notifier = new Notifier(options.notify ?? [], {
      pipeline: options.name ?? NAME_DEFAULT,
      onTold: options.onTold ?? (() => {}),
    });
    closing.defer(() => notifier.close());
    const eventBus = new EventBus(notifier.rules);
    const aws = await serveAws(
      {
        s3: embedded,
        queue,
        deadLetters,
        notifyDeadLetters: notifier.deadLetters,
        secrets,
        secretName: TOKEN_SECRET,
        eventBus,
        eventBusName: EVENT_BUS,
        functionCredentials: FUNCTION_NAMES.map((name) => keys[name]),
        s3Credentials: [keys.process],
        operatorCredentials: keys.operator,
        s3Port: options.s3Port,
      },
      onAccess,
      closing,
    );
    const s3Endpoint = aws.environment.AWS_ENDPOINT_URL_S3;
    const s3 = s3Client(s3Endpoint, keys.process);
    closing.defer(() => s3.destroy());

    const { functions, forOperator } = createFunctions(options, service.url, { aws, keys });
    closing.defer(() => forOperator.close());
    triggers = new Triggers({
      clock: systemClock,
      queue,
      deadLetters,
      functions,
      createConcurrency: options.createConcurrency ?? CREATE_CONCURRENCY,
      ticks: options.fixedTicks ?? { intervalMs: options.tickIntervalMs ?? TICK_INTERVAL_MS },
      onFault: options.onFault ?? (() => {}),
      onDeadLetter: options.onDeadLetter,
    });
    closing.defer(() => triggers?.close());
    const lambdaEndpoint = await serveLambda(
      { [COLLECT_FUNCTION]: servedFunction(forOperator) },
      {
        credentials: [keys.operator],
        onCall: ({ accessKeyId, action, input }) => {
          const { FunctionName: resource } = input as { FunctionName: string };
          onAccess({ accessKeyId, action, resource, context: {} });
        },
      },
    );
    closing.defer(() => lambdaEndpoint.close());

    return {
      s3Endpoint,
      s3Credentials: keys.process,
      s3,
      operator: {
        endpoints: {
          s3: s3Endpoint,
          sqs: aws.environment.AWS_ENDPOINT_URL_SQS,
          lambda: lambdaEndpoint.endpoint,
          events: aws.environment.AWS_ENDPOINT_URL_EVENTBRIDGE,
        },
        region: REGION,
        credentials: keys.operator,
        s3Credentials: keys.process,
        collectFunction: COLLECT_FUNCTION,
        deadLetterQueueUrl: aws.deadLetterQueueUrl,
      },
      queue,
      deadLetters,
      secrets,
      eventBus,
      notified: () => notifier.idle(),
      standIn,
      standInJobs,
      functions,
      resume: () =>
        resume({
          s3,
          queue,
          inboxBucket: INBOX_BUCKET,
          ledgerBucket: LEDGER_BUCKET,
          areFlowsGone: options.service === undefined,
        }),
      shareBlocks: (object, path, isSame) => embedded.shareBlocks(object, path, isSame),
      close: () => closing.disposeAsync(),
    };
  } catch (error) {
    await closing.disposeAsync();
    throw error;
  }
}

/** As in the policy of a deployed queue. */
const SENDERS = {
  Effect: 'Allow',
  Principal: { Service: ['s3.amazonaws.com', 'events.amazonaws.com'] },
  Action: 'sqs:SendMessage',
};

function createQueues({ timeoutSeconds = TIMEOUT_SECONDS }: PipelineOptions): { queue: Queue; deadLetters: Queue } {
  const deadLetters = new Queue({ name: 'uploads-dead', clock: systemClock });
  const queue = new Queue({
    name: 'uploads',
    clock: systemClock,
    visibilityTimeoutSeconds: timeoutSeconds + HIDDEN_BEYOND_TIMEOUT_SECONDS,
    deadLetters: { queue: deadLetters, maxReceiveCount: RECEIVES_MAX },
    attributes: { Policy: JSON.stringify({ Version: '2012-10-17', Statement: [SENDERS] }) },
  });
  return { queue, deadLetters };
}

/** Each function signs its requests with credentials of its own, by which the endpoints tell the functions apart. */
type Keys = { readonly process: Credentials; readonly operator: Credentials } & Readonly<
  Record<FunctionName, Required<Credentials>>
>;

/** Reports the requests of the functions and of the operator, and ignores those of others. */
function accessReporter({ onCall, onOperatorCall }: PipelineOptions, keys: Keys): (access: AwsAccess) => void {
  return ({ accessKeyId, action, resource, context }) => {
    if (accessKeyId === keys.operator.accessKeyId) onOperatorCall?.(action, resource, context);
    const name = FUNCTION_NAMES.find((each) => accessKeyId === keys[each].accessKeyId);
    if (name !== undefined) onCall?.(name, action, resource, context);
  };
}

/** Opens the S3 and creates the buckets that are missing. */
function openS3(
  { stateDir, onS3Event, speaks = FLOWS }: PipelineOptions,
  onAccess: (access: AwsAccess) => void,
  onEvent: (record: S3EventRecord) => void,
): EmbeddedS3 {
  const s3 = new EmbeddedS3({
    ...(stateDir !== undefined && { dir: join(stateDir, 's3') }),
    authorize(access) {
      onAccess(access);
      return true;
    },
    onEvent(record) {
      onEvent(record);
      onS3Event?.(record);
    },
  });
  ensureBucket(s3, INBOX_BUCKET, { versioning: 'Enabled' });
  // A later stage of a chain can be fetched by an address only in exactly one version.
  ensureBucket(s3, RESULTS_BUCKET, inputUrlSeconds(speaks) === undefined ? {} : { versioning: 'Enabled' });
  ensureBucket(s3, LEDGER_BUCKET);
  return s3;
}

function ensureBucket(s3: EmbeddedS3, name: string, options: { readonly versioning?: 'Enabled' } = {}): void {
  try {
    s3.createBucket(name, options);
  } catch (error) {
    if (!(error instanceof S3Error && error.code === 'BucketAlreadyOwnedByYou')) throw error;
  }
}

function s3Client(endpoint: string, credentials: Credentials): S3Client {
  return new S3Client({
    endpoint,
    region: REGION,
    credentials,
    // The embedded S3 runs in this process: no network can corrupt a byte.
    responseChecksumValidation: 'WHEN_REQUIRED',
  });
}

/** The flow service of the options, or a stand-in that `closing` ends. */
async function openFlowService(
  options: PipelineOptions,
  closing: AsyncDisposableStack,
): Promise<Pick<Pipeline, 'standIn' | 'standInJobs'> & Required<Pick<PipelineOptions, 'service'>>> {
  if (options.service) return { service: options.service, standIn: undefined, standInJobs: undefined };
  const token = randomSecret();
  const shape = shapeFor(options.speaks);
  if (shape !== undefined) {
    const { flowMs, dir } = options.standIn ?? {};
    const jobMs = typeof flowMs === 'number' ? flowMs : undefined;
    const standInJobs = new StandInJobService({ shape, token, jobMs, ...(dir !== undefined && { dir }) });
    closing.defer(() => standInJobs.close());
    const results = await serveFlowService({ handle: standInJobs.results });
    closing.defer(() => results.close());
    standInJobs.resultsOrigin = results.url;
    const server = await serveFlowService(standInJobs);
    closing.defer(() => server.close());
    return { service: { url: server.url, token }, standIn: undefined, standInJobs };
  }
  const standIn = new StandInFlowService({
    ...options.standIn,
    tokens: [token],
  });
  closing.defer(() => standIn.close());
  const server = await serveFlowService(standIn);
  closing.defer(() => server.close());
  return { service: { url: server.url, token }, standIn, standInJobs: undefined };
}

function createFunctions(
  options: PipelineOptions,
  serviceUrl: string,
  { aws, keys }: { readonly aws: ServedAws; readonly keys: Keys },
): { readonly functions: Pipeline['functions']; readonly forOperator: LocalFunction } {
  const env: Env = {
    PIPELINE: options.name ?? NAME_DEFAULT,
    FLOW_SERVICE_URL: serviceUrl,
    TOKEN_SECRET_ID: TOKEN_SECRET,
    INBOX_BUCKET,
    RESULTS_BUCKET,
    LEDGER_BUCKET,
    QUEUE_URL: aws.queueUrl,
    COLLECT_FUNCTION,
    COMMAND: OWN_COMMAND,
    LOCAL_INBOX: options.inboxDir ?? '',
    EVENT_BUS,
    ROUTES: JSON.stringify(options.routes.map(({ skippedNames: _, ...route }) => route)),
    SETTINGS: JSON.stringify({ pollIntervalSeconds: 1, ...options.settings }),
    ...(options.resultsRetentionDays && { RESULTS_RETENTION_DAYS: String(options.resultsRetentionDays) }),
    ...(options.speaks && { SERVICE: JSON.stringify(options.speaks) }),
    ...variablesOf(options.service?.proxies ?? {}),
    ...options.environment,
  };
  const create = (name: FunctionName, concurrency: number): LocalFunction =>
    new LocalFunction(
      {
        name,
        bundleDir: join(options.bundleDir, name),
        environment: {
          ...env,
          ...aws.environment,
          AWS_ACCESS_KEY_ID: keys[name].accessKeyId,
          AWS_SECRET_ACCESS_KEY: keys[name].secretAccessKey,
          AWS_SESSION_TOKEN: keys[name].sessionToken,
        },
        timeoutSeconds: options.timeoutSeconds ?? TIMEOUT_SECONDS,
        memoryMiB: MEMORY_MIB,
        onLog: (line) => options.onLog?.(name, line),
      },
      { concurrency },
    );
  const ticks = options.fixedTicks === undefined ? 1 : FIXED_TICKS_CONCURRENCY;
  return {
    functions: {
      'create-flow': create('create-flow', options.createConcurrency ?? CREATE_CONCURRENCY),
      'collect-outputs': create('collect-outputs', ticks),
    },
    // A process beside that of the ticks, because an operator does not wait for the end of a tick. It starts when
    // needed.
    forOperator: create('collect-outputs', 1),
  };
}

/**
 * The function as the operator sees it. Its credentials reach Secrets Manager, which the operator's do not. Those of a
 * proxy are the user's.
 */
function servedFunction(local: LocalFunction): ServedFunction {
  const own = Object.entries(local.environment).filter(([name]) => !name.startsWith('AWS_'));
  return { environment: shownVariables(Object.fromEntries(own)), invoke: (event) => local.invoke(event) };
}
