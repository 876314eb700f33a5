import type { Clock } from '../base/clock.ts';
import { type Invocation, OutOfTimeError } from '../base/invocation.ts';
import type { Log, MetricName, Telemetry } from '../base/telemetry.ts';
import { FlowServiceError, UnauthorisedError } from '../flow-service/errors.ts';
import type { FlowService } from '../flow-service/types.ts';
import {
  type ClaimedEntry,
  claimAgain,
  doubtful,
  type Entry,
  ended,
  type Failure,
  firstClaim,
  flowTagOf,
  isSuspect,
  nextStep,
  rerouted,
  running,
  type TerminalEntry,
  type Wait,
  type WaitingEntry,
  waiting,
  waitingMarkerOf,
  withoutDoubt,
} from '../ledger/entry.ts';
import type { Ledger, Stored } from '../ledger/store.ts';
import { type PublishPorts, publish } from '../publish/publish.ts';
import type { Settings } from '../settings/config.ts';
import { type Inbox, isInside, type OpenedUpload, UploadGoneError } from '../uploads/inbox.ts';
import { InvalidOverrideError, mayMatch, type RouteSnapshot, routeFor, snapshot } from '../uploads/routes.ts';
import { isFolderMarker, type Upload, type UploadEvent, uploadId } from '../uploads/upload.ts';
import { ATTEMPT_TIME_MIN_MS, backoffMs, classify, isListingInVain } from './retry-policy.ts';

/** Time beyond the hard end of an invocation for which its claim still holds, in milliseconds. */
export const CLAIM_MARGIN_MS = 60_000;

/** Longest wait, all told, that happens in place rather than in the ledger, in milliseconds. */
export const IN_PLACE_WAIT_MAX_MS = 20_000;

/** Time after the last byte of a request before a flow that is not listed may be called absent, in milliseconds. */
export const ABSENT_AFTER_MS = 5 * 60_000;

/** How often an upload whose doubt is held looks for its flow again, in milliseconds. */
const HELD_WAIT_MS = 60 * 60_000;

/** How often an entry may change hands under one delivery before the delivery gives way. */
const CHANGES_MAX = 5;

/** Another invocation holds the claim. The message must not be deleted: should that one die, it is all there is. */
export class ClaimHeldError extends Error {
  override readonly name = 'ClaimHeldError';
}

export type Outcome =
  | 'created'
  | 'adopted'
  | 'orphaned'
  | 'failed'
  | 'waiting'
  | 'running already'
  | 'ended already'
  | 'unrouted'
  | 'skipped'
  | 'gone'
  | 'put off';

/** Asked before an upload is taken over whose last claim died. False puts it off: nothing is done to it. */
export type MayTakeOver = (entry: ClaimedEntry | WaitingEntry) => boolean;

export interface CreatePorts extends PublishPorts {
  readonly inbox: Inbox;
  readonly ledger: Ledger;
  readonly flows: FlowService;
  readonly clock: Clock;
  readonly settings: Settings;
}

/**
 * One upload becomes at most one flow. Safe to run again after any failure, at any point; it settles only when every
 * request that it made is settled or destroyed.
 * @throws {ClaimHeldError} and whatever S3 throws: then the message must come again.
 */
export async function createFlow(
  event: UploadEvent,
  ports: CreatePorts,
  invocation: Invocation,
  mayTakeOver: MayTakeOver = () => true,
): Promise<Outcome> {
  const creation = new Creation(ports, invocation, event, mayTakeOver);
  try {
    return await creation.run(event);
  } catch (error) {
    creation.log.error('This upload must come again', { error: error as Error });
    throw error;
  }
}

class Creation {
  readonly #ports: CreatePorts;
  readonly #invocation: Invocation;
  readonly #mayTakeOver: MayTakeOver;
  #telemetry: Telemetry;

