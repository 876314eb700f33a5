import { Duration } from 'aws-cdk-lib';
import { Metric, type MetricOptions, Stats } from 'aws-cdk-lib/aws-cloudwatch';
import { Construct } from 'constructs';
import { METRICS_NAMESPACE, type MetricName } from '../../functions/base/telemetry.ts';

const DEFAULT_PERIOD = Duration.minutes(5);

/**
 * A method for each metric that the functions write and the dashboard shows, for alarms and dashboards of your own.
 * With `monitoring: 'alarms'` or `'none'` the functions write fewer, or none. The period is five minutes.
 */
export abstract class MeasuredPipeline extends Construct {
  /** Name of the pipeline. */
  abstract readonly pipelineName: string;

  /** Uploads that came, with those that no route wants. Sum, in uploads. */
  metricUploadsReceived(options?: MetricOptions): Metric {
    return this.#metric('UploadsReceived', Stats.SUM, options);
  }

  /** Uploads that no route wants. Sum, in uploads. */
  metricUploadsUnrouted(options?: MetricOptions): Metric {
    return this.#metric('UploadsUnrouted', Stats.SUM, options);
  }

  /** Uploads that no notification brought. The daily sweep found and submitted them. Sum, in uploads. */
  metricUploadsMissed(options?: MetricOptions): Metric {
    return this.#metric('UploadsMissed', Stats.SUM, options);
  }

  /** Flows that were created. Sum, in flows. */
  metricFlowsCreated(options?: MetricOptions): Metric {
    return this.#metric('FlowsCreated', Stats.SUM, options);
  }

  /** Flows that ended as a success. Sum, in flows. */
  metricFlowsSucceeded(options?: MetricOptions): Metric {
    return this.#metric('FlowsSucceeded', Stats.SUM, options);
  }

  /** Uploads that failed, with or without a flow. Sum, in uploads. */
  metricUploadsFailed(options?: MetricOptions): Metric {
    return this.#metric('UploadsFailed', Stats.SUM, options);
  }

  /** Bytes of files that were sent to the flow service. Sum, in bytes. */
  metricInputBytes(options?: MetricOptions): Metric {
    return this.#metric('InputBytes', Stats.SUM, options);
  }

  /** Bytes of assets that were stored in the results. Sum, in bytes. */
  metricAssetBytes(options?: MetricOptions): Metric {
    return this.#metric('AssetBytes', Stats.SUM, options);
  }

  /** Flows that run at a time. Maximum, in flows. */
  metricFlowsRunning(options?: MetricOptions): Metric {
    return this.#metric('FlowsRunning', Stats.MAXIMUM, options);
  }

  /** Time from the arrival of an upload to its success. 95th percentile, in seconds. */
  metricSecondsToResult(options?: MetricOptions): Metric {
    return this.#metric('SecondsToResult', Stats.percentile(95), options);
  }

  /** Age of the oldest running flow. Maximum, in seconds. */
  metricOldestRunningSeconds(options?: MetricOptions): Metric {
    return this.#metric('OldestRunningSeconds', Stats.MAXIMUM, options);
  }

  /** Age of the upload that waited longest. Maximum, in seconds. */
  metricOldestWaitingSeconds(options?: MetricOptions): Metric {
    return this.#metric('OldestWaitingSeconds', Stats.MAXIMUM, options);
  }

  /** Ticks that came to their end. Sum, in ticks. */
  metricTicksCompleted(options?: MetricOptions): Metric {
    return this.#metric('TicksCompleted', Stats.SUM, options);
  }

  /** Ticks that ended early, because the flow service answered no request. Sum, in ticks. */
  metricTicksCutShort(options?: MetricOptions): Metric {
    return this.#metric('TicksCutShort', Stats.SUM, options);
  }

  /** Times that an upload could not be sent and waits to be tried again. Sum, in times. */
  metricUploadsWaiting(options?: MetricOptions): Metric {
    return this.#metric('UploadsWaiting', Stats.SUM, options);
  }

