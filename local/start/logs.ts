import { appendFileSync, closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from '../../command-line/private-folder.ts';
import { shownPath } from '../../command-line/texts.ts';
import { printable, printableLines } from '../../functions/base/printable.ts';
import { redact } from '../../functions/flow-service/redact.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';

/**
 * Writes the output of each function to a log file. Each distinct warning or error is also shown once on the screen:
 * the user should learn of it, but not a thousand times, and not as JSON.
 */
export class FunctionLogs {
  readonly #dir: string;
  readonly #warn: (text: string) => void;
  readonly #files = new Map<FunctionName, number>();
  readonly #shown = new Set<string>();

  constructor(dir: string, warn: (text: string) => void) {
    this.#dir = dir;
    this.#warn = warn;
    mkdirSync(dir, { recursive: true, mode: PRIVATE_FOLDER_MODE });
  }

  write(name: FunctionName, line: string): void {
    let file = this.#files.get(name);
    if (file === undefined) {
      file = openSync(this.#pathOf(name), 'w', PRIVATE_FILE_MODE);
      this.#files.set(name, file);
    }
    writeSync(file, `${printable(line)}\n`);
    const warning = warningIn(line);
    if (warning !== undefined) this.#show(name, warning.text, warning.key);
  }

  /** An invocation that failed as a whole. */
  fault(name: FunctionName, error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.write(name, `Invocation failed: ${text}`);
    this.#show(name, text);
  }

  /** Where the details are, for the end of a line. */
  hint(name: FunctionName): string {
    return `see ${shownPath(this.#pathOf(name))}`;
  }

  close(): void {
    for (const file of this.#files.values()) closeSync(file);
    this.#files.clear();
  }

  #pathOf(name: FunctionName): string {
    return join(this.#dir, `${name}.log`);
  }

  /** @param key the upload that the text is about. Only the first upload with a trouble is named. */
  #show(name: FunctionName, text: string, key?: string): void {
    if (this.#shown.has(`${name}: ${text}`)) return;
    this.#shown.add(`${name}: ${text}`);
    this.#warn(`${key ?? name}: ${text} (${this.hint(name)})`);
  }
}

/**
 * The message of a log line, if the line is a warning or an error. Undefined if it tells what was decided about an
 * upload: the upload's own line says that.
 */
function warningIn(line: string): { readonly text: string; readonly key: string | undefined } | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const { level, message, error, key, decision } = JSON.parse(line);
    if (!['WARN', 'ERROR', 'CRITICAL'].includes(level) || decision !== undefined) return undefined;
    return {
      text: error?.message ? `${message}: ${error.message}` : String(message),
      key: typeof key === 'string' ? key : undefined,
    };
  } catch {
    return undefined;
  }
}

/**
 * Appends the details of an unexpected error to a log file. Returns the sentence for the screen, which says where.
 * @param token does not get into the file.
 */
export function unexpected(error: unknown, { dir, token }: { dir: string; token: string | undefined }): string {
  const path = join(dir, 'start.log');
  const said = redact(error instanceof Error ? error.message : String(error), token).split('\n', 1)[0];
  const sentence = `An unexpected error ended this run: ${said}`;
  try {
    mkdirSync(dir, { recursive: true, mode: PRIVATE_FOLDER_MODE });
    appendFileSync(path, `${new Date().toISOString()} ${printableLines(redact(inspect(error), token))}\n`, {
      mode: PRIVATE_FILE_MODE,
    });
    return `${sentence} (details: ${shownPath(path)})`;
  } catch (cause) {
    return `${sentence} (no details: ${(cause as Error).message})`;
  }
}
