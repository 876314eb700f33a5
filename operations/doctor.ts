import { ListObjectsV2Command } from '@aws-sdk/client-s3';
import { CLOCK_SKEW_MAX_MS } from '../functions/base/clock.ts';
import { agoText, duration } from '../functions/base/duration.ts';
import { TOLD_AFTER_POLLS } from '../functions/collect-outputs/collector.ts';
import type { RouteHolds } from '../functions/holds/holds.ts';
import { idleBudgets } from '../functions/settings/route-checks.ts';
import type { Route } from '../functions/uploads/route.ts';
import { type Alarm, alarmsOf, examineAlarms, examineRaised } from './alarms.ts';
import { type CanaryFile, examineCanary, examineHourlyCanary } from './canary.ts';
import {
  type Check,
  combined,
  DEPLOY_AGAIN,
  type Diagnosis,
  type Finding,
  type NamedCheck,
  type Outcome,
  once,
  runChecks,
} from './checks.ts';
import type { Deployment } from './deployment.ts';
import { outcomeOfListing } from './flow-listing.ts';
import { examineErrors, examineRuns } from './function-logs.ts';
import { countOf, differences, endOfHold, type HoldView, readHolds } from './holds.ts';
import { list } from './list.ts';
import { collectorStates, type KnownCollector, readEntries, runningMarkers } from './listing.ts';
import { examineNotifications } from './notifications.ts';
import { examineNotify } from './notify.ts';
import { placeOfBucket, REGION_OF_BUCKETS } from './planned-resources.ts';
import { outcomeOfTemplates } from './route-templates.ts';
import { proxyInUse } from './service-check.ts';
import { otherFormatIn, type PipelineStatus, pipelineStatus } from './status.ts';
import { type OfferedTemplate, TemplatesUnknownError, templates } from './templates.ts';
import { uploadName } from './upload-name.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** Without a write of the collector's state for so long, no tick is started. A tick writes it every ten seconds. */
const TICK_SILENCE_MAX_MS = 5 * MINUTE_MS;

/** The same time as that of the alarm `tick-missing`. */
const TICK_INCOMPLETE_MAX_MS = 40 * MINUTE_MS;

/** A collector that was taken away leaves its state behind. */
const COLLECTOR_GONE_MS = 24 * HOUR_MS;

/** A sweep begins every day, and goes on for some hours if the inbox is very large. */
const SWEEP_AGE_MAX_MS = 49 * HOUR_MS;

const WAIT_MAX_MS = HOUR_MS;

/** A pause that lasts longer may have been forgotten. */
const PAUSE_LONG_MS = 24 * HOUR_MS;

/** The share of a budget from which it is told, in percent: that of the first event. */
const BUDGET_TOLD_PERCENT = 80;

/** Below this pace, in requests a second, even a few files wait for each other. */
const PACE_LOW = 0.5;

/** Running uploads whose entries are read, to find one of another version. */
const RUNNING_READ_MAX = 200;

/** Uploads in doubt that are counted. */
const UNDECIDED_COUNTED_MAX = 1_000;

/** What the checks look at. The checks share the answers of AWS and of the service. */
interface Subject {
  readonly deployment: Deployment;
  readonly signal: AbortSignal;
  readonly status: () => Promise<PipelineStatus>;
  readonly offered: () => Promise<readonly OfferedTemplate[]>;
  readonly alarms: () => Promise<readonly Alarm[]>;
}

const CHECKS: Readonly<Record<string, Check<Subject>>> = {
  'outputs and resources': examineResources,
  'format of the ledger': examineFormat,
  'the flow service': examineService,
  'templates of the routes': examineTemplates,
  'listing of flows': examineListing,
  holds: examineHolds,
  budgets: examineBudgets,
  notifications: ({ deployment, signal }) => examineNotifications(deployment, signal),
  'runs of create-flow': async ({ deployment, signal, status }) =>
    examineRuns((await status()).queue.visible, deployment, signal),
  ticks: examineTicks,
  'errors of the functions': ({ deployment, signal }) => examineErrors(deployment, signal),
  'words of the service': examineWords,
  pace: examinePace,
  'dead letters': examineDeadLetters,
  'undecided files': examineUndecided,
  'oldest waiting': examineWaiting,
  'oldest running': examineRunning,
  'daily sweep': examineSweep,
  'hourly canary': ({ deployment, signal }) => examineHourlyCanary(deployment, signal),
  clocks: examineClocks,
  alarms: ofAlarms((alarms, { deployment, signal }) => examineAlarms(alarms, deployment, signal)),
  'alarms that are on': ofAlarms(examineRaised),
};

