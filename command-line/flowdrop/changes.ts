import { Command, InvalidArgumentError } from 'commander';
import * as z from 'zod/mini';
import type { Json } from '../../functions/base/json.ts';
import { counted } from '../../functions/base/printable.ts';
import { isSuccess } from '../../functions/ledger/terminal-states.ts';
import { KEY_BYTES_MAX } from '../../functions/s3/limits.ts';
import { jsonSchema } from '../../functions/uploads/routes.ts';
import { act, costsOf, heldFlows, type Plan, plan, routeOfRetry, type Selection, tried } from '../../operations/act.ts';
import { type Asked, isHopeless, type PlannedStage } from '../../operations/actions.ts';
import { moveAlias } from '../../operations/alias.ts';
import { uploadCommand } from '../../operations/commands.ts';
import { costsSentence, sharesText } from '../../operations/cost-texts.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { withPrefix } from '../../operations/find.ts';
import { type Followed, followChains } from '../../operations/follow.ts';
import { type FlowLeft, forget, type KeyTraces, type Traces, tracesOfAll } from '../../operations/forget.ts';
import { type Fetched, get } from '../../operations/get.ts';
import { endOfHold, holdsOf } from '../../operations/holds.ts';
import { inboxOf, JobFilesError, type JobsPlan, planFiles } from '../../operations/job-files.ts';
import { FAILURE_CODES } from '../../operations/list.ts';
import { type FileToPut, put } from '../../operations/put.ts';
import { costsOfFiles, nearestRouteOfFile, routeOfFile } from '../../operations/route-file.ts';
import { costsOfSweep, expiredBefore, type SweepPass, type SweepRequest, sweep } from '../../operations/sweep.ts';
import { uploadName } from '../../operations/upload-name.ts';
import { namedFiles, type Refused } from '../named-files.ts';
import { UsageError } from '../options.ts';
import { ResultsFolder } from '../results-folder.ts';
import { localTime, size } from '../texts.ts';
import { type Add, example } from './add.ts';
import { table } from './console.ts';
import { type CommonOptions, EXIT_FAILED, EXIT_OK, type Run } from './run.ts';
import { type PutFile, showActed, showFetched, showLaterEnd, showPut, showSweep } from './show-changes.ts';
import { codeOption, noteRoute, sinceOf, timeOf } from './words.ts';

/** The commands that change something, or copy files. Those that cost money or delete say so, and ask. */
export function addChanges(add: Add): void {
  addPut(add);
  addGet(add);
  addRetry(add);
  addAgain(add);
  addCollect(add);
  addApprove(add);
  addCancel(add);
  addAlias(add);
  addForget(add);
  addSweep(add);
}

export interface AskedOptions extends CommonOptions {
  readonly yes?: boolean;
}

export const YES = ['--yes', 'do not ask'] as const;
const WAIT = ['--wait', 'wait until they and their chains have ended, and their receipts are out'] as const;

/** Asks before something that costs money or deletes. @throws {UsageError} nobody is there to ask. */
export async function isAllowed({ console, signal }: Run, question: string, { yes }: AskedOptions): Promise<boolean> {
  if (yes === true) return true;
  if (!console.canAsk) throw new UsageError(`${question} There is no terminal to ask on: add --yes`);
  if (await console.confirms(question, signal)) return true;
  console.note('Nothing was done.');
  return false;
}

interface RetryOptions extends AskedOptions {
  readonly failed?: boolean;
  readonly since?: number;
  readonly code?: string;
  readonly route?: string;
  readonly wait?: boolean;
  readonly parameters?: Json;
  readonly template?: string;
}

