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
   * How often any of several things happened. Summed as a list, which passes over a metric that has no data; a plus
   * sign would make the whole unknown as soon as one of them is.
   */
  total(metricNames: readonly MetricName[], period: Duration): MathExpression {
    const usingMetrics = Object.fromEntries(metricNames.map((name) => [idOf(name), this.sum(name, period)]));
    const expression = `SUM([${metricNames.map(idOf).join(', ')}])`;
    return new MathExpression({ expression, usingMetrics, period, label: metricNames.join(' + ') });
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
