import { setTimeout as sleep } from 'node:timers/promises';

/** Time between two looks at something that an operator waits for, in milliseconds. */
const LOOK_MS = 1_000;

/** Resolves when it is time for the next look. Rejects if the signal aborts. */
export const sleepUntilNext = (signal: AbortSignal): Promise<void> => sleep(LOOK_MS, undefined, { signal });
