import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { shownPath } from './shown-path.ts';

/**
 * What the functions print goes into a file for each; warnings and errors among it are told of once for each message,
 * because a person wants to know that there is something, and a thousand lines of JSON do not say it better.
 */
export class FunctionLogs {
  readonly #dir: string;
  readonly #warn: (text: string) => void;
  readonly #files = new Map<FunctionName, number>();
  readonly #told = new Set<string>();

  constructor(dir: string, warn: (text: string) => void) {
    this.#dir = dir;
    this.#warn = warn;
    mkdirSync(dir, { recursive: true });
  }

  write(name: FunctionName, line: string): void {
    let file = this.#files.get(name);
    if (file === undefined) {
      file = openSync(this.#pathOf(name), 'w');
      this.#files.set(name, file);
    }
    writeSync(file, `${line}\n`);
    const warning = warningIn(line);
    if (warning !== undefined) this.#tell(name, warning);
  }

  /** An invocation that failed as a whole. */
  fault(name: FunctionName, error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.write(name, `Invocation failed: ${text}`);
    this.#tell(name, text);
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

  #tell(name: FunctionName, text: string): void {
    const told = `${name}: ${text}`;
    if (this.#told.has(told)) return;
    this.#told.add(told);
    this.#warn(`${told} (${this.hint(name)})`);
  }
}

/** The message of a line that the logger wrote as a warning or an error. */
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
