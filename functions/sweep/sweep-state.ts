import { randomUUID } from 'node:crypto';
import type { S3Client } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import { type Clock, iso } from '../base/clock.ts';
import { isObject, jsonIn } from '../base/json.ts';
import { orDropped } from '../base/stored-state.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { Document } from '../ledger/document.ts';
import { count, LEDGER_FORMAT } from '../ledger/entry-schema.ts';
import { SWEEP_KEY } from '../ledger/keys.ts';
import { demandFormat } from '../ledger/store.ts';

/**
 * A daily pass covers new uploads. A backfill goes back to a day that an operator named. A dry run only counts. This is
 * also the order in which passes run if several are under way.
 */
export const SWEEP_KINDS = ['daily', 'backfill', 'dryRun'] as const;
export type SweepKind = (typeof SWEEP_KINDS)[number];
export type PerKind<T> = { readonly [kind in SweepKind]?: T | undefined };

/**
 * How far ahead of now a stored time may be, in milliseconds. A pass is held for up to 15 minutes, and the clocks of
 * two machines differ. Later times are taken to be damaged.
 */
const AHEAD_MAX_MS = 60 * 60_000;

/** The last time that a `Date` can hold, in milliseconds since the epoch: ECMAScript, "Time Values and Time Range". */
const DATE_MAX = 8.64e15;

/** A pass goes through the versions in the inbox, then the entries of the ledger, and at last the uploads that wait. */
const position = z.discriminatedUnion('in', [
  z.object({
    in: z.literal('inbox'),
    after: z.optional(z.object({ key: z.string(), versionId: z.string() })),
  }),
  z.object({ in: z.literal('ledger'), after: z.optional(z.string()) }),
  z.object({ in: z.literal('waiting'), after: z.optional(z.string()) }),
]);
export type SweepPosition = z.infer<typeof position>;

/** What a pass has done so far. */
const counts = z.object({
  /** Uploads in the inbox that were compared with the ledger. */
  compared: count,
  /** Uploads that a route wants and that have no entry. */
  missed: count,
  /**
   * Only of a dry run: how many of the missed uploads each route would take, by its name. A listing tells no media
   * type, so the key stands for it.
   */
  missedByRoute: z.optional(z.record(z.string(), count)),
  /**
   * Entries whose marker or receipt was put again. In a dry run, it would be. Most were not missing: the marker of
   * every upload that is under way is put again.
   */
  repaired: count,
  /** Files below the prefix of a jobs route that no job has taken. Absent if there are none. */
  unnamed: z.optional(count),
  /** Files that are no uploads, because their keys are those of later stages of chains. Absent if there are none. */
  skipped: z.optional(count),
});
export type SweepCounts = Readonly<z.infer<typeof counts>>;
export const NOTHING_DONE: SweepCounts = { compared: 0, missed: 0, repaired: 0 };

/** All times are in milliseconds since the epoch. Each member is read by itself. */
function stateSchema(now: number) {
  const time = z.number().check(z.gte(0), z.lte(now + AHEAD_MAX_MS));
  /** A pass that has not ended yet. */
  const passOf = (since: typeof time) =>
    z.object({
      startedAt: time,
      /** Missed uploads that are submitted in a second. */
      uploadsPerSecond: z.number().check(z.positive()),
      /** Older uploads are left alone. */
      since,
      /** True if the operator named that time. Then it holds for what was in the inbox before it became the inbox, too. */
      isNamed: z.optional(z.literal(true)),
      /** True if uploads are submitted although their entries may have expired. */
      force: z.optional(z.literal(true)),
      /** Bucket and prefix of the inbox that the pass goes through. */
      inbox: z.string(),
      position,
      /** What was done up to the position. It is only shown, so the pass goes on if it is damaged. */
      counts: orDropped(counts),
      /** Nonce of the last run that took the pass, or else of the request for it. */
      holder: z.string(),
      /** No other run begins before this time. Undefined if the time is damaged: then the next run takes the pass. */
      heldUntil: orDropped(time),
    });
  /** The last pass of a kind that came to its end. */
  const endedOf = (since: typeof time) =>
    orDropped(z.object({ since, startedAt: time, endedAt: time, counts: orDropped(counts) }));
  // The operator may name any day, also one in the future.
  const named = z.number().check(z.gte(-DATE_MAX), z.lte(DATE_MAX));
  return z.object({
    /** When this deployment began. A daily pass leaves alone the uploads from before. */
    firstDay: orDropped(time),
    /**
     * Since when each bucket and prefix has been the inbox. A pass leaves alone what it had before, unless a day was
     * named.
     */
    inboxes: orDropped(z.record(z.string(), time)),
    /** All uploads and entries from before this time have been swept. */
    watermark: orDropped(time),
    daily: orDropped(passOf(time)),
    backfill: orDropped(passOf(named)),
    dryRun: orDropped(passOf(named)),
    ended: orDropped(z.object({ daily: endedOf(time), backfill: endedOf(named), dryRun: endedOf(named) })),
  });
}

