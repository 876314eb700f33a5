import pMap from 'p-map';
import type { Invocation } from '../base/invocation.ts';
import { encodedId } from '../base/key-segment.ts';
import { AssetTooLargeError, FlowServiceError, UnavailableError } from '../flow-service/errors.ts';
import type { Output } from '../flow-service/types.ts';
import {
  ageFrom,
  attemptsAfter,
  collectedSoFar,
  type Ending,
  type FailedOutput,
  type RunningEntry,
  type StoredAsset,
} from '../ledger/entry.ts';
import type { KnownFailure, OutputFailureCode } from '../ledger/failures.ts';
import { OvertakenError } from '../results/asset-slots.ts';
import { KeyTakenError, type OpenedAsset } from '../results/results.ts';
import { ASSET_METADATA, assetKey, FLOW_METADATA, UPLOAD_METADATA } from '../results/results-keys.ts';
import type { CollectFlowPorts, EndedFlow } from './collect-flow.ts';
import type { LateFlows } from './late-flows.ts';
import { outageOf, type ServiceHealth } from './service-health.ts';

/** Assets of one flow that are under way at a time. `AssetSlots` decides by memory how many of them are fetched. */
const ASSET_CONCURRENCY = 32;

/** Outages in a row after which this run begins no further asset of a flow: silent assets hold their slots for long. */
const OUTAGES_MAX = 3;

/** Shortest time between two counted attempts at a flow, in milliseconds. Young flows are polled every few seconds. */
const COUNTED_GAP_MS = 60_000;

/** Bytes that a template's name may take in an asset's metadata. S3 allows 2 KB in all, and two ids are in it too. */
const TEMPLATE_METADATA_BYTES_MAX = 256;

/** Progress of one flow's assets in this run. */
interface Collection {
  readonly entry: RunningEntry;
  readonly stored: Map<string, StoredAsset>;
  readonly failed: Map<string, FailedOutput>;
  /** An error on our side, or the end of the time: no further asset is begun. */
  cutOff: unknown;
  /** An outage of the service. The asset waits for the next poll, and no attempt is counted. */
  outage: unknown;
  /** An error of the asset itself. It is tried again, and the attempt is counted. */
  retryable: unknown;
  /** An asset lost its slot to another one. No attempt is counted. */
  overtaken: unknown;
  /** True once the service has begun to answer for any asset in this run, with enough time left to store it. */
  hadTimeEnough: boolean;
  /** After {@link OUTAGES_MAX}, the flow leaves its slots to others. */
  outagesInARow: number;
}

/** Returns true if the last counted attempt is long enough ago for another one to count. */
const isSpaced = ({ attemptedAt }: RunningEntry, now: number): boolean =>
  now - (attemptedAt ?? Number.NEGATIVE_INFINITY) >= COUNTED_GAP_MS;

/** The code of an asset's failure. The two codes of creations cannot occur here, and are mapped for the compiler. */
function outputCodeOf({ code }: FlowServiceError): OutputFailureCode {
  return code === 'in-doubt' || code === 'misaddressed' ? 'unintelligible-answer' : code;
}

const outOfService = (): UnavailableError =>
  new UnavailableError('The service does not answer for these assets', { bodyStarted: false });

/** Fetches the outputs of ended flows from the service and stores them, side by side. */
export class FlowAssets {
  readonly #ports: CollectFlowPorts;
  readonly #invocation: Invocation;
  readonly #health: ServiceHealth;
  readonly #late: LateFlows;
  /** Assets of flows that are too old and that were refused in this tick, each as `<flow id>/<asset id>`. */
  readonly #refused = new Set<string>();

  constructor(ports: CollectFlowPorts, invocation: Invocation, health: ServiceHealth, late: LateFlows) {
    this.#late = late;
    this.#ports = ports;
    this.#invocation = invocation;
    this.#health = health;
  }

