import * as z from 'zod/mini';
import type { Invocation } from '../base/invocation.ts';
import { isDamaged, readableOr } from '../ledger/store.ts';
import { type BatchResponse, createFlows } from './batch.ts';
import type { CreatePorts } from './delivery.ts';

/**
 * Maximum size of the canary, in bytes. It is held in memory while it is put again, and a small file shows as much as a
 * large one.
 */
export const CANARY_BYTES_MAX = 1024 * 1024;

/** The request to put the canary again. */
const requestSchema = z.strictObject({ canary: z.literal(true) });

/** Says that the canary was put again, or why not. */
export type CanaryAnswer = { readonly canary: 'put' } | { readonly canary: 'not put'; readonly message: string };

/**
 * Makes flows of uploads. On the event of the hourly schedule, puts the canary (a small test file) again instead. That
 * makes a new upload like any other.
 */
export async function createFlowsOrPutCanary(
  event: unknown,
  ports: CreatePorts,
  invocation: Invocation,
): Promise<BatchResponse | CanaryAnswer> {
  const isCanary = requestSchema.safeParse(event).success;
  return isCanary ? putCanary(ports, invocation.work) : createFlows(event, ports, invocation);
}

async function putCanary(
  { inbox, ledger, settings, telemetry }: CreatePorts,
  signal: AbortSignal,
): Promise<CanaryAnswer> {
  const { inboxBucket: bucket, canaryKey: key } = settings;
  if (key === '') return { canary: 'not put', message: 'settings.canaryKey names no file' };
  try {
    const last = await inbox.current(bucket, key, signal);
    // A damaged entry must not keep the canary from being put again.
    const stored = last && (await readableOr(ledger.read(last.id, signal), () => undefined, isDamaged));
    const entry = stored?.entry;
    if (entry?.state === 'waiting' || entry?.state === 'claimed') {
      const why = entry.state === 'waiting' ? entry.message : 'it is being sent';
      telemetry.log.warn('The canary was not put again, because the last one still waits', { key, why });
      return { canary: 'not put', message: `The last canary still waits: ${why}` };
    }
    await inbox.putAgain({ bucket, key }, CANARY_BYTES_MAX, signal);
    return { canary: 'put' };
  } catch (error) {
    signal.throwIfAborted();
    // Not thrown, because a retry within minutes would not help. The alarm of the canary reports it.
    telemetry.log.error('The canary could not be put again', { key, error: error as Error });
    return { canary: 'not put', message: (error as Error).message };
  }
}
