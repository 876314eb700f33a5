import '../command-line/node-version.cjs';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { confirms } from '../command-line/confirm.ts';
import type { NamedFile } from '../command-line/named-files.ts';
import { EXIT_USAGE, UsageError, usageMessage } from '../command-line/options.ts';
import { ownEnvironment } from '../command-line/own-environment.ts';
import { makePrivate, PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from '../command-line/private-folder.ts';
import { shownPath, size } from '../command-line/texts.ts';
import { mediaTypeOf } from '../functions/base/media-type.ts';
import { counted, printable, shellWord } from '../functions/base/printable.ts';
import { ConfigurationError } from '../functions/base/validation.ts';
import type { ServiceDescription } from '../functions/flow-service/service-description.ts';
import type { Proxies } from '../functions/flow-service/types.ts';
import { OWN_COMMAND } from '../functions/settings/own-command.ts';
import { checkProxies } from '../functions/settings/proxies.ts';
import type { PipelineSettings } from '../functions/settings/settings.ts';
import { folderOf } from '../functions/uploads/job-keys.ts';
import type { Route } from '../functions/uploads/route.ts';
import { jobsRouteOf, routeFor, skipping } from '../functions/uploads/routes.ts';
import { bundle } from '../infra/bundle/bundle.ts';
import { readTrackedContext } from '../infra/configuration.ts';
import { readStackContext } from '../infra/deployment.ts';
import type { NotifyTarget } from '../infra/notify.ts';
import { exportLines } from '../operations/credentials.ts';
import type { Deployment } from '../operations/deployment.ts';
import { examineListing } from '../operations/flow-listing.ts';
import { EMPTY_INBOX, JobFilesError, type JobSettings, planFiles } from '../operations/job-files.ts';
import { LOCAL_RUN_FOLDER, localLogFolder } from '../operations/local-run.ts';
import { issueOfService, proxyInUse, type Service } from '../operations/service-check.ts';
import { TRIAL_MINUTES_MAX, type TrialFile, tryListings, tryService } from '../operations/service-trial.ts';
import { PortError, type ServedPage, servePage } from '../page/server/serve-page.ts';
import { issueOfStandIn, SHAPES, shapeFor } from './flow-service/shapes.ts';
import { type Arguments, COMMAND, parseArguments, requireReach, USAGE } from './start/arguments.ts';
import { chargeForExisting } from './start/existing-files.ts';
import { KnownFiles } from './start/inbox-watch.ts';
import { FunctionLogs, unexpected } from './start/logs.ts';
import { Screen } from './start/screen.ts';
import { Session } from './start/session.ts';
import {
  bytesIn,
  InUseError,
  isNewService,
  keepPort,
  knownFilesPath,
  lastPort,
  type State,
  temporaryState,
  watchState,
  writeRunFile,
} from './start/state.ts';

/** `npm start`. The usage is in `start/arguments.ts`. */

const ENVIRONMENT = ownEnvironment();

const EXIT_FAILED = 1;
const EXIT_INTERRUPTED = 130;

/**
 * A second signal within this time, in milliseconds, is the same Ctrl-C: the terminal sends it, and npm forwards its
 * own copy.
 */
const SAME_SIGNAL_MS = 500;

/** Delay before the page is built, in milliseconds. The start comes first, and the first visitor need not wait. */
const PAGE_PREPARED_AFTER_MS = 500;

/** Duration of the stand-in's flows, in milliseconds: long enough for the user to see them run. */
const STAND_IN_FLOW_MS = 1_500;
/** A real service is polled less often than the stand-in, in seconds. */
const SERVICE_POLL_INTERVAL_SECONDS = 5;

/** How the user of this command changes what the check of the service finds. */
const SERVICE_WORDS = { address: '--service', goOn: 'add --skip-check' };
const CHECK_WORDS = { address: '--check-service', goOn: 'correct the paths in its description' };

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const EXAMPLES_DIR = here('../examples');
/** Everything that runs leave on this machine, apart from the results. */
const STATE_DIR = join(process.cwd(), LOCAL_RUN_FOLDER);
const LOG_DIR = localLogFolder(process.cwd());

async function main(): Promise<number> {
  const cwd = process.cwd();
  // npm runs scripts in the project's directory. INIT_CWD is the directory of the caller.
  const callersDir = ENVIRONMENT.INIT_CWD ?? cwd;
  const given = parseArguments(process.argv.slice(2), { env: ENVIRONMENT, cwd: callersDir });
  if (given.shows !== undefined) {
    console.log(given.shows === 'help' ? USAGE : versions());
    return 0;
  }
  const signal = interruption();
  const { routes: written, settings, service: speaks, targets, warnings, resultsRetentionDays } = readContext();
  if (given.notifies && targets.length === 0) throw new UsageError('--notify: flowdrop.json has no deployment.notify');
  const routes = skipping(written, settings.skippedNames);
  const { inboxPrefix } = settings;
  const args = await withJobs(given, { routes, inboxPrefix });
  const service = args.service && { ...args.service, speaks, proxies: proxiesOf(ENVIRONMENT) };
  if (service !== undefined) requireReach({ url: service.url, checksService: args.checksService }, speaks);
  const screen = new Screen(process.stdout);
  const proxy = service && proxyInUse(new URL(service.url), service.proxies);
  if (proxy !== undefined) screen.line(proxy);
  if (service !== undefined && (args.checksService || !args.skipCheck)) {
    screen.status([], `Asking the flow service at ${service.url}`);
    const issue = await issueOfService(service, args.checksService ? CHECK_WORDS : SERVICE_WORDS, signal).catch(
      (error) => {
        if (!signal.aborted) throw error;
      },
    );
    screen.clear();
    if (signal.aborted) return interrupted();
    if (issue !== undefined) {
      const { what, todo, severity } = issue;
      const told = printable(`The flow service at ${service.url} ${what}. ${todo}`);
      if (!args.checksService || severity === 'fault') throw new ConfigurationError([told]);
      screen.line(`! ${told}`);
    }
    if (args.checksService) return await checkService(service, { args, routes, settings, screen, signal });
    const listing = await examineListing(service, settings, signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
    if (signal.aborted) return interrupted();
    if (typeof listing === 'object' && 'what' in listing) screen.line(printable(`! ${listing.what} ${listing.todo}`));
  }
  requireWritable(args.resultsDir, '--results');
  const isWatching = args.files === undefined;
  const isNewInbox = isWatching && !existsSync(args.inboxDir);
  if (isNewInbox) requireWritable(args.inboxDir, '--inbox');
  if (isWatching && !args.sendsExisting) await requireNothingToSend(args, { routes, inboxPrefix });
  // A real service charges for flows, so it gets only the user's own files.
  const samples = isNewInbox && args.service === undefined ? copySamples(args.inboxDir, routes) : [];
  const state = isWatching
    ? watchState(STATE_DIR, { inboxDir: args.inboxDir, serviceUrl: args.service?.url })
    : temporaryState(STATE_DIR);
  const logs = new FunctionLogs(LOG_DIR, (text) => screen.line(`! ${text}`));
  const s3Port = isWatching ? lastPort(STATE_DIR, 's3') : undefined;
  let session: Session | undefined;
  let page: ServedPage | undefined;
  let removeRunFile = (): void => {};
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
        speaks,
        ...(isWatching && { inboxDir: args.inboxDir }),
        ...(s3Port !== undefined && { s3Port }),
        ...(args.notifies && { notify: targets }),
        ...(resultsRetentionDays !== undefined && { resultsRetentionDays }),
        ...(service
          ? { service, settings: { ...settings, pollIntervalSeconds: SERVICE_POLL_INTERVAL_SECONDS } }
          : { standIn: { flowMs: STAND_IN_FLOW_MS }, settings: { ...settings, pollIntervalSeconds: 1 } }),
      },
      resultsDir: args.resultsDir,
      screen,
      logs,
      cwd,
      command: (path) => commandWith([...given.optionWords, shownPath(path, callersDir)]),
    });
    const unlike = service === undefined ? issueOfStandIn(speaks) : undefined;
    for (const warning of [...warnings, ...(unlike === undefined ? [] : [unlike])]) screen.line(`! ${warning}`);
    if (targets.length > 0) screen.line(lineOfTargets(targets, args.notifies));
    if (resultsRetentionDays !== undefined) screen.line(RETENTION_LINE);
    if (args.files !== undefined) {
      const page = commandWith(given.optionWords);
      return await processFiles(session, { files: args.files, args, page, screen, signal });
    }
    // One run at a time watches, and commands are for that one.
    removeRunFile = writeRunFile(STATE_DIR, session.operator);
    keepS3Port(session, s3Port, screen);
    page = await servePageAtUsualPort(args.pagePort);
    return await watch(session, { args, samples, state, routes, speaks, screen, page, signal });
  } finally {
    removeRunFile();
    await page?.close();
    await session?.close();
    logs.close();
    state.release();
  }
}

