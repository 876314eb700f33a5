import type { WriteStream } from 'node:tty';
import { printable } from './printable.ts';

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 100;

/**
 * Shows lines and, on a terminal, a status line below them that is rewritten in place. If the output is not a terminal,
 * {@link step} prints lines instead of the status.
 */
export class Screen {
  readonly #output: NodeJS.WritableStream & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;
  #status = '';
  #frame = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(output: NodeJS.WritableStream) {
    this.#output = output;
  }

  get isTerminal(): boolean {
    return this.#output.isTTY === true;
  }

  /** Prints a line that stays. All that this class prints is {@link printable}. */
  line(text = ''): void {
    this.#output.write(`${this.isTerminal ? '\r\u001b[K' : ''}${printable(text)}\n`);
    this.#draw();
  }

  /** Prints a line, but not on a terminal: there the status line shows the same. */
  step(text: string): void {
    if (!this.isTerminal) this.line(text);
  }

  /** Sets the status line. An empty text removes it. */
  status(text: string): void {
    if (!this.isTerminal || text === this.#status) return;
    this.#status = text;
    if (text === '') {
      clearInterval(this.#timer);
      this.#timer = undefined;
      this.#output.write('\r\u001b[K');
    } else {
      this.#timer ??= setInterval(() => {
        this.#frame += 1;
        this.#draw();
      }, FRAME_MS);
      this.#draw();
    }
  }

  #draw(): void {
    if (this.#status === '') return;
    const columns = this.#output.columns || 80; // Some terminals report 0 columns.
    const text = `${FRAMES[this.#frame % FRAMES.length]} ${printable(this.#status)}`;
    this.#output.write(
      `\r\u001b[K${Array.from(text)
        .slice(0, columns - 1)
        .join('')}`,
    );
  }
}

/** Formats a number of bytes: `0 B`, `12.3 KB`, `4 MB`. */
export function size(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : Math.round(value * 10) / 10} ${units[power]}`;
}
