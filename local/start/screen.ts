import type { WriteStream } from 'node:tty';
import stringWidth from 'string-width';
import { cut } from '../../command-line/texts.ts';
import { printable } from '../../functions/base/printable.ts';

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 100;

/** Maximum number of files that the live part shows, and the lines of a terminal that it leaves for the lines above. */
const FILES_SHOWN_MAX = 12;
const LINES_LEFT_MIN = 3;
/** Columns and lines of a terminal that reports none. */
const COLUMNS_DEFAULT = 80;
const ROWS_DEFAULT = 24;

/** A file that has not ended. */
export interface UnderWay {
  readonly name: string;
  readonly state: string;
}

type Output = NodeJS.WritableStream & Partial<Pick<WriteStream, 'isTTY' | 'columns' | 'rows'>>;

/**
 * Shows lines that stay. On a terminal it also shows a live part below them: one line for each file under way, as many
 * as fit, and a summary. The live part is rewritten in place. Without a terminal there is no live part.
 *
 * It uses no colours, so NO_COLOR has nothing to turn off.
 */
export class Screen {
  readonly #output: Output;
  readonly #isTerminal: boolean;
  #files: readonly UnderWay[] = [];
  #summary = '';
  #isIdle = false;
  /** Number of lines that the live part has on the terminal now. */
  #linesDrawn = 0;
  #frame = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(output: Output, env: NodeJS.ProcessEnv = process.env) {
    this.#output = output;
    this.#isTerminal = output.isTTY === true && env.TERM !== 'dumb';
  }

  /** Prints a line that stays. All texts that this class prints are {@link printable}. */
  line(text = ''): void {
    this.#output.write(`${this.#erasure()}${printable(text)}\n${this.#live()}`);
  }

  /** Sets the live part. Without files and a summary it goes away. While nothing is under way, it stands still. */
  status(files: readonly UnderWay[], summary: string, { isIdle = false } = {}): void {
    if (!this.#isTerminal) return;
    this.#files = files;
    this.#summary = summary;
    this.#isIdle = isIdle;
    if (isIdle || (files.length === 0 && summary === '')) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    } else {
      this.#timer ??= setInterval(() => this.#next(), FRAME_MS);
    }
    this.#draw();
  }

  /** Removes the live part. */
  clear(): void {
    this.status([], '');
  }

  #next(): void {
    this.#frame += 1;
    this.#draw();
  }

  #draw(): void {
    const text = this.#erasure() + this.#live();
    if (text !== '') this.#output.write(text);
  }

  /**
   * Moves to the first line of the live part and clears from there on. If the terminal became so narrow that it wrapped
   * the lines, a rest of them stays above: a line that is to stay must never be erased.
   */
  #erasure(): string {
    if (this.#linesDrawn === 0) return '';
    const up = this.#linesDrawn > 1 ? `\u001b[${this.#linesDrawn - 1}A` : '';
    this.#linesDrawn = 0;
    return `\r${up}\u001b[J`;
  }

  /** The live part for the present size of the terminal. The cursor stays in its last line. */
  #live(): string {
    if (this.#files.length === 0 && this.#summary === '') return '';
    // Some terminals report a size of 0. In its last column a terminal may wrap.
    const columns = (this.#output.columns || COLUMNS_DEFAULT) - 1;
    const rows = this.#output.rows || ROWS_DEFAULT;
    const count = Math.max(0, Math.min(this.#files.length, FILES_SHOWN_MAX, rows - LINES_LEFT_MIN));
    const frame = FRAMES[this.#frame % FRAMES.length] ?? '';
    const lines = this.#files.slice(0, count).map((file) => cut(`${frame} ${fitted(file, columns - 2)}`, columns));
    if (this.#summary !== '' || count === 0) {
      lines.push(cut(`${count > 0 || this.#isIdle ? ' ' : frame} ${printable(this.#summary)}`, columns));
    }
    this.#linesDrawn = lines.length;
    return lines.join('\n');
  }
}

/** A name and its state in at most so many columns. Each has half of them, and what the other does not need. */
function fitted(file: UnderWay, columns: number): string {
  const name = printable(file.name);
  const state = printable(file.state);
  const shownState = cut(state, Math.max(columns - 2 - Math.min(stringWidth(name), Math.floor(columns / 2)), 0));
  const shownName = cut(name, columns - 2 - stringWidth(shownState));
  return `${shownName}  ${shownState}`;
}
