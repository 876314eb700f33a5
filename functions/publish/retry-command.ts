import { isPrintable, shellWord } from '../base/printable.ts';
import type { Settings } from '../settings/environment.ts';
import type { Upload } from '../uploads/upload.ts';

export type RetrySettings = Pick<Settings, 'collectFunction' | 'localInbox' | 'inboxPrefix'>;

/**
 * The shell command that retries a failed upload. It names the function, because a function does not know its stack. It
 * names the upload by its id, because another file may have come to its key. In a local run the command touches the
 * file, which is uploaded again then: a command that names a function would reach whatever account the user's shell is
 * logged in to. If no shell takes the file's name, the command names the upload and the local run. Undefined in a local
 * run whose files come from no inbox folder.
 */
export function retryCommand(settings: RetrySettings, { id, key }: Pick<Upload, 'id' | 'key'>): string | undefined {
  const { collectFunction, localInbox, inboxPrefix } = settings;
  if (localInbox === undefined) {
    return `flowdrop retry ${id} --function ${shellWord(collectFunction)}`;
  }
  if (localInbox === '' || !key.startsWith(inboxPrefix)) return undefined;
  const path = `${localInbox}/${key.slice(inboxPrefix.length)}`;
  return isPrintable(path) ? `touch -- ${shellWord(path)}` : `flowdrop retry ${id} --local`;
}
