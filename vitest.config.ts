import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { configDefaults, defineConfig } from 'vitest/config';
import { PATIENCE } from './test/support/patience.ts';

/** Where a program can read what the tests came to. */
const jsonFile = process.env.VITEST_JSON_FILE;

// Each worker, and each process that a test starts, would compile the same packages again: a third of what it takes to
// start one.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('node_modules/.cache/compiled', import.meta.url));

// CDK checks every template against the rules of CloudFormation. Their engine takes four seconds of processor time to
// load, in each process. Only test/infra/templates.test.ts turns it on, and it checks all configurations.
process.env.CDK_VALIDATION ??= 'false';

/**
 * Tests that need a process of their own: they replace a module, or change the process and what all others see of it.
 * The files of a worker share one otherwise, because each would load CDK, the SDK and the functions anew.
 */
const ALONE = [
  'test/{contracts,end-to-end,simulation,page/browser}/**/*.test.ts',
  'test/local/*.test.ts',
  'test/operations/{changes,doctor,grants,holds,just-ended}.test.ts',
  'test/{command-line/flowdrop/{commands,in-a-hurry},recipes/recipes}.test.ts',
];

export default defineConfig({
  test: {
    // Vitest would leave one processor idle. Many tests wait for another process, so one worker more than processors
    // takes a sixth less time: 222 instead of 264 seconds on a machine with two.
    maxWorkers: availableParallelism() + 1,
    // Machines that run this are shared and slow at times: a hung test should fail, a slow one should not. This is twice
    // the longest wait, so that the message of the wait is seen first.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: PATIENCE },
    globalSetup: 'test/support/bundles.ts',
    reporters: jsonFile === undefined ? ['default'] : ['default', ['json', { outputFile: jsonFile }]],
    projects: [
      {
        extends: true,
        test: {
          name: 'shared',
          include: ['test/**/*.test.ts'],
          exclude: [...configDefaults.exclude, 'cdk.out/**', ...ALONE],
          isolate: false,
        },
      },
      { extends: true, test: { name: 'alone', include: ALONE } },
    ],
  },
});
