import { Aws, Duration } from 'aws-cdk-lib';
import {
  AlarmStatusWidget,
  Dashboard,
  GraphWidget,
  type IAlarm,
  type IMetric,
  MathExpression,
  PeriodOverride,
  Stats,
} from 'aws-cdk-lib/aws-cloudwatch';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import type { IQueue } from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { PipelineMetrics } from './metrics.ts';

/** Width of CloudWatch's grid. */
const COLUMNS = 24;
const PERIOD = Duration.minutes(5);

/** @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html */
const WIDGET_ALARMS_MAX = 100;

export interface PipelineDashboardProps {
  readonly pipeline: string;
  readonly alarms: readonly IAlarm[];
  readonly queue: IQueue;
  readonly deadLetterQueue: IQueue;
  readonly createFlowFunction: IFunction;
  readonly collectOutputsFunction: IFunction;
}

/** One row for each question: is it working, how much, how fast, what failed, what is held. */
export class PipelineDashboard extends Construct {
  constructor(scope: Construct, id: string, props: PipelineDashboardProps) {
    super(scope, id);
    const metrics = new PipelineMetrics(props.pipeline);
    const dashboard = new Dashboard(this, 'Dashboard', {
      // Names of dashboards are unique across all regions of an account.
      dashboardName: `${props.pipeline}-${Aws.REGION}`,
      periodOverride: PeriodOverride.INHERIT,
      defaultInterval: Duration.days(1),
    });
    dashboard.addWidgets(
      ...isItWorking(props.alarms),
      graph('Ticks', metrics.sum('TicksCompleted'), metrics.sum('TicksCutShort'))(COLUMNS / 4),
      graph('Looks into the queue', looksInto(props.queue))(COLUMNS / 4),
    );
    dashboard.addWidgets(...howMuch(metrics));
    dashboard.addWidgets(...howFast(metrics, props));
    dashboard.addWidgets(...whatFailed(metrics, props));
    dashboard.addWidgets(...whatIsHeld(metrics));
  }
}

/** There may be none, if the app leaves all out, and a few more than one widget can show. */
const isItWorking = (alarms: readonly IAlarm[]): readonly AlarmStatusWidget[] =>
  [alarms.slice(0, WIDGET_ALARMS_MAX), alarms.slice(WIDGET_ALARMS_MAX)]
    .filter((part) => part.length > 0)
    .map((part) => new AlarmStatusWidget({ title: 'Is it working?', alarms: part, width: COLUMNS / 2 }));

function howMuch(metrics: PipelineMetrics): readonly GraphWidget[] {
  return row(
    graph('Uploads', metrics.sum('UploadsReceived'), metrics.sum('UploadsUnrouted'), metrics.sum('UploadsMissed')),
    graph('Flows', metrics.sum('FlowsCreated'), metrics.sum('FlowsSucceeded'), metrics.sum('UploadsFailed')),
    graph('Bytes', metrics.sum('InputBytes'), metrics.sum('AssetBytes')),
    graph('Running flows', metrics.maximum('FlowsRunning')),
  );
}

function howFast(metrics: PipelineMetrics, props: PipelineDashboardProps): readonly GraphWidget[] {
  return row(
    graph('Upload to result (s)', ...[50, 95].map((percent) => metrics.percentile('SecondsToResult', percent))),
    graph(
      'Oldest that runs, oldest that waits (s)',
      metrics.maximum('OldestRunningSeconds'),
      metrics.maximum('OldestWaitingSeconds'),
    ),
    graph('Oldest upload in the queue (s)', props.queue.metricApproximateAgeOfOldestMessage({ period: PERIOD })),
    graph(
      'Longest invocation (ms)',
      ...functionsOf(props).map((each) => each.metricDuration({ statistic: Stats.MAXIMUM, period: PERIOD })),
    ),
  );
}

function whatFailed(metrics: PipelineMetrics, props: PipelineDashboardProps): readonly GraphWidget[] {
  const functions = functionsOf(props);
  return row(
    graph(
      'Waiting',
      metrics.sum('UploadsWaiting'),
      metrics.sum('UploadsResubmitted'),
      metrics.sum('TokenRejected'),
      metrics.sum('ServiceMisaddressed'),
    ),
    graph(
      'Doubts',
      metrics.sum('DoubtsRetried'),
      metrics.sum('DoubtsHeld'),
      metrics.sum('FlowsOrphaned'),
      metrics.sum('FlowsShared'),
      metrics.sum('WordsUndeclared'),
    ),
    graph('Failed outputs', metrics.sum('AssetsFailed')),
    graph(
      'Errors',
      ...functions.map((each) => each.metricErrors({ period: PERIOD })),
      ...functions.map((each) => each.metricThrottles({ period: PERIOD })),
      metrics.sum('EntriesUnreadable'),
      metrics.sum('HoldsUnreadable'),
      metrics.sum('SweepStateDamaged'),
      metrics.sum('UploadsReturned'),
      metrics.sum('UploadsDenied'),
      props.deadLetterQueue.metricApproximateNumberOfMessagesVisible({ statistic: Stats.MAXIMUM, period: PERIOD }),
    ),
  );
}

const whatIsHeld = (metrics: PipelineMetrics): readonly GraphWidget[] =>
  row(
    graph('Held uploads, failing routes', metrics.sum('UploadsHeld'), metrics.maximum('RoutesFailing')),
    graph('Highest share of a budget (%)', metrics.maximum('BudgetSpentPercent')),
  );

/** Lambda looks into the queue all the time, unless its event source mapping is off. */
const looksInto = (queue: IQueue): IMetric =>
  new MathExpression({
    expression: 'FILL(empty, 0) + FILL(received, 0)',
    usingMetrics: {
      empty: queue.metricNumberOfEmptyReceives({ period: PERIOD }),
      received: queue.metricNumberOfMessagesReceived({ period: PERIOD }),
    },
    period: PERIOD,
    label: 'Empty receives, and received messages',
  });

const functionsOf = (props: PipelineDashboardProps): readonly IFunction[] => [
  props.createFlowFunction,
  props.collectOutputsFunction,
];

const graph =
  (title: string, ...left: IMetric[]) =>
  (width: number) =>
    new GraphWidget({ title, left, width });

/** Graphs that share the width of the dashboard equally. */
const row = (...graphs: ((width: number) => GraphWidget)[]) => graphs.map((each) => each(COLUMNS / graphs.length));