  /** Messages that ticks sent about uploads that were due. Sum, in messages. */
  metricUploadsResubmitted(options?: MetricOptions): Metric {
    return this.#metric('UploadsResubmitted', Stats.SUM, options);
  }

  /** Times that a pause, a budget or failures that are alike kept an upload from being sent. Sum, in times. */
  metricUploadsHeld(options?: MetricOptions): Metric {
    return this.#metric('UploadsHeld', Stats.SUM, options);
  }

  /** Times that an upload was given back to its queue, because an AWS service refused or failed. Sum, in times. */
  metricUploadsReturned(options?: MetricOptions): Metric {
    return this.#metric('UploadsReturned', Stats.SUM, options);
  }

  /** Times that S3 refused to hand an upload out. Sum, in times. */
  metricUploadsDenied(options?: MetricOptions): Metric {
    return this.#metric('UploadsDenied', Stats.SUM, options);
  }

  /** Times that the flow service rejected the token. Sum, in times. */
  metricTokenRejected(options?: MetricOptions): Metric {
    return this.#metric('TokenRejected', Stats.SUM, options);
  }

  /** Times that something other than the flow service answered. Sum, in times. */
  metricServiceMisaddressed(options?: MetricOptions): Metric {
    return this.#metric('ServiceMisaddressed', Stats.SUM, options);
  }

  /** Uploads that were sent again although a flow may exist. Sum, in uploads. */
  metricDoubtsRetried(options?: MetricOptions): Metric {
    return this.#metric('DoubtsRetried', Stats.SUM, options);
  }

  /** Times that an upload in doubt was found to wait for a decision. Sum, in times. */
  metricDoubtsHeld(options?: MetricOptions): Metric {
    return this.#metric('DoubtsHeld', Stats.SUM, options);
  }

  /** Flows that no upload needs, because their answer came too late. Sum, in flows. */
  metricFlowsOrphaned(options?: MetricOptions): Metric {
    return this.#metric('FlowsOrphaned', Stats.SUM, options);
  }

  /** Times that a flow was found to belong to two uploads, or to another one. Sum, in times. */
  metricFlowsShared(options?: MetricOptions): Metric {
    return this.#metric('FlowsShared', Stats.SUM, options);
  }

  /** Times that a flow or output had a word that the description of the service lacks. Sum, in times. */
  metricWordsUndeclared(options?: MetricOptions): Metric {
    return this.#metric('WordsUndeclared', Stats.SUM, options);
  }

  /** Outputs of ended flows that could not be stored. Sum, in outputs. */
  metricAssetsFailed(options?: MetricOptions): Metric {
    return this.#metric('AssetsFailed', Stats.SUM, options);
  }

  /** Times that an entry of the ledger could not be read. Sum, in times. */
  metricEntriesUnreadable(options?: MetricOptions): Metric {
    return this.#metric('EntriesUnreadable', Stats.SUM, options);
  }

  /** Times that the record of holds could not be read. Sum, in times. */
  metricHoldsUnreadable(options?: MetricOptions): Metric {
    return this.#metric('HoldsUnreadable', Stats.SUM, options);
  }

  /** Times that a part of the state of the sweep was unreadable, and was replaced. Sum, in times. */
  metricSweepStateDamaged(options?: MetricOptions): Metric {
    return this.#metric('SweepStateDamaged', Stats.SUM, options);
  }

  /** Routes whose files fail alike. Maximum, in routes. */
  metricRoutesFailing(options?: MetricOptions): Metric {
    return this.#metric('RoutesFailing', Stats.MAXIMUM, options);
  }

  /** Highest share of a budget that is spent. Maximum, in per cent. */
  metricBudgetSpentPercent(options?: MetricOptions): Metric {
    return this.#metric('BudgetSpentPercent', Stats.MAXIMUM, options);
  }

  #metric(metricName: MetricName, statistic: string, options?: MetricOptions): Metric {
    const dimensionsMap = { service: this.pipelineName };
    const metric = { namespace: METRICS_NAMESPACE, metricName, dimensionsMap, statistic, period: DEFAULT_PERIOD };
    return new Metric({ label: metricName, ...metric, ...options }).attachTo(this);
  }
}
