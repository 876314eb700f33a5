import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ConfigurationError } from '../functions/base/validation.ts';
import { parseContext } from '../functions/settings/context.ts';
import { warningsOfRoutes } from '../functions/settings/route-checks.ts';
import { mediaTypeOf } from '../functions/uploads/media-type.ts';
import { type Route, routeFor } from '../functions/uploads/routes.ts';
import { bundle } from '../infra/bundle/bundle.ts';
import { type Arguments, parseArguments, USAGE, UsageError } from './start/arguments.ts';
import { KnownFiles } from './start/known-files.ts';
import { FunctionLogs } from './start/logs.ts';
import { printable } from './start/printable.ts';
import { makePrivate } from './start/private-folder.ts';
import { exportLines } from './start/s3-access.ts';
import { Screen } from './start/screen.ts';
import { namedFile, Session } from './start/session.ts';
import { shownPath } from './start/shown-path.ts';
import { InUseError, knownFilesPath, type State, temporaryState, watchState } from './start/state.ts';

/** `npm start`. The usage is in `start/arguments.ts`. */

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
const EXIT_INTERRUPTED = 130;

/**
 * A second signal within this time, in milliseconds, is the same Ctrl-C: the terminal sends it, and npm forwards its
 * own copy.
 */
const SAME_SIGNAL_MS = 500;

/** Duration of the stand-in's flows, in milliseconds: long enough for the user to see them run. */
const STAND_IN_FLOW_MS = 1_500;
/** A real service is polled less often than the stand-in, in seconds. */
const SERVICE_POLL_INTERVAL_SECONDS = 5;

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const EXAMPLES_DIR = here('../examples');

async function main(): Promise<number> {
  const cwd = process.cwd();
  // npm runs scripts in the project's directory. INIT_CWD is the directory of the caller.
  const args = parseArguments(process.argv.slice(2), { env: process.env, cwd: process.env.INIT_CWD ?? cwd });
  if (args.help) {
    console.log(USAGE);
    return 0;
  }
  const signal = interruption();
  const { routes, settings } = readContext();
  const root = join(cwd, '.flowdrop');
  const isWatching = args.files.length === 0;
  const state = isWatching ? watchState(root, args.service?.url) : temporaryState(root);
  const screen = new Screen(process.stdout);
  const logs = new FunctionLogs(join(root, 'log'), (text) => screen.line(`! ${text}`));
  let session: Session | undefined;
  try {
    const bundleDir = join(state.dir, 'bundles');
    bundle(bundleDir);
    makePrivate(bundleDir);
    session = await Session.start({
      pipeline: {
        bundleDir,
        stateDir: state.dir,
        name: state.name,
        routes,
        ...(isWatching && { inboxDir: args.inboxDir }),
        ...(args.service
          ? { service: args.service, settings: { ...settings, pollIntervalSeconds: SERVICE_POLL_INTERVAL_SECONDS } }
          : { standIn: { flowMs: STAND_IN_FLOW_MS }, settings: { ...settings, pollIntervalSeconds: 1 } }),
      },
      resultsDir: args.resultsDir,
      screen,
      logs,
      cwd,
    });
    return isWatching
      ? await watch(session, { args, state, routes, root, screen, signal })
      : await processFiles(session, { args, screen, signal });
  } finally {
    await session?.close();
    logs.close();
    state.release();
  }
}

/** Aborts at the first Ctrl-C or SIGTERM. A second one ends the process at once. */
function interruption(): AbortSignal {
  const interrupted = new AbortController();
  let interruptedAt = 0;
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (!interrupted.signal.aborted) {
        interruptedAt = Date.now();
        interrupted.abort();
      } else if (Date.now() - interruptedAt > SAME_SIGNAL_MS) {
        // The user insists: exit without a clean end. The watchdogs end the functions.
        process.exit(EXIT_INTERRUPTED);
      }
    });
  }
  return interrupted.signal;
}

/** @throws {ConfigurationError} */
function readContext() {
  try {
    return parseContext(JSON.parse(readFileSync(here('../cdk.json'), 'utf8')).context?.flowdrop);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new ConfigurationError([`cdk.json: ${error.message}`], { cause: error });
  }
}

