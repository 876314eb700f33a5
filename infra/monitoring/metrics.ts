import { Duration } from 'aws-cdk-lib';
import { Metric, Stats } from 'aws-cdk-lib/aws-cloudwatch';
import { METRICS_NAMESPACE, type MetricName } from '../../functions/base/telemetry.ts';

const DEFAULT_PERIOD = Duration.minutes(5);

/**
 * The metrics that the functions of one pipeline write.
 *
 * CONTRIBUTING.md says what a new metric touches.
 */
export class PipelineMetrics<Name extends MetricName = MetricName> {
  readonly #pipeline: string;

  constructor(pipeline: string) {
    this.#pipeline = pipeline;
  }

  /** The sum of all values in a period. */
  sum(metricName: Name, period?: Duration): Metric {
    return this.#metric(metricName, Stats.SUM, period);
  }

  /** The highest value in a period. */
  maximum(metricName: Name, period?: Duration): Metric {
    return this.#metric(metricName, Stats.MAXIMUM, period);
  }

  /** The value that so many per cent of the values in a period do not exceed. */
  percentile(metricName: Name, percent: number): Metric {
    return this.#metric(metricName, Stats.percentile(percent)).with({ label: `${metricName} p${percent}` });
  }

  #metric(metricName: Name, statistic: string, period: Duration = DEFAULT_PERIOD): Metric {
    const dimensionsMap = { service: this.#pipeline };
    return new Metric({
      namespace: METRICS_NAMESPACE,
      metricName,
      dimensionsMap,
      statistic,
      period,
      label: metricName,
    });
  }
}