  /**
   * Stores the outputs of a flow and returns how it ended. If the run is cut off, the entry keeps what it has stored. A
   * run that is cut off counts as an attempt if it had enough time and stored nothing: an answer may be endless.
   * @throws the error that cut the run off, or the error of an asset that must be tried again.
   */
  async collect(flow: EndedFlow): Promise<Ending> {
    const { entry } = flow.stored;
    const { ledger, settings } = this.#ports;
    const { work, closing } = this.#invocation;
    const listed = flow.outputs;
    const collection: Collection = {
      entry,
      stored: new Map((entry.assets ?? []).map((asset) => [asset.id, asset])),
      failed: new Map(),
      cutOff: undefined,
      outage: undefined,
      retryable: undefined,
      overtaken: undefined,
      hadTimeEnough: false,
      outagesInARow: 0,
    };
    const { stored, failed } = collection;
    const storedBefore = stored.size;
    // Each run begins with another asset: one that takes all the time must not keep the others from their turn.
    const first = entry.attempts % Math.max(1, listed.length);
    const inTurn = [...listed.slice(first), ...listed.slice(0, first)];
    await pMap(inTurn, (output) => this.#collectOne(output, collection), { concurrency: ASSET_CONCURRENCY });

    const isProgress = stored.size > storedBefore;
    // A flow that only waited for its turn was not too slow.
    const isTooSlow = collection.cutOff !== undefined && work.aborted && collection.hadTimeEnough && !isProgress;
    const now = this.#ports.clock.now();
    const isTwiceTooOld = now - ageFrom(entry.flow) > 2 * settings.flowAgeMaxSeconds * 1000;
    if (isTwiceTooOld || (isTooSlow && attemptsAfter(entry, true) >= settings.attemptsMax)) {
      const message = isTwiceTooOld
        ? `The asset was not stored when its flow was twice as old as the ${settings.flowAgeMaxSeconds} seconds allowed.`
        : 'The asset could not be fetched completely in several runs.';
      for (const { assetId: id } of listed) {
        if (!stored.has(id) && !failed.has(id)) {
          failed.set(id, { id, code: 'out-of-time' satisfies OutputFailureCode, message });
        }
      }
      return this.#endingOf(flow, collection);
    }
    const reason = collection.cutOff ?? collection.outage ?? collection.retryable ?? collection.overtaken;
    if (reason === undefined) return this.#endingOf(flow, collection);
    const isCounted = (collection.retryable !== undefined && isSpaced(entry, now)) || isTooSlow;
    if (isProgress || isCounted) {
      await ledger.replace(
        flow.stored,
        collectedSoFar(entry, [...stored.values()], isCounted ? now : undefined),
        closing,
      );
    }
    throw reason;
  }

  #hasTimeEnough(): boolean {
    const { startedAt, workEndsAt } = this.#invocation;
    return this.#ports.clock.now() <= (startedAt + workEndsAt) / 2;
  }

