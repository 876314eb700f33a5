import { dirname } from 'node:path';
import { chainEnd, isAhead, localTime, shownPath, size } from '../../command-line/texts.ts';
import { adviceFor } from '../../functions/ledger/failures.ts';
import { OWN_COMMAND } from '../../functions/settings/own-command.ts';
import { soonerBy } from '../../operations/commands.ts';
import { atItsTime, isAllReplaced, isUntimed, shownState } from '../../operations/shown-state.ts';
import type { Progress } from './follower.ts';

type Ended = Progress & { kind: 'ended' };

/** True if a newer file took the place of the upload. */
export const isReplaced = ({ status, failure }: Ended['receipt']): boolean =>
  shownState({ state: status, failure }) === 'replaced';

/**
 * The line about the end of a file, and below that of a failed file a line that says what to do. If several files fail
 * alike, the second one's says how to retry all of them, and the others have none.
 * @param since time at which its upload began, in milliseconds since the epoch.
 * @param told how many files have failed with each message since the last success. It is counted here.
 * @param cwd paths are shown relative to this folder.
 * @param again how the file is sent again, if the run keeps nothing of it for later commands.
 */
export function endLines(
  ended: Ended,
  {
    since,
    cwd,
    told,
    again,
  }: { since: number | undefined; cwd: string; told: Map<string, number>; again?: string | undefined },
): string[] {
  const { key, receipt, receiptPath } = ended;
  const givenWay = receiptPath === undefined ? '; the receipt is that of a newer version of the file' : '';
  if (receipt.failure !== undefined) {
    const { code, message, advice, retry } = receipt.failure;
    const where = receiptPath === undefined ? '' : `  ${shownPath(receiptPath, cwd)}`;
    if (isReplaced(receipt)) return [`${key}  replaced: ${message}${givenWay}${where}`];
    const missing = missingIn(receipt);
    const said = missing === '' ? message : message.replace(/\.$/, '');
    const line = `${key}  failed: ${said}${missing}${givenWay}${where}`;
    // Version 0.1.0 wrote receipts without advice, and an earlier run may have left one.
    if (advice === undefined) return [line];
    const before = told.get(message) ?? 0;
    told.set(message, before + 1);
    if (before > 0) {
      const isFirst = before === 1 && retry !== undefined;
      return isFirst
        ? [line, `    To retry all that failed like this: ${OWN_COMMAND} retry --failed --code ${code}`]
        : [line];
    }
    if (again !== undefined && adviceFor(code)?.retry !== 'cannot-help') {
      return [
        line,
        `    ${advice}`,
        `    This run keeps nothing. To pay for the file again, from its first stage on: ${again}`,
      ];
    }
    return [line, `    ${advice}${retry === undefined ? '' : ` To retry: ${retry}`}`];
  }
  told.clear();
  const took = since === undefined ? '' : ` in ${((Date.now() - since) / 1000).toFixed(1)} s`;
  return [`${key}  done${took}: ${assetsIn(ended, cwd)}${missingIn(receipt)}${givenWay}`];
}

/** The number of outputs that failed, and why the first did. */
function missingIn({ failedOutputs: [output, ...others] }: Ended['receipt']): string {
  return output === undefined ? '' : `; ${others.length + 1} missing: ${output.message}`;
}

/** The line about the end of a chain. */
export function chainLine({ key, report, path }: Progress & { kind: 'chain' }, cwd: string): string {
  const stages = report.stages
    .filter(({ status }) => status !== 'withheld')
    .map(({ route, uploads, more = {} }) => {
      const counts: Record<string, number> = Object.fromEntries(Object.entries(more).filter(([, count]) => count > 0));
      for (const { status, failure } of uploads) {
        const state = shownState({ state: status, failure });
        counts[state] = (counts[state] ?? 0) + 1;
      }
      return { route, counts };
    });
  const withheld = report.stages.filter(({ status }) => status === 'withheld');
  const failures = report.stages.flatMap(({ uploads }) => uploads.flatMap(({ failure }) => failure ?? []));
  const state = isAllReplaced(failures) ? 'replaced' : report.status;
  return `${key}  ${chainEnd({ state, stages, withheld })}  ${shownPath(path, cwd)}`;
}

