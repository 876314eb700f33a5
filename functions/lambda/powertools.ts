import { Logger } from '@aws-lambda-powertools/logger';
import { Metrics, MetricUnit } from '@aws-lambda-powertools/metrics';
import {
  isWritten,
  logTo,
  METRICS_NAMESPACE,
  type MetricName,
  type Monitoring,
  type Telemetry,
} from '../base/telemetry.ts';

/** The unit of a metric, which its name tells: seconds, bytes, or else a count. */
function unitOf(metric: MetricName) {
  if (metric.includes('Seconds')) return MetricUnit.Seconds;
  return metric.endsWith('Bytes') ? MetricUnit.Bytes : MetricUnit.Count;
}

/** The telemetry of a function: its log and its metrics, both through Powertools. */
export function powertools(
  pipeline: string,
  monitoring: Monitoring = 'full',
): { logger: Logger; metrics: Metrics; telemetry: Telemetry } {
  const logger = new Logger({ serviceName: pipeline });
  const metrics = new Metrics({ namespace: METRICS_NAMESPACE, serviceName: pipeline });
  return {
    logger,
    metrics,
    telemetry: {
      // `logTo` joins the fields. A child logger of Powertools would take as long as half a request to S3.
      log: logTo((level, message, fields) => logger[level](message, fields)),
      metrics: {
        add(metric, value = 1) {
          if (isWritten(metric, monitoring)) metrics.addMetric(metric, unitOf(metric), value);
        },
      },
    },
  };
}