/** A check of the alarms. */
function ofAlarms(examine: (alarms: readonly Alarm[], subject: Subject) => Outcome | Promise<Outcome>): Check<Subject> {
  return async (subject) => examine(await subject.alarms(), subject);
}

/**
 * The checks of what only a deployment has. The user of a local run is watching, reads its log, and puts its files.
 */
const ONLY_DEPLOYED: readonly string[] = [
  ...['runs of create-flow', 'errors of the functions', 'hourly canary', 'alarms'],
  'alarms that are on',
];

/** Name of the first check. It is good once there is a connection. */
const CONNECTION_CHECK = 'credentials and connection';

/** What the doctor does beyond looking. */
export interface Trials {
  /** A file that is put into the inbox and followed to its receipt. */
  readonly canary?: CanaryFile | undefined;
  /** True if a test event is sent to the targets of `deployment.notify`. */
  readonly notify?: boolean | undefined;
}

/** Checks a pipeline from the outside in. Nothing is changed, and nothing is paid for without a canary. */
export async function doctor(
  deployment: Deployment,
  signal: AbortSignal,
  { canary, notify = false }: Trials = {},
): Promise<Diagnosis> {
  const subject: Subject = {
    ...{ deployment, signal },
    status: once(() => pipelineStatus(deployment, signal)),
    offered: once(() => templates(deployment, signal)),
    alarms: once(() => alarmsOf(deployment, signal)),
  };
  const checks: readonly NamedCheck<Subject>[] = [
    [CONNECTION_CHECK, () => 'good'],
    ...examineProxy(deployment),
    ...Object.entries(CHECKS).filter(([name]) => !(deployment.isLocal && ONLY_DEPLOYED.includes(name))),
    ...(notify ? [['notify', () => examineNotify(deployment, signal)] as const] : []),
    ...(canary === undefined ? [] : [['canary', () => examineCanary(canary, deployment, signal)] as const]),
  ];
  return { deployment: deployment.name, checks: await runChecks(checks, subject) };
}

/** Says that the functions use a proxy, if they do. */
function examineProxy({ settings: { baseUrl, proxies } }: Deployment): readonly NamedCheck<Subject>[] {
  const used = proxyInUse(baseUrl, proxies);
  return used === undefined ? [] : [['the proxy', () => ({ good: used })]];
}

/** The diagnosis if there is no connection. */
export const unreachable = (what: string, todo: string): Diagnosis => ({
  deployment: undefined,
  checks: [{ check: CONNECTION_CHECK, result: 'fault', what, todo }],
});

async function examineResources({ deployment, signal }: Subject): Promise<Outcome> {
  const { s3, settings, isLocal } = deployment;
  const todo = isLocal ? 'Start npm start again.' : DEPLOY_AGAIN;
  for (const bucket of [settings.inboxBucket, settings.resultsBucket, settings.ledgerBucket]) {
    const place = await placeOfBucket(bucket, s3, signal);
    if (place === 'nowhere') {
      return { severity: 'fault', what: `There is no bucket ${bucket}, which the functions use.`, todo };
    }
    if (place === 'elsewhere') {
      const what = `The bucket ${bucket} is in another region than the pipeline, so S3 refuses the requests of the functions.`;
      return { severity: 'fault', what, todo: REGION_OF_BUCKETS };
    }
  }
  try {
    await deployment.queueDepth(signal);
    if ((await deployment.deadLetterCount(signal)) !== undefined) return 'good';
  } catch (error) {
    if (!/QueueDoesNotExist|NonExistentQueue/.test((error as Error).name)) throw error;
    return { severity: 'fault', what: `There is no queue ${settings.queueUrl}, or no dead-letter queue.`, todo };
  }
  const what = 'No output DeadLetterQueue of a stack names the dead-letter queue, so dead letters are not seen.';
  return {
    severity: 'note',
    what,
    todo: 'Name the stack with --stack, and give it the output with the URL of the queue.',
  };
}

/** Tells whether another version wrote an entry of an upload that is under way, or the state of the sweep. */
async function examineFormat({ deployment, signal, status }: Subject): Promise<Outcome> {
  const ids: string[] = [];
  for await (const { uploadId } of runningMarkers(deployment, signal)) {
    if (ids.push(uploadId) === RUNNING_READ_MAX) break;
  }
  const what = (await status()).otherFormat ?? otherFormatIn(await readEntries(ids, deployment, signal));
  if (what === undefined) return 'good';
  return { severity: 'fault', what, todo: 'See docs/runbook.md, entries-unreadable.' };
}

