import { createHash } from 'node:crypto';
import type { Clock } from './clock.ts';
import type { Settings } from './config.ts';
import {
  AssetTooLargeError,
  FlowServiceError,
  NotFoundError,
  NotReadyError,
  NotServedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
} from './flow-service/errors.ts';
import type { FlowService, Output } from './flow-service/types.ts';
import type { Invocation } from './invocation.ts';
import {
  collectedSoFar,
  type Ending,
  ended,
  type FailedOutput,
  type Failure,
  isTerminal,
  lookedAt,
  type RunningEntry,
  type StoredAsset,
} from './ledger/entry.ts';
import { encodedId, type RunningMarker } from './ledger/keys.ts';
import type { Ledger, Stored } from './ledger/store.ts';
import type { Results } from './objects/results.ts';
import { assetKey } from './objects/results-keys.ts';
import { type PublishPorts, publish } from './publish.ts';
import { secondsBetween } from './telemetry.ts';

/** Bytes that a template's name may take in an asset's metadata: S3 allows 2 KB for all of it, and two ids are in it. */
const TEMPLATE_METADATA_BYTES_MAX = 256;

/** How long a first look counts as the one before, in milliseconds: longer than the longest time between two polls. */
const LOOK_AGE_MAX_MS = 60 * 60_000;

export interface CollectFlowPorts extends PublishPorts {
  readonly ledger: Ledger;
  readonly results: Results;
  readonly flows: FlowService;
  readonly clock: Clock;
  readonly settings: Settings;
}

/** A flow that ended, and what is to be fetched of it. */
export interface EndedFlow {
  readonly stored: Stored<RunningEntry>;
  readonly outputs: readonly Output[];
  readonly failure: Failure | undefined;
}

/** What one look at a flow told. */
type Look =
  | { readonly kind: 'running' }
  | { readonly kind: 'gone' }
  | { readonly kind: 'finished'; readonly outputs: readonly Output[]; readonly failure?: Failure | undefined };

/** One running flow after another, from the first look at it to its receipt. */
export class FlowCollector {
  readonly #ports: CollectFlowPorts;
  readonly #invocation: Invocation;
  /** How many uploads this one brought to their end. */
  readonly counts = { succeeded: 0, failed: 0 };

  constructor(ports: CollectFlowPorts, invocation: Invocation) {
    this.#ports = ports;
    this.#invocation = invocation;
  }

  /** Looks at a flow once. What ended without anything to fetch is settled at once, as is what is too old. */
  async see(marker: RunningMarker): Promise<EndedFlow | undefined> {
    const { clock, settings } = this.#ports;
    const isTooOld = clock.now() - marker.createdAt > settings.flowAgeMaxSeconds * 1000;
    let look: Look;
    try {
      look = await this.#look(marker);
    } catch (error) {
      if (!isTooOld || !isItsOwn(error)) throw error;
      const what = `had not been seen to end after ${settings.flowAgeMaxSeconds} seconds: ${error.message}`;
      return this.#timeOut(marker, what);
    }
    if (look.kind === 'running') {
      if (isTooOld) await this.#timeOut(marker, `was still running after ${settings.flowAgeMaxSeconds} seconds.`);
      return undefined;
    }
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return undefined;
    if (look.kind === 'gone') {
      const message = 'The flow service does not know this flow any more.';
      await this.#endAtSecondLook(stored, { code: 'flow-gone', message });
      return undefined;
    }
    const { outputs, failure } = look;
    if (outputs.length === 0 && failure === undefined) {
      await this.#endAtSecondLook(stored, { code: 'no-outputs', message: 'The flow completed without any output.' });
      return undefined;
    }
    return { stored, outputs, failure };
  }