async function watch(
  session: Session,
  {
    args,
    state,
    routes,
    root,
    screen,
    signal,
  }: { args: Arguments; state: State; routes: readonly Route[]; root: string; screen: Screen; signal: AbortSignal },
): Promise<number> {
  const samples = existsSync(args.inboxDir) ? [] : copySamples(args.inboxDir, routes);
  mkdirSync(args.resultsDir, { recursive: true });

  screen.line(
    `Flowdrop is running on this machine with ${args.service?.url ?? 'a built-in stand-in for the flow service'}.`,
  );
  screen.line(`  drop files into  ${shownPath(args.inboxDir)}`);
  screen.line(`  find results in  ${shownPath(args.resultsDir)}`);
  for (const { name, template, suffixes = [], mediaTypes = [] } of routes) {
    screen.line(`  ${name} (${[...suffixes, ...mediaTypes].join(', ') || 'any file'}) start flows of ${template}`);
  }
  for (const warning of warningsOfRoutes(routes, 'flowdrop.routes')) screen.line(`! cdk.json: ${warning}`);
  if (samples.length > 0) screen.line(`Sample files were copied to the inbox: ${samples.join(', ')}.`);
  const known = await KnownFiles.load(knownFilesPath(root, args.inboxDir, args.service?.url));
  if (known.count > 0) screen.line('Files that earlier runs processed are skipped until they change.');
  if (args.showsCredentials) {
    screen.line('Its S3 answers clients that use these. They are valid until this run ends:');
    for (const line of exportLines(session.s3Access)) screen.line(`  ${line}`);
  }
  screen.line('Press Ctrl-C to stop.');
  screen.line();

  if (state.isResumed) await session.resume();
  await session.watch(args.inboxDir, {
    known,
    // The flows of the stand-in end with it. The next start begins the unfinished files again.
    remember: args.service ? 'uploaded' : 'ended',
    signal,
  });
  screen.status('');
  if (session.unfinished > 0)
    screen.line(`Unfinished files: ${session.unfinished}. The next npm start continues with them.`);
  screen.line(`Stopped. Results are in ${shownPath(args.resultsDir)}.`);
  return 0;
}

async function processFiles(
  session: Session,
  { args, screen, signal }: { args: Arguments; screen: Screen; signal: AbortSignal },
): Promise<number> {
  const files = await Promise.all(keysOf(args.files).map(([path, key]) => namedFile(path, key)));
  const interruption = new Promise<undefined>((resolve) => signal.addEventListener('abort', () => resolve(undefined)));
  const succeeded = await Promise.race([session.process(files), interruption]);
  screen.status('');
  if (succeeded === undefined) {
    screen.line('Interrupted.');
    return EXIT_INTERRUPTED;
  }
  const where = shownPath(args.resultsDir);
  screen.line(
    succeeded
      ? `All done. Results are in ${where}.`
      : `Some files failed, see above. The other results are in ${where}.`,
  );
  return succeeded ? 0 : EXIT_FAILED;
}

/** The key of each file is its name. If several files have the same name, the later ones get a number as prefix. */
function keysOf(paths: readonly string[]): [path: string, key: string][] {
  const taken = new Set<string>();
  return paths.map((path) => {
    let key = basename(path);
    for (let n = 2; taken.has(key); n += 1) key = `${n}/${basename(path)}`;
    taken.add(key);
    return [path, key];
  });
}

function copySamples(inboxDir: string, routes: readonly Route[]): string[] {
  mkdirSync(inboxDir, { recursive: true });
  const samples = readdirSync(EXAMPLES_DIR, { withFileTypes: true })
    .filter(
      (entry) => entry.isFile() && routeFor(routes, { key: entry.name, mediaType: mediaTypeOf(undefined, entry.name) }),
    )
    .map(({ name }) => name);
  for (const name of samples) copyFileSync(join(EXAMPLES_DIR, name), join(inboxDir, name));
  return samples;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (error instanceof UsageError) {
    console.error(`${printable(error.message)} (npm start -- --help shows the usage)`);
    process.exitCode = EXIT_USAGE;
  } else if (error instanceof ConfigurationError || error instanceof InUseError) {
    for (const line of error.message.split('\n')) console.error(printable(line));
    process.exitCode = EXIT_FAILED;
  } else {
    throw error;
  }
}
