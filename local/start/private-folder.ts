import { chmodSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigurationError } from '../../functions/base/validation.ts';

/**
 * Modes of what only the user of this run may read: uploads, results, logs and the ledger are copies of private files.
 */
export const PRIVATE_FOLDER_MODE = 0o700;
export const PRIVATE_FILE_MODE = 0o600;

/**
 * Makes a folder, or takes one that is there, and closes it to other users, with all that is in it. An earlier run may
 * have left it open, or another program may have written into it.
 * @throws {ConfigurationError} the folder belongs to another user.
 */
export function makePrivate(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: PRIVATE_FOLDER_MODE });
  // From the top: once a folder is closed, no other user can exchange what is in it.
  chmod(dir, PRIVATE_FOLDER_MODE);
  closeAll(dir);
}

function closeAll(dir: string): void {
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    try {
      if (entry.isDirectory()) {
        chmod(path, PRIVATE_FOLDER_MODE);
        closeAll(path);
      } else if (entry.isFile()) {
        chmod(path, PRIVATE_FILE_MODE);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error; // Another run has just removed it.
    }
  }
}

function chmod(path: string, mode: number): void {
  try {
    chmodSync(path, mode);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error;
    const issue = `${path} belongs to another user, who could read your files in it. Delete it, or start elsewhere.`;
    throw new ConfigurationError([issue], { cause: error });
  }
}
