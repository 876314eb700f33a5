import { OutOfTimeError } from '../base/invocation.ts';
import { messageOf } from '../base/printable.ts';
import {
  InDoubtError,
  MisaddressedError,
  NotReadyError,
  RejectedError,
  ThrottledError,
  UnauthorisedError,
  UnavailableError,
} from '../flow-service/errors.ts';
import type { CreateRequest } from '../flow-service/types.ts';
import { HeldError, HoldsUnavailableError, Permit, uncountLater } from '../holds/permit.ts';
import {
  answered,
  attemptsAfter,
  counting,
  doubtAfter,
  flowTagOf,
  inDoubt,
  keyOf,
  misaddressed,
  priced,
} from '../ledger/entry.ts';
import type { OpenedUpload } from '../uploads/opened-upload.ts';
import { UploadDeniedError } from '../uploads/upload-errors.ts';
import { type Claim, isKeyGood, tellWaiting, withKey } from './claim.ts';
import { ClaimHeldError, type Delivery } from './delivery.ts';
import { adoptIfListed, isDown, type Settled, settleDoubt } from './doubt.ts';
import { type Ending, failing } from './ending.ts';
import {
  ATTEMPT_TIME_MIN_MS,
  ATTEMPTS_EXHAUSTED,
  backoffMs,
  classify,
  isMisaddressedTooLong,
  isOutage,
  MISADDRESSED,
  OUTAGE_MAX_MS,
  type RetryDecision,
} from './retry-policy.ts';

/**
 * How long a creation may wait in the queue and then in its invocation, in milliseconds, before it is sent. If the
 * service refuses creations for longer, the upload waits in the ledger. Otherwise refused files would occupy all
 * invocations (five by default), and the next file would wait in the queue behind all earlier ones, instead of taking
 * its turn in the line.
 */
const SENDING_WAIT_MAX_MS = 60_000;

/**
 * Sends an upload under our claim. Its doubt is settled, or is no reason to wait. If the answer is lost and the service
 * honours the key, sends it once more.
 */
export async function send(delivery: Delivery, claim: Claim, object: OpenedUpload): Promise<Ending> {
  const { entry } = claim;
  delivery.identify({ uploadId: entry.upload.id });
  const request = requestOf(delivery, claim, object);
  const isRepeated = isKeyGood(delivery, entry);
  const permit = new Permit(entry, delivery.ports, delivery.ports.nonce(), isRepeated);
  let attempt = await attemptOnce(delivery, { ...claim, entry: priced(entry, permit.price) }, request, permit);
  if ('error' in attempt && !isRepeated) {
    const lost = await repeatLost(delivery, withCount(attempt.claim, permit), attempt.error);
    if (lost !== undefined && lost.kind !== 'settled') return lost;
    if (lost !== undefined) attempt = await attemptOnce(delivery, lost.claim, request, permit);
  }
  if ('error' in attempt) return endingWithoutFlow(delivery, attempt.claim, attempt.error, permit);
  const { flowId } = attempt;
  // If the next write fails, only this line names the flow.
  delivery.log.info('The service has made a flow', { flowId });
  delivery.count('FlowsCreated');
  delivery.count(
    'InputBytes',
    request.inputs.reduce((sum, { source }) => sum + source.bytes, 0),
  );
  return { kind: 'flow', claim: attempt.claim, flowId, how: 'created' };
}

/** What a request came to, and the claim as it is by then. */
type Attempt = { readonly claim: Claim } & ({ readonly flowId: string } | { readonly error: unknown });