  constructor(ports: CreatePorts, invocation: Invocation, event: UploadEvent, mayTakeOver: MayTakeOver) {
    this.#ports = ports;
    this.#invocation = invocation;
    this.#mayTakeOver = mayTakeOver;
    this.#telemetry = { ...ports.telemetry, log: ports.telemetry.log.with({ key: event.key }) };
  }

  /** Its lines say which upload and, once there is one, which flow. */
  get log(): Log {
    return this.#telemetry.log;
  }

  async run(event: UploadEvent): Promise<Outcome> {
    const { inbox, ledger, settings } = this.#ports;
    if (event.uploadId !== undefined) {
      const known = await ledger.read(event.uploadId, this.#invocation.work);
      if (known !== undefined) return this.#resume(known);
    }
    this.#count('UploadsReceived');
    if (isFolderMarker(event)) return this.#leave('skipped', 'UploadsSkipped', 'A folder, not a file');
    // A result that came back as an upload would go round for ever.
    if (event.bucket !== settings.inboxBucket) {
      const known = await this.#knownByVersion(event);
      if (known !== undefined) return this.#resume(known);
      return this.#leave('unrouted', 'UploadsUnrouted', `An object of another bucket than the inbox: ${event.bucket}`);
    }
    if (!event.key.startsWith(settings.inboxPrefix) || !mayMatch(settings.routes, event.key)) return this.#unrouted();

    let object: OpenedUpload;
    try {
      object = await inbox.open(event, this.#invocation.work);
    } catch (error) {
      if (!(error instanceof UploadGoneError)) throw error;
      return this.#leave('gone', 'UploadsReplaced', 'Replaced or deleted since; a newer upload has its own event');
    }
    try {
      return await this.#begin(object);
    } finally {
      object.discard();
    }
  }

  /** The entry of an upload from before the inbox was replaced by another bucket. Its version tells which one. */
  async #knownByVersion({ bucket, key, versionId }: UploadEvent): Promise<Stored | undefined> {
    if (versionId === undefined) return undefined;
    const id = uploadId({ bucket, key, versionId, etag: '', lastModified: 0 });
    return this.#ports.ledger.read(id, this.#invocation.work);
  }

  /** An upload of which the ledger is not known to have an entry. */
  async #begin(object: OpenedUpload): Promise<Outcome> {
    const { ledger, settings, clock } = this.#ports;
    const { upload } = object;
    const routed = this.#routed(object);
    if (routed === undefined) return this.#unrouted();

    const { route, failure } = routed;
    const now = clock.now();
    const claim = firstClaim(upload, route, now, this.#claimDeadline(), settings.pipeline);
    const entry = failure === undefined ? claim : ended(claim, { failure }, now);
    const written = await ledger.create(entry, this.#invocation.work);
    if (!written.won) {
      if (written.current === undefined) throw new ClaimHeldError(`The entry of upload ${upload.id} came and went`);
      return this.#resume(written.current, object);
    }
    if (written.stored.entry.state === 'failed') return this.#published(written.stored.entry);
    return this.#send(written.stored as Stored<ClaimedEntry>, object);
  }

  /** An upload that has an entry: whatever the entry says comes next. */
  async #resume(stored: Stored, object?: OpenedUpload): Promise<Outcome> {
    const { ledger, clock, settings } = this.#ports;
    this.#identify(stored);
    for (let changes = 0; changes < CHANGES_MAX; changes += 1) {
      const { entry } = stored;
      switch (nextStep(entry, clock.now())) {
        case 'publish-again':
          await publish(entry as TerminalEntry, this.#ports, this.#invocation.closing);
          return 'ended already';
        case 'restore-marker':
          if (entry.state === 'running') await this.#putRunningMarker(entry.upload, entry.flow);
          return 'running already';
        case 'leave-to-its-claim':
          throw new ClaimHeldError(`Another invocation holds the claim on upload ${entry.upload.id}`);
        case 'wait-on':
          await this.#putWaitingMarker(entry);
          return 'waiting';
        case 'take-over': {
          if (entry.state !== 'claimed' && entry.state !== 'waiting') break;
          if (isSuspect(entry) && !this.#mayTakeOver(entry)) return 'put off';
          const claim = claimAgain(entry, clock.now(), this.#claimDeadline(), settings.pipeline);
          const written = await ledger.replace(stored, claim, this.#invocation.work);
          if (written.won) return this.#takeOver(written.stored, object);
          if (written.current === undefined) throw new ClaimHeldError(`The entry of ${entry.upload.id} is gone`);
          stored = written.current;
        }
      }
    }
    throw new ClaimHeldError(`The entry of upload ${stored.entry.upload.id} changed hands ${CHANGES_MAX} times`);
  }

  /** A claim that was taken over: any doubt that came with it is settled before anything is sent. */
  async #takeOver(claim: Stored<ClaimedEntry>, object?: OpenedUpload): Promise<Outcome> {
    const { doubt } = claim.entry;
    if (doubt !== undefined) {
      const settled = await this.#settleDoubt(claim);
      if (typeof settled === 'string') return settled;
      claim = settled;
    }
    const { attempts, upload } = claim.entry;
    if (attempts >= this.#ports.settings.attemptsMax) {
      return this.#fail(claim, { code: 'attempts-exhausted', message: `Gave up after ${attempts} attempts.` });
    }
    const notBefore = doubt?.nextAttemptAt ?? 0;
    if (notBefore > this.#ports.clock.now()) {
      const message = 'The last attempt got no response, and no flow of it was found. The next attempt comes then.';
      return this.#wait(claim, { reason: 'unavailable', message, counted: false, notBefore });
    }
    const { settings } = this.#ports;
    if (!isInside(settings, upload)) {
      const message = `The file is in ${upload.bucket}, and the inbox is ${settings.inboxBucket}/${settings.inboxPrefix} now.`;
      return this.#fail(claim, { code: 'outside-inbox', message });
    }
    if (object !== undefined) return this.#sendIfFit(claim, object);
    let opened: OpenedUpload;
    try {
      opened = await this.#ports.inbox.open(upload, this.#invocation.work);
    } catch (error) {
      return this.#handleFailure(claim, error);
    }
    try {
      return await this.#sendIfFit(claim, opened);
    } finally {
      opened.discard();
    }
  }

  /** Sends an upload once more, if it passes the checks of today. A retried failure takes the route of today first. */
  async #sendIfFit(claim: Stored<ClaimedEntry>, object: OpenedUpload): Promise<Outcome> {
    let failure: Failure | undefined;
    if (claim.entry.reroute) {
      const routed = this.#routed(object);
      if (routed === undefined) {
        return this.#fail(claim, {
          code: 'unrouted',
          message: 'No route of the present configuration wants this file.',
        });
      }
      failure = routed.failure;
      // The entry must name the route of a request before the request is sent.
      const written = await this.#ports.ledger.replace(
        claim,
        rerouted(claim.entry, routed.route),
        this.#invocation.work,
      );
      if (!written.won) throw new ClaimHeldError(`Another invocation took upload ${claim.entry.upload.id}`);
      claim = written.stored;
    } else failure = this.#failureOf(object, claim.entry.route.input);
    return failure === undefined ? this.#send(claim, object) : this.#fail(claim, failure);
  }

