import { duration } from '../../functions/base/duration.ts';
import { amountText } from '../../functions/base/money.ts';
import { counted, isPrintable, printable, quoted, shellWord } from '../../functions/base/printable.ts';
import { noRoute } from '../../functions/chains/chain.ts';
import { isSuccess } from '../../functions/ledger/terminal-states.ts';
import type { ChainView } from '../../operations/chains.ts';
import { soonerBy, uploadCommand } from '../../operations/commands.ts';
import { type Compared, type Generation, parentOf, shortId } from '../../operations/compare.ts';
import { sharesText, sumText } from '../../operations/cost-texts.ts';
import type { CostRow, CostsView } from '../../operations/costs.ts';
import type { Deployment } from '../../operations/deployment.ts';
import type { Explanation, JobInputView } from '../../operations/explanation.ts';
import { type BudgetView, countOf, endOfHold, type HoldsView, type HoldView } from '../../operations/holds.ts';
import { linesOfInvalidJob } from '../../operations/jobs.ts';
import type { Listed, ListQuery } from '../../operations/list.ts';
import type { FileLogLine, FileLogs } from '../../operations/logs.ts';
import { atItsTime, isUntimed, shownState } from '../../operations/shown-state.ts';
import type { PipelineStatus, PrefixStatus, UploadStatus } from '../../operations/status.ts';
import type { OfferedTemplate } from '../../operations/templates.ts';
import { uploadName } from '../../operations/upload-name.ts';
import type { UploadView } from '../../operations/upload-view.ts';
import { isAhead, localTime, size } from '../texts.ts';
import { coloured, fitted, INDENT, indented, joined, type Text, table } from './console.ts';
import { showChain } from './show-chain.ts';
import { relative } from './words.ts';

/** Uploads of a prefix that are shown one by one. The counts are of all. */
const PREFIX_SHOWN_MAX = 20;

/** What the commands of a hint need. */
type Named = Pick<Deployment, 'command' | 'isLocal'>;

const when = (iso: string): string => `${localTime(iso)}  (${relative(iso)})`;

export function showPipeline(status: PipelineStatus, deployment: Named): readonly Text[] {
  const { holds, queue, waiting, running, failed, collectors, sweep, deadLetters, otherFormat } = status;
  const reasons = Object.entries(waiting.reasons).map(
    ([reason, count]) => `${count} ${reason === 'inputs' ? 'for inputs' : reason}`,
  );
  const lines: Text[][] = [
    ...(otherFormat === undefined ? [] : [['ledger', coloured('fault', otherFormat)]]),
    ...linesOfHolds(holds, waiting),
    ...holds.budgets.map((budget) => [budgetName(budget), showBudget(budget)]),
    ['queue', `${counted(queue.visible, 'upload')} to begin, ${queue.inFlight} at work`],
    ['waiting', `${waiting.count}${reasons.length === 0 ? '' : `  (${reasons.join(', ')})`}`],
    ...(waiting.isSample
      ? [['', `the reasons are of ${waiting.read} of them. All: ${deployment.command} list --waiting --limit 100000`]]
      : []),
    ...(waiting.oldestArrivedAt === undefined
      ? []
      : [['', `oldest${waiting.isSample ? ' of these' : ''} came ${relative(waiting.oldestArrivedAt)}`]]),
    ['running', `${running.count}`],
    ...(running.oldestCreatedAt === undefined ? [] : [['', `oldest flow began ${relative(running.oldestCreatedAt)}`]]),
    ['failed', joined(alarming(failed.count), '  (in the last 24 hours)')],
    ...(deadLetters === undefined ? [] : [['dead letters', alarming(deadLetters)]]),
    ...collectors.map(({ index, tickCompletedAt, isAtWork, requestsPerSecond }) => [
      collectors.length === 1 ? 'last tick' : `last tick of collector ${index}`,
      [
        tickCompletedAt === undefined ? 'none has completed' : `completed ${relative(tickCompletedAt)}`,
        ...(isAtWork ? ['one is at work'] : []),
        ...(requestsPerSecond === undefined
          ? ['no limit of the service is known']
          : [`the service allows ${requestsPerSecond.toPrecision(2)} requests a second`]),
      ].join(', '),
    ]),
    ...(collectors.length === 0 ? [['last tick', 'there was none yet']] : []),
    [
      'last daily sweep',
      sweep === undefined
        ? 'none has ended'
        : `${relative(sweep.endedAt)}, found ${counted(sweep.missed, 'missed upload')}`,
    ],
  ];
  return [`${status.pipeline}: ${status.deployment}`, ...indented(table(lines)), ...hintsOf(status, deployment)];
}

