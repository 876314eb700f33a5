import type { Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import { type MetricName, secondsBetween } from '../base/telemetry.ts';
import { FlowServiceError } from '../flow-service/errors.ts';
import type { FlowService, Output } from '../flow-service/types.ts';
import {
  type Ending,
  ended,
  isFlowShared,
  isTerminal,
  type RunningEntry,
  runningMarkerOf,
  shared,
  type TerminalEntry,
} from '../ledger/entry.ts';
import type { KnownFailure } from '../ledger/failures.ts';
import type { RunningMarker } from '../ledger/keys.ts';
import type { Ledger, Stored } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import type { Receipts } from '../publish/receipts.ts';
import type { Results } from '../results/results.ts';
import type { Settings } from '../settings/environment.ts';
import type { EndConfirmations } from './end-confirmations.ts';
import { FlowAssets } from './flow-assets.ts';
import { FlowObserver, GONE, type Observation } from './flow-observer.ts';
import type { LateFlows } from './late-flows.ts';
import { outageOf, type ServiceHealth } from './service-health.ts';
import type { SlowPolls } from './slow-polls.ts';

export interface CollectFlowPorts extends PublishPorts {
  readonly receipts: Pick<Receipts, 'put' | 'successOf'>;
  readonly ledger: Ledger;
  readonly results: Results;
  readonly flows: FlowService;
  readonly clock: Clock;
  readonly settings: Settings;
}

/** The code of a failure whose flow belongs to another upload as well. */
const FLOW_SHARED = 'flow-shared';

/** The read of an entry that is under way, or has ended. */
type EntryRead = ReturnType<Ledger['read']>;

/** A flow that ended, and its outputs that are still to be stored. */
export interface EndedFlow {
  readonly stored: Stored<RunningEntry>;
  /** At most `settings.outputsMax`. */
  readonly outputs: readonly Output[];
  /** Number of outputs that the service lists. */
  readonly outputCount: number;
  readonly failure: KnownFailure | undefined;
}

interface FlowCollectorParts {
  readonly invocation: Invocation;
  readonly health: ServiceHealth;
  readonly confirmations: EndConfirmations;
  /** Flows whose assets give way to those of others. */
  readonly late: LateFlows;
  readonly slow: SlowPolls;
}

/** Takes running flows from their first poll to their receipt. */
export class FlowCollector {
  readonly #ports: CollectFlowPorts;
  readonly #invocation: Invocation;
  readonly #health: ServiceHealth;
  readonly #confirmations: EndConfirmations;
  readonly #observer: FlowObserver;
  readonly #assets: FlowAssets;
  /** Uploads that this collector ended. */
  readonly counts: Record<TerminalEntry['state'], number> = { succeeded: 0, failed: 0 };

  constructor(ports: CollectFlowPorts, { invocation, health, confirmations, late, slow }: FlowCollectorParts) {
    this.#ports = ports;
    this.#invocation = invocation;
    this.#health = health;
    this.#confirmations = confirmations;
    this.#observer = new FlowObserver(ports, confirmations, slow);
    this.#assets = new FlowAssets(ports, invocation, health, late);
  }

  /** Number of uploads that this collector ended. */
  get endedCount(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  /**
   * Polls a flow once. Returns the flow if it ended with outputs to store, or failed. Ends it at once if it is too old.
   * Ends it at the second poll in a row that finds it gone, without outputs, or the flow of another upload.
   */
  async poll(marker: RunningMarker): Promise<EndedFlow | undefined> {
    const { seen, reading } = await this.#observeWithEntry(marker);
    if (seen.kind === 'running' || seen.kind === 'unsure' || seen.kind === 'ending') {
      if (seen.kind === 'running') this.#confirmations.forget(marker.uploadId);
      if ((await this.#isOverdue(marker, seen)) && (await this.#mayGiveUp(marker))) {
        await this.#timeOut(
          marker,
          `No poll saw the flow end within its maximum age of ${this.#ports.settings.flowAgeMaxSeconds} seconds.`,
        );
      }
      return undefined;
    }
    const stored = await this.#entryOf(marker, reading);
    if (stored === undefined) return undefined;
    switch (seen.kind) {
      case 'gone': {
        const failure: KnownFailure = { code: GONE, message: 'The flow service does not know this flow any more.' };
        const isEnded = await this.#endIfConfirmed(stored, failure, () => this.#isGone(marker));
        if (isEnded) await this.#abort(marker);
        else if (this.isTwiceTooOld(marker)) await this.#timeOut(marker, failure.message);
        return undefined;
      }
      case 'foreign': {
        const { log, metrics } = this.#ports.telemetry;
        const { uploadId, flowId } = marker;
        metrics.add('FlowsShared');
        log.error('The service answered with the flow of another upload: nothing of it is collected', {
          uploadId,
          flowId,
        });
        const message = 'The flow service answered with the flow of another upload. Nothing of it was collected.';
        await this.#endIfConfirmed(stored, { code: FLOW_SHARED, message });
        return undefined;
      }
      case 'finished':
        return this.#finished(marker, stored, seen);
    }
  }

  /** Observes a flow. If it has ended, its entry is read while its outputs are listed. A flow that runs needs none. */
  async #observeWithEntry(
    marker: RunningMarker,
  ): Promise<{ readonly seen: Observation; readonly reading?: EntryRead }> {
    let reading: EntryRead | undefined;
    try {
      const seen = await this.#observe(marker, () => {
        reading = this.#ports.ledger.read(marker.uploadId, this.#invocation.closing);
        // It may fail before it is awaited. Until then its rejection must not count as unhandled.
        reading.catch(() => {});
      });
      return { seen, ...(reading && { reading }) };
    } finally {
      // The read ends before anything is thrown: nothing may be under way when an invocation ends.
      await Promise.allSettled([reading]);
    }
  }

  async #observe(marker: RunningMarker, onEnded?: () => void): Promise<Observation> {
    try {
      return await this.#observer.observe(marker, this.#invocation.work, onEnded);
    } catch (error) {
      // Only two 404s in a row mean that a flow is gone, and any error comes between them.
      this.#confirmations.forget(marker.uploadId, GONE);
      throw error;
    }
  }

  async #finished(
    marker: RunningMarker,
    stored: Stored<RunningEntry>,
    { outputs, failure }: Observation & { kind: 'finished' },
  ): Promise<EndedFlow | undefined> {
    if (isFlowShared(stored.entry)) {
      if (this.isTooOld(marker)) await this.endShared(marker);
      return undefined;
    }
    if (outputs.length > 0 || failure !== undefined) {
      this.#confirmations.forget(marker.uploadId);
      const { outputsMax } = this.#ports.settings;
      return { stored, outputs: outputs.slice(0, outputsMax), outputCount: outputs.length, failure };
    }
    await this.#endIfConfirmed(stored, { code: 'no-outputs', message: 'The flow completed without any output.' });
    return undefined;
  }

  /** Returns true if a flow has passed the maximum age of a running flow. */
  isTooOld({ ageFrom }: RunningMarker): boolean {
    return this.#ports.clock.now() - ageFrom > this.#ports.settings.flowAgeMaxSeconds * 1000;
  }

  /** Returns true if a flow that was not seen to end must end now. A flow that seems to have ended gets its next poll. */
  async #isOverdue(marker: RunningMarker, { kind }: Observation): Promise<boolean> {
    if (kind === 'ending') return this.isTwiceTooOld(marker);
    return this.isTooOld(marker) || (kind === 'unsure' && (await this.#wasMadeLongAgo(marker)));
  }

  /** A flow that is collected again may be so old that the service has forgotten it. */
  async #wasMadeLongAgo(marker: RunningMarker): Promise<boolean> {
    const { flow } = (await this.#entryOf(marker))?.entry ?? {};
    return flow !== undefined && this.isTooOld({ ...marker, ageFrom: flow.createdAt });
  }

  /** Returns true if a flow must end in any case. */
  isTwiceTooOld({ ageFrom }: Pick<RunningMarker, 'ageFrom'>): boolean {
    return this.#ports.clock.now() - ageFrom > 2 * this.#ports.settings.flowAgeMaxSeconds * 1000;
  }

  /**
   * Ends a flow that is too old and whose polls fail. If they fail by an outage, the service must have answered for
   * another flow, or the flow must be past twice the maximum age: no flow is abandoned for an outage of the service.
   */
  async abandon(marker: RunningMarker, error: FlowServiceError): Promise<void> {
    const { settings } = this.#ports;
    const isItsOwn = outageOf(error) === undefined || this.#health.hasAnsweredForAnother(marker.flowId);
    if (!this.isTooOld(marker) || !(isItsOwn || this.isTwiceTooOld(marker))) return;
    await this.#timeOut(
      marker,
      `No poll saw the flow end within its maximum age of ${settings.flowAgeMaxSeconds} seconds: ${error.message}`,
    );
  }

  async #timeOut(marker: RunningMarker, message: string): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    const failure: KnownFailure = { code: 'timed-out', message };
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    await this.#abort(marker);
  }

  /** Notes in the entry that the flow is shared: it must not be collected after the other upload has ended either. */
  async noteShared(marker: RunningMarker): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined || isFlowShared(stored.entry)) return;
    await this.#ports.ledger.replace(stored, shared(stored.entry), this.#invocation.closing);
  }

  /** Ends an upload whose flow another upload has as well. It is unknown whose results they are, so none are stored. */
  async endShared(marker: RunningMarker): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    const message = 'The flow service gave the same flow to another upload as well. Nothing of it was collected.';
    await this.#end(stored, { failure: { code: FLOW_SHARED, message } });
  }

  /**
   * Asks for the flow once more: a proxy that answers 404 to everything may have interfered before.
   */
  async #isGone(marker: RunningMarker): Promise<boolean> {
    const isThere = await this.#observer.isServiceThere(marker, this.#invocation.work);
    return isThere && (await this.#observe(marker)).kind === 'gone';
  }

  /** While something other than the service answers, no flow is given up before twice its maximum age. */
  async #mayGiveUp(marker: RunningMarker): Promise<boolean> {
    if (this.isTwiceTooOld(marker) || this.#observer.hasSeenAny) return true;
    return this.#observer.isServiceThere(marker, this.#invocation.work);
  }

  async #endIfConfirmed(
    stored: Stored<RunningEntry>,
    failure: KnownFailure,
    confirm: () => Promise<boolean> = async () => true,
  ): Promise<boolean> {
    if (!this.#confirmations.confirms(stored.entry.upload.id, failure.code, this.#ports.clock.now())) return false;
    if (!(await confirm())) {
      // The flow was seen after the two polls, so the next two must agree again.
      this.#confirmations.forget(stored.entry.upload.id, failure.code);
      return false;
    }
    if (!(await this.#confirmations.areInRow(this.#invocation.closing))) return false;
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    return true;
  }

  /** Returns the entry of a marker. If it is not running this flow, finishes what is left and drops the marker. */
  async #entryOf(marker: RunningMarker, reading?: EntryRead): Promise<Stored<RunningEntry> | undefined> {
    const { ledger } = this.#ports;
    const { closing } = this.#invocation;
    const stored = await (reading ?? ledger.read(marker.uploadId, closing));
    const entry = stored?.entry;
    if (entry?.state === 'running' && entry.flow.id === marker.flowId) {
      const own = runningMarkerOf(entry.upload, entry.flow);
      if (own.ageFrom === marker.ageFrom) return stored as Stored<RunningEntry>;
      // The flow is collected again, and this is an old marker. The new one may not have been put.
      await ledger.putRunningMarker(own, closing);
    }
    if (entry !== undefined && isTerminal(entry) && entry.flow?.id === marker.flowId) {
      await publish(entry, this.#ports, closing);
    }
    await ledger.deleteRunningMarker(marker, closing);
    return undefined;
  }

  /** Stores the outputs of a flow that ended, and ends the upload. If a run is cut off, the next one resumes it. */
  async collect(flow: EndedFlow): Promise<void> {
    const ending = await this.#assets.collect(flow);
    await this.#end(flow.stored, ending);
  }

  /**
   * Writes the terminal entry, which decides. Everything after it can be redone from it. A flow that fails now may have
   * succeeded before an older ledger was restored. Then it ends as its receipt says.
   */
  async #end(stored: Stored<RunningEntry>, ending: Ending): Promise<void> {
    const { ledger, clock, telemetry } = this.#ports;
    const { closing } = this.#invocation;
    const earlierSuccess = ending.failure && (await this.#ports.receipts.successOf(stored.entry, closing));
    const terminal = ended(stored.entry, earlierSuccess ?? ending, earlierSuccess?.endedAt ?? clock.now());
    const written = await ledger.replace(stored, terminal, closing);
    if (!written.won) {
      // Another collector was faster. If it has ended this flow, it may have died before publishing.
      const current = written.current?.entry;
      const isEnded = current !== undefined && isTerminal(current) && current.flow?.id === stored.entry.flow.id;
      if (isEnded) await publish(current, this.#ports, closing);
      return;
    }
    this.counts[terminal.state] += 1;
    telemetry.metrics.add(metricOf(terminal));
    await publish(terminal, this.#ports, closing);
    if (terminal.state === 'succeeded') {
      telemetry.metrics.add('SecondsToResult', secondsBetween(terminal.arrivedAt, terminal.endedAt));
    }
  }

  /** Aborts an abandoned flow, which costs its owner as long as it runs. A failure to abort is only logged. */
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

function metricOf({ state }: TerminalEntry): MetricName {
  switch (state) {
    case 'succeeded':
      return 'FlowsSucceeded';
    case 'failed':
      return 'UploadsFailed';
  }
}
