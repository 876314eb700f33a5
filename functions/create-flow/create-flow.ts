import { iso } from '../base/clock.ts';
import { type Invocation, isHalfOver } from '../base/invocation.ts';
import { counted } from '../base/printable.ts';
import type { MetricName } from '../base/telemetry.ts';
import { copiedEntry, copyWords, currentUpload, entryOfGone } from '../ledger/copies.ts';
import {
  type ClaimedEntry,
  claimAgain,
  ended,
  firstClaim,
  isDispatchedAlike,
  isJob,
  isSuspect,
  isWaitingJob,
  nextStep,
  planned,
  rerouted,
  settled,
  toBeReviewed,
  unsent,
  unsettled,
  type Wait,
  waiting,
} from '../ledger/entry.ts';
import { isDamaged, type Stored, UnreadableEntryError } from '../ledger/store.ts';
import { SUPERSEDED } from '../ledger/terminal-states.ts';
import { keptFrom, REVIEW_MAX_MS } from '../ledger/waits.ts';
import { laterRoute, planAfter } from '../uploads/chain-routes.ts';
import { isInside } from '../uploads/inbox.ts';
import { awaitedInputs, InvalidJobError, type Job, readJob } from '../uploads/job.ts';
import { isJobFile } from '../uploads/job-keys.ts';
import { jobFilesFor } from '../uploads/job-routes.ts';
import type { OpenedUpload } from '../uploads/opened-upload.ts';
import type { JobsRoute } from '../uploads/route.ts';
import { snapshot } from '../uploads/route-snapshot.ts';
import { jobsRouteOf, mayMatch, routeByKey, routeFor, whySkipped } from '../uploads/routes.ts';
import { firstOf, putAt, type Upload } from '../uploads/upload.ts';
import { UploadDeniedError, UploadGoneError, UploadUnreadableError } from '../uploads/upload-errors.ts';
import { isFolderMarker, type UploadEvent } from '../uploads/upload-event.ts';
import { ARCHIVED, inputFailure, type Routed, routed } from './admission.ts';
import { type Claim, claimFirst, claimOver, isKeyGood, leadBackTo, rewritten } from './claim.ts';
import { type Batch, ClaimHeldError, type CreatePorts, Delivery, type Outcome } from './delivery.ts';
import { settleDoubt } from './doubt.ts';
import { conclude, type Ending, failing } from './ending.ts';
import { hasNewInputs, jobFor, sendJob } from './job.ts';
import { ATTEMPTS_EXHAUSTED, backoffMs, lastAnswerOf, MISADDRESSED } from './retry-policy.ts';
import { endingOf, send } from './send.ts';

/** Maximum number of older job files of a key that are looked at when a newer one comes. */
const OLDER_JOBS_MAX = 10;

/** How long to wait for the content of an empty file, in milliseconds. */
const EMPTY_SETTLE_MS = 5_000;

/** Maximum number of changes by other invocations that one delivery follows. After that, its message comes again. */
const CHANGES_MAX = 5;

/**
 * Makes at most one flow of an upload, unless a doubt cannot be settled. Safe to run again after any failure, at any
 * point. When its promise settles, each request that it made has ended.
 *
 *   event ─▶ no entry ──▶ open, route, claim ─────────────────────────────▶ send
 *                        (a job: when its inputs are there)                  ▲
 *        ─▶ entry ─────▶ ended: publish again                                │
 *                        running: put the marker again                       │
 *                        claimed, not due: leave the message                 │
 *                        waiting, not due: put the marker again              │
 *                        claimed or waiting, due: take over ─▶ settle doubt ─┘
 *
 * @throws {ClaimHeldError} and any error of S3. The message must come again then.
 */
