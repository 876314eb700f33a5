import http from 'node:http';
import { resolve } from 'node:path';
import { CommanderError } from 'commander';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { checkProxies, variablesOf } from '../../functions/settings/proxies.ts';
import {
  connectFunction,
  connectLocal,
  connectStack,
  type Deployment,
  issueOfConnection,
} from '../../operations/deployment.ts';
import { NoLocalRunError, UntrustedRunError } from '../../operations/local-run.ts';
import { EXIT_USAGE, UsageError } from '../options.ts';
import { Console, type Streams } from './console.ts';

export const EXIT_OK = 0;
/** Something failed: the command itself, or an upload that it is about. */
export const EXIT_FAILED = 1;
export const EXIT_INTERRUPTED = 130;

/** The options of every command. */
export interface CommonOptions {
  readonly stack?: string;
  readonly function?: string;
  readonly region?: string;
  readonly local?: boolean;
  readonly json?: boolean;
}

/** What a command has: a connection, a place to print, and the signal of Ctrl-C. */
export interface Run {
  readonly deployment: Deployment;
  readonly console: Console;
  readonly signal: AbortSignal;
  /** The absolute path of a file that the user names. */
  readonly path: (name: string) => string;
}

/** The process around the commands. A test stands in for it. */
export interface Surroundings {
  readonly streams: Streams;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The working directory, where a local run may watch a folder. */
  readonly directory: string;
  /** Where the user is. npm runs its scripts in the folder of the package. */
  readonly userDirectory: string;
  readonly signal: AbortSignal;
}

/** What a command has before there is a pipeline. */
export interface Offline extends Pick<Surroundings, 'directory' | 'env' | 'signal'>, Pick<Run, 'path'> {
  readonly console: Console;
}

/** The command names no deployment, and no run watches a folder here. */
export class NoDeploymentError extends UsageError {}

/** What a command does. */
export interface Body {
  run(run: Run): Promise<number>;
  /** Runs instead, without a connection. Undefined if the options do not ask for that. */
  offline?(offline: Offline): Promise<number> | undefined;
  /** Answers if there is no connection. Default: the error ends the command. */
  unconnected?(error: unknown, offline: Offline): number | Promise<number>;
}

/** Connects, runs a command, and returns its exit code. */
export async function runCommand(options: CommonOptions, surroundings: Surroundings, body: Body): Promise<number> {
  const { signal, streams } = surroundings;
  const console = new Console(streams, options);
  const { directory, env } = surroundings;
  const path = (name: string): string => resolve(surroundings.userDirectory, name);
  const offline: Offline = { console, directory, env, signal, path };
  const answered = body.offline?.(offline);
  if (answered !== undefined) return answered;
  let deployment: Deployment;
  try {
    deployment = await console.during(
      () => 'Connecting',
      () => connect(options, surroundings),
    );
  } catch (error) {
    if (body.unconnected === undefined || signal.aborted) throw error;
    return body.unconnected(error, offline);
  }
  try {
    return await body.run({ deployment, console, signal, path });
  } finally {
    deployment.close();
  }
}

/** The stack that the options or the environment name. */
export const stackOf = ({ stack, local }: CommonOptions, env: Surroundings['env']): string | undefined =>
  stack ?? (local === true ? undefined : env.FLOWDROP_STACK);

/** What is reached without a proxy: this machine, and where a machine of AWS gets its credentials. */
const BESIDE_PROXIES = ['localhost', '127.0.0.1', '[::1]', '169.254.169.254', '169.254.170.2'];

/**
 * Sends what this process asks of AWS through the proxy of the environment. Nothing of that goes over plain HTTP.
 * @throws {UsageError} the variable names no proxy.
 */
