import type { Command } from 'commander';
import type { Body, CommonOptions, Offline, Run } from './run.ts';

/** Adds a command to the program. Its body gets the words after its name, and its options. It returns the exit code. */
export type Add = <O extends CommonOptions>(
  command: Command,
  body: (run: Run, words: string[], options: O) => Promise<number>,
  instead?: Instead<O>,
) => void;

/** What a command does without a connection. */
export interface Instead<O> {
  unconnected?(
    error: unknown,
    offline: Offline,
    words: readonly string[],
    options: O,
  ): ReturnType<NonNullable<Body['unconnected']>>;
  offline?(offline: Offline, options: O, words: readonly string[]): Promise<number> | undefined;
}

/** The examples in the help of a command. */
export const example = (...lines: readonly string[]): string =>
  `\nExamples:\n${lines.map((line) => `  $ flowdrop ${line}`).join('\n')}`;
