import { createInterface } from 'node:readline/promises';
import { type Readable, Writable } from 'node:stream';
import { styleText } from 'node:util';
import stringWidth from 'string-width';
import { printable, printableJson } from '../../functions/base/printable.ts';
import { confirms } from '../confirm.ts';
import { cut } from '../texts.ts';

/** After this time a command says what it is doing, in milliseconds. */
const QUIET_MS = 2_000;

/** How often the progress is drawn on a terminal, in milliseconds. */
const DRAW_MS = 250;

/** Columns of a terminal that reports none. */
const COLUMNS_DEFAULT = 100;

type Output = Writable & { readonly isTTY?: boolean | undefined; readonly columns?: number | undefined };

export interface Streams {
  readonly input: Readable & { readonly isTTY?: boolean | undefined };
  readonly output: Output;
  /** For progress, questions and errors, so that the output holds the answer alone. */
  readonly errors: Output;
}

/** A text with parts that a terminal shows in a colour. As a string, it is the text alone. */
class ColouredText {
  readonly parts: readonly Text[];
  readonly colour: Colour | undefined;

  constructor(parts: readonly Text[], colour?: Colour) {
    this.parts = parts;
    this.colour = colour;
  }

  toString(): string {
    return this.parts.join('');
  }
}

export type Text = string | ColouredText;
type Colour = 'green' | 'yellow' | 'red';

/** What an eye should find at once. All other words have no colour. */
const COLOURS: Readonly<Record<string, Colour>> = {
  ...{ succeeded: 'green', good: 'green' },
  ...{ undecided: 'yellow', withheld: 'yellow', held: 'yellow', warning: 'yellow', WARN: 'yellow' },
  ...{ failed: 'red', unreadable: 'red', fault: 'red', ERROR: 'red', CRITICAL: 'red' },
};

/** A text in the colour of a state, of the result of a check or of a level of a log. */
export function coloured(word: string, text = word): Text {
  const colour = Object.hasOwn(COLOURS, word) ? COLOURS[word] : undefined;
  return colour === undefined ? text : new ColouredText([text], colour);
}

export const joined = (...parts: readonly Text[]): Text =>
  parts.every((part) => typeof part === 'string') ? parts.join('') : new ColouredText(parts);

/** Columns before an indented line. */
export const INDENT = 2;

export const indented = (lines: readonly Text[]): readonly Text[] =>
  lines.map((line) => joined(' '.repeat(INDENT), line));

/**
 * What a command prints: lines and tables for a person, or one JSON text for a program. All texts are printable: keys
 * and the service's words may hold anything. Node decides whether a stream has colours: by its terminal, NO_COLOR and
 * FORCE_COLOR.
 */
export class Console {
  readonly #streams: Streams;
  readonly #isJson: boolean;
  #progress: (() => string) | undefined;

  constructor(streams: Streams, { json = false }: { readonly json?: boolean | undefined } = {}) {
    this.#streams = streams;
    this.#isJson = json;
  }

  get isJson(): boolean {
    return this.#isJson;
  }

