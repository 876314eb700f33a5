import pMap from 'p-map';
import type { Clock } from '../base/clock.ts';
import { isHalfOver } from '../base/invocation.ts';
import { encodedId } from '../base/key-segment.ts';
import { shorten } from '../base/printable.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { planOf } from '../chains/chain.ts';
import {
  AddressRefusedError,
  AssetTooLargeError,
  EmptyAssetError,
  FlowServiceError,
  NotFoundError,
  NotReadyError,
  UnavailableError,
} from '../flow-service/errors.ts';
import { keptWords } from '../flow-service/service-description.ts';
import type { FlowService, Output } from '../flow-service/types.ts';
import {
  ageFrom,
  attemptsAfter,
  collectedSoFar,
  type Ending,
  type FailedOutput,
  presentRouteOf,
  type RunningEntry,
  type StoredAsset,
  type Told,
} from '../ledger/entry.ts';
import { MESSAGE_CHARS_MAX, OUTPUT_MESSAGE_CHARS_MAX } from '../ledger/entry-schema.ts';
import type { KnownFailure, OutputFailureCode } from '../ledger/failures.ts';
import type { Ledger, Stored } from '../ledger/store.ts';
import { fitting } from '../publish/upload-facts.ts';
import { KeyTakenError, type OpenedAsset, type Results } from '../results/results.ts';
import { ASSET_METADATA, assetKey, FLOW_METADATA, UPLOAD_METADATA } from '../results/results-keys.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';
import type { Settings } from '../settings/environment.ts';
import { fitsType } from '../uploads/route-conditions.ts';
import { type AssetSlot, OvertakenError } from './asset-slots.ts';
import { outageOf } from './failure-isolation.ts';
import { isTooOld, tooOldAfter } from './poll-schedule.ts';
import type { TickContext } from './tick-context.ts';

/**
 * Maximum number of assets of one flow that are under way at a time. `AssetSlots` decides how many of them are fetched.
 */
const ASSET_CONCURRENCY = 32;

/** Outages in a row after which this run begins no further asset of a flow: it would hold a slot for a long time. */
const OUTAGES_MAX = 3;

/**
 * Time for which a completed flow waits for an output that is not ready, in milliseconds. Then the output fails, and
 * can be collected again free of charge.
 */
const UNREADY_MS = 60 * 60_000;

/** Errors after which an asset may still come, because the service may not have stored it yet. */
const UNREADY = [NotReadyError, EmptyAssetError, AddressRefusedError];

/** Shortest time between two counted attempts at a flow, in milliseconds. Young flows are polled every few seconds. */
const COUNTED_GAP_MS = 60_000;

/** Bytes that a template's name may take in an asset's metadata. S3 allows 2 KB in all, and three ids are in it too. */
const TEMPLATE_METADATA_BYTES_MAX = 256;

/** Words for messages about an undeclared word. */
export const UNDECLARED = 'the description of the service does not declare';

/**
 * Maximum size of the outputs in an entry, in bytes of JSON. It is enough for 10,000 outputs with keys of the greatest
 * length. Only ids and keys with hundreds of characters that JSON must escape take more. Then fewer outputs are stored.
 */
export const OUTPUTS_BYTES_MAX = 28 * 1024 * 1024;

/**
 * Greatest size of a stored asset without its id and key, in bytes of JSON: the names of members, a bucket of 63 bytes,
 * a media type of 255, a hash of 64, an ETag of 40, and a version id of 1,024. (Amazon S3 User Guide, "How S3
 * Versioning works".)
 */
const ASSET_MEMBERS_BYTES_MAX = 1_650;

/** Greatest size of the other members of a failed output: the names, a code, and a message whose characters are escaped. */
const FAILED_MEMBERS_BYTES_MAX = 100 + 6 * OUTPUT_MESSAGE_CHARS_MAX;

/** Bytes that JSON takes for one byte of a text, at most: `\u0001`. */
const ESCAPED_BYTES_MAX = 6;

/**
 * The first outputs, as many as the limits of their number and of {@link OUTPUTS_BYTES_MAX} allow.
 * @param key of the upload. It is a part of the key of each asset.
 */
export function fittingOutputs(outputs: readonly Output[], key: string, countMax: number): readonly Output[] {
  const isPlain = JSON.stringify(key).length === key.length + 2;
  const keyBytes = KEY_BYTES_MAX * (isPlain ? 1 : ESCAPED_BYTES_MAX);
  const membersBytes = Math.max(ASSET_MEMBERS_BYTES_MAX + keyBytes, FAILED_MEMBERS_BYTES_MAX);
  const bytesOf = ({ assetId }: Output) => Buffer.byteLength(JSON.stringify(assetId)) + membersBytes;
  return fitting(outputs.slice(0, countMax), OUTPUTS_BYTES_MAX, bytesOf);
}

