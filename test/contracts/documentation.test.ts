import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8');

test('docs/s3-behaviour.md lists every behaviour that is tested, each with a page of AWS, and no other', () => {
  const rows = [...read('../../docs/s3-behaviour.md').matchAll(/^\| `(.+)` \| \[.+\]\((.+)\) \|$/gm)];
  const tested = [...read('./behaviour.test.ts').matchAll(/^ {2}(?:test|behaviour|eventBehaviour)\(\s*'(.+?)',/gm)];
  expect(rows.map(([, name]) => name)).toEqual(tested.map(([, name]) => name));
  for (const [, name, page] of rows) {
    expect(page, name).toMatch(/^https:\/\/docs\.aws\.amazon\.com\/AmazonS3\/latest\/(?:userguide|API)\/[\w-]+\.html/);
  }
  expect(rows.length).toBeGreaterThan(40);
});
