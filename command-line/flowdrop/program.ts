import { setTimeout as sleep } from 'node:timers/promises';
import { Command, InvalidArgumentError, Option } from 'commander';
import { printableLines } from '../../functions/base/printable.ts';
import { compare } from '../../operations/compare.ts';
import { COSTS_BY, type CostsBy, costs } from '../../operations/costs.ts';
import type { Deployment } from '../../operations/deployment.ts';
import { explain } from '../../operations/explain.ts';
import { find } from '../../operations/find.ts';
import { CODES, type ListedState, type ListQuery, list } from '../../operations/list.ts';
import { logs } from '../../operations/logs.ts';
import { ServiceQuestions } from '../../operations/service-answer.ts';
import { shownState } from '../../operations/shown-state.ts';
import { type PipelineStatus, type PrefixStatus, status, type UploadStatus } from '../../operations/status.ts';
import { templates } from '../../operations/templates.ts';
import { EMPTY_WORD, UsageError } from '../options.ts';
import { type Add, example, type Instead } from './add.ts';
import { addChanges } from './changes.ts';
import { addDoctor } from './check.ts';
import { addCompletion } from './completion.ts';
import { Console, type Text } from './console.ts';
import { addCredentials } from './credentials.ts';
import { addHolds } from './holds.ts';
import { addOpen } from './open.ts';
import { explainOffline } from './plan.ts';
import { type CommonOptions, EXIT_FAILED, EXIT_OK, isJson, type Run, runCommand, type Surroundings } from './run.ts';
import {
  showCosts,
  showExplanation,
  showGenerations,
  showList,
  showLogs,
  showPipeline,
  showPrefix,
  showTemplates,
  showUpload,
} from './show.ts';
import { codeOption, noteRoute, sinceOf } from './words.ts';

/** How often `--watch` shows the state again, in milliseconds. */
const WATCH_MS = 2_000;

const LIST_LIMIT_DEFAULT = 50;

/** How far back logs are read, in milliseconds: a day. */
const LOGS_SINCE_MS = 24 * 60 * 60_000;

/** Width of the help where no terminal says how wide it is: in the documentation. */
const HELP_COLUMNS = 100;

/** The program, and how its last command ended. */
export interface Program {
  readonly command: Command;
  readonly exitCode: () => number;
}

/**
 * All commands. Nothing is printed or read except through `surroundings`.
 * @param words of the command line.
 */
export function flowdropProgram(surroundings: Surroundings, words: readonly string[]): Program {
  let exitCode = EXIT_OK;
  const { output, errors } = surroundings.streams;
  const program = new Command('flowdrop')
    .description('Shows how far each file is in a Flowdrop pipeline, and can retry, cancel or collect it.')
    .addOption(new Option('--stack <name>', 'the deployed stack (default: the variable FLOWDROP_STACK)'))
    .addOption(new Option('--function <name>', 'the name of the function collect-outputs of the pipeline'))
    .addOption(new Option('--region <name>', "the pipeline's region (default: that of your AWS configuration)"))
    .addOption(new Option('--local', 'the run of npm start in this folder (default without a stack)'))
    .addOption(new Option('--json', 'print the answer as JSON'))
    .configureHelp({ showGlobalOptions: true, sortSubcommands: false })
    .configureOutput({
      writeOut: (text) => output.write(text),
      // It repeats the words of the command line, which may be pasted.
      writeErr: (text) => void (isJson(words) || errors.write(printableLines(text))),
      outputError: (text) =>
        void (isJson(words) || new Console(surroundings.streams).error(text.trimEnd().split('\n'))),
      getOutHelpWidth: () => output.columns ?? HELP_COLUMNS,
      getErrHelpWidth: () => errors.columns ?? HELP_COLUMNS,
    })
    .showSuggestionAfterError()
    .exitOverride()
    .addHelpText('after', HELP_AFTER);

  const add = <O extends CommonOptions>(
    command: Command,
    body: (run: Run, words: string[], options: O) => Promise<number>,
    { unconnected, offline }: Instead<O> = {},
  ) => {
    command.exitOverride().action(async (...given: unknown[]) => {
      const words = given.slice(0, -2).flat() as string[];
      const options = command.optsWithGlobals<O>();
      // As a key it would mean every file, and as a path the present folder.
      if ([...words, ...Object.values(options)].includes('')) throw new UsageError(EMPTY_WORD);
      exitCode = await runCommand(options, surroundings, {
        run: (run) => body(run, words, options),
        ...(unconnected && { unconnected: (error, before) => unconnected(error, before, words, options) }),
        ...(offline && { offline: (before) => offline(before, options, words) }),
      });
    });
    program.addCommand(command.copyInheritedSettings(program));
  };
  addOpen(add);
  addStatus(add);
  addList(add);
  addCompare(add);
  addExplain(add);
  addLogs(add);
  addChanges(add);
  addHolds(add);
  addCosts(add);
  addTemplates(add);
  addCredentials(add);
  addDoctor(add);
  addCompletion(add, program);
  return { command: program, exitCode: () => exitCode };
}