export async function createFlow(
  event: UploadEvent,
  ports: CreatePorts,
  invocation: Invocation,
  batch: Batch,
): Promise<Outcome> {
  const delivery = new Delivery(event, ports, invocation, batch);
  try {
    return await conclude(delivery, await receive(delivery));
  } catch (error) {
    if (error instanceof ClaimHeldError) {
      delivery.log.info('Another invocation is at work on this upload. The queue delivers the message again.', {
        error,
      });
    } else {
      delivery.count('UploadsReturned');
      delivery.log.error('This delivery failed. The queue delivers the message again.', { error: error as Error });
    }
    throw error;
  }
}

async function receive(delivery: Delivery): Promise<Ending> {
  const { event } = delivery;
  const { ledger, settings } = delivery.ports;
  const { work } = delivery.invocation;
  if (event.uploadId !== undefined) {
    delivery.identify({ uploadId: event.uploadId });
    const known = await ledger.read(event.uploadId, work);
    if (known !== undefined) return resume(delivery, known);
  }
  const owner = event.bucket === settings.inboxBucket ? jobsRouteOf(settings.routes, event.key) : undefined;
  if (owner !== undefined && !isJobFile(event.key) && !isFolderMarker(event))
    return receiveInput(delivery, event, owner);
  delivery.count('UploadsReceived');
  // A result that is taken for an upload would start an endless loop.
  if (event.bucket !== settings.inboxBucket) {
    return unrouted(`An object of another bucket than the inbox: ${event.bucket}`);
  }
  if (!isInside(settings, event)) return unrouted();
  const skipped = whySkipped(settings.routes, event);
  if (skipped !== undefined) return leave('skipped', 'UploadsSkipped', skipped);
  if (!mayMatch(settings.routes, event.key)) return unrouted();

  return openAndBegin(delivery, event);
}

/**
 * Handles a file below the prefix of a jobs route. It is no upload by itself. Each job that may wait for it looks for
 * its own inputs. If that fails for one job, the other jobs still look, and the message of the file comes again. A job
 * with a damaged entry is left out, because another delivery would change nothing.
 */
async function receiveInput(delivery: Delivery, event: UploadEvent, owner: JobsRoute): Promise<Ending> {
  const { settings } = delivery.ports;
  const failures: { readonly uploadId: string | undefined; readonly error: unknown }[] = [];
  for (const jobKey of jobFilesFor(event.key, owner.jobs)) {
    // The prefix of jobs may be shorter than that of the inbox.
    if (!isInside(settings, { bucket: event.bucket, key: jobKey })) continue;
    try {
      const job = await jobFor(delivery, event, jobKey);
      if (job !== undefined) await conclude(delivery, await resume(delivery, job));
    } catch (error) {
      if (isDamaged(error)) {
        // Another delivery would change nothing. The tick that follows the job's own marker reports it.
        delivery.log.error('A job of this file has a damaged entry, and is not told of the file', { error });
      } else failures.push({ uploadId: delivery.uploadId, error });
    } finally {
      delivery.identify({ uploadId: undefined });
    }
  }
  const failed = failures.find(({ error }) => !(error instanceof ClaimHeldError)) ?? failures[0];
  if (failed !== undefined) {
    delivery.identify({ uploadId: failed.uploadId });
    throw failed.error;
  }
  return { kind: 'leave', outcome: 'input', message: 'An input of jobs, or a file that no job names' };
}

async function openAndBegin(delivery: Delivery, event: UploadEvent): Promise<Ending> {
  let object: OpenedUpload;
  try {
    object = await delivery.ports.inbox.open(event, delivery.invocation.work);
  } catch (error) {
    if (error instanceof UploadDeniedError) return beginDenied(delivery, error);
    if (!(error instanceof UploadGoneError)) throw error;
    // An earlier invocation may have sent the object and died. This message leads to the entry sooner than the sweep.
    const { currentAt, versionId, etag } = event;
    const isNamed = currentAt !== undefined && (versionId ?? etag) !== undefined;
    const { ledger } = delivery.ports;
    const known = isNamed ? await entryOfGone(event, currentAt, ledger, delivery.invocation.work) : undefined;
    if (known !== undefined) return resume(delivery, known);
    return leave('gone', 'UploadsReplaced', `${error.message}. A newer upload has its own event.`);
  }
  try {
    // An object may be a copy of the one before it in two cases. The sweep found it without an entry. Or it is newer
    // than its event: without versions, the event may have been about an earlier object with the same content.
    const isLater = object.upload.lastModified > (event.currentAt ?? Number.POSITIVE_INFINITY);
    const mayBeCopy = event.isCopy ?? (event.uploadId !== undefined || isLater);
    // The sweep may have set `currentAt` long after the file was put. So LastModified is taken instead.
    const { lastModified, currentAt = lastModified } = object.upload;
    return await begin(delivery, object, mayBeCopy, event.uploadId === undefined ? currentAt : lastModified);
  } finally {
    object.discard();
  }
}

