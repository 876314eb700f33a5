import { Duration } from 'aws-cdk-lib';
import { MathExpression, Metric, Stats } from 'aws-cdk-lib/aws-cloudwatch';
import type { MetricName } from '../functions/telemetry.ts';

/** The same as the functions give to Powertools, which also makes the pipeline's name the dimension `service`. */
export const METRICS_NAMESPACE = 'Flowdrop';

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

  /**
   * How often any of several things happened, and zero where none did. A sum takes a metric that has no data for zero,
   * but is missing itself where none has any; and what is missing an alarm passes over in favour of older data, as long
   * as there is some.
   * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html
   * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
   */
  total(metricNames: readonly MetricName[], period: Duration): MathExpression {
    const usingMetrics = Object.fromEntries(metricNames.map((name) => [idOf(name), this.sum(name, period)]));
    const expression = `FILL(${metricNames.map(idOf).join(' + ')}, 0)`;
    return new MathExpression({ expression, usingMetrics, period, label: metricNames.join(' + ') });
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

/** In an expression a metric's name must start in lower case. */
const idOf = (name: MetricName) => `${name.charAt(0).toLowerCase()}${name.slice(1)}`;