  /** Sends the upload under a claim that is ours and free of doubt. */
  async #send(claim: Stored<ClaimedEntry>, object: OpenedUpload): Promise<Outcome> {
    this.#identify(claim);
    const { flows, clock, settings } = this.#ports;
    const { upload, route } = claim.entry;
    const tag = flowTagOf(claim.entry, settings.pipeline);
    const { template, parameters, additional } = route;
    const { bucket, key, versionId, mediaType } = upload;
    const input = {
      as: route.input,
      mediaType,
      source: object.source,
      additional: { bucket, key, ...(versionId === undefined ? {} : { versionId }) },
    };
    const startBy = this.#invocation.workEndsAt - ATTEMPT_TIME_MIN_MS;
    for (let waitedMs = 0; ; ) {
      try {
        const request = { template, parameters, additional, tag, startBy, input };
        const { flowId } = await flows.create(request, this.#invocation.work);
        // The next write may fail, and then this line is all that tells of the flow.
        this.#telemetry.log.info('The service has made a flow', { flowId });
        this.#count('FlowsCreated');
        this.#count('InputBytes', upload.bytes);
        return await this.#commit(claim, flowId, 'created');
      } catch (error) {
        const decision = classify(error, claim.entry, clock.now());
        // A throttled creation has been waiting in place already, for as long as it may.
        if (decision?.kind !== 'wait' || decision.reason === 'throttled') return this.#handleFailure(claim, error);
        const { delayMs } = decision;
        const attempts = claim.entry.attempts + (decision.counted ? 1 : 0);
        const inPlace =
          waitedMs + delayMs <= IN_PLACE_WAIT_MAX_MS &&
          clock.now() + delayMs + ATTEMPT_TIME_MIN_MS <= this.#invocation.workEndsAt &&
          attempts < settings.attemptsMax;
        if (!inPlace) return this.#handleFailure(claim, error);
        this.#telemetry.log.info('Trying again in place', { reason: decision.reason, delayMs });
        claim = { ...claim, entry: { ...claim.entry, attempts, waits: claim.entry.waits + 1 } };
        waitedMs += delayMs;
        try {
          await clock.sleep(delayMs, this.#invocation.work);
        } catch (outOfTime) {
          return this.#handleFailure(claim, outOfTime);
        }
      }
    }
  }

  /** A claim whose sending failed goes on as its error says: it fails, waits, or is in doubt. */
  async #handleFailure(claim: Stored<ClaimedEntry>, error: unknown): Promise<Outcome> {
    const { clock, settings } = this.#ports;
    const now = clock.now();
    const decision = classify(error, claim.entry, now);
    if (decision === undefined) throw error;
    if (error instanceof UnauthorisedError) this.#count('TokenRejected');
    this.#telemetry.log.warn('The upload could not be sent', { decision: decision.kind, error: error as Error });
    switch (decision.kind) {
      case 'fail':
        return this.#fail(claim, decision.failure);
      case 'doubt': {
        const nextAttemptAt = now + decision.delayMs;
        const doubt = doubtful(claim.entry, now, nextAttemptAt);
        const attempts = claim.entry.attempts + (decision.counted ? 1 : 0);
        const doubted = { ...claim, entry: { ...claim.entry, doubt, attempts } };
        // The flow may be listed already, and then nobody has to wait.
        const settled = await this.#settleDoubt(doubted);
        if (typeof settled === 'string') return settled;
        // Only a process that was frozen for minutes gets here: the doubt is over, the time of this claim may be too.
        const message = messageOf(error);
        return this.#wait(settled, { reason: 'unavailable', message, counted: false, notBefore: nextAttemptAt });
      }
      case 'wait': {
        const { reason, counted, delayMs } = decision;
        const message = messageOf(error);
        if (counted && claim.entry.attempts + 1 >= settings.attemptsMax) {
          return this.#fail(claim, { code: 'attempts-exhausted', message: `The last attempt: ${message}` });
        }
        return this.#wait(claim, { reason, message, counted, notBefore: now + delayMs });
      }
    }
  }