function addRetry(add: Add): void {
  const command = new Command('retry')
    .description('sends failed files again with the routes of today, and waiting ones at once')
    .argument('[keys...]', 'keys of files, beginnings of keys, names of later stages, or upload ids')
    .option('--failed', 'all files that failed')
    .option('--since <time>', 'with --failed: only since then, such as 2h or 12:00', (text) => sinceOf(text))
    .addOption(codeOption('with --failed: only with this code', FAILURE_CODES))
    .option('--route <name>', 'with --failed: only of this route')
    .option('--parameters <json>', 'other parameters for this retry of failed files, where the route allows it', json)
    .option('--template <name>', 'another template for this retry, likewise')
    .option(...WAIT)
    .option(...YES)
    .addHelpText('after', example('retry photos/robot.png --yes', 'retry --failed --since 2h --yes'));
  add<RetryOptions>(command, async (run, keys, options) => {
    const { failed, since, code, route, parameters, template } = options;
    const hasFilter = since !== undefined || code !== undefined || route !== undefined;
    if (failed !== true && keys.length === 0) throw new UsageError('Name files, or add --failed for all that failed');
    if (failed === true && keys.length > 0) throw new UsageError('Name files or add --failed, not both');
    if (hasFilter && failed !== true) throw new UsageError('--since, --code and --route go with --failed');
    const selection: Selection = failed ? { query: { state: 'failed', since, code, route } } : { words: keys };
    const chosen = await planned(run, { action: 'retry', parameters, template }, selection);
    for (const view of chosen.uploads) {
      if (isHopeless(view, chosen)) run.console.note(`${uploadName(view.key)}: a retry of the same upload cannot help`);
    }
    const doubts = chosen.uploads.filter(({ isInDoubt }) => isInDoubt).length;
    const twice = doubts === 0 ? '' : ` A flow may exist of ${doubts} of them, which may be paid for twice.`;
    const question = `${sentAgain(chosen)}${otherwise(chosen)}, ${paidFor(chosen, run)}${twice} Go on?`;
    return actOn(run, chosen, { ...options, question });
  });
}

const otherwise = ({ parameters, template }: Asked): string => {
  const others = [...(parameters === undefined ? [] : ['parameters']), ...(template === undefined ? [] : ['template'])];
  return others.length === 0 ? '' : `, with other ${others.join(' and ')}`;
};

const paidFor = (chosen: Plan, { deployment }: Run): string =>
  `and may be paid for: ${costsSentence(costsOf(chosen, deployment))}`;

interface AgainOptions
  extends Pick<RetryOptions, 'since' | 'route' | 'parameters' | 'template' | 'wait'>,
    AskedOptions {
  readonly before?: number;
  readonly from?: string;
  readonly onlyIfChanged?: boolean;
  readonly dryRun?: boolean;
}

function addAgain(add: Add): void {
  const command = new Command('again')
    .description('makes ended files anew, with the later stages of their chains. The old results stay')
    .argument('[keys...]', 'keys of files, beginnings of keys, or upload ids')
    .option(
      '--route <name>',
      'in place of keys: all files of this route that succeeded, and that no newer file replaced',
    )
    .option('--before <time>', 'with --route: only files that were put before', (text) => timeOf(text))
    .option('--since <time>', 'with --route: only files that were put since', (text) => sinceOf(text))
    .option('--only-if-changed', 'leave out files that their routes would make as before')
    .option(
      '--from <route>',
      'only this stage of their chains, and those after it; with --route, where it has not begun',
    )
    .option('--parameters <json>', 'other parameters, where the route allows it', json)
    .option('--template <name>', 'another template, where the route allows it')
    .option('--dry-run', 'only say what would be made, and what it costs')
    .option(...WAIT)
    .option(...YES)
    .addHelpText(
      'after',
      example(
        'again photos/robot.png --yes',
        'again photos/robot.png --from optimised',
        'again --route pictures --before 2026-11-01 --only-if-changed --dry-run',
        'again --route pictures --from optimised --dry-run',
      ),
    );
  add<AgainOptions>(command, async (run, keys, options) => {
    const { route, before, since, from, parameters, template, onlyIfChanged, dryRun } = options;
    if ((route === undefined) === (keys.length === 0)) throw new UsageError('Name files, or add --route, not both');
    if (route === undefined && (before !== undefined || since !== undefined)) {
      throw new UsageError('--before and --since go with --route');
    }
    const isOther = parameters !== undefined || template !== undefined;
    if (from !== undefined && (isOther || onlyIfChanged === true)) {
      throw new UsageError('--from does not go with --parameters, --template or --only-if-changed');
    }
    const selection: Selection = route === undefined ? { words: keys } : { made: { route, before, since } };
    const asked: Asked = { action: 'again', parameters, template, from, onlyIfChanged };
    const chosen = await planned(run, asked, selection);
    const { stages, uploads } = chosen;
    const subject =
      stages === undefined ? `${counted(uploads.length, 'file')} would be made anew` : madeAnew(stages, from ?? '');
    const question = `${subject}${otherwise(chosen)}, ${paidFor(chosen, run)}`;
    await noteBudgets(run, chosen);
    return actOn(run, chosen, { ...options, question: dryRun === true ? question : `${question} Go on?` });
  });
}

