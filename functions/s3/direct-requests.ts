import {
  DeleteObjectCommand,
  GetObjectCommand,
  PutObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
} from '@aws-sdk/client-s3';

/*
 * An SDK call costs 0.8 ms of processor time, and four fifths of it is spent between the parts that do the work: the
 * SDK resolves some twenty middlewares, the endpoint rules, the user agent and the auth scheme anew for each request. A
 * small file takes nine requests. Here the first attempt of the three frequent operations goes straight through the
 * client's own parts:
 *
 *   protocol.serializeRequest ─▶ checksum ─▶ signer.sign ─▶ requestHandler.handle ─▶ protocol.deserializeResponse
 *
 * Nothing is decided here. The first request of an operation to a bucket takes the SDK's way, and shows the endpoint,
 * the region to sign for, and the headers that it chose. Later ones reuse these. If an attempt does not simply succeed,
 * the SDK gets its answer, or its error, as that of its own first attempt. So retries with their backoff, the
 * correction of the clock, and every error stay the SDK's.
 */

/** Operations that are sent directly, by the names of their commands. Minified, a class has another name. */
const OPERATIONS = {
  PutObjectCommand,
  GetObjectCommand,
  DeleteObjectCommand,
} as const;

/** Members of their inputs that need no middleware of the SDK. A command with any other member takes the SDK's way. */
const MEMBERS: ReadonlySet<string> = new Set([
  'Bucket',
  'Key',
  'VersionId',
  'Body',
  'ContentType',
  'ContentDisposition',
  'Metadata',
  'IfMatch',
  'IfNoneMatch',
]);

/**
 * Maximum number of shortcuts that are kept: three operations, and the buckets of this pipeline and of earlier inboxes.
 */
const SHORTCUTS_MAX = 64;

/** Headers that are the same for all requests of an operation to a bucket. */
const CONSTANT_HEADERS: readonly string[] = ['host', 'user-agent', 'x-amz-user-agent'];

type Command = InstanceType<(typeof OPERATIONS)[keyof typeof OPERATIONS]>;
type Send = (command: Command, options?: { readonly abortSignal?: AbortSignal }) => Promise<unknown>;
type Config = S3Client['config'];
type Request = Parameters<Config['requestHandler']['handle']>[0];
type Response = Awaited<ReturnType<Config['requestHandler']['handle']>>['response'];
type AuthScheme = NonNullable<Parameters<Config['signer']>[0]>;

/** The client's protocol. Its own type is a union that cannot be called. */
interface Protocol {
  serializeRequest(operation: object, input: object, serde: object): Promise<Request>;
  deserializeResponse(operation: object, serde: object, response: Response): Promise<unknown>;
}

/** A prepared request: what the SDK decided for one operation on a bucket. */
interface Shortcut {
  /** What the protocol needs besides. */
  readonly serde: object;
  readonly signer: Awaited<ReturnType<Config['signer']>>;
  readonly signing: { readonly signingRegion: string | undefined; readonly signingService: string };
  readonly headers: Readonly<Record<string, string>>;
}

/** The parts that we use of the context of the SDK's middleware. */
interface SdkContext {
  readonly commandName?: string;
  readonly endpointV2?: { readonly url: URL; readonly properties?: { readonly authSchemes?: readonly AuthScheme[] } };
}

/** An attempt that did not simply succeed. */
type Unsettled = { readonly response: Response } | { readonly error: unknown };

interface DirectOptions {
  /** Makes the headers that a body needs. */
  readonly headersOf: (body: string | Uint8Array) => Readonly<Record<string, string>>;
  /** Makes what is written of a body. */
  readonly written: (body: unknown) => unknown;
}

/**
 * Makes a client send the first attempts of frequent requests directly. Middleware that is added to the client later
 * must see every request, so it turns this off.
 */
export function sendDirectly(client: S3Client, options: DirectOptions): void {
  const direct = new DirectRequests(client, options);
  const stack = client.middlewareStack as unknown as Record<
    'add' | 'addRelativeTo' | 'use',
    (...args: unknown[]) => void
  >;
  for (const name of ['add', 'addRelativeTo', 'use'] as const) {
    const add = stack[name];
    stack[name] = (...args) => {
      direct.isOn = false;
      add(...args);
    };
  }
  Object.assign(client, { send: direct.send });
}

class DirectRequests {
  isOn = true;
  readonly #config: Config;
  readonly #options: DirectOptions;
  readonly #sendBySdk: Send;
  readonly #shortcuts = new Map<string, Shortcut>();

  constructor(client: S3Client, options: DirectOptions) {
    this.#config = client.config;
    this.#options = options;
    this.#sendBySdk = client.send.bind(client) as Send;
    client.middlewareStack.add(
      (next, context) => async (args) => {
        await this.#learn(args.input as Command['input'], args.request as Request, context as SdkContext);
        return next(args);
      },
      { step: 'finalizeRequest', priority: 'high', name: 'learnShortcut' },
    );
  }