/**
 * Claims an upload that may have no entry yet.
 * @param mayBeCopy true if its content may be that of the upload before it at this key.
 * @param changedAt when its key last changed, in milliseconds since the epoch.
 */
async function begin(delivery: Delivery, object: OpenedUpload, mayBeCopy: boolean, changedAt: number): Promise<Ending> {
  const { upload } = object;
  const { settings } = delivery.ports;
  delivery.identify({ uploadId: upload.id });
  const skipped = whySkipped(settings.routes, upload);
  if (skipped !== undefined) return leave('skipped', 'UploadsSkipped', skipped);
  const chosen = await routed(settings, object, delivery.invocation.work);
  if (chosen === undefined) return unrouted();

  const { route, failure, job } = chosen;
  const isNew = async () => (await delivery.ports.ledger.read(upload.id, delivery.invocation.work)) === undefined;
  // Somebody may replay old events. The entry of such an upload may have expired, so it is not sent.
  const { uploadId, currentAt = Number.POSITIVE_INFINITY } = delivery.event;
  if (uploadId === undefined && currentAt < keptFrom(settings, delivery.ports.clock.now()) && (await isNew())) {
    return leave('skipped', 'UploadsSkipped', `Its event is from ${iso(currentAt)}: its entry may have expired.`);
  }
  const wait = settlingOf(delivery, upload, changedAt);
  if (wait === undefined && upload.bytes === 0 && (await isReplacedSoon(delivery, upload)) && (await isNew())) {
    return leave('gone', 'UploadsReplaced', 'An empty file that was replaced at once, as a mounted bucket does');
  }
  if (mayBeCopy && (await isNew())) {
    const copied = await copiedEntry(upload, delivery.ports, delivery.invocation.work);
    if (copied !== undefined && !(job && (await hasNewInputs(delivery, upload, job, copied)))) {
      return leave('skipped', 'UploadsSkipped', copyWords(copied));
    }
  }
  const terms = delivery.claimTerms();
  const inputs = job && awaitedInputs(job, terms.arrivedAt ?? terms.claimedAt);
  const claim = planned(firstClaim(upload, route, terms, inputs), planAfter(settings.routes, route.name));
  if (wait !== undefined) {
    const settling = await claimFirst(delivery, claim, waiting(unsettled(claim), wait));
    return resume(delivery, settling.won ? settling.stored : settling.current, object);
  }
  const terminal = failure && ended(claim, { failure }, claim.claimedAt);
  await endOlderJobs(delivery, upload);
  const written = await claimFirst(delivery, claim, terminal);
  if (!written.won) return resume(delivery, written.current, object);
  if (terminal !== undefined) return { kind: 'ended', entry: terminal };
  const own = { stored: written.stored, entry: claim };
  return job === undefined ? send(delivery, own, object) : sendJob(delivery, own, object, job);
}

/** The wait until the key of an upload stops changing. It may be over. Undefined if the route asks for none. */
function settlingOf({ ports: { settings } }: Delivery, upload: Upload, changedAt: number): Wait | undefined {
  const { settleSeconds } = routeFor(settings.routes, upload) ?? {};
  if (settleSeconds === undefined) return undefined;
  const notBefore = changedAt + settleSeconds * 1_000;
  const message = `It waits until it is still: its key must not change for ${counted(settleSeconds, 'second')}.`;
  return { reason: 'settling', message, notBefore };
}