/** A number that should be 0. */
const alarming = (count: number): Text => coloured(count > 0 ? 'fault' : '', String(count));

/** Heads of the first column. */
const COSTS_HEADS = { route: 'route', prefix: 'folder', day: 'day (UTC)' } as const;

export function showCosts({ by, since, until, rows, total, isCounted }: CostsView): readonly Text[] {
  if (rows.length === 0) {
    return isCounted
      ? [`No flow was counted from ${since} to ${until} (days in UTC).`]
      : ['No flow is counted, because no route has a price, and nothing has a budget: see docs/holds.md.'];
  }
  const cells = ({ name, flows, mayBeSecond, amounts }: CostRow): string[] => [
    name === '' ? '(in no folder)' : name,
    String(flows),
    sumText(amounts) || 'no price',
    ...(mayBeSecond === 0 ? [] : [`${mayBeSecond} of them may have been paid twice`]),
  ];
  return [
    `Flows from ${since} to ${until}, as they were counted when they were sent:`,
    ...indented(
      table([[COSTS_HEADS[by], 'flows', 'cost'], ...rows.map(cells), ...(rows.length > 1 ? [cells(total)] : [])]),
    ),
  ];
}

/** Each hold, with the number of its files. */
function linesOfHolds({ holds, issue }: HoldsView, { held, isSample }: PipelineStatus['waiting']): Text[][] {
  const lines = holds.map((hold) => {
    const count = countOf(hold, held);
    const files = count === 0 ? '' : ` Files: ${count}${isSample ? ' or more' : ''}.`;
    return [
      coloured('held'),
      `${hold.message}${hold.since === undefined ? '' : ` Since ${when(hold.since)}.`}${files}`,
    ];
  });
  return issue === undefined ? lines : [[coloured('held'), issue], ...lines];
}

const budgetName = ({ route }: BudgetView): string => (route === undefined ? 'budget' : `budget of ${route}`);

/** `2 of 5 flows spent, 3 left: 40% in 2026-11-24 (UTC), which ends …`. */
const showBudget = (budget: BudgetView): string =>
  `${sharesText(budget)}: ${budget.percent}% in ${budget.period} (${budget.timezone}), which ends ${relative(budget.endsAt)}`;

/** The next command for what needs the operator. */
function hintsOf({ failed, waiting, holds }: PipelineStatus, deployment: Named): readonly Text[] {
  return [
    ...holds.holds.flatMap((hold) => ['', `${nameOfHold(hold)}: ${endOfHold(hold, deployment)}`]),
    ...(failed.count > 0
      ? [
          '',
          `See the failures: ${deployment.command} list --failed --since 24h`,
          `Retry them once their cause is gone: ${deployment.command} retry --failed --since 24h`,
        ]
      : []),
    ...(waiting.reasons.undecided === undefined
      ? []
      : ['', `Some wait for your decision: ${deployment.command} list --undecided`]),
  ];
}

const nameOfHold = ({ route }: HoldView): string => (route === undefined ? 'Pipeline' : `Route ${route}`);

