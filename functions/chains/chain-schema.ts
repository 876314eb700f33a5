import * as z from 'zod/mini';
import {
  assets,
  count,
  failure,
  input,
  LEDGER_FORMAT,
  plan,
  readonlyObject,
  routeSchema,
  sent,
  time,
  uploadSchema,
} from '../ledger/entry-schema.ts';
import { TERMINAL_STATE_NAMES } from '../ledger/terminal-states.ts';

const member = readonlyObject({
  id: z.string(),
  route: z.string(),
  /** The upload that it continues. Absent in the first one, and if it takes all assets of a stage. */
  parent: z.optional(z.string()),
  generation: count,
  /** `under way` until it has ended. */
  state: z.enum(['under way', ...TERMINAL_STATE_NAMES]),
  /**
   * True if the chain has no room for the uploads that its assets would begin. It has ended, and is `under way` here until
   * its receipt is put, which does not name them.
   */
  isRefused: z.optional(z.literal(true)),
  /** When it, or its last retry, came into the chain. */
  arrivedAt: time,
  /** What was sent. Absent while it is under way, and if the chain has become too large. */
  sent: z.optional(readonlyObject(sent)),
  flow: z.optional(z.string()),
  endedAt: z.optional(time),
  assets,
  /** Number of its assets. Present if the chain has become too large to hold them all: its entry has them. */
  assetCount: z.optional(count),
  failedOutputs: count,
  failure: z.optional(failure),
});

/** The form of a chain. */
export const chainSchema = readonlyObject({
  schema: z.literal(LEDGER_FORMAT),
  first: uploadSchema,
  /** 1, plus 1 each time that the operator has a stage made anew. */
  generation: count,
  /**
   * All later stages, as the configuration said when the first file succeeded, or when one of them was made anew. Absent
   * until then.
   */
  plan: z.optional(plan),
  /** All its uploads, the first one first. */
  uploads: z.readonly(z.array(member)),
  /** Routes whose stages are complete: what begins after all of their uploads was decided. */
  closed: z.readonly(z.array(z.string())),
  /** The uploads that take all assets of a stage, and what they began with. */
  gathered: z.readonly(z.array(readonlyObject({ upload: uploadSchema, route: routeSchema, inputs: z.array(input) }))),
  /** Names of stages that cannot begin, because the chain is too large to hold the assets that they take together. */
  overfull: z.optional(z.readonly(z.array(z.string()))),
  /** Stages that did not begin although the one before has ended. */
  withheld: z.readonly(z.array(readonlyObject({ route: z.string(), after: z.string(), why: z.string() }))),
  /**
   * Stages that are being made anew. A tick that finishes one goes on behind the first `seen` of its uploads. Absent once
   * all of them have begun.
   */
  anew: z.optional(z.readonly(z.array(readonlyObject({ route: z.string(), seen: count })))),
  /** When its last upload ended. Absent while an upload is under way. */
  endedAt: z.optional(time),
  /** When it had ended before that. */
  endedBefore: z.optional(time),
});

/**
 * A chain: the upload of a file, and the uploads of all later stages that follow from it.
 *
 * Which stages follow is its plan. It is written when the first file succeeds, so a later change of the configuration
 * leaves no stage out without a word. How each flow is made is the configuration of the moment in which it begins. A
 * planned stage that the configuration does not have any more is withheld, by name.
 *
 * It is a summary of their entries, which say more. It alone decides two things, because they depend on several uploads:
 * when a stage is complete, so that all of its assets begin the next one; and when the whole chain has ended.
 *
 *   first file ──▶ an upload for each asset ──▶ an upload for each asset of these ──▶ …
 *                                           └─▶ one upload for all of their assets, once all have ended
 */
export type Chain = z.infer<typeof chainSchema>;

export type ChainUpload = Chain['uploads'][number];
