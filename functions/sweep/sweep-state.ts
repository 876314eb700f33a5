import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/telemetry.ts';
import { SWEEP_KEY } from '../ledger/keys.ts';
import { LedgerContendedError } from '../ledger/store.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';

/** Where a pass stands: first it goes through the versions in the inbox, then through the entries of the ledger. */
export type SweepPosition =
  | { readonly in: 'inbox'; readonly after?: { readonly key: string; readonly versionId: string } | undefined }
  | { readonly in: 'ledger'; readonly after?: string | undefined };

/** A pass that has not come to its end yet. Times in milliseconds since the epoch. */
export interface SweepPass {
  readonly startedAt: number;
  /** How many missed uploads are submitted in a second. */
  readonly uploadsPerSecond: number;
  /** Older uploads are left alone. */
  readonly since: number;
  /** Whether uploads are submitted whose entries may have expired. */
  readonly force?: true | undefined;
  /** Bucket and prefix that the pass goes through. */
  readonly inbox?: string | undefined;
  readonly position: SweepPosition;
  /** The run that is at it, or was the last to be. */
  readonly holder: string;
  /** No other run takes the pass before. */
  readonly heldUntil: number;
}

/** A daily pass looks after what is new; a backfill goes back to a day that an operator named. At most one of each. */
export type SweepKind = 'daily' | 'backfill';

export interface SweepState {
  /** When this deployment began: a daily pass leaves alone what was in the inbox before. */
  readonly firstDay: number;
  /** Up to here the passes have seen to everything. */
  readonly watermark: number;
  readonly daily?: SweepPass | undefined;
  readonly backfill?: SweepPass | undefined;
}

const position = z.discriminatedUnion('in', [
  z.object({
    in: z.literal('inbox'),
    after: z.optional(z.object({ key: z.string(), versionId: z.string() })),
  }),
  z.object({ in: z.literal('ledger'), after: z.optional(z.string()) }),
]);

/** How far into the future a time may lie that another machine's clock has told, in milliseconds. */
const CLOCK_SKEW_MS = 60 * 60_000;

function stateSchema(now: number) {
  const time = z.number().check(z.gte(0), z.lte(now + CLOCK_SKEW_MS));
  const pass = {
    startedAt: time,
    uploadsPerSecond: z.number().check(z.positive()),
    since: z.number(),
    force: z.optional(z.literal(true)),
    inbox: z.optional(z.string()),
    position,
    holder: z._default(z.string(), ''),
    heldUntil: time,
  };
  return z.object({
    firstDay: time,
    watermark: time,
    daily: z.optional(z.object(pass)),
    backfill: z.optional(z.object(pass)),
    /** The one pass that the version before this one knew. */
    pass: z.optional(z.object({ ...pass, isScheduled: z.boolean() })),
  });
}

interface Remembered {
  readonly state: SweepState;
  /** Absent where nothing is stored. */
  readonly etag: string | undefined;
  /** Whether the state begins with this reading. */
  readonly isNew: boolean;
}

/** How often a write is done again because another run wrote in between. */
const TRIES_MAX = 20;

/**
 * What the sweep remembers between its runs. Runs overlap, and each changes only what is its own, by conditional
 * writes: which of two begins or takes a pass is decided by S3. Where nothing is remembered, or nothing that can be
 * read, the deployment begins now.
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
   * Changes what is remembered, and returns what is remembered then. `change` is applied again to what another run has
   * written in between; what it throws is thrown, and nothing is written.
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
        // Our own write may have succeeded and its answer been lost: then `change` finds its own work done.
        if (!isConflict(error) && !isPreconditionFailed(error) && !isAbsent(error)) throw error;
      }
    }
    throw new LedgerContendedError(`${SWEEP_KEY} was written by others ${TRIES_MAX} times in between`);
  }

  async #read(signal: AbortSignal): Promise<Remembered> {
    const now = this.#clock.now();
    // S3 dates objects in whole seconds, so that one of this very second would seem to be older.
    const firstSecond = Math.floor(now / 1000) * 1000;
    const first: SweepState = { firstDay: firstSecond, watermark: firstSecond };
    try {
      const { Body, ETag } = await this.#s3.send(new GetObjectCommand(this.#where), { abortSignal: signal });
      const state = parsedState((await Body?.transformToString()) ?? '', now);
      if (state !== undefined) return { state, etag: ETag, isNew: false };
      this.#log.error('The state of the sweep cannot be read: it begins anew, and submits nothing from before now', {
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
    return undefined; // The caller says so.
  }
}