  /** An end that one wrong answer could feign, and that costs somebody a flow, is believed when it is seen twice. */
  async #endAtSecondLook(stored: Stored<RunningEntry>, failure: Failure): Promise<void> {
    if (!(await this.#isSeenTwice(stored, failure.code))) return;
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
  }

  /** Whether a look at least one poll interval ago saw the same. If not, this one is written down as the first. */
  async #isSeenTwice(stored: Stored<RunningEntry>, digest: string): Promise<boolean> {
    const { ledger, clock, settings } = this.#ports;
    const { look } = stored.entry;
    const pollIntervalMs = settings.pollIntervalSeconds * 1000;
    const lookAgeMs = look?.digest === digest ? clock.now() - look.at : Number.POSITIVE_INFINITY;
    // What was seen long ago may have been otherwise in between: a poll that sees nothing new writes nothing.
    if (lookAgeMs <= Math.max(LOOK_AGE_MAX_MS, 3 * pollIntervalMs)) return lookAgeMs >= pollIntervalMs;
    await ledger.replace(stored, lookedAt(stored.entry, digest, clock.now()), this.#invocation.closing);
    return false;
  }

  async #timeOut(marker: RunningMarker, what: string): Promise<undefined> {
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return;
    const failure = { code: 'timed-out', message: `The flow ${what}` };
    await this.#end(stored, { assets: stored.entry.assets ?? [], failure });
    await this.#abort(marker);
  }

