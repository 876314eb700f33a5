import * as z from 'zod/mini';
import { NEXT_CHARS_MAX } from './flow-listing.ts';
import { QUERY_CHARS_MAX } from './flow-query.ts';
import { ID_BYTES_MAX } from './schemas.ts';

const time = z.number().check(z.gte(0));
const count = z.int().check(z.gte(0));
const flowId = z.string().check(z.minLength(1), z.maxLength(ID_BYTES_MAX));
const state = z.enum(['running', 'completed', 'failed', 'aborted']);

/** What the pages that were read show about the listing. */
const evidence = z.object({
  isFalling: z.boolean(),
  /** Time of creation of the last flow. */
  previous: z.optional(time),
  times: count,
  pastFlows: count,
  swaps: count,
  areStatesMixed: z.boolean(),
  state: z.optional(state),
  states: z.array(state).check(z.maxLength(4)),
  hasUnusable: z.boolean(),
  showsAdditional: z.boolean(),
  showsEnded: z.boolean(),
  showsRunning: z.boolean(),
  /** A flow from before the earliest time at which the flow in doubt can have been created, and one from after. */
  showsBefore: z.boolean(),
  showsAfter: z.boolean(),
  /** The newest flow with the tag that has failed. */
  failed: z.optional(z.object({ flowId, createdAt: z.optional(time) })),
});

export type Evidence = z.infer<typeof evidence>;

export const NOTHING_SEEN: Readonly<Evidence> = {
  isFalling: true,
  times: 0,
  pastFlows: 0,
  swaps: 0,
  areStatesMixed: false,
  states: [],
  hasUnusable: false,
  showsAdditional: false,
  showsEnded: false,
  showsRunning: false,
  showsBefore: false,
  showsAfter: false,
};

/** The queries that a listing can be read with: as it is, sorted, or sorted and filtered by time. */
const QUERY_KINDS = ['filtered', 'sorted', 'plain'] as const;
export type QueryKind = (typeof QUERY_KINDS)[number];

/**
 * Where a search stopped in a long listing. The next look of the same doubt goes on there. At most 10 KB of JSON.
 *
 * The address is checked again before it gets the token. The last flow is looked for on its page again.
 */
export const searchPlaceSchema = z.object({
  kind: z.enum(QUERY_KINDS),
  /** The setting `flowsQuery` of that look. Under another one, what was seen would be about another listing. */
  flowsQuery: z.string().check(z.maxLength(QUERY_CHARS_MAX)),
  /** Address of the page that was read last. */
  address: z.string().check(z.maxLength(NEXT_CHARS_MAX)),
  /** Id of the last flow on that page. */
  lastFlow: flowId,
  /** Flows read so far. */
  flows: count,
  /** When the last page was read, in milliseconds since the epoch. */
  readAt: time,
  /** Number of looks so far, and of readings. */
  looks: count,
  tries: count,
  evidence,
});

export type SearchPlace = z.infer<typeof searchPlaceSchema>;
