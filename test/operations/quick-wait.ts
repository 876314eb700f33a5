import { setTimeout as sleep } from 'node:timers/promises';

/** In place of operations/wait.ts, which waits for a second as for a person. */
export const sleepUntilNext = (signal: AbortSignal): Promise<void> => sleep(20, undefined, { signal });
