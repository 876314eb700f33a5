import { execFile } from 'node:child_process';
import { globSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { listenOnLoopback } from '../local/loopback.ts';
import { folderWith } from './support/folder.ts';

const ROOT = new URL('../', import.meta.url);
const OWN = '.github/workflows/';
const read = (path: string) => readFileSync(new URL(path, ROOT), 'utf8');
const WORKFLOWS = readdirSync(new URL(OWN, ROOT)).map((name) => `${OWN}${name}`);

it.each([...WORKFLOWS, 'examples/deploy/deploy.yml'])(
  '%s pins each action by the commit of a release, because a tag can be moved',
  (name) => {
    const used = [...read(name).matchAll(/uses: (.*)/g)].map(([, action]) => action);
    expect(used.length).toBeGreaterThan(0);
    for (const action of used) expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  },
);

it('a release is checked first, comes from the gate, and has the files that npm run package writes', () => {
  const release = read(`${OWN}release.yml`);
  expect(release).toContain("  push:\n    tags: ['v*']\n");
  const [made = ''] = release.split('\n  publish:\n');
  const steps = Array.from(made.matchAll(/^ {6}- run: (.*)$/gm), ([, command]) => command);
  expect(steps).toEqual([
    'npm run -s release-notes -- "$GITHUB_REF_NAME" >"$RUNNER_TEMP/notes.md"',
    'bash .ci/run',
    'npm run package',
    expect.stringMatching(/^gh release create "\$GITHUB_REF_NAME" --verify-tag .* dist\/flowdrop-\* dist\/SHA256SUMS$/),
  ]);
});

it('what a release runs before its last step has no token that may write', () => {
  const [made = ''] = read(`${OWN}release.yml`).split('\n  publish:\n');
  const [before = '', last] = made.split('- run: gh release create');
  expect(last).toMatch(/GH_TOKEN: \$\{\{ github\.token \}\}/);
  expect(before).not.toMatch(/\$\{\{/);
  expect(before).toContain('persist-credentials: false');
});

describe('the publication of a release', () => {
  const [release = '', publish = ''] = read(`${OWN}release.yml`).split('\n  publish:\n');

  it('takes place only under a scope of the owner, after the release', () => {
    expect(publish).toMatch(/if: \$\{\{ vars\.NPM_SCOPE != '' \}\}\n {4}needs: release\n/);
  });

  it('has short-lived credentials, and no other job can get them', () => {
    expect(publish).toContain('id-token: write');
    expect(release).not.toContain('id-token');
    for (const name of WORKFLOWS) {
      expect(read(name)).not.toMatch(/secrets\.|NPM_TOKEN|NODE_AUTH_TOKEN|_authToken/);
      expect(read(name)).not.toMatch(/registry|\bnpmjs\b|npm\.pkg/i);
    }
  });

  it('runs no code of packages, and no code of the repository', () => {
    expect(Array.from(publish.matchAll(/uses: ([\w-]+\/[\w-]+)/g), ([, action]) => action)).toEqual([
      'actions/setup-node',
    ]);
    expect(publish).not.toMatch(/npm (ci|i|install|run|exec)\b|npx/);
  });

  it('publishes the files of the release under the scope, and stops if one of them was changed', async () => {
    const asked: string[] = [];
    const registry = await listenOnLoopback((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      response.writeHead(404).end('{}');
    });
    onTestFinished(() => registry.close());
    const [, script = ''] = /- run: \|\n([\s\S]*?)\n {8}env:/.exec(publish) ?? [];
    const manifest = { name: 'flowdrop', version: '1.2.3', type: 'module', license: 'MIT' };
    const folder = folderWith({
      'made/package/package.json': manifest,
      'made/package/index.js': 'export {};',
      // In place of the client of GitHub, which needs an account.
      'bin/gh': '#!/bin/sh\n[ "$1 $2" = "release download" ] && cp "$RELEASE"/* .\n',
      'release/flowdrop-1.2.3.cdx.json': '{}',
    });
    const shell = (lines: string) =>
      new Promise<{ readonly code: number; readonly said: string }>((done) => {
        const env = {
          ...{ PATH: `${folder}/bin:${process.env.PATH}`, HOME: folder, RELEASE: `${folder}/release` },
          ...{ GITHUB_REF_NAME: 'v1.2.3', GITHUB_REPOSITORY: 'team/flows', GITHUB_SERVER_URL: 'https://git.example' },
          ...{ NPM_SCOPE: '@team', npm_config_dry_run: 'true' },
          ...{
            npm_config_registry: registry.url,
            npm_config_cache: `${folder}/cache`,
            npm_config_update_notifier: 'false',
          },
        };
        execFile('bash', ['-e', '-c', lines], { cwd: folder, env }, (error, stdout, stderr) =>
          done({ code: Number(error?.code ?? 0), said: stdout + stderr }),
        );
      });
    const packed =
      'chmod +x bin/gh; tar -czf release/flowdrop-1.2.3.tgz -C made package; cd release; sha256sum flowdrop-* > SHA256SUMS';
    expect(await shell(packed)).toMatchObject({ code: 0 });
    const published = await shell(script);
    expect(published, published.said).toMatchObject({ code: 0, said: expect.stringContaining('@team/flowdrop@1.2.3') });
    expect(JSON.parse(readFileSync(`${folder}/package/package.json`, 'utf8'))).toEqual({
      ...manifest,
      name: '@team/flowdrop',
      repository: { url: 'git+https://git.example/team/flows.git' },
    });
    expect(asked.filter((line) => !line.startsWith('GET '))).toEqual([]);

    await shell('rm -r package flowdrop-* SHA256SUMS; echo more >> release/flowdrop-1.2.3.tgz');
    const refused = await shell(script);
    expect(refused.code).toBe(1);
    expect(refused.said).toContain('flowdrop-1.2.3.tgz: FAILED');
    expect(refused.said).not.toContain('@team/flowdrop');
  });
});

it('the nightly run takes seeds that no run took before, and prints them', () => {
  const nightly = read(`${OWN}nightly.yml`);
  expect(nightly).toMatch(/from=\$\(\(\d+ \+ GITHUB_RUN_NUMBER \* 10000\)\)/);
  expect(nightly.match(/npm run test:faults -- --seeds 10000 --from \\?"?\$from/g)).toHaveLength(2);
});

it('the nightly run has the tests once with a coarse clock, and once on one processor, and those of memory with a share of it', () => {
  const nightly = read(`${OWN}nightly.yml`);
  expect(nightly).toContain('run: NODE_OPTIONS="--require $PWD/test/support/coarse-time.cjs" npm test');
  expect(nightly).toContain('run: taskset -c 0 npm test');
  const measured = globSync('test/**/*.test.ts', { cwd: ROOT }).filter((name) =>
    /= functionProcess\(/.test(read(name)),
  );
  expect(measured.length).toBeGreaterThan(1);
  for (const name of measured) expect(nightly).toMatch(new RegExp(`taskset -c 0 npx vitest run .*${name}`));
});
