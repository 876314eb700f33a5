import { Duration } from 'aws-cdk-lib';
import { type IMetric, MathExpression, type Metric, Stats } from 'aws-cdk-lib/aws-cloudwatch';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import type { IQueue } from 'aws-cdk-lib/aws-sqs';
import type { AlarmMetricName } from '../../functions/base/telemetry.ts';
import { BACKOFF_MAX_MS, DUE_AGAIN_MS, HELD_WAIT_MS } from '../../functions/ledger/waits.ts';
import type { AlarmName } from '../../functions/settings/alarm-names.ts';
import type { FunctionName } from '../bundle/bundle.ts';
import { PipelineMetrics } from './metrics.ts';

/** With `monitoring: "alarms"`, no other metrics are written. */
type AlarmMetrics = PipelineMetrics<AlarmMetricName>;

const FIVE_MINUTES = Duration.minutes(5);

/** Age at which a running flow counts as stuck, if no other flow ends either. */
const STUCK_AGE = Duration.hours(6);

/**
 * Age of the oldest queued message that raises an alarm. Messages are received at once, unless something delays every
 * file or their invocation crashed. SQS leaves a message out of this metric after its third receive. That is 34 minutes
 * after the first at the earliest, because a message stays hidden for 17 minutes or more.
 * @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
 */
const QUEUE_AGE = Duration.minutes(30);

/**
 * Age of the oldest queued message after which nothing can be receiving. A message that is received comes to its end
 * after five hours, as a dead letter.
 */
const STOPPED_AGE = Duration.days(1);

/** Age of the oldest waiting upload that raises an alarm. By then it was resubmitted many times. */
const WAITING_AGE = Duration.hours(6);

/** Age of the last sweep that raises an alarm. A sweep is due every day. */
const SWEEP_AGE = Duration.days(2);

/**
 * Period in which a lasting condition is measured about once. A waiting upload is resubmitted after this time, give or
 * take half. Flows that share an id are counted by every tick.
 */
const RETRY_PERIOD = Duration.millis(BACKOFF_MAX_MS);

/** The same for an upload that is undecided or has an unreadable entry. */
const LONG_RETRY_PERIOD = Duration.millis(Math.max(HELD_WAIT_MS, DUE_AGAIN_MS));

/**
 * Period in which at least one tick must complete. A tick is counted at its end and may take 15 minutes. Two kinds of
 * tick are not counted: those that find their lease taken, and those that the service cut short by answering no
 * request.
 */
const TICK_PERIOD = Duration.minutes(20);

/** Period in which at least one canary must come to its receipt. One is put every hour. */
const CANARY_PERIOD = Duration.hours(1);

/**
 * Time that a flow has for its end after twice its maximum age: a quarter of an hour until its next poll, and one run
 * of a quarter of an hour, which may begin a tick later.
 */
const OVERDUE_MARGIN = Duration.hours(1);

/** The parts of a pipeline that the alarms monitor. */
export interface Monitored {
  readonly pipeline: string;
  readonly queue: IQueue;
  readonly deadLetterQueue: IQueue;
  /** Each has the events that one target of `notify` could not be told of. */
  readonly notifyDeadLetters: readonly IQueue[];
  readonly createFlowFunction: IFunction;
  readonly collectOutputsFunction: IFunction;
  /** Number of collectors that share the running flows. */
  readonly collectors: number;
  /** Maximum age of a running flow, in seconds. */
  readonly flowAgeMaxSeconds: number;
  /** Key of the file that is put again every hour. Empty if there is none. */
  readonly canaryKey: string;
  /** True if the pipeline or a route has a budget. */
  readonly hasBudgets: boolean;
}

export type Severity = 'page' | 'ticket';

