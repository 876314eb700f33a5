import type { Spread } from './statistics.ts';

/** A table to print. */
export interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly note?: string | undefined;
}

/** One expectation, and whether it was met. */
export interface Check {
  readonly what: string;
  /** The value that was measured or counted, with its unit. The next field is the limit. */
  readonly found: string;
  readonly wanted: string;
  readonly holds: boolean;
  /** True if the run fails when this does not hold. A target that depends on time is only reported. */
  readonly isExact: boolean;
}

/** A count that is always the same. The run fails if it differs. */
export const exactly = (what: string, found: number, wanted: number, unit = ''): Check => ({
  what,
  found: `${found}${unit}`,
  wanted: `exactly ${wanted}`,
  holds: found === wanted,
  isExact: true,
});

/** A target for a figure that depends on time or memory. */
export const atMost = (what: string, value: number, max: number, unit = ''): Check => ({
  what,
  found: `${figure(value)}${unit}`,
  wanted: `at most ${max}${unit}`,
  holds: value <= max,
  isExact: false,
});

/** A target for a figure that must not be lower. */
export const atLeast = (what: string, value: number, min: number): Check => ({
  ...atMost(what, value, min),
  wanted: `at least ${min}`,
  holds: value >= min,
});

/** The result of one part of the benchmark. */
export interface Report {
  readonly tables: readonly Table[];
  readonly checks: readonly Check[];
}

export function printed({ title, columns, rows, note }: Table): string {
  const widths = columns.map((column, index) => Math.max(column.length, ...rows.map((row) => row[index]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, index) => (index === 0 ? cell.padEnd(widths[index] ?? 0) : cell.padStart(widths[index] ?? 0))).join(' | ')} |`;
  const rule = `|${widths.map((width, index) => (index === 0 ? `${'-'.repeat(width + 2)}` : `${'-'.repeat(width + 1)}:`)).join('|')}|`;
  return [
    `### ${title}`,
    '',
    line(columns),
    rule,
    ...rows.map(line),
    ...(note === undefined ? [] : ['', note]),
    '',
  ].join('\n');
}

export function printedChecks(checks: readonly Check[]): string {
  return checks
    .map(({ what, found, wanted, holds, isExact }) => {
      const status = holds ? 'ok  ' : isExact ? 'FAIL' : 'miss';
      return `${status} ${what}: ${found} (${wanted})`;
    })
    .join('\n');
}

const MIB = 1024 * 1024;

export const mib = (bytes: number): string => (bytes / MIB).toFixed(0);

/** A length in its largest round unit: 20 KB, 64 MB, 1 GiB. */
export function size(bytes: number): string {
  if (bytes % (1024 * MIB) === 0) return `${bytes / (1024 * MIB)} GiB`;
  if (bytes % MIB === 0) return `${bytes / MIB} MiB`;
  return bytes >= 1e6 ? `${bytes / 1e6} MB` : `${bytes / 1e3} KB`;
}

export const figure = (value: number): string =>
  Number.isNaN(value) ? '-' : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);

export const withRange = ({ median, min, max }: Spread): string => `${figure(median)} (${figure(min)}-${figure(max)})`;

/** All contestants once in each round. Each round starts with another one. */
export const inTurns = <T>(contestants: readonly T[], rounds: number): readonly T[] =>
  Array.from({ length: rounds }, (_, round) =>
    contestants.map((__, index) => contestants[(index + round) % contestants.length] as T),
  ).flat();