  /** Asks the service for the flow, or where it does not answer that, judges by the outputs listing alone. */
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
    if (flow.state === 'running') return { kind: 'running' };
    const failure = flow.state === 'completed' ? undefined : failureOf(flow.state, flow.error);
    try {
      return { kind: 'finished', outputs: await flows.outputs(marker.flowId, work), failure };
    } catch (error) {
      const isNone =
        error instanceof NotFoundError || error instanceof NotReadyError || error instanceof NotServedError;
      if (!isNone) throw error;
      // What failed may have no outputs to list; what completed has, and a listing that lags behind gets its time.
      return failure === undefined ? { kind: 'running' } : { kind: 'finished', outputs: [], failure };
    }
  }

  /**
   * Finished is when every output, and there is one at least, is at its end, and a second look at least one poll
   * interval later sees the same. The first look leaves its digest in the entry: the one poll that writes.
   */
  async #lookAtOutputs(marker: RunningMarker): Promise<Look> {
    const { flows } = this.#ports;
    let outputs: readonly Output[];
    try {
      outputs = await flows.outputs(marker.flowId, this.#invocation.work);
    } catch (error) {
      if (error instanceof NotFoundError) return { kind: error.knownToBeServed ? 'gone' : 'running' };
      if (error instanceof NotReadyError || error instanceof NotServedError) return { kind: 'running' };
      throw error;
    }
    if (outputs.length === 0 || outputs.some(({ status }) => status === 'pending')) return { kind: 'running' };
    const stored = await this.#entryOf(marker);
    if (stored === undefined) return { kind: 'running' };
    return (await this.#isSeenTwice(stored, digestOf(outputs))) ? { kind: 'finished', outputs } : { kind: 'running' };
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

  /**
   * Stores the outputs of a flow that ended, and settles it. A run that is cut off goes on from there the next time. It
   * is counted like the failure of an asset if it had time enough and stored nothing: an answer may have no end.
   */
  async collect({ stored, outputs, failure: flowFailure }: EndedFlow): Promise<void> {
    const { ledger, clock, settings, telemetry } = this.#ports;
    const { startedAt, workEndsAt, work, closing } = this.#invocation;
    const { entry } = stored;
    const isLastAttempt = entry.attempts + 1 >= settings.attemptsMax;
    const isTooOld = clock.now() - entry.flow.createdAt > settings.flowAgeMaxSeconds * 1000;
    const hasTimeEnough = clock.now() <= (startedAt + workEndsAt) / 2;
    const listed = outputs.slice(0, settings.outputsMax);
    const known = new Map((entry.assets ?? []).map((asset) => [asset.id, asset]));
    const knownCount = known.size;
    const failed = new Map<string, FailedOutput>();
    const fail = (id: string, { code, message }: Failure) => failed.set(id, { id, code, message });
    let cutOff: unknown;
    let worthAnotherTry: FlowServiceError | undefined;
    // An asset that takes all the time must not take the turn of those behind it every time.
    const first = entry.attempts % Math.max(1, listed.length);
    for (const { assetId: id, status, error: said } of [...listed.slice(first), ...listed.slice(0, first)]) {
      if (known.has(id)) continue;
      if (status === 'failed') fail(id, { code: 'output-failed', message: said ?? 'The service says it failed.' });
      else if (cutOff === undefined) {
        try {
          known.set(id, await this.#store(entry, id));
        } catch (error) {
          const isInVain = isItsOwn(error)
            ? error instanceof AssetTooLargeError || isLastAttempt
            : error instanceof UnavailableError && isTooOld;
          if (isInVain) fail(id, error as FlowServiceError);
          else if (isItsOwn(error)) worthAnotherTry = error;
          else cutOff = error;
        }
      }
    }
    const isProgress = known.size > knownCount;
    const isTooSlow = cutOff !== undefined && work.aborted && hasTimeEnough && !isProgress;
    const unstored = listed.filter(({ assetId }) => !known.has(assetId) && !failed.has(assetId));
    if (isTooSlow && isLastAttempt) {
      const message = 'It did not come whole within the time of several runs.';
      for (const { assetId } of unstored) fail(assetId, { code: 'out-of-time', message });
    } else if (cutOff !== undefined || worthAnotherTry !== undefined) {
      const isCounted = worthAnotherTry !== undefined || isTooSlow;
      if (isProgress || isCounted) {
        await ledger.replace(stored, collectedSoFar(entry, [...known.values()], isCounted), closing);
      }
      throw cutOff ?? worthAnotherTry;
    }
    // In the order of the listing, in however many runs they came.
    const assets = listed.flatMap(({ assetId }) => known.get(assetId) ?? []);
    const failedOutputs = listed.flatMap(({ assetId }) => failed.get(assetId) ?? []);
    const beyond = outputs.length - settings.outputsMax;
    if (beyond > 0) {
      const message = `${beyond} outputs beyond the limit of ${settings.outputsMax} were not stored.`;
      failedOutputs.push({ id: '', code: 'too-many-outputs', message });
    }
    if (failedOutputs.length > 0) telemetry.metrics.count('AssetsFailed', failedOutputs.length);
    const nothingCameOut = assets.length === 0 && failedOutputs.length > 0;
    const failure =
      flowFailure ?? (nothingCameOut ? { code: 'outputs-failed', message: 'No output could be stored.' } : undefined);
    await this.#end(stored, { assets, failedOutputs, failure });
  }

  async #store(entry: RunningEntry, assetId: string): Promise<StoredAsset> {
    const { flows, results, settings, telemetry } = this.#ports;
    const { work } = this.#invocation;
    const flowId = entry.flow.id;
    const asset = await flows.asset(flowId, assetId, work);
    const { mediaType } = asset;
    const key = assetKey(settings, { key: entry.upload.key, flowId, assetId, mediaType });
    const template = encodedId(entry.route.template);
    const metadata = {
      'flowdrop-upload': entry.upload.id,
      'flowdrop-flow': encodedId(flowId),
      'flowdrop-asset': encodedId(assetId),
      ...(template.length <= TEMPLATE_METADATA_BYTES_MAX ? { 'flowdrop-template': template } : {}),
    };
    const { bytes, sha256 } = await results.store({ key, mediaType, metadata }, asset.chunks, work);
    telemetry.metrics.count('AssetsStored');
    telemetry.metrics.count('AssetBytes', bytes);
    return { id: assetId, key, bytes, mediaType, sha256 };
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

/** Whether the flow or the asset itself may be the cause, so that trying for ever would be in vain. */
function isItsOwn(error: unknown): error is FlowServiceError {
  return (
    error instanceof FlowServiceError &&
    !(error instanceof UnauthorisedError || error instanceof ThrottledError || error instanceof UnavailableError)
  );
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
