import type { Log, LogFields } from '../../functions/base/telemetry.ts';

/** A log that hands on each line with all the fields that it carries. */
export function logTo(take: (level: string, message: string, fields: LogFields) => void, bound: LogFields = {}): Log {
  const line = (level: string) => (message: string, fields?: LogFields) =>
    take(level, message, { ...bound, ...fields });
  return {
    debug: line('debug'),
    info: line('info'),
    warn: line('warn'),
    error: line('error'),
    with: (fields) => logTo(take, { ...bound, ...fields }),
  };
}
