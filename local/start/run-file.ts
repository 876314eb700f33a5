import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { LOCAL_RUN_FILE, type LocalRun } from '../../operations/local-run.ts';
import type { OperatorAccess } from '../pipeline.ts';
import { PRIVATE_FILE_MODE } from './private-folder.ts';

/**
 * Writes how commands reach this run. Returns what removes the file.
 * @param root the private folder of all state.
 */
export function writeRunFile(root: string, { credentials, ...access }: OperatorAccess): () => void {
  const { accessKeyId, secretAccessKey } = credentials;
  const run: LocalRun = { pid: process.pid, ...access, credentials: { accessKeyId, secretAccessKey } };
  const path = join(root, LOCAL_RUN_FILE);
  // An earlier run that was killed may have left one.
  rmSync(path, { force: true });
  writeFileSync(path, JSON.stringify(run), { mode: PRIVATE_FILE_MODE, flag: 'wx' });
  return () => rmSync(path, { force: true });
}
