import * as z from 'zod/mini';
import { jsonIn } from '../base/json.ts';
import { issuesTold } from '../base/validation.ts';
import { jsonSchema, templateSchema } from '../uploads/routes.ts';
import { UPLOAD_ID } from '../uploads/upload.ts';

/** Maximum number of collectors that divide the work. */
export const COLLECTORS_MAX = 64;

/** Maximum length of the words about a pause, in characters. */
const WHY_LENGTH_MAX = 200;

/** Maximum number of uploads that one event may name. */
const UPLOADS_MAX = 1_000;

/** Maximum number of missed uploads that a sweep may submit in a second. */
const UPLOADS_PER_SECOND_MAX = 1_000;

/**
 * Minimum number of missed uploads that a sweep may submit in a second: one in 15 minutes, the time of an invocation.
 */
const UPLOADS_PER_SECOND_MIN = 1 / 900;

const uploadIds = z.array(z.string().check(z.regex(UPLOAD_ID))).check(z.minLength(1), z.maxLength(UPLOADS_MAX));

/** Maximum length of parameters as JSON, in characters. Metadata of an object holds 2 KB. */
const PARAMETERS_LENGTH_MAX = 65_536;

const parameters = jsonSchema.check(
  z.refine((value) => JSON.stringify(value).length <= PARAMETERS_LENGTH_MAX, {
    error: `expected at most ${PARAMETERS_LENGTH_MAX} characters of JSON`,
    when: ({ issues }) => issues.length === 0, // What is nested too deep has no JSON.
  }),
);

/** @internal */
export const holdRequestSchema = z.strictObject({
  action: z.enum(['pause', 'resume']),
  /** Name of the route. Without it, the pipeline. */
  route: z.optional(z.string()),
  /** The operator's own words about a pause. */
  why: z.optional(z.string().check(z.maxLength(WHY_LENGTH_MAX))),
});

const sweepRequestSchema = z.strictObject({
  /** ISO 8601. */
  since: z.optional(
    z.pipe(
      z.string().check(z.refine((text) => !Number.isNaN(Date.parse(text)), { error: 'expected a date' })),
      z.transform((text) => Date.parse(text)),
    ),
  ),
  dryRun: z.optional(z.boolean()),
  force: z.optional(z.boolean()),
  stop: z.optional(z.boolean()),
  status: z.optional(z.boolean()),
  uploadsPerSecond: z.optional(z.number().check(z.minimum(UPLOADS_PER_SECOND_MIN), z.maximum(UPLOADS_PER_SECOND_MAX))),
});

const eventShape = z.strictObject({
  /** In a message of a tick to itself: the time, in milliseconds since the epoch, after which it begins no further round. */
  until: z.optional(z.int()),
  /** In such a message: see `LeftLease`. */
  left: z.optional(z.strictObject({ etag: z.string(), state: z.string() })),
  collector: z._default(
    z
      .strictObject({
        index: z.int().check(z.nonnegative()),
        of: z.int().check(z.positive(), z.maximum(COLLECTORS_MAX)),
      })
      .check(z.refine(({ index, of }) => index < of, { error: 'expected an index below "of"' })),
    { index: 0, of: 1 },
  ),
  retry: z.optional(uploadIds),
  /** Have these files made anew, with the later stages of their chains. */
  again: z.optional(uploadIds),
  /** For this retry, or this making anew, instead of those of the route. */
  parameters: z.optional(parameters),
  template: z.optional(templateSchema),
  /** Only this stage of the chains is made anew, and those after it. */
  from: z.optional(z.string()),
  /** True if this is a part of many: live files go first. Default: if it names many. */
  late: z.optional(z.literal(true)),
  cancel: z.optional(uploadIds),
  /** Have these uploads sent, which somebody has looked at. */
  approve: z.optional(uploadIds),
  /** Collect the flows of these uploads again. */
  collect: z.optional(uploadIds),
  /** Delete the flows of these uploads at the service. */
  delete: z.optional(uploadIds),
  /** Have the aliases of this upload's file show another flow. */
  alias: z.optional(z.strictObject({ upload: z.string().check(z.regex(UPLOAD_ID)), to: z.string() })),
  /** Hold the uploads of the pipeline or of a route, or end that. */
  hold: z.optional(holdRequestSchema),
  /** Ask the flow service how the flow of this upload is. */
  ask: z.optional(z.string().check(z.regex(UPLOAD_ID))),
  /** Ask the flow service for its templates. */
  templates: z.optional(z.literal(true)),
  /** Ask the flow service for the first pages of its listing of flows. */
  listing: z.optional(z.literal(true)),
  sweep: z.optional(sweepRequestSchema),
});

const isGiven = ({ parameters: own, template }: Pick<z.infer<typeof eventShape>, 'parameters' | 'template'>): boolean =>
  own !== undefined || template !== undefined;

const eventSchema = eventShape.check(
  z.refine(({ again, from, ...given }) => from === undefined || (again !== undefined && !isGiven(given)), {
    error: 'expected from only with again, and without parameters and template',
    path: ['from'],
  }),
  ...(['parameters', 'template', 'late'] as const).map((name) =>
    z.refine<z.infer<typeof eventShape>>(
      ({ retry, again, [name]: value }) => value === undefined || retry !== undefined || again !== undefined,
      { error: `expected ${name} only with retry or again`, path: [name] },
    ),
  ),
);

/** The collecting function does not accept this event. */
export class InvalidCollectEventError extends Error {
  override readonly name = 'InvalidCollectEventError';
}

/**
 * Parses what the schedule or an operator asks for: `{}` or `{"collector": {"index": 0, "of": 2}}` for a tick,
 * `{"retry": ["<upload id>"]}`, for which `parameters` and `template` may replace those of the route, and `late` says that
 * it is one of many, the same with `again`, where `from` may name the stage of a chain, the same with `cancel`, `approve`, `collect` and `delete`, `{"alias": {"upload": "<upload id>", "to": "<flow id>"}}`, `{"hold": {"action": "pause"}}`, `{"ask": "<upload id>"}`, `{"templates": true}`, `{"listing": true}`, or `{"sweep": {"since": "2026-01-01", "dryRun": true, "uploadsPerSecond": 10}}`.
 * @throws {InvalidCollectEventError}
 */
export function parseCollectEvent(event: unknown): z.infer<typeof eventSchema> {
  const parsed = z.safeParse(eventSchema, inMessage(event) ?? event ?? {});
  if (parsed.success) return parsed.data;
  // Zod's own error would hold all of the event that is wrong.
  throw new InvalidCollectEventError(issuesTold(parsed.error, 'the event'));
}

/** What the only message of a batch asks for: see `nextRound` in `tick.ts`. */
const inMessage = (event: unknown): unknown =>
  jsonIn((event as { Records?: { body?: string }[] } | undefined)?.Records?.[0]?.body);
