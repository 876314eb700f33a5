/**
 * The longest wait of a test for a condition, and the time between two looks, in milliseconds. Most waits take less than
 * a second, and a few seconds where processes start. A machine that runs all tests at once may need more.
 */
export const PATIENCE = { timeout: 60_000, interval: 50 };
