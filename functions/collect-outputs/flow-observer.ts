import { createHash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import {
  NotFoundError,
  NotReadyError,
  NotServedError,
  TooSlowError,
  UnavailableError,
} from '../flow-service/errors.ts';
import type { FlowRecord, FlowService, Output } from '../flow-service/types.ts';
import type { KnownFailure } from '../ledger/failures.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import type { Lease, NotedUploads, UnconfirmedEnd } from './collector.ts';

/** The failure code of a flow that the service no longer knows. */
export const GONE = 'flow-gone';

/** A poll is slow if it takes this time or longer from its sending, in milliseconds. Most take less than a second. */
const SLOW_POLL_MS = 5_000;

/** How long a first observation waits for its confirmation, in milliseconds: longer than the longest poll gap. */
const OBSERVATION_AGE_MAX_MS = 60 * 60_000;

/** First observations that are remembered. Beyond this number, the end of a flow is only confirmed later. */
const OBSERVATIONS_MAX = 1_000;

/** The digest of complete outputs begins with this. The digest of a loss is the code of its failure. */
const OUTPUTS = 'outputs ';

/** What one poll of a flow tells. */
export type Observation =
  | { readonly kind: 'running' }
  /** The poll tells nothing about the flow. */
  | { readonly kind: 'unsure' }
  /** All outputs are at their end. The flow has finished if the next poll sees the same. */
  | { readonly kind: 'ending' }
  | { readonly kind: 'gone' }
  /** The service answered with the flow of another upload. */
  | { readonly kind: 'foreign' }
  | { readonly kind: 'finished'; readonly outputs: readonly Output[]; readonly failure?: KnownFailure | undefined };

/** Asks the service how a flow is, and changes nothing. */
export class FlowObserver {
  readonly #flows: FlowService;
  readonly #clock: Clock;
  readonly #confirmations: EndConfirmations;
  readonly #slow: NotedUploads;
  /** Flows that the service has shown us. Two are enough to tell whether a flow other than the given one was seen. */
  readonly #seen = new Set<string>();

  /** @param slow where flows are noted whose last poll was slow. */
  constructor(
    { flows, clock }: { readonly flows: FlowService; readonly clock: Clock },
    confirmations: EndConfirmations,
    slow: NotedUploads,
  ) {
    this.#flows = flows;
    this.#clock = clock;
    this.#confirmations = confirmations;
    this.#slow = slow;
  }

  /**
   * Tells whether the flow service answers at its address, and not a proxy that says 404 to everything. If the service
   * lists no flows, this tick must have seen another flow.
   */
  async isServiceThere({ flowId }: RunningMarker, signal: AbortSignal): Promise<boolean> {
    const isAnotherSeen = this.#seen.size > (this.#seen.has(flowId) ? 1 : 0);
    return (await this.#flows.isServing(signal)) || isAnotherSeen;
  }

  /** True if the service has shown us any flow in this tick. */
  get hasSeenAny(): boolean {
    return this.#seen.size > 0;
  }

  /** Observes a flow, and notes whether the service was slow. */
  async observe(marker: RunningMarker, signal: AbortSignal): Promise<Observation> {
    let sentAt = Number.POSITIVE_INFINITY;
    const onSent = (): void => {
      sentAt = this.#clock.now();
    };
    const noteTime = (): void => {
      if (this.#clock.now() - sentAt < SLOW_POLL_MS) this.#slow.forget(marker.uploadId);
      else this.#slow.note(marker.uploadId, sentAt);
    };
    const get = async (): Promise<FlowRecord> => {
      const flow = await this.#flows.get(marker.flowId, signal, { onSent });
      noteTime();
      return flow;
    };
    try {
      return await this.#observe(marker, get, signal);
    } catch (error) {
      // A throttled poll, or one that the end of the time cut off, waited for us and not for the service.
      if (error instanceof UnavailableError || error instanceof TooSlowError) noteTime();
      throw error;
    }
  }

  /** Asks for the flow. If the service does not serve that, the outputs listing alone tells. */
  async #observe(marker: RunningMarker, get: () => Promise<FlowRecord>, signal: AbortSignal): Promise<Observation> {
    let flow: FlowRecord;
    try {
      flow = await get();
    } catch (error) {
      if (error instanceof NotFoundError && error.knownToBeServed) return { kind: 'gone' };
      if (error instanceof NotFoundError || error instanceof NotServedError) return this.#byOutputs(marker, signal);
      throw error;
    }
    // Whatever happens in the rest of this poll, the service knows the flow.
    this.#noteSeen(marker);
    if (flow.tag !== undefined && flow.tag.upload !== marker.uploadId) return { kind: 'foreign' };
    if (flow.state === 'running') return { kind: 'running' };
    const failure = flow.state === 'completed' ? undefined : failureOf(flow.state, flow.error);
    try {
      return { kind: 'finished', outputs: await this.#flows.outputs(marker.flowId, signal), failure };
    } catch (error) {
      const isNone =
        error instanceof NotFoundError || error instanceof NotReadyError || error instanceof NotServedError;
      if (!isNone) throw error;
      // A failed flow may have no outputs. A completed one has some: its listing lags, and the next poll asks again.
      return failure === undefined ? { kind: 'running' } : { kind: 'finished', outputs: [], failure };
    }
  }

  #noteSeen({ uploadId, flowId }: RunningMarker): void {
    this.#confirmations.forget(uploadId, GONE);
    if (this.#seen.size < 2) this.#seen.add(flowId);
  }

  /**
   * A flow has finished if it has outputs, none of them is pending, and a second poll at least one poll interval later
   * sees the same.
   */
  async #byOutputs(marker: RunningMarker, signal: AbortSignal): Promise<Observation> {
    let outputs: readonly Output[];
    try {
      outputs = await this.#flows.outputs(marker.flowId, signal);
    } catch (error) {
      // In a new process, a 404 may also mean that the operation is not served. It tells nothing about the flow.
      if (error instanceof NotFoundError) return { kind: error.knownToBeServed ? 'gone' : 'unsure' };
      if (error instanceof NotReadyError || error instanceof NotServedError) return { kind: 'running' };
      throw error;
    }
    this.#noteSeen(marker);
    if (outputs.length === 0 || outputs.some(({ status }) => status === 'pending')) return { kind: 'running' };
    const isFinished = this.#confirmations.confirms(marker.uploadId, digestOf(outputs), this.#clock.now());
    return isFinished ? { kind: 'finished', outputs } : { kind: 'ending' };
  }
}

function failureOf(state: 'failed' | 'aborted', error: string | undefined): KnownFailure {
  const reason = error === undefined ? '' : `: ${error}`;
  return state === 'failed'
    ? { code: 'flow-failed', message: `The flow failed${reason}` }
    : { code: 'flow-aborted', message: `The flow was aborted${reason}` };
}

function digestOf(outputs: readonly Output[]): string {
  const facts = outputs.map(({ assetId, status }) => [assetId, status]).sort();
  return OUTPUTS + createHash('sha256').update(JSON.stringify(facts)).digest('base64url');
}

/**
 * Confirms by a second poll any end that a single bad response could fake: it would cost a flow that is paid for. Two
 * polls in a row must see the same, at least one poll interval apart. The first observation is remembered beside the
 * collector's lease.
 *
 * Losses are confirmed only under one unbroken lease: otherwise another tick may have polled in between. A tick
 * observes no loss if the last tick did not release its lease: that tick died without writing what it saw last, or
 * still polls. Complete outputs need no lease: a second poll cannot lose them.
 */
export class EndConfirmations {
  readonly #observations: Map<string, UnconfirmedEnd>;
  readonly #lease: Lease;
  readonly #pollIntervalMs: number;

  constructor(lease: Lease, pollIntervalMs: number) {
    this.#lease = lease;
    this.#pollIntervalMs = pollIntervalMs;
    const remembered = Object.entries(lease.state.unconfirmedEnds ?? {});
    this.#observations = new Map(remembered.filter(([, { digest }]) => this.#isObserved(digest)));
  }

  /** Returns true if the last poll, at least one poll interval ago, saw the same. Else remembers this observation. */
  confirms(uploadId: string, digest: string, now: number): boolean {
    if (!this.#isObserved(digest)) return false;
    const first = this.#observations.get(uploadId);
    const ageMs = first?.digest === digest ? now - first.at : Number.POSITIVE_INFINITY;
    // After an old observation, other polls may have seen something else.
    if (ageMs <= Math.max(OBSERVATION_AGE_MAX_MS, 3 * this.#pollIntervalMs)) return ageMs >= this.#pollIntervalMs;
    const hasRoom = first !== undefined || this.#observations.size < OBSERVATIONS_MAX;
    if (hasRoom) this.#observations.set(uploadId, { digest, at: now });
    return false;
  }

  /** Returns true if no other tick had the lease until now. Another tick may have seen the flow since our last poll. */
  areInRow(signal: AbortSignal): Promise<boolean> {
    return this.#lease.isStillHeld(signal);
  }

  /** A poll saw something else, so the next two polls must agree. @param digest forget only this observation. */
  forget(uploadId: string, digest = this.#observations.get(uploadId)?.digest): void {
    if (this.#observations.get(uploadId)?.digest === digest) this.#observations.delete(uploadId);
  }

  /** Keeps only what was seen of running flows, and of each since its marker was put. */
  retain(running: readonly RunningMarker[]): void {
    const since = new Map(running.map(({ uploadId, ageFrom }) => [uploadId, ageFrom]));
    for (const [uploadId, { at }] of this.#observations) {
      if (at < (since.get(uploadId) ?? Number.POSITIVE_INFINITY)) this.#observations.delete(uploadId);
    }
  }

  get remembered(): Readonly<Record<string, UnconfirmedEnd>> | undefined {
    return this.#observations.size === 0 ? undefined : Object.fromEntries(this.#observations);
  }

  #isObserved(digest: string): boolean {
    return this.#lease.wasReleased || digest.startsWith(OUTPUTS);
  }
}