  readonly send: Send = async (command, options) => {
    const isPlain = this.isOn && isDirect(command) && isOrdinary(command, options);
    const shortcut = isPlain ? this.#shortcuts.get(nameOf(command)) : undefined;
    if (shortcut === undefined) return this.#sendBySdk(command, options);
    const retries = await this.#config.retryStrategy();
    // Each success refills the allowance for retries, which failures use up.
    const token = 'recordSuccess' in retries ? await retries.acquireInitialRetryToken('') : undefined;
    const attempt = await this.#attempt(shortcut, command, options?.abortSignal);
    if (!('output' in attempt)) return this.#sendBySdk(withFirstAttempt(command, attempt), options);
    if (token !== undefined && 'recordSuccess' in retries) retries.recordSuccess(token);
    return attempt.output;
  };

  async #attempt(
    { serde, signer, signing, headers }: Shortcut,
    command: Command,
    abortSignal: AbortSignal | undefined,
  ): Promise<Unsettled | { readonly output: unknown }> {
    const { requestHandler, systemClockOffset } = this.#config;
    const protocol = this.#config.protocol as unknown as Protocol;
    const operation = operationOf(command);
    let response: Response;
    try {
      const request = await protocol.serializeRequest(operation, command.input, serde);
      Object.assign(request.headers, headers, traceHeader());
      const { body } = request;
      if (typeof body === 'string' || body instanceof Uint8Array)
        Object.assign(request.headers, this.#options.headersOf(body));
      // The SDK corrects the offset when S3 refuses the time of a request.
      const signingDate = new Date(Date.now() + systemClockOffset);
      const signed = await signer.sign(request, { signingDate, ...signing });
      signed.body = this.#options.written(signed.body);
      ({ response } = await requestHandler.handle(signed as Request, { abortSignal }));
    } catch (error) {
      return { error };
    }
    if (!isPlainSuccess(command, response)) return { response };
    return { output: await protocol.deserializeResponse(operation, serde, response) };
  }

  /** Remembers what the SDK has decided about a request. Leaves out requests that are signed in a special way. */
  async #learn(
    input: Command['input'],
    { headers }: Request,
    { commandName = '', endpointV2 }: SdkContext,
  ): Promise<void> {
    const name = nameFor(commandName, input);
    const scheme = endpointV2?.properties?.authSchemes?.[0];
    if (endpointV2 === undefined || scheme?.name !== 'sigv4' || this.#shortcuts.has(name)) return;
    if (!(commandName in OPERATIONS)) return;
    const endpoint = this.#config.urlParser(endpointV2.url);
    const signer = await this.#config.signer(scheme);
    if (this.#shortcuts.size >= SHORTCUTS_MAX) this.#shortcuts.clear();
    this.#shortcuts.set(name, {
      serde: { ...this.#config, endpoint: async () => endpoint },
      signer,
      signing: { signingRegion: scheme.signingRegion, signingService: scheme.signingName },
      headers: Object.fromEntries(
        Object.entries(headers as Record<string, string>).filter(([header]) => CONSTANT_HEADERS.includes(header)),
      ),
    });
  }
}

const nameFor = (commandName: string, { Bucket }: Command['input']): string => `${commandName} ${Bucket}`;

const nameOf = ({ schema, input }: Command): string => nameFor(`${(schema as StaticOperation)[2]}Command`, input);

/** True for a command whose request needs nothing but what is done here. */
function isDirect(command: Command): boolean {
  if (!Object.values(OPERATIONS).some((operation) => command instanceof operation)) return false;
  const { input } = command;
  for (const name in input) if (!MEMBERS.has(name)) return false;
  if (!(command instanceof PutObjectCommand)) return true;
  const { Body } = command.input;
  return typeof Body === 'string' || Body instanceof Uint8Array;
}

/** True for a call without middleware of its own, and without options that the SDK would read. */
function isOrdinary({ middlewareStack }: Command, options: object = {}): boolean {
  return middlewareStack.identify().length === 0 && Object.keys(options).every((name) => name === 'abortSignal');
}

function operationOf({ schema }: Command): object {
  const [, namespace, name, traits, input, output] = schema as StaticOperation;
  return { namespace, name, traits, input, output };
}

type StaticOperation = readonly [number, string, string, unknown, unknown, unknown];

/**
 * Lambda's trace of this invocation. With it Lambda notices a loop of functions and buckets.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
 */
function traceHeader(): Readonly<Record<string, string>> {
  const { _X_AMZN_TRACE_ID: trace } = process.env;
  return trace ? { 'X-Amzn-Trace-Id': trace } : {};
}

/** True for an answer that can mean nothing else. S3 may report an error in the body of a 200. */
function isPlainSuccess(command: Command, { statusCode, headers }: Response): boolean {
  if (statusCode === 204) return true;
  if (statusCode !== 200) return false;
  // The SDK mends an Expires header that is no date. Otherwise it could not read the answer.
  return command instanceof GetObjectCommand ? headers.expires === undefined : headers['content-length'] === '0';
}

/** The same command once more. The SDK takes the attempt for its own first one. */
function withFirstAttempt(failed: Command, attempt: Unsettled): Command {
  const command = new (failed.constructor as typeof PutObjectCommand)({ ...failed.input } as PutObjectCommandInput);
  let isFirst = true;
  command.middlewareStack.add(
    (next) => async (args) => {
      if (!isFirst) return next(args);
      isFirst = false;
      if ('error' in attempt) throw attempt.error;
      return attempt as unknown as Awaited<ReturnType<typeof next>>;
    },
    { step: 'deserialize', priority: 'low', name: 'firstAttempt' },
  );
  return command;
}
