import { randomUUID } from 'node:crypto';
import type { Agent } from 'node:http';
import https from 'node:https';
import { GetObjectCommand, S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import { GetQueueAttributesCommand, SQSClient } from '@aws-sdk/client-sqs';
import * as z from 'zod/mini';
import { type Clock, systemClock } from '../functions/base/clock.ts';
import { shellWord } from '../functions/base/printable.ts';
import { ConfigurationError } from '../functions/base/validation.ts';
import { ROUTES_KEY } from '../functions/ledger/keys.ts';
import { Ledger } from '../functions/ledger/store.ts';
import { Aliases } from '../functions/publish/aliases.ts';
import { pathStyle, sayEncryption } from '../functions/s3/client.ts';
import { isAbsent, isDenied } from '../functions/s3/errors.ts';
import { areRoutesBeside, parseEnv, type Settings } from '../functions/settings/environment.ts';
import { OWN_COMMAND } from '../functions/settings/own-command.ts';
import { Inbox } from '../functions/uploads/inbox.ts';
import type { Route } from '../functions/uploads/route.ts';
import { routesSchema } from '../functions/uploads/routes.ts';
import { type AwsAccess, AwsRequestError } from './aws-requests.ts';
import { CollectingFunction } from './collecting-function.ts';
import { localLogFolder, readLocalRun } from './local-run.ts';
import { fetchThrough, RunAgent } from './run-proof.ts';
import { stackOutputs } from './stack.ts';

/** The number of messages in a queue. S3 and SQS call these approximate. */
export interface QueueDepth {
  readonly visible: number;
  /** Received by a function that is at work on them. */
  readonly inFlight: number;
}

/**
 * A running pipeline, deployed or local. All operations stand on it: they read its buckets, and ask its collecting
 * function for every change.
 */
export interface Deployment {
  /** For a person: `stack flowdrop in eu-central-1`, or `the local run`. */
  readonly name: string;
  /** How a command of `flowdrop` for this deployment begins, for a shell: `flowdrop --stack flowdrop`. */
  readonly command: string;
  readonly isLocal: boolean;
  readonly settings: Settings;
  /**
   * False if the routes do not fit into the function's environment, and it has made no tick since its deployment: a tick
   * keeps them in the ledger. `settings.routes` is empty then.
   */
  readonly areRoutesKnown: boolean;
  /** @internal */
  readonly s3: S3Client;
  /** @internal */
  readonly ledger: Ledger;
  /** @internal */
  readonly aliases: Pick<Aliases, 'read'>;
  /** @internal */
  readonly inbox: Inbox;
  /** @internal */
  readonly collecting: CollectingFunction;
  /** @internal */
  readonly clock: Clock;
  /**
   * For the services of AWS that have no client here.
   * @internal
   */
  readonly access: AwsAccess;
  /**
   * The folder of the logs of a local run. Undefined if CloudWatch has them.
   * @internal
   */
  readonly logFolder?: string | undefined;
  /**
   * How clients of S3 reach a local run. Undefined for a deployed pipeline.
   * @internal
   */
  readonly s3Access?: S3ClientAccess | undefined;
  queueDepth(signal: AbortSignal): Promise<QueueDepth>;
  /** Undefined if the dead-letter queue is not known. */
  deadLetterCount(signal: AbortSignal): Promise<number | undefined>;
  /** Closes the connections. */
  close(): void;
}

/** The stack exists, but is not a Flowdrop stack. The message says what is missing. */
export class ForeignStackError extends Error {
  override readonly name = 'ForeignStackError';
}

/** Where a deployment is, and who asks. */
export interface AwsPlace {
  /** Default: the region of the ordinary chain: environment, then configuration file. */
  readonly region?: string | undefined;
  readonly credentials?: AwsAccess['credentials'] | undefined;
  readonly endpoints?: AwsAccess['endpoints'];
}

export interface StackPlace extends AwsPlace {
  readonly stack: string;
}

export interface FunctionPlace extends AwsPlace {
  /** The name of the collecting function. */
  readonly function: string;
}

/**
 * Connects to a pipeline by its function `collect-outputs` alone. What only the outputs of a stack tell
 * is not known then: the dead-letter queue.
 * @throws {AwsRequestError}
 */
export async function connectFunction(place: FunctionPlace, signal: AbortSignal): Promise<Deployment> {
  const access = await accessOf(place);
  const name = `function ${place.function} in ${access.region}`;
  const command = commandOf(['--function', place.function], place);
  return connect(
    { name, command, isLocal: false, access, function: place.function, deadLetterQueue: undefined },
    signal,
  );
}

/**
 * Connects to a deployed stack, by its outputs and the ordinary chain of credentials. The output `CollectFunction`
 * names the function, whose environment holds everything else.
 * @throws {AwsRequestError} @throws {ForeignStackError}
 */
export async function connectStack(place: StackPlace, signal: AbortSignal): Promise<Deployment> {
  const access = await accessOf(place);
  const outputs = await stackOutputs(place.stack, access, signal);
  const { CollectFunction, DeadLetterQueue } = outputs;
  if (CollectFunction === undefined) {
    const names = Object.keys(outputs).join(', ') || 'none at all';
    throw new ForeignStackError(
      `The stack ${place.stack} has no output CollectFunction (its outputs: ${names}). ` +
        'Deploy this version, or name the stack of a pipeline.',
    );
  }
  const name = `stack ${place.stack} in ${access.region}`;
  const named = { function: CollectFunction, deadLetterQueue: DeadLetterQueue };
  const command = commandOf(['--stack', place.stack], place);
  return connect({ name, command, isLocal: false, access, ...named }, signal);
}

/**
 * Connects to the run that watches a folder in `directory`. Each connection begins with a proof that it leads to the
 * run.
 * @throws {NoLocalRunError} @throws {UntrustedRunError}
 */
export async function connectLocal(directory: string, signal: AbortSignal): Promise<Deployment> {
  const { region, endpoints, credentials, s3Credentials, collectFunction, deadLetterQueueUrl } =
    readLocalRun(directory);
  const agent = new RunAgent({ credentials });
  const access: AwsAccess = {
    region,
    endpoints,
    credentials: async () => credentials,
    fetch: (request, until) => fetchThrough(agent, request, until),
  };
  const named = { function: collectFunction, deadLetterQueue: deadLetterQueueUrl };
  const command = commandOf(process.env.FLOWDROP_STACK === undefined ? [] : ['--local']);
  const logFolder = localLogFolder(directory);
  const s3Access = { endpoint: endpoints.s3, region, ...s3Credentials };
  return connect(
    { name: 'the local run', command, isLocal: true, access, agent, logFolder, s3Access, ...named },
    signal,
  );
}

/**
 * Has a client of the SDK use Node's own agent, which goes through the proxy of the process if it has one.
 * @internal
 */
export const overHttps = (): Pick<S3ClientConfig, 'requestHandler'> => ({
  requestHandler: { httpsAgent: https.globalAgent },
});

/** The region and the credentials' chain of the SDK. */
export async function accessOf({ region, credentials, endpoints }: AwsPlace): Promise<AwsAccess> {
  const { config } = new S3Client({
    ...overHttps(),
    ...(region !== undefined && { region }),
    ...(credentials && { credentials }),
  });
  // The chain makes clients of its own, such as that of a single sign-on.
  const chain = config.credentialDefaultProvider({ ...config, parentClientConfig: config, clientConfig: overHttps() });
  return {
    region: await config.region(),
    credentials: () => (credentials ? config.credentials() : chain({ callerClientConfig: config })),
    endpoints,
  };
}

/** @param options that name the deployment. */
function commandOf(options: readonly string[], { region }: AwsPlace = {}): string {
  const all = [...options, ...(region === undefined ? [] : ['--region', region])];
  return [OWN_COMMAND, ...all.map(shellWord)].join(' ');
}

interface Place {
  readonly name: string;
  readonly command: string;
  readonly isLocal: boolean;
  readonly access: AwsAccess;
  /** Makes all connections. Default: those of the SDK and of `fetch`. */
  readonly agent?: Agent | undefined;
  readonly function: string;
  readonly deadLetterQueue: string | undefined;
  readonly logFolder?: string | undefined;
  readonly s3Access?: S3ClientAccess | undefined;
}

async function connect(place: Place, signal: AbortSignal): Promise<Deployment> {
  const { name, command, isLocal, access, agent, logFolder, s3Access } = place;
  const collecting = new CollectingFunction(place.function, access);
  const { environment, modifiedAt } = await collecting.configuration(signal);
  const areInEnvironment = !areRoutesBeside(environment.ROUTES);
  const parsed = parseEnv(areInEnvironment ? environment : { ...environment, ROUTES: ROUTES_UNKNOWN });
  const config = ({ s3, sqs }: Readonly<Record<string, string | undefined>> = {}, which: 's3' | 'sqs') => {
    const endpoint = which === 's3' ? s3 : sqs;
    const { region, credentials } = access;
    return {
      ...{ region, credentials },
      ...(endpoint !== undefined && { endpoint }),
      ...(agent === undefined ? overHttps() : { requestHandler: { httpAgent: agent } }),
    } satisfies S3ClientConfig;
  };
  const s3 = new S3Client({ ...pathStyle(), ...config(access.endpoints, 's3') });
  sayEncryption(s3, parsed.encryption ?? {});
  // Otherwise the SDK warns if an emulator gives its queues another host than its own.
  const queues = new SQSClient({ ...config(access.endpoints, 'sqs'), useQueueUrlAsEndpoint: false });
  const routes = areInEnvironment
    ? parsed.routes
    : await readKeptRoutes({ s3, bucket: parsed.ledgerBucket, deployedAt: modifiedAt }, signal);
  const settings: Settings = areInEnvironment ? parsed : { ...parsed, routes: routes ?? [] };
  const areRoutesKnown = routes !== undefined;
  const clock = systemClock;
  return {
    ...{ name, command, isLocal, settings, areRoutesKnown, s3, collecting, clock, access, logFolder, s3Access },
    ledger: new Ledger(s3, settings.ledgerBucket, randomUUID),
    aliases: new Aliases({ s3, clock, nonce: randomUUID }, settings),
    inbox: new Inbox(s3, clock),
    queueDepth: (until) => depthOf(queues, settings.queueUrl, until),
    async deadLetterCount(until) {
      const { deadLetterQueue } = place;
      return deadLetterQueue === undefined ? undefined : (await depthOf(queues, deadLetterQueue, until)).visible;
    },
    close() {
      s3.destroy();
      queues.destroy();
      agent?.destroy();
    },
  };
}

async function depthOf(queues: SQSClient, QueueUrl: string, abortSignal: AbortSignal): Promise<QueueDepth> {
  const command = new GetQueueAttributesCommand({
    QueueUrl,
    AttributeNames: ['ApproximateNumberOfMessages', 'ApproximateNumberOfMessagesNotVisible'],
  });
  const { Attributes = {} } = await queues.send(command, { abortSignal });
  return {
    visible: Number(Attributes.ApproximateNumberOfMessages ?? 0),
    inFlight: Number(Attributes.ApproximateNumberOfMessagesNotVisible ?? 0),
  };
}

/** Stands for routes that are too long for the environment. */
const ROUTES_UNKNOWN = JSON.stringify([{ name: 'unknown', template: 'unknown' }]);

/** One sentence for an error of the connection. Undefined if the error is of another kind. */
export function issueOfConnection(error: unknown): string | undefined {
  if (error instanceof ConfigurationError) {
    return `The function's environment cannot be read: ${error.message}. Use the version of Flowdrop that deployed it.`;
  }
  if (error instanceof AwsRequestError) {
    if (/AccessDenied|Unauthorized/i.test(error.code)) return `AWS does not allow it: ${error.message}`;
    return error.message;
  }
  const { name, message } = error as Error;
  // An answer to HEAD has no words. The SDK calls it unknown.
  const isWordless = message === 'UnknownError';
  if (isDenied(error) && (isWordless || /AccessDenied|Token|AccessKey|Signature/.test(name))) {
    const why = isWordless ? 'it did not say why' : `${name}: ${message}`;
    return `AWS refused a request (${why}). Your credentials may have expired, or do not allow it.`;
  }
  // The SDK throws a plain error.
  if (message === 'Region is missing') return 'No AWS region is known. Add --region, or set AWS_REGION.';
  if (name === 'CredentialsProviderError') {
    return 'There are no AWS credentials. Log in, for example with aws sso login, or set AWS_PROFILE.';
  }
  return undefined;
}

/** How a client of S3 reaches the buckets of a local run. The other services of the run refuse it. */
export interface S3ClientAccess {
  readonly endpoint: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

/**
 * How much older than the deployment the kept routes may seem, in milliseconds. S3 tells times in whole seconds, and the
 * first tick may come in the second of the deployment.
 */
const KEPT_ROUTES_TOLERANCE_MS = 2_000;

const keptRoutesSchema = z.object({ routes: routesSchema });

/**
 * The routes that the collecting function has kept since its deployment. Undefined if it has made no tick since then.
 * @param deployedAt when the function was last changed, in milliseconds since the epoch. Undefined if that is not known.
 */
async function readKeptRoutes(
  { s3, bucket, deployedAt = 0 }: { readonly s3: S3Client; readonly bucket: string; readonly deployedAt?: number },
  abortSignal: AbortSignal,
): Promise<readonly Route[] | undefined> {
  try {
    const get = new GetObjectCommand({ Bucket: bucket, Key: ROUTES_KEY });
    const { Body, LastModified } = await s3.send(get, { abortSignal });
    const text = (await Body?.transformToString()) ?? '';
    if ((LastModified?.getTime() ?? 0) + KEPT_ROUTES_TOLERANCE_MS < deployedAt) return undefined;
    return keptRoutesSchema.safeParse(JSON.parse(text)).data?.routes;
  } catch (error) {
    // Another program wrote it, or nobody did.
    if (error instanceof SyntaxError || isAbsent(error)) return undefined;
    throw error;
  }
}
