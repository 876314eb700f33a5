import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import type { Clock } from '../base/clock.ts';
import { orDropped } from '../base/stored-state.ts';
import type { Log } from '../base/telemetry.ts';
import { SWEEP_KEY } from '../ledger/keys.ts';
import { LedgerContendedError } from '../ledger/store.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';

/** The position of a pass. It goes through the versions in the inbox first, then through the entries of the ledger. */
export type SweepPosition =
  | { readonly in: 'inbox'; readonly after?: { readonly key: string; readonly versionId: string } | undefined }
  | { readonly in: 'ledger'; readonly after?: string | undefined };

/** What a pass has done so far. */
export interface SweepCounts {
  /** Uploads in the inbox that were compared with the ledger. */
  readonly compared: number;
  /** Uploads that a route wants and that have no entry. */
  readonly missed: number;
  /**
   * Entries whose marker or receipt was put again. In a dry run, it would be. Most were not missing: the marker of
   * every upload that is under way is put again.
   */
  readonly repaired: number;
}

/** A pass that has not ended yet. All times are in milliseconds since the epoch. */
export interface SweepPass {
  readonly startedAt: number;
  /** Missed uploads that are submitted in a second. */
  readonly uploadsPerSecond: number;
  /** Older uploads are left alone. */
  readonly since: number;
  /** True if uploads are submitted although their entries may have expired. */
  readonly force?: true | undefined;
  /** Bucket and prefix of the inbox that the pass goes through. */
  readonly inbox?: string | undefined;
  readonly position: SweepPosition;
  /** What was done up to the position. Undefined if it is damaged. */
  readonly counts?: SweepCounts | undefined;
  /** Nonce of the run that holds the pass, or held it last. */
  readonly holder: string;
  /** No other run takes the pass before this time. */
  readonly heldUntil: number;
}

/** The last pass of a kind that came to its end. All times are in milliseconds since the epoch. */
export interface EndedPass {
  readonly since: number;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly counts?: SweepCounts | undefined;
}

/**
 * A daily pass covers new uploads. A backfill goes back to a day that an operator named. A dry run only counts. There
 * is at most one of each.
 */
export const SWEEP_KINDS = ['daily', 'backfill', 'dryRun'] as const;
export type SweepKind = (typeof SWEEP_KINDS)[number];

export type PerKind<T> = { readonly [kind in SweepKind]?: T | undefined };

/** The passes that are under way, and what remains of those that ended. */
export interface SweepState extends PerKind<SweepPass> {
  /** When this deployment began. A daily pass leaves alone the uploads from before. */
  readonly firstDay: number;
  /** All uploads and entries from before this time have been swept. */
  readonly watermark: number;
  readonly ended?: PerKind<EndedPass> | undefined;
}

const position = z.discriminatedUnion('in', [
  z.object({
    in: z.literal('inbox'),
    after: z.optional(z.object({ key: z.string(), versionId: z.string() })),
  }),
  z.object({ in: z.literal('ledger'), after: z.optional(z.string()) }),
]);

/**
 * How far ahead of now a stored time may be, in milliseconds. A pass is held for up to 15 minutes, and the clocks of
 * two machines differ. A state with later times is not believed.
 */
const AHEAD_MAX_MS = 60 * 60_000;

export const NOTHING_DONE: SweepCounts = { compared: 0, missed: 0, repaired: 0 };
const count = z.int().check(z.nonnegative());
/** Counts are only shown. If they are damaged, the pass goes on all the same. */
const counts = orDropped(z.object({ compared: count, missed: count, repaired: count }));