/** What is wrong if the service answers a question of the function with an error of this code. */
const SERVICE_TODO: Readonly<Record<string, string>> = {
  unauthorised: 'Store a valid token in the secret: see docs/runbook.md, token-rejected.',
  forbidden: 'Ask the operator of the service what the token may do.',
  misaddressed: 'Correct baseUrl, and deploy: see docs/runbook.md, service-misaddressed.',
  unavailable: 'Check the address and whether the service is up. Uploads wait for it.',
  throttled: 'Wait a minute. If it stays, ask the operator of the service for a higher limit.',
};

async function examineService({ deployment, offered }: Subject): Promise<Outcome> {
  try {
    await offered();
    return 'good';
  } catch (error) {
    if (!(error instanceof TemplatesUnknownError)) throw error;
    const { code, answer, severity, isUnlisted } = error;
    if (isUnlisted) {
      return { notChecked: `the service at ${deployment.settings.baseUrl} lists no templates (${answer})` };
    }
    const what = `The service at ${deployment.settings.baseUrl} does not answer as it should: ${answer}`;
    return { severity, what, todo: SERVICE_TODO[code] ?? 'Check that the address is that of the flow service.' };
  }
}

async function examineTemplates({ deployment, offered }: Subject): Promise<Outcome> {
  if (!deployment.areRoutesKnown)
    return { notChecked: 'the first tick after the deployment has not told the routes yet' };
  let known: readonly OfferedTemplate[];
  try {
    known = await offered();
  } catch (error) {
    if (!(error instanceof TemplatesUnknownError)) throw error;
    return { notChecked: `the service does not say what it offers: ${error.code}` };
  }
  const words = { next: 'deploy', list: `What there is: ${deployment.command} templates` };
  return outcomeOfTemplates(deployment.settings.routes, known, words);
}

async function examineListing({ deployment, signal }: Subject): Promise<Outcome> {
  return outcomeOfListing(
    deployment.settings.service.list?.order,
    await deployment.collecting.invoke({ listing: true }, signal),
  );
}

/** Tells what is held, apart from budgets. A pause is wanted, and only a long one may have been forgotten. */
async function examineHolds(subject: Subject): Promise<Outcome> {
  const { holds, waiting } = await subject.status();
  if (holds.issue !== undefined) {
    return { severity: 'fault', what: holds.issue, todo: 'See docs/runbook.md, holds-unreadable.' };
  }
  const findings: Finding[] = [];
  for (const hold of holds.holds) {
    if (hold.reason === 'budget') continue;
    const count = countOf(hold, waiting.held);
    const held = count === 0 ? '' : ` Files that it holds: ${count}${waiting.isSample ? ' or more' : ''}.`;
    findings.push(await findingOfHold(hold, held, subject));
  }
  return combined(findings);
}

async function findingOfHold(hold: HoldView, held: string, { deployment, signal }: Subject): Promise<Finding> {
  const { reason, route, since = '' } = hold;
  const age = deployment.clock.now() - Date.parse(since);
  const { routes } = deployment.settings;
  const present = routes.find(({ name }) => name === route);
  const words = `${hold.message} For ${duration(age)}.${held}`;
  if (reason === 'paused' && route !== undefined && present === undefined && deployment.areRoutesKnown) {
    const what = `${words} No route has this name any more.`;
    const todo = `Its files keep the old route. Cancel them, or ${endOfHold(hold, deployment).replace(/^To/, 'to')}`;
    return { severity: 'warning', what, todo };
  }
  const todo = endOfHold(hold, deployment);
  if (reason === 'paused') return { severity: age < PAUSE_LONG_MS ? 'note' : 'warning', what: words, todo };
  const { succeeded } = (await readHolds(deployment, signal)).routes[route as string] ?? {};
  return { severity: 'warning', what: `${words} ${sinceSuccess(succeeded, present)}`, todo };
}

/** What changed in a route since a file of it last succeeded. That may be why its files fail. */
function sinceSuccess(succeeded: RouteHolds['succeeded'], present: Route | undefined): string {
  if (present === undefined) return '';
  if (succeeded === undefined) return 'No file of the route has succeeded yet.';
  const changes = differences(succeeded.request, present);
  if (changes.length === 0) return 'The route has not changed since a file of it last succeeded.';
  return `Since a file of the route last succeeded, it has changed: ${changes.join('; ')}.`;
}

