import { hash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import {
  FlowServiceError,
  JobFailedError,
  LedOnError,
  NoAddressError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  TooSlowError,
  UnavailableError,
} from '../flow-service/errors.ts';
import { needsTemplate } from '../flow-service/service-description.ts';
import type { FlowRecord, FlowService, OfUpload, Output } from '../flow-service/types.ts';
import type { KnownFailure } from '../ledger/failures.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import type { Ledger } from '../ledger/store.ts';
import { outageOf } from './failure-isolation.ts';
import { OUTPUTS, type TickContext } from './tick-context.ts';

/** Pages of the listing of flows that are searched for a flow that seems to be gone. */
const LISTED_PAGES_MAX = 10;

/** A poll is slow if it takes this time or longer from its sending, in milliseconds. Most take less than a second. */
const SLOW_POLL_MS = 5_000;

/**
 * How long a flow may list no outputs after its end, in milliseconds. A list of outputs that may grow must stay the
 * same for as long. Some outputs are listed half a minute after the end, or after the output before them.
 */
export const LATE_OUTPUTS_MS = 2 * 60_000;

/** Errors that say that a flow has no outputs. After any other, they may come later, or more is wrong. */
const NO_OUTPUTS = [NotFoundError, NotServedError, NoAddressError, JobFailedError];

/** What one poll of a flow tells. */
export type Observation =
  | {
      readonly kind: 'running';
      readonly undeclared?: Undeclared | undefined;
      /** What the service answered in place of the flow, if it said that the flow is not ready. */
      readonly unready?: string | undefined;
      /** What the service does not show: the flow and its outputs, or the outputs of a flow that has completed. */
      readonly lacking?: string | undefined;
    }
  /** The poll tells nothing about the flow. */
  | { readonly kind: 'unsure'; readonly lacking: string }
  /** No output is pending. The flow has finished if its outputs stay the same for {@link LATE_OUTPUTS_MS}. */
  | { readonly kind: 'ending'; readonly outputs: readonly Output[]; readonly failure?: KnownFailure | undefined }
  /** `isSaid`: true if only the service can have said so. `lacking`: in which words. */
  | { readonly kind: 'gone'; readonly isSaid: boolean; readonly lacking: string }
  /** The service answered with the flow of another upload. */
  | { readonly kind: 'foreign' }
  | {
      readonly kind: 'finished';
      readonly outputs: readonly Output[];
      readonly failure?: KnownFailure | undefined;
      /** Why there are no outputs: in the words of the service, or because the description finds none in the answer. */
      readonly nothing?: string | undefined;
    };

/**
 * A word that the description of the service does not declare. With it, a flow counts as running, an output as pending.
 */
export interface Undeclared {
  readonly of: 'flow' | 'output';
  readonly word: string;
}

interface ObserverPorts {
  readonly flows: FlowService;
  readonly ledger: Pick<Ledger, 'read'>;
  readonly clock: Clock;
}

/** Asks the service how a flow is, and changes nothing. */
export class FlowObserver {
  readonly #ports: ObserverPorts;
  readonly #tick: TickContext;
  /** At most two flows that the service has shown: enough to tell whether it has shown others than one. */
  readonly #seen = new Set<string>();

  constructor(ports: ObserverPorts, tick: TickContext) {
    this.#ports = ports;
    this.#tick = tick;
  }

  /**
   * Tells whether the flow service answers at its address, and not a proxy that says 404 to everything. If the service
   * lists no flows, this tick must have seen another flow.
   */
  async isServiceThere({ flowId }: RunningMarker): Promise<boolean> {
    const isAnotherSeen = this.#seen.size > (this.#seen.has(flowId) ? 1 : 0);
    return (await this.#ports.flows.isServing(this.#tick.invocation.work)) || isAnotherSeen;
  }

  /** True if the listing of flows still shows a flow, on its first pages. Then a 404 may be that of a proxy or a replica. */
  async isListed({ flowId }: RunningMarker): Promise<boolean> {
    const { flows } = this.#ports;
    if (flows.service.list === undefined) return false;
    let pages = 0;
    try {
      for await (const page of flows.list(this.#tick.invocation.work)) {
        if (page.some((flow) => flow.flowId === flowId)) return true;
        pages += 1;
        if (pages === LISTED_PAGES_MAX) break;
      }
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
    }
    return false;
  }

  /** True if the service has shown us any flow in this tick. */
  get hasSeenAny(): boolean {
    return this.#seen.size > 0;
  }

  /** Observes a flow, and notes whether the service was slow. */
  async observe(marker: RunningMarker): Promise<Observation> {
    const signal = this.#tick.invocation.work;
    let sentAt = Number.POSITIVE_INFINITY;
    const onSent = (): void => {
      sentAt = this.#ports.clock.now();
    };
    const noteTime = (): void => {
      if (this.#ports.clock.now() - sentAt < SLOW_POLL_MS) this.#tick.slow.forget(marker.uploadId);
      else this.#tick.slow.note(marker.uploadId, sentAt);
    };
    const of = await this.#ofUpload(marker);
    const get = async (): Promise<FlowRecord> => {
      const flow = await this.#ports.flows.get(marker.flowId, signal, { onSent, ...of });
      noteTime();
      return flow;
    };
    try {
      return await this.#observe(marker, get, of, signal);
    } catch (error) {
      if (error instanceof JobFailedError) {
        return { kind: 'finished', outputs: [], failure: failureOf('failed', error.message) };
      }
      // A poll that was throttled, or that ran out of our time, tells nothing of the service's speed.
      if (error instanceof UnavailableError || error instanceof TooSlowError) noteTime();
      throw error;
    }
  }

  /** What a request about the flow needs to know. The marker has no template, and most services need none. */
  async #ofUpload({ uploadId }: RunningMarker): Promise<OfUpload> {
    if (!needsTemplate(this.#ports.flows.service)) return { uploadId };
    const stored = await this.#ports.ledger.read(uploadId, this.#tick.invocation.closing);
    return { uploadId, template: stored?.entry.route?.template };
  }

  /**
   * Asks for the flow. If the service does not serve that request, or does not know the flow, the outputs decide: the
   * service may forget the state of an ended flow, and keep the outputs. A redirect may lead to the outputs of an ended
   * flow. If the flow has no outputs, something other than the service has redirected.
   */
  async #observe(
    marker: RunningMarker,
    get: () => Promise<FlowRecord>,
    of: OfUpload,
    signal: AbortSignal,
  ): Promise<Observation> {
    const { flows } = this.#ports;
    let flow: FlowRecord;
    try {
      flow = await get();
      if (flow.state === 'gone')
        throw new NotFoundError(`it is shown as "${flow.word}"`, { knownToBeServed: true, isGone: true });
    } catch (error) {
      if (error instanceof LedOnError && flows.service.outputs.path !== undefined) {
        const seen = await this.#byOutputs(marker, of, signal);
        if (seen.kind === 'ending' || seen.kind === 'finished') return seen;
      }
      if (error instanceof NotReadyError) return { kind: 'running', unready: error.message };
      if (!(error instanceof NotFoundError || error instanceof NotServedError)) throw error;
      const unknown = error instanceof NotFoundError && error.knownToBeServed ? error : undefined;
      // The outputs have no path of their own, and would have been in this answer.
      if (unknown && flows.service.outputs.path === undefined) return goneBy(unknown);
      return this.#byOutputs(marker, of, signal, unknown);
    }
    // Whatever happens in the rest of this poll, the service knows the flow.
    this.#noteSeen(marker);
    if (flow.tag && flow.tag.upload !== marker.uploadId) return { kind: 'foreign' };
    if (flow.state === 'running') {
      const { word = 'none', isDeclared } = flow;
      return { kind: 'running', undeclared: isDeclared === false ? { of: 'flow', word } : undefined };
    }
    const failure = flow.state === 'completed' ? undefined : failureOf(flow.state, flow.error);
    try {
      const hasFailed = failure !== undefined;
      const outputs = await flows.outputs(marker.flowId, signal, { ...of, hasFailed });
      const isAll = hasFailed || flows.service.outputs.isWhole || outputs.length === 0 || isAnyPending(outputs);
      if (!isAll) return this.#whenStill(marker, outputs);
      return { kind: 'finished', outputs, failure, nothing: flow.error };
    } catch (error) {
      if (error instanceof NoAddressError) {
        const nothing = [flow.error ?? [], error.message].flat().join('; ');
        return { kind: 'finished', outputs: [], failure, nothing };
      }
      if (!(error instanceof FlowServiceError) || error instanceof JobFailedError) throw error;
      const isNone = [NotFoundError, NotReadyError, NotServedError].some((each) => error instanceof each);
      const unlisted = `its outputs cannot be listed: ${error.message}`;
      if (failure !== undefined) {
        if (isNone) return { kind: 'finished', outputs: [], failure };
        // A failed flow may have none, and some services then answer with the status of its failure, or without a list.
        const message = `${failure.message.replace(/\.$/, '')}; ${unlisted}`;
        if (isAnswer(error)) return this.#whenStill(marker, [], { ...failure, message });
      }
      if (outageOf(error) !== undefined || error instanceof TooSlowError) throw error;
      // A completed one has some: if they cannot be listed yet, the next poll asks again.
      return { kind: 'running', lacking: `The flow has completed, but ${unlisted}` };
    }
  }

  #noteSeen(marker: RunningMarker): void {
    this.#tick.confirmations.noteShown(marker, this.#ports.clock.now());
    if (this.#seen.size < 2) this.#seen.add(marker.flowId);
  }

  /**
   * A flow has finished if it has outputs, none of them is pending, and they stay the same.
   * @param unknown how the service says that it does not know the flow. Then it is gone if it has no outputs.
   */
  async #byOutputs(
    marker: RunningMarker,
    of: OfUpload,
    signal: AbortSignal,
    unknown?: NotFoundError,
  ): Promise<Observation> {
    let outputs: readonly Output[];
    try {
      outputs = await this.#ports.flows.outputs(marker.flowId, signal, of);
    } catch (error) {
      if (unknown && NO_OUTPUTS.some((each) => error instanceof each)) return goneBy(unknown);
      // In a new process, a 404 may also mean that the operation is not served. It tells nothing about the flow.
      const lacking = `The service shows neither the flow nor its outputs: ${(error as Error).message}`;
      if (error instanceof NotFoundError) return error.knownToBeServed ? goneBy(error) : { kind: 'unsure', lacking };
      if (error instanceof NotServedError) return { kind: 'running', lacking };
      if (error instanceof NoAddressError || error instanceof NotReadyError) return { kind: 'running' };
      throw error;
    }
    if (unknown && outputs.length === 0) return goneBy(unknown);
    this.#noteSeen(marker);
    if (outputs.length === 0 || isAnyPending(outputs)) return { kind: 'running', undeclared: undeclaredIn(outputs) };
    return this.#whenStill(marker, outputs);
  }

  /**
   * Tells whether a flow without pending outputs has finished. Its list of outputs may still grow. If the flow has
   * failed and its list was refused, the list may still come.
   */
  #whenStill({ uploadId }: RunningMarker, outputs: readonly Output[], failure?: KnownFailure): Observation {
    const { confirmations } = this.#tick;
    const isStill = confirmations.confirms(uploadId, digestOf(outputs), this.#ports.clock.now(), LATE_OUTPUTS_MS);
    return { kind: isStill ? 'finished' : 'ending', outputs, failure };
  }
}

const goneBy = ({ isGone, message }: NotFoundError): Observation => ({
  kind: 'gone',
  isSaid: isGone,
  lacking: `The service does not know the flow: ${message}`,
});

/** True if the service has answered, and did so about this request. */
const isAnswer = (error: FlowServiceError): boolean =>
  outageOf(error) === undefined || ('status' in error && error.status !== undefined);

/** The first word of an output that is not declared. */
export function undeclaredIn(outputs: readonly Output[]): Undeclared | undefined {
  const output = outputs.find(({ isDeclared }) => isDeclared === false);
  return output && { of: 'output', word: output.word ?? 'none' };
}

const isAnyPending = (outputs: readonly Output[]): boolean => outputs.some(({ status }) => status === 'pending');

function failureOf(state: FlowRecord['state'], error: string | undefined): KnownFailure {
  const reason = error ? `: ${error}` : '';
  return state === 'failed'
    ? { code: 'flow-failed', message: `The flow failed${reason}` }
    : { code: 'flow-aborted', message: `The flow was aborted${reason}` };
}

function digestOf(outputs: readonly Output[]): string {
  const facts = outputs.map(({ assetId, status }) => [assetId, status]).sort();
  return OUTPUTS + hash('sha256', JSON.stringify(facts), 'base64url');
}