/**
 * Why an asset is left for the next run. If a run leaves several, the reason that comes first in this list decides
 * about the flow.
 *
 * - `cut off`: an error on our side, or the end of the time. No further asset is begun.
 * - `outage`: the service is not there. No attempt is counted.
 * - `refused`: an error of the asset itself. The attempt is counted.
 * - `overtaken`: the asset lost its slot to another one. No attempt is counted.
 * - `unready`: the service does not list the output as ready, or answers so when the asset is asked for. No attempt
 *   is counted. After {@link UNREADY_MS} the output fails.
 */
const OBSTACLES = ['cut off', 'outage', 'refused', 'overtaken', 'unready'] as const;
type Obstacle = (typeof OBSTACLES)[number];

export interface AssetPorts {
  readonly ledger: Pick<Ledger, 'replace'>;
  readonly results: Results;
  readonly flows: FlowService;
  readonly clock: Clock;
  readonly settings: Settings;
  readonly telemetry: Telemetry;
}

/** A flow that ended, and its outputs that are still to be stored. */
export interface EndedFlow {
  readonly stored: Stored<RunningEntry>;
  /** Those that fit: at most `settings.outputsMax`. */
  readonly outputs: readonly Output[];
  /** Number of outputs that the service lists. */
  readonly outputCount: number;
  readonly failure: KnownFailure | undefined;
}

/** The code of an asset's failure. Two codes occur only for creations. The compiler wants them here all the same. */
function outputCodeOf({ code }: FlowServiceError | KeyTakenError): OutputFailureCode {
  return code === 'in-doubt' || code === 'misaddressed' ? 'unintelligible-answer' : code;
}

const outOfService = (): UnavailableError =>
  new UnavailableError('The service does not answer for these assets', { bodyStarted: false });

/** Fetches the outputs of one ended flow from the service and stores them, side by side. For one run. */
export class FlowAssets {
  readonly #flow: EndedFlow;
  readonly #entry: RunningEntry;
  readonly #ports: AssetPorts;
  readonly #tick: TickContext;
  readonly #stored: Map<string, StoredAsset>;
  readonly #failed = new Map<string, FailedOutput>();
  /** Since when the flow has waited for outputs that are not ready. Undefined if it does not wait for them. */
  readonly #unreadySince: number | undefined;
  /** The first error of each obstacle. */
  readonly #obstacles = new Map<Obstacle, unknown>();
  /** True once the service has begun to answer for any asset in this run, with enough time left to store it. */
  #hadTimeEnough = false;
  /** True once an asset had a slot in this run. */
  #hadSlot = false;
  /** After {@link OUTAGES_MAX} of them, the flow leaves its slots to others. */
  #outagesInARow = 0;

  constructor(flow: EndedFlow, ports: AssetPorts, tick: TickContext) {
    const { entry } = flow.stored;
    const now = ports.clock.now();
    const since = entry.unreadySince ?? now;
    const mayWait = now - since < UNREADY_MS && !isTooOld(ageFrom(entry.flow), ports, 2);
    this.#flow = flow;
    this.#entry = entry;
    this.#ports = ports;
    this.#tick = tick;
    this.#stored = new Map((entry.assets ?? []).map((asset) => [asset.id, asset]));
    this.#unreadySince = flow.failure === undefined && mayWait ? since : undefined;
  }

