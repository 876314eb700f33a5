import { type ChildProcess, fork, type Serializable } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { MEMORY_MIB } from '../../infra/function-limits.ts';

/** Lambda's own bootstrap starts Node with these flags. */
const NODE_FLAGS = [
  '--expose-gc',
  `--max-semi-space-size=${Math.floor(MEMORY_MIB * 0.05)}`,
  `--max-old-space-size=${Math.floor(MEMORY_MIB * 0.9)}`,
];

/** Starts a program in a process that has the flags of a function. It ends when its parent disconnects. */
export function functionProcess(program: string): ChildProcess {
  return fork(program, {
    execArgv: NODE_FLAGS,
    env: { PATH: process.env.PATH, AWS_REGION: 'eu-west-1', POWERTOOLS_DEV: 'false' },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
}

/** Sends a task to a process, and returns its answer. */
export async function answerOf(child: ChildProcess, task: Serializable): Promise<unknown> {
  child.send(task);
  const [answer] = await Promise.race([
    once(child, 'message'),
    once(child, 'exit').then(([code, killer]) => {
      throw new Error(`The process ended with ${code ?? killer}, before it answered`);
    }),
  ]);
  return answer;
}

/**
 * The largest resident set of this process so far, in KiB. On Linux, `maxRSS` may be that of the process that this one
 * was forked from.
 */
export function peakKib(): number {
  const status = '/proc/self/status';
  if (!existsSync(status)) return process.resourceUsage().maxRSS;
  return Number(/VmHWM:\s*(\d+)/.exec(readFileSync(status, 'utf8'))?.[1]);
}
