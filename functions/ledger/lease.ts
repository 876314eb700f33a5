import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { type CollectorState, parsedState } from './collector-state.ts';
import { collectorKey } from './keys.ts';

/** How long a lease holds unless renewed, in milliseconds; renewed after a third of it. */
export const LEASE_MS = 30_000;

/**
 * A collector's lease, and beside it what the collector remembers between its ticks.
 *
 * The lease saves overlapping ticks the work of each other. Correctness does not rest on it, so a lease that was lost
 * is not fought over. Only what the collector remembers is then no longer ours to write.
 */
export class Lease {
  readonly #s3: S3Client;
  readonly #where: { readonly Bucket: string; readonly Key: string };
  readonly #clock: Clock;
  #state: CollectorState;
  #etag: string | undefined;
  #lost = false;
  #memory: () => Partial<CollectorState> = () => ({});
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

  /** Takes the lease of a collector. Undefined if another tick holds it, or takes it at the same moment. */
  static async take(
    s3: S3Client,
    bucket: string,
    collector: number,
    clock: Clock,
    signal: AbortSignal,
  ): Promise<Lease | undefined> {
    const where = { Bucket: bucket, Key: collectorKey(collector) };
    let state: CollectorState = {};
    let etag: string | undefined;
    try {
      const { Body, ETag } = await s3.send(new GetObjectCommand(where), { abortSignal: signal });
      state = parsedState((await Body?.transformToString()) ?? '', clock.now(), LEASE_MS);
      etag = ETag;
    } catch (error) {
      if (!isAbsent(error)) throw error;
    }
    if (clock.now() < (state.heldUntil ?? 0)) return undefined;
    const lease = new Lease(s3, where, clock, state, etag);
    await lease.write(signal);
    if (lease.#lost) return undefined;
    lease.#renewing = lease.#keepRenewing(signal);
    return lease;
  }

  /** Whether another tick has taken the lease, so that this one should begin nothing more. */
  get isLost(): boolean {
    return this.#lost;
  }

  get state(): CollectorState {
    return this.#state;
  }

  /** What the collector remembers goes with every write from now on, so that a tick that dies loses little of it. */
  keeps(memory: () => Partial<CollectorState>): void {
    this.#memory = memory;
  }

  /** Renews the lease, with what the collector remembers by now. */
  write(signal: AbortSignal): Promise<void> {
    return this.#write({}, signal);
  }

  /** Releases the lease at once. If that fails, it expires by itself, so the error can be ignored. */
  async release(signal: AbortSignal): Promise<void> {
    this.#ended.abort();
    await this.#renewing;
    await this.#write({ heldUntil: 0 }, signal).catch(() => {});
  }

  #write(change: Partial<CollectorState>, signal: AbortSignal): Promise<void> {
    this.#writing = this.#writing.catch(() => {}).then(() => this.#put({ ...this.#memory(), ...change }, signal));
    return this.#writing;
  }

  async #keepRenewing(signal: AbortSignal): Promise<void> {
    const until = AbortSignal.any([signal, this.#ended.signal]);
    while (!until.aborted && !this.#lost) {
      try {
        await this.#clock.sleep(LEASE_MS / 3, until);
        await this.write(signal);
      } catch {
        // The end, or a lease that could not be renewed: it runs out, and at worst two collectors work side by side.
      }
    }
  }

  async #put(change: Partial<CollectorState>, signal: AbortSignal): Promise<void> {
    if (this.#lost) return;
    const state = { ...this.#state, heldUntil: this.#clock.now() + LEASE_MS, ...change };
    const Body = JSON.stringify(state);
    try {
      const { ETag } = await this.#s3.send(
        new PutObjectCommand({
          ...this.#where,
          Body,
          ContentType: 'application/json',
          ...(this.#etag === undefined ? { IfNoneMatch: '*' } : { IfMatch: this.#etag }),
        }),
        { abortSignal: signal },
      );
      this.#state = state;
      this.#etag = ETag;
    } catch (error) {
      if (!isPreconditionFailed(error) && !isConflict(error) && !isAbsent(error)) throw error;
      // The answer to our own write may have been lost, and the SDK may have written again.
      const there = await this.#s3
        .send(new GetObjectCommand(this.#where), { abortSignal: signal })
        .catch(() => undefined);
      if ((await there?.Body?.transformToString()) !== Body) {
        this.#lost = true;
        return;
      }
      this.#state = state;
      this.#etag = there?.ETag;
    }
  }
}