/** Says what is left of the budgets that count these flows. */
async function noteBudgets({ console, deployment, signal }: Run, { uploads, from }: Plan): Promise<void> {
  const names = new Set([from, ...uploads.map((view) => routeOfRetry(view, deployment))]);
  const { budgets } = await holdsOf(deployment, signal);
  for (const budget of budgets) {
    if (budget.route !== undefined && !names.has(budget.route)) continue;
    const whose = budget.route === undefined ? 'the pipeline' : `the route ${budget.route}`;
    console.note(`The budget of ${whose}, ${budget.period}: ${sharesText(budget)}.`);
  }
}

/** What a retry sends again. */
function sentAgain({ uploads }: Plan): string {
  const later = uploads.filter(({ stage }) => stage !== undefined).length;
  if (later === 0) return `${counted(uploads.length, 'file')} would be sent again`;
  const whole = later === uploads.length ? '' : `${counted(uploads.length - later, 'file')} and `;
  return `${whole}${counted(later, 'upload')} of later stages would be sent again`;
}

function madeAnew(stages: readonly PlannedStage[], from: string): string {
  const added = stages.filter(({ isAdded }) => isAdded).length;
  const where = stages.length === 1 ? `of ${stages[0]?.key}` : `of ${counted(stages.length, 'file')}`;
  const hows = [...(added > 0 ? ['begin'] : []), ...(added < stages.length ? ['be made anew'] : [])];
  return `The stage ${from} ${where} would ${hows.join(' or ')}`;
}

function addCollect(add: Add): void {
  const command = new Command('collect')
    .description('fetches the results of ended flows again, without paying for new ones')
    .argument('<keys...>', 'keys of files, beginnings of keys, names of later stages, or upload ids')
    .option(...WAIT)
    .addHelpText('after', example('collect photos/robot.png --wait'));
  add<RetryOptions>(command, async (run, words, options) => {
    return actOn(run, await planned(run, { action: 'collect' }, { words }), options);
  });
}

interface ApproveOptions extends AskedOptions {
  readonly all?: boolean;
  readonly route?: string;
  readonly dryRun?: boolean;
}

function addApprove(add: Add): void {
  const command = new Command('approve')
    .description('sends uploads of later stages that wait for approval')
    .argument('[keys...]', 'keys of files, beginnings of keys, names of later stages, or upload ids')
    .option('--all', 'all that wait to be approved')
    .option('--route <name>', 'with --all: only of this route')
    .option('--dry-run', 'only say what would be sent, and what it costs')
    .option(...YES)
    .addHelpText('after', example('approve photos/robot.png', 'approve --all --route refined --dry-run'));
  add<ApproveOptions>(command, async (run, words, options) => {
    const { all, route, dryRun } = options;
    if ((all === true) === words.length > 0) throw new UsageError('Name files, or add --all, not both');
    if (route !== undefined && all !== true) throw new UsageError('--route goes with --all');
    const selection: Selection = all ? { query: { state: 'waiting', code: 'review', route } } : { words };
    const chosen = await planned(run, { action: 'approve' }, selection);
    const question = `${counted(chosen.uploads.length, 'upload')} would be approved and sent, ${paidFor(chosen, run)}`;
    return actOn(run, chosen, { ...options, question: dryRun === true ? question : `${question} Go on?` });
  });
}

function addCancel(add: Add): void {
  const command = new Command('cancel')
    .description('ends files that wait or run, and stops their flows where the service can')
    .argument('<keys...>', 'keys of files, beginnings of keys, names of later stages, or upload ids')
    .option(...YES)
    .addHelpText('after', example('cancel photos/robot.png --yes', 'cancel photos/ --yes'));
  add<AskedOptions>(command, async (run, words, options) => {
    const chosen = await planned(run, { action: 'cancel' }, { words });
    const noun = chosen.uploads.some(({ stage }) => stage !== undefined) ? 'upload' : 'file';
    const question = `${counted(chosen.uploads.length, noun)} would end as failed. What their flows cost is not paid back. Go on?`;
    return actOn(run, chosen, { ...options, question });
  });
}

