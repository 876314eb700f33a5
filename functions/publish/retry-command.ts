import { shellWord } from '../base/printable.ts';
import type { Settings } from '../settings/environment.ts';
import type { Upload } from '../uploads/upload.ts';

export type RetrySettings = Pick<Settings, 'collectFunction' | 'command' | 'localInbox'>;

/**
 * The shell command that retries a failed upload. It names the upload by its id, because another file may have come to
 * its key, and the function, because a function does not know its stack. In a local run it names that run: a command
 * that names a function would reach whatever account the user's shell is logged in to.
 */
export function retryCommand(settings: RetrySettings, { id }: Pick<Upload, 'id'>): string {
  const { command, collectFunction, localInbox } = settings;
  const where = localInbox === undefined ? `--function ${shellWord(collectFunction)}` : '--local';
  return `${command} retry ${id} ${where}`;
}
