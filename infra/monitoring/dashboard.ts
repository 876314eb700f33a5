import { Aws, Duration } from 'aws-cdk-lib';
import {
  AlarmStatusWidget,
  Dashboard,
  GraphWidget,
  type IAlarm,
  type IMetric,
  PeriodOverride,
  Stats,
} from 'aws-cdk-lib/aws-cloudwatch';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import type { IQueue } from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { PipelineMetrics } from './metrics.ts';

/** CloudWatch's grid. */
const COLUMNS = 24;
const PERIOD = Duration.minutes(5);

export interface PipelineDashboardProps {
  readonly pipeline: string;
  readonly alarms: readonly IAlarm[];
  readonly queue: IQueue;
  readonly deadLetterQueue: IQueue;
  readonly createFlowFunction: IFunction;
  readonly collectOutputsFunction: IFunction;
}

/** Is it working, how much, how fast, what failed: a row for each question. */
export class PipelineDashboard extends Construct {
  constructor(scope: Construct, id: string, props: PipelineDashboardProps) {
    super(scope, id);
    const { pipeline, alarms, queue, deadLetterQueue, createFlowFunction, collectOutputsFunction } = props;
    const metrics = new PipelineMetrics(pipeline);
    const dashboard = new Dashboard(this, 'Dashboard', {
      // Dashboards of all regions share their names.
      dashboardName: `${pipeline}-${Aws.REGION}`,
      periodOverride: PeriodOverride.INHERIT,
      defaultInterval: Duration.days(1),
    });
    const functions = [createFlowFunction, collectOutputsFunction];
    dashboard.addWidgets(
      new AlarmStatusWidget({ title: 'Is it working?', alarms: [...alarms], width: (COLUMNS * 3) / 4 }),
      graph('Ticks', metrics.sum('TicksCompleted'), metrics.sum('TicksCutShort'))(COLUMNS / 4),
    );
    dashboard.addWidgets(
      ...row(
        graph('Uploads', metrics.sum('UploadsReceived'), metrics.sum('UploadsUnrouted'), metrics.sum('UploadsMissed')),
        graph('Flows', metrics.sum('FlowsCreated'), metrics.sum('FlowsSucceeded'), metrics.sum('FlowsFailed')),
        graph('Bytes', metrics.sum('InputBytes'), metrics.sum('AssetBytes')),
        graph('Running flows', metrics.maximum('FlowsRunning')),
      ),
    );
    dashboard.addWidgets(
      ...row(
        graph('Upload to result (s)', ...[50, 95].map((percent) => metrics.percentile('SecondsToResult', percent))),
        graph(
          'Oldest that runs, oldest that waits (s)',
          metrics.maximum('OldestRunningSeconds'),
          metrics.maximum('OldestWaitingSeconds'),
        ),
        graph('Oldest upload in the queue (s)', queue.metricApproximateAgeOfOldestMessage({ period: PERIOD })),
        graph(
          'Longest invocation (ms)',
          ...functions.map((each) => each.metricDuration({ statistic: Stats.MAXIMUM, period: PERIOD })),
        ),
      ),
    );
    dashboard.addWidgets(
      ...row(
        graph(
          'Waiting',
          metrics.sum('UploadsWaiting'),
          metrics.sum('UploadsResubmitted'),
          metrics.sum('TokenRejected'),
        ),
        graph(
          'Doubts',
          metrics.sum('DoubtsRetried'),
          metrics.sum('DoubtsHeld'),
          metrics.sum('FlowsOrphaned'),
          metrics.sum('FlowsShared'),
        ),
        graph('Failed outputs', metrics.sum('AssetsFailed')),
        graph(
          'Errors',
          ...functions.map((each) => each.metricErrors({ period: PERIOD })),
          ...functions.map((each) => each.metricThrottles({ period: PERIOD })),
          metrics.sum('EntriesUnreadable'),
          deadLetterQueue.metricApproximateNumberOfMessagesVisible({ statistic: Stats.MAXIMUM, period: PERIOD }),
        ),
      ),
    );
  }
}

const graph =
  (title: string, ...left: IMetric[]) =>
  (width: number) =>
    new GraphWidget({ title, left, width });

const row = (...graphs: ((width: number) => GraphWidget)[]) => graphs.map((each) => each(COLUMNS / graphs.length));