/** @param columns of the terminal, if there is one. */
export function showPrefix(
  { prefix, uploads, isCut }: PrefixStatus,
  deployment: Named,
  columns?: number,
): readonly Text[] {
  const total = uploads.length;
  if (total === 0) {
    const isKey = prefix !== '' && !prefix.endsWith('/') && isPrintable(prefix);
    const hint = isKey
      ? ` Does a route take it? ${deployment.command} explain ${prefix.startsWith('-') ? '-- ' : ''}${shellWord(prefix)}`
      : '';
    return [`No upload has a key that begins with "${prefix}".${hint}`];
  }
  const counts = Map.groupBy(
    uploads.filter(({ inputOf }) => inputOf === undefined),
    stateWord,
  );
  const states = Array.from(counts, ([state, some]) => `${some.length} ${state}`);
  const inputs = uploads.flatMap(({ inputOf }) => (inputOf === undefined ? [] : [inputOf]));
  const named = inputs.filter((jobs) => jobs.length > 0).length;
  const all = [
    ...(total > inputs.length ? [counted(total - inputs.length, 'upload')] : []),
    ...(named > 0 ? [`${counted(named, 'input')} of jobs`] : []),
    ...(inputs.length > named ? [`${counted(inputs.length - named, 'file')} that no job names`] : []),
  ];
  const more = isCut ? ' (there are more, which were not looked at)' : '';
  const shown = uploads.slice(0, PREFIX_SHOWN_MAX);
  const isStage = uploads.every(({ upload }) => upload?.stage !== undefined);
  return [
    `${all.join(', ')} ${isStage ? 'of' : 'below'} "${prefix}"${more}${states.length === 0 ? '' : `: ${states.join(', ')}`}`,
    ...indented(table(fitted(shown.map(rowBelow), columns && columns - INDENT))),
    ...(total > shown.length ? [`  and ${total - shown.length} more`] : []),
  ];
}

/** The state of an upload, or what is known of it without its entry. */
const stateWord = ({ state, upload }: Pick<UploadStatus, 'state' | 'upload'>): string =>
  upload === undefined ? state : shownState(upload);

/** An upload below a prefix, or a file for jobs there. */
const rowBelow = (one: UploadStatus): readonly Text[] => {
  const { id, key, upload, issue = '', inputOf } = one;
  if (inputOf === undefined) {
    // The uploads of one stage have one name.
    const name = upload?.stage === undefined ? key : id;
    return [name, coloured(stateWord(one)), upload ? reasonOf(upload) : issue];
  }
  return [key, inputWord(inputOf), inputOf.length === 0 ? issue : inputOf.join(', ')];
};

/** A column for each generation of an upload. */
/** In a later stage, each generation of the parent begins another upload. */
const generationName = ({ id, stage, generation }: Generation): string =>
  stage === undefined ? `${generation}` : `${generation} of ${shortId(id)}`;

export function showGenerations({ key, generations }: Compared): readonly Text[] {
  const rows: readonly (readonly [string, (each: Generation) => Text])[] = [
    ['generation', generationName],
    ...(generations[0]?.stage === undefined
      ? []
      : [['made from', (each: Generation) => parentOf(each) ?? ''] as const]),
    ['state', ({ state }) => coloured(state)],
    ['template', ({ template }) => template],
    ['parameters', ({ parameters }) => (parameters === undefined ? '' : printable(JSON.stringify(parameters)))],
    ['revision', ({ revision }) => [revision?.name, revision?.hash].filter(Boolean).join(' ')],
    ['price', ({ price }) => (price === undefined ? '' : amountText(price.amount, price.currency))],
    ['ended', ({ endedAt }) => (endedAt === undefined ? '' : when(endedAt))],
    [
      'took',
      ({ arrivedAt, endedAt }) => (endedAt === undefined ? '' : duration(Date.parse(endedAt) - Date.parse(arrivedAt))),
    ],
    ['results', ({ assetCount, bytes }) => `${assetCount}, ${size(bytes)}`],
    ['flow', ({ flow = '' }) => flow],
  ];
  return [
    uploadName(key),
    ...indented(table(rows.map(([name, text]) => [name, ...generations.map(text)]))),
    ...generations.flatMap(({ assets, assetCount, ...each }) => [
      ...(assets.length === 0 ? [] : [`  generation ${generationName({ assets, assetCount, ...each })}:`]),
      ...assets.map((asset) => `    ${asset.key}  ${size(asset.bytes)}`),
      ...(assetCount > assets.length ? [`    and ${assetCount - assets.length} more`] : []),
    ]),
  ];
}

