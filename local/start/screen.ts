import type { WriteStream } from 'node:tty';

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 100;

/** A key of a person's file may hold what would move the cursor or colour the screen. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: They are what is looked for.
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f]/g;

export const printable = (text: string): string => text.replace(CONTROL_CHARACTERS, '�');

/**
 * What is shown: lines, and on a terminal below them one line about what is under way, rewritten in place. Where the
 * output is no terminal, {@link step} gives its lines instead.
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

  /** A line that stays. */
  line(text = ''): void {
    this.#output.write(`${this.isTerminal ? '\r\u001b[K' : ''}${text}\n`);
    this.#draw();
  }

  /** A line about something that the status line shows as well: not for terminals. */
  step(text: string): void {
    if (!this.isTerminal) this.line(text);
  }

  /** What the line below says; nothing for no such line. */
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
    const columns = this.#output.columns || 80; // Some terminals say that they have none.
    const text = `${FRAMES[this.#frame % FRAMES.length]} ${this.#status}`;
    this.#output.write(
      `\r\u001b[K${Array.from(text)
        .slice(0, columns - 1)
        .join('')}`,
    );
  }
}

/** A number of bytes for people: `0 B`, `12.3 KB`, `4 MB`. */
export function size(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : Math.round(value * 10) / 10} ${units[power]}`;
}
