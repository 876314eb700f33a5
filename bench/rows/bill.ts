import { App, Stack } from 'aws-cdk-lib';
import { Template } from 'aws-cdk-lib/assertions';
import { isWritten, type MetricName, type Monitoring } from '../../functions/base/telemetry.ts';
import { EARLY_POLLS, isEarly } from '../../functions/collect-outputs/poll-schedule.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import { PRICES, PRICES_DATE } from '../prices.ts';
import { atMost, type Check, type Table } from '../report.ts';
import { type FileCosts, priceOf, type Spent } from './costs.ts';

/*
 * The bill of AWS for a month: what is deployed is counted in the template, and what is requested in the row "costs".
 */

const MINUTES = 730 * 60;
const MINUTE_MS = 60_000;
const INTERVAL_MS = SETTINGS_DEFAULT.pollIntervalSeconds * 1000;
/** Time in which a tick begins rounds: `TICK_MS` of `tick.ts`. */
const TICK_MS = 55_000;
/** Lambda asks a queue with five requests at a time, which wait for 20 seconds if it is empty. */
const ASKED_A_MINUTE = 5 * 3;
/** Processes that read the token when it is five minutes old: one of each function. */
const TOKEN_READS_A_MINUTE = 2 / 5;
/** Bytes of a ledger entry. */
const ENTRY_BYTES = 1_000;

interface Month {
  readonly name: string;
  readonly files: number;
  /** Time between two files. The youngest flow is never older. Undefined without files. */
  readonly gapMs: number | undefined;
  /** Dollars that it may cost with `monitoring: "alarms"`. */
  readonly max: number;
}

const MONTHS: readonly Month[] = [
  { name: 'nothing', files: 0, gapMs: undefined, max: 5 },
  { name: 'one file a minute, each with a flow of a minute', files: MINUTES, gapMs: MINUTE_MS, max: 20 },
  { name: 'a million files', files: 1_000_000, gapMs: (MINUTES * MINUTE_MS) / 1_000_000, max: 58 },
];

export function monthsOf(
  file: FileCosts,
  rounds: { readonly tick: Spent; readonly round: Spent },
): { readonly table: Table; readonly checks: readonly Check[] } {
  const bills = (['full', 'alarms'] as const).flatMap((monitoring) =>
    MONTHS.map((month) => ({ monitoring, month, bill: billOf(month, monitoring, file, rounds) })),
  );
  const sum = (bill: object): number => Object.values(bill).reduce((total, dollars) => total + dollars, 0);
  return {
    table: {
      title: `A month, in US dollars, prices of ${PRICES_DATE}, files of 20 KB`,
      columns: ['month', 'monitoring', ...Object.keys(bills[0]?.bill ?? {}), 'sum'],
      rows: bills.map(({ monitoring, month, bill }) => [
        month.name,
        monitoring,
        ...[...Object.values(bill), sum(bill)].map((dollars) => dollars.toFixed(2)),
      ]),
    },
    checks: bills
      .filter(({ monitoring }) => monitoring === 'alarms')
      .map(({ month, bill }) => atMost(`costs: a month of ${month.name}, alarms only`, sum(bill), month.max, ' $')),
  };
}

function billOf(
  { files, gapMs }: Month,
  monitoring: Monitoring,
  file: FileCosts,
  { tick, round }: { readonly tick: Spent; readonly round: Spent },
) {
  const { alarmMetrics, dashboards, eventSources } = deployed(monitoring);
  const ofFiles = files === 0 ? [] : [...file.metrics, 'OldestRunningSeconds'];
  const written = new Set([...tick.metrics, ...ofFiles].filter((name) => isWritten(name as MetricName, monitoring)));
  const laterRounds = MINUTES * (gapMs === undefined ? 0 : roundsAMinute(gapMs) - 1);
  return {
    files: files * file.total,
    ticks: MINUTES * (dollarsOf(tick) + PRICES.schedulerInvocation),
    // A message is sent, received and deleted.
    rounds: laterRounds * (dollarsOf(round) + 3 * PRICES.sqsRequest),
    queues: eventSources * MINUTES * ASKED_A_MINUTE * PRICES.sqsRequest,
    secret: PRICES.secretMonth + (files === 0 ? 0 : MINUTES * TOKEN_READS_A_MINUTE * PRICES.secretRead),
    metrics: written.size * PRICES.metricMonth,
    alarms: alarmMetrics * PRICES.alarmMetricMonth,
    dashboard: dashboards * PRICES.dashboardMonth,
    ledger: ((files * ENTRY_BYTES) / 1e9) * PRICES.s3GbMonth,
  };
}

const dollarsOf = ({ gbSeconds, s3, loggedBytes }: Spent): number =>
  gbSeconds * PRICES.lambdaGbSecondArm64 + PRICES.lambdaRequest + priceOf(s3) + (loggedBytes / 1e9) * PRICES.logsGb;

/** Rounds of a tick, on average over the times at which the files come. */
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
