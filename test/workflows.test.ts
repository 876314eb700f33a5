import { globSync, readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

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
  const steps = Array.from(release.matchAll(/^ {6}- run: (.*)$/gm), ([, command]) => command);
  expect(steps).toEqual([
    'npm run -s release-notes -- "$GITHUB_REF_NAME" >"$RUNNER_TEMP/notes.md"',
    'bash .ci/run',
    'npm run package',
    expect.stringMatching(/^gh release create "\$GITHUB_REF_NAME" --verify-tag .* dist\/flowdrop-\* dist\/SHA256SUMS$/),
  ]);
});

it('what a release runs before its last step has no token that may write', () => {
  const [before = '', last] = read(`${OWN}release.yml`).split('- run: gh release create');
  expect(last).toMatch(/GH_TOKEN: \$\{\{ github\.token \}\}/);
  expect(before).not.toMatch(/\$\{\{/);
  expect(before).toContain('persist-credentials: false');
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