/** Tells which budgets are spent, and which members can never matter. */
async function examineBudgets({ deployment, status }: Subject): Promise<Outcome> {
  const { budgets, holds } = (await status()).holds;
  const { settings } = deployment;
  const spent = budgets
    .filter(({ percent }) => percent >= BUDGET_TOLD_PERCENT)
    .map(({ route, percent, period, timezone, endsAt }): Finding => {
      const whose = route === undefined ? 'the pipeline' : `the route ${route}`;
      const isFull = holds.some((hold) => hold.reason === 'budget' && (hold.route ?? route) === route);
      return {
        severity: isFull ? 'warning' : 'note',
        what: `${percent}% of the budget of ${whose} is spent in ${period} (${timezone}).`,
        todo: isFull ? endOfHold({ reason: 'budget', endsAt }, deployment) : `The period ends at ${endsAt}.`,
      };
    });
  const idle = idleBudgets(settings.routes, settings.budget).map(
    (what): Finding => ({ severity: 'note', what, todo: 'Remove it, or correct it, and deploy.' }),
  );
  return combined([...spent, ...idle]);
}

async function examineTicks({ deployment, signal }: Subject): Promise<Outcome> {
  const collectors = await collectorStates(deployment, signal);
  const todo = 'See docs/runbook.md, tick-missing.';
  if (collectors.length === 0) {
    const what = 'No tick of the collecting function has ever run, so no results are fetched.';
    return { severity: 'fault', what, todo: `If it was deployed a minute ago, ask again. If not: ${todo}` };
  }
  const findings = collectors.flatMap((each) => {
    const finding = findingOfTicks(each, deployment.clock.now());
    return finding === undefined ? [] : [{ ...finding, todo }];
  });
  return findings.find(({ severity }) => severity === 'fault') ?? findings[0] ?? 'good';
}

function findingOfTicks({ index, state, writtenAt }: KnownCollector, now: number): Omit<Finding, 'todo'> | undefined {
  const silence = now - writtenAt;
  const who = index === 0 ? '' : ` of collector ${index}`;
  if (silence > TICK_SILENCE_MAX_MS) {
    const wasTakenAway = index > 0 && silence > COLLECTOR_GONE_MS;
    return {
      severity: wasTakenAway ? 'warning' : 'fault',
      what: `No tick${who} has run for ${duration(silence)}${wasTakenAway ? ', unless fewer collectors are wanted now' : ''}.`,
    };
  }
  const { tickCompletedAt, unfinishedRound } = state;
  if (tickCompletedAt === undefined) return { severity: 'warning', what: `No tick${who} has come to its end yet.` };
  if (now - tickCompletedAt > TICK_INCOMPLETE_MAX_MS) {
    return { severity: 'fault', what: `All ticks${who} were cut short for ${duration(now - tickCompletedAt)}.` };
  }
  if (unfinishedRound === undefined || now - unfinishedRound.startedAt < TICK_INCOMPLETE_MAX_MS) return undefined;
  const age = duration(now - unfinishedRound.startedAt);
  return { severity: 'warning', what: `Ticks${who} are cut short: a round over the running flows began ${age} ago.` };
}

/** Tells the words of the service that its description does not declare. */
async function examineWords({ deployment, signal }: Subject): Promise<Outcome> {
  const counts = new Map<string, number>();
  for (const { state } of await collectorStates(deployment, signal)) {
    for (const { word, polls } of Object.values(state.unclear ?? {})) {
      if (word !== undefined && polls >= TOLD_AFTER_POLLS) counts.set(word, (counts.get(word) ?? 0) + 1);
    }
  }
  const todo = 'Find out what it means, and declare it in service: see docs/runbook.md, words-undeclared.';
  return combined(
    [...counts].map(([word, count]) => ({
      severity: 'fault',
      what: `The service shows ${count === 1 ? '1 flow' : `${count} flows`} as "${word}", a word that its description does not declare. Nothing of them is collected.`,
      todo,
    })),
  );
}

async function examinePace({ status }: Subject): Promise<Outcome> {
  const paces = (await status()).collectors.flatMap(({ requestsPerSecond }) => requestsPerSecond ?? []);
  if (paces.length === 0) return 'good';
  const slowest = Math.min(...paces);
  return {
    severity: slowest < PACE_LOW ? 'warning' : 'note',
    what: `The service has refused requests for being too many. It allows ${slowest.toPrecision(2)} a second.`,
    todo: 'Nothing is lost. If files come too late, ask the operator of the service for a higher limit.',
  };
}