/**
 * Serves the page at the port of the last run of this folder, with a new key. If another program has taken the port by
 * now, any free one is taken.
 * @param port the one that the user wants. 0: none in particular.
 */
async function servePageAtUsualPort(port: number): Promise<ServedPage> {
  const options = { prepareAfterMs: PAGE_PREPARED_AFTER_MS };
  const wanted = port || (lastPort(STATE_DIR, 'page') ?? 0);
  const page = await servePage(connect, { ...options, port: wanted }).catch((error: unknown) => {
    if (!(error instanceof PortError) || port !== 0) throw error;
    return servePage(connect, options);
  });
  keepPort(STATE_DIR, 'page', page.url);
  return page;
}

/** @param port of S3 in the last run. */
function keepS3Port({ operator }: Session, port: number | undefined, screen: Screen): void {
  const own = keepPort(STATE_DIR, 's3', operator.endpoints.s3);
  if (port === undefined || own === port) return;
  screen.line(
    `! Another program has port ${port}, which S3 had in the last run. S3 now has port ${own}. Shells and clients that ` +
      `still use the old port send their files to that program. For the new one: ${OWN_COMMAND} credentials`,
  );
}

/** Connects the page to this run, as a command does. */
async function connect(): Promise<Deployment> {
  const { connectLocal } = await import('../operations/deployment.ts');
  return connectLocal(process.cwd(), new AbortController().signal);
}