export function showUpload(
  { id, key, state, upload: view, issue, isCurrent, inputOf, chain, hold, service }: UploadStatus,
  deployment: Named,
): readonly Text[] {
  if (view === undefined) {
    const word = state === 'unknown' && isCurrent ? 'not begun' : state;
    return [
      joined(`${key}: `, coloured(inputOf === undefined ? word : inputWord(inputOf))),
      `  ${issue ?? ''}`,
      `  upload ${id}`,
    ];
  }
  const steps: Text[][] = [
    [when(view.putAt), originOf(view)],
    [when(view.arrivedAt), arrivalOf(view)],
    ...(view.flow ? [[when(view.flow.createdAt), `flow ${view.flow.id} of ${view.template} began`]] : []),
    ...(view.flow && view.isSentAgain ? [['', `sent again with the same key: flow ${view.flow.id}, made once`]] : []),
    ...(view.endedAt ? [[when(view.endedAt), coloured(shownState(view), endOf(view))]] : []),
  ];
  return [
    joined(
      `${uploadName(view.key)}: `,
      coloured(shownState(view)),
      isSuccess(state) && chain?.state === 'failed' && view.stage === undefined
        ? coloured('failed', ', but its chain failed')
        : '',
    ),
    ...indented(table(steps)),
    ...indented(waitLines(view, deployment, hold)),
    ...(service === undefined ? [] : [`  ${service.says ?? `There is no answer of the service: ${service.issue}`}`]),
    ...(view.obstacle
      ? [
          `  its results are not stored yet, since ${when(view.obstacle.since)}: ${view.obstacle.message}`,
          '  it is tried again by itself',
        ]
      : []),
    ...deletionLines(view),
    ...(view.claimedUntil
      ? [`  is being sent; if that fails, it is taken up again ${relative(view.claimedUntil)}`]
      : []),
    ...(view.isInDoubt ? ['  a request may have made a flow that is not known yet'] : []),
    ...(view.failure
      ? [...indented(linesOfFailure(view.failure)), ...(view.failure.advice ? [`  ${view.failure.advice}`] : [])]
      : []),
    ...view.failedOutputs.map(({ id: output, code, message }) => `  output ${output}: ${code}: ${message}`),
    ...view.assets.map((asset) => `  ${asset.key}  ${size(asset.bytes)}`),
    `  route ${view.route}, ${counted(view.attempts, 'counted attempt')}, upload ${id}`,
    ...(isCurrent ? [] : [`  ${notCurrent(view)}`]),
    ...(issue === undefined ? [] : [`  ${issue}`]),
    ...(view.endedAt === undefined ? [] : [`  receipt: s3://${view.results.bucket}/${view.results.receipt}`]),
    ...(view.failure?.canRetryHelp === true
      ? ['', `To retry it, which may be paid for: ${uploadCommand('retry', { id, key }, deployment)}`]
      : []),
    ...(isSuccess(view.state) ? ['', `Fetch it: ${uploadCommand('get', { id, key }, deployment)}`] : []),
    ...(chain === undefined ? [] : ['', ...showChain(chain)]),
    ...(chain?.state === 'failed' ? howToMend(chain, view, deployment) : []),
  ];
}

const linesOfFailure = ({ code, message }: NonNullable<UploadView['failure']>): readonly string[] =>
  code === 'invalid-job' ? linesOfInvalidJob(message) : [message];

/** What an operator can do about a chain that failed. */
function howToMend(chain: ChainView, { failure }: UploadView, deployment: Pick<Deployment, 'command'>): string[] {
  const retry = uploadCommand('retry', chain.first, deployment);
  const again = uploadCommand('again', chain.first, deployment);
  const failed = chain.stages.reduce((sum, { counts }) => sum + (counts.failed ?? 0), 0);
  const [withheld] = chain.withheld;
  if (failed > (failure === undefined ? 0 : 1))
    return ['', `To retry what failed in it, which may be paid for: ${retry}`];
  if (failed > 0 || withheld === undefined) return [];
  const { route, after, why } = withheld;
  const what = `No upload of it failed, but ${route} did not begin.`;
  if (why === noRoute(route)) {
    return ['', `${what} Once its route is back, make it, which is paid for: ${again} --from ${shellWord(route)}`];
  }
  return ['', `${what} To make ${after} anew, which is paid for: ${again} --from ${shellWord(after)}`];
}

const inputWord = ({ length }: readonly string[]): string => (length === 0 ? 'no input of a job' : 'input of a job');

const originOf = ({ bytes, mediaType, stage }: UploadView): string =>
  stage === undefined
    ? `put into the inbox: ${size(bytes)}, ${mediaType}`
    : `the first file of its chain was put into the inbox: ${stage.first.key}`;

function arrivalOf({ generation, bytes, stage }: UploadView): string {
  if (generation > 1) return `retry ${generation - 1} was requested`;
  if (stage === undefined) return 'came to the pipeline';
  const assets =
    stage.parent.asset === undefined ? 'all assets of the stage before' : `an asset of ${uploadName(stage.parent.key)}`;
  return `began with ${assets}: ${size(bytes)}`;
}

