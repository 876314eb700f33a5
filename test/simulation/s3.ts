import { Readable } from 'node:stream';
import { GetObjectCommand, PutObjectCommand, S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import { s3RequestHandler } from '../../local/aws/s3/request-handler.ts';
import { EmbeddedS3 } from '../../local/aws/s3/s3.ts';
import type { Fault, FaultPlan, S3CallKind } from './faults.ts';
import type { Lambda } from './lambda.ts';
import type { Random } from './random.ts';
import type { Timeline } from './timeline.ts';

/** How often the SDK tries, and how long it waits for an answer, in milliseconds. */
const ATTEMPTS_MAX = 3;
const REQUEST_TIMEOUT_MS = 60_000;

export interface SimulatedS3 {
  readonly s3: EmbeddedS3;
  readonly timeline: Timeline;
  readonly random: Random;
  readonly faultPlan: FaultPlan;
  readonly trace: (line: string) => void;
  readonly onFault: (fault: Fault) => void;
  /** Told of every call as it takes effect, and of the invocation that made it, which may be over by then. */
  readonly onEffect: (invocation: string, call: CompletedCall) => void;
  /** Multipart uploads of which a process was told that they are begun, and by their ids which one. */
  readonly begun: Map<string, Lambda>;
  /** Ids of the multipart uploads that somebody tried to abort. */
  readonly abortTried: Set<string>;
  readonly buckets: { readonly inboxes: readonly string[]; readonly results: string; readonly ledger: string };
}

/** A call that took effect. */
export interface CompletedCall {
  readonly kind: S3CallKind;
  readonly key: string;
  /** Of the request, where it is text. */
  readonly body: string;
}

interface SdkRequest {
  readonly method: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[] | null>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

interface SdkResponse {
  readonly statusCode: number;
  readonly headers: Record<string, string>;
  readonly body: Readable;
}

type Handler = NonNullable<S3ClientConfig['requestHandler']>;
type Handle = (
  request: SdkRequest,
  options: {
    readonly abortSignal?: AbortSignal;
    /** Caller and server; or the server alone, for a call without network and faults. */
    readonly call?: { readonly world: SimulatedS3; readonly lambda: Lambda };
    readonly direct?: EmbeddedS3;
  },
) => Promise<{ response: SdkResponse }>;

/**
 * One client for all simulations of this process, because making one costs more than many a call: who calls whom is
 * told with each request. The SDK's own retrying waits for real timers, so it is switched off and done by the handler.
 */
const client = new S3Client({
  endpoint: 'http://localhost',
  forcePathStyle: true,
  region: 'us-east-1',
  credentials: { accessKeyId: 'fake', secretAccessKey: 'fake' },
  maxAttempts: 1,
  responseChecksumValidation: 'WHEN_REQUIRED',
  // Nobody here looks at a signature.
  signer: { sign: async (request: unknown) => request } as unknown as NonNullable<S3ClientConfig['signer']>,
  requestHandler: {
    handle: ((request, { abortSignal, call, direct }) => {
      if (direct !== undefined) return handlerOf(direct)(request, {});
      if (call === undefined) throw new Error('A request that nobody sent');
      return withRetries(request, abortSignal, call.world, call.lambda);
    }) satisfies Handle,
    updateHttpClientConfig() {},
    httpHandlerConfigs: () => ({}),
    destroy() {},
  } as unknown as Handler,
});

/** The S3 client of one process. */
export function s3ClientOf(world: SimulatedS3, lambda: Lambda): S3Client {
  const send = (command: Parameters<S3Client['send']>[0], options: { abortSignal?: AbortSignal } = {}) =>
    client.send(command, { ...options, call: { world, lambda } } as never);
  return { send } as unknown as S3Client;
}

/**
 * The SDK reads its configuration files with its first calls, in real time, which a simulation would take for rest. To
 * be called before the first one.
 */
export async function warmUp(): Promise<void> {
  const direct = new EmbeddedS3();
  direct.createBucket('warm');
  const where = { Bucket: 'warm', Key: 'up' };
  await client.send(new PutObjectCommand({ ...where, Body: '{}', IfNoneMatch: '*' }), { direct } as never);
  const { Body } = await client.send(new GetObjectCommand(where), { direct } as never);
  await Body?.transformToString();
  direct.close();
}

async function withRetries(
  request: SdkRequest,
  signal: AbortSignal | undefined,
  world: SimulatedS3,
  lambda: Lambda,
): Promise<{ response: SdkResponse }> {
  const kind = kindOf(request, world.buckets);
  if (kind === 'asset.abort') world.abortTried.add(String(request.query?.uploadId));
  let fault: Fault | undefined;
  for (let attempt = 1; ; attempt += 1) {
    if (fault === undefined || !world.faultPlan.stays()) fault = world.faultPlan.draw(kind);
    try {
      const response = await attemptOf(request, kind, fault, signal, world, lambda);
      if (attempt === ATTEMPTS_MAX || ![500, 503].includes(response.statusCode)) {
        return { response: kind === 'asset.begin' ? await noted(response, world, lambda) : response };
      }
    } catch (error) {
      if (attempt === ATTEMPTS_MAX || (error as Error).name === 'AbortError') throw error;
    }
    await lambda.clock.sleep(world.random.int(20, 2_000));
    if (signal?.aborted) throw aborted(signal);
  }
}

/** The answer to the beginning of a multipart upload, of which the process is told here. */
async function noted(response: SdkResponse, { begun }: SimulatedS3, lambda: Lambda): Promise<SdkResponse> {
  const chunks: Buffer[] = [];
  for await (const chunk of response.body) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  const uploadId = /<UploadId>(.*?)<\/UploadId>/.exec(body.toString())?.[1];
  if (uploadId !== undefined) begun.set(uploadId, lambda);
  return { ...response, body: Readable.from([body]) };
}

function attemptOf(
  request: SdkRequest,
  kind: S3CallKind,
  fault: Fault | undefined,
  signal: AbortSignal | undefined,
  world: SimulatedS3,
  lambda: Lambda,
): Promise<SdkResponse> {
  const { timeline, random, trace } = world;
  const invocation = lambda.invocationName;
  return new Promise((resolve, reject) => {
    if (lambda.isDead) return;
    if (signal?.aborted) {
      reject(aborted(signal));
      return;
    }
    const what = `${lambda.name} ${kind} ${request.path}`;
    trace(`${what}${fault === undefined ? '' : ` × ${fault}`}`);
    if (fault !== undefined) world.onFault(fault);
    if (fault === 'killed before') {
      lambda.kill();
      return;
    }
    if (fault === 'frozen') lambda.freeze(frozenFor(random));
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
    const travelMs =
      fault === 'slow'
        ? random.int(5_000, 50_000)
        : fault === 'late'
          ? random.int(REQUEST_TIMEOUT_MS, 4 * REQUEST_TIMEOUT_MS)
          : random.int(1, random.chance(0.1) ? 2_000 : 40);
    timeline.schedule(timeline.now() + travelMs, async () => {
      const isRead = request.method === 'GET' || request.method === 'HEAD';
      switch (fault) {
        case 'refused':
          return answer(() => reject(failure('Error', 'ECONNREFUSED')));
        case 'slow down':
          return answer(() => resolve(errorAnswer(request, 503, 'SlowDown')));
        case 'internal error':
          return answer(() => resolve(errorAnswer(request, 500, 'InternalError')));
        case 'conflict':
          return answer(() => resolve(errorAnswer(request, 409, 'ConditionalRequestConflict')));
        case 'half':
          if (!isRead) return answer(() => reject(failure('Error', 'ECONNRESET')));
      }
      let response: SdkResponse;
      try {
        const handler = handlerOf(world.s3);
        // Nothing but whose it is, for whoever records what each function is to be allowed.
        const headers = { ...request.headers, authorization: `Credential=${lambda.name}` };
        ({ response } = await handler({ ...request, headers }, {}));
      } catch (error) {
        return answer(() => reject(error));
      }
      trace(`${what} -> ${response.statusCode}`);
      if (response.statusCode < 300) {
        const body = typeof request.body === 'string' ? request.body : '';
        world.onEffect(invocation, { kind, key: keyOf(request), body });
      }
      switch (fault) {
        case 'killed after':
          return lambda.kill();
        case 'lost':
          return answer(() => reject(failure('Error', 'ECONNRESET')));
        case 'internal error after':
          return answer(() => resolve(errorAnswer(request, 500, 'InternalError')));
        case 'half':
          return answer(() => resolve({ ...response, body: halfOf(response.body) }));
        default:
          answer(() => resolve(response));
      }
    });
  });
}

const handlers = new WeakMap<EmbeddedS3, Handle>();

function handlerOf(s3: EmbeddedS3): Handle {
  let handle = handlers.get(s3);
  if (handle === undefined) {
    const handler = s3RequestHandler(s3) as unknown as { handle: Handle };
    handle = (request, options) => handler.handle(request, options);
    handlers.set(s3, handle);
  }
  return handle;
}

/** Long enough for somebody to take over, or only long enough to be in the way of others. */
export function frozenFor(random: Random): number {
  return random.chance(0.5) ? random.int(10_000, 120_000) : random.int(5, 30) * 60_000;
}

function halfOf(body: Readable): Readable {
  return Readable.from(
    (async function* () {
      const chunks: Buffer[] = [];
      for await (const chunk of body) chunks.push(chunk as Buffer);
      const whole = Buffer.concat(chunks);
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

const keyOf = ({ path }: SdkRequest): string => decodeURIComponent(/^\/[^/]+\/?(.*)$/s.exec(path)?.[1] ?? '');

function kindOf(request: SdkRequest, buckets: SimulatedS3['buckets']): S3CallKind {
  const { method, path, query = {}, headers } = request;
  const bucket = path.split('/')[1];
  const kind = s3CallKind(method, bucket, keyOf(request), query, headers, buckets);
  if (kind === undefined) throw new Error(`An S3 call that the simulation does not know: ${method} ${path}`);
  return kind;
}

function s3CallKind(
  method: string,
  bucket: string | undefined,
  key: string,
  query: NonNullable<SdkRequest['query']>,
  headers: SdkRequest['headers'],
  buckets: SimulatedS3['buckets'],
): S3CallKind | undefined {
  if (bucket !== undefined && buckets.inboxes.includes(bucket)) {
    if (key === '') return 'inbox.list';
    return method === 'HEAD' ? 'inbox.head' : method === 'GET' ? 'inbox.get' : undefined;
  }
  if (bucket === buckets.ledger) {
    if (key === '') return String(query.prefix).startsWith('uploads/') ? 'entries.list' : 'markers.list';
    if (key.startsWith('uploads/')) {
      if (method === 'GET') return 'entry.get';
      return 'if-none-match' in headers ? 'entry.create' : 'entry.replace';
    }
    if (key === 'state/sweep.json') return method === 'GET' ? 'sweep.get' : 'sweep.put';
    if (key.startsWith('state/')) return method === 'GET' ? 'lease.get' : 'lease.put';
    return method === 'PUT' ? 'marker.put' : method === 'DELETE' ? 'marker.delete' : undefined;
  }
  if (key.endsWith('/receipt.json')) return method === 'HEAD' ? 'receipt.head' : 'receipt.put';
  if (method === 'POST') return 'uploads' in query ? 'asset.begin' : 'asset.complete';
  if (method === 'DELETE') return 'asset.abort';
  if (method === 'PUT') return 'partNumber' in query ? 'asset.put-part' : 'asset.put';
  return method === 'GET' ? 'asset.get' : undefined;
}