const HELP_AFTER = `
A file went missing? These three tell what became of it:
  $ flowdrop status                     how the pipeline is doing
  $ flowdrop list --failed --since 24h  what failed, and why
  $ flowdrop status photos/robot.png    the life of one file

Nothing moves? This looks for the cause:
  $ flowdrop doctor                     checks the pipeline from the outside in

Exit codes: 0 for success, 1 if something failed, 2 for a command that cannot be understood.
In a clone of the repository, write "npm run -s flowdrop --" instead of "flowdrop".`;

function addStatus(add: Add): void {
  const command = new Command('status')
    .description('the state of the pipeline, of one file, or of all files below a prefix')
    .argument('[key]', 'the key of a file, the beginning of keys, or an upload id')
    .option('--watch', 'show it again every two seconds, until Ctrl-C')
    .addHelpText('after', example('status', 'status photos/robot.png', 'status photos/ --json', 'status --watch'));
  add<CommonOptions & { watch?: boolean }>(command, async ({ deployment, console, signal }, [what], { watch }) => {
    const questions = new ServiceQuestions(deployment, signal);
    for (;;) {
      const state = await console.during(
        () => 'Reading the ledger',
        async () => withAnswer(await status(what, deployment, signal), questions),
      );
      if (watch === true) console.clear();
      console.answer(state, () => showStatus(state, deployment, console.columns));
      if (watch !== true) return isBad(state) ? EXIT_FAILED : EXIT_OK;
      await sleep(WATCH_MS, undefined, { signal });
    }
  });
}

type Status = PipelineStatus | PrefixStatus | UploadStatus;

/** A file whose flow runs, with what the service says of it. */
async function withAnswer(state: Status, questions: ServiceQuestions): Promise<Status> {
  return state.kind === 'upload' && state.state === 'running'
    ? { ...state, service: await questions.ask(state.id, state.state) }
    : state;
}

function showStatus(state: Status, deployment: Deployment, columns: number | undefined): readonly Text[] {
  switch (state.kind) {
    case 'pipeline':
      return showPipeline(state, deployment);
    case 'prefix':
      return showPrefix(state, deployment, columns);
    case 'upload':
      return showUpload(state, deployment);
  }
}

/** A named file that failed or whose chain failed, or that nothing is known of. */
const isBad = (state: Status): boolean =>
  state.kind === 'upload'
    ? ['failed', 'unreadable'].includes(state.upload ? shownState(state.upload) : state.state) ||
      state.chain?.state === 'failed'
    : state.kind === 'prefix' && state.uploads.length === 0;

function addCompare(add: Add): void {
  const command = new Command('compare')
    .description('the generations of a file, and of later stages, side by side: how each was made, and what came of it')
    .argument('<key>', 'the key of a file, the name of a later stage, or an upload id')
    .addHelpText('after', example('compare photos/robot.png', 'compare photos/robot.png --json'));
  add(command, async ({ deployment, console, signal }, [word = '']) => {
    const found = await console.during(
      () => 'Reading the ledger',
      () => find(word, deployment, signal),
    );
    const { entry, issue } = found.kind === 'upload' ? found.upload : {};
    if (entry === undefined) throw new UsageError(issue?.message ?? `${word} is no single file: name one`);
    const compared = await console.during(
      () => 'Reading the chain',
      () => compare(entry, deployment, signal),
    );
    console.answer(compared, () => [compared, ...(compared.stages ?? [])].flatMap(showGenerations));
    return EXIT_OK;
  });
}

type ListOptions = CommonOptions & Partial<Record<ListedState, boolean>> & Omit<ListQuery, 'state'>;

