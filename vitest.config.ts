import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { configDefaults, defineConfig } from 'vitest/config';
import { PATIENCE } from './test/support/patience.ts';

/** Where a program can read what the tests came to. */
const jsonFile = process.env.VITEST_JSON_FILE;

// Each worker, and each process that a test starts, would compile the same packages again: a third of what it takes to
// start one.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('node_modules/.cache/compiled', import.meta.url));

/**
 * Tests that leave nothing behind in their process, so that the files of a worker can share it. Each file would load
 * CDK, the SDK and the functions anew: for a file of test/infra/, that is five seconds.
 */
const SHARED = ['test/*.test.ts', 'test/{base,infra,lambda,ledger,publish,s3,settings,uploads}/**/*.test.ts'];

export default defineConfig({
  test: {
    // Vitest would leave one processor idle. On a machine with two, that is half of them.
    maxWorkers: availableParallelism(),
    // Machines that run this are shared and slow at times: a hung test should fail, a slow one should not. This is twice
    // the longest wait, so that the message of the wait is seen first.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: PATIENCE },
    reporters: jsonFile === undefined ? ['default'] : ['default', ['json', { outputFile: jsonFile }]],
    projects: [
      { extends: true, test: { name: 'shared', include: SHARED, isolate: false } },
      {
        extends: true,
        test: {
          name: 'alone',
          include: ['test/**/*.test.ts'],
          exclude: [...configDefaults.exclude, 'cdk.out/**', ...SHARED],
        },
      },
    ],
  },
});