async function examineDeadLetters({ status }: Subject): Promise<Outcome> {
  const { deadLetters } = await status();
  if (deadLetters === undefined) return { notChecked: 'no output DeadLetterQueue of a stack names the queue' };
  if (deadLetters === 0) return 'good';
  const what = `The dead-letter queue holds ${deadLetters === 1 ? '1 upload' : `${deadLetters} uploads`} that could not be started.`;
  return { severity: 'fault', what, todo: 'Remove the cause, and send them back: see docs/runbook.md, dead-letters.' };
}

async function examineUndecided({ deployment, signal }: Subject): Promise<Outcome> {
  const { uploads, isCut } = await list({ state: 'undecided', limit: UNDECIDED_COUNTED_MAX }, deployment, signal);
  const [first] = uploads;
  if (first === undefined) return 'good';
  const count = `${isCut ? 'more than ' : ''}${uploads.length}`;
  const what = `Files wait for your decision, because a flow of each may exist: ${count}, such as ${uploadName(first.key)}.`;
  const todo = `Look for their flows at the service. Then retry or cancel each: ${deployment.command} list --undecided`;
  return { severity: 'warning', what, todo };
}

async function examineWaiting({ deployment, status }: Subject): Promise<Outcome> {
  const { count, oldestArrivedAt, reasons } = (await status()).waiting;
  if (oldestArrivedAt === undefined) return 'good';
  const age = deployment.clock.now() - Date.parse(oldestArrivedAt);
  if (age < WAIT_MAX_MS) return 'good';
  const named = Object.entries(reasons).map(([reason, number]) => `${number} ${reason}`);
  const what = `The oldest waiting file (of ${count}) came ${agoText(age)} (${named.join(', ')}).`;
  return { severity: 'warning', what, todo: `See why: ${deployment.command} list --waiting` };
}

async function examineRunning({ deployment, status }: Subject): Promise<Outcome> {
  const { count, oldestCreatedAt } = (await status()).running;
  if (oldestCreatedAt === undefined) return 'good';
  const age = deployment.clock.now() - Date.parse(oldestCreatedAt);
  const most = deployment.settings.flowAgeMaxSeconds * SECOND_MS;
  if (age < most / 2) return 'good';
  const what = `The oldest running flow (of ${count}) began ${agoText(age)}. At ${duration(most)} it counts as failed.`;
  return {
    severity: 'warning',
    what,
    todo: `Ask the service what it does. Which one it is: ${deployment.command} list --running`,
  };
}

async function examineSweep({ deployment, status }: Subject): Promise<Outcome> {
  const { sweep } = await status();
  if (sweep === undefined) {
    if (deployment.isLocal) return 'good'; // It may not run for a day.
    const what = 'No daily sweep has ended yet.';
    return {
      severity: 'note',
      what,
      todo: `If the deployment is older than a day: ${deployment.command} sweep --dry-run`,
    };
  }
  const age = deployment.clock.now() - Date.parse(sweep.endedAt);
  if (sweep.missed > 0) {
    const what = `The last daily sweep, ${agoText(age)}, submitted uploads that no notification told of: ${sweep.missed}.`;
    return { severity: 'warning', what, todo: 'See docs/runbook.md, uploads-missed.' };
  }
  if (age < SWEEP_AGE_MAX_MS || deployment.isLocal) return 'good';
  const what = `The last daily sweep ended ${agoText(age)}, so missed uploads stay missed.`;
  return { severity: 'fault', what, todo: 'See docs/runbook.md, sweep-missing.' };
}

/** Compares the time of S3's answer with ours. */
async function examineClocks({ deployment, signal }: Subject): Promise<Outcome> {
  const { s3, settings, clock } = deployment;
  const command = new ListObjectsV2Command({ Bucket: settings.ledgerBucket, MaxKeys: 1 });
  let theirs = Number.NaN;
  command.middlewareStack.add(
    (next) => async (args) => {
      const result = await next(args);
      const { headers = {} } = result.response as { readonly headers?: Readonly<Record<string, string>> };
      theirs = Date.parse(headers.date ?? '');
      return result;
    },
    { step: 'deserialize', priority: 'low' },
  );
  await s3.send(command, { abortSignal: signal });
  if (Number.isNaN(theirs)) return { notChecked: 'the answer of S3 has no time' };
  const skew = clock.now() - theirs;
  if (Math.abs(skew) <= CLOCK_SKEW_MAX_MS) return 'good';
  const what = `The clock of this machine is ${duration(Math.abs(skew))} ${skew > 0 ? 'ahead of' : 'behind'} that of S3.`;
  return { severity: 'fault', what, todo: 'Set the clock, for example by turning on its synchronisation.' };
}
