import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { folderWith } from '../support/folder.ts';

const SCRIPT = fileURLToPath(new URL('../../command-line/release-notes.ts', import.meta.url));
const UPGRADING =
  '### When upgrading from 1.1.0\n\n- See [settings](docs/settings.md#a) and [npm](https://npmjs.com).\n';
const CHANGELOG = `# Changes\n\n## 1.2.0\n\n${UPGRADING}\n### Added\n\n- Much.\n\n## 1.1.0\n\nThe first version.\n`;

/** Runs the script in the checkout of a release. */
function releaseNotes(tag: string, { locked = '1.2.0', changelog = CHANGELOG, env = {} } = {}) {
  const cwd = folderWith({
    'package.json': { version: '1.2.0' },
    'package-lock.json': { version: locked },
    'CHANGELOG.md': changelog,
  });
  const { GITHUB_REPOSITORY: _, ...own } = process.env;
  const { status, stdout, stderr } = spawnSync(process.execPath, [SCRIPT, tag], {
    cwd,
    encoding: 'utf8',
    env: { ...own, ...env },
  });
  return { status, stdout, stderr: stderr.split('\n')[0] };
}

describe('the text of a release', () => {
  it('is the section of the changelog', () => {
    expect(releaseNotes('v1.2.0')).toEqual({
      status: 0,
      stdout: `${UPGRADING}\n### Added\n\n- Much.\n`,
      stderr: '',
    });
  });

  it('has links that also work on the page of the release', () => {
    const env = { GITHUB_SERVER_URL: 'https://github.com', GITHUB_REPOSITORY: 'some/one' };
    expect(releaseNotes('v1.2.0', { env }).stdout).toContain(
      'See [settings](https://github.com/some/one/blob/v1.2.0/docs/settings.md#a) and [npm](https://npmjs.com).',
    );
  });

  it.each<[what: string, message: string, ...args: Parameters<typeof releaseNotes>]>([
    ['the tag is of another version', 'the tag is v1.2.1, but the version in package.json is 1.2.0', 'v1.2.1'],
    ['the tag has no v', 'the tag is 1.2.0, but', '1.2.0'],
    ['the lock file has another version', 'package-lock.json is 1.1.0, not 1.2.0', 'v1.2.0', { locked: '1.1.0' }],
    [
      'the changes are still unreleased',
      'the topmost section of CHANGELOG.md is "Unreleased", not "1.2.0"',
      'v1.2.0',
      { changelog: `# Changes\n\n## Unreleased\n\n- More.\n\n${CHANGELOG}` },
    ],
    [
      'the changelog does not say what to do when upgrading',
      'does not say under "### When upgrading" what to do',
      'v1.2.0',
      { changelog: CHANGELOG.replace(/- See.*\n/, '') },
    ],
  ])('is refused if %s', (_, message, ...args) => {
    expect(releaseNotes(...args)).toMatchObject({
      status: 2,
      stdout: '',
      stderr: expect.stringContaining(message),
    });
  });
});
