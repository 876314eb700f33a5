/** Fields of a log line: names and numbers, never a token, a whole event or a body. */
export type LogFields = Readonly<Record<string, string | number | boolean | undefined | Error>>;

export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** Returns a log whose lines all carry these fields too. */
  with(fields: LogFields): Log;
}

type Level = Exclude<keyof Log, 'with'>;

/**
 * Returns a log that passes each line to `write`, with the fields of the log and those of the line.
 *
 * @param bound the fields of the log.
 */
export function logTo(write: (level: Level, message: string, fields: LogFields) => void, bound: LogFields = {}): Log {
  const line = (level: Level) => (message: string, fields?: LogFields) =>
    write(level, message, { ...bound, ...fields });
  return {
    debug: line('debug'),
    info: line('info'),
    warn: line('warn'),
    error: line('error'),
    with: (fields) => logTo(write, { ...bound, ...fields }),
  };
}

/** CloudWatch namespace of all metrics. The dimension `service` is the pipeline's name. */
export const METRICS_NAMESPACE = 'Flowdrop';

/** What monitors a deployment: alarms, saved queries and a dashboard; the same without the dashboard; or nothing. */
export type Monitoring = 'full' | 'alarms' | 'none';

/** Metrics that alarms read: see `infra/monitoring/alarm-conditions.ts`. */
const ALARM_METRICS = [
  'FlowsSucceeded',
  'CanariesSucceeded',
  'UploadsFailed',
  'FlowsShared',
  'WordsUndeclared',
  'RoutesFailing',
  'HoldsUnreadable',
  'BudgetSpentPercent',
  'UploadsReturned',
  'UploadsMissed',
  'EntriesUnreadable',
  'SweepStateDamaged',
  'DoubtsHeld',
  'TokenRejected',
  'UploadsDenied',
  'ServiceMisaddressed',
  'TicksCompleted',
  'OldestRunningSeconds',
  'OldestWaitingSeconds',
  'SweepAgeSeconds',
] as const;
export type AlarmMetricName = (typeof ALARM_METRICS)[number] | `TicksOfCollector${number}`;

/** Every metric there is, by its name in CloudWatch. All are counts but those that name a unit. */
export type MetricName =
  | AlarmMetricName
  | 'UploadsReceived'
  | 'UploadsUnrouted'
  | 'UploadsSkipped'
  | 'UploadsReplaced'
  | 'FlowsCreated'
  | 'UploadsSuperseded'
  | 'FlowsAdopted'
  | 'FlowsOrphaned'
  | 'FlowsDeleted'
  | 'FlowsNotDeleted'
  | 'UploadsWaiting'
  | 'UploadsHeld'
  | 'UploadsResubmitted'
  | 'UploadsBackfilled'
  | 'UploadsUnnamed'
  | 'DoubtsRetried'
  | 'AssetsStored'
  | 'AssetsFailed'
  | 'FlowsRunning'
  | 'TicksCutShort'
  | 'InputBytes'
  | 'AssetBytes'
  | 'SecondsToResult';

/** Whether a metric is written. CloudWatch bills each that is, so those that nobody reads are not. */
export const isWritten = (metric: MetricName, monitoring: Monitoring): boolean =>
  monitoring === 'full' ||
  (monitoring === 'alarms' &&
    (metric.startsWith('TicksOfCollector') || (ALARM_METRICS as readonly MetricName[]).includes(metric)));

/**
 * The seconds between two times in milliseconds. Never negative, although `from` may come from a clock ahead of ours.
 */
export const secondsBetween = (from: number, to: number): number => Math.max(0, Math.round((to - from) / 1000));

interface Metrics {
  /** Adds a value to a metric, in its unit. Default: one. */
  add(metric: MetricName, value?: number): void;
}

export interface Telemetry {
  readonly log: Log;
  readonly metrics: Metrics;
}