const notCurrent = ({ stage }: UploadView): string =>
  stage === undefined
    ? 'It is not the current version of its key: the file was replaced or deleted since.'
    : `The first file of its chain was replaced or deleted since: ${stage.first.key}`;

/** Why a file waits, since when, when it is tried next, and what ends the wait sooner. */
function waitLines(view: UploadView, deployment: Named, hold: HoldView | undefined): readonly Text[] {
  const { wait } = view;
  if (wait === undefined) return [];
  const { reason, message, since, until, askedUntil, before } = wait;
  const sooner = soonerBy(view, deployment, undefined, hold ?? 'none');
  return [
    `waits (${reason}) since ${when(since)}: ${message}`,
    ...before.map((earlier) => `  before that: ${earlier}`),
    ...(isUntimed(wait)
      ? []
      : [
          ...(isAhead(askedUntil) ? [`the service asks to wait until ${when(askedUntil)}`] : []),
          ...(until !== undefined
            ? [`${atItsTime(reason)}: ${when(until)}`]
            : isAhead(askedUntil)
              ? []
              : ['next try: every few seconds']),
        ]),
    ...(sooner === undefined ? [] : [sooner]),
  ];
}

const endOf = (view: UploadView): string =>
  view.failure === undefined
    ? `succeeded, with ${counted(view.assets.length, 'result')}`
    : `${shownState(view)}: ${view.failure.code}`;

/** What became of its flow at the service. */
function deletionLines({ flowDeletion: { deletedAt, message } = {} }: UploadView): readonly string[] {
  if (deletedAt !== undefined) return [`  its flow was deleted at the service: ${when(deletedAt)}`];
  return message === undefined ? [] : [`  its flow is not deleted at the service yet: ${message}`];
}

const reasonOf = ({ wait, failure, flow, obstacle, assets, state }: UploadView): string => {
  if (wait !== undefined) {
    if (wait.ending === 'hold') return `held: ${wait.message}`;
    if (isAhead(wait.askedUntil))
      return `the service asks to wait until ${localTime(wait.askedUntil)}: ${wait.message}`;
    if (isUntimed(wait)) return wait.message;
    const { until } = wait;
    const next = until === undefined ? 'tried every few seconds' : `${atItsTime(wait.reason)} ${localTime(until)}`;
    return `${next}: ${wait.message}`;
  }
  if (failure !== undefined) return `${failure.code}: ${failure.message}`;
  if (isSuccess(state)) return counted(assets.length, 'result');
  if (obstacle !== undefined) return `results not stored yet: ${obstacle.message}`;
  return flow === undefined ? '' : `flow ${flow.id}`;
};

/** What a list without files says. */
const NONE: Readonly<Record<ListQuery['state'], string>> = {
  any: 'There is no file of the last seven days.',
  failed: 'No file has failed.',
  waiting: 'No file waits.',
  undecided: 'No file waits for your decision.',
  running: 'No flow is running.',
};

/** @param columns of the terminal. Undefined: there is none, and nothing is cut. */
export function showList(
  { uploads, isCut, unreadable, replaced, since: begin = '' }: Listed,
  { state, limit, since, code, route }: ListQuery,
  deployment: Named,
  columns?: number,
): readonly Text[] {
  const titles = { failed: 'FAILED', running: 'BEGAN', waiting: 'CAME', undecided: 'CAME', any: 'WHEN' };
  const rows = uploads.map((view) => {
    const at = view.endedAt ?? view.flow?.createdAt ?? view.arrivedAt;
    const isReplaced = replaced.includes(view.id);
    return [
      uploadName(view.key),
      state === 'any' ? coloured(shownState(view)) : view.route,
      localTime(at),
      `${isReplaced ? '(replaced by another upload) ' : ''}${reasonOf(view)}`,
    ];
  });
  const isFiltered = [since, code, route].some((each) => each !== undefined);
  const [first] = uploads;
  const unsettled = uploads.find((view) => !isSuccess(view.state));
  const hint = unsettled === undefined ? 'See more' : 'See why, and what to do';
  return [
    ...(uploads.length === 0
      ? [isFiltered ? 'No file matches these options.' : NONE[state]]
      : table(fitted([['KEY', state === 'any' ? 'STATE' : 'ROUTE', titles[state], 'WHY'], ...rows], columns))),
    ...(since !== undefined && since < Date.parse(begin)
      ? [`Files that were put before ${localTime(begin)} were not looked at.`]
      : []),
    ...(isCut ? [`These are the newest ${limit}. --limit shows more.`] : []),
    ...(first === undefined ? [] : ['', `${hint}: ${uploadCommand('status', unsettled ?? first, deployment)}`]),
    ...unreadable.map((id) => `The entry of upload ${id} cannot be read: see docs/runbook.md, entries-unreadable.`),
  ];
}