async function openPage(page: ServedPage, screen: Screen): Promise<void> {
  const { openBrowser } = await import('../page/server/open-browser.ts');
  if (await openBrowser(page.urlForOnce())) return;
  screen.line('! No browser could be started. Open the address of the page in one.');
}

const WHY_NOT_WRITABLE: Readonly<Record<string, string>> = {
  EACCES: 'this user may not',
  EPERM: 'this user may not',
  EEXIST: 'there is a file in its place',
  ENOTDIR: 'a part of the path is a file',
};

/**
 * Aborts at the first Ctrl-C or SIGTERM, and when nobody reads the output any more. A second signal ends the process at
 * once.
 */
function interruption(): AbortSignal {
  const interrupted = new AbortController();
  let interruptedAt = 0;
  process.stdout.on('error', () => interrupted.abort());
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

/**
 * Gives the folders of jobs their place in the inbox, and leaves out files that no job names.
 * @throws {UsageError} a job file cannot be used.
 */
async function withJobs(args: Arguments, settings: JobSettings): Promise<Arguments> {
  if (args.files === undefined) return args;
  try {
    const { files, left } = await planFiles(args.files, settings, { inbox: EMPTY_INBOX, now: Date.now() });
    return { ...args, files, unreadable: [...args.unreadable, ...left.map(({ key, why }) => ({ name: key, why }))] };
  } catch (error) {
    if (!(error instanceof JobFilesError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

/** @throws {ConfigurationError} */
function readContext() {
  const dir = here('..');
  const { context, deployment, warnings } = readStackContext({ dir, context: readTrackedContext(dir).flowdrop });
  const { notify: targets = [], resultsRetentionDays } = deployment;
  return { ...context, targets, warnings, resultsRetentionDays };
}

interface Checked {
  readonly args: Arguments;
  readonly routes: readonly Route[];
  readonly settings: PipelineSettings;
  readonly screen: Screen;
  readonly signal: AbortSignal;
}

/** Tries a service with one small file. */
async function checkService(service: Service, checked: Checked): Promise<number> {
  const { args, routes, settings, screen, signal } = checked;
  const file = trialFile(args, routes, settings);
  const trial = { service, settings, file, print: (line: string) => screen.line(printable(line)) };
  try {
    await tryListings(trial, signal);
    const bytes = size(file.content.byteLength);
    const question = `${file.name} (${bytes}) would be sent to ${service.url}, with the template ${file.route.template}. The service may charge for it.`;
    if (!args.isAllowed) {
      const { stdin: input, stdout: output } = process;
      if (!input.isTTY || !output.isTTY) throw new UsageError(`${question} There is no terminal to ask on: add --yes`);
      if (!(await confirms({ input, output }, `${question} Go on?`, signal))) return EXIT_FAILED;
    }
    screen.line(`It takes ${TRIAL_MINUTES_MAX} minutes at most. Ctrl-C ends it.`);
    return (await tryService(trial, signal)) ? 0 : EXIT_FAILED;
  } catch (error) {
    // The terminal sends no signal while a question is asked.
    if (!signal.aborted && (error as Error).name !== 'AbortError') throw error;
    return interrupted();
  }
}

/** The named file, or the first example that a route takes. @throws {UsageError} */
function trialFile({ files }: Arguments, routes: readonly Route[], { textBytesMax }: PipelineSettings): TrialFile {
  if (files !== undefined && files.length !== 1) throw new UsageError('--check-service takes one file');
  const paths = files?.map(({ path }) => path) ?? readdirSync(EXAMPLES_DIR).map((name) => join(EXAMPLES_DIR, name));
  for (const path of paths) {
    const name = basename(path);
    const mediaType = mediaTypeOf(undefined, name);
    const route = routeFor(routes, { key: name, mediaType });
    const facts = statSync(path);
    const bytes = facts.size;
    if (route === undefined || route.jobs !== undefined || !facts.isFile()) continue;
    if (bytes > textBytesMax)
      throw new UsageError(`${name} has ${size(bytes)}: name a file of ${size(textBytesMax)} at most`);
    return { name, mediaType, content: readFileSync(path), route };
  }
  throw new UsageError(
    `No route takes ${files === undefined ? 'an example' : files[0]?.key}: name a small file that a route takes`,
  );
}

interface Watched {
  readonly args: Arguments;
  readonly samples: readonly string[];
  readonly state: State;
  readonly routes: readonly Route[];
  readonly speaks: ServiceDescription;
  readonly screen: Screen;
  readonly page: ServedPage;
  readonly signal: AbortSignal;
}

async function watch(session: Session, watched: Watched): Promise<number> {
  const { args, samples, state, routes, speaks, screen, page, signal } = watched;
  const shape = shapeFor(speaks);
  const service = args.service?.url ?? `a built-in stand-in for ${shape ?? 'the flow service'}`;
  screen.line(`Flowdrop is running on this machine with ${service}.`);
  screen.line(`  drop files into  ${shownPath(args.inboxDir)}`);
  screen.line(`  find results in  ${shownPath(args.resultsDir)}`);
  screen.line(`  open this page   ${page.url}`);
  screen.line(`  its own copies   ${holdings()}`);
  for (const { name, template, ...route } of routes) {
    screen.line(`  ${name} (${inputsOf(route)}) start flows of ${template}`);
  }
  if (shape !== undefined) screen.line(`A flow is what ${shape} calls ${SHAPES[shape].flow}.`);
  if (samples.length > 0) screen.line(`Sample files were copied to the inbox: ${samples.join(', ')}.`);
  const known = await KnownFiles.load(knownFilesPath(STATE_DIR, args.inboxDir, args.service?.url));
  if (known.count > 0) screen.line('Files that earlier runs processed are skipped until they change.');
  if (args.showsCredentials) {
    const { endpoints, region, s3Credentials } = session.operator;
    screen.line('Its S3 answers clients that use these. They are valid until this run ends:');
    for (const line of exportLines({ endpoint: endpoints.s3, region, ...s3Credentials })) screen.line(`  ${line}`);
  }
  screen.line('Press Ctrl-C to stop.');
  screen.line();
  if (args.opensPage) void openPage(page, screen); // Some programs that open a browser end with it.

  const { isResumed, inboxBefore = args.inboxDir } = state;
  if (isResumed) await session.resume(inboxBefore === args.inboxDir ? undefined : shownPath(inboxBefore));
  await session.watch(args.inboxDir, { known, signal });
  await session.close(); // What ends until then is told, and does not count as unfinished.
  if (session.unfinished > 0)
    screen.line(
      `Unfinished files: ${session.unfinished}. ` +
        // The flows of the stand-in end with it.
        (args.service ? 'The next npm start continues with them.' : 'The next npm start begins them again.'),
    );
  screen.line(`The copies of this run: ${holdings()}`);
  screen.line(`Stopped. Results are in ${shownPath(args.resultsDir)}.`);
  return 0;
}

const RETENTION_LINE =
  'deployment.resultsRetentionDays: assets get the tag flowdrop=asset. Nothing expires in a local run.';

/** What this run does with the targets of `deployment.notify`. */
function lineOfTargets(targets: readonly NotifyTarget[], areTold: boolean): string {
  const number = counted(targets.length, 'target');
  if (!areTold) return `deployment.notify (${number}) is not told of events. To post them, add --notify.`;
  const secrets = targets.filter(({ headerSecret }) => headerSecret !== undefined).length;
  const without = secrets === 0 ? '' : ` ${secrets} without the secret, which this run does not read.`;
  return `Events are posted to deployment.notify (${number}).${without}`;
}

/** How much the folder of all runs holds. */
const holdings = (): string => `${shownPath(STATE_DIR)} holds ${size(bytesIn(STATE_DIR))}`;

/** What a route takes, in words. */
function inputsOf({
  after,
  inputs,
  jobs,
  prefixes = [],
  suffixes = [],
  mediaTypes = [],
}: Omit<Route, 'name' | 'template'>): string {
  if (jobs !== undefined) return `jobs below ${jobs}`;
  const conditions = [...prefixes, ...suffixes, ...mediaTypes].join(', ');
  if (after === undefined) return conditions || 'any file';
  return `${inputs === 'all' ? 'all ' : ''}results of ${after}${conditions === '' ? '' : `: ${conditions}`}`;
}

/** The command with these words. */
const commandWith = (words: readonly string[]): string =>
  [COMMAND, ...(words.length === 0 ? [] : ['--', ...words.map(shellWord)])].join(' ');

async function processFiles(
  session: Session,
  {
    files,
    args: { resultsDir, unreadable, service },
    page,
    screen,
    signal,
  }: {
    files: readonly NamedFile[];
    args: Arguments;
    /** The command for the page. */
    page: string;
    screen: Screen;
    signal: AbortSignal;
  },
): Promise<number> {
  for (const { name, why } of unreadable) screen.line(`${name}  skipped: ${why}`);
  const interruption = new Promise<undefined>((resolve) => signal.addEventListener('abort', () => resolve(undefined)));
  const succeeded = await Promise.race([session.process(files), interruption]);
  await session.close(); // Nothing is told after the last line.
  if (succeeded === undefined) {
    if (session.unfinished > 0 && service !== undefined) {
      screen.line(
        `Flows of ${counted(session.unfinished, 'file')} may still run at ${service.url}. The same command pays for new ones.`,
      );
    }
    return interrupted();
  }
  const where = shownPath(resultsDir);
  const isGood = succeeded && unreadable.length === 0;
  screen.line(
    isGood
      ? `All done. Results are in ${where}. To drop more files on a page: ${page}`
      : `Some files failed or wait, see above. The other results are in ${where}.`,
  );
  return isGood ? 0 : EXIT_FAILED;
}

function interrupted(): number {
  console.log('Interrupted.');
  return EXIT_INTERRUPTED;
}

/** @throws {UsageError} nothing can be written to the folder. */
function requireWritable(dir: string, option: string): void {
  try {
    mkdirSync(dir, { recursive: true, mode: PRIVATE_FOLDER_MODE });
    rmdirSync(mkdtempSync(join(dir, '.flowdrop-'))); // A new folder follows no link.
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const why = WHY_NOT_WRITABLE[code ?? ''] ?? message;
    throw new UsageError(`Nothing can be written to ${dir}: ${why}. Name another folder with ${option}`, { cause });
  }
}

/**
 * A folder that was filled while the stand-in was tried is not sent to a service that charges for it.
 * @throws {UsageError}
 */
async function requireNothingToSend(
  { inboxDir, service }: Arguments,
  settings: { readonly routes: readonly Route[]; readonly inboxPrefix: string },
): Promise<void> {
  if (service === undefined || !isNewService(STATE_DIR, service.url)) return;
  const charge = await chargeForExisting({ inboxDir, serviceUrl: service.url }, settings);
  if (charge !== undefined) throw new UsageError(charge);
}

/** @throws {ConfigurationError} */
function proxiesOf(env: NodeJS.ProcessEnv): Proxies {
  const { issues, proxies } = checkProxies(env);
  if (issues.length > 0) throw new ConfigurationError(issues);
  return proxies;
}

function versions(): string {
  const { name, version } = JSON.parse(readFileSync(here('../package.json'), 'utf8'));
  return `${name} ${version} (Node ${process.versions.node})`;
}

/** The files of the examples that a route takes, and the folders of jobs. Returns their names. */
function copySamples(inboxDir: string, routes: readonly Route[]): string[] {
  const copied = readdirSync(EXAMPLES_DIR, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(EXAMPLES_DIR, join(parentPath, name)).split(sep).join('/'))
    .filter((key) => {
      const isTaken = !key.includes('/') && routeFor(routes, { key, mediaType: mediaTypeOf(undefined, key) });
      return isTaken || jobsRouteOf(routes, key);
    });
  for (const key of copied) {
    mkdirSync(dirname(join(inboxDir, key)), { recursive: true, mode: PRIVATE_FOLDER_MODE });
    copyFileSync(join(EXAMPLES_DIR, key), join(inboxDir, key));
    chmodSync(join(inboxDir, key), PRIVATE_FILE_MODE);
  }
  return [...new Set(copied.map((key) => folderOf(key) || key))];
}

/** Ends with one sentence. The details of an unexpected error are in a log file. */
function fail(error: unknown): number {
  if (error instanceof UsageError) {
    console.error(printable(usageMessage(COMMAND, error)));
    return EXIT_USAGE;
  }
  const isKnown = [ConfigurationError, InUseError, PortError].some((kind) => error instanceof kind);
  const text = isKnown
    ? (error as Error).message
    : unexpected(error, { dir: LOG_DIR, token: ENVIRONMENT.FLOWDROP_TOKEN });
  for (const line of text.split('\n')) console.error(printable(line));
  return EXIT_FAILED;
}

process.on('uncaughtException', (error) => process.exit(fail(error)));
process.exitCode = await main().catch(fail);