  /**
   * Stores the outputs of a flow and returns how it ended. Returns undefined if some are not ready. If the run is cut
   * off, the entry keeps what it has stored. A run that is cut off counts as an attempt if it had enough time and
   * stored nothing, because an answer may be endless. Beyond twice the maximum age, every run that stores nothing
   * counts. The second one ends the flow. A run that only waited for slots, or lost them to other flows, never counts.
   * @throws the error that cut the run off, or the error of an asset that must be tried again.
   */
  async collect(): Promise<Ending | undefined> {
    const flow = this.#flow;
    const entry = this.#entry;
    const obstacles = this.#obstacles;
    const { ledger, settings, clock } = this.#ports;
    const { work, closing } = this.#tick.invocation;
    const storedBefore = this.#stored.size;
    // Each run begins with another asset: one that takes all the time must not keep the others from being stored.
    const first = entry.attempts % Math.max(1, flow.outputs.length);
    const outputs = [...flow.outputs.slice(first), ...flow.outputs.slice(0, first)];
    await pMap(outputs, (output) => this.#collectOne(output), { concurrency: ASSET_CONCURRENCY });

    const isProgress = this.#stored.size > storedBefore;
    // A flow that only waited for its slots was not too slow.
    const isTooSlow = obstacles.has('cut off') && work.aborted && this.#hadTimeEnough && !isProgress;
    const now = clock.now();
    // The ticks may have paused for long. So the first run past `oldAfter` never ends the flow. A run that stores an
    // asset does not end it either.
    const oldAfter = tooOldAfter(ageFrom(entry.flow), settings, 2);
    const obstacle = OBSTACLES.find((each) => obstacles.has(each));
    const isOldInVain = now > oldAfter && !isProgress && this.#hadSlot && obstacle !== 'overtaken';
    const mustEnd = isOldInVain && (entry.attemptedAt ?? 0) > oldAfter;
    if (mustEnd || (isTooSlow && attemptsAfter(entry, true) >= settings.attemptsMax)) {
      const message = mustEnd
        ? `The flow is more than twice as old as the ${settings.flowAgeMaxSeconds} seconds allowed, and the last run stored no asset.`
        : 'The asset could not be fetched completely in several runs.';
      return this.#ending(message);
    }
    if (obstacle === undefined) return this.#ending();
    const isInVain = obstacles.has('refused') || isOldInVain;
    const isCounted = (isInVain && isSpaced(entry, now)) || isTooSlow;
    const told = work.aborted ? undefined : toldOf(obstacle, obstacles.get(obstacle), now);
    const unreadySince = obstacles.has('unready') ? this.#unreadySince : undefined;
    if (isProgress || isCounted || isNews(told, entry) || unreadySince !== entry.unreadySince) {
      const soFar = collectedSoFar(entry, [...this.#stored.values()], isCounted ? now : undefined, told);
      await ledger.replace(flow.stored, { ...soFar, unreadySince }, closing);
    }
    if (obstacle === 'unready') return undefined;
    throw obstacles.get(obstacle);
  }

  async #collectOne(output: Output): Promise<void> {
    const { assetId: id, status, error: reason } = output;
    const entry = this.#entry;
    if (this.#stored.has(id)) return;
    const fail = (code: OutputFailureCode, message: string) => this.#failed.set(id, { id, code, message });
    // Says until when a new collection can still fetch the asset.
    const kept = keptWords(this.#ports.settings.service);
    const leave = (obstacle: Obstacle, error: unknown) => {
      if (!this.#obstacles.has(obstacle)) this.#obstacles.set(obstacle, error);
    };
    if (status === 'failed') {
      fail('output-failed', reason ?? 'The service says that it failed.');
      return;
    }
    if (status === 'pending') {
      if (this.#unreadySince !== undefined) leave('unready', new NotReadyError(unreadyText(output)));
      else fail(output.isDeclared === false ? 'undeclared-word' : 'not-ready', unreadyText(output) + kept);
      return;
    }
    if (this.#obstacles.has('cut off') || this.#outagesInARow >= OUTAGES_MAX) {
      leave('outage', outOfService());
      return;
    }
    try {
      this.#stored.set(id, await this.#store(id));
      this.#outagesInARow = 0;
      this.#tick.isolation.assetAnswered();
    } catch (error) {
      if (error instanceof OvertakenError) leave('overtaken', error);
      else if (error instanceof FlowServiceError || error instanceof KeyTakenError) {
        const isOutage = outageOf(error) !== undefined;
        if (isOutage) this.#outagesInARow += 1;
        else this.#tick.isolation.assetAnswered();
        // A replica that does not know the flow does not know its assets either.
        const isUnknown =
          error instanceof NotFoundError && this.#tick.confirmations.isForgetful(this.#ports.clock.now());
        const isUnready = isUnknown || UNREADY.some((each) => error instanceof each);
        // A key that is taken is tried again too: the operator may move that object away before the last attempt.
        if (isOutage && !isTooOld(ageFrom(entry.flow), this.#ports)) leave('outage', error);
        else if (isUnready && this.#unreadySince !== undefined) leave('unready', error);
        else if (error instanceof AssetTooLargeError || (isUnready && entry.unreadySince) || this.#isLastAttempt)
          fail(outputCodeOf(error), error.message + kept);
        else leave('refused', error);
      } else leave('cut off', error);
    }
  }

  get #isLastAttempt(): boolean {
    const { clock, settings } = this.#ports;
    return isSpaced(this.#entry, clock.now()) && attemptsAfter(this.#entry, true) >= settings.attemptsMax;
  }

  /** @param outOfTime the message for assets that are neither stored nor failed yet. Not needed if there are none. */
  #ending(outOfTime = ''): Ending {
    const flow = this.#flow;
    const { telemetry } = this.#ports;
    const assets: StoredAsset[] = [];
    const failedOutputs: FailedOutput[] = [];
    // In the order of the listing, however many runs stored them.
    for (const { assetId: id } of flow.outputs) {
      const asset = this.#stored.get(id);
      if (asset !== undefined) assets.push(asset);
      else failedOutputs.push(this.#failed.get(id) ?? failedOutput(id, 'out-of-time', outOfTime));
    }
    const beyond = flow.outputCount - flow.outputs.length;
    if (beyond > 0) {
      const message = `${beyond} outputs beyond the limit of ${flow.outputs.length} were not stored.`;
      failedOutputs.push(failedOutput('', 'too-many-outputs', message));
    }
    if (failedOutputs.length > 0) telemetry.metrics.add('AssetsFailed', failedOutputs.length);
    const isNothingStored = assets.length === 0 && failedOutputs.length > 0;
    const failure: KnownFailure | undefined =
      flow.failure ?? (isNothingStored ? { code: 'outputs-failed', message: 'No output could be stored.' } : undefined);
    return { assets, failedOutputs, failure };
  }

  async #store(assetId: string): Promise<StoredAsset> {
    const { results, telemetry, clock, settings } = this.#ports;
    const { invocation, slots } = this.#tick;
    const fetch = async (slot: AssetSlot) => {
      // The flow may have met outages while this asset waited for its slot.
      if (this.#outagesInARow >= OUTAGES_MAX) throw outOfService();
      this.#hadSlot = true;
      this.#tick.ended.note(this.#entry.upload.id, clock.now());
      const opened = await this.#open(assetId, slot);
      this.#hadTimeEnough ||= !isHalfOver(invocation, clock.now());
      const { key, mediaType } = opened.to;
      return { key, mediaType, ...(await results.store(opened, slot)) };
    };
    const { key, bytes, mediaType, ...facts } = await slots.run(this.#entry.upload.id, invocation.work, fetch);
    telemetry.metrics.add('AssetsStored');
    telemetry.metrics.add('AssetBytes', bytes);
    return { id: assetId, bucket: settings.resultsBucket, key, bytes, mediaType, ...facts };
  }

  async #open(assetId: string, slot: AssetSlot): Promise<OpenedAsset> {
    const entry = this.#entry;
    const { flows, settings } = this.#ports;
    const flowId = entry.flow.id;
    const { template } = entry.route;
    const { makes } = presentRouteOf(entry, settings.routes) ?? {};
    const accepts = makes && ((mediaType: string) => makes.some((wanted) => fitsType(wanted, mediaType)));
    const options = { accepts, onSent: () => slot.begin(), uploadId: entry.upload.id, template };
    const { mediaType, chunks, bytesMax } = await flows.asset(flowId, assetId, slot.signal, options);
    const key = assetKey(settings, { key: entry.upload.key, flowId, assetId, mediaType });
    const templateId = encodedId(template);
    const metadata = {
      [UPLOAD_METADATA]: entry.upload.id,
      [FLOW_METADATA]: encodedId(flowId),
      [ASSET_METADATA]: encodedId(assetId),
      ...(templateId.length <= TEMPLATE_METADATA_BYTES_MAX ? { 'flowdrop-template': templateId } : {}),
    };
    // What a later stage may take gets its tag for expiry only when the whole chain has ended.
    const isTaken = (planOf(entry, settings.routes) ?? []).length > 0;
    const expires = settings.resultsRetentionDays !== undefined && !isTaken;
    return { to: { key, mediaType, metadata, expires }, chunks, bytesMax };
  }
}

/** Returns true if the last counted attempt is long enough ago for another one to count. */
const isSpaced = ({ attemptedAt }: RunningEntry, now: number): boolean =>
  now - (attemptedAt ?? Number.NEGATIVE_INFINITY) >= COUNTED_GAP_MS;

/** What keeps an asset from being stored, for the operator. Undefined for an asset that only waits for a slot. */
function toldOf(obstacle: Obstacle, error: unknown, at: number): Told | undefined {
  if (obstacle === 'overtaken') return undefined;
  const { name, message } = error instanceof Error ? error : { name: 'Error', message: String(error) };
  const isInWords = error instanceof FlowServiceError || error instanceof KeyTakenError;
  return { message: isInWords ? message : `The asset could not be stored: ${name}: ${message}`, at };
}

/** True if the entry must be written to tell of a new obstacle. For that alone, it is written once a minute at most. */
function isNews(told: Told | undefined, { obstacle }: RunningEntry): boolean {
  if (told === undefined || obstacle === undefined) return told !== undefined;
  return shorten(told.message, MESSAGE_CHARS_MAX) !== obstacle.message && told.at - obstacle.at >= COUNTED_GAP_MS;
}

/** What keeps an output from being ready, in words. */
function unreadyText({ assetId, word, isDeclared }: Output): string {
  const which = assetId === '' ? 'An output without an id' : `The output ${assetId}`;
  const shown = word === undefined ? 'without a word for its state' : `as "${word}"`;
  const why = isDeclared === false ? `, ${word === undefined ? 'which' : 'a word that'} ${UNDECLARED}` : '';
  return `${which} is not ready: the service shows it ${shown}${why}.`;
}

const failedOutput = (id: string, code: OutputFailureCode, message: string): FailedOutput => ({ id, code, message });
