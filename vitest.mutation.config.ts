import { defineConfig } from 'vitest/config';

/** The fast unit tests of the pure modules, which is all that mutation testing runs. */
export default defineConfig({
  test: {
    include: [
      'test/publish/completion-event.test.ts',
      'test/settings/{context,environment,route-checks,settings}.test.ts',
      'test/flow-service/{asset-answer,data-decoders,envelope-scanner,json-string,request-body}.test.ts',
      'test/ledger/{entry,keys}.test.ts',
      'test/results/results-keys.test.ts',
      'test/collect-outputs/poll-schedule.test.ts',
      'test/base/media-type.test.ts',
      'test/uploads/{route-snapshot,routes,upload,upload-event}.test.ts',
      'test/create-flow/retry-policy.test.ts',
    ],
    testTimeout: 30_000,
  },
});