/**
 * True if an empty file is not at its key any more after a few seconds. A mounted bucket puts a file first without its
 * content.
 */
async function isReplacedSoon({ ports, invocation }: Delivery, { id, bucket, key }: Upload): Promise<boolean> {
  await ports.clock.sleep(EMPTY_SETTLE_MS, invocation.work);
  return (await ports.inbox.current(bucket, key, invocation.work))?.id !== id;
}

/**
 * Ends the older jobs of a key that still wait for inputs, whether or not the newer job file can be used. It resumes
 * each, which then finds the newer file and ends. Without versions, nothing leads to the older jobs, and they end at
 * their deadlines.
 *
 * It is called before the newer job has an entry. If the invocation dies in between, the next one finds no entry, and
 * calls it again.
 */
async function endOlderJobs(delivery: Delivery, { id, bucket, key, versionId }: Upload): Promise<void> {
  const { inbox, ledger, settings } = delivery.ports;
  if (versionId === undefined || !isJobFile(key) || jobsRouteOf(settings.routes, key) === undefined) return;
  const { work } = delivery.invocation;
  try {
    for await (const { uploads } of inbox.pages(bucket, key, undefined, work)) {
      const older = uploads.filter((each) => each.key === key && each.id !== id).slice(0, OLDER_JOBS_MAX);
      for (const each of older) {
        const stored = await ledger.read(each.id, work);
        if (stored !== undefined && isWaitingJob(stored.entry))
          await conclude(delivery, await resume(delivery, stored));
      }
      break; // The newest versions of a key are listed first.
    }
  } catch (error) {
    delivery.log.warn('Older jobs of this key end at their deadlines', {
      uploadId: id,
      error: error as Error,
    });
  } finally {
    delivery.identify({ uploadId: id });
  }
}

/**
 * Claims an upload that S3 refuses to hand out, so that it waits in the ledger and ends with a receipt. Its media type
 * and metadata are unknown yet, and the choice of a route may need them. So the route is chosen again when the upload
 * is opened.
 */
async function beginDenied(delivery: Delivery, error: UploadDeniedError): Promise<Ending> {
  const { upload } = error;
  const { routes } = delivery.ports.settings;
  delivery.identify({ uploadId: upload.id });
  const route = routeFor(routes, upload) ?? routeByKey(routes, upload.key);
  if (route === undefined) return unrouted();

  const first = firstClaim(upload, snapshot(route, {}), delivery.claimTerms());
  const claim: ClaimedEntry = { ...(route.settleSeconds === undefined ? first : unsettled(first)), reroute: true };
  await endOlderJobs(delivery, upload);
  const written = await claimFirst(delivery, claim);
  if (!written.won) return resume(delivery, written.current);
  return endingOf(delivery, { stored: written.stored, entry: claim }, error);
}

/** Takes the next step that the entry of an upload asks for. */
async function resume(delivery: Delivery, stored: Stored, object?: OpenedUpload): Promise<Ending> {
  const { clock } = delivery.ports;
  const { id } = stored.entry.upload;
  delivery.identify({ uploadId: id });
  for (let changes = 0; changes < CHANGES_MAX; changes += 1) {
    const { step, entry } = nextStep(stored.entry, clock.now(), delivery.event.key);
    switch (step) {
      case 'publish-again':
      case 'restore-marker':
      case 'wait-on':
        return { kind: 'known', entry };
      case 'leave-to-its-claim':
        throw new ClaimHeldError(`Another invocation holds the claim on upload ${id}`);
      case 'take-over': {
        if (isSuspect(entry) && !delivery.batch.mayTakeOver(entry))
          return { kind: 'leave', outcome: 'put off', message: 'The upload is sent alone, after the others' };
        const claim = claimAgain(entry, delivery.claimTerms());
        const written = await claimOver(delivery, stored, claim);
        const isAsked = entry.state === 'waiting' && entry.reason === 'retried' && entry.late === undefined;
        if (written.won) return takeOver(delivery, { stored: written.stored, entry: claim, isAsked }, object);
        stored = written.current;
      }
    }
  }
  throw new ClaimHeldError(`The entry of upload ${id} changed hands ${CHANGES_MAX} times`);
}

