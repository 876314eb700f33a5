import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import pure from './vitest.mutation.config.ts';

/**
 * The tests of `npm run check`: the pure ones, and suites that take less than two seconds each. `vitest --changed`
 * would not do: most other suites import all functions through `test/support/world.ts`, so any change would select them
 * all.
 */
export default defineConfig({
  test: {
    include: [
      ...(pure.test?.include ?? []),
      'test/*.test.ts',
      'test/{base,lambda,ledger,publish}/**/*.test.ts',
      'test/uploads/!(inbox).test.ts',
      'test/schemas/schemas.test.ts',
      'test/{command-line/options,contracts/documentation,s3/client}.test.ts',
      'test/flow-service/{addresses,find,link-header,pace,pacer,service-clock}.test.ts',
      'test/{collect-outputs/asset-slots,results/active-content}.test.ts',
    ],
    // A new process for each file would take longer than the tests.
    isolate: false,
    // Vitest would leave one processor idle.
    maxWorkers: availableParallelism(),
    testTimeout: 30_000,
  },
});