  /**
   * Looks for the flow that an earlier POST may have made. The claim comes back, free of doubt, where there is none
   * or where the setting accepts the risk; an outcome comes back where the upload is dealt with.
   */
  async #settleDoubt(claim: Stored<ClaimedEntry>): Promise<Stored<ClaimedEntry> | Outcome> {
    const { flows, clock, settings } = this.#ports;
    const { entry } = claim;
    const doubt = entry.doubt;
    if (doubt === undefined) return claim;
    const conclusiveAt = doubt.sentBy + ABSENT_AFTER_MS;
    let found: Awaited<ReturnType<FlowService['find']>>;
    try {
      const { ledger } = this.#ports;
      const { work } = this.#invocation;
      const hasFlowFrom = (before: number): Promise<boolean> => ledger.hasFlowFrom(before, work);
      found = await flows.find(flowTagOf(entry, settings.pipeline), doubt.claimedAt, work, hasFlowFrom);
    } catch (error) {
      if (!(error instanceof FlowServiceError) && !(error instanceof OutOfTimeError)) throw error;
      if (error instanceof UnauthorisedError) this.#count('TokenRejected');
      if (!isListingInVain(error, clock.now() - conclusiveAt)) {
        const askAgainAt = Math.max(conclusiveAt, clock.now() + backoffMs(entry));
        const message = messageOf(error);
        return this.#wait(claim, { reason: 'in-doubt', message, counted: false, notBefore: askAgainAt });
      }
      found = { result: 'unknown', why: messageOf(error) };
    }
    if (found.result === 'found') {
      this.#count('FlowsAdopted');
      return this.#commit(claim, found.flow.flowId, 'adopted');
    }
    if (clock.now() < conclusiveAt) {
      const message = 'The service may have made a flow and did not say so; it is looked for in its listing.';
      return this.#wait(claim, { reason: 'in-doubt', message, counted: false, notBefore: conclusiveAt });
    }
    if (found.result === 'unknown') {
      if (settings.inDoubt === 'hold') {
        this.#count('DoubtsHeld');
        const message = `Whether a flow exists cannot be told (${found.why}); held for a person's word.`;
        return this.#wait(claim, { reason: 'held', message, counted: false, notBefore: clock.now() + HELD_WAIT_MS });
      }
      this.#count('DoubtsRetried');
      this.#telemetry.log.warn('Sent again although a flow may exist', { why: found.why });
    }
    return { ...claim, entry: withoutDoubt(entry) };
  }

  /** The entry commits, the marker follows. If another invocation took the entry over, our flow is an orphan. */
  async #commit(
    claim: Stored<ClaimedEntry> | Stored<WaitingEntry>,
    flowId: string,
    outcome: 'created' | 'adopted',
  ): Promise<Outcome> {
    const { ledger, clock } = this.#ports;
    this.#telemetry = { ...this.#telemetry, log: this.#telemetry.log.with({ flowId }) };
    const flow = { id: flowId, createdAt: clock.now() };
    const written = await ledger.replace(claim, running(claim.entry, flow), this.#invocation.closing);
    if (written.won) {
      await this.#putRunningMarker(claim.entry.upload, flow);
      this.#telemetry.log.info(`Flow ${outcome}`, { template: claim.entry.route.template });
      return outcome;
    }
    return this.#yield(claim.entry, written.current, flowId, outcome);
  }

  /** Somebody took the upload over while its flow was being made. */
  async #yield(
    mine: ClaimedEntry | WaitingEntry,
    current: Stored | undefined,
    flowId: string,
    outcome: 'created' | 'adopted',
  ): Promise<Outcome> {
    const { flows } = this.#ports;
    const theirs = current?.entry;
    // They wait to find out whether there is a flow: here it is.
    if (theirs?.state === 'waiting' && theirs.generation === mine.generation) {
      return this.#commit(current as Stored<WaitingEntry>, flowId, outcome);
    }
    // They are at work on it, and will find the flow by its tag; aborting it would take it from under them.
    if (theirs?.state === 'claimed') throw new ClaimHeldError(`Another invocation took over upload ${mine.upload.id}`);
    if (theirs?.state === 'running' && theirs.flow.id === flowId) {
      await this.#putRunningMarker(theirs.upload, theirs.flow);
      return 'running already';
    }
    this.#count('FlowsOrphaned');
    this.#telemetry.log.warn('Another invocation took this upload over: its flow is orphaned and is aborted');
    try {
      const aborted = await flows.abort(flowId, this.#invocation.closing);
      if (!aborted) this.#telemetry.log.warn('The orphaned flow could not be aborted');
    } catch (error) {
      if (!(error instanceof FlowServiceError)) throw error;
      this.#telemetry.log.warn('The orphaned flow could not be aborted', { error });
    }
    return 'orphaned';
  }

  async #fail(claim: Stored<ClaimedEntry>, failure: Failure): Promise<Outcome> {
    const { ledger, clock } = this.#ports;
    const terminal = ended(claim.entry, { failure }, clock.now());
    const written = await ledger.replace(claim, terminal, this.#invocation.closing);
    if (!written.won) throw new ClaimHeldError(`Another invocation took over upload ${claim.entry.upload.id}`);
    return this.#published(terminal);
  }

  async #published(entry: TerminalEntry): Promise<Outcome> {
    this.#count('FlowsFailed');
    await publish(entry, this.#ports, this.#invocation.closing);
    return 'failed';
  }

  async #wait(claim: Stored<ClaimedEntry>, wait: Wait): Promise<Outcome> {
    const { ledger } = this.#ports;
    const written = await ledger.replace(claim, waiting(claim.entry, wait), this.#invocation.closing);
    if (!written.won) throw new ClaimHeldError(`Another invocation took over upload ${claim.entry.upload.id}`);
    await this.#putWaitingMarker(written.stored.entry);
    this.#count('UploadsWaiting');
    this.#telemetry.log.info('The upload waits', {
      reason: wait.reason,
      notBefore: new Date(wait.notBefore).toISOString(),
    });
    return 'waiting';
  }

  #putRunningMarker(upload: Upload, flow: { readonly id: string; readonly createdAt: number }): Promise<void> {
    const marker = { createdAt: flow.createdAt, uploadId: upload.id, flowId: flow.id };
    return this.#ports.ledger.putRunningMarker(marker, this.#invocation.closing);
  }

  async #putWaitingMarker(entry: Entry): Promise<void> {
    const marker = waitingMarkerOf(entry);
    if (marker !== undefined) await this.#ports.ledger.putWaitingMarker(marker, this.#invocation.closing);
  }

  /** The route of today that wants an upload, and what stands against sending it. Undefined if no route wants it. */
  #routed(object: OpenedUpload): { readonly route: RouteSnapshot; readonly failure: Failure | undefined } | undefined {
    const route = routeFor(this.#ports.settings.routes, object.upload);
    if (route === undefined) return undefined;
    try {
      return { route: snapshot(route, object.metadata), failure: this.#failureOf(object, route.input) };
    } catch (error) {
      if (!(error instanceof InvalidOverrideError)) throw error;
      return { route: snapshot(route, {}), failure: { code: error.code, message: error.message } };
    }
  }

  #failureOf({ upload, isArchived }: OpenedUpload, input: 'file' | 'text'): Failure | undefined {
    const { inputBytesMax, textBytesMax } = this.#ports.settings;
    if (isArchived) {
      return { code: 'input-archived', message: 'The file is in an archive storage class: have it restored first.' };
    }
    const bytesMax = input === 'text' ? Math.min(textBytesMax, inputBytesMax) : inputBytesMax;
    if (upload.bytes === 0) return { code: 'input-empty', message: 'The file is empty.' };
    if (upload.bytes <= bytesMax) return undefined;
    return {
      code: 'input-too-large',
      message: `The file has ${upload.bytes} bytes, and at most ${bytesMax} are sent as ${input}.`,
    };
  }

  #claimDeadline(): number {
    return this.#invocation.endsAt + CLAIM_MARGIN_MS;
  }

  #identify({ entry }: Stored): void {
    this.#telemetry = { ...this.#telemetry, log: this.#telemetry.log.with({ uploadId: entry.upload.id }) };
  }

  #unrouted(): Outcome {
    return this.#leave('unrouted', 'UploadsUnrouted', 'No route wants this upload');
  }

  #leave(outcome: Outcome, metric: MetricName, message: string): Outcome {
    this.#count(metric);
    this.#telemetry.log.info(message);
    return outcome;
  }

  #count(metric: MetricName, value?: number): void {
    this.#telemetry.metrics.count(metric, value);
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