/** Continues an upload under a claim that was taken over. A doubt is settled before anything is sent. */
async function takeOver(delivery: Delivery, claim: Claim, object?: OpenedUpload): Promise<Ending> {
  const { invocation } = delivery;
  const { clock, settings } = delivery.ports;
  const { doubt } = claim.entry;
  const sure = await settleDoubt(delivery, claim);
  if (sure.kind !== 'settled') return sure;
  claim = sure.claim;
  const { attempts, upload } = claim.entry;
  // If the search has used up the time that sending needs, the upload waits, and no attempt is counted. Its next claim
  // need not search.
  const isLate = doubt !== undefined && claim.entry.doubt === undefined && isHalfOver(invocation, clock.now());
  const { nextAttemptAt = 0 } = claim.entry.doubt ?? doubt ?? {};
  const notBefore = Math.max(nextAttemptAt, isLate ? clock.now() + backoffMs(claim.entry) : 0);
  const isGivenUp = attempts >= settings.attemptsMax;
  if (notBefore > clock.now() && !isGivenUp) {
    const message =
      'The last attempt got no usable answer. No flow of it was found. The upload waits for its next attempt.';
    const reason = claim.entry.misaddressedSince === undefined ? 'unavailable' : MISADDRESSED;
    return { kind: 'wait', claim, wait: { reason, message, notBefore } };
  }
  // A later stage needs the assets of the stage before, and no file of the inbox.
  if (upload.stage === undefined && !isInside(settings, upload)) {
    const message = `The file is in ${upload.bucket}, and the inbox is ${settings.inboxBucket}/${settings.inboxPrefix} now.`;
    return failing(delivery, claim, { code: 'outside-inbox', message });
  }
  let kept: Ending | undefined;
  try {
    kept = await keptByKey(delivery, claim);
  } catch (cause) {
    const name = `${upload.bucket}/${firstOf(upload).key}`;
    return endingOf(delivery, claim, new UploadUnreadableError(`${name} could not be looked up`, { cause }));
  }
  if (kept !== undefined) return kept;
  // An earlier invocation may have died before it began the file that replaced this one. `keptByKey` begins that file,
  // so the upload is given up only here.
  if (isGivenUp) {
    const message = `Gave up after ${attempts} attempts.${lastAnswerOf(claim.entry)}`;
    return failing(delivery, claim, { code: ATTEMPTS_EXHAUSTED, message });
  }
  claim = { ...claim, entry: settled(claim.entry, clock.now()) };
  let opened: OpenedUpload;
  try {
    opened = object ?? (await openAgain(delivery, claim.entry));
  } catch (error) {
    return endingOf(delivery, claim, error);
  }
  try {
    return await sendIfFit(delivery, claim, opened);
  } finally {
    opened.discard();
  }
}

/**
 * Opens an upload that has an entry. Without versions, a copy with the same content and another id may have taken its
 * place. Then the copy is opened.
 */
async function openAgain(delivery: Delivery, { upload, inputs }: ClaimedEntry): Promise<OpenedUpload> {
  const { ports, invocation } = delivery;
  const { work } = invocation;
  if (upload.stage !== undefined && inputs !== undefined) return ports.inbox.openAssets(upload, inputs);
  try {
    return await ports.inbox.open(upload, work);
  } catch (error) {
    if (!(error instanceof UploadGoneError) || upload.versionId !== undefined) throw error;
    const { current, copied } = await currentUpload(upload, ports, work);
    if (copied?.upload.id === upload.id) {
      return { ...(await ports.inbox.open({ ...upload, id: undefined }, work)), upload };
    }
    // The object has the content of an upload that was put before ours. It took the place of ours, so it is a new file.
    // Its message was skipped, because it looks like a copy of that earlier upload. So this delivery begins it.
    if (current !== undefined && copied !== undefined && putAt(copied.upload) <= putAt(upload)) {
      await beginAt(delivery, current, upload);
    }
    throw error;
  }
}

