import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { temporaryFolder } from '../support/folder.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

/** The arguments that a script of package.json gives to `node`, with absolute paths. */
export function scriptArguments(name: string): string[] {
  const [program, ...words]: string[] = scripts[name].split(' ');
  if (program !== 'node') throw new Error(`${name} does not run node`);
  return words.map((word) => (word.includes('/') ? join(ROOT, word) : word));
}

export interface Run {
  readonly child: ChildProcess;
  /** What was printed so far, on both streams. */
  output(): string;
  /** Resolves when the process has ended. */
  readonly ended: Promise<{ readonly code: number | null; readonly output: string }>;
}

/** An empty folder in which scripts run as processes. At the end of the test, those that still run end too. */
export class Home {
  readonly path: string;
  readonly #running: ChildProcess[] = [];

  static async make(): Promise<Home> {
    const home = new Home(await temporaryFolder());
    onTestFinished(() => home.#stop());
    return home;
  }

  private constructor(path: string) {
    this.path = path;
  }

  /** Runs a script of package.json with arguments, as npm does. */
  run(
    script: string,
    arguments_: readonly string[] = [],
    { env = {}, ...options }: Omit<SpawnOptions, 'env'> & { env?: Record<string, string | undefined> } = {},
  ): Run {
    const child = spawn(process.execPath, [...scriptArguments(script), ...arguments_], {
      cwd: this.path,
      env: { ...process.env, INIT_CWD: this.path, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      ...options,
    });
    this.#running.push(child);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (output += chunk));
    const ended = once(child, 'close').then(([code]) => ({ code, output }));
    return { child, ended, output: () => output };
  }

  async #stop(): Promise<void> {
    for (const child of this.#running) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  }
}

/** The paths below a folder that other users could open, with their modes. */
export async function openToOthers(path: string): Promise<readonly string[]> {
  const inside = await readdir(path, { recursive: true });
  const modes = await Promise.all(
    ['.', ...inside].map(async (each) => {
      const info = await stat(join(path, each)).catch(() => undefined); // Removed since.
      return { each, mode: (info?.mode ?? 0) & 0o777 };
    }),
  );
  return modes.filter(({ mode }) => (mode & 0o077) !== 0).map(({ each, mode }) => `${each} ${mode.toString(8)}`);
}
