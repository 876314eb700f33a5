import { App, Stack } from 'aws-cdk-lib';
import { Template } from 'aws-cdk-lib/assertions';
import type { Monitoring } from '../../functions/base/telemetry.ts';
import { EARLY_POLLS, isEarly } from '../../functions/collect-outputs/poll-schedule.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import { PRICES, PRICES_DATE } from '../prices.ts';
import { atMost, type Check, type Table } from '../report.ts';
import { CASES } from './alone.ts';
import { billFor, type Spent, sumOf } from './spent.ts';

/*
 * The bill of AWS for a month: what is deployed is counted in the template, and what is requested in the row "costs".
 */

const DAYS = 730 / 24;
const MINUTES = 730 * 60;
const MINUTE_MS = 60_000;
const INTERVAL_MS = SETTINGS_DEFAULT.pollIntervalSeconds * 1000;
/** Time in which a tick begins rounds: `TICK_MS` of `tick.ts`. */
const TICK_MS = 55_000;
/** Lambda asks a queue with five requests at a time, which wait for 20 seconds if it is empty. */
const ASKED_A_MINUTE = 5 * 3;
/** Processes that read the token when it is five minutes old: one of each function. */
const TOKEN_READS_A_MINUTE = 2 / 5;
/** Keys in a page of a listing. */
const PAGE_KEYS = 1_000;
/** Days of entries that the daily sweep lists. */
const SWEPT_DAYS = 4;

type Kind = Exclude<keyof typeof CASES, 'jobOf2'>;

interface Month {
  readonly name: string;
  /** What comes. Undefined if nothing does. */
  readonly of?: Kind;
  readonly count: number;
  /** Dollars that it may cost with `monitoring: "alarms"`. Undefined without a target. */
  readonly max?: number;
}

const MONTHS: readonly Month[] = [
  { name: 'nothing', count: 0, max: 5 },
  { name: 'one file a minute, each with a flow of a minute', of: 'file', count: MINUTES, max: 20 },
  { name: 'the same, each with a later stage', of: 'chain', count: MINUTES },
  { name: 'one job of three files a minute', of: 'jobOf3', count: MINUTES },
  // One comes every 2.6 seconds, and a round collects every 5.
  { name: 'a million files', of: 'pair', count: 1_000_000, max: 58 },
];

/** The same with `monitoring: "alarms"` and `"full"`, which logs more. */
export type ByMonitoring = Readonly<Record<Exclude<Monitoring, 'none'>, Spent>>;

type Kinds = Readonly<Record<Kind, ByMonitoring>>;

/** A tick that finds nothing, and a later round of a tick. */
export interface Rounds {
  readonly tick: ByMonitoring;
  readonly round: ByMonitoring;
}

export function monthsOf(kinds: Kinds, rounds: Rounds): { readonly table: Table; readonly checks: readonly Check[] } {
  const bills = (['full', 'alarms'] as const).flatMap((monitoring) =>
    MONTHS.map((month) => ({ monitoring, month, bill: billOf(month, monitoring, kinds, rounds) })),
  );
  return {
    table: {
      title: `A month, in US dollars, prices of ${PRICES_DATE}, files of 20 KB that come evenly`,
      columns: ['month', 'monitoring', ...Object.keys(bills[0]?.bill ?? {}), 'sum'],
      rows: bills.map(({ monitoring, month, bill }) => [
        month.name,
        monitoring,
        ...[...Object.values(bill), sumOf(bill)].map((dollars) => dollars.toFixed(2)),
      ]),
    },
    checks: bills.flatMap(({ monitoring, month: { name, max }, bill }) =>
      monitoring === 'full' || max === undefined
        ? []
        : [atMost(`costs: a month of ${name}, alarms only`, sumOf(bill), max, ' $')],
    ),
  };
}

function billOf({ of, count }: Month, monitoring: keyof ByMonitoring, kinds: Kinds, rounds: Rounds) {
  const { alarmMetrics, dashboards, eventSources } = deployed(monitoring);
  const [tick, round] = [rounds.tick[monitoring], rounds.round[monitoring]];
  const own = of && kinds[of][monitoring];
  const written = new Set([...tick.metrics, ...(own?.metrics ?? [])]);
  const laterRounds = own === undefined ? 0 : MINUTES * (roundsAMinute((MINUTES * MINUTE_MS) / count) - 1);
  return {
    files: own === undefined ? 0 : count * sumOf(billFor(own)),
    ticks: MINUTES * (sumOf(billFor(tick)) + PRICES.schedulerInvocation),
    rounds: laterRounds * sumOf(billFor(round)),
    sweeps: sweepsOf(of, count),
    queues: eventSources * MINUTES * ASKED_A_MINUTE * PRICES.sqsRequest,
    secret: PRICES.secretMonth + (own === undefined ? 0 : MINUTES * TOKEN_READS_A_MINUTE * PRICES.secretRead),
    metrics: written.size * PRICES.metricMonth,
    alarms: alarmMetrics * PRICES.alarmMetricMonth,
    dashboard: dashboards * PRICES.dashboardMonth,
  };
}

/** The daily sweeps of a month, in which the inbox begins empty: of inbox, ledger and what waits. Each page is noted. */
function sweepsOf(of: Kind | undefined, count: number): number {
  const pages = DAYS * 3 + ((DAYS * count) / 2 + SWEPT_DAYS * count) / PAGE_KEYS;
  return 2 * pages * PRICES.s3Write + (of === undefined ? 0 : count * CASES[of].sweepReads * PRICES.s3Read);
}

/** Rounds of a tick, on average over the times at which the files come. The youngest flow is never older than the gap. */
function roundsAMinute(gapMs: number): number {
  let rounds = 0;
  for (let offset = 0; offset < MINUTE_MS; offset += 1_000) {
    for (let at = 0; at < TICK_MS; rounds += 1) {
      const age = (at + offset) % gapMs;
      at += isEarly(0, age, INTERVAL_MS) ? INTERVAL_MS / EARLY_POLLS : INTERVAL_MS;
    }
  }
  return rounds / (MINUTE_MS / 1_000);
}

/** What is deployed and paid for by the month. */
function deployed(monitoring: Monitoring) {
  const stack = new Stack(new App({ context: { 'aws:cdk:bundling-stacks': [] } }), 'bench');
  const routes = [{ name: 'all', template: 'bytes_echo' }];
  new FlowPipeline(stack, 'Pipeline', { baseUrl: 'https://flows.example.com', routes, monitoring });
  const template = Template.fromStack(stack);
  const found = (type: string) => Object.values(template.findResources(type));
  return {
    alarmMetrics: found('AWS::CloudWatch::Alarm').reduce((sum, { Properties: { Metrics } }) => {
      const measured = (Metrics as { MetricStat?: object }[] | undefined)?.filter(({ MetricStat }) => MetricStat);
      return sum + (measured?.length ?? 1);
    }, 0),
    dashboards: found('AWS::CloudWatch::Dashboard').length,
    eventSources: found('AWS::Lambda::EventSourceMapping').length,
  };
}
