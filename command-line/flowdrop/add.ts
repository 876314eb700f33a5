import type { Command } from 'commander';
import type { Body, CommonOptions, Run } from './run.ts';

/** Adds a command to the program. Its body gets the words after its name, and its options. It returns the exit code. */
export type Add = <O extends CommonOptions>(
  command: Command,
  body: (run: Run, words: string[], options: O) => Promise<number>,
  unconnected?: Body['unconnected'],
) => void;

/** The examples in the help of a command. */
export const example = (...lines: readonly string[]): string =>
  `\nExamples:\n${lines.map((line) => `  $ flowdrop ${line}`).join('\n')}`;
