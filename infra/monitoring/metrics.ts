import { Duration } from 'aws-cdk-lib';
import { Metric, Stats } from 'aws-cdk-lib/aws-cloudwatch';
import { METRICS_NAMESPACE, type MetricName } from '../../functions/base/telemetry.ts';

/** What the functions of one pipeline measure. */
export class PipelineMetrics {
  readonly #pipeline: string;

  constructor(pipeline: string) {
    this.#pipeline = pipeline;
  }

  /** How often something happened, or how much there was of it. */
  sum(metricName: MetricName, period?: Duration): Metric {
    return this.#metric(metricName, Stats.SUM, period);
  }

  /** The highest that was measured. */
  maximum(metricName: MetricName, period?: Duration): Metric {
    return this.#metric(metricName, Stats.MAXIMUM, period);
  }

  /** What so many per cent of the measurements stay below. */
  percentile(metricName: MetricName, percent: number): Metric {
    return this.#metric(metricName, Stats.percentile(percent)).with({ label: `${metricName} p${percent}` });
  }

  #metric(metricName: MetricName, statistic: string, period: Duration = Duration.minutes(5)): Metric {
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
