import * as z from 'zod/mini';

/** How far ahead of ours another machine's clock may be, in milliseconds. Later times are not believed. */
const CLOCK_SKEW_MS = 10 * 60_000;

/** What a collector remembers between its ticks. All times in milliseconds since the epoch. */
export interface CollectorState {
  /** A tick holds the lease until then; 0 if none does. */
  readonly heldUntil?: number | undefined;
  /** When the last round began that came to its end: every flow that was due then has been looked at since. */
  readonly lastCompletedAt?: number | undefined;
  readonly unfinishedRound?: UnfinishedRound | undefined;
  /** Markers of flows that were seen to have ended, and are not settled yet. */
  readonly endedMarkers?: readonly string[] | undefined;
  /** Ends that are believed at the second look, by the flow's upload: what the first one saw, and when. */
  readonly firstLooks?: Readonly<Record<string, FirstLook>> | undefined;
  /** The pace that the service allowed. */
  readonly pace?: { readonly requestsPerSecond: number; readonly refusedAt: number } | undefined;
  /** When throttled uploads were last sent on, and how many beyond those for which a flow had ended. */
  readonly throttled?: { readonly sentAt: number; readonly extra: number } | undefined;
}

/** A round that was cut off. */
export interface UnfinishedRound {
  readonly startedAt: number;
  /** Key of the last marker that it had dealt with. */
  readonly after: string;
  /** True if it looked at flows while the service answered for nobody, so that they are due as before. */
  readonly isInVain?: boolean | undefined;
}

export interface FirstLook {
  readonly digest: string;
  readonly at: number;
}

function stateSchema(now: number, leaseMs: number) {
  const timeUpTo = (latest: number) => z.number().check(z.gte(0), z.lte(latest + CLOCK_SKEW_MS));
  const time = timeUpTo(now);
  // Each member stands for itself: one that is damaged is forgotten, and costs nothing but some work done again.
  // `z.catch` would do, but it keeps all helpers of zod in the bundle, 9 KB of them.
  const orForgotten = <T extends z.ZodMiniType>(schema: T) =>
    z.optional(
      z.pipe(
        z.unknown(),
        z.transform((value): z.output<T> | undefined => schema.safeParse(value).data),
      ),
    );
  return z.object({
    heldUntil: orForgotten(timeUpTo(now + leaseMs)),
    lastCompletedAt: orForgotten(time),
    unfinishedRound: orForgotten(z.object({ startedAt: time, after: z.string(), isInVain: z.optional(z.boolean()) })),
    endedMarkers: orForgotten(z.array(z.string())),
    firstLooks: orForgotten(z.record(z.string(), z.object({ digest: z.string(), at: time }))),
    pace: orForgotten(z.object({ requestsPerSecond: z.number().check(z.positive()), refusedAt: time })),
    throttled: orForgotten(z.object({ sentAt: time, extra: z.number().check(z.gte(0)) })),
  });
}

/** A state that cannot be read is as good as none: the next write replaces it, and every flow is due. */
export function parsedState(text: string, now: number, leaseMs: number): CollectorState {
  try {
    return stateSchema(now, leaseMs).safeParse(JSON.parse(text)).data ?? {};
  } catch {
    return {};
  }
}
