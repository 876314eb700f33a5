import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Somebody else is using what we would need for ourselves. */
export class InUseError extends Error {
  override readonly name = 'InUseError';
}

/** What one run keeps on disk. */
export interface State {
  /** Of the pipeline: buckets. */
  readonly dir: string;
  /** Name of the deployment. As unique as the directory, whose uploads would else be taken for those of another. */
  readonly name: string;
  /** Whether there was one before, whose unfinished work goes on now. */
  readonly isResumed: boolean;
  /** Removes what the next run cannot use. */
  release(): void;
}

/** For a run that processes some files and exits: nothing is kept. */
export function temporaryState(root: string): State {
  mkdirSync(root, { recursive: true });
  for (const name of readdirSync(root)) {
    const pid = /^once-(\d+)$/.exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) rmSync(join(root, name), { recursive: true, force: true });
  }
  const dir = join(root, `once-${process.pid}`);
  return { ...fresh(dir), release: () => rmSync(dir, { recursive: true, force: true }) };
}

/**
 * For watching a folder with a flow service that goes on while we do not: the next run takes up where this one ends.
 * With the stand-in, whose flows end with it, everything begins anew.
 * @throws {InUseError} there is such a run already.
 */
export function watchState(root: string, serviceUrl: string | undefined): State {
  mkdirSync(root, { recursive: true });
  const lock = join(root, 'watch.lock');
  takeLock(lock);
  const dir = join(root, serviceUrl === undefined ? 'stand-in' : `service-${hash(serviceUrl)}`);
  const release = () => rmSync(lock, { force: true });
  if (serviceUrl === undefined) {
    rmSync(dir, { recursive: true, force: true });
    return { ...fresh(dir), release };
  }
  const named = join(dir, 'name');
  const name = readIfThere(named);
  if (name !== undefined) return { dir, name, isResumed: true, release };
  const state = fresh(dir);
  writeFileSync(named, state.name);
  return { ...state, release };
}

/** The file that remembers which files of an inbox folder were dealt with, and by which service. */
export function knownFilesPath(root: string, inboxDir: string, serviceUrl: string | undefined): string {
  return join(root, `known-${hash(`${inboxDir} ${serviceUrl ?? ''}`)}.json`);
}

function fresh(dir: string): Omit<State, 'release'> {
  mkdirSync(dir, { recursive: true });
  return { dir, name: `local-${randomBytes(6).toString('hex')}`, isResumed: false };
}

function takeLock(path: string): void {
  const holder = Number(readIfThere(path) ?? Number.NaN);
  if (isAlive(holder)) {
    throw new InUseError(
      `Flowdrop is watching already, as process ${holder}. If that is something else, delete ${path}.`,
    );
  }
  writeFileSync(path, String(process.pid));
}

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid)) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

const hash = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 12);
