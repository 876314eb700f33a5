import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { printable, Screen, size } from '../../../local/start/screen.ts';

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

it('replaces control characters in a name', () => {
  expect(printable('a\u001b[31m\nb\u009bc.png')).toBe('a�[31m�b�c.png');
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