/** One condition that needs the operator. */
export interface Condition {
  readonly name: AlarmName;
  /** Tells alarms of one name apart. */
  readonly number?: number;
  /** `page`: files wait until an operator acts. `ticket`: the rest goes on, and it can wait until morning. */
  readonly severity: Severity;
  /** What the alarm means, as a sentence. Shown in the console. */
  readonly meaning: string;
  /** What the operator should do, as a sentence. Shown in the console after the meaning. */
  readonly action: string;
  readonly metric: IMetric;
  /** The alarm is raised at this value and above. Without a datapoint, it is not raised. */
  readonly threshold: number;
  /**
   * How many periods must meet the condition, and out of how many.
   * @default [1, 1]
   */
  readonly periods?: readonly [number, number];
}

/** All conditions that raise an alarm. CONTRIBUTING.md says what a new one touches. */
export function conditions(monitored: Monitored): readonly Condition[] {
  const metrics: AlarmMetrics = new PipelineMetrics(monitored.pipeline);
  return [
    ...queueConditions(monitored),
    ...notifyConditions(monitored.notifyDeadLetters),
    ...uploadConditions(metrics),
    ...holdConditions(metrics),
    ...(monitored.hasBudgets ? budgetConditions(metrics) : []),
    ...flowConditions(metrics, monitored.flowAgeMaxSeconds),
    ...canaryConditions(metrics, monitored),
    tickCondition(metrics, monitored),
    ...collectorConditions(metrics, monitored),
    ...functionConditions('create-flow', monitored.createFlowFunction),
    ...functionConditions('collect-outputs', monitored.collectOutputsFunction),
  ];
}

/** EventBridge tries a delivery for a day, unless the answer says that it is in vain. */
const notifyConditions = (queues: readonly IQueue[]): readonly Condition[] =>
  queues.map((queue, index) => ({
    name: 'notify-failed',
    number: index + 1,
    severity: 'ticket',
    meaning: `Target ${index + 1} of notify could not be told of an event.`,
    action: 'Find out why it does not take events. Files are not affected.',
    metric: queue.metricApproximateNumberOfMessagesVisible({ statistic: Stats.MAXIMUM, period: FIVE_MINUTES }),
    threshold: 1,
  }));

/**
 * SQS writes these metrics for as long as a queue has messages, even if nothing receives them.
 * @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
 */
function queueConditions({ queue, deadLetterQueue }: Monitored): readonly Condition[] {
  const options = { statistic: Stats.MAXIMUM, period: FIVE_MINUTES };
  return [
    {
      name: 'dead-letters',
      severity: 'page',
      meaning:
        'Messages about uploads were received twenty times and never handled. Only the daily sweep submits their uploads.',
      action: 'Remove the cause, then move the messages back to the queue.',
      metric: deadLetterQueue.metricApproximateNumberOfMessagesVisible(options),
      threshold: 1,
    },
    {
      name: 'uploads-delayed',
      severity: 'ticket',
      meaning: 'The oldest upload has been in the queue for half an hour or more.',
      action: 'Find out whether it is load, a limit of the flow service or a crash.',
      metric: queue.metricApproximateAgeOfOldestMessage(options),
      threshold: QUEUE_AGE.toSeconds(),
    },
    {
      name: 'uploads-stopped',
      severity: 'page',
      meaning: 'The oldest upload has been in the queue for a day or more: nothing receives.',
      action: 'See whether the event source mapping is on. Uploads stay in the queue for 14 days.',
      metric: queue.metricApproximateAgeOfOldestMessage(options),
      threshold: STOPPED_AGE.toSeconds(),
    },
  ];
}