  /** Prints the answer: as JSON if that was asked for, or else as `show` does. */
  answer<T>(value: T, show: (value: T) => readonly Text[]): void {
    if (this.#isJson) this.#streams.output.write(`${printableJson(value)}\n`);
    else for (const line of show(value)) this.line(line);
  }

  /** Clears the terminal before the next answer of a command that shows it again and again. */
  clear(): void {
    if (this.#streams.output.isTTY === true) this.#streams.output.write('\u001b[H\u001b[2J\u001b[3J');
  }

  /** A line of an answer. Nothing is printed if the answer is JSON. */
  line(text: Text = ''): void {
    if (!this.#isJson) this.#streams.output.write(`${this.#shown(this.#streams.output, text)}\n`);
  }

  /** A line beside the answer. */
  note(text: Text): void {
    this.#streams.errors.write(`${this.#erasure()}${this.#shown(this.#streams.errors, text)}\n`);
  }

  /** The lines of an error, beside the answer. */
  error(lines: readonly string[]): void {
    for (const line of lines) this.note(coloured('fault', line));
  }

  /** Columns of the terminal that shows the answer. Undefined if it goes into a file or to a program. */
  get columns(): number | undefined {
    const { isTTY, columns } = this.#streams.output;
    return isTTY === true ? columns || COLUMNS_DEFAULT : undefined;
  }

  /** True if a person is there, who sees a question and can answer it. */
  get canAsk(): boolean {
    const { input, errors } = this.#streams;
    return input.isTTY === true && errors.isTTY === true;
  }

  /** Asks a question and returns true for `y` or `yes`. @throws an `AbortError` for Ctrl-C and Ctrl-D. */
  async confirms(question: string, signal: AbortSignal): Promise<boolean> {
    const { input, errors } = this.#streams;
    return confirms({ input, output: errors }, question, signal);
  }

  /**
   * Asks for a secret. What is typed is not shown. Returns an empty text for Ctrl-D.
   * @throws an `AbortError` for Ctrl-C: the terminal sends no signal meanwhile.
   */
  async secret(question: string, signal: AbortSignal): Promise<string> {
    const { input, errors } = this.#streams;
    // With `terminal`, the terminal itself shows nothing, and readline writes the characters to its output.
    const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
    const asked = createInterface({ input, output: nowhere, terminal: true, historySize: 0 });
    errors.write(`${printable(question)}: `);
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
    asked.once('line', resolve);
    asked.once('close', () => resolve(''));
    asked.once('SIGINT', () => reject(new DOMException('Interrupted', 'AbortError')));
    try {
      return await promise;
    } finally {
      signal.removeEventListener('abort', abort);
      asked.close();
      errors.write('\n');
    }
  }

  /** Runs `work`. If it takes more than two seconds, says what it is doing and how far it is. */
  async during<T>(progress: () => string, work: () => Promise<T>): Promise<T> {
    const before = this.#progress;
    this.#progress = progress;
    const { errors } = this.#streams;
    let timer = setTimeout(() => {
      if (errors.isTTY !== true) {
        errors.write(`${printable(progress())} ...\n`);
        return;
      }
      this.#draw();
      timer = setInterval(() => this.#draw(), DRAW_MS);
    }, QUIET_MS);
    try {
      return await work();
    } finally {
      clearTimeout(timer);
      this.#progress = before;
      errors.write(this.#erasure());
    }
  }

  #shown(stream: Output, text: Text): string {
    if (typeof text === 'string') return printable(text);
    const shown = text.parts.map((part) => this.#shown(stream, part)).join('');
    return text.colour === undefined || this.#isJson ? shown : styleText(text.colour, shown, { stream });
  }

  #draw(): void {
    const columns = (this.#streams.errors.columns || COLUMNS_DEFAULT) - 1;
    if (this.#progress !== undefined) {
      this.#streams.errors.write(`${this.#erasure()}${cut(printable(this.#progress()), columns)}`);
    }
  }

  #erasure(): string {
    return this.#streams.errors.isTTY === true ? '\r\u001b[K' : '';
  }
}

const widthOf = (text: Text = ''): number => stringWidth(printable(String(text)));

/** Columns of the widest cell of a column. As the arguments of one call, 130,000 cells would not fit on the stack. */
const widestOf = (rows: readonly (readonly Text[])[], column: number): number =>
  rows.reduce((widest, row) => Math.max(widest, widthOf(row[column])), 0);

/** Lines of a table whose columns are as wide as their widest cell. The last filled column is not padded. */
export function table(rows: readonly (readonly Text[])[]): readonly Text[] {
  const widths = (rows[0] ?? []).map((_, column) => widestOf(rows, column));
  return rows.map((row) => {
    const last = row.findLastIndex((cell) => String(cell) !== '');
    return joined(
      ...row.slice(0, last + 1).map((cell, column) => {
        const padding = column === last ? 0 : (widths[column] ?? 0) - widthOf(cell) + 2;
        return joined(cell, ' '.repeat(padding));
      }),
    );
  });
}

/** Fewest columns of the first and of the last cell of a row, and most of a cell between them. */
const FIRST_COLUMNS_MIN = 12;
const LAST_COLUMNS_MIN = 24;
const MIDDLE_COLUMNS_MAX = 24;

/**
 * Cuts the cells of a table so that its lines fit: the last cell first, which holds words, then the first one.
 * @param columns undefined: nothing is cut.
 */
export function fitted(rows: readonly (readonly Text[])[], columns: number | undefined): readonly (readonly Text[])[] {
  if (columns === undefined) return rows;
  const last = (rows[0]?.length ?? 1) - 1;
  const cutTo = (cell: Text, max: number): Text => (widthOf(cell) <= max ? cell : cut(printable(String(cell)), max));
  const shown = rows.map((row) =>
    row.map((cell, at) => (at === 0 || at === last ? cell : cutTo(cell, MIDDLE_COLUMNS_MAX))),
  );
  const width = (at: number): number => widestOf(shown, at);
  const between = Array.from({ length: Math.max(0, last - 1) }, (_, at) => width(at + 1) + 2);
  const room = columns - 2 - between.reduce((sum, each) => sum + each, 0);
  const lastMax = Math.max(LAST_COLUMNS_MIN, room - width(0));
  const firstMax = Math.max(FIRST_COLUMNS_MIN, room - Math.min(lastMax, width(last)));
  return shown.map((row) =>
    row.map((cell, at) => (at === 0 ? cutTo(cell, firstMax) : at === last ? cutTo(cell, lastMax) : cell)),
  );
}