function addList(add: Add): void {
  const command = new Command('list')
    .description('the newest files of every state, or only those that failed, wait, are undecided or are running')
    .option('--failed', 'files that failed')
    .option('--waiting', 'files that wait to be sent')
    .option('--undecided', 'files that wait for your decision, because a flow of them may exist')
    .option('--running', 'files whose flow is running')
    .option('--since <time>', 'only since then: 30m, 2h, 7d, 12:00 (today), or a date', (text) => sinceOf(text))
    .addOption(codeOption('only failures with this code, or waits for this reason', CODES))
    .option('--route <name>', 'only files of this route')
    .option('--limit <number>', 'how many at most', positive, LIST_LIMIT_DEFAULT)
    .addHelpText(
      'after',
      example('list', 'list --failed --since 12:00', 'list --failed --code rejected', 'list --waiting --json'),
    );
  add<ListOptions>(command, async (run, _, { since, code, route, limit, ...flags }) => {
    const { deployment, console, signal } = run;
    const states = (['failed', 'waiting', 'undecided', 'running'] as const).filter((state) => flags[state] === true);
    const [state = 'any'] = states;
    if (states.length > 1) throw new UsageError('--failed, --waiting, --undecided and --running exclude each other');
    const query: ListQuery = { state, since, code, route, limit };
    noteRoute(run, route);
    const listed = await console.during(
      () => 'Reading the ledger',
      () => list(query, deployment, signal),
    );
    console.answer(listed, () => showList(listed, query, deployment, console.columns));
    return EXIT_OK;
  });
}

function addCosts(add: Add): void {
  const command = new Command('costs')
    .description('what the flows cost, by route, by the first folder of the files, or by day')
    .addOption(new Option('--by <what>', 'what to tell apart').choices(COSTS_BY).default('route'))
    .option('--since <time>', 'whole days since then, such as 30d or 2026-11-01', (text) => sinceOf(text))
    .addHelpText('after', example('costs', 'costs --by prefix --since 30d', 'costs --by day --json'));
  add<CommonOptions & { readonly by: CostsBy; readonly since?: number }>(
    command,
    async ({ deployment, console, signal }, _, { by, since }) => {
      console.answer(await costs({ by, since }, deployment, signal), showCosts);
      return EXIT_OK;
    },
  );
}

function addExplain(add: Add): void {
  const command = new Command('explain')
    .description('which route takes a file, why the others do not, and the request that would be sent')
    .argument(
      '<file>',
      'a file of this machine (then no pipeline is needed), the key of a file in the inbox, or an upload id',
    )
    .addHelpText('after', example('explain robot.png', 'explain photos/robot.png --json'));
  add(
    command,
    async ({ deployment, console, signal, path }, [what = '']) => {
      console.answer(await explain({ path: path(what), key: what }, deployment, signal), (explanation) =>
        showExplanation(explanation, deployment),
      );
      return EXIT_OK;
    },
    {
      async unconnected(error, offline, [what = '']) {
        offline.console.answer(await explainOffline(error, offline, what), showExplanation);
        return EXIT_OK;
      },
    },
  );
}

function addLogs(add: Add): void {
  const command = new Command('logs')
    .description('what both functions logged about a file and the later stages of its chain, in order of time')
    .argument('<key>', 'the key of a file, or an upload id')
    .option('--since <time>', 'only since then: 30m, 2h, 7d, 12:00 (today), or a date (default: 24h)', (text) =>
      sinceOf(text),
    )
    .addHelpText('after', example('logs photos/robot.png', 'logs photos/robot.png --since 7d --json'));
  add<CommonOptions & { readonly since?: number }>(
    command,
    async ({ deployment, console, signal }, [what = ''], { since = Date.now() - LOGS_SINCE_MS }) => {
      const found = await console.during(
        () => 'Reading the logs',
        () => logs(what, since, deployment, signal),
      );
      console.answer(found, showLogs);
      return EXIT_OK;
    },
  );
}

function addTemplates(add: Add): void {
  const command = new Command('templates')
    .description('what the flow service offers, with input types and parameters')
    .addHelpText('after', example('templates', 'templates --json'));
  add(command, async ({ deployment, console, signal }) => {
    const offered = await console.during(
      () => 'Asking the flow service',
      () => templates(deployment, signal),
    );
    console.answer(offered, showTemplates);
    return EXIT_OK;
  });
}

function positive(text: string): number {
  const number = /^[1-9]\d{0,6}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(number)) throw new InvalidArgumentError('Expected a whole number above 0.');
  return number;
}