/** The passes that are under way, and what remains of those that ended. */
export type SweepState = Readonly<z.infer<ReturnType<typeof stateSchema>>> & {
  readonly firstDay: number;
  readonly watermark: number;
};
export type SweepPass = Readonly<NonNullable<SweepState['daily']>>;
export type EndedPass = Readonly<NonNullable<NonNullable<SweepState['ended']>['daily']>>;

interface ParsedState {
  readonly state: SweepState;
  /** The members that could not be read, by their names. */
  readonly damaged: readonly string[];
}

/**
 * Reads a stored state member by member. A damaged time is replaced by an earlier one, so the next daily pass does some
 * work again and leaves no upload out.
 *
 * The `since` of the last daily pass is such a time. All uploads from before it were swept earlier, and it is not
 * before the first day. So is that of a backfill: the operator wants all uploads after it. A damaged pass is forgotten:
 * a tick begins a daily one again, and the operator must request a backfill again. If neither a time nor a daily pass
 * can be read, the deployment begins now. Then only a backfill finds older uploads.
 * @throws {OtherFormatError}
 */
export function parsedState(text: string, now: number): ParsedState {
  const stored = storedMembers(text);
  demandFormat(SWEEP_KEY, stored, 'no sweep runs');
  const schema = stateSchema(now);
  const { firstDay, watermark, ...members } = schema.parse(stored);
  const lastSince = (members.daily ?? members.ended?.daily)?.since;
  const sinces = [lastSince, members.backfill?.since, members.ended?.backfill?.since, watermark];
  const known = sinces.filter((since) => since !== undefined);
  const begunAt = firstDay ?? Math.max(0, Math.min(...known, firstSecondOf(now)));
  const state = { firstDay: begunAt, watermark: watermark ?? lastSince ?? begunAt, ...members };
  const read: Readonly<Record<string, unknown>> = { firstDay, watermark, ...members };
  const isExpected = (name: string) => stored[name] !== undefined || name === 'firstDay' || name === 'watermark';
  const damaged = Object.keys(schema.shape).filter((name) => read[name] === undefined && isExpected(name));
  return { state, damaged };
}

/**
 * The members of a stored state, as they are. None if the text is no object in JSON. A state without a format is of the
 * first one.
 */
function storedMembers(text: string): Readonly<Record<string, unknown>> {
  const value = jsonIn(text);
  return isObject(value) ? { schema: 1, ...value } : {}; // Without any, all are damaged, which the caller reports.
}

/** S3 dates objects in whole seconds: without rounding, an upload of this very second would seem to be older. */
const firstSecondOf = (now: number): number => Math.floor(now / 1000) * 1000;

/**
 * Stores the state of the sweep between its runs. The writes are conditional, so S3 decides which of two runs takes a
 * pass. If no state is stored, the deployment begins now.
 */
export class SweepStateStore {
  readonly #document: Document<ParsedState>;
  readonly #clock: Clock;
  readonly #telemetry: Telemetry;

  constructor(s3: S3Client, bucket: string, clock: Clock, telemetry: Telemetry) {
    this.#clock = clock;
    this.#telemetry = telemetry;
    this.#document = new Document({
      ...{ s3, bucket, key: SWEEP_KEY, clock, nonce: randomUUID },
      parse: (text) => parsedState(text, clock.now()),
      print: ({ state }) => JSON.stringify({ schema: LEDGER_FORMAT, ...state }),
    });
  }

  /** @throws {OtherFormatError} */
  read(signal: AbortSignal): Promise<SweepState> {
    return this.update((state) => state, signal);
  }

  /**
   * Changes the state and returns the new one. If another invocation writes in between, `change` is applied again to the new
   * state. If `change` throws, nothing is written. A state that is damaged, or not there yet, is written in any case.
   * @throws {ContendedError} @throws {OtherFormatError}
   */
  async update(change: (state: SweepState) => SweepState, signal: AbortSignal): Promise<SweepState> {
    const now = firstSecondOf(this.#clock.now());
    const changed = (stored: ParsedState | undefined): ParsedState => {
      const before = stored ?? { state: { firstDay: now, watermark: now }, damaged: [] };
      const state = change(before.state);
      if (stored !== undefined && state === stored.state && stored.damaged.length === 0) return stored;
      if (before.damaged.length > 0) this.#report(before);
      return { state, damaged: [] };
    };
    return ((await this.#document.update(changed, signal)) as ParsedState).state;
  }

  /** Tells the operator, before a write replaces the damaged members and leaves no trace of them. */
  #report({ damaged, state }: ParsedState): void {
    const { log, metrics } = this.#telemetry;
    metrics.add('SweepStateDamaged');
    log.error('Parts of the state of the sweep cannot be read. They are replaced.', {
      key: SWEEP_KEY,
      damaged: damaged.join(', '),
      firstDay: iso(state.firstDay),
      watermark: iso(state.watermark),
    });
  }
}