function planned(run: Run, asked: Asked, selection: Selection): Promise<Plan> {
  const { console, deployment, signal } = run;
  noteRoute(run, 'query' in selection ? selection.query.route : 'made' in selection ? selection.made.route : undefined);
  return console.during(
    () => 'Reading the ledger',
    () => plan(asked, selection, deployment, signal),
  );
}

/** Asks if there is a question, has the function do it, and waits for the ends if that was asked for. */
async function actOn(
  run: Run,
  chosen: Plan,
  options: AskedOptions & { readonly question?: string; readonly wait?: boolean; readonly dryRun?: boolean },
): Promise<number> {
  const { console, deployment, signal } = run;
  const { uploads, stages = [], left, action } = chosen;
  const total = uploads.length + stages.reduce((sum, { begins }) => sum + begins.length, 0);
  for (const { key, why } of left) console.note(`${uploadName(key)}: nothing is done: ${why}`);
  for (const [why, skipped] of Map.groupBy(chosen.skipped, (each) => each.why)) {
    const [{ key } = { key: '' }] = skipped;
    console.note(`${counted(skipped.length, 'file')} skipped, such as ${uploadName(key)}: ${why}`);
  }
  if (total === 0) {
    console.answer({ action, results: [], left, skipped: chosen.skipped }, () => ['There is nothing to do.']);
    return left.length > 0 ? EXIT_FAILED : EXIT_OK;
  }
  const held = await heldFlows(chosen, deployment, signal);
  for (const { hold, count, ending } of held) {
    console.note(
      `${hold.message} ${counted(count, 'flow')} ${count === 1 ? 'waits' : 'wait'} until that ends. ${ending}`,
    );
  }
  if (options.dryRun === true) {
    const costs = costsOf(chosen, deployment);
    const named = stages.flatMap(({ begins }) => begins);
    const planned = [...uploads, ...named].map(({ id, key }) => ({ id, key }));
    const more = { held: held.length === 0 ? undefined : held, left, skipped: chosen.skipped };
    console.answer({ action, results: [], planned, costs, ...more }, () => [options.question ?? '']);
    return left.length > 0 ? EXIT_FAILED : EXIT_OK;
  }
  if (options.question !== undefined && !(await isAllowed(run, options.question, options))) return EXIT_FAILED;
  let count = 0;
  const acting = () =>
    act(chosen, deployment, signal, (done) => {
      count = done;
    });
  const results = await afterwards(
    run,
    () => count,
    () => console.during(() => `${count} of ${total}`, acting),
  );
  const isHeld = held.reduce((sum, each) => sum + each.count, 0) === total;
  const ids = results.map(({ id }) => id);
  const ends = options.wait === true ? await followed(run, ids) : undefined;
  const now =
    ['retry', 'again'].includes(action) && !isHeld && ends === undefined ? await triedOnce(run, ids) : undefined;
  const seen = results.map((each, index) => ({ ...each, upload: (ends?.uploads ?? now)?.[index] }));
  const more = { chains: ends?.chains, held: held.length === 0 ? undefined : held };
  console.answer({ action, results: seen, ...more, left, skipped: chosen.skipped }, () =>
    showActed(results, { ends, now }, deployment),
  );
  const isBad = left.length > 0 || results.some(({ isDone }) => !isDone) || hasFailed(ends);
  return isBad ? EXIT_FAILED : EXIT_OK;
}

/** What came of the retried uploads, as far as that is known within seconds. */
const triedOnce = (run: Run, ids: readonly string[]): ReturnType<typeof tried> =>
  afterwards(
    run,
    () => ids.length,
    () =>
      run.console.during(
        () => 'Waiting for the answer of the service',
        () => tried(ids, run.deployment, run.signal),
      ),
  );

/** If a command ends before its answer, by Ctrl-C or an error, says what it has changed by then. */
async function afterwards<T>({ console, deployment }: Run, changed: () => number, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const count = changed();
    const done = `This command ended before its answer. What it has done by now stays, and goes on: ${counted(count, 'upload')}.`;
    if (count > 0) console.note(`${done} Before you repeat it, which may cost more: ${deployment.command} list`);
    throw error;
  }
}

