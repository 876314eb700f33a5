import { isPrintable, shellWord } from '../functions/base/printable.ts';
import { folderOf } from '../functions/uploads/job-keys.ts';
import { UPLOAD_ID, type Upload } from '../functions/uploads/upload.ts';
import type { Deployment } from './deployment.ts';
import type { UploadView } from './upload-view.ts';

/**
 * A command of `flowdrop` about one upload, for a person to copy. It names the upload by its key. If no shell takes the
 * key, or the key looks like the id of another upload, it names the upload by its id.
 */
export function uploadCommand(
  name: string,
  { id, key }: Pick<Upload, 'id' | 'key'>,
  { command }: Pick<Deployment, 'command'>,
): string {
  const word = isPrintable(key) && !UPLOAD_ID.test(key) ? key : id;
  // A key such as `--failed` would be an option.
  const words = word.startsWith('-') ? ['--', word] : [word];
  return [command, ...[name, ...words].map(shellWord)].join(' ');
}

/**
 * What ends a wait sooner, in a sentence. Undefined if nothing does.
 * @param command how the reader gives a command: by a line for the shell, unless there is a button.
 */
export function soonerBy(
  { id, key, wait }: Pick<UploadView, 'id' | 'key' | 'wait'>,
  deployment: Pick<Deployment, 'command' | 'isLocal'>,
  command = (name: string) => uploadCommand(name, { id, key }, deployment),
): string | undefined {
  switch (wait?.ending) {
    case 'retry':
      return `To try now: ${command('retry')}`;
    case 'decide':
      return `Look for its flow at the service. If there is none, ${command('retry')} sends it again. Otherwise ${command('cancel')} ends it.`;
    case 'token':
      return deployment.isLocal
        ? 'Set FLOWDROP_TOKEN to a valid token, and start again.'
        : 'Store a valid token in the secret: it is used within five minutes.';
    case 'address':
      return `Correct ${deployment.isLocal ? '--service' : 'baseUrl'}, or what stands before the service: a proxy, a login, a firewall.`;
    case 'inputs':
      return `It goes on when they are in the inbox, below ${folderOf(key)}.`;
    default:
      return undefined;
  }
}