/** Makes one request. If the service throttles it, the client may send it again, with another key. */
async function attemptOnce(delivery: Delivery, claim: Claim, request: CreateRequest, permit: Permit): Promise<Attempt> {
  const { work } = delivery.invocation;
  let told = Promise.resolve(claim);
  let wasCalled = false;
  const onWaiting = (message: string, until: number | undefined): void => {
    // A request may wait twice: it is sent again after a new token was read.
    told = told.then((current) => tellWaiting(delivery, current, { message, until }));
    told.catch(() => {}); // It is awaited below, and must not end the process before that.
  };
  const beforeSending = async (): Promise<string> => {
    // The client calls this again only if the service refused the request before.
    const wasRefused = wasCalled;
    wasCalled = true;
    told = told.then((current) => withKey(delivery, current, wasRefused));
    const { entry } = await told;
    await permit.obtain(work);
    // While a machine sleeps, its clock goes on, but not its timers. The claim may be over by now.
    if (delivery.ports.clock.now() >= delivery.invocation.workEndsAt)
      throw new OutOfTimeError('The time of this invocation was over before the file could be sent');
    // The metric counts only here: before, the upload could still fail, give way or be held.
    const mayExist = entry.doubt !== undefined && !entry.doubt.isDismissed && !isKeyGood(delivery, entry);
    if (mayExist && !wasRefused) {
      delivery.count('DoubtsRetried');
      delivery.log.warn('Sent again although a flow may exist');
    }
    return keyOf(entry);
  };
  try {
    const { flowId } = await delivery.ports.flows.create({ ...request, onWaiting, beforeSending }, work);
    return { claim: await told, flowId };
  } catch (error) {
    // If another invocation has the claim by now, the ending cannot be written. What was counted is uncounted anyway.
    const ifHeld = (cause: unknown): Claim => {
      if (cause instanceof ClaimHeldError) return claim;
      throw cause;
    };
    return { claim: await told.catch(ifHeld), error };
  }
}

/** The end of a delivery whose request is not known to have made a flow. */
async function endingWithoutFlow(delivery: Delivery, claim: Claim, thrown: unknown, permit: Permit): Promise<Ending> {
  // The end of a repeated request says nothing about the first one.
  const isRepeated = isKeyGood(delivery, claim.entry);
  const error = isRepeated ? ofRepeated(thrown) : thrown;
  const isOwnRefusal = error instanceof InDoubtError && error.isOwnRefusal;
  const adopted = isOwnRefusal ? await adoptIfListed(delivery, claim) : undefined;
  if (adopted !== undefined) return adopted;
  const mayHaveFlow = isRepeated || (error instanceof InDoubtError && !isOwnRefusal);
  if (mayHaveFlow) claim = withCount(claim, permit);
  else if (permit.counted !== undefined) uncountLater(claim.entry, [permit.counted], delivery.ports);
  return endingOf(delivery, claim, isOwnRefusal ? error.cause : error);
}

/** The claim of an upload in doubt, with what is counted for its last request. */
const withCount = (claim: Claim, { counted }: Permit): Claim => ({ ...claim, entry: counting(claim.entry, counted) });

function requestOf(delivery: Delivery, { entry, isAsked }: Claim, object: OpenedUpload): CreateRequest {
  const { ports, invocation } = delivery;
  const { template, parameters, additional, input: as } = entry.route;
  const now = ports.clock.now();
  const { arrivedAt = now } = delivery.event;
  return {
    template,
    parameters,
    additional,
    tag: flowTagOf(entry, ports.settings.pipeline),
    startBy: Math.min(invocation.workEndsAt - ATTEMPT_TIME_MIN_MS, Math.max(now, arrivedAt + SENDING_WAIT_MAX_MS)),
    isAsked,
    inputs: object.inputs.map((input) => ({ ...input, as: input.as ?? as })),
  };
}

/**
 * The claim of an upload that this error leaves in doubt. It loses the operator's request to send, which was made
 * before this doubt.
 */
function doubted(
  claim: Claim,
  error: unknown,
  { counted, isUncounted }: Pick<RetryDecision & { kind: 'doubt' }, 'counted' | 'isUncounted'>,
  { now, nextAttemptAt }: { readonly now: number; readonly nextAttemptAt: number },
): Claim {
  const rejection = error instanceof InDoubtError && error.cause instanceof RejectedError ? error.message : undefined;
  const isAccepted = (error instanceof InDoubtError && error.isAccepted) || undefined;
  const doubt = doubtAfter(claim.entry, now, {
    nextAttemptAt,
    rejection,
    ...(isAccepted && { isAccepted }),
    isUncounted,
  });
  const attempts = attemptsAfter(claim.entry, counted);
  const entry = isMisaddressed(error) ? misaddressed(claim.entry) : { ...claim.entry, misaddressedSince: undefined };
  return { ...claim, isAsked: false, entry: inDoubt({ ...entry, attempts }, doubt) };
}

/**
 * Decides what to do at once after a lost answer: send the upload again with the same key, unless its flow is listed
 * already. Undefined if an answer came, the service does not honour the key, or the time is nearly over.
 */
