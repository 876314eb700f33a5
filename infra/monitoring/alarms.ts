import { Duration } from 'aws-cdk-lib';
import {
  Alarm,
  ComparisonOperator,
  type IMetric,
  MathExpression,
  type Metric,
  Stats,
  TreatMissingData,
} from 'aws-cdk-lib/aws-cloudwatch';
import { SnsAction } from 'aws-cdk-lib/aws-cloudwatch-actions';
import type { IFunction } from 'aws-cdk-lib/aws-lambda';
import type { ITopic } from 'aws-cdk-lib/aws-sns';
import type { IQueue } from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { PipelineMetrics } from './metrics.ts';

const FIVE_MINUTES = Duration.minutes(5);

/** A flow that is older than this, while no other ends either, is taken for one that never will. */
const STUCK_AGE = Duration.hours(6);

/**
 * Messages are taken at once unless something holds them up for every file, or their invocation crashed. What was
 * received three times does not count any more, but that takes hours.
 * @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
 */
const QUEUE_AGE = Duration.minutes(30);

/** What has waited for this long has been sent again many times. */
const WAITING_AGE = Duration.hours(6);

/**
 * An upload that waits is sent again after a quarter of an hour, give or take half. If it is held or its entry cannot be
 * read, it is looked at again after an hour. Flows that share an id are counted by every tick.
 */
const LOOKS_PERIOD = Duration.minutes(15);
const LONGEST_LOOKS_PERIOD = Duration.hours(1);

/**
 * A tick is counted at its end, and it may take a quarter of an hour. Ticks that find its lease taken are not counted,
 * and neither are those that were cut short because the service answered nobody.
 */
const TICKLESS_PERIOD = Duration.minutes(20);

export interface AlarmsProps {
  readonly pipeline: string;
  readonly queue: IQueue;
  readonly deadLetterQueue: IQueue;
  readonly createFlowFunction: IFunction;
  readonly collectOutputsFunction: IFunction;
  readonly flowAgeMaxSeconds: number;
  readonly runbookUrl: string;
  readonly topic: ITopic | undefined;
}

/** One condition that the operator should look into. Its id is also the heading of its entry in the runbook. */
interface Condition {
  readonly id: string;
  readonly meaning: string;
  readonly metric: IMetric;
  /** Alarm at this value and above; below it where `whenBelow` is set. */
  readonly threshold: number;
  readonly whenBelow?: boolean;
  /** Periods in which it must be so, out of how many. Default one of one. */
  readonly periods?: readonly [number, number];
  /**
   * What no data means. Counts of bad things are written only when there is one, so silence is good, and that is the
   * default. A heartbeat is the opposite. Either is asked only where there are fewer data than periods, also counting
   * some from before these: so a condition of several periods may be met by the last few in which there were data.
   * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
   */
  readonly silenceIsBad?: boolean;
}

/** Everything that the operator should be told of, each with its entry in the runbook. */
export class Alarms extends Construct {
  readonly all: readonly Alarm[];

  constructor(scope: Construct, id: string, props: AlarmsProps) {
    super(scope, id);
    this.all = conditions(props).map((condition) => this.#alarm(condition, props));
  }

  #alarm(condition: Condition, { pipeline, runbookUrl, topic }: AlarmsProps): Alarm {
    const { id, meaning, metric, threshold, whenBelow, periods = [1, 1], silenceIsBad } = condition;
    const alarm = new Alarm(this, id, {
      alarmName: `${pipeline}-${id}`,
      alarmDescription: `${meaning} What to do: ${runbookUrl}#${id}`,
      metric,
      threshold,
      comparisonOperator: whenBelow
        ? ComparisonOperator.LESS_THAN_THRESHOLD
        : ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
      datapointsToAlarm: periods[0],
      evaluationPeriods: periods[1],
      treatMissingData: silenceIsBad ? TreatMissingData.BREACHING : TreatMissingData.NOT_BREACHING,
    });
    if (topic !== undefined) {
      alarm.addAlarmAction(new SnsAction(topic));
      alarm.addOkAction(new SnsAction(topic));
    }
    return alarm;
  }
}

