import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { Screen, size } from '../../../local/start/screen.ts';

function screenOf(output: PassThrough & { isTTY?: boolean; columns?: number }) {
  output.setEncoding('utf8');
  return { screen: new Screen(output), shown: () => output.read() as string | null };
}

it('shows steps and no status if the output is not a terminal', () => {
  const { screen, shown } = screenOf(new PassThrough());
  screen.status('a.png running');
  screen.step('a.png  uploaded');
  screen.line('a.png  done');
  expect(shown()).toBe('a.png  uploaded\na.png  done\n');
});

it('keeps the status below the lines of a terminal, within its width, and removes it at the end', () => {
  const { screen, shown } = screenOf(Object.assign(new PassThrough(), { isTTY: true, columns: 12 }));
  screen.status('a.png running');
  screen.step('a.png  uploaded');
  screen.line('b.png  done');
  screen.status('');
  const status = '\r\u001b[K⠋ a.png run';
  expect(shown()).toBe(`${status}\r\u001b[Kb.png  done\n${status}\r\u001b[K`);
});

it('shows control characters as escapes, in lines and in the status', () => {
  const { screen, shown } = screenOf(new PassThrough());
  screen.line('! create-flow: \u001b[2J\u202e');
  screen.step('a\nb.png  uploaded');
  expect(shown()).toBe('! create-flow: \\u001b[2J\\u202e\na\\nb.png  uploaded\n');

  const terminal = screenOf(Object.assign(new PassThrough(), { isTTY: true, columns: 80 }));
  terminal.screen.status('a\u001b[2J running');
  terminal.screen.status('');
  expect(terminal.shown()).toBe('\r\u001b[K⠋ a\\u001b[2J running\r\u001b[K');
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
