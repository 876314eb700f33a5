/**
 * How long a test waits for what must come, and how often it looks, in milliseconds. Each wait normally takes less than a
 * second, or a few where processes start; this is enough for a machine that is busy with all other tests.
 */
export const PATIENCE = { timeout: 60_000, interval: 50 };
