import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Metafile } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bundle, FUNCTION_NAMES, type FunctionName } from '../../infra/bundle.ts';

/** What is loaded at every cold start. Raise it knowingly: a careless import has doubled it before. */
const BUNDLE_BYTES_MAX = 600_000;

describe.each(FUNCTION_NAMES)('the bundle of %s', (name) => {
  let directory: string;
  let metafile: Metafile;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'flowdrop-bundles-'));
    metafile = (bundle(directory) as Record<FunctionName, Metafile>)[name];
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  const included = () =>
    Object.values(metafile.outputs).flatMap(({ inputs }) =>
      Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? path : [])),
    );

  it('stays small', () => {
    const bytes = Object.values(metafile.outputs).reduce((sum, output) => sum + output.bytes, 0);
    expect(bytes).toBeLessThan(BUNDLE_BYTES_MAX);
    expect(bytes).toBeGreaterThan(100_000);
  });

  it.each([
    ['undici', /node_modules\/undici\//],
    ["the SDK's search for credentials", /credential-provider-(sso|ini|process|web-identity|http)\//],
    ["zod's languages", /zod\/v4\/locales\/(?!en\.)/],
    ['what belongs to infrastructure, tests or the local run', /(^|\/)(infra|local|test|bench)\/(?!bundle-aliases\/)/],
    ['CDK', /node_modules\/(aws-cdk-lib|constructs)\//],
  ])('holds nothing of %s', (_, unwanted) => {
    expect(included().filter((path) => unwanted.test(path))).toEqual([]);
  });
});
