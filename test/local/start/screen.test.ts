import { PassThrough } from 'node:stream';
import stringWidth from 'string-width';
import { describe, expect, it, onTestFinished } from 'vitest';
import { size } from '../../../command-line/texts.ts';
import { Screen } from '../../../local/start/screen.ts';

/** A terminal that understands what the screen sends: line feeds, the cursor up, and clearing from the cursor on. */
class Terminal extends PassThrough {
  readonly isTTY = true;
  columns: number;
  rows: number;
  readonly lines: string[] = [''];
  /** Every line that was ever on the screen. */
  readonly seen = new Set<string>();
  #row = 0;

  constructor(columns: number, rows: number) {
    super();
    this.columns = columns;
    this.rows = rows;
    this.setEncoding('utf8');
  }

  shown(): string[] {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: The pattern splits a terminal's commands from its text.
    const parts = ((this.read() as string | null) ?? '').split(/(\r|\n|\u001b\[\d*[A-Z])/);
    for (const part of parts) {
      if (part === '\r')
        continue; // Every text here begins a line.
      else if (part === '\n') this.#row += 1;
      else if (part === '\u001b[J') this.lines.length = this.#row;
      else if (part.endsWith('A') && part.startsWith('\u001b[')) this.#row -= Number(part.slice(2, -1));
      else if (part !== '') this.lines[this.#row] = part;
      if (part !== '') this.seen.add(part);
    }
    return this.lines;
  }
}

function onTerminal({ columns = 40, rows = 10 } = {}, env: NodeJS.ProcessEnv = {}) {
  const terminal = new Terminal(columns, rows);
  const screen = new Screen(terminal, env);
  onTestFinished(() => screen.clear());
  return { terminal, screen };
}

const files = (count: number) => Array.from({ length: count }, (_, i) => ({ name: `${i}.png`, state: 'flow runs' }));

describe('the screen without a terminal', () => {
  it.each([
    ['a pipe', new PassThrough(), {}],
    ['a dumb terminal', new Terminal(80, 24), { TERM: 'dumb' }],
  ])('shows lines only: %s', (_name, output, env) => {
    output.setEncoding('utf8');
    const screen = new Screen(output, env);
    screen.status(files(2), '2 under way');
    screen.line('a.png  done');
    screen.clear();
    expect(output.read()).toBe('a.png  done\n');
  });
});

describe('the screen of a terminal', () => {
  it('has one line for each file under way, and a summary, below the lines that stay', () => {
    const { terminal, screen } = onTerminal();
    screen.status(files(2), '2 under way');
    expect(terminal.shown()).toEqual(['⠋ 0.png  flow runs', '⠋ 1.png  flow runs', '  2 under way']);
    screen.line('0.png  done');
    screen.status(files(1), '1 done, 1 under way');
    expect(terminal.shown()).toEqual(['0.png  done', '⠋ 0.png  flow runs', '  1 done, 1 under way']);
    screen.clear();
    screen.line('Stopped.');
    expect(terminal.shown().slice(0, 2)).toEqual(['0.png  done', 'Stopped.']);
  });

  it('keeps the summary while nothing is under way, and writes nothing then', async () => {
    const { terminal, screen } = onTerminal();
    screen.status(files(1), '1 under way');
    screen.status([], '1 done', { isIdle: true });
    expect(terminal.shown()).toEqual(['  1 done']);
    await new Promise((resolve) => setTimeout(resolve, 250)); // Longer than two frames.
    expect(terminal.read()).toBeNull();
  });

  it('keeps the live part within the height, and the lines within the width, for 120 files', () => {
    const { terminal, screen } = onTerminal({ columns: 20, rows: 6 });
    screen.status(files(120), '120 under way, and this summary is long');
    expect(terminal.shown()).toHaveLength(4);
    for (const line of terminal.lines) expect(stringWidth(line)).toBeLessThan(20);
  });

  it('follows a change of the size, and erases no line that stays', () => {
    const { terminal, screen } = onTerminal({ columns: 60, rows: 20 });
    screen.line('first.png  done');
    screen.status(files(12), '12 under way');
    Object.assign(terminal, { columns: 12, rows: 5 });
    screen.status(files(11), '11 under way');
    expect(terminal.shown()).toEqual(['first.png  done', '⠋ 0.p…  fl…', '⠋ 1.p…  fl…', '  11 under…']);
  });

  it('counts two columns for wide letters, and cuts none in half', () => {
    const { terminal, screen } = onTerminal({ columns: 21 });
    screen.status(
      [{ name: '漢字漢字漢字漢字.png', state: 'uploading' }],
      '👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧',
    );
    expect(terminal.shown()).toEqual(['⠋ 漢字漢字…  upload…', '  👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧…']);
  });

  it.each([[0], [1], [2], [5]])('survives a terminal with %d columns', (columns) => {
    const { terminal, screen } = onTerminal({ columns });
    screen.status(files(1), '1 under way');
    for (const line of terminal.shown()) expect(stringWidth(line)).toBeLessThan(columns || 80);
  });

  it('sends no colours', () => {
    const { terminal, screen } = onTerminal({}, { FORCE_COLOR: '1' });
    screen.status(files(1), '1 under way');
    screen.line('a.png  done');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: The pattern looks for a terminal's commands.
    expect(terminal.read()).not.toMatch(/\u001b\[[\d;]*m/);
  });
});

it('shows control characters as escapes, in lines and in each part of the status', () => {
  const { terminal, screen } = onTerminal({ columns: 60 });
  screen.line('! create-flow: \u001b[2J\u202e');
  screen.status([{ name: 'a\nb\u001b[2J.png', state: 'waits: \u009b2J' }], 'Asking \u001b[2J');
  expect(terminal.shown()).toEqual([
    '! create-flow: \\u001b[2J\\u202e',
    '⠋ a\\nb\\u001b[2J.png  waits: \\u009b2J',
    '  Asking \\u001b[2J',
  ]);
});

it.each([
  [0, '0 B'],
  [999, '999 B'],
  [6_458, '6.5 KB'],
  [123_456, '123 KB'],
  [1_073_741_824, '1.1 GB'],
])('shows %d bytes as %s', (bytes, text) => {
  expect(size(bytes)).toBe(text);
});
