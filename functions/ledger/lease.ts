import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import { isAbsent, isConflict, isPreconditionFailed } from '../s3/errors.ts';
import { type CollectorState, parsedState } from './collector-state.ts';
import { collectorKey } from './keys.ts';

/** Duration of a lease, in milliseconds. It is renewed after a third of it. */
const LEASE_MS = 30_000;

interface LeasePorts {
  readonly s3: S3Client;
  /** The ledger bucket. */
  readonly bucket: string;
  readonly clock: Clock;
}

/** Reads the state of a collector. It is empty if the collector never had a tick, or if it cannot be read. */
export async function readState(
  { s3, bucket, clock }: LeasePorts,
  collector: number,
  signal: AbortSignal,
): Promise<{ readonly state: CollectorState; readonly etag?: string | undefined }> {
  try {
    const get = new GetObjectCommand({ Bucket: bucket, Key: collectorKey(collector) });
    const { Body, ETag } = await s3.send(get, { abortSignal: signal });
    return { state: parsedState((await Body?.transformToString()) ?? '', clock.now(), LEASE_MS), etag: ETag };
  } catch (error) {
    if (!isAbsent(error)) throw error;
    return { state: {} };
  }
}

/**
 * A collector's lease, and beside it the state that the collector keeps between its ticks.
 *
 * The lease keeps overlapping ticks from doing the same work. What they do is safe without it, so a lost lease is not
 * taken back. The tick only stops writing the state. An unbroken lease also proves that no other tick polled in
 * between.
 */
export class Lease {
  readonly #s3: S3Client;
  readonly #where: { readonly Bucket: string; readonly Key: string };
  readonly #clock: Clock;
  #state: CollectorState;
  #etag: string | undefined;
  /**
   * True if the last tick released the lease. False if it died, or is still at work: it may have polled flows after its
   * last write, so the state does not hold what it saw last.
   */
  readonly wasReleased: boolean;
  #lost = false;
  #memory: () => Partial<CollectorState> = () => ({});
  /** Writes are made one after another, because each is conditional on the previous one. */
  #writing: Promise<void> = Promise.resolve();
  /** A renewal that has not begun. */
  #renewal: Promise<void> | undefined;
  readonly #ended = new AbortController();
  #renewing: Promise<void> = Promise.resolve();

  private constructor({ s3, bucket, clock }: LeasePorts, collector: number, state: CollectorState, etag?: string) {
    this.#s3 = s3;
    this.#where = { Bucket: bucket, Key: collectorKey(collector) };
    this.#clock = clock;
    this.#state = state;
    this.#etag = etag;
    this.wasReleased = state.heldUntil === 0;
  }

  /** Takes the lease of a collector. Undefined if another tick holds it, or takes it at the same time. */
  static async take(ports: LeasePorts, collector: number, signal: AbortSignal): Promise<Lease | undefined> {
    const { state, etag } = await readState(ports, collector, signal);
    if (ports.clock.now() < (state.heldUntil ?? 0)) return undefined;
    const lease = new Lease(ports, collector, state, etag);
    await lease.write(signal);
    if (lease.#lost) return undefined;
    lease.#renewing = lease.#keepRenewing(signal);
    return lease;
  }

  /** True if another tick has taken the lease. This tick should begin nothing more then. */
  get isLost(): boolean {
    return this.#lost;
  }

  get state(): CollectorState {
    return this.#state;
  }

  /** Writes the collector's state with every renewal from now on. A tick that dies then loses little of it. */
  keeps(memory: () => Partial<CollectorState>): void {
    this.#memory = memory;
  }

  /** Renews the lease and writes the collector's present state. Calls share a renewal that has not begun. */
  write(signal: AbortSignal): Promise<void> {
    this.#renewal ??= this.#write({}, signal);
    return this.#renewal;
  }

  /** Renews the lease, which proves that no other tick had it since this one took it. */
  async isStillHeld(signal: AbortSignal): Promise<boolean> {
    await this.write(signal);
    return !this.#lost;
  }

  /**
   * Releases the lease at once. If that fails, it expires by itself, so the error can be ignored.
   * @param last what else the state holds from now on.
   */
  async release(signal: AbortSignal, last: Partial<CollectorState> = {}): Promise<void> {
    this.#ended.abort();
    await this.#renewing;
    await this.#write({ ...last, heldUntil: 0 }, signal).catch(() => {});
  }

  #write(change: Partial<CollectorState>, signal: AbortSignal): Promise<void> {
    this.#writing = this.#writing
      .catch(() => {})
      .then(() => {
        // This write starts now. A later call needs a new one.
        this.#renewal = undefined;
        return this.#put({ ...this.#memory(), ...change }, signal);
      });
    return this.#writing;
  }

  async #keepRenewing(signal: AbortSignal): Promise<void> {
    const until = AbortSignal.any([signal, this.#ended.signal]);
    while (!until.aborted && !this.#lost) {
      try {
        await this.#clock.sleep(LEASE_MS / 3, until);
        await this.write(signal);
      } catch {
        // The tick ended, or the lease could not be renewed. It expires then, and at worst two ticks do the same work.
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
      // The answer to our own write may have been lost, and the SDK may have sent the write again.
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