/** The number of assets, and where they are. */
function assetsIn({ assets, receiptPath }: Ended, cwd: string): string {
  const [asset] = assets;
  if (asset === undefined) return '0 assets';
  if (assets.length === 1) return `1 asset  ${shownPath(asset.path, cwd)}  ${size(asset.bytes)}`;
  return `${assets.length} assets  ${shownPath(dirname(receiptPath ?? asset.path), cwd)}`;
}

/** What files wait for. A trouble that many files share is told once in lines that stay. */
export class Waits {
  readonly #again: ((key: string) => string) | undefined;
  readonly #told = new Set<string>();
  /** Jobs that were told to wait for inputs. What is still missing changes with every input that comes. */
  readonly #toldJobs = new Set<string>();

  /** The files of each hold that was told, by their keys. */
  readonly #held = new Map<string, Set<string>>();

  /** @param again how a file is sent again, if no command of flowdrop reaches this run. */
  constructor(again?: (key: string) => string) {
    this.#again = again;
  }

  /** What to show of a wait. There are no lines if another file's lines have told the same. */
  show({ id, key, versionId, route, wait }: Progress & { kind: 'waiting' }): {
    state: string;
    lines: readonly string[];
  } {
    const { message, since, until, askedUntil } = wait;
    const isJob = wait.ending === 'inputs';
    const word = atItsTime(wait.reason);
    const isHeld = wait.ending === 'hold';
    const times = [
      ...(isAhead(askedUntil) ? [`the service asks to wait until ${localTime(askedUntil)}`] : []),
      ...(until === undefined ? [] : [`${word} ${localTime(until)}`]),
    ];
    const next = isUntimed(wait) ? undefined : times.join(', ') || 'it is tried every few seconds';
    const state = isHeld
      ? `is held: ${message}`
      : isJob || next === undefined
        ? `waits: ${message}`
        : `waits, ${next}: ${message}`;
    const isTold = isHeld
      ? this.#isHoldTold(message, key)
      : isAddedBefore(isJob ? this.#toldJobs : this.#told, isJob ? `${id} ${since}` : message);
    if (isTold) return { state, lines: [] };
    // The name of an upload of a later stage is no key.
    const sooner = this.#soonerBy({ id, key: versionId === id ? id : key, route, wait });
    const first = `${key}  ${isHeld ? 'is held' : 'waits'} since ${localTime(since)}: ${message}`;
    const then = [...(next === undefined ? [] : [`${capitalised(next)}.`]), ...(sooner === undefined ? [] : [sooner])];
    return { state, lines: [first, `    ${then.join(' ')}`] };
  }

  /** Notes that this trouble is told. Returns false if it was told before, and no file has gone on since. */
  isNews(message: string): boolean {
    return !isAddedBefore(this.#told, message);
  }

  /**
   * A file no longer waits. If it waits again for the same reason, the reason is printed again. That of a hold is
   * printed again only if the file was held.
   */
  forget(key: string): void {
    this.#told.clear();
    for (const [message, keys] of this.#held) if (keys.has(key)) this.#held.delete(message);
  }

  #soonerBy(upload: Pick<Progress & { kind: 'waiting' }, 'id' | 'key' | 'route' | 'wait'>): string | undefined {
    switch (this.#again === undefined ? undefined : upload.wait.ending) {
      case 'retry':
        return undefined; // It is tried by itself. To send it again would make a second flow.
      case 'decide':
        return `Look for its flow at the service. If there is none, send it again: ${this.#again?.(upload.key)}`;
      default:
        return soonerBy(upload, THIS_RUN);
    }
  }

  #isHoldTold(message: string, key: string): boolean {
    const keys = this.#held.get(message);
    if (keys === undefined) this.#held.set(message, new Set([key]));
    else keys.add(key);
    return keys !== undefined;
  }
}

function isAddedBefore(told: Set<string>, what: string): boolean {
  const isBefore = told.has(what);
  told.add(what);
  return isBefore;
}

const THIS_RUN = { command: OWN_COMMAND, isLocal: true };

const capitalised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