function uploadConditions(metrics: AlarmMetrics): readonly Condition[] {
  return [
    {
      name: 'flows-failed',
      severity: 'ticket',
      meaning: 'Uploads ended as failed.',
      action: 'Read their receipts: each gives the reason, and says what to do.',
      metric: metrics.sum('UploadsFailed', FIVE_MINUTES),
      threshold: 1,
    },
    {
      name: 'token-rejected',
      severity: 'page',
      meaning: 'The flow service rejects the token, so all uploads wait.',
      action: 'Store a new token in the secret.',
      ...whileMeasured(metrics.sum('TokenRejected', RETRY_PERIOD)),
      threshold: 1,
    },
    {
      name: 'uploads-returned',
      severity: 'page',
      meaning: 'The function create-flow gives uploads back to their queue, because an AWS service refuses or fails.',
      action: 'Read the reason in its log. Nothing is lost for the next five hours.',
      metric: filled(metrics.sum('UploadsReturned', FIVE_MINUTES)),
      threshold: 1,
      periods: [2, 3],
    },
    {
      name: 'uploads-denied',
      severity: 'ticket',
      meaning: 'S3 refuses to hand uploads out to the function create-flow. They fail after attemptsMax refusals.',
      action: 'Check the policies of the inbox and of its KMS key.',
      metric: metrics.sum('UploadsDenied', FIVE_MINUTES),
      threshold: 1,
    },
    {
      name: 'uploads-missed',
      severity: 'ticket',
      meaning: 'The daily sweep found uploads that no notification brought. It has submitted them.',
      action: 'Check that the inbox announces its uploads. Until it does, each waits for the next sweep.',
      metric: metrics.sum('UploadsMissed', FIVE_MINUTES),
      threshold: 1,
    },
    {
      name: 'sweep-missing',
      severity: 'ticket',
      meaning: 'No daily sweep has ended for two days, so a file whose notification was lost stays missed.',
      action: 'Find out in the log why it does not end.',
      ...whileMeasured(metrics.maximum('SweepAgeSeconds', RETRY_PERIOD)),
      threshold: SWEEP_AGE.toSeconds(),
    },
    {
      name: 'service-misaddressed',
      severity: 'page',
      meaning: 'Something other than the flow service answers at its address, so uploads wait.',
      action: 'Check baseUrl, and any proxy, login or firewall before the service.',
      ...whileMeasured(metrics.sum('ServiceMisaddressed', RETRY_PERIOD)),
      threshold: 1,
    },
    {
      name: 'uploads-waiting',
      severity: 'ticket',
      meaning: 'The flow service has not accepted an upload for six hours or more. It is still retried.',
      action: 'Find out in the log why it waits.',
      ...whileMeasured(metrics.maximum('OldestWaitingSeconds', LONG_RETRY_PERIOD)),
      threshold: WAITING_AGE.toSeconds(),
    },
  ];
}

/** Each tick measures this, once a minute. */
function budgetConditions(metrics: AlarmMetrics): readonly Condition[] {
  const spent = whileMeasured(metrics.maximum('BudgetSpentPercent', FIVE_MINUTES));
  return [
    {
      name: 'budget-nearly-spent',
      severity: 'ticket',
      meaning: 'Four fifths or more of a budget are spent in its period.',
      action: 'See flowdrop status. Raise the budget, or let files wait for the next period.',
      ...spent,
      threshold: 80,
    },
    {
      name: 'budget-spent',
      severity: 'ticket',
      meaning: 'A budget is spent, so files wait for the next period.',
      action: 'See flowdrop status. Raise the budget, or let them wait.',
      ...spent,
      threshold: 100,
    },
  ];
}

/** Each tick measures these, once a minute. */
function holdConditions(metrics: AlarmMetrics): readonly Condition[] {
  return [
    {
      name: 'failures-alike',
      severity: 'page',
      meaning: 'Twenty failures of a route were alike, without a success in between. New files are still sent.',
      action: 'See flowdrop doctor. Correct the route, tell the customers, or pause the route.',
      ...whileMeasured(metrics.maximum('RoutesFailing', FIVE_MINUTES)),
      threshold: 1,
    },
    {
      name: 'holds-unreadable',
      severity: 'page',
      meaning: 'The record of holds and budgets cannot be read, so nothing is sent.',
      action: 'Restore an older version of state/holds.json, or deploy the version that wrote it.',
      ...whileMeasured(metrics.sum('HoldsUnreadable', FIVE_MINUTES)),
      threshold: 1,
    },
  ];
}