  async #collectOne({ assetId: id, status, error: reason }: Output, collection: Collection): Promise<void> {
    const { stored, failed, entry } = collection;
    if (stored.has(id)) return;
    const fail = (code: OutputFailureCode, message: string) => failed.set(id, { id, code, message });
    if (status === 'failed') {
      fail('output-failed', reason ?? 'The service says that it failed.');
      return;
    }
    const isOut = this.#health.outage !== undefined || collection.outagesInARow >= OUTAGES_MAX;
    if (collection.cutOff !== undefined || isOut) {
      collection.outage ??= outOfService();
      return;
    }
    try {
      stored.set(id, await this.#store(entry, id, collection));
      collection.outagesInARow = 0;
      this.#health.answered(entry.flow.id);
    } catch (error) {
      if (error instanceof OvertakenError) {
        collection.overtaken = error;
        return;
      }
      if (error instanceof KeyTakenError) {
        // The operator may move the other object away before the last attempt.
        if (this.#isLastAttempt(entry)) fail(error.code, error.message);
        else collection.retryable ??= error;
        return;
      }
      if (!(error instanceof FlowServiceError)) {
        collection.cutOff ??= error;
        return;
      }
      this.#health.failed(entry.flow.id, error);
      if (outageOf(error) !== undefined) {
        if (this.#isAbandoned(entry, id)) fail(outputCodeOf(error), error.message);
        else {
          collection.outage ??= error;
          collection.outagesInARow += 1;
        }
      } else if (error instanceof AssetTooLargeError || this.#isLastAttempt(entry)) {
        fail(outputCodeOf(error), error.message);
      } else collection.retryable ??= error;
    }
  }

  #isLastAttempt(entry: RunningEntry): boolean {
    const { clock, settings } = this.#ports;
    return isSpaced(entry, clock.now()) && attemptsAfter(entry, true) >= settings.attemptsMax;
  }

  /**
   * Past the flow's maximum age, an asset that is always refused is abandoned, unless the service has an outage. It
   * takes two refusals in one tick. The flow is polled in between, and must be answered: a token that has just changed,
   * or an outage that has just begun, would otherwise look like trouble of this asset.
   */
  #isAbandoned({ flow }: RunningEntry, assetId: string): boolean {
    const { clock, settings } = this.#ports;
    const ageMs = clock.now() - ageFrom(flow);
    const ageMaxMs = settings.flowAgeMaxSeconds * 1000;
    if (ageMs <= ageMaxMs) return false;
    const asset = `${encodedId(flow.id)}/${encodedId(assetId)}`;
    const wasRefused = this.#refused.has(asset);
    this.#refused.add(asset);
    return ageMs > 2 * ageMaxMs || (wasRefused && this.#health.hasAnsweredForAnother(flow.id));
  }

  #endingOf({ outputs: listed, outputCount, failure: flowFailure }: EndedFlow, collection: Collection): Ending {
    const { settings, telemetry } = this.#ports;
    const { stored, failed } = collection;
    // In the order of the listing, however many runs stored them.
    const assets = listed.flatMap(({ assetId }) => stored.get(assetId) ?? []);
    const failedOutputs = listed.flatMap(({ assetId }) => failed.get(assetId) ?? []);
    const beyond = outputCount - listed.length;
    if (beyond > 0) {
      const message = `${beyond} outputs beyond the limit of ${settings.outputsMax} were not stored.`;
      failedOutputs.push({ id: '', code: 'too-many-outputs' satisfies OutputFailureCode, message });
    }
    if (failedOutputs.length > 0) telemetry.metrics.add('AssetsFailed', failedOutputs.length);
    const isNothingStored = assets.length === 0 && failedOutputs.length > 0;
    const failure: KnownFailure | undefined =
      flowFailure ?? (isNothingStored ? { code: 'outputs-failed', message: 'No output could be stored.' } : undefined);
    return { assets, failedOutputs, failure };
  }

  async #store(entry: RunningEntry, assetId: string, collection: Collection): Promise<StoredAsset> {
    const { results, telemetry } = this.#ports;
    const uploadId = entry.upload.id;
    const open = async (signal: AbortSignal, onSent: () => void): Promise<OpenedAsset> => {
      // The flow may have met outages while this asset waited for its slot.
      if (collection.outagesInARow >= OUTAGES_MAX) throw outOfService();
      const opened = await this.#open(entry, assetId, signal, onSent);
      collection.hadTimeEnough ||= this.#hasTimeEnough();
      return opened;
    };
    const owner = {
      flowId: entry.flow.id,
      isLate: this.#late.has(uploadId),
      onLate: () => this.#late.add(uploadId),
    };
    const stored = await results.store(open, owner, this.#invocation.work);
    const { key, bytes, mediaType, sha256 } = stored;
    telemetry.metrics.add('AssetsStored');
    telemetry.metrics.add('AssetBytes', bytes);
    return { id: assetId, key, bytes, mediaType, sha256 };
  }

  async #open(entry: RunningEntry, assetId: string, signal: AbortSignal, onSent: () => void): Promise<OpenedAsset> {
    const { flows, settings } = this.#ports;
    const flowId = entry.flow.id;
    const mayBePage = settings.htmlTemplates.includes(entry.route.template);
    const { mediaType, chunks, bytesMax } = await flows.asset(flowId, assetId, signal, { mayBePage, onSent });
    const key = assetKey(settings, { key: entry.upload.key, flowId, assetId, mediaType });
    const template = encodedId(entry.route.template);
    const metadata = {
      [UPLOAD_METADATA]: entry.upload.id,
      [FLOW_METADATA]: encodedId(flowId),
      [ASSET_METADATA]: encodedId(assetId),
      ...(template.length <= TEMPLATE_METADATA_BYTES_MAX ? { 'flowdrop-template': template } : {}),
    };
    return { to: { key, mediaType, metadata }, chunks, bytesMax };
  }
}
