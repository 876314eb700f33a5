import { secondsBetween } from '../base/telemetry.ts';
import { nextStages, planOf } from '../chains/chain.ts';
import { FlowServiceError } from '../flow-service/errors.ts';
import { LISTING_DELAY_MAX_MS } from '../flow-service/flow-search.ts';
import type { HoldStore } from '../holds/hold-store.ts';
import { noteFailure, noteSuccess } from '../holds/outcomes.ts';
import {
  type Ending,
  ended,
  hindered,
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
import { isSuccess, TERMINAL_STATES } from '../ledger/terminal-states.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import type { Receipts } from '../publish/receipts.ts';
import type { Sources } from '../publish/sources.ts';
import type { Settings } from '../settings/environment.ts';
import { TOLD_AFTER_POLLS } from './collector.ts';
import { outageOf } from './failure-isolation.ts';
import { type AssetPorts, type EndedFlow, FlowAssets, fittingOutputs, UNDECLARED } from './flow-assets.ts';
import { FlowObserver, LATE_OUTPUTS_MS, type Observation, type Undeclared, undeclaredIn } from './flow-observer.ts';
import { isTooOld } from './poll-schedule.ts';
import { GONE, type TickContext } from './tick-context.ts';

export interface CollectFlowPorts extends AssetPorts, PublishPorts {
  readonly holds: HoldStore;
  readonly receipts: Pick<Receipts, 'put' | 'successOf'>;
  readonly sources: Pick<Sources, 'settle' | 'keep' | 'expire'>;
  readonly ledger: Ledger;
  readonly settings: Settings;
}

/** What a poll tells of a flow that it did not see end. */
type Unended = Extract<Observation, { readonly kind: 'running' | 'unsure' | 'gone' }>;

/** What makes a poll unclear: at most one of these. */
type Unclear = Pick<Extract<Observation, { readonly kind: 'running' }>, 'undeclared' | 'lacking'>;

/** A poll that failed, why, and when. */
export interface FailedPoll {
  readonly marker: RunningMarker;
  readonly error: FlowServiceError;
  readonly at: number;
}

/** Takes running flows from their first poll to their receipt. */
export class FlowCollector {
  readonly #ports: CollectFlowPorts;
  readonly #tick: TickContext;
  readonly #observer: FlowObserver;
  /** Uploads that this collector ended. */
  readonly counts = { succeeded: 0, failed: 0 };

  constructor(ports: CollectFlowPorts, tick: TickContext) {
    this.#ports = ports;
    this.#tick = tick;
    this.#observer = new FlowObserver(ports, tick);
  }

  /**
   * Polls a flow once. Returns the flow if it ended with outputs to store, or failed. Ends it if it is too old (see
   * {@link #isOverdue}). Ends it if two polls in a row find that it is gone, has no outputs, or belongs to another
   * upload.
   */
  async poll(marker: RunningMarker): Promise<EndedFlow | undefined> {
    const seen = await this.#observe(marker);
    if (seen.kind === 'ending' && !isTooOld(marker.ageFrom, this.#ports, 2)) return undefined;
    if (seen.kind === 'running' || seen.kind === 'unsure') {
      if (seen.kind === 'running') this.#tick.confirmations.forget(marker.uploadId);
      await this.#noteUnclear(marker, seen);
      if ((await this.#isOverdue(marker, seen)) && (await this.#mayGiveUp(marker)))
        await this.#timeOut(marker, { seen });
      return undefined;
    }
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return undefined;
    // An earlier tick found that several uploads share the flow, and died before it had ended all of them.
    if (isFlowShared(stored.entry)) await this.#end(stored, { failure: SHARED });
    else if (seen.kind === 'finished' || seen.kind === 'ending') return this.#finished(stored, seen);
    else if (seen.kind === 'gone') await this.#endIfGone(marker, stored, seen);
    else {
      this.#reportShared(FOREIGN, [marker]);
      await this.#endIfConfirmed(stored, FOREIGN);
    }
    return undefined;
  }

  async #observe(marker: RunningMarker): Promise<Observation> {
    const { confirmations, unclear } = this.#tick;
    try {
      return await this.#observer.observe(marker);
    } catch (error) {
      // A flow is gone only after two 404s in a row, and any other error begins their count anew.
      confirmations.forget(marker.uploadId, GONE);
      const isItsOwn = error instanceof FlowServiceError && outageOf(error) === undefined;
      const word = unclear.of(marker.uploadId)?.word;
      // Written once, and not at each poll: the messages quote the answers, which may differ.
      if (isItsOwn && unclear.note(marker.uploadId, word) === TOLD_AFTER_POLLS) await this.#tell(marker, error.message);
      throw error;
    }
  }

  /** Once enough polls in a row were unclear, writes why: an undeclared word, or what the service does not show. */
  async #noteUnclear(marker: RunningMarker, unclear: Unclear): Promise<void> {
    const before = this.#tick.unclear.of(marker.uploadId)?.polls ?? 0;
    const message = this.#countUnclear(marker, unclear);
    if (message !== undefined || before >= TOLD_AFTER_POLLS) await this.#tell(marker, message);
  }

  /** Writes into the entry what keeps its flow from being understood. @param message undefined if nothing does. */
  async #tell(marker: RunningMarker, message: string | undefined): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined || stored.entry.obstacle?.message === message) return;
    const told = message === undefined ? undefined : { message, at: this.#ports.clock.now() };
    await this.#ports.ledger.replace(stored, hindered(stored.entry, told), this.#tick.invocation.closing);
  }

  /** Counts a poll that was answered. Returns what to tell. */
  #countUnclear({ uploadId, flowId }: RunningMarker, { undeclared, lacking }: Unclear): string | undefined {
    const { unclear } = this.#tick;
    if (undeclared === undefined && lacking === undefined) unclear.forget(uploadId);
    else if (unclear.note(uploadId, undeclared?.word) >= TOLD_AFTER_POLLS) {
      if (undeclared === undefined) return lacking;
      const { log, metrics } = this.#ports.telemetry;
      const message = undeclaredText(undeclared);
      metrics.add('WordsUndeclared');
      log.warn(message, { uploadId, flowId, word: undeclared.word });
      return message;
    }
    return undefined;
  }

  async #finished(
    stored: Stored<RunningEntry>,
    { outputs, failure, nothing }: Omit<Observation & { kind: 'finished' }, 'kind'>,
  ): Promise<EndedFlow | undefined> {
    // From now on, `FlowAssets` tells what keeps the outputs from being stored.
    const { upload, flow } = stored.entry;
    const undeclared = failure === undefined ? undeclaredIn(outputs) : undefined;
    this.#countUnclear(runningMarkerOf(upload, flow), { undeclared });
    if (outputs.length > 0 || failure !== undefined) {
      this.#tick.confirmations.forgetLoss(stored.entry.upload.id);
      if (failure === undefined && nothing !== undefined) {
        const fields = { uploadId: upload.id, flowId: flow.id, key: upload.key, said: nothing };
        this.#ports.telemetry.log.warn('The flow has completed, and says of an error beside its outputs', fields);
      }
      const { outputsMax } = this.#ports.settings;
      const fitting = fittingOutputs(outputs, stored.entry.upload.key, outputsMax);
      return { stored, outputs: fitting, outputCount: outputs.length, failure };
    }
    const message = `The flow completed without any output${nothing === undefined ? '' : `: ${nothing.replace(/\.$/, '')}`}.`;
    await this.#endIfConfirmed(stored, { code: 'no-outputs', message }, { apartMs: LATE_OUTPUTS_MS });
    return undefined;
  }

  async #endIfGone(
    marker: RunningMarker,
    stored: Stored<RunningEntry>,
    seen: Extract<Observation, { readonly kind: 'gone' }>,
  ): Promise<void> {
    // Two 404s do not prove that the flow is gone: a replica may not know a new flow yet, and a proxy may answer 404 to
    // everything. A flow that is still listed is not gone either. So all of this is checked, and the flow is asked for
    // once more.
    const isOld = this.#ports.clock.now() - stored.entry.flow.createdAt >= LISTING_DELAY_MAX_MS;
    const isGone = async () =>
      !this.#tick.confirmations.isForgetful(this.#ports.clock.now()) &&
      isOld &&
      (seen.isSaid || (await this.#observer.isServiceThere(marker))) &&
      !(await this.#observer.isListed(marker)) &&
      (await this.#observe(marker)).kind === 'gone';
    const failure: KnownFailure = { code: GONE, message: seen.lacking };
    if (await this.#endIfConfirmed(stored, failure, { confirm: isGone, apartMs: LATE_OUTPUTS_MS }))
      await this.#abort(stored.entry, { isSeen: false });
    else if (isTooOld(marker.ageFrom, this.#ports, 2)) await this.#timeOut(marker, { seen });
    else if (isOld) await this.#noteUnclear(marker, seen);
  }

  /** Returns true if a flow that was not seen to end must end now. */
  async #isOverdue(marker: RunningMarker, { kind }: Observation): Promise<boolean> {
    if (isTooOld(marker.ageFrom, this.#ports)) return true;
    if (kind !== 'unsure') return false;
    // A flow that is collected again may be so old that the service has forgotten it.
    const { flow } = (await this.#entryOf(marker))?.entry ?? {};
    return flow !== undefined && isTooOld(flow.createdAt, this.#ports);
  }

  /** While something other than the service answers, no flow is given up before twice its maximum age. */
  async #mayGiveUp(marker: RunningMarker): Promise<boolean> {
    if (isTooOld(marker.ageFrom, this.#ports, 2) || this.#observer.hasSeenAny) return true;
    return this.#observer.isServiceThere(marker);
  }

  /**
   * Ends a flow whose polls fail, at its maximum age. In an outage, it ends only at twice that age. It is an outage if
   * the polls fail as in one, and the service has answered for no other flow lately.
   */
  async abandon({ marker, error, at }: FailedPoll): Promise<void> {
    const isItsOwn = outageOf(error) === undefined || this.#tick.isolation.hasAnsweredForAnother(marker.flowId, at);
    if (isTooOld(marker.ageFrom, this.#ports, isItsOwn ? 1 : 2)) await this.#timeOut(marker, { error });
  }

  /** @param seen in the last poll. @param error of the last poll. */
  async #timeOut(
    marker: RunningMarker,
    { seen, error }: { readonly seen?: Unended; readonly error?: FlowServiceError } = {},
  ): Promise<void> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    const counted = this.#tick.unclear.of(marker.uploadId);
    // `unclear` has a maximum size, and may lack the flow. So the last poll is looked at too.
    const isItsOwn = error !== undefined && outageOf(error) === undefined;
    // That the service does not know the flow is clear.
    const isUnclear = seen?.kind !== 'gone' && (isItsOwn || seen?.lacking !== undefined || counted !== undefined);
    const running = seen?.kind === 'running' ? seen : undefined;
    const word = counted?.word ?? running?.undeclared?.word;
    const told = isUnclear && word === undefined ? stored.entry.obstacle?.message : undefined;
    const reason = error?.message ?? seen?.lacking ?? running?.unready ?? told;
    const why = reason === undefined ? '.' : `: ${reason}`;
    const { flowAgeMaxSeconds } = this.#ports.settings;
    // If something is lacking, a poll may have seen the flow end, and only its outputs are missing.
    const what = seen?.lacking === undefined ? 'No poll saw the flow end' : 'The flow was not collected';
    const late = `${what} within its maximum age of ${flowAgeMaxSeconds} seconds${why}`;
    const failure: KnownFailure = word === undefined ? { code: 'timed-out', message: late } : endByWord(late, word);
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    // If its answers are refused or not understood, the flow may have completed. An abort could then lose its outputs.
    const isSeen = running !== undefined && running.unready === undefined;
    if (word === undefined && !isUnclear) await this.#abort(stored.entry, { isSeen });
  }

  /**
   * Ends all uploads that were given the same flow. It is unknown whose results they are, so none are stored. Every
   * entry is marked before the first upload ends. So if this is cut off, the others are not collected.
   */
  async endShared(markers: readonly RunningMarker[]): Promise<void> {
    const { ledger } = this.#ports;
    this.#reportShared(SHARED, markers);
    const marked: Stored<RunningEntry>[] = [];
    for (const marker of markers) {
      const stored = await this.#entryOf(marker);
      if (stored === undefined) continue;
      const written = await ledger.replace(stored, shared(stored.entry), this.#tick.invocation.closing);
      if (!written.won) return; // It has just changed. The next round finds the markers again.
      marked.push(written.stored);
    }
    for (const stored of marked) await this.#end(stored, { failure: SHARED });
  }

  #reportShared({ message }: KnownFailure, markers: readonly RunningMarker[]): void {
    const { log, metrics } = this.#ports.telemetry;
    for (const { uploadId, flowId } of markers) {
      metrics.add('FlowsShared');
      log.error(message, { uploadId, flowId });
    }
  }

  /**
   * @param confirm asks once more after the two polls.
   * @param apartMs shortest time between the two polls, if it is longer than a poll interval.
   */
  async #endIfConfirmed(
    stored: Stored<RunningEntry>,
    failure: KnownFailure,
    { confirm, apartMs }: { readonly confirm?: () => Promise<boolean>; readonly apartMs?: number } = {},
  ): Promise<boolean> {
    const { confirmations } = this.#tick;
    const { id } = stored.entry.upload;
    if (!confirmations.confirms(id, failure.code, this.#ports.clock.now(), apartMs)) return false;
    if (confirm !== undefined && !(await confirm())) {
      // The flow was seen after the two polls, so the next two must agree again.
      confirmations.forget(id, failure.code);
      return false;
    }
    if (!(await confirmations.areInRow(this.#tick.invocation.closing))) return false;
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    return true;
  }

  /**
   * Returns the entry of a marker. If the entry is not running the marker's flow, finishes what is left and drops the
   * marker.
   */
  async #entryOf(marker: RunningMarker): Promise<Stored<RunningEntry> | undefined> {
    const { ledger } = this.#ports;
    const { closing } = this.#tick.invocation;
    const stored = await ledger.read(marker.uploadId, closing);
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
    const ending = await new FlowAssets(flow, this.#ports, this.#tick).collect();
    if (ending !== undefined) await this.#end(flow.stored, ending);
  }

  /**
   * Writes the terminal entry, which decides. Everything after it can be redone from it. If an older copy of the ledger
   * was restored, a flow that fails now may have succeeded before. Then the upload ends as its receipt says.
   */
  async #end(stored: Stored<RunningEntry>, ending: Ending): Promise<void> {
    const { ledger, clock, telemetry } = this.#ports;
    const { closing } = this.#tick.invocation;
    const earlierSuccess = ending.failure && (await this.#ports.receipts.successOf(stored.entry, closing));
    const decided = earlierSuccess ?? ending;
    const { routes } = this.#ports.settings;
    const next = nextStages(stored.entry, decided.assets ?? [], routes);
    const plan = planOf(stored.entry, routes);
    // If the route had no later stage when the assets were stored, they have a tag by which they expire. The later
    // stage needs them.
    const isPlanned = (plan ?? []).length > 0;
    const isAdded = isPlanned && (stored.entry.plan ?? []).length === 0;
    if (isAdded) await this.#ports.sources.keep(decided.assets ?? [], closing);
    // The other way round: the route had a later stage when an earlier run stored the assets, and has none now. So no
    // chain will let them expire.
    const hasNone = stored.entry.upload.stage === undefined && !isPlanned;
    if (hasNone) await this.#ports.sources.expire(stored.entry.assets ?? [], closing);
    const terminal = ended(stored.entry, { ...decided, next, plan }, earlierSuccess?.endedAt ?? clock.now());
    const written = await ledger.replace(stored, terminal, closing);
    if (!written.won) {
      // Another collector was faster. If it has ended this flow, it may have died before publishing.
      const current = written.current?.entry;
      const isEnded = current !== undefined && isTerminal(current) && current.flow?.id === stored.entry.flow.id;
      if (isEnded) await publish(current, this.#ports, closing);
      return;
    }
    this.counts[terminal.state] += 1;
    telemetry.metrics.add(TERMINAL_STATES[terminal.state].metric);
    await this.#noteOutcome(terminal);
    await publish(terminal, this.#ports, closing);
    if (isSuccess(terminal.state)) {
      telemetry.metrics.add('SecondsToResult', secondsBetween(terminal.arrivedAt, terminal.endedAt));
    }
  }

  /** Notes the end for the holds. Only an end that the service reported counts. */
  async #noteOutcome(terminal: TerminalEntry): Promise<void> {
    const { closing } = this.#tick.invocation;
    if (terminal.state === 'succeeded') await noteSuccess(terminal, 'succeeded', this.#ports, closing);
    else if (terminal.failure.code === 'flow-failed')
      await noteFailure(terminal, terminal.failure, this.#ports, closing);
  }

  /**
   * Aborts an abandoned flow, which costs its owner as long as it runs.
   * @param isSeen true if the last poll saw it run. If not, it may have completed, and a deletion would lose its outputs.
   */
  async #abort(
    { upload, flow, route: { template } }: RunningEntry,
    { isSeen }: { readonly isSeen: boolean },
  ): Promise<void> {
    const { flows } = this.#ports;
    if (!isSeen && flows.service.abort?.method === 'DELETE') return;
    const [uploadId, flowId] = [upload.id, flow.id];
    const error = await flows.abort(flowId, this.#tick.invocation.closing, { uploadId, template });
    if (error !== undefined)
      this.#ports.telemetry.log.warn('The flow could not be aborted', { uploadId, flowId, error });
  }
}

function undeclaredText({ of, word }: Undeclared): string {
  const [what, state, member] = of === 'flow' ? ['the flow', 'running', 'state'] : ['an output', 'pending', 'outputs'];
  return `The service shows ${what} as "${word}", a word that ${UNDECLARED}. It counts as ${state}. Find out what it means, and add it to the words of "${member}" in the description of the service.`;
}

const endByWord = (late: string, word: string): KnownFailure => ({
  code: 'undeclared-word',
  message: `${late} The service last showed "${word}", a word that ${UNDECLARED}. The flow was not aborted.`,
});

/** Two uploads were given one flow. */
const SHARED: KnownFailure = {
  code: 'flow-shared',
  message: 'The flow service gave this flow to another upload too. Nothing of it was collected.',
};

const FOREIGN: KnownFailure = {
  code: 'flow-shared',
  message: 'The flow service answered with the flow of another upload. Nothing of it was collected.',
};