export function useProxy(env: Surroundings['env']): void {
  const { issues, proxies } = checkProxies({ ...env, HTTP_PROXY: undefined, http_proxy: undefined });
  if (issues.length > 0) throw new UsageError(issues.join(' '));
  const { https, except = [] } = proxies;
  // For Node, a name does not cover the names below it, as it does for us. Early versions of Node 24 lack the function.
  const names = [...except, ...BESIDE_PROXIES].flatMap((name) =>
    /^\w[\w.-]*$/.test(name) ? [name, `.${name}`] : name,
  );
  if (https) http.setGlobalProxyFromEnv?.({ ...variablesOf({ https, except: names }) });
}

/**
 * The stack or the function that was named, or else the local run of this directory.
 * @throws {UsageError} neither is there, or the proxy cannot be used.
 */
async function connect(options: CommonOptions, { env, directory, signal }: Surroundings): Promise<Deployment> {
  const { local, region } = options;
  const named = [options.stack, options.function, local].filter((each) => each !== undefined);
  if (named.length > 1) throw new UsageError('--stack, --function and --local exclude each other');
  const stack = stackOf(options, env);
  if (options.function !== undefined || stack !== undefined) useProxy(env);
  if (options.function !== undefined) return connectFunction({ function: options.function, region }, signal);
  if (stack !== undefined) return connectStack({ stack, region }, signal);
  // Who names a region does not mean the run of this folder.
  if (region !== undefined) throw new UsageError('--region goes with --stack or --function');
  try {
    return await connectLocal(directory, signal);
  } catch (error) {
    if (!(error instanceof NoLocalRunError)) throw error;
    if (local === true) throw error;
    throw new NoDeploymentError(
      'Name the deployment with --stack NAME, or start a local run here with npm start. FLOWDROP_STACK names it for all commands',
      { cause: error },
    );
  }
}

/**
 * The exit code of an error, after a sentence about it. With `--json` the error is the answer, so that a program finds
 * one JSON text in the output whatever happens.
 * @param words of the command line. It may be the mistake, so they are not parsed.
 */
export function failed(
  error: unknown,
  { streams, signal }: Pick<Surroundings, 'streams' | 'signal'>,
  words: readonly string[],
): number {
  const { code, exitCode, message } = failureOf(error, signal);
  if (exitCode === EXIT_OK) return exitCode;
  const console = new Console(streams, { json: isJson(words) });
  // Commander has printed its own sentence.
  const isPrinted = error instanceof CommanderError;
  if (console.isJson) console.answer({ error: { code, message } }, () => []);
  else if (!isPrinted) console.error(linesOf(error, message));
  return exitCode;
}

/**
 * The lines of an error's message. Only some errors have messages in lines. In any other, a line break is of a file name or
 * of words of outside, and is escaped.
 */
const linesOf = (error: unknown, message: string): readonly string[] =>
  [ConfigurationError, UntrustedRunError, UsageError].some((kind) => error instanceof kind)
    ? message.trimEnd().split('\n')
    : [message];

/** True if the answer is to be JSON. */
export const isJson = (words: readonly string[]): boolean => words.includes('--json');

interface CommandFailure {
  readonly code: 'usage' | 'interrupted' | 'failed';
  readonly exitCode: number;
  readonly message: string;
}

function failureOf(error: unknown, signal: AbortSignal): CommandFailure {
  // The terminal sends no signal while a question is asked.
  if (signal.aborted || (error as Error).name === 'AbortError') {
    return { code: 'interrupted', exitCode: EXIT_INTERRUPTED, message: 'Interrupted.' };
  }
  if (error instanceof CommanderError) {
    const message = error.message.replace(/^error: /, '');
    return { code: 'usage', exitCode: error.exitCode === 0 ? EXIT_OK : EXIT_USAGE, message };
  }
  if (error instanceof UsageError) return { code: 'usage', exitCode: EXIT_USAGE, message: `${error.message}.` };
  return { code: 'failed', exitCode: EXIT_FAILED, message: sentenceOf(error) };
}

/** An error in words for the operator. */
export const sentenceOf = (error: unknown): string =>
  issueOfConnection(error) ?? (error instanceof Error ? error.message : String(error));