/** Says so if the pipeline is held. The files are uploaded by now, so an error here must not hide that. */
async function noteHold({ console, deployment, signal }: Run): Promise<void> {
  const { holds = [] } = (await holdsOf(deployment, signal).catch(() => undefined)) ?? {};
  signal.throwIfAborted();
  const hold = holds.find(({ route }) => route === undefined);
  if (hold !== undefined) console.note(`${hold.message} ${endOfHold(hold, deployment)}`);
}

/**
 * Waits until uploads and their chains have ended and their receipts are out, or they wait for the operator. Says of each
 * upload of a later stage how it ends.
 */
function followed(run: Run, ids: readonly string[]): Promise<Followed> {
  const { console, deployment, signal } = run;
  let ended = 0;
  let total = ids.length;
  const told = new Set<string>();
  const following = () =>
    followChains(ids, deployment, signal, ({ uploads, later }) => {
      const laterEnds = later.filter(({ endedAt }) => endedAt !== undefined);
      ended = uploads.filter((view) => view?.endedAt !== undefined).length + laterEnds.length;
      total = ids.length + later.length;
      for (const upload of laterEnds) {
        const end = `${upload.id} ${upload.generation}`;
        if (!told.has(end)) console.note(showLaterEnd(upload));
        told.add(end);
      }
    });
  return afterwards(
    run,
    () => ids.length,
    () => console.during(() => `${ended} of ${total} ended`, following),
  );
}

/** True if an upload did not succeed, or a stage of its chain failed or was withheld. */
const hasFailed = ({ uploads, chains }: Followed = { uploads: [], chains: [] }): boolean =>
  uploads.some((end) => end === undefined || !isSuccess(end.state)) || chains.some(({ state }) => !isSuccess(state));

interface PutOptions extends AskedOptions {
  readonly wait?: boolean;
  readonly template?: string;
  readonly parameters?: string;
}

function addPut(add: Add): void {
  const command = new Command('put')
    .description('uploads files, or the files in folders. A folder with a job.json is one job')
    .argument('<paths...>', 'files and folders of this machine')
    .option(...WAIT)
    .option('--template <name>', 'another template, where the route allows it')
    .option('--parameters <json>', 'other parameters, where the route allows it', (text) => JSON.stringify(json(text)))
    .option(...YES)
    .addHelpText('after', example('put robot.png --wait --yes', 'put photos --yes', 'put chair --wait --yes'));
  add<PutOptions>(command, async (run, paths, options) => {
    const { console, deployment, signal } = run;
    const { files: named, unreadable } = filesAt(paths.map(run.path));
    const { template, parameters } = options;
    const { files, left, incomplete, begins } = await jobsAmong(named, run);
    const refused: Refused[] = [...unreadable, ...left.map(({ key, why }) => ({ name: key, why }))];
    const wanted = files.filter((file) => {
      const isInput = file.inputOf !== undefined;
      const why = isInput ? undefined : refusalOf(file, run, template !== undefined || parameters !== undefined);
      if (why !== undefined) refused.push({ name: file.key, why });
      return why === undefined;
    });
    for (const { name, why } of refused) console.note(`${name}: not uploaded, because ${why}`);
    if (wanted.length === 0) throw new UsageError('There is no file that a route takes');
    for (const { key, missing, hints, deadline } of incomplete) {
      const waits = `${key}: the job waits for ${missing.join(', ')} until ${localTime(deadline)}, and fails then`;
      console.note([hints.length === 0 ? waits : `${waits}.`, ...hints].join(' '));
    }
    // A job is one flow, however many files it has.
    const starts = [...wanted.filter(({ inputOf }) => inputOf === undefined).map(({ key }) => key), ...begins];
    const question = `${counted(wanted.length, 'file')} would be uploaded, and paid for: ${costsSentence(costsOfFiles(starts, deployment))} Go on?`;
    if (!(await isAllowed(run, question, options))) return EXIT_FAILED;
    let shown = '';
    const done: PutFile[] = [];
    await console.during(
      () => `${done.length} of ${wanted.length} uploaded${shown}`,
      async () => {
        for (const file of wanted) {
          const onProgress = (bytes: number): void => {
            shown = `, ${size(bytes)} of ${file.key}`;
          };
          const { inputOf } = file;
          const overrides = inputOf === undefined ? { template, parameters } : {};
          try {
            done.push({ ...(await put(file, overrides, deployment, { signal, onProgress })), inputOf });
          } catch (error) {
            const last = done.at(-1)?.key;
            const before = `${done.length} of ${counted(wanted.length, 'file')} uploaded, the last one ${last}.`;
            if (last !== undefined) console.note(`${before} The same command would pay for them again.`);
            throw error;
          }
        }
      },
    );
    // An input has no end of its own.
    const ids = done.filter(({ inputOf }) => inputOf === undefined).map(({ id }) => id);
    await afterwards(
      run,
      () => ids.length,
      () => noteHold(run),
    );
    const ended = options.wait === true ? await followed(run, ids) : undefined;
    const endById = new Map(ids.map((id, index) => [id, ended?.uploads[index]]));
    const ends = ended && { ...ended, uploads: done.map(({ id }) => endById.get(id)) };
    const seen = done.map((each, index) => ({ ...each, upload: ends?.uploads[index] }));
    console.answer({ files: seen, chains: ends?.chains, refused }, () => showPut(done, ends));
    return refused.length > 0 || hasFailed(ended) ? EXIT_FAILED : EXIT_OK;
  });
}

