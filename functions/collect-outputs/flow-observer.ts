import { createHash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import {
  NotFoundError,
  NotReadyError,
  NotServedError,
  TooSlowError,
  UnavailableError,
} from '../flow-service/errors.ts';
import type { FlowService, Output } from '../flow-service/types.ts';
import type { KnownFailure } from '../ledger/failures.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import type { EndConfirmations } from './end-confirmations.ts';
import type { SlowPolls } from './slow-polls.ts';

/** The failure code of a flow that the service no longer knows. */
export const GONE = 'flow-gone';

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
  readonly #slow: SlowPolls;
  /** Flows that the service has shown us. Two are enough to tell whether a flow other than the given one was seen. */
  readonly #seen = new Set<string>();

  constructor(
    { flows, clock }: { flows: FlowService; clock: Clock },
    confirmations: EndConfirmations,
    slow: SlowPolls,
  ) {
    this.#slow = slow;
    this.#flows = flows;
    this.#clock = clock;
    this.#confirmations = confirmations;
  }

  /**
   * Tells whether the flow service answers at its address, and not a proxy that says 404 to everything. If the service
   * lists no flows, this tick must have seen another flow.
   */
  async isServiceThere({ flowId }: RunningMarker, signal: AbortSignal): Promise<boolean> {
    const isAnotherSeen = this.#seen.size > (this.#seen.has(flowId) ? 1 : 0);
    return (await this.#flows.isServing(signal)) || isAnotherSeen;
  }

  /**
   * Asks for the flow. If the service does not serve that, the outputs listing alone tells.
   * @param onEnded called when the flow has ended, before its outputs are listed.
   */
  async observe(marker: RunningMarker, signal: AbortSignal, onEnded: () => void = () => {}): Promise<Observation> {
    let sentAt = Number.POSITIVE_INFINITY;
    const onSent = (): void => {
      sentAt = this.#clock.now();
    };
    const onAnswered = (): void => this.#slow.note(marker, sentAt, this.#clock.now());
    try {
      return await this.#observe(marker, signal, { onEnded, onSent, onAnswered });
    } catch (error) {
      // A throttled poll, or one that the end of the time cut off, waited for its turn.
      if (error instanceof UnavailableError || error instanceof TooSlowError) onAnswered();
      throw error;
    }
  }

  async #observe(
    marker: RunningMarker,
    signal: AbortSignal,
    { onEnded, onSent, onAnswered }: Record<'onEnded' | 'onSent' | 'onAnswered', () => void>,
  ): Promise<Observation> {
    let flow: Awaited<ReturnType<FlowService['get']>>;
    try {
      flow = await this.#flows.get(marker.flowId, signal, { onSent });
      onAnswered();
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
    onEnded();
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

  /** True if the service has shown us any flow in this tick. */
  get hasSeenAny(): boolean {
    return this.#seen.size > 0;
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
    const isFinished = this.#confirmations.confirmsOutputs(marker.uploadId, digestOf(outputs), this.#clock.now());
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
  return createHash('sha256').update(JSON.stringify(facts)).digest('base64url');
}
