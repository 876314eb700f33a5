import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../clock.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../objects/s3-errors.ts';
import { collectorKey } from './keys.ts';

/** How long a lease holds unless renewed, in milliseconds; renewed after a third of it. */
const LEASE_MS = 30_000;

/** How far ahead of ours another machine's clock may be, in milliseconds: no lease holds, and no round was, beyond. */
const CLOCK_SKEW_MS = 10 * 60_000;

interface CollectorState {
  /** Milliseconds since the epoch until when somebody collects; 0 where nobody does. */
  readonly heldUntil: number;
  /** When the last completed round began, milliseconds since the epoch. */
  readonly lastCompletedAt?: number | undefined;
}

/**
 * A collector's lease: it saves overlapping ticks the work of each other. It is not what correctness rests on, so a
 * lease that was lost is not fought over; only the time of the last completed round is then no longer ours to write.
 */
export class Lease {
  readonly #s3: S3Client;
  readonly #where: { readonly Bucket: string; readonly Key: string };
  readonly #clock: Clock;
  #state: CollectorState;
  #etag: string | undefined;
  #lost = false;
  /** Writes go one after another: each is conditional on the one before. */
  #writing: Promise<void> = Promise.resolve();
  readonly #ended = new AbortController();
  #renewing: Promise<void> = Promise.resolve();

  private constructor(
    s3: S3Client,
    where: { readonly Bucket: string; readonly Key: string },
    clock: Clock,
    state: CollectorState,
    etag: string | undefined,
  ) {
    this.#s3 = s3;
    this.#where = where;
    this.#clock = clock;
    this.#state = state;
    this.#etag = etag;
  }

  /** Takes the lease of a collector. Undefined where somebody holds it, or takes it at the same moment. */
  static async take(
    s3: S3Client,
    bucket: string,
    collector: number,
    clock: Clock,
    signal: AbortSignal,
  ): Promise<Lease | undefined> {
    const where = { Bucket: bucket, Key: collectorKey(collector) };
    let state: CollectorState = { heldUntil: 0 };
    let etag: string | undefined;
    try {
      const { Body, ETag } = await s3.send(new GetObjectCommand(where), { abortSignal: signal });
      state = parsedState((await Body?.transformToString()) ?? '', clock.now());
      etag = ETag;
    } catch (error) {
      if (!isAbsent(error)) throw error;
    }
    if (clock.now() < state.heldUntil) return undefined;
    const lease = new Lease(s3, where, clock, state, etag);
    await lease.#write({}, signal);
    if (lease.#lost) return undefined;
    lease.#renewing = lease.#keepRenewing(signal);
    return lease;
  }

  /** When the last completed round began; undefined where there was none yet. */
  get lastCompletedAt(): number | undefined {
    return this.#state.lastCompletedAt;
  }

  /** A round that began at `startedAt` has looked at everything that was due. */
  completed(startedAt: number, signal: AbortSignal): Promise<void> {
    return this.#write({ lastCompletedAt: startedAt }, signal);
  }

  /** Lets others at it at once. Where that fails it runs out by itself, which is nothing to fail for. */
  async release(signal: AbortSignal): Promise<void> {
    this.#ended.abort();
    await this.#renewing;
    await this.#write({ heldUntil: 0 }, signal).catch(() => {});
  }

  async #keepRenewing(signal: AbortSignal): Promise<void> {
    const until = AbortSignal.any([signal, this.#ended.signal]);
    while (!until.aborted && !this.#lost) {
      try {
        await this.#clock.sleep(LEASE_MS / 3, until);
        await this.#write({}, signal);
      } catch {
        // The end, or a lease that could not be renewed: it runs out, and at worst two collectors work side by side.
      }
    }
  }

  #write(change: Partial<CollectorState>, signal: AbortSignal): Promise<void> {
    this.#writing = this.#writing.catch(() => {}).then(() => this.#put(change, signal));
    return this.#writing;
  }

  async #put(change: Partial<CollectorState>, signal: AbortSignal): Promise<void> {
    if (this.#lost) return;
    const state = { ...this.#state, heldUntil: this.#clock.now() + LEASE_MS, ...change };
    try {
      const { ETag } = await this.#s3.send(
        new PutObjectCommand({
          ...this.#where,
          Body: JSON.stringify(state),
          ContentType: 'application/json',
          ...(this.#etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: this.#etag }),
        }),
        { abortSignal: signal },
      );
      this.#state = state;
      this.#etag = ETag;
    } catch (error) {
      if (!isPreconditionFailed(error) && !isConflict(error) && !isAbsent(error)) throw error;
      this.#lost = true;
    }
  }
}

/** A state that cannot be read is as good as none: the next write replaces it, and everything is due. */
function parsedState(text: string, now: number): CollectorState {
  try {
    const { heldUntil, lastCompletedAt } = JSON.parse(text) as Partial<Record<string, unknown>>;
    const isTime = (value: unknown, latest: number): value is number => typeof value === 'number' && value <= latest;
    return {
      heldUntil: isTime(heldUntil, now + LEASE_MS + CLOCK_SKEW_MS) ? heldUntil : 0,
      lastCompletedAt: isTime(lastCompletedAt, now + CLOCK_SKEW_MS) ? lastCompletedAt : undefined,
    };
  } catch {
    return { heldUntil: 0 };
  }
}