function stateSchema(now: number) {
  const time = z.number().check(z.gte(0), z.lte(now + AHEAD_MAX_MS));
  const pass = {
    startedAt: time,
    uploadsPerSecond: z.number().check(z.positive()),
    since: z.number(),
    force: z.optional(z.literal(true)),
    inbox: z.optional(z.string()),
    position,
    counts,
    holder: z._default(z.string(), ''),
    heldUntil: time,
  };
  const ended = orDropped(z.object({ since: z.number(), startedAt: time, endedAt: time, counts }));
  return z.object({
    firstDay: time,
    watermark: time,
    daily: z.optional(z.object(pass)),
    backfill: z.optional(z.object(pass)),
    dryRun: z.optional(z.object(pass)),
    ended: orDropped(z.object({ daily: ended, backfill: ended, dryRun: ended })),
    /** The only pass of the previous version's state. */
    pass: z.optional(z.object({ ...pass, isScheduled: z.boolean() })),
  });
}

interface StoredState {
  readonly state: SweepState;
  /** Undefined if nothing is stored. */
  readonly etag: string | undefined;
  /** True if nothing was stored, or nothing that can be read. */
  readonly isNew: boolean;
}

/** Tries of a write. Each further one follows the write of another run. */
const TRIES_MAX = 20;

/**
 * Stores the state of the sweep between its runs. Runs overlap, and each changes only its own pass. The writes are
 * conditional, so S3 decides which of two runs begins or takes a pass. If no state is stored, or it cannot be read, the
 * deployment begins now.
 */
export class SweepStateStore {
  readonly #s3: S3Client;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #where: { readonly Bucket: string; readonly Key: string };

  constructor(s3: S3Client, bucket: string, clock: Clock, log: Log) {
    this.#s3 = s3;
    this.#clock = clock;
    this.#log = log;
    this.#where = { Bucket: bucket, Key: SWEEP_KEY };
  }

  async read(signal: AbortSignal): Promise<SweepState> {
    const { state, isNew } = await this.#read(signal);
    return isNew ? this.update((now) => now, signal) : state;
  }

  /**
   * Changes the state and returns the new one. If another run writes in between, `change` is applied again to the new
   * state. If `change` throws, nothing is written.
   * @throws {LedgerContendedError}
   */
  async update(change: (state: SweepState) => SweepState, signal: AbortSignal): Promise<SweepState> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const { state, etag, isNew } = await this.#read(signal);
      const next = change(state);
      if (next === state && !isNew) return state;
      const condition = etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: etag };
      const Body = JSON.stringify(next);
      const put = new PutObjectCommand({ ...this.#where, Body, ContentType: 'application/json', ...condition });
      try {
        await this.#s3.send(put, { abortSignal: signal });
        return next;
      } catch (error) {
        // If our write succeeded and only its answer was lost, `change` finds its work done.
        if (!isConflict(error) && !isPreconditionFailed(error) && !isAbsent(error)) throw error;
      }
    }
    throw new LedgerContendedError(
      `${SWEEP_KEY} was written by other runs during ${TRIES_MAX} tries in a row; try again`,
    );
  }

  async #read(signal: AbortSignal): Promise<StoredState> {
    const now = this.#clock.now();
    // S3 dates objects in whole seconds: without rounding, an upload of this very second would seem to be older.
    const firstSecond = Math.floor(now / 1000) * 1000;
    const first: SweepState = { firstDay: firstSecond, watermark: firstSecond };
    try {
      const { Body, ETag } = await this.#s3.send(new GetObjectCommand(this.#where), { abortSignal: signal });
      const state = parsedState((await Body?.transformToString()) ?? '', now);
      if (state !== undefined) return { state, etag: ETag, isNew: false };
      this.#log.error('The state of the sweep cannot be read. It begins anew, and submits no upload from before now', {
        key: SWEEP_KEY,
      });
      return { state: first, etag: ETag, isNew: true };
    } catch (error) {
      if (!isAbsent(error)) throw error;
      return { state: first, etag: undefined, isNew: true };
    }
  }
}

function parsedState(text: string, now: number): SweepState | undefined {
  try {
    const { pass, ...state } = stateSchema(now).parse(JSON.parse(text));
    return pass === undefined ? state : { ...state, [pass.isScheduled ? 'daily' : 'backfill']: pass };
  } catch {
    return undefined; // The caller logs it.
  }
}