function conditions(props: AlarmsProps): readonly Condition[] {
  const metrics = new PipelineMetrics(props.pipeline);
  return [
    {
      // There are data of a queue for as long as it has messages, also where nobody asks for them.
      // @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
      id: 'dead-letters',
      meaning: 'Uploads could not even be started, and nothing tries them again by itself.',
      metric: props.deadLetterQueue.metricApproximateNumberOfMessagesVisible({
        statistic: Stats.MAXIMUM,
        period: FIVE_MINUTES,
      }),
      threshold: 1,
    },
    {
      id: 'uploads-delayed',
      meaning: 'Uploads have been in the queue for half an hour.',
      metric: props.queue.metricApproximateAgeOfOldestMessage({ statistic: Stats.MAXIMUM, period: FIVE_MINUTES }),
      threshold: QUEUE_AGE.toSeconds(),
    },
    {
      id: 'flows-failed',
      meaning: 'Uploads ended as failed; their receipts say why.',
      metric: metrics.sum('FlowsFailed', FIVE_MINUTES),
      threshold: 1,
    },
    {
      id: 'token-rejected',
      meaning: 'The flow service refuses the token. Uploads wait until there is a new one.',
      ...whileMeasured(metrics.sum('TokenRejected', LOOKS_PERIOD)),
      threshold: 1,
    },
    {
      id: 'uploads-waiting',
      meaning: 'An upload that was put hours ago still waits for the flow service to take it.',
      ...whileMeasured(metrics.maximum('OldestWaitingSeconds', LONGEST_LOOKS_PERIOD)),
      threshold: WAITING_AGE.toSeconds(),
    },
    {
      id: 'nothing-finishes',
      meaning: 'A flow has been running for very long, and no flow at all has ended in the last hour.',
      metric: stuck(metrics, props.flowAgeMaxSeconds),
      threshold: 1,
    },
    {
      id: 'doubts-held',
      meaning: 'It is not known whether flows were started for some uploads, and they wait for a person to decide.',
      ...whileMeasured(metrics.sum('DoubtsHeld', LONGEST_LOOKS_PERIOD)),
      threshold: 1,
    },
    {
      id: 'flows-shared',
      meaning: 'The flow service gave one flow to two uploads, so one of them could get the results of the other.',
      ...whileMeasured(metrics.sum('FlowsShared', LOOKS_PERIOD)),
      threshold: 1,
    },
    {
      id: 'entries-unreadable',
      meaning: 'Entries of the ledger cannot be read. Their uploads are passed over.',
      ...whileMeasured(metrics.sum('EntriesUnreadable', LONGEST_LOOKS_PERIOD)),
      threshold: 1,
    },
    {
      id: 'tick-missing',
      meaning: 'For 40 minutes no tick has done its work: none ran to its end, or all were cut short by the service.',
      metric: filled(metrics.sum('TicksCompleted', TICKLESS_PERIOD)),
      threshold: 1,
      whenBelow: true,
      periods: [2, 2],
      silenceIsBad: true,
    },
    ...functionConditions('create-flow', props.createFlowFunction),
    ...functionConditions('collect-outputs', props.collectOutputsFunction),
  ];
}

/**
 * A condition that is measured now and then for as long as it lasts. It is over after two periods without a datapoint:
 * two, because the latest may only just have begun.
 */
function whileMeasured(measured: Metric): Pick<Condition, 'metric' | 'periods'> {
  return { metric: filled(measured), periods: [1, 2] };
}

/**
 * A metric with zeros where it has no datapoint. Without them an alarm evaluates older datapoints.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
 */
function filled(measured: Metric): MathExpression {
  const { period, label } = measured;
  return new MathExpression({ expression: 'FILL(measured, 0)', usingMetrics: { measured }, period, label });
}

/**
 * One crash is made good by the next delivery or tick, and is told of by the age of its messages if it is not; crashes
 * in two of three spans in which the function ran are no accident.
 */
function functionConditions(name: string, lambda: IFunction): readonly Condition[] {
  const options = { statistic: Stats.SUM, period: FIVE_MINUTES };
  return [
    {
      id: `${name}-errors`,
      meaning: `The function ${name} crashes or runs out of time.`,
      metric: lambda.metricErrors(options),
      threshold: 1,
      periods: [2, 3],
    },
    {
      id: `${name}-throttles`,
      meaning: `Lambda refuses to run the function ${name}: the account's concurrency is used up.`,
      metric: lambda.metricThrottles(options),
      threshold: 1,
      periods: [2, 3],
    },
  ];
}

/**
 * Both at once, because flows may well take long, and quiet hours have no flow that could end. An hour in which none
 * ended has no data of that. In arithmetic what is missing counts as zero wherever the other side has data, which the
 * age of the oldest flow has as long as there are ticks: zero times the age makes a sum of it that is never missing.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html
 */
function stuck(metrics: PipelineMetrics, flowAgeMaxSeconds: number): MathExpression {
  const period = Duration.hours(1);
  const age = Math.min(STUCK_AGE.toSeconds(), Math.floor(flowAgeMaxSeconds / 2));
  return new MathExpression({
    expression: `IF(oldest >= ${age} AND (oldest * 0 + succeeded + failed) < 1, 1, 0)`,
    usingMetrics: {
      oldest: metrics.maximum('OldestRunningSeconds', period),
      succeeded: metrics.sum('FlowsSucceeded', period),
      failed: metrics.sum('FlowsFailed', period),
    },
    period,
    label: 'An old flow, and none that ends',
  });
}
