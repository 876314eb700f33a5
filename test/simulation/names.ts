export const INBOX = 'inbox';
/** The bucket that may become the inbox later. */
export const NEXT_INBOX = 'inbox-next';
/** The key whose uploads S3 lists, and hands out to no function, for ever. */
export const DENIED_KEY = 'echo/denied.bin';
export const RESULTS = 'results';
/** The bucket that the results may go to later. */
export const NEXT_RESULTS = 'results-next';
export const RESULT_BUCKETS = [RESULTS, NEXT_RESULTS] as const;
export const LEDGER = 'ledger';
export const PIPELINE = 'simulated';
/** The name that the pipeline may get later. */
export const NEXT_PIPELINE = 'renamed';
export const BASE_URL = new URL('https://flows.example');

/** Largest number of invocations of create-flow side by side: the maximum concurrency of its event source. */
export const CREATES_MAX = 3;

/** When every simulation begins, in milliseconds since the epoch. */
export const START = Date.UTC(2030, 0, 1);