export function showTemplates(templates: readonly OfferedTemplate[]): readonly Text[] {
  if (templates.length === 0) return ['The service offers no templates.'];
  return templates.flatMap(({ id, name, description, inputTypes, parameters, price }) => [
    name ?? id ?? 'a template without a name',
    ...(description === undefined ? [] : [`  ${description}`]),
    `  takes ${inputTypes === undefined ? 'what it does not say' : inputTypes.join(', ') || 'any type'}`,
    `  parameters ${parameters === undefined ? 'are not listed' : JSON.stringify(parameters)}`,
    ...(price === undefined ? [] : [`  costs ${amountText(price.amount, price.currency)}`]),
  ]);
}

export function showExplanation(explanation: Explanation, deployment?: Named): readonly Text[] {
  const { key, bytes, mediaType, isFile, routes, issue, job, request, stages = [], hold } = explanation;
  const linesOf = ({ headers = {}, request: body }: Pick<Explanation, 'headers' | 'request'>) => [
    ...indented(Object.entries(headers).map(([name, value]) => `${name}: ${value}`)),
    '',
    ...indented(JSON.stringify(body, undefined, 2).split('\n')),
  ];
  return [
    `${uploadName(key)}: ${size(bytes)}, ${mediaType}${isFile ? ' (a file of this machine, as it would be uploaded)' : ''}`,
    ...indented(routes.map(({ name, why }) => `route ${name}: ${why}`)),
    ...indented(job?.inputs.map(lineOfInput) ?? []),
    ...(issue === undefined ? [] : linesOfInvalidJob(issue)),
    ...(hold === undefined || deployment === undefined
      ? []
      : [`It would be held. ${hold.message} ${endOfHold(hold, deployment)}`]),
    ...(request === undefined ? [] : [`The request would be ${explanation.sentTo} with`, ...linesOf(explanation)]),
    ...stages.flatMap(({ route, after, inputs, sentTo, ...sent }) => [
      `For ${inputs === 'all' ? 'all assets' : 'each asset'} of ${after} that the route ${route} takes, it would be ${sentTo} with`,
      ...linesOf(sent),
    ]),
  ];
}

function lineOfInput({ key, text = '', bytes, isOptional }: JobInputView): string {
  if (key === undefined) return `input: the text ${quoted(text)}`;
  const optional = isOptional ? ', optional' : '';
  return `input ${key}: ${bytes === undefined ? 'not there' : size(bytes)}${optional}`;
}

export function showLogs({ key, uploads, issue, since, lines, cut: cutLogs }: FileLogs): readonly Text[] {
  const routes = new Map(uploads.map(({ id, route = '' }) => [id, route]));
  const wordsOf = ({ message, error, flowId, details }: FileLogLine): string => {
    const fields = Object.entries({ ...(flowId !== undefined && { flowId }), ...details });
    const told = [...(error === undefined ? [] : [error]), ...fields.map(([name, value]) => `${name}=${value}`)];
    return [message, ...told].join('  ');
  };
  return [
    ...(lines.length === 0 ? [`No function has logged anything about ${uploadName(key)} since ${since}.`] : []),
    ...table(
      lines.map((line) => [
        line.time,
        line.function,
        ...(uploads.length > 1 ? [routes.get(line.uploadId) ?? ''] : []),
        coloured(line.level),
        wordsOf(line),
      ]),
    ),
    ...(issue === undefined ? [] : [issue]),
    ...(cutLogs.length === 0
      ? []
      : [`Too much was logged: later lines of ${cutLogs.join(' and ')} were not read. To read on from there: --since`]),
  ];
}
