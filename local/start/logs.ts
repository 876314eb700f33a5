import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE } from './private-folder.ts';
import { shownPath } from './shown-path.ts';

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
    writeSync(file, `${line}\n`);
    const warning = warningIn(line);
    if (warning !== undefined) this.#show(name, warning);
  }

  /** An invocation that failed as a whole. */
  fault(name: FunctionName, error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.write(name, `Invocation failed: ${text}`);
    this.#show(name, text);
  }

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

  #show(name: FunctionName, text: string): void {
    const shown = `${name}: ${text}`;
    if (this.#shown.has(shown)) return;
    this.#shown.add(shown);
    this.#warn(`${shown} (${this.hint(name)})`);
  }
}

/** The message of a log line, if the line is a warning or an error. */
function warningIn(line: string): string | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const { level, message, error } = JSON.parse(line);
    if (!['WARN', 'ERROR', 'CRITICAL'].includes(level)) return undefined;
    return error?.message ? `${message}: ${error.message}` : String(message);
  } catch {
    return undefined;
  }
}
