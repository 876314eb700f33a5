import { type ChildProcess, fork, type Serializable } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { inject } from 'vitest';
import { bundleModule } from '../../infra/bundle/bundle.ts';
import { MEMORY_MIB } from '../../infra/function-limits.ts';

/** Lambda's own bootstrap starts Node with these flags. */
const NODE_FLAGS = [
  '--expose-gc',
  `--max-semi-space-size=${Math.floor(MEMORY_MIB * 0.05)}`,
  `--max-old-space-size=${Math.floor(MEMORY_MIB * 0.9)}`,
];

/**
 * Starts a program in a process that has the flags of a function. It is bundled as the functions are: a process that runs
 * TypeScript takes 40 MB for it. It ends when its parent disconnects.
 */
export function functionProcess(program: string): ChildProcess {
  const folder = mkdtempSync(join(inject('bundleFolder'), 'process-'));
  bundleModule(program, folder);
  return fork(join(folder, 'index.mjs'), {
    execArgv: NODE_FLAGS,
    env: { PATH: process.env.PATH, AWS_REGION: 'eu-west-1', POWERTOOLS_DEV: 'false' },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
}

/** Sends a task to a process, and returns its answer. */
export async function answerOf(child: ChildProcess, task: Serializable): Promise<unknown> {
  const listening = new AbortController();
  const { signal } = listening;
  child.send(task);
  try {
    const [answer] = await Promise.race([
      once(child, 'message', { signal }),
      once(child, 'exit', { signal }).then(([code, killer]) => {
        throw new Error(`The process ended with ${code ?? killer}, before it answered`);
      }),
    ]);
    return answer;
  } finally {
    listening.abort();
  }
}