function flowConditions(metrics: AlarmMetrics, flowAgeMaxSeconds: number): readonly Condition[] {
  return [
    {
      name: 'nothing-finishes',
      severity: 'page',
      meaning: 'One flow has been running for hours, and no flow has succeeded in the last hour.',
      action: 'Check whether the flow service is stuck.',
      metric: stuck(metrics, flowAgeMaxSeconds),
      threshold: 1,
    },
    {
      name: 'flow-overdue',
      severity: 'ticket',
      meaning: 'A flow is still open although it is more than twice as old as flowAgeMaxSeconds.',
      action: 'Find out in the log why it cannot be ended.',
      ...whileMeasured(metrics.maximum('OldestRunningSeconds', TICK_PERIOD)),
      threshold: 2 * flowAgeMaxSeconds + OVERDUE_MARGIN.toSeconds(),
    },
    {
      name: 'doubts-held',
      severity: 'ticket',
      meaning:
        'Some requests got no usable answer, so it is unknown whether their flows exist. Their uploads wait for your decision.',
      action: 'Look for the flows at the flow service, then retry the uploads.',
      ...whileMeasured(metrics.sum('DoubtsHeld', LONG_RETRY_PERIOD)),
      threshold: 1,
    },
    {
      name: 'flows-shared',
      severity: 'page',
      meaning:
        'The flow service gave one flow to two uploads, or answered with the flow of another upload. Its outputs are not collected.',
      action: 'Tell the operators of the flow service at once.',
      ...whileMeasured(metrics.sum('FlowsShared', RETRY_PERIOD)),
      threshold: 1,
    },
    {
      name: 'words-undeclared',
      severity: 'page',
      meaning:
        'The flow service shows flows or outputs with a word that its description does not declare. They may have ended, and are not collected.',
      action: 'See the word with flowdrop doctor. Find out what it means, and declare it in the configuration.',
      ...whileMeasured(metrics.sum('WordsUndeclared', LONG_RETRY_PERIOD)),
      threshold: 1,
    },
    {
      name: 'entries-unreadable',
      severity: 'ticket',
      meaning: 'Some entries of the ledger cannot be read. Their uploads are skipped.',
      action: 'Deploy the version that wrote the entries, or repair them.',
      ...whileMeasured(metrics.sum('EntriesUnreadable', LONG_RETRY_PERIOD)),
      threshold: 1,
    },
    {
      name: 'sweep-state-damaged',
      severity: 'ticket',
      meaning: 'Parts of the state of the sweep could not be read. They were replaced.',
      action: 'Read in the log what was replaced. If the first day is lost, or a backfill, request a backfill.',
      metric: metrics.sum('SweepStateDamaged', FIVE_MINUTES),
      threshold: 1,
    },
  ];
}

function tickCondition(metrics: AlarmMetrics, monitored: Monitored): Condition {
  return {
    name: 'tick-missing',
    severity: 'page',
    meaning: 'No tick has completed for 40 minutes, so no outputs are collected.',
    action: 'Check whether ticks are started, crash, or are cut short because the flow service does not answer.',
    ...whileSilent(metrics.sum('TicksCompleted', TICK_PERIOD), monitored),
  };
}

/** The canary is put once in each period, and comes to its receipt a few minutes later. */
function canaryConditions(metrics: AlarmMetrics, monitored: Monitored): readonly Condition[] {
  if (monitored.canaryKey === '') return [];
  return [
    {
      name: 'canary-missing',
      severity: 'page',
      meaning: 'For two hours, no canary has come to its receipt.',
      action: 'Find out with flowdrop status whether it waits, failed, or was not put.',
      ...whileSilent(metrics.sum('CanariesSucceeded', CANARY_PERIOD), monitored),
    },
  ];
}

