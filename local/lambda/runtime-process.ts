import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { NO_HOME } from '../../command-line/own-environment.ts';
import { closeAfter, type Listening, listenOnLoopback } from '../loopback.ts';
import { isSameSecret, randomSecret } from '../secrets.ts';

/** Everything that Lambda knows about a function. */
export interface FunctionDefinition {
  readonly name: string;
  /** Directory of the bundle. Its `index.mjs` exports `handler`. */
  readonly bundleDir: string;
  /** The function's own variables. Lambda's are added to them. */
  readonly environment: Readonly<Record<string, string>>;
  /** Timeout of one invocation, in seconds. The process is killed at the timeout. */
  readonly timeoutSeconds: number;
  /** Sets the size of V8's heap, as Lambda does, and the context's `memoryLimitInMB`. It is not enforced. */
  readonly memoryMiB: number;
  /** Called with each line of standard output and standard error. */
  readonly onLog?: (line: string) => void;
}

/** The failure of an invocation, with the fields of Lambda's error payload. */
class FunctionError extends Error {
  override readonly name = 'FunctionError';
  /** The name of the handler's error, or Lambda's own type: `Sandbox.Timedout`, `Runtime.ExitError`, ... */
  readonly errorType: string;
  constructor(errorType: string, message: string) {
    super(message);
    this.errorType = errorType;
  }
}

/** Lambda's limit for the code outside the handler, in seconds. */
const INIT_SECONDS_MAX = 10;

const RIC_PATH = fileURLToPath(import.meta.resolve('aws-lambda-ric'));
const RAPID_CLIENT_PATH = fileURLToPath(new URL('./rapid-client.cjs', import.meta.url));
/** `rapid-client.cjs` sends it. */
const SECRET_HEADER = 'flowdrop-runtime-secret';
const ACCOUNT_ID = '000000000000';
const REGION = 'us-east-1';

interface Invocation {
  readonly id: string;
  readonly resolve: (payload: unknown) => void;
  readonly reject: (error: FunctionError) => void;
}

/**
 * One execution environment: a process that runs AWS's runtime interface client on a bundle, and the Runtime API that
 * the client calls. The process serves one invocation at a time. While it waits for the next one, it is frozen
 * (SIGSTOP). The Runtime API answers only this process, which knows its secret: another caller would take an event or
 * freeze the function.
 *
 * ```
 *          asks for next          event given           result posted         asks for next
 * starting ─────────────▶ frozen ─────────────▶ busy ─────────────▶ (busy) ─────────────▶ frozen
 *     └───────────────── ends by itself, at a limit, or by end() ─────────────┴──▶ ended
 * ```
 *
 * A frozen process cannot notice that its parent is gone. Therefore each has a watchdog: a shell that reads a pipe from
 * the parent. The pipe ends whichever way the parent ends, and then the shell kills the process.
 */
export class RuntimeProcess {
  readonly #definition: FunctionDefinition;
  readonly #api: Listening;
  /** The process sends it with every request to the Runtime API. */
  readonly #secret = randomSecret();
  readonly #child: ChildProcess;
  readonly #ended = Promise.withResolvers<void>();
  #limit: NodeJS.Timeout | undefined;
  #poll: ServerResponse | undefined;
  #invocation: Invocation | undefined;
  #causeOfEnd: FunctionError | undefined;
  #alive = true;
  #idle = Promise.withResolvers<void>();

  /** Starts a process. Its code outside the handler runs at once. */
  static async start(definition: FunctionDefinition): Promise<RuntimeProcess> {
    let started: RuntimeProcess | undefined;
    const api = await listenOnLoopback(
      (request, response) => {
        if (started === undefined) response.destroy();
        else started.#answer(request, response).catch(() => response.destroy());
      },
      { keepAliveTimeout: 0 },
    );
    started = new RuntimeProcess(definition, api);
    return started;
  }

