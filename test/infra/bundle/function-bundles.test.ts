import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Metafile } from 'esbuild';
import { beforeAll, describe, expect, it } from 'vitest';
import { BUNDLE_BYTES_MAX } from '../../../bench/rows/start.ts';
import { bundle, FUNCTION_NAMES, type FunctionName } from '../../../infra/bundle/bundle.ts';
import { sharedFolder } from '../../support/folder.ts';

const directory = sharedFolder();
let metafiles: Record<FunctionName, Metafile>;
beforeAll(() => {
  metafiles = bundle(directory);
});

describe.each(FUNCTION_NAMES)('the bundle of %s', (name) => {
  const included = () =>
    Object.values(metafiles[name].outputs).flatMap(({ inputs }) =>
      Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? path : [])),
    );

  it('stays small', () => {
    const code = readFileSync(join(directory, name, 'index.mjs'));
    expect(code.byteLength).toBeLessThan(BUNDLE_BYTES_MAX[name].raw);
    expect(code.byteLength).toBeGreaterThan(100_000);
    expect(gzipSync(code, { level: 9 }).byteLength).toBeLessThan(BUNDLE_BYTES_MAX[name].gzipped);
  });

  it('does not contain unused operations of the SDK', () => {
    const code = readFileSync(join(directory, name, 'index.mjs'), 'utf8');
    expect(code).toContain('GetObjectRequest');
    expect(code).not.toContain('PutBucketLifecycleConfiguration');
  });

  it.each([
    ['undici', /node_modules\/undici\//],
    ["the SDK's search for credentials", /credential-provider|nested-clients|token-providers/],
    ["the SDK's codec of event streams", /[\\/]event-streams[\\/]/],
    ["zod's languages", /zod\/v4\/locales\/(?!en\.)/],
    [
      'infrastructure, operations, tests or the local run',
      /(^|\/)(infra|operations|local|test|bench)\/(?!bundle\/aliases\/)/,
    ],
    ['CDK', /node_modules\/(aws-cdk-lib|constructs)\//],
  ])('contains nothing of %s', (_, unwanted) => {
    expect(included().filter((path) => unwanted.test(path))).toEqual([]);
  });

  it('contains a client for the queue only if the function sends to it', () => {
    const hasClient = included().some((path) => path.includes('@aws-sdk/client-sqs/'));
    expect(hasClient).toBe(name === 'collect-outputs');
  });
});
