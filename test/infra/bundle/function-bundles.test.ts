import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { Metafile } from 'esbuild';
import { beforeAll, describe, expect, it } from 'vitest';
import { bundle, FUNCTION_NAMES, type FunctionName } from '../../../infra/bundle/bundle.ts';
import { sharedFolder } from '../../support/folder.ts';

/**
 * Maximum size of the bundles, in bytes. A cold start loads all of it. Raise it only on purpose: a careless import has
 * doubled it before. The notices beside it do not count: no function reads them.
 */
const BUNDLE_BYTES_MAX: Readonly<Record<FunctionName, { readonly raw: number; readonly gzipped: number }>> = {
  'create-flow': { raw: 598_000, gzipped: 204_000 },
  'collect-outputs': { raw: 679_000, gzipped: 229_500 },
};

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const PACKAGE_FOLDER = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;

const directory = sharedFolder();
let metafiles: Record<FunctionName, Metafile>;
beforeAll(() => {
  metafiles = bundle(directory);
});

describe.each(FUNCTION_NAMES)('the bundle of %s', (name) => {
  const read = (file: string) => readFileSync(join(directory, name, file), 'utf8');
  const included = () =>
    Object.values(metafiles[name].outputs).flatMap(({ inputs }) =>
      Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? path : [])),
    );

  it('stays small, without the unused operations of the SDK', () => {
    const code = read('index.mjs');
    expect(Buffer.byteLength(code)).toBeLessThan(BUNDLE_BYTES_MAX[name].raw);
    expect(Buffer.byteLength(code)).toBeGreaterThan(100_000);
    expect(gzipSync(code, { level: 9 }).byteLength).toBeLessThan(BUNDLE_BYTES_MAX[name].gzipped);
    expect(code).toContain('GetObjectRequest');
    expect(code).not.toContain('PutBucketLifecycleConfiguration');
  });

  it.each([
    ['undici', /node_modules\/undici\//],
    ["the SDK's search for credentials", /credential-provider|nested-clients|token-providers/],
    ["the SDK's search for options in files", /shared-ini-file-loader/],
    ["the SDK's codec of event streams", /[\\/]event-streams[\\/]/],
    ["the SDK's search for a signer for several regions", /signature-v4-crt-container/],
    ["zod's languages", /zod\/v4\/locales\/(?!en\.)/],
    [
      'infrastructure, operations, tests or the local run',
      /(^|\/)(infra|operations|local|test|bench)\/(?!bundle\/aliases\/)/,
    ],
    ['CDK', /node_modules\/(aws-cdk-lib|constructs)\//],
    ["AWS's runtime interface client", /node_modules\/aws-lambda-ric\//],
  ])('contains nothing of %s', (_, unwanted) => {
    expect(included().filter((path) => unwanted.test(path))).toEqual([]);
  });

  it('contains a client for the queue only if the function sends to it', () => {
    const hasClient = included().some((path) => path.includes('@aws-sdk/client-sqs/'));
    expect(hasClient).toBe(name === 'collect-outputs');
  });

  it('has notices that name every package in it with its licence, and contain each licence file', () => {
    const notices = read('THIRD-PARTY-NOTICES.txt');
    const folders = new Set(included().flatMap((path) => PACKAGE_FOLDER.exec(resolve(ROOT, path))?.[0] ?? []));
    expect(folders.size).toBeGreaterThan(15);
    for (const folder of folders) {
      const { name: packageName, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      expect(notices).toContain(`\n${packageName} ${version} (${license})\n`);
      for (const file of ['LICENSE', 'license', 'NOTICE'].filter((each) => readdirSync(folder).includes(each)))
        expect(notices, packageName).toContain(readFileSync(join(folder, file), 'utf8').trim());
    }
    // Both are published without a licence file.
    expect(notices).toMatch(/\n@middy\/core \S+ \(MIT\)\n[^=]*will Farrell, Luciano Mammino, and Middy contributors/);
    expect(notices).toMatch(
      /\n@aws-lambda-powertools\/metrics \S+ \(MIT-0\)\n[^=]*Amazon\.com, Inc\. or its affiliates/,
    );
  });

  it('has notices with each text once, and nothing of this machine', () => {
    const notices = read('THIRD-PARTY-NOTICES.txt');
    expect(notices.split('Copyright 2019 Amazon.com, Inc. or its affiliates. All Rights Reserved.')).toHaveLength(2);
    expect(notices).not.toMatch(/node_modules|\r/);
    expect(notices).not.toContain(ROOT);
  });
});