/** @throws {UsageError} a job file cannot be used. */
async function jobsAmong(files: readonly FileToPut[], { deployment, signal }: Run): Promise<JobsPlan<FileToPut>> {
  const { settings, clock } = deployment;
  try {
    return await planFiles(files, settings, { inbox: inboxOf(deployment, signal), now: clock.now() });
  } catch (error) {
    if (!(error instanceof JobFilesError)) throw error;
    throw new UsageError(error.message, { cause: error });
  }
}

/** Why a file is not uploaded. Undefined if it is. @throws {UsageError} its route allows no overrides. */
function refusalOf(file: FileToPut, { deployment }: Run, hasOverrides: boolean): string | undefined {
  const bytes = Buffer.byteLength(withPrefix(file.key, deployment));
  if (bytes > KEY_BYTES_MAX) return `its key would have ${bytes} bytes, and S3 takes at most ${KEY_BYTES_MAX}`;
  if (!deployment.areRoutesKnown) return undefined;
  const route = routeOfFile(file, deployment);
  if (route === undefined) return `no route takes it. ${nearestRouteOfFile(file, deployment)}`;
  if (hasOverrides && route.overrides !== true) {
    throw new UsageError(
      `The route ${route.name}, which takes ${file.key}, does not allow --template and --parameters`,
    );
  }
  return undefined;
}

function filesAt(paths: readonly string[]): ReturnType<typeof namedFiles> {
  try {
    return namedFiles(paths);
  } catch (error) {
    const { code, path } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw new UsageError(`There is no file ${path}`, { cause: error });
    throw error;
  }
}

/** @throws {InvalidArgumentError} */
function json(text: string): Json {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidArgumentError('Expected JSON, such as {"quality":"high"}.');
  }
  const { success, data, error } = z.safeParse(jsonSchema, value);
  if (!success) throw new InvalidArgumentError(`What was given cannot be used: ${error.issues[0]?.message}.`);
  return data;
}

function addGet(add: Add): void {
  const command = new Command('get')
    .description('fetches results and receipts, checked against their SHA-256')
    .argument('<key>', 'the key of a file, the beginning of keys, or an upload id')
    .option('--to <folder>', 'the folder for them', 'results')
    .addHelpText('after', example('get photos/robot.png', 'get photos/ --to copies'));
  add<CommonOptions & { to: string }>(command, async ({ console, deployment, signal, path }, [what = ''], { to }) => {
    const folder = new ResultsFolder(path(to));
    let count = 0;
    const fetched: Fetched = await console.during(
      () => `${counted(count, 'file')} fetched`,
      () =>
        get(
          what,
          async (key, body) => {
            const written = await folder.write(key, body);
            count += 1;
            return written;
          },
          deployment,
          signal,
        ),
    );
    console.answer(fetched, showFetched);
    return fetched.issues.length > 0 || fetched.receipts.length === 0 ? EXIT_FAILED : EXIT_OK;
  });
}

