import { describe, expect, it } from 'vitest';
import { retryCommand } from '../../functions/publish/retry-command.ts';

const ID = '0'.repeat(40);
const deployed = { collectFunction: 'flowdrop-collect-outputs', command: 'npm run -s flowdrop --' };

describe('the command that retries an upload', () => {
  it('names the upload and the collecting function of a deployment', () => {
    expect(retryCommand(deployed, { id: ID })).toBe(
      `npm run -s flowdrop -- retry ${ID} --function flowdrop-collect-outputs`,
    );
  });

  it('names the local run that watches an inbox folder', () => {
    const settings = { ...deployed, localInbox: '/home/me/inbox' };
    expect(retryCommand(settings, { id: ID })).toBe(`npm run -s flowdrop -- retry ${ID} --local`);
  });

  it('does not exist in a run with file names: it would reach another run, which does not know the file', () => {
    expect(retryCommand({ ...deployed, localInbox: '' }, { id: ID })).toBeUndefined();
  });
});
