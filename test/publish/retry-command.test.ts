import { execFileSync } from 'node:child_process';
import { statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { retryCommand } from '../../functions/publish/retry-command.ts';
import { folderWith } from '../support/folder.ts';

const ID = '0'.repeat(40);
const deployed = { collectFunction: 'flowdrop-collect-outputs', inboxPrefix: '' };

describe('the command that retries an upload', () => {
  it('names the upload and the collecting function of a deployment', () => {
    expect(retryCommand(deployed, { id: ID, key: 'a.png' })).toBe(
      `flowdrop retry ${ID} --function flowdrop-collect-outputs`,
    );
  });

  it.each(['a.png', 'b/a.png', '-rf', "it's.png", '$(touch owned)', '`id`;"x" *', 'naïve ☃.txt'])(
    'touches the file in the inbox folder of a local run, and nothing else: %j',
    (name) => {
      const dir = folderWith({ [name]: 'x' });
      const path = join(dir, name);
      utimesSync(path, 1_000, 1_000);
      const settings = { ...deployed, localInbox: dir, inboxPrefix: 'in/' };
      const command = retryCommand(settings, { id: ID, key: `in/${name}` }) ?? '';
      expect(command).not.toContain('--function');
      execFileSync('sh', ['-c', command], { cwd: dir });
      expect(statSync(path).mtimeMs).toBeGreaterThan(1_000_000);
      expect(() => statSync(join(dir, 'owned'))).toThrow('ENOENT');
    },
  );

  it('names the upload in a local run, if no shell takes the name of its file', () => {
    const settings = { ...deployed, localInbox: '/inbox', inboxPrefix: 'in/' };
    expect(retryCommand(settings, { id: ID, key: 'in/a\nb' })).toBe(`flowdrop retry ${ID} --local`);
  });

  it('does not exist in a local run whose files come from no inbox folder', () => {
    expect(retryCommand({ ...deployed, localInbox: '' }, { id: ID, key: 'a.png' })).toBeUndefined();
  });
});