function addAlias(add: Add): void {
  const command = new Command('alias')
    .description('points the aliases of a file at another of its flows, until a newer one succeeds')
    .argument('<key>', 'the key of a file, the name of a later stage, or an upload id')
    .requiredOption('--to <flow>', 'the id of the flow')
    .addHelpText('after', example('alias photos/robot.png --to 24a83387b97d7de144062916'));
  add<CommonOptions & { to: string }>(command, async ({ console, deployment, signal }, [what = ''], { to }) => {
    const shown = await console.during(
      () => 'Copying',
      () => moveAlias(what, to, deployment, signal),
    );
    console.answer({ action: 'alias', results: [shown], left: [], skipped: [] }, () => [
      `${uploadName(shown.key)}: ${shown.why ?? shown.result}`,
    ]);
    return shown.isDone ? EXIT_OK : EXIT_FAILED;
  });
}

function addForget(add: Add): void {
  const command = new Command('forget')
    .description('deletes an ended file: its uploads, their results and their records, with their chains')
    .argument('<key>', 'the key of a file, or an upload id')
    .option('--all', 'all uploads of the key, if there are several')
    .option(...YES)
    .addHelpText('after', example('forget photos/robot.png --yes'));
  add<AskedOptions & { all?: boolean }>(command, async (run, [what = ''], options) => {
    const { console, deployment, signal } = run;
    const { key, uploads, remaining } = await console.during(
      () => 'Looking for the uploads of the key',
      () => tracesOfAll(what, deployment, signal),
    );
    const [newest] = uploads;
    if (newest === undefined) throw new TypeError('Nothing was found, and no error says so.');
    const [only] = uploads.length === 1 ? uploads : [];
    if (only === undefined) {
      console.note(`${key} has ${uploads.length} uploads:`);
      for (const line of table(uploads.map(rowOfTraces))) console.note(`  ${line}`);
      if (options.all !== true && (options.yes === true || !console.canAsk)) {
        const one = uploadCommand('forget', { ...newest, key: newest.id }, deployment);
        throw new Error(`Nothing was deleted. To forget all of them, add --all --yes. To forget one, name it: ${one}`);
      }
    }
    const subject =
      only === undefined ? `All ${uploads.length} uploads of ${key}` : `${key}${laterOf(only)}: ${partsOf(only)}`;
    if (!(await isAllowed(run, `${subject} would be deleted for good. Go on?`, options))) return EXIT_FAILED;
    const flows: FlowLeft[] = [];
    await console.during(
      () => 'Deleting',
      async () => {
        // The key leads to the newest one. If this is stopped, the others can still be found by it.
        for (const each of uploads.toReversed()) flows.unshift(...(await forget(each, deployment, signal)));
      },
    );
    const elsewhere = uploads.flatMap((each) => each.elsewhere);
    const kept = keptOf(flows, { key, remaining, elsewhere, deployment });
    console.answer({ ...newest, others: uploads.slice(1), flows, remaining, kept }, () => [
      ...uploads.map((each) => `${only === undefined ? each.id : key}${laterOf(each)}: ${partsOf(each)} deleted.`),
      ...kept,
    ]);
    return EXIT_OK;
  });
}

/** What is deleted with an upload, in words. */
const partsOf = ({ object, results, ledger }: Traces): string =>
  [
    ...(object === undefined ? [] : ['the upload']),
    `${counted(results.length, 'object')} of its results`,
    counted(ledger.length, 'record'),
  ].join(', ');

const laterOf = ({ stages }: Traces): string =>
  stages.length === 0 ? '' : `, with ${counted(stages.length, 'upload')} of later stages`;

const rowOfTraces = (traces: Traces): readonly string[] => [
  traces.id,
  traces.state,
  traces.lastModified === undefined ? '' : localTime(traces.lastModified),
  `${partsOf(traces)}${laterOf(traces)}`,
];

/** What became of flows at the service, in sentences. */
function toldFlows(flows: readonly FlowLeft[]): readonly string[] {
  return [...Map.groupBy(flows, ({ result, why }) => `${result} ${why}`).values()].map((some) => {
    const [{ result = 'kept', why = '' } = {}] = some;
    const isOne = some.length === 1;
    const ids = some.map(({ flowId }) => flowId).join(', ');
    const subject = `The ${isOne ? 'flow' : 'flows'} ${ids}`;
    if (result === 'deleted') return `${subject} ${isOne ? 'was' : 'were'} deleted at the service.`;
    if (result === 'gone') return `The service knows no ${isOne ? 'flow' : 'flows'} ${ids} any more.`;
    return `${subject} ${isOne ? 'stays' : 'stay'} at the service: ${why}. Its operator can delete ${isOne ? 'it' : 'them'}.`;
  });
}

