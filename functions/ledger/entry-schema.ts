import * as z from 'zod/mini';
import { UPLOAD_ID } from '../uploads/upload.ts';
import { ENTRY_SCHEMA } from './entry.ts';

/** The last millisecond that ISO 8601 writes with four digits of a year, as keys of markers do. */
const TIME_MAX = Date.parse('9999-12-31T23:59:59.999Z');

const time = z.number().check(z.gte(0), z.lte(TIME_MAX));
const count = z.int().check(z.gte(0));
const flow = z.looseObject({ id: z.string().check(z.minLength(1)), createdAt: time });
const assets = z.array(z.looseObject({ id: z.string(), key: z.string(), bytes: count, sha256: z.string() }));
const failedOutputs = z.array(z.looseObject({ id: z.string(), code: z.string(), message: z.string() }));
const failure = z.looseObject({ code: z.string(), message: z.string() });

const facts = {
  schema: z.literal(ENTRY_SCHEMA),
  upload: z.looseObject({
    id: z.string().check(z.regex(UPLOAD_ID)),
    bucket: z.string(),
    key: z.string(),
    versionId: z.optional(z.string()),
    etag: z.string(),
    bytes: count,
    lastModified: time,
    mediaType: z.string(),
  }),
  route: z.looseObject({ name: z.string(), input: z.enum(['file', 'text']), template: z.string() }),
  reroute: z.optional(z.literal(true)),
  pipeline: z.optional(z.string()),
  generation: count,
  attempts: count,
  claimDied: z.optional(z.literal(true)),
  waits: count,
  throttledSince: z.optional(time),
  doubt: z.optional(z.looseObject({ claimedAt: time, sentBy: time, nextAttemptAt: z.optional(time) })),
};

const terminal = { ...facts, flow: z.optional(flow), endedAt: time, assets, failedOutputs };

/**
 * The form of an entry, as far as the functions rely on it. An entry is only ever checked by it, never made: what it
 * does not name stays.
 */
export const entrySchema = z.discriminatedUnion('state', [
  z.looseObject({ ...facts, state: z.literal('claimed'), claimedAt: time, deadline: time }),
  z.looseObject({ ...facts, state: z.literal('waiting'), reason: z.string(), message: z.string(), notBefore: time }),
  z.looseObject({
    ...facts,
    state: z.literal('running'),
    flow,
    assets: z.optional(assets),
    attemptedAt: z.optional(time),
    isShared: z.optional(z.literal(true)),
  }),
  z.looseObject({ ...terminal, state: z.literal('succeeded') }),
  z.looseObject({ ...terminal, state: z.literal('failed'), failure, isTold: z.optional(z.literal(true)) }),
]);
