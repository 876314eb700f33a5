import { defineConfig } from 'vitest/config';

/** The fast unit tests of the pure modules, which is all that mutation testing runs. */
export default defineConfig({
  test: {
    include: [
      'test/completion-event.test.ts',
      'test/config.test.ts',
      'test/flow-service/{asset-answer,request-body}.test.ts',
      'test/hostile/codec.test.ts',
      'test/ledger/{entry,keys}.test.ts',
      'test/objects/results-keys.test.ts',
      'test/poll-schedule.test.ts',
      'test/routes.test.ts',
      'test/upload.test.ts',
      'test/verdict.test.ts',
    ],
    testTimeout: 30_000,
  },
});
