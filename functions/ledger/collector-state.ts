import * as z from 'zod/mini';
import { orDropped } from '../base/stored-state.ts';

/** Maximum lead of another machine's clock over ours, in milliseconds. Later times are taken to be damaged. */
const COLLECTOR_CLOCK_SKEW_MS = 10 * 60_000;

/** The state that a collector keeps between its ticks. Times in milliseconds since the epoch. */
export interface CollectorState {
  /** End of the lease of the tick that holds it. 0 if no tick does. */
  readonly heldUntil?: number | undefined;
  /** When the last tick ended that was not cut short. */
  readonly tickCompletedAt?: number | undefined;
  /** Since when this collector has seen that the next one never completed a tick. */
  readonly neighbourNeverSince?: number | undefined;
  /** When the last completed round began. Every flow that was due then has been looked at since. */
  readonly lastCompletedAt?: number | undefined;
  readonly unfinishedRound?: UnfinishedRound | undefined;
  /** Markers of flows that have ended and are not settled yet. */
  readonly endedMarkers?: readonly string[] | undefined;
  /** Upload ids of {@link LateFlows}. */
  readonly lateUploads?: readonly string[] | undefined;
  /** By upload id: when flows were polled last whose last poll was slow. */
  readonly slowPolls?: Readonly<Record<string, number>> | undefined;
  /** By upload id: ends that one poll has seen, and a second poll must confirm. */
  readonly unconfirmedEnds?: Readonly<Record<string, UnconfirmedEnd>> | undefined;
  /** The pace that the service allowed. */
  readonly pace?: { readonly requestsPerSecond: number; readonly throttledAt: number } | undefined;
  /** When throttled uploads were last resubmitted, and how many more than flows had ended. */
  readonly throttled?: { readonly sentAt: number; readonly extra: number } | undefined;
}

/** A round that was cut off before its end. */
export interface UnfinishedRound {
  readonly startedAt: number;
  /** Key of the last marker that the round processed. */
  readonly after: string;
  /** True if the service answered for no flow in the round. All flows stay due then. */
  readonly isUnanswered?: boolean | undefined;
}

/** An end that one poll has seen, and when. */
export interface UnconfirmedEnd {
  /** What the poll saw. The second poll must see the same. */
  readonly digest: string;
  readonly at: number;
}

function stateSchema(now: number, leaseMs: number) {
  const timeUpTo = (latest: number) => z.number().check(z.gte(0), z.lte(latest + COLLECTOR_CLOCK_SKEW_MS));
  const time = timeUpTo(now);
  return z.object({
    heldUntil: orDropped(timeUpTo(now + leaseMs)),
    tickCompletedAt: orDropped(time),
    neighbourNeverSince: orDropped(time),
    lastCompletedAt: orDropped(time),
    unfinishedRound: orDropped(z.object({ startedAt: time, after: z.string(), isUnanswered: z.optional(z.boolean()) })),
    endedMarkers: orDropped(z.array(z.string())),
    lateUploads: orDropped(z.array(z.string())),
    slowPolls: orDropped(z.record(z.string(), time)),
    unconfirmedEnds: orDropped(z.record(z.string(), z.object({ digest: z.string(), at: time }))),
    pace: orDropped(z.object({ requestsPerSecond: z.number().check(z.positive()), throttledAt: time })),
    throttled: orDropped(z.object({ sentAt: time, extra: z.number().check(z.gte(0)) })),
  });
}

/** A state that cannot be read is empty. All flows are due then, and the next write replaces it. */
export function parsedState(text: string, now: number, leaseMs: number): CollectorState {
  try {
    return stateSchema(now, leaseMs).safeParse(JSON.parse(text)).data ?? {};
  } catch {
    return {};
  }
}