/**
 * Begins the object that is at a key now, even if it looks like a copy of an earlier upload.
 * @param before the upload that was there before. Nobody knows when `current` took its place, so `current` gets the
 * earliest possible time. With a later time, its receipt could replace that of a still newer file.
 */
async function beginAt(delivery: Delivery, current: Upload, before: Upload): Promise<void> {
  const { bucket, key, versionId, etag, lastModified } = current;
  const currentAt = Math.max(lastModified, before.currentAt ?? before.lastModified);
  // The message of `current` was skipped. If this invocation dies and a third file comes, the message of `before` does
  // not lead here.
  await leadBackTo(delivery, current.id, delivery.claimTerms().deadline);
  try {
    await conclude(delivery, await openAndBegin(delivery, { bucket, key, versionId, etag, currentAt }));
  } catch (error) {
    // Another invocation has begun `current`. Or its entry is unreadable: its own message, or the sweep, reports that.
    if (!(error instanceof ClaimHeldError || error instanceof UnreadableEntryError)) throw error;
  } finally {
    delivery.identify({ uploadId: before.id });
  }
}

/**
 * How an upload ends or waits because of what is now at its key, or at the key of its chain's first file. Undefined if
 * the upload is sent.
 */
async function keptByKey(delivery: Delivery, claim: Claim): Promise<Ending | undefined> {
  const { ports, invocation } = delivery;
  const { upload, settles, stillAt, doubt } = claim.entry;
  const { id, bucket, key, stage } = upload;
  // An earlier request may have made a flow. If it is repeated with its idempotency key, the service names that flow,
  // which is then collected.
  if (isKeyGood(delivery, claim.entry)) return undefined;
  const superseded = (message: string) => failing(delivery, claim, { code: SUPERSEDED, message });
  if (stage !== undefined) {
    if (!isInside(ports.settings, { bucket, key: stage.first.key })) return undefined;
    const { id: currentId } = await currentUpload({ bucket, ...stage.first }, ports, invocation.work);
    // A file that was deleted has no successor.
    if (currentId === undefined || currentId === stage.first.id) return undefined;
    return superseded(`A newer file was put at ${stage.first.key} before this stage was sent.`);
  }
  if (settles === undefined) return undefined;
  const { current, copied } = await currentUpload(upload, ports, invocation.work);
  // A file that has settled may be deleted while it waits for something else, like any other file.
  if (current === undefined)
    return stillAt === undefined ? superseded('The file was deleted before it was still.') : undefined;
  // An upload in doubt may have been sent, and then a copy of it is no new upload.
  const isKept = current.id === id || (copied?.upload.id === id && doubt !== undefined);
  if (!isKept) {
    // If the current object looks like a copy of this file or of an earlier one, its message may have been skipped. So
    // the object is begun here. That is safe to repeat after an invocation that died. A copy of a newer file than ours
    // is not begun.
    const isForgotten = copied === undefined ? current.etag === upload.etag : putAt(copied.upload) <= putAt(upload);
    if (isForgotten) {
      // If this invocation dies after `beginAt`, this file must not look as if it had been sent.
      if (doubt === undefined) claim = await rewritten(delivery, claim, unsent(claim.entry));
      await beginAt(delivery, current, upload);
    }
    return superseded(`${key} changed before this file was sent.`);
  }
  const wait = settlingOf(delivery, upload, current.lastModified);
  return wait !== undefined && wait.notBefore > ports.clock.now() ? { kind: 'wait', claim, wait } : undefined;
}

/**
 * Sends an upload again, if it passes the present checks. An upload that certainly has no flow takes the route of the
 * present configuration. An upload in doubt keeps its route, because its flow may exist, and was made with that route.
 */