  private constructor(definition: FunctionDefinition, api: Listening) {
    this.#definition = definition;
    this.#api = api;

    const { memoryMiB } = definition;
    // Lambda's own bootstrap starts Node with these three flags.
    const flags = [
      '--expose-gc',
      `--max-semi-space-size=${Math.floor(memoryMiB * 0.05)}`,
      `--max-old-space-size=${Math.floor(memoryMiB * 0.9)}`,
    ];
    // Detached: Ctrl-C in the terminal must reach the parent only, not a function in the middle of its work.
    this.#child = spawn(process.execPath, [...flags, '--require', RAPID_CLIENT_PATH, RIC_PATH], {
      cwd: definition.bundleDir,
      env: this.#environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    const watchdog = spawn('/bin/sh', ['-c', 'read -r _; kill -KILL "$1"', 'watchdog', String(this.#child.pid)], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    for (const output of [this.#child.stdout, this.#child.stderr]) {
      if (output) createInterface({ input: output }).on('line', (line) => definition.onLog?.(line));
    }
    this.#child.once('close', (code, signal) => {
      watchdog.kill('SIGKILL');
      this.#end(signal === null ? `exit status ${code}` : `signal: ${signal}`);
    });
    this.#limitTo(INIT_SECONDS_MAX);
  }

  get pid(): number {
    return this.#child.pid ?? Number.NaN;
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** Resolves when the process waits for an invocation, or has ended. */
  get settled(): Promise<void> {
    return this.#idle.promise;
  }

  /**
   * Gives the process an event and resolves with the handler's result. Waits for the start of the process. Call it only
   * after the previous invocation has settled.
   * @throws {FunctionError}
   */
  async invoke(event: unknown): Promise<unknown> {
    await this.#idle.promise;
    const poll = this.#poll;
    if (!this.#alive || !poll)
      throw this.#causeOfEnd ?? new FunctionError('Runtime.ExitError', 'The process has ended');

    const id = randomUUID();
    const result = Promise.withResolvers<unknown>();
    this.#invocation = { id, resolve: result.resolve, reject: result.reject };
    this.#poll = undefined;
    this.#idle = Promise.withResolvers<void>();
    const { name, timeoutSeconds } = this.#definition;
    this.#limitTo(timeoutSeconds);
    this.#child.kill('SIGCONT');
    poll
      .writeHead(200, {
        'content-type': 'application/json',
        'lambda-runtime-aws-request-id': id,
        'lambda-runtime-deadline-ms': String(Date.now() + timeoutSeconds * 1000),
        'lambda-runtime-invoked-function-arn': `arn:aws:lambda:${REGION}:${ACCOUNT_ID}:function:${name}`,
      })
      .end(JSON.stringify(event));
    return result.promise;
  }

  /** Kills the process, frozen or not. Resolves when it is gone. */
  async end(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended.promise;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!isSameSecret(String(request.headers[SECRET_HEADER] ?? ''), this.#secret)) {
      closeAfter(response);
      response
        .writeHead(403, { 'content-type': 'text/plain' })
        .end('Only the function of this Runtime API may call it.\n');
      return;
    }
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const [, , , subject, id, outcome] = (request.url ?? '').split('/');

    if (subject === 'invocation' && id === 'next') {
      clearTimeout(this.#limit);
      this.#poll = response;
      this.#child.kill('SIGSTOP');
      this.#idle.resolve();
      return;
    }
    const invocation = this.#invocation;
    if (subject === 'init') {
      this.#causeOfEnd = toFunctionError(body);
    } else if (invocation && invocation.id === id) {
      this.#invocation = undefined;
      if (outcome === 'response') invocation.resolve(JSON.parse(body));
      else invocation.reject(toFunctionError(body));
    }
    response.writeHead(202, { 'content-type': 'application/json' }).end('{"status":"OK"}');
  }

  #limitTo(seconds: number): void {
    this.#limit = setTimeout(() => {
      const error = new FunctionError('Sandbox.Timedout', `Task timed out after ${seconds.toFixed(2)} seconds`);
      this.#causeOfEnd ??= error;
      this.#invocation?.reject(error);
      this.#invocation = undefined;
      this.#definition.onLog?.(error.message);
      this.#child.kill('SIGKILL');
    }, seconds * 1000);
  }

  #end(how: string): void {
    clearTimeout(this.#limit);
    this.#alive = false;
    const error = new FunctionError('Runtime.ExitError', `Runtime exited: ${how}`);
    this.#causeOfEnd ??= error;
    this.#invocation?.reject(error);
    this.#invocation = undefined;
    void this.#api.close();
    this.#idle.resolve();
    this.#ended.resolve();
  }

  #environment(): Record<string, string> {
    const { name, bundleDir, environment, memoryMiB } = this.#definition;
    return {
      // https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
      AWS_REGION: REGION,
      AWS_DEFAULT_REGION: REGION,
      AWS_EXECUTION_ENV: 'AWS_Lambda_nodejs24.x',
      AWS_LAMBDA_FUNCTION_NAME: name,
      AWS_LAMBDA_FUNCTION_VERSION: '$LATEST',
      AWS_LAMBDA_FUNCTION_MEMORY_SIZE: String(memoryMiB),
      AWS_LAMBDA_INITIALIZATION_TYPE: 'on-demand',
      AWS_LAMBDA_LOG_GROUP_NAME: `/aws/lambda/${name}`,
      AWS_LAMBDA_LOG_STREAM_NAME: `local/[$LATEST]${randomUUID()}`,
      AWS_LAMBDA_RUNTIME_API: new URL(this.#api.url).host,
      FLOWDROP_RUNTIME_SECRET: this.#secret,
      LAMBDA_TASK_ROOT: bundleDir,
      _HANDLER: 'index.handler',
      HOME: NO_HOME, // The SDK would read the user's configuration there, which a deployed function does not have.
      LANG: 'en_US.UTF-8',
      PATH: '/usr/local/bin:/usr/bin:/bin',
      TZ: ':UTC',
      ...extraCertificates(),
      ...environment,
    };
  }
}

/**
 * The certificates that the user trusts beside Node's. An absolute path, because the function runs in another folder.
 */
function extraCertificates(): Record<string, string> {
  const path = process.env.NODE_EXTRA_CA_CERTS;
  return path ? { NODE_EXTRA_CA_CERTS: resolve(path) } : {};
}

/** Parses Lambda's error payload. */
function toFunctionError(body: string): FunctionError {
  const { errorType, errorMessage } = JSON.parse(body);
  return new FunctionError(errorType, errorMessage);
}
