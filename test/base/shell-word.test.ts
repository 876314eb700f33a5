import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { isPrintable, shellWord } from '../../functions/base/printable.ts';
import { uploadCommand } from '../../operations/commands.ts';
import { folderWith } from '../support/folder.ts';

const ID = `${'0'.repeat(38)}ab`;

/** Names that run something if they leave their quotes or their line. */
const PRINTABLE = [
  ...['--failed', '-rf', '--', '-', '$(touch pwned)', '`touch pwned`', "it's; touch pwned #", "'; touch pwned; '"],
  ...[
    '"; touch pwned; "',
    '\\',
    "\\'; touch pwned #",
    '!!',
    "it's !! x",
    '~',
    '=ls',
    '*',
    '{a,b}',
    'a b',
    '#x',
    'ü ☃ 👩‍🔬',
  ],
];
const UNPRINTABLE = [
  'y\u001b[201~\u0003\ntouch pwned\n.txt',
  ...[
    'a\ntouch pwned\n',
    'a\rtouch pwned\r',
    "a'\n touch pwned\n",
    '\u0003touch pwned\u000d',
    'a\tb',
    '\u0004',
    'a\u007fb',
  ],
  ...[
    'a\u009b201~\u0085touch pwned\u0085',
    'photo\u202egnp.exe',
    'a\u2028touch pwned\u2029',
    '\ud800',
    'a\udc00b',
    '\u2066x',
  ],
];

/** A folder whose programs write down their arguments instead of working, in one line for each call. */
let dir: string;
beforeEach(() => {
  const recorder = '#!/bin/sh\n{ for word; do printf "%s\\0" "$word"; done; echo; } >> "$RECORD"\n';
  dir = folderWith({ 'bin/flowdrop': recorder, 'bin/aws': recorder, 'cwd/here': '' });
  for (const name of readdirSync(join(dir, 'bin'))) chmodSync(join(dir, 'bin', name), 0o755);
});

const SHELLS: readonly (readonly [name: string, shell: string, options: readonly string[]])[] = [
  ['dash, in a script', 'dash', ['-c']],
  ['bash, in a script', 'bash', ['-c']],
  // A shell without bracketed paste gets pasted text in this way, byte for byte.
  ['dash, pasted', 'dash', ['-i']],
  ['bash, pasted', 'bash', ['--norc', '--noprofile', '-i']],
];

/** Runs lines, one after another. Returns the words that the program got from each. Nothing else may have happened. */
function wordsOf(
  [, shell, options]: (typeof SHELLS)[number],
  lines: readonly string[],
): readonly (readonly string[])[] {
  for (const line of lines) expect(isPrintable(line)).toBe(true);
  const record = join(dir, 'record');
  const env = { PATH: `${join(dir, 'bin')}:${process.env.PATH}`, HOME: dir, RECORD: record, LC_ALL: 'C.UTF-8' };
  const isPasted = options.at(-1) === '-i';
  const text = `${lines.join('\n')}\n`;
  const words = isPasted ? options : [...options, text];
  spawnSync(shell, words, { cwd: join(dir, 'cwd'), env, ...(isPasted && { input: text }), timeout: 60_000 });
  expect(readdirSync(join(dir, 'cwd'))).toEqual(['here']);
  const calls = readFileSync(record, 'utf8').split('\n').slice(0, -1);
  return calls.map((call) => call.split('\0').slice(0, -1));
}

// In one shell: a line that does not end where it should changes what the next ones do.
describe.each(SHELLS)('in %s', (...shell) => {
  it('a command names exactly the upload, whatever its key is', () => {
    const unprintable = [...UNPRINTABLE, '1'.repeat(40)];
    const lines = [
      ...PRINTABLE.map((key) => uploadCommand('status', { id: ID, key }, { command: 'flowdrop --stack s' })),
      ...unprintable.map((key) => uploadCommand('retry', { id: ID, key }, { command: 'flowdrop' })),
    ];
    expect(wordsOf(shell, lines)).toEqual([
      ...PRINTABLE.map((key) => ['--stack', 's', 'status', ...(key.startsWith('-') ? ['--', key] : [key])]),
      ...unprintable.map(() => ['retry', ID]),
    ]);
  });
});

it('every text is one word of a shell and one line, or no word at all', () => {
  const text = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.string({ unit: fc.constantFrom(...'\'"\\$`!-~=#&;|<>(){}[]*? ab\n\u001b\u009b\u202e\ud800'), maxLength: 20 }),
  );
  const words: string[] = [];
  fc.assert(
    fc.property(text, (each) => {
      if (!isPrintable(each)) {
        expect(() => shellWord(each)).toThrow('No word of a shell');
        return;
      }
      expect(shellWord(each)).not.toMatch(/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}]/u);
      words.push(each);
    }),
    { numRuns: 2_000 },
  );
  expect(words.length).toBeGreaterThan(200);
  for (const shell of ['dash', 'bash']) {
    const line = `printf '%s\\0' ${words.map(shellWord).join(' ')}`;
    const output = execFileSync(shell, ['-c', line], { encoding: 'utf8' });
    expect(output.split('\0').slice(0, -1)).toEqual(words);
  }
});