async function sendIfFit(delivery: Delivery, claim: Claim, object: OpenedUpload): Promise<Ending> {
  const { settings } = delivery.ports;
  const { entry } = claim;
  const { work } = delivery.invocation;
  const look = unapproved(delivery, claim);
  if (look !== undefined) return look;
  if (entry.doubt !== undefined) {
    if (isJob(entry)) return sendJobAgain(delivery, claim, object);
    const failure = inputFailure(settings, object, entry.route.input);
    return failure === undefined ? send(delivery, claim, object) : failing(delivery, claim, failure);
  }
  let chosen: Routed | undefined;
  try {
    chosen = await routed(settings, object, work, entry.given);
  } catch (error) {
    return endingOf(delivery, claim, error);
  }
  if (chosen === undefined) {
    const message = 'No route of the current configuration wants this file.';
    return failing(delivery, claim, { code: 'unrouted', message });
  }
  const { failure, job } = chosen;
  const { upload } = object;
  const { plan: _, ...unplanned } = rerouted(entry, upload, chosen.route, job && awaitedInputs(job, entry.arrivedAt));
  // The plan of a chain is made for its first file. A later stage keeps the plan in its entry.
  const plan = upload.stage === undefined ? planAfter(settings.routes, chosen.route.name) : entry.plan;
  const next = planned<ClaimedEntry>(unplanned, plan);
  // The new route and the failure take one write. After a crash between two writes, the next invocation would send the
  // upload.
  if (failure !== undefined) return failing(delivery, { ...claim, entry: next }, failure);
  if (isDispatchedAlike(entry, next)) {
    claim = { ...claim, entry: next };
  } else {
    // The entry must name the route of a request before the request is sent.
    claim = await rewritten(delivery, claim, next);
  }
  return job === undefined ? send(delivery, claim, object) : sendJob(delivery, claim, object, job);
}

/**
 * How an upload ends or waits while its approval is missing: its route wants one, or wanted one when the wait began.
 * Undefined if the upload is approved, or needs no approval.
 */
function unapproved(delivery: Delivery, claim: Claim): Ending | undefined {
  const { clock, settings } = delivery.ports;
  const { upload, review } = claim.entry;
  const route = upload.stage && laterRoute(settings.routes, upload.stage.route);
  const isWanted = route?.review === true || review !== undefined;
  if (route === undefined || !isWanted || review?.approvedAt !== undefined) return undefined;
  const now = clock.now();
  const { reviewHours } = route;
  const notBefore = (review?.wantedAt ?? now) + (reviewHours === undefined ? REVIEW_MAX_MS : reviewHours * 3_600_000);
  if (notBefore <= now) {
    const message = `Nobody approved it within ${counted(reviewHours ?? 0, 'hour')}.`;
    return failing(delivery, claim, { code: 'cancelled', message });
  }
  const message = 'It waits for somebody to look at its inputs, and to approve or cancel it.';
  const entry = toBeReviewed(claim.entry, now);
  return { kind: 'wait', claim: { ...claim, entry }, wait: { reason: 'review', message, notBefore } };
}

/** Sends a job in doubt, with the route and parameters in its entry. The rest is read from the job file again. */
async function sendJobAgain(delivery: Delivery, claim: Claim, object: OpenedUpload): Promise<Ending> {
  if (object.isArchived) return failing(delivery, claim, ARCHIVED);
  let job: Job;
  try {
    job = await readJob(object, undefined, delivery.invocation.work);
  } catch (error) {
    if (!(error instanceof InvalidJobError)) return endingOf(delivery, claim, error);
    return failing(delivery, claim, { code: error.code, message: error.message });
  }
  return sendJob(delivery, claim, object, job);
}

function unrouted(message = 'No route wants this upload'): Ending {
  return leave('unrouted', 'UploadsUnrouted', message);
}

function leave(outcome: Outcome, metric: MetricName, message: string): Ending {
  return { kind: 'leave', outcome, metric, message };
}
