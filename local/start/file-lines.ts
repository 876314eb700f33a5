import { dirname } from 'node:path';
import { shownPath, size } from '../../command-line/texts.ts';
import type { Progress } from './follower.ts';

/** What the user of a local run can do about an upload that waits, by the reason of the wait. */
const ADVICE: Readonly<Record<string, string>> = {
  unauthorised: 'Set FLOWDROP_TOKEN to a valid token, and start again',
  forbidden: 'Check what the token in FLOWDROP_TOKEN may do',
};

type Ended = Progress & { kind: 'ended' };

/**
 * The line about the end of a file, and below that of a failed file a line that says what to do.
 * @param since time at which its upload began, in milliseconds since the epoch.
 * @param cwd paths are shown relative to this folder.
 */
export function endLines(
  ended: Ended,
  { since, cwd }: { readonly since: number | undefined; readonly cwd: string },
): string[] {
  const { key, receipt, receiptPath } = ended;
  const givenWay = receiptPath === undefined ? '; the receipt is that of a newer version of the file' : '';
  if (receipt.failure !== undefined) {
    const { message, advice } = receipt.failure;
    const where = receiptPath === undefined ? '' : `  ${shownPath(receiptPath, cwd)}`;
    const line = `${key}  failed: ${message}${givenWay}${where}`;
    // Version 0.1.0 wrote receipts without advice, and an earlier run may have left one.
    return advice === undefined ? [line] : [line, `    ${advice}`];
  }
  const took = since === undefined ? '' : ` in ${((Date.now() - since) / 1000).toFixed(1)} s`;
  const [output] = receipt.failedOutputs;
  const missing = output ? `; ${receipt.failedOutputs.length} missing: ${output.message}` : '';
  return [`${key}  done${took}: ${assetsIn(ended, cwd)}${missing}${givenWay}`];
}

/** The number of assets, and where they are. */
function assetsIn({ assets, receiptPath }: Ended, cwd: string): string {
  const [asset] = assets;
  if (asset === undefined) return '0 assets';
  if (assets.length === 1) return `1 asset  ${shownPath(asset.path, cwd)}  ${size(asset.bytes)}`;
  return `${assets.length} assets  ${shownPath(dirname(receiptPath ?? asset.path), cwd)}`;
}

/** What files wait for. A trouble that many files share is told once in a line that stays. */
export class Waits {
  readonly #told = new Set<string>();

  /** What to show of a wait. `line` is undefined if another file's line has told the same. */
  show({ key, reason, message, notBefore }: Progress & { kind: 'waiting' }): { state: string; line?: string } {
    const advice = ADVICE[reason];
    const trouble = advice === undefined ? message : `${message.replace(/\.$/, '')}. ${advice}`;
    const state = `waits until ${new Date(notBefore).toLocaleTimeString()}: ${trouble}`;
    if (this.#told.has(trouble)) return { state };
    this.#told.add(trouble);
    return { state, line: `${key}  ${state}` };
  }

  /** A file no longer waits. If it waits again for the same reason, the reason is printed again. */
  forget(): void {
    this.#told.clear();
  }
}
