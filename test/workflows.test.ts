import { readdirSync, readFileSync } from 'node:fs';
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

it('the nightly run takes seeds that no run took before, and prints them', () => {
  const nightly = read(`${OWN}nightly.yml`);
  expect(nightly).toMatch(/from=\$\(\(\d+ \+ GITHUB_RUN_NUMBER \* 10000\)\)/);
  expect(nightly.match(/npm run test:faults -- --seeds 10000 --from \\?"?\$from/g)).toHaveLength(2);
});
