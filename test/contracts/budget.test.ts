import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished } from 'vitest';
import type { Holds } from '../../functions/holds/holds.ts';
import { read } from '../support/s3-calls.ts';
import type { BudgetTask } from './budget-process.ts';
import { behaviour, target } from './support.ts';

const WRITERS = 64;
/** `npm run test:s3` starts a process for each writer. In `npm test` four writers share one: 64 take half a minute. */
const PROCESSES = Number(process.env.S3_BEHAVIOUR_PROCESSES ?? 16);
const UPLOADS_OF_EACH = 2;
const FLOWS = 100;
/** In `npm test` fewer: with two suites on two processors, one time has taken 21 seconds. */
const TIMES = PROCESSES === WRITERS ? 5 : 2;

/** The uploads of each writer of a process. */
const uploadsOf = (process: number): string[][] =>
  Array.from({ length: WRITERS / PROCESSES }, (_, writer) =>
    Array.from({ length: UPLOADS_OF_EACH }, (__, upload) => `${process}-${writer}-${upload}`),
  );

/** The next message of a process. */
async function said(child: ChildProcess): Promise<unknown> {
  const [message] = await Promise.race([
    once(child, 'message'),
    once(child, 'exit').then(([code, killer]) => {
      throw new Error(`The process ended with ${code ?? killer}, before it said something`);
    }),
  ]);
  return message;
}

/** Processes that run, and end with the test. */
async function started(): Promise<ChildProcess[]> {
  const children = Array.from({ length: PROCESSES }, () =>
    fork(fileURLToPath(new URL('budget-process.ts', import.meta.url))),
  );
  onTestFinished(async () => {
    const running = children.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null);
    const ended = running.map((child) => once(child, 'exit'));
    for (const child of running) child.kill();
    await Promise.all(ended);
  });
  await Promise.all(children.map(said));
  return children;
}

describe('the meter of a budget', () => {
  behaviour(
    `of ${WRITERS} writers in ${PROCESSES} processes, exactly as many flows pass as the cap allows`,
    'any',
    async (given) => {
      const children = await started();
      for (let time = 0; time < TIMES; time += 1) {
        const where = { ...given, Key: `${given.Key}-${time}` };
        const task = { s3: target.clientConfig, bucket: where.Bucket, key: where.Key, flows: FLOWS };
        const passed = children.map((child, process) => {
          child.send({ ...task, writers: uploadsOf(process) } satisfies BudgetTask);
          return said(child) as Promise<number>;
        });
        expect((await Promise.all(passed)).reduce((sum, count) => sum + count, 0)).toBe(FLOWS);
        expect((JSON.parse((await read(where)) ?? '') as Holds).pipeline.spent?.flows).toBe(FLOWS);
      }
    },
  );
});