async function repeatLost(delivery: Delivery, claim: Claim, error: unknown): Promise<Ending | Settled | undefined> {
  if (!(error instanceof InDoubtError && error.isLost)) return undefined;
  const now = delivery.ports.clock.now();
  const next = doubted(claim, error, { counted: true }, { now, nextAttemptAt: now });
  if (!isKeyGood(delivery, next.entry) || now + ATTEMPT_TIME_MIN_MS > delivery.invocation.workEndsAt) return undefined;
  delivery.log.warn('The answer was lost', { error });
  const { message } = error;
  const settled = await settleDoubt(delivery, { ...next, entry: answered(next.entry, { message, at: now }) }, message);
  return settled.kind === 'settled' && settled.claim.entry.doubt === undefined
    ? waitAfterFreeze(settled, message, now)
    : settled;
}

/**
 * The ending if a doubt of this attempt is settled at once. Settling normally takes minutes, so the process must have
 * been frozen. The upload waits before it is sent again, because its claim may be over.
 */
function waitAfterFreeze({ claim }: Settled, message: string, notBefore: number): Ending {
  return { kind: 'wait', claim, wait: { reason: 'unavailable', message, notBefore } };
}

/**
 * If a repeated request is refused as not ready, the service is still at work on the first one: that counts as
 * unavailable.
 */
function ofRepeated(error: unknown): unknown {
  const refusal = error instanceof InDoubtError && error.isOwnRefusal ? error.cause : undefined;
  if (!(refusal instanceof RejectedError && refusal.cause instanceof NotReadyError)) return error;
  return new UnavailableError(refusal.message, { cause: refusal, bodyStarted: true });
}

/** False if our time, our pace or the holds ended the attempt before the service could answer. */
const isAnswer = (error: unknown): boolean =>
  !(error instanceof OutOfTimeError || error instanceof HeldError || error instanceof HoldsUnavailableError) &&
  !(error instanceof ThrottledError && !error.wasSent);

/** Until when the service asks to wait. */
function askedUntil(error: unknown, now: number): number | undefined {
  const refusal = error instanceof InDoubtError ? error.cause : error;
  return refusal instanceof ThrottledError ? refusal.askedUntil(now) : undefined;
}

const isMisaddressed = (error: unknown): boolean =>
  error instanceof MisaddressedError || (error instanceof InDoubtError && error.cause instanceof MisaddressedError);

/** How a claim ends whose sending failed with this error: the upload fails, waits, or is in doubt. */
export async function endingOf(delivery: Delivery, claim: Claim, error: unknown): Promise<Ending> {
  const now = delivery.ports.clock.now();
  const decision = classify(error, claim.entry, now);
  if (decision === undefined) throw error;
  if (error instanceof UnauthorisedError) delivery.count('TokenRejected');
  if (isMisaddressed(error)) delivery.count('ServiceMisaddressed');
  if (error instanceof UploadDeniedError) delivery.count('UploadsDenied');
  if (error instanceof HeldError) delivery.count('UploadsHeld');
  delivery.log.warn('The upload could not be sent', { decision: decision.kind, error: error as Error });
  const message = messageOf(error);
  if (isAnswer(error)) {
    claim = { ...claim, entry: answered(claim.entry, { message, at: now, until: askedUntil(error, now) }) };
  }
  switch (decision.kind) {
    case 'fail':
      return failing(delivery, claim, decision.failure);
    case 'doubt': {
      const nextAttemptAt = now + decision.delayMs;
      // The flow may be listed already. Then the upload need not wait.
      const settled = await settleDoubt(delivery, doubted(claim, error, decision, { now, nextAttemptAt }), message);
      return settled.kind === 'settled' ? waitAfterFreeze(settled, message, nextAttemptAt) : settled;
    }
    case 'wait': {
      const { reason, counted, delayMs, failsAs = ATTEMPTS_EXHAUSTED } = decision;
      if (reason === MISADDRESSED && isMisaddressedTooLong(claim.entry, now)) {
        return failing(delivery, claim, { code: MISADDRESSED, message });
      }
      const isLast = counted && attemptsAfter(claim.entry, counted) >= delivery.ports.settings.attemptsMax;
      if (!isLast) return { kind: 'wait', claim, wait: { reason, message, counted, notBefore: now + delayMs } };
      const isLong = now - (claim.entry.downSince ?? now) >= OUTAGE_MAX_MS;
      if (isLong || !isOutage(error) || !(await isDown(delivery, claim.entry)))
        return failing(delivery, claim, { code: failsAs, message: `The last attempt: ${message}` });
      const notBefore = now + Math.max(delayMs, backoffMs(claim.entry));
      return { kind: 'wait', claim, wait: { reason, message, isDown: true, notBefore } };
    }
  }
}
