import { Logger } from '@aws-lambda-powertools/logger';
import { Metrics, MetricUnit } from '@aws-lambda-powertools/metrics';
import { type Log, type LogFields, METRICS_NAMESPACE, type MetricName, type Telemetry } from '../base/telemetry.ts';

const UNITS: Partial<Record<MetricName, (typeof MetricUnit)[keyof typeof MetricUnit]>> = {
  InputBytes: MetricUnit.Bytes,
  AssetBytes: MetricUnit.Bytes,
  OldestRunningSeconds: MetricUnit.Seconds,
  OldestTickSeconds: MetricUnit.Seconds,
  OldestWaitingSeconds: MetricUnit.Seconds,
  SecondsToResult: MetricUnit.Seconds,
};

/** The telemetry of a function: Powertools behind our two ports, {@link Log} and {@link Telemetry.metrics}. */
export function powertools(pipeline: string): { logger: Logger; metrics: Metrics; telemetry: Telemetry } {
  const logger = new Logger({ serviceName: pipeline });
  const metrics = new Metrics({ namespace: METRICS_NAMESPACE, serviceName: pipeline });
  return {
    logger,
    metrics,
    telemetry: {
      log: logTo(logger),
      metrics: {
        add: (metric, value = 1) => metrics.addMetric(metric, UNITS[metric] ?? MetricUnit.Count, value),
      },
    },
  };
}

/** @param bound fields of every line. A child logger of Powertools would cost as much as half a request to S3. */
function logTo(logger: Logger, bound: LogFields = {}): Log {
  const line =
    (level: 'debug' | 'info' | 'warn' | 'error') =>
    (message: string, fields: LogFields = {}) =>
      logger[level](message, { ...bound, ...fields });
  return {
    debug: line('debug'),
    info: line('info'),
    warn: line('warn'),
    error: line('error'),
    with: (fields) => logTo(logger, { ...bound, ...fields }),
  };
}
