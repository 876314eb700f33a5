import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { makePrivate, PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from '../../command-line/private-folder.ts';
import { isAlive, LOCAL_RUN_FILE, type LocalRun } from '../../operations/local-run.ts';
import type { OperatorAccess } from '../pipeline.ts';

/** Another process is using the state directory. */
export class InUseError extends Error {
  override readonly name = 'InUseError';
}

/** The state that a run keeps on disk. */
export interface State {
  /** Directory for the pipeline's buckets. */
  readonly dir: string;
  /**
   * Name of the deployment. It is as unique as the directory: otherwise the uploads of two directories could be
   * mistaken for each other.
   */
  readonly name: string;
  /** An earlier run left this state, and its unfinished work continues. */
  readonly isResumed: boolean;
  /** The folder that the earlier run watched. Undefined if that is not known. */
  readonly inboxBefore?: string | undefined;
  /** Removes everything that the next run cannot use. */
  release(): void;
}

/**
 * State for a run that processes files and exits. Nothing is kept.
 * @param root the folder for all state. It is closed to other users.
 */
export function temporaryState(root: string): State {
  makePrivate(root);
  for (const name of readdirSync(root)) {
    const pid = /^once-(\d+)$/.exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) rmSync(join(root, name), { recursive: true, force: true });
  }
  const dir = join(root, `once-${process.pid}`);
  return { ...fresh(dir), release: () => rmSync(dir, { recursive: true, force: true }) };
}

/**
 * State for watching a folder. The next run with the same service, or with the stand-in, continues with it.
 * @throws {InUseError} another run is watching.
 */
export function watchState(
  root: string,
  { inboxDir, serviceUrl }: { readonly inboxDir: string; readonly serviceUrl: string | undefined },
): State {
  makePrivate(root);
  const lock = join(root, 'watch.lock');
  takeLock(lock);
  const release = () => rmSync(lock, { force: true });
  const dir = serviceUrl === undefined ? join(root, 'stand-in') : serviceDir(root, serviceUrl);
  const named = join(dir, 'name');
  const inbox = join(dir, 'inbox');
  const name = readIfThere(named);
  const state: Omit<State, 'release'> =
    name === undefined ? fresh(dir) : { dir, name, isResumed: true, inboxBefore: readIfThere(inbox) };
  writeFileSync(named, state.name, { mode: PRIVATE_FILE_MODE });
  writeFileSync(inbox, inboxDir, { mode: PRIVATE_FILE_MODE });
  return { ...state, release };
}

/** True if no earlier run watched a folder for this service. */
export const isNewService = (root: string, serviceUrl: string): boolean =>
  readIfThere(join(serviceDir(root, serviceUrl), 'name')) === undefined;

const serviceDir = (root: string, serviceUrl: string): string => join(root, `service-${hash(serviceUrl)}`);

/** Sum of the sizes of all files in a folder, in bytes. A clone counts with all of its size. */
export function bytesIn(dir: string): number {
  const entries = unlessGone(() => readdirSync(dir, { withFileTypes: true })) ?? [];
  return entries.reduce((sum, entry) => {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) return sum + bytesIn(path);
    return sum + (entry.isFile() ? (unlessGone(() => statSync(path).size) ?? 0) : 0);
  }, 0);
}

/** The file that remembers which files of an inbox folder were processed by which service. */
export function knownFilesPath(root: string, inboxDir: string, serviceUrl: string | undefined): string {
  return join(root, `known-${hash(`${inboxDir} ${serviceUrl ?? ''}`)}.json`);
}

/** A server whose port the next run takes again. Its key and its credentials end with its run. */
export type LastingServer = 'page' | 's3';

const portFile = (root: string, server: LastingServer): string => join(root, `${server}.json`);

/** The port of a server in the last run of this folder. A damaged file names none. */
export function lastPort(root: string, server: LastingServer): number | undefined {
  try {
    return portFileSchema.safeParse(JSON.parse(readIfThere(portFile(root, server)) ?? '')).data?.port;
  } catch {
    return undefined;
  }
}

/** Keeps the port of a server at this address for the next run. Returns the port. */
export function keepPort(root: string, server: LastingServer, url: string): number {
  const port = Number(new URL(url).port);
  writeFileSync(portFile(root, server), JSON.stringify({ port }), { mode: PRIVATE_FILE_MODE });
  return port;
}

const portFileSchema = z.object({ port: z.int().check(z.gte(1), z.lte(65_535)) });

function fresh(dir: string): Omit<State, 'release'> {
  rmSync(dir, { recursive: true, force: true }); // Earlier versions left state of the stand-in that cannot go on.
  mkdirSync(dir, { recursive: true, mode: PRIVATE_FOLDER_MODE });
  return { dir, name: `local-${randomBytes(6).toString('hex')}`, isResumed: false };
}

function takeLock(path: string): void {
  const holder = Number(readIfThere(path) ?? Number.NaN);
  if (isAlive(holder)) {
    throw new InUseError(
      `Flowdrop is already watching, as process ${holder}. To stop it: kill ${holder}. If that process is not Flowdrop, delete ${path}.`,
    );
  }
  writeFileSync(path, String(process.pid), { mode: PRIVATE_FILE_MODE });
}

const readIfThere = (path: string): string | undefined => unlessGone(() => readFileSync(path, 'utf8'));

function unlessGone<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

const hash = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 12);

/**
 * Writes how commands reach this run. Returns what removes the file.
 * @param root the private folder of all state.
 */
export function writeRunFile(root: string, access: OperatorAccess): () => void {
  const run: LocalRun = { pid: process.pid, ...access };
  const path = join(root, LOCAL_RUN_FILE);
  // An earlier run that was killed may have left one.
  rmSync(path, { force: true });
  writeFileSync(path, JSON.stringify(run), { mode: PRIVATE_FILE_MODE, flag: 'wx' });
  return () => rmSync(path, { force: true });
}
