import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from '../support/folder.ts';

const FAKE_TOKEN = 'obviously-fake-token-that-nobody-may-see';

/**
 * Stands in for the AWS CLI. It records its arguments, the secret, and the processes of this test with their
 * environments. The value of RECORD selects those processes; all others on the machine are private.
 */
const FAKE_AWS = `#!/bin/sh
ps axeww | grep -F "$RECORD" > "$RECORD/processes"
printf '%s\\n' "$@" > "$RECORD/arguments"
for last; do :; done
cat "\${last#file://}" > "$RECORD/secret"
`;

const documented = (path: string): string => {
  const lines = readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8').split('\n');
  const commands = lines.filter((line) => line.includes('put-secret-value'));
  expect(commands).toHaveLength(1);
  return (commands[0] as string).trim();
};

/** Types lines into an interactive shell, like a user who follows the documentation. */
async function typed(lines: readonly string[]): Promise<{ output: string; recorded: (name: string) => string }> {
  const directory = await temporaryFolder();
  writeFileSync(join(directory, 'aws'), FAKE_AWS, { mode: 0o755 });
  const shell = spawn('bash', ['--norc', '-i'], {
    env: {
      PATH: `${directory}${delimiter}${process.env.PATH}`,
      HOME: directory,
      HISTFILE: join(directory, 'history'),
      RECORD: directory,
      TOKEN_SECRET: 'a secret',
    },
    stdio: ['pipe', 'pipe', 'pipe'],
    // In its own session: otherwise the interactive shell would take over the terminal of the tests.
    detached: true,
  });
  shell.stdin.end(`${[...lines, 'exit'].join('\n')}\n`);
  const [out, error] = await Promise.all([text(shell.stdout), text(shell.stderr)]);
  return { output: out + error, recorded: (name) => readFileSync(join(directory, name), 'utf8') };
}

const PAGES = ['README.md', 'docs/runbook.md', 'docs/recipes/emulator.md'];

describe.each(PAGES)('the command in %s that stores the token', (path) => {
  it('stores it in the secret, and keeps it off the screen, the history and the process list', async () => {
    const { output, recorded } = await typed([documented(path), FAKE_TOKEN]);
    expect(recorded('secret')).toBe(FAKE_TOKEN);
    expect(recorded('arguments').split('\n').slice(0, 3)).toEqual([
      'secretsmanager',
      'put-secret-value',
      '--secret-id',
    ]);
    // The command itself must be in both: this proves that they are the history and the process list.
    expect(recorded('history')).toContain('put-secret-value');
    expect(recorded('processes')).toContain('put-secret-value');
    for (const seen of [output, recorded('history'), recorded('processes'), recorded('arguments')]) {
      expect(seen).not.toContain(FAKE_TOKEN);
    }
  });
});
