import { AsyncLocalStorage } from 'node:async_hooks';
import { Readable } from 'node:stream';
import { GetObjectCommand, PutObjectCommand, type S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import { s3Client } from '../../functions/s3/client.ts';
import { s3RequestHandler } from '../../local/aws/s3/request-handler.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';
import { withoutIdleSteps } from '../support/idle-steps.ts';
import type { Fault, S3CallKind } from './faults.ts';
import type { Lambda } from './lambda.ts';
import { bucketOf, keyOf, kindOf, type SdkRequest } from './s3-calls.ts';
import { POISONED_PREFIX } from './scenario.ts';
import { seesSource } from './storm-sources.ts';
import type { World } from './world.ts';

/** Number of times that the SDK tries a call, and how long it waits for an answer, in milliseconds. */
const ATTEMPTS_MAX = 3;
const REQUEST_TIMEOUT_MS = 60_000;

/** A call that took effect. */
export interface CompletedCall {
  readonly kind: S3CallKind;
  readonly key: string;
  /** The body of the request, if it is text. */
  readonly body: string;
  /** The tags that an object is put with. */
  readonly tagging?: string | undefined;
}

interface SdkResponse {
  readonly statusCode: number;
  readonly headers: Record<string, string>;
  readonly body: Readable;
}

type Handler = NonNullable<S3ClientConfig['requestHandler']>;
type Handle = (
  request: SdkRequest,
  options: { readonly abortSignal?: AbortSignal },
) => Promise<{ response: SdkResponse }>;

/**
 * The network between the caller of a request and the server, or the server of a call without faults. The functions'
 * client sends requests with any other option than a signal in another way, so no option can name it.
 */
const networks = new AsyncLocalStorage<S3Network | EmbeddedS3>();

/**
 * One client for all simulations of this process, because making a client takes longer than many calls. It is the one of
 * the functions. The SDK's retries wait for real timers, so they are switched off, and the network retries.
 */
const client = s3Client({
  endpoint: 'http://localhost',
  forcePathStyle: true,
  region: 'us-east-1',
  credentials: { accessKeyId: 'fake', secretAccessKey: 'fake' },
  maxAttempts: 1,
  // The embedded S3 does not check signatures.
  signer: { sign: async (request: unknown) => request } as unknown as NonNullable<S3ClientConfig['signer']>,
  requestHandler: {
    handle: ((request, { abortSignal }) => {
      const network = networks.getStore();
      if (network === undefined) throw new Error('An S3 request without a network');
      return network instanceof EmbeddedS3 ? answerOf(network, request) : network.send(request, abortSignal);
    }) satisfies Handle,
    updateHttpClientConfig() {},
    httpHandlerConfigs: () => ({}),
    destroy() {},
  } as unknown as Handler,
});

withoutIdleSteps(client);
// The step that signs needs one of this name above it.
client.middlewareStack.add((next) => (args) => next(args), {
  step: 'finalizeRequest',
  name: 'retryMiddleware',
  priority: 'high',
  override: true,
});

/** The S3 client of one process. */
export function s3ClientOf(world: World, lambda: Lambda): S3Client {
  const network = new S3Network(world, lambda);
  const send = (command: Parameters<S3Client['send']>[0], options: { abortSignal?: AbortSignal } = {}) =>
    networks.run(network, () => client.send(command as PutObjectCommand, options));
  return { send } as unknown as S3Client;
}

/**
 * Makes the SDK read its configuration files, which it does with its first calls and in real time. A simulation would
 * take that time for rest, so this must run before the first one.
 */
export async function warmUp(): Promise<void> {
  const s3 = new EmbeddedS3();
  s3.createBucket('warm');
  const where = { Bucket: 'warm', Key: 'up' };
  await networks.run(s3, async () => {
    await client.send(new PutObjectCommand({ ...where, Body: '{}', IfNoneMatch: '*' }));
    const { Body } = await client.send(new GetObjectCommand(where));
    await Body?.transformToString();
  });
  s3.close();
}

interface Attempt {
  readonly request: SdkRequest;
  readonly kind: S3CallKind;
  readonly fault: Fault | undefined;
  readonly signal: AbortSignal | undefined;
}

/** The network between one process and S3. Everything on it takes time and may go wrong. */
class S3Network {
  readonly #world: World;
  readonly #lambda: Lambda;

  constructor(world: World, lambda: Lambda) {
    this.#world = world;
    this.#lambda = lambda;
  }

  /** Sends a request, with retries as the SDK makes them. */
  async send(sent: SdkRequest, signal: AbortSignal | undefined): Promise<{ response: SdkResponse }> {
    // The client writes a large body as a stream, and makes a new one for each of its own attempts.
    const request = sent.body instanceof Readable ? { ...sent, body: await bytesOf(sent.body) } : sent;
    const { observed, faultPlan, randoms, orderChecker } = this.#world;
    const kind = kindOf(request);
    if (kind === undefined) {
      const message = `an S3 call that the simulation does not know: ${request.method} ${request.path}`;
      // The functions may take the error for one of S3.
      orderChecker.broken.push(message);
      throw new Error(message);
    }
    if (kind === 'asset.abort') observed.abortTried.add(String(request.query?.uploadId));
    const key = keyOf(request);
    const poison = this.#world.poisonOf(kind, { upload: key.includes(POISONED_PREFIX) ? key : undefined });
    let fault: Fault | undefined;
    for (let attempt = 1; ; attempt += 1) {
      if (fault === undefined || !faultPlan.stays()) fault = poison ?? faultPlan.draw(kind);
      try {
        const response = await this.#attempt({ request, kind, fault, signal });
        if (attempt === ATTEMPTS_MAX || ![500, 503].includes(response.statusCode)) {
          return { response: kind === 'asset.begin' ? await this.#noted(response) : response };
        }
      } catch (error) {
        if (attempt === ATTEMPTS_MAX || (error as Error).name === 'AbortError') throw error;
      }
      await this.#lambda.clock.sleep(randoms.network.int(20, 2_000));
      if (signal?.aborted) throw aborted(signal);
    }
  }

  /** Notes the multipart upload whose beginning this answer confirms to the process. */
  async #noted(response: SdkResponse): Promise<SdkResponse> {
    const body = await bytesOf(response.body);
    const uploadId = /<UploadId>(.*?)<\/UploadId>/.exec(body.toString())?.[1];
    if (uploadId !== undefined) this.#world.observed.begun.set(uploadId, this.#lambda);
    return { ...response, body: Readable.from([body]) };
  }

  #attempt(attempt: Attempt): Promise<SdkResponse> {
    const world = this.#world;
    const { timeline } = world;
    const random = world.randoms.network;
    const lambda = this.#lambda;
    const { request, fault, signal } = attempt;
    const invocation = lambda.invocationName;
    return new Promise((resolve, reject) => {
      if (lambda.isDead) return;
      if (signal?.aborted) {
        reject(aborted(signal));
        return;
      }
      world.noteCall(lambda, nameOf(attempt), fault);
      if (fault === 'killed before') {
        lambda.kill();
        return;
      }
      const timeLimit = lambda.after(REQUEST_TIMEOUT_MS, 'timer', () =>
        settle(() => reject(failure('TimeoutError', 'ETIMEDOUT'))),
      );
      const forget = lambda.whenAborted(signal, () => settle(() => reject(aborted(signal as AbortSignal))));
      const settle = (how: () => void): void => {
        timeLimit.cancel();
        forget();
        how();
      };
      const answer = (how: () => void): void => {
        lambda.after(random.int(1, 40), 'answer', () => settle(how));
      };
      timeline.schedule(timeline.now() + this.#travelMs(fault), async () => {
        const early = answerWithoutEffect(fault, request);
        const outcome = early ?? (await this.#effect(attempt, invocation));
        if (outcome === 'dead') lambda.kill();
        else if (outcome instanceof Error) answer(() => reject(outcome));
        else answer(() => resolve(outcome));
      });
    });
  }

  #travelMs(fault: Fault | undefined): number {
    const random = this.#world.randoms.network;
    if (fault === 'slow') return random.int(5_000, 50_000);
    if (fault === 'late') return random.int(REQUEST_TIMEOUT_MS, 4 * REQUEST_TIMEOUT_MS);
    return random.int(1, random.chance(0.1) ? 2_000 : 40);
  }

  /** Lets the request take effect. Returns what the caller then gets: an answer, an error, or death. */
  async #effect(attempt: Attempt, invocation: string): Promise<SdkResponse | Error | 'dead'> {
    const world = this.#world;
    const { request, kind, fault } = attempt;
    let response: SdkResponse;
    try {
      // Names the process, so that a test can record which permissions each function needs.
      const headers = { ...request.headers, authorization: `Credential=${this.#lambda.name}` };
      ({ response } = await answerOf(world.s3, { ...request, headers }));
    } catch (error) {
      return error as Error;
    }
    world.trace(`${this.#lambda.name} ${nameOf(attempt)} -> ${response.statusCode}`);
    if (response.statusCode < 300) {
      const body = typeof request.body === 'string' ? request.body : '';
      const call = { kind, key: keyOf(request), body, tagging: request.headers['x-amz-tagging'] };
      world.orderChecker.sees(invocation, call);
      world.chainWatch.sees(call);
      seesSource(world, { ...call, bucket: bucketOf(request) });
      world.holdWatch?.sees(call);
      world.expiryWatch?.sees(call);
    }
    switch (fault) {
      case 'killed after':
        return 'dead';
      case 'lost':
        return failure('Error', 'ECONNRESET');
      case 'internal error after':
        return errorAnswer(request, 500, 'InternalError');
      case 'half':
        return { ...response, body: halfOf(response.body) };
      default:
        return response;
    }
  }
}

