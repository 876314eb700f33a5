/** What a log line may carry: names and numbers, never a token, a whole event or a body. */
export type LogFields = Readonly<Record<string, string | number | boolean | undefined | Error>>;

export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** A log whose every line carries these fields too. */
  with(fields: LogFields): Log;
}

/** Every metric there is, by its name in CloudWatch. All are counts but those that name a unit. */
export type MetricName =
  | 'UploadsReceived'
  | 'UploadsUnrouted'
  | 'UploadsSkipped'
  | 'UploadsReplaced'
  | 'FlowsCreated'
  | 'FlowsSucceeded'
  | 'FlowsFailed'
  | 'FlowsAdopted'
  | 'FlowsOrphaned'
  | 'FlowsShared'
  | 'UploadsWaiting'
  | 'UploadsResubmitted'
  | 'UploadsMissed'
  | 'EntriesUnreadable'
  | 'DoubtsRetried'
  | 'DoubtsHeld'
  | 'TokenRejected'
  | 'AssetsStored'
  | 'AssetsFailed'
  | 'FlowsRunning'
  | 'TicksCompleted'
  | 'TicksCutShort'
  | 'InputBytes'
  | 'AssetBytes'
  | 'OldestRunningSeconds'
  | 'OldestWaitingSeconds'
  | 'SecondsToResult';

/** A time as a metric has it, from milliseconds. Never negative: the earlier one may be by a clock ahead of ours. */
export const secondsBetween = (from: number, to: number): number => Math.max(0, Math.round((to - from) / 1000));

export interface Metrics {
  count(metric: MetricName, value?: number): void;
}

export interface Telemetry {
  readonly log: Log;
  readonly metrics: Metrics;
}
