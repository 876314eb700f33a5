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

  it.each(['', '/home/me/inbox'])('names the local run, whether or not it has an inbox folder: %j', (localInbox) => {
    expect(retryCommand({ ...deployed, localInbox }, { id: ID })).toBe(`npm run -s flowdrop -- retry ${ID} --local`);
  });
});
