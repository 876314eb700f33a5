import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const SOURCE = readFileSync(new URL('./behaviour.test.ts', import.meta.url), 'utf8');

test('every behaviour that is tested has the page of AWS that speaks of it above its test', () => {
  const tests = [...SOURCE.matchAll(/^(?: {2}\/\/ (\S+)\n)? {2}(?:test|behaviour|eventBehaviour)\(\s*'(.+?)',/gm)];
  for (const [, page, name] of tests) {
    expect(page, name).toMatch(/^https:\/\/docs\.aws\.amazon\.com\/AmazonS3\/latest\/(?:userguide|API)\/[\w-]+\.html/);
  }
  expect(tests.length).toBeGreaterThan(40);
});
