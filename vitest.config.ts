import { availableParallelism } from 'node:os';
import { configDefaults, defineConfig } from 'vitest/config';

/** Where a program can read what the tests came to. */
const jsonFile = process.env.VITEST_JSON_FILE;

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, 'cdk.out/**'],
    // Vitest would leave one processor idle. On a machine with two, that is half of them.
    maxWorkers: availableParallelism(),
    // Machines that run this are shared and slow at times: a hung test should fail, a slow one should not.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    reporters: jsonFile === undefined ? ['default'] : ['default', ['json', { outputFile: jsonFile }]],
  },
});
