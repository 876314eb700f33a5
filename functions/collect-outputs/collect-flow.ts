import { createHash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import { secondsBetween } from '../base/telemetry.ts';
import { FlowServiceError, NotFoundError, NotReadyError, NotServedError } from '../flow-service/errors.ts';
import type { FlowService, Output } from '../flow-service/types.ts';
import { type Ending, ended, type Failure, isTerminal, type RunningEntry, shared } from '../ledger/entry.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import type { Ledger, Stored } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import type { Results } from '../results/results.ts';
import type { Settings } from '../settings/config.ts';
import type { FirstLooks } from './first-looks.ts';
import { FlowAssets } from './flow-assets.ts';
import { outageOf, type ServiceHealth } from './service-health.ts';

export interface CollectFlowPorts extends PublishPorts {
  readonly ledger: Ledger;
  readonly results: Results;
  readonly flows: FlowService;
  readonly clock: Clock;
  readonly settings: Settings;
}

/** The code of a flow that the service does not know any more. */
const GONE = 'flow-gone';

/** A flow that ended, and what is to be fetched of it. */
export interface EndedFlow {
  readonly stored: Stored<RunningEntry>;
  /** No more of them than are stored. */
  readonly outputs: readonly Output[];
  /** How many the service lists. */
  readonly outputCount: number;
  readonly failure: Failure | undefined;
}

/** What one look at a flow told. */
type Look =
  | { readonly kind: 'running' }
  /** It seems to have ended; the next look will tell. */
  | { readonly kind: 'unsure' }
  | { readonly kind: 'gone' }
  /** The service answered with the flow of another upload. */
  | { readonly kind: 'foreign' }
  | { readonly kind: 'finished'; readonly outputs: readonly Output[]; readonly failure?: Failure | undefined };

/** One running flow after another, from the first look at it to its receipt. */
export class FlowCollector {
  readonly #ports: CollectFlowPorts;
  readonly #invocation: Invocation;
  readonly #health: ServiceHealth;
  readonly #firstLooks: FirstLooks;
  readonly #assets: FlowAssets;
  /** How many uploads this one brought to their end. */
  readonly counts = { succeeded: 0, failed: 0 };

  constructor(ports: CollectFlowPorts, invocation: Invocation, health: ServiceHealth, firstLooks: FirstLooks) {
    this.#ports = ports;
    this.#invocation = invocation;
    this.#health = health;
    this.#firstLooks = firstLooks;
    this.#assets = new FlowAssets(ports, invocation, health);
  }

  /** Looks at a flow once. A flow that ended without anything to fetch is settled at once, as is one that is too old. */
  async see(marker: RunningMarker): Promise<EndedFlow | undefined> {
    let look: Look;
    try {
      look = await this.#look(marker);
    } catch (error) {
      // Whatever the service said: it was not a second word in a row that the flow is gone.
      this.#firstLooks.forget(marker.uploadId, GONE);
      throw error;
    }
    if (look.kind === 'running' || look.kind === 'unsure') {
      if (look.kind === 'running') this.#firstLooks.forget(marker.uploadId);
      if (this.isTooOld(marker)) {
        await this.timeOut(marker, `was still running after ${this.#ports.settings.flowAgeMaxSeconds} seconds.`);
      }
      return undefined;
    }
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return undefined;
    switch (look.kind) {
      case 'gone': {
        const failure = { code: GONE, message: 'The flow service does not know this flow any more.' };
        if (await this.#endAtSecondLook(stored, failure)) await this.#abort(marker);
        return undefined;
      }
      case 'foreign': {
        this.#ports.telemetry.metrics.count('FlowsShared');
        const message = 'The flow service answered with the flow of another upload. Nothing of it was collected.';
        await this.#endAtSecondLook(stored, { code: 'flow-shared', message });
        return undefined;
      }
      case 'finished': {
        const { outputs, failure } = look;
        if (stored.entry.isShared === true) {
          if (this.isTooOld(marker)) await this.endShared(marker);
          return undefined;
        }
        if (outputs.length > 0 || failure !== undefined) {
          this.#firstLooks.forget(marker.uploadId);
          const { outputsMax } = this.#ports.settings;
          return { stored, outputs: outputs.slice(0, outputsMax), outputCount: outputs.length, failure };
        }
        const message = 'The flow completed without any output.';
        await this.#endAtSecondLook(stored, { code: 'no-outputs', message });
        return undefined;
      }
    }
  }

  /** Whether a flow is older than a running one may become. */
  isTooOld({ createdAt }: RunningMarker): boolean {
    return this.#ports.clock.now() - createdAt > this.#ports.settings.flowAgeMaxSeconds * 1000;
  }

  /**
   * Ends a flow that is too old, and that the service does not answer for. It must have answered for another flow, or
   * the flow must be twice too old: during an outage no flow is given up.
   */
  async giveUp(marker: RunningMarker, error: FlowServiceError): Promise<boolean> {
    const { clock, settings } = this.#ports;
    const isTwiceTooOld = clock.now() - marker.createdAt > 2 * settings.flowAgeMaxSeconds * 1000;
    const isItsOwn = outageOf(error) === undefined || this.#health.hasAnsweredForAnother(marker.flowId);
    if (!this.isTooOld(marker) || !(isItsOwn || isTwiceTooOld)) return false;
    await this.timeOut(
      marker,
      `had not been seen to end after ${settings.flowAgeMaxSeconds} seconds: ${error.message}`,
    );
    return true;
  }

  async timeOut(marker: RunningMarker, what: string): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    const failure = { code: 'timed-out', message: `The flow ${what}` };
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    await this.#abort(marker);
  }

  /** Writes down that a flow is shared, so that it is not collected after the other upload has ended either. */
  async noteShared(marker: RunningMarker): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined || stored.entry.isShared === true) return;
    await this.#ports.ledger.replace(stored, shared(stored.entry), this.#invocation.closing);
  }

  /** Two uploads were given one flow: which one it belongs to cannot be told, so neither gets its results. */
  async endShared(marker: RunningMarker): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    const message = 'The flow service gave the same flow to another upload as well. Nothing of it was collected.';
    await this.#end(stored, { failure: { code: 'flow-shared', message } });
  }

  async #endAtSecondLook(stored: Stored<RunningEntry>, failure: Failure): Promise<boolean> {
    if (!this.#firstLooks.isSecond(stored.entry.upload.id, failure.code, this.#ports.clock.now())) return false;
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    return true;
  }

  /** Asks the service for the flow. Where that is not served, the outputs listing alone tells. */
  async #look(marker: RunningMarker): Promise<Look> {
    const { flows } = this.#ports;
    const { work } = this.#invocation;
    let flow: Awaited<ReturnType<FlowService['get']>>;
    try {
      flow = await flows.get(marker.flowId, work);
    } catch (error) {
      if (error instanceof NotFoundError && error.knownToBeServed) return { kind: 'gone' };
      if (error instanceof NotFoundError || error instanceof NotServedError) return this.#lookAtOutputs(marker);
      throw error;
    }
    // Whatever becomes of the rest of this look: the service knows the flow.
    this.#firstLooks.forget(marker.uploadId, GONE);
    if (flow.tag !== undefined && flow.tag.upload !== marker.uploadId) return { kind: 'foreign' };
    if (flow.state === 'running') return { kind: 'running' };
    const failure = flow.state === 'completed' ? undefined : failureOf(flow.state, flow.error);
    try {
      return { kind: 'finished', outputs: await flows.outputs(marker.flowId, work), failure };
    } catch (error) {
      const isNone =
        error instanceof NotFoundError || error instanceof NotReadyError || error instanceof NotServedError;
      if (!isNone) throw error;
      // A failed flow may have no outputs. A completed one has some: its listing lags, and the next look asks again.
      return failure === undefined ? { kind: 'running' } : { kind: 'finished', outputs: [], failure };
    }
  }

  /**
   * A flow has finished when all its outputs, and there is one at least, are at their end, and a second look at least
   * one poll interval later sees the same.
   */
  async #lookAtOutputs(marker: RunningMarker): Promise<Look> {
    const { flows, clock } = this.#ports;
    let outputs: readonly Output[];
    try {
      outputs = await flows.outputs(marker.flowId, this.#invocation.work);
    } catch (error) {
      // In a new process a 404 may also mean that the operation is not served: it tells nothing either way.
      if (error instanceof NotFoundError) return { kind: error.knownToBeServed ? 'gone' : 'unsure' };
      if (error instanceof NotReadyError || error instanceof NotServedError) return { kind: 'running' };
      throw error;
    }
    this.#firstLooks.forget(marker.uploadId, GONE);
    if (outputs.length === 0 || outputs.some(({ status }) => status === 'pending')) return { kind: 'running' };
    const isFinished = this.#firstLooks.isSecond(marker.uploadId, digestOf(outputs), clock.now());
    return isFinished ? { kind: 'finished', outputs } : { kind: 'unsure' };
  }

  /** The entry that a marker stands for. A marker that stands for none is dropped, after what is left to do is done. */
  async #entryOf(marker: RunningMarker): Promise<Stored<RunningEntry> | undefined> {
    const { ledger } = this.#ports;
    const { closing } = this.#invocation;
    const stored = await ledger.read(marker.uploadId, closing);
    const entry = stored?.entry;
    if (entry?.state === 'running' && entry.flow.id === marker.flowId) return stored as Stored<RunningEntry>;
    if (entry !== undefined && isTerminal(entry) && entry.flow?.id === marker.flowId) {
      await publish(entry, this.#ports, closing);
    }
    await ledger.deleteRunningMarker(marker, closing);
    return undefined;
  }

  /** Stores the outputs of a flow that ended, and settles it. A run that is cut off goes on from there the next time. */
  async collect(flow: EndedFlow): Promise<void> {
    const ending = await this.#assets.collect(flow);
    await this.#end(flow.stored, ending);
  }

  /** The terminal entry decides; everything after it can be done again from it. */
  async #end(stored: Stored<RunningEntry>, ending: Ending): Promise<void> {
    const { ledger, clock, telemetry } = this.#ports;
    const { closing } = this.#invocation;
    const terminal = ended(stored.entry, ending, clock.now());
    const written = await ledger.replace(stored, terminal, closing);
    if (!written.won) {
      // Another collector was faster. If it has ended this flow, its marker may need us; else it is under way.
      const current = written.current?.entry;
      const isEnded = current !== undefined && isTerminal(current) && current.flow?.id === stored.entry.flow.id;
      if (isEnded) await publish(current, this.#ports, closing);
      return;
    }
    const isSuccess = terminal.state === 'succeeded';
    this.counts[isSuccess ? 'succeeded' : 'failed'] += 1;
    telemetry.metrics.count(isSuccess ? 'FlowsSucceeded' : 'FlowsFailed');
    await publish(terminal, this.#ports, closing);
    if (isSuccess) {
      telemetry.metrics.count('SecondsToResult', secondsBetween(terminal.upload.lastModified, clock.now()));
    }
  }

  /** A flow that we gave up on costs its owner as long as it runs. Whether it can be aborted changes nothing for us. */
  async #abort(marker: RunningMarker): Promise<void> {
    const { flows, telemetry } = this.#ports;
    try {
      await flows.abort(marker.flowId, this.#invocation.closing);
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      telemetry.log.warn('The flow could not be aborted', { uploadId: marker.uploadId, flowId: marker.flowId, error });
    }
  }
}

function failureOf(state: 'failed' | 'aborted', error: string | undefined): Failure {
  const said = error === undefined ? '' : `: ${error}`;
  return state === 'failed'
    ? { code: 'flow-failed', message: `The flow failed${said}` }
    : { code: 'flow-aborted', message: `The flow was aborted${said}` };
}

function digestOf(outputs: readonly Output[]): string {
  const facts = outputs.map(({ assetId, status }) => [assetId, status]).sort();
  return createHash('sha256').update(JSON.stringify(facts)).digest('base64url');
}
