import { shellWord } from '../base/printable.ts';
import type { Settings } from '../settings/environment.ts';
import type { Upload } from '../uploads/upload.ts';

export type RetrySettings = Pick<Settings, 'collectFunction' | 'command' | 'localInbox'>;

/**
 * The shell command that retries a failed upload. It names the upload by its id, because another file may have come to
 * its key, and the function, because a function does not know its stack. In a local run it names that run: a command
 * that names a function would reach whatever account the user's shell is logged in to. Undefined in a run without an inbox
 * folder: it keeps nothing, and no command reaches it.
 */
export function retryCommand(settings: RetrySettings, { id }: Pick<Upload, 'id'>): string | undefined {
  return settings.localInbox === '' ? undefined : `${settings.command} retry ${id} ${where(settings)}`;
}

/** The shell command that approves an upload. */
export const approveCommand = (settings: RetrySettings, { id }: Pick<Upload, 'id'>): string =>
  `${settings.command} approve ${id} ${where(settings)}`;

/** The shell command that pauses a route. */
export const pauseCommand = (settings: RetrySettings, route: string): string =>
  `${settings.command} pause --route ${shellWord(route)} ${where(settings)}`;

const where = ({ collectFunction, localInbox }: RetrySettings): string =>
  localInbox === undefined ? `--function ${shellWord(collectFunction)}` : '--local';
