import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { LocalFunction } from '../../../local/lambda/function.ts';
import { folderWith } from '../../support/folder.ts';
import { PATIENCE } from '../../support/patience.ts';

// These tests inspect processes through /proc.
const onLinux = process.platform === 'linux';

function functionOf(
  code: string,
  { timeoutSeconds = 30, concurrency = 1, environment = {} as Record<string, string> } = {},
) {
  const bundleDir = folderWith({ 'index.mjs': code });
  const lines: string[] = [];
  const onLog = (line: string) => lines.push(line);
  const local = new LocalFunction(
    { name: 'probe', bundleDir, environment, timeoutSeconds, memoryMiB: 256, onLog },
    { concurrency },
  );
  onTestFinished(() => local.close());
  return { local, lines, bundleDir };
}

/** The state letter of a process (`T` is stopped), or undefined without such a process. */
async function processState(pid: number): Promise<string | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  const state = stat?.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
  return state === 'Z' ? undefined : state;
}

describe('a function run locally', () => {
  it('answers its events one after the other in one process, with results and errors', async () => {
    const { local, lines } = functionOf(
      `const greeting = await new Promise((resolve) => setTimeout(resolve, 10, 'hello'));
       export const handler = async (event) => {
         if (event === 'bad') throw new RangeError('too far');
         if (event === 'print') { console.log('one'); process.stderr.write('two\\nthree\\n'); }
         return event === 'env' ? process.env : { greeting, event, pid: process.pid, emoji: '🎁' };
       };`,
      { environment: { ROUTES: '[]' } },
    );
    const first = await local.invoke({ name: 'wörld' });
    const [pid] = local.pids;
    expect(first).toEqual({ greeting: 'hello', event: { name: 'wörld' }, pid, emoji: '🎁' });
    await expect(local.invoke('bad')).rejects.toMatchObject({
      name: 'FunctionError',
      errorType: 'RangeError',
      message: 'too far',
    });
    expect(await local.invoke('print')).toMatchObject({ pid });
    await vi.waitFor(() => {
      expect(lines.some((line) => line.endsWith('INFO\tone'))).toBe(true);
      expect(lines).toEqual(expect.arrayContaining(['two', 'three']));
    }, PATIENCE);

    // It has its own variables and Lambda's, and none of its parent's.
    const environment = await local.invoke('env');
    expect(environment).toMatchObject({ ROUTES: '[]', AWS_REGION: 'us-east-1', AWS_LAMBDA_FUNCTION_NAME: 'probe' });
    expect(environment).not.toHaveProperty('VITEST');
    expect(environment).toHaveProperty('HOME', '/nonexistent');
    expect(local.pids).toEqual([pid]);
  });

  it('rejects with an error from outside the handler, and starts again for the next invocation', async () => {
    const { local, bundleDir } = functionOf('throw new TypeError("no configuration");');
    await expect(local.invoke({})).rejects.toMatchObject({ errorType: 'TypeError', message: 'no configuration' });
    await writeFile(join(bundleDir, 'index.mjs'), 'export const handler = async () => "repaired";');
    expect(await local.invoke({})).toBe('repaired');
  });

  it('rejects if the process ends during an invocation', async () => {
    const { local } = functionOf('export const handler = async () => process.exit(7);');
    await expect(local.invoke({})).rejects.toMatchObject({
      errorType: 'Runtime.ExitError',
      message: 'Runtime exited: exit status 7',
    });
  });

  it('is killed at its timeout, and the next invocation gets a new process', async () => {
    const { local, lines } = functionOf(
      `export const handler = async (event) => {
         if (event.hang) for (;;) ;
         return process.pid;
       };`,
      { timeoutSeconds: 1 },
    );
    const pid = (await local.invoke({})) as number;
    await expect(local.invoke({ hang: true })).rejects.toMatchObject({
      errorType: 'Sandbox.Timedout',
      message: 'Task timed out after 1.00 seconds',
    });
    expect(lines).toContain('Task timed out after 1.00 seconds');
    expect(await local.invoke({})).not.toBe(pid);
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });

  it('gives the handler a remaining time that decreases from the timeout', async () => {
    const { local } = functionOf(
      `export const handler = async (_, context) => {
         const first = context.getRemainingTimeInMillis();
         await new Promise((resolve) => setTimeout(resolve, 50));
         return [first, context.getRemainingTimeInMillis(), context.memoryLimitInMB, context.functionName];
       };`,
      { timeoutSeconds: 20 },
    );
    const [first, second, memory, name] = (await local.invoke({})) as [number, number, string, string];
    expect(first).toBeLessThanOrEqual(20_000);
    expect(first).toBeGreaterThan(0);
    expect(second).toBeLessThan(first - 40);
    expect([memory, name]).toEqual(['256', 'probe']);
  });

  it.runIf(onLinux)('is frozen between invocations: not even a timer runs', async () => {
    const { local } = functionOf(`
      let last = Date.now();
      let longestGap = 0;
      const beat = () => { longestGap = Math.max(longestGap, Date.now() - last); last = Date.now(); };
      setInterval(beat, 1);
      export const handler = async () => { beat(); return [longestGap, process.pid]; };`);
    const [, pid] = (await local.invoke({})) as [number, number];
    await vi.waitFor(async () => expect(await processState(pid)).toBe('T'), PATIENCE);
    await sleep(300);
    const [longestGap] = (await local.invoke({})) as [number, number];
    expect(longestGap).toBeGreaterThanOrEqual(299);
  });

  it('runs as many invocations at the same time as its concurrency, each in its own process', async () => {
    const { local } = functionOf(
      `export const handler = async () => {
         const from = Date.now();
         await new Promise((resolve) => setTimeout(resolve, 200));
         return { pid: process.pid, from, to: Date.now() };
       };`,
      { concurrency: 2 },
    );
    const runs = (await Promise.all([1, 2, 3, 4].map(() => local.invoke({})))) as {
      pid: number;
      from: number;
      to: number;
    }[];
    expect(new Set(runs.map(({ pid }) => pid)).size).toBe(2);
    const [a, b, ...later] = runs.toSorted((x, y) => x.from - y.from);
    for (const run of later) expect(run.from).toBeGreaterThanOrEqual(Math.min(a?.to ?? 0, b?.to ?? 0));
  });

  it('rejects running and waiting invocations when it is closed, and leaves no process', async () => {
    const { local } = functionOf('export const handler = () => new Promise(() => setInterval(() => {}, 1000));');
    const both = Promise.allSettled([local.invoke({}), local.invoke({})]);
    await vi.waitFor(() => expect(local.pids).toHaveLength(1), PATIENCE);
    const [pid = 0] = local.pids;
    await local.close();
    expect((await both).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });

  it.runIf(onLinux)('does not outlive a killed parent, even while frozen', async () => {
    const dir = folderWith({ 'index.mjs': 'export const handler = async () => process.pid;' });
    const module = new URL('../../../local/lambda/function.ts', import.meta.url);
    const code = `
      import { LocalFunction } from ${JSON.stringify(module.href)};
      const local = new LocalFunction(
        { name: 'probe', bundleDir: ${JSON.stringify(dir)}, environment: {}, timeoutSeconds: 30, memoryMiB: 128 },
        { concurrency: 1 });
      console.log(await local.invoke({}));`;
    const parent = spawn(process.execPath, ['--input-type=module', '-e', code], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void parent.kill('SIGKILL'));
    const [line] = await once(createInterface({ input: parent.stdout }), 'line');
    const pid = Number(line);
    await vi.waitFor(async () => expect(await processState(pid)).toBe('T'), PATIENCE);
    parent.kill('SIGKILL');
    await vi.waitFor(async () => expect(await processState(pid)).toBeUndefined(), PATIENCE);
  });
});