/** One collector alone is covered by {@link tickCondition}. */
function collectorConditions(metrics: AlarmMetrics, monitored: Monitored): readonly Condition[] {
  const { collectors } = monitored;
  if (collectors === 1) return [];
  return Array.from({ length: collectors }, (_, index) => ({
    name: 'collector-missing',
    number: index,
    severity: 'ticket',
    meaning: `Collector ${index} of ${collectors} has completed no tick for 40 minutes, so its share of the outputs waits.`,
    action: 'Check whether its schedule is on, and whether its ticks crash or are cut short.',
    ...whileSilent(metrics.sum(`TicksOfCollector${index}`, TICK_PERIOD), monitored),
  }));
}

/**
 * The next delivery or tick makes up for one crash. If it does not, the age of the messages raises an alarm. Crashes in
 * two of three periods in which the function ran are no accident.
 */
function functionConditions(name: FunctionName, lambda: IFunction): readonly Condition[] {
  const options = { statistic: Stats.SUM, period: FIVE_MINUTES };
  return [
    {
      name: `${name}-errors`,
      severity: 'page',
      meaning: `The function ${name} crashes or times out.`,
      action: 'Find the error in its log.',
      metric: lambda.metricErrors(options),
      threshold: 1,
      periods: [2, 3],
    },
    {
      name: `${name}-throttles`,
      severity: 'page',
      meaning: `Lambda throttles the function ${name}, because the account has no concurrency left.`,
      action: 'Lower the concurrency of the function that uses it up, or ask AWS for more.',
      metric: lambda.metricThrottles(options),
      threshold: 1,
      periods: [2, 3],
    },
  ];
}

/**
 * For a metric that is written now and then while its condition lasts. The alarm ends after two periods without a
 * datapoint. One is not enough, because the latest period may have just begun.
 */
function whileMeasured(measured: Metric): Pick<Condition, 'metric' | 'periods'> {
  return { metric: filled(measured), periods: [1, 2] };
}

/**
 * Two periods without a count that is a heartbeat. Only periods count in which the queue of uploads was there, so that
 * nobody is woken before the first tick. Lambda asks the queue all the time, and SQS measures a queue that is asked.
 * @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
 */
function whileSilent(heartbeat: Metric, { queue }: Monitored): Pick<Condition, 'metric' | 'threshold' | 'periods'> {
  const { period, label } = heartbeat;
  const metric = new MathExpression({
    expression: 'IF(messages >= 0 AND FILL(heartbeat, 0) < 1, 1, 0)',
    usingMetrics: {
      messages: queue.metricApproximateNumberOfMessagesVisible({ statistic: Stats.MAXIMUM, period }),
      heartbeat,
    },
    period,
    label: `No ${label}`,
  });
  return { metric, threshold: 1, periods: [2, 2] };
}

/**
 * The metric with zeros where it has no datapoint. With no datapoint, an alarm evaluates older ones. FILL prevents
 * that.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
 */
function filled(measured: Metric): MathExpression {
  const { period, label } = measured;
  return new MathExpression({ expression: 'FILL(measured, 0)', usingMetrics: { measured }, period, label });
}

/**
 * 1 if a flow is old and none has succeeded, otherwise 0. Neither alone is an alarm: a flow may take long, and in a quiet
 * hour no flow can succeed. No running flow and no success are no datapoint: see {@link filled}.
 */
function stuck(metrics: AlarmMetrics, flowAgeMaxSeconds: number): MathExpression {
  const period = Duration.hours(1);
  const age = Math.min(STUCK_AGE.toSeconds(), Math.floor(flowAgeMaxSeconds / 2));
  return new MathExpression({
    expression: `IF(FILL(oldest, 0) >= ${age} AND FILL(succeeded, 0) < 1, 1, 0)`,
    usingMetrics: {
      oldest: metrics.maximum('OldestRunningSeconds', period),
      succeeded: metrics.sum('FlowsSucceeded', period),
    },
    period,
    label: 'An old flow, and none that succeeds',
  });
}