const nameOf = ({ kind, request }: Attempt): string => `${kind} ${request.path}`;

/** The answer or error of a request that a fault keeps from taking effect. */
function answerWithoutEffect(fault: Fault | undefined, request: SdkRequest): SdkResponse | Error | undefined {
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  switch (fault) {
    case 'refused':
      return failure('Error', 'ECONNREFUSED');
    case 'slow down':
      return errorAnswer(request, 503, 'SlowDown');
    case 'internal error':
      return errorAnswer(request, 500, 'InternalError');
    case 'conflict':
      return errorAnswer(request, 409, 'ConditionalRequestConflict');
    case 'half':
      return isRead ? undefined : failure('Error', 'ECONNRESET');
    default:
      return undefined;
  }
}

/** Lets an S3 answer a request. */
const answerOf = (s3: EmbeddedS3, request: SdkRequest): ReturnType<Handle> =>
  (s3RequestHandler(s3) as unknown as { handle: Handle }).handle(request, {});

async function bytesOf(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function halfOf(body: Readable): Readable {
  return Readable.from(
    (async function* () {
      const whole = await bytesOf(body);
      if (whole.byteLength > 1) yield whole.subarray(0, whole.byteLength / 2);
      throw failure('Error', 'ECONNRESET');
    })(),
    { objectMode: false },
  );
}

function errorAnswer(request: SdkRequest, statusCode: number, code: string): SdkResponse {
  const xml = request.method === 'HEAD' ? '' : `<Error><Code>${code}</Code><Message>Simulated.</Message></Error>`;
  return { statusCode, headers: { 'content-type': 'application/xml' }, body: Readable.from([Buffer.from(xml)]) };
}

const failure = (name: string, code: string): Error => Object.assign(new Error(`Simulated: ${code}`), { name, code });

/** Named as the SDK's own request handler names it. */
const aborted = (signal: AbortSignal): Error =>
  Object.assign(new Error('Request aborted', { cause: signal.reason }), { name: 'AbortError' });