/** What a deletion leaves, in sentences. */
function keptOf(
  flows: readonly FlowLeft[],
  {
    key,
    remaining,
    elsewhere,
    deployment,
  }: Pick<KeyTraces, 'key' | 'remaining'> & Pick<Traces, 'elsewhere'> & { readonly deployment: Deployment },
): readonly string[] {
  const others = remaining.uploads.length;
  return [
    ...(others === 0
      ? []
      : [
          `${counted(others, 'other upload')} of ${key} ${others === 1 ? 'remains' : 'remain'}: ${remaining.uploads.join(', ')}. ` +
            `To forget ${others === 1 ? 'it' : 'them'}: ${uploadCommand('forget', { id: remaining.uploads[0] ?? '', key }, deployment)}`,
        ]),
    ...(remaining.objects === 0
      ? []
      : [
          `${counted(remaining.objects, 'object')} below ${key}/ ${remaining.objects === 1 ? 'remains' : 'remain'} in the results bucket: ` +
            'they are of other uploads, or name none.',
        ]),
    ...(elsewhere.length === 0
      ? []
      : [
          `What is where files or results were before a deployment stays, and must be deleted there: ${[...new Set(elsewhere)].join(', ')}`,
        ]),
    ...toldFlows(flows),
    ...(deployment.isLocal
      ? ['Copies in your folders stay: the file that you dropped, and its results, but for aliases.']
      : []),
    'The logs of the functions name the key until they expire.',
  ];
}

interface SweepOptions extends AskedOptions {
  readonly since?: number;
  readonly dryRun?: boolean;
  readonly force?: boolean;
}

function addSweep(add: Add): void {
  const command = new Command('sweep')
    .description('submits the files of the inbox that the pipeline does not know')
    .option('--since <time>', 'files since then, also from before the deployment', (text) => sinceOf(text))
    .option('--dry-run', 'only count them')
    .option('--force', 'with --since: also files whose entries may have expired, and which may be paid for again')
    .option(...YES)
    .addHelpText('after', example('sweep --dry-run', 'sweep --yes', 'sweep --since 2026-01-01 --dry-run'));
  add<SweepOptions>(command, async (run, _, options) => {
    const { since, dryRun, force } = options;
    if (force === true && since === undefined) throw new UsageError('--force goes with --since');
    const expired = force === true ? expiredBefore({ since }, run.deployment) : undefined;
    if (expired !== undefined) {
      const date = new Date(expired).toISOString();
      run.console.note(
        `Entries from before ${date} may have expired. Files without an entry count as missed, and are paid for again.`,
      );
    }
    const counting = await swept(run, { since, force, dryRun: true });
    if (dryRun === true || counting.missed + counting.repaired === 0) {
      run.console.answer(counting, (pass) => showSweep(pass, costsOfSweep(pass, run.deployment)));
      return EXIT_OK;
    }
    const costs = costsSentence(costsOfSweep(counting, run.deployment));
    const question = `${counted(counting.missed, 'file')} would be submitted, and paid for: ${costs} Go on?`;
    // To complete records costs nothing.
    if (counting.missed > 0 && !(await isAllowed(run, question, options))) return EXIT_FAILED;
    run.console.answer(await swept(run, { since, force }), (pass) => showSweep(pass));
    return EXIT_OK;
  });
}

async function swept({ console, deployment, signal }: Run, request: SweepRequest): Promise<SweepPass> {
  let pass: SweepPass | undefined;
  const progress = () => `${counted(pass?.compared ?? 0, 'file')} compared, ${pass?.missed ?? 0} missed`;
  const sweeping = () =>
    sweep(request, deployment, signal, (at) => {
      pass = at;
    });
  try {
    return await console.during(progress, sweeping);
  } catch (error) {
    if (pass !== undefined && request.dryRun !== true) {
      console.note(
        `Only this command ends: the pass goes on, and what it submits is paid for. To have new flows wait: ${deployment.command} pause`,
      );
    }
    throw error;
  }
}
