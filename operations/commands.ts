import { isPrintable, shellWord } from '../functions/base/printable.ts';
import { folderOf } from '../functions/uploads/job-keys.ts';
import { isStageKey, UPLOAD_ID, type Upload } from '../functions/uploads/upload.ts';
import type { Deployment } from './deployment.ts';
import { endOfHold, type HoldReason, type HoldView } from './holds.ts';
import type { UploadView } from './upload-view.ts';

/**
 * A command of `flowdrop` about one upload, for a person to copy. It names the upload by its key. If no shell takes the
 * key, the key looks like the id of another upload, or the upload belongs to a later stage, it names the upload by its id.
 */
export function uploadCommand(
  name: string,
  { id, key }: Pick<Upload, 'id' | 'key'>,
  { command }: Pick<Deployment, 'command'>,
): string {
  const word = isPrintable(key) && !UPLOAD_ID.test(key) && !isStageKey(key) ? key : id;
  // A key such as `--failed` would be an option.
  const words = word.startsWith('-') ? ['--', word] : [word];
  return [command, ...[name, ...words].map(shellWord)].join(' ');
}

/**
 * What ends a wait sooner, in a sentence. Undefined if nothing does.
 * @param command how the reader gives a command: by a line for the shell, unless there is a button.
 * @param hold what holds it: `none` if nothing does any more. Undefined if that is not known.
 */
export function soonerBy(
  { id, key, wait, route }: Pick<UploadView, 'id' | 'key' | 'wait' | 'route'>,
  deployment: Pick<Deployment, 'command' | 'isLocal'>,
  command = (name: string) => uploadCommand(name, { id, key }, deployment),
  hold?: HoldView | 'none',
): string | undefined {
  switch (wait?.ending) {
    case 'retry':
      return `To ${wait.reason === 'settling' ? 'send it' : 'try'} now: ${command('retry')}`;
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
    case 'look':
      return `To have it sent: ${command('approve')}. To end it: ${command('cancel')}.`;
    case 'hold':
      if (hold === 'none') return 'It is not held any more, and goes on within some minutes.';
      return hold === undefined ? endOfUnknownHold(wait.reason, route, deployment) : endOfHold(hold, deployment);
    default:
      return undefined;
  }
}

/** The same if only the reason is known, and not whether the pipeline or the route is held. */
function endOfUnknownHold(reason: string, route: string, deployment: Pick<Deployment, 'command' | 'isLocal'>): string {
  const ending = endOfHold({ reason: reason as HoldReason, route }, deployment);
  if (reason !== 'paused') return ending;
  return `To go on: ${deployment.command} resume, or ${deployment.command} resume --route ${shellWord(route)} if only the route is paused.`;
}
