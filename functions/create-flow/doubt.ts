import { iso } from '../base/clock.ts';
import { OutOfTimeError } from '../base/invocation.ts';
import { messageOf } from '../base/printable.ts';
import { FlowServiceError, MisaddressedError, UnauthorisedError } from '../flow-service/errors.ts';
import { LISTING_DELAY_MAX_MS } from '../flow-service/flow-search.ts';
import type { FlowRecord, Found } from '../flow-service/types.ts';
import { uncountLater } from '../holds/permit.ts';
import {
  type ClaimedEntry,
  chargedForDoubt,
  type Doubt,
  doubtAfter,
  flowTagOf,
  sentAgain,
  withNextKey,
  withoutDoubt,
} from '../ledger/entry.ts';
import { BACKOFF_MAX_MS, HELD_WAIT_MS, UNDECIDED_MAX_MS, type WaitReason } from '../ledger/waits.ts';
import { type Claim, isKeyGood, rewritten } from './claim.ts';
import type { Delivery } from './delivery.ts';
import { type Ending, failing } from './ending.ts';
import {
  backoffMs,
  countedBackoffMs,
  isListingHopeless,
  isMisaddressedTooLong,
  isOutage,
  lastAnswerOf,
  MISADDRESSED,
  operatorBackoffMs,
} from './retry-policy.ts';

/** The upload may be sent under this claim: its doubt is settled, or is no longer a reason to wait. */
export interface Settled {
  readonly kind: 'settled';
  readonly claim: Claim;
}

/**
 * Searches for the flow that an earlier POST may have made.
 *
 *   found                      adopt it
 *   too early to tell          wait, until five minutes after the answer
 *   listing not available      wait, and ask for it again: for a day at most in an outage, else for an hour
 *   no listing, service down   wait, and ask again whether it is there: for a day at most
 *   something else answers     wait for three days at most, if something else answered the POST too
 *   absent                     the upload fails if the service rejects it for good; otherwise it may be sent again
 *   unknown                    the setting `inDoubt` decides: send it again, or ask the operator. If the service
 *                              answered with a success, the operator is asked in any case, for a week at most.
 *
 * If the operator has asked for the upload to be sent, it need not wait for the listing. Only a flow that is found, a
 * refusal for good, or the end of the invocation's time keeps it from being sent. While the service honours the key of
 * the POST, the upload need not wait either: it is sent again with that key.
 *
 * @param answer why the POST is in doubt. Default: unknown, because the POST was made earlier.
 */
export async function settleDoubt(delivery: Delivery, claim: Claim, answer?: string): Promise<Ending | Settled> {
  const { clock, settings } = delivery.ports;
  const { entry } = claim;
  const { doubt } = entry;
  if (doubt === undefined || doubt.isDismissed) return { kind: 'settled', claim };
  const conclusiveAt = doubt.sentBy + LISTING_DELAY_MAX_MS;
  // A listing whose reading began before this time may lack the flow.
  const isEarly = clock.now() < conclusiveAt;
  const waitOn = (message: string, notBefore: number, reason: WaitReason = 'in-doubt'): Ending => ({
    kind: 'wait',
    claim,
    wait: { reason, message, notBefore },
  });
  // If something else answered the POST: waits for three days at most, and then fails.
  const waitForAddress = (answer: string, message: string, notBefore: number): Ending => {
    if (!isMisaddressedTooLong(entry, clock.now())) return waitOn(message, notBefore, MISADDRESSED);
    return failing(delivery, claim, { code: MISADDRESSED, message: answer });
  };
  const waitAfter = (message: string, notBefore: number): Ending => {
    if (answer === undefined) return waitOn(message, notBefore);
    const both = `${message} The answer: ${answer}`;
    return entry.misaddressedSince === undefined ? waitOn(both, notBefore) : waitForAddress(answer, both, notBefore);
  };
  const mayRepeat = isKeyGood(delivery, entry);
  const repeat = (why: string): Ending | Settled => {
    const { nextAttemptAt = clock.now() } = doubt;
    if (nextAttemptAt <= clock.now()) return sendInDoubt(delivery, claim, why);
    const message =
      'The service may have created a flow. The file is sent again with the same key, which creates no second one.';
    return waitAfter(message, nextAttemptAt);
  };
  const isForOperator = (settings.inDoubt === 'ask' || doubt.isAccepted === true) && !claim.isAsked;
  let found: Found;
  try {
    // Without a listing, nothing shows the flow. So this checks first whether the service is there: in an outage, each
    // further request uses up an attempt, and may make a flow whose answer is lost again.
    const isUnlisted = delivery.ports.flows.service.list === undefined;
    if (isUnlisted && (mayRepeat || !isForOperator)) await checkHealth(delivery, entry);
    found = await findFlow(delivery, entry, doubt, !isEarly);
  } catch (error) {
    if (!(error instanceof FlowServiceError) && !(error instanceof OutOfTimeError)) throw error;
    if (error instanceof UnauthorisedError) delivery.count('TokenRejected');
    if (claim.isAsked && error instanceof FlowServiceError) return sendInDoubt(delivery, claim, error.message);
    if (error instanceof MisaddressedError && entry.misaddressedSince !== undefined) {
      // Only the listing can tell whether the POST made a flow. So nothing is sent before the service answers again.
      delivery.count('ServiceMisaddressed');
      return waitForAddress(error.message, error.message, clock.now() + operatorBackoffMs(entry));
    }
    if (isOutage(error)) claim = uncharged(claim, settings.attemptsMax, mayRepeat);
    if (mayRepeat && error instanceof FlowServiceError && !isLastKept(delivery, entry, error))
      return repeat(error.message);
    if (!isListingHopeless(error, clock.now() - conclusiveAt)) {
      return waitOn(unansweredWords(delivery, entry, error), Math.max(conclusiveAt, clock.now() + backoffMs(entry)));
    }
    found = { result: 'unknown', why: messageOf(error) };
  }
  if (found.result === 'found') return adopt(delivery, claim, found.flow);
  if (mayRepeat && found.result !== 'absent') return repeat(found.why);
  if (isEarly && claim.isAsked) return sendInDoubt(delivery, claim, 'the operator asked for it within five minutes');
  if (isEarly) return waitAfter(earlyWords(delivery, entry), conclusiveAt);
  if (found.result === 'unknown') {
    if (isForOperator) return hold(delivery, claim, doubt, found.why);
    return sendInDoubt(delivery, claim, found.why);
  }
  const settled = await withoutCount(
    delivery,
    { ...claim, entry: withNextKey(withoutDoubt(entry)) },
    entry.countedFlows,
  );
  if (doubt.rejection === undefined) return { kind: 'settled', claim: settled };
  return failing(delivery, settled, { code: 'rejected', message: doubt.rejection });
}

/** True if only the last attempt is left. It waits until the service answers or its key is about to expire. */
const isLastKept = (delivery: Delivery, entry: ClaimedEntry, error: FlowServiceError): boolean =>
  isOutage(error) &&
  entry.attempts >= delivery.ports.settings.attemptsMax - 1 &&
  isKeyGood(delivery, entry, 2 * BACKOFF_MAX_MS);

/**
 * The claim in an outage. Its final attempt is not charged if the doubt began with that attempt, or if the key lets the
 * request be repeated free of charge. The outage may last longer than the key.
 */
function uncharged(claim: Claim, attemptsMax: number, mayRepeat: boolean): Claim {
  const { attempts, claimedAt, doubt } = claim.entry;
  if (doubt?.claimedAt !== claimedAt && !mayRepeat) return claim;
  return { ...claim, entry: { ...claim.entry, attempts: Math.min(attempts, attemptsMax - 1) } };
}

/**
 * The claim after its doubt was settled: no flow was made, so what was counted for it is subtracted. First the entry
 * drops the count: if this invocation dies, the next one must not subtract it again.
 */
async function withoutCount(
  delivery: Delivery,
  claim: Claim,
  counted: ClaimedEntry['countedFlows'] = [],
): Promise<Claim> {
  if (counted.length === 0) return claim;
  const written = await rewritten(delivery, claim, claim.entry);
  uncountLater(claim.entry, counted, delivery.ports);
  return written;
}

/** Says why a search, or the health check in its place, was of no use. */
const unansweredWords = (delivery: Delivery, entry: ClaimedEntry, error: Error): string =>
  delivery.ports.flows.service.list === undefined ? `${earlyWords(delivery, entry)} ${error.message}` : error.message;

/** Says what comes next, while the service need not list the flow yet. */
function earlyWords({ ports: { flows, settings } }: Delivery, { doubt }: ClaimedEntry): string {
  const who = doubt?.isAccepted ? 'the operator' : `settings.inDoubt (${settings.inDoubt})`;
  const next =
    flows.service.list === undefined
      ? `The service lists no flows: ${who} decides.`
      : 'Its listing is searched again before the next try.';
  return `The service may have created a flow. ${next}`;
}

/**
 * Lets an upload in doubt be sent. Its doubt stays: if the next POST makes no flow, the first one's may still be found.
 */
function sendInDoubt(delivery: Delivery, claim: Claim, why: string): Settled {
  if (isKeyGood(delivery, claim.entry)) {
    delivery.log.info('Sent again with the same key, so the service makes one flow', { why });
    return { kind: 'settled', claim: { ...claim, entry: sentAgain(claim.entry) } };
  }
  delivery.log.info('It may be sent again although a flow may exist', { why });
  // The operator has decided, so nothing is charged.
  if (claim.isAsked) return { kind: 'settled', claim };
  return { kind: 'settled', claim: { ...claim, entry: chargedForDoubt(claim.entry, countedBackoffMs) } };
}

/**
 * Searches once for the flow of a POST that the service says it refused. Returns undefined if none is found. Then the
 * refusal is believed: a single look at the listing proves nothing, so the refusal says more.
 */
export async function adoptIfListed(delivery: Delivery, claim: Claim): Promise<Ending | undefined> {
  const doubt = doubtAfter(claim.entry, delivery.ports.clock.now());
  let found: Found;
  try {
    found = await findFlow(delivery, claim.entry, doubt, false);
  } catch (error) {
    if (error instanceof FlowServiceError || error instanceof OutOfTimeError) return undefined;
    throw error;
  }
  return found.result === 'found' ? adopt(delivery, claim, found.flow) : undefined;
}

function adopt(delivery: Delivery, claim: Claim, { flowId }: FlowRecord): Ending {
  delivery.count('FlowsAdopted');
  return { kind: 'flow', claim, flowId, how: 'adopted' };
}

const checkHealth = ({ ports, invocation }: Delivery, { upload, route }: ClaimedEntry): Promise<void> =>
  ports.flows.checkHealth(upload.id, invocation.work, { uploadId: upload.id, template: route.template });

/**
 * True if even a request that costs nothing gets no answer, so no file is to blame. True also if the time is over
 * before an answer: then it is not known.
 */
export async function isDown(delivery: Delivery, entry: ClaimedEntry): Promise<boolean> {
  try {
    await checkHealth(delivery, entry);
    return false;
  } catch (error) {
    if (error instanceof FlowServiceError || error instanceof OutOfTimeError) return true;
    throw error;
  }
}

/** @param mayBeAbsent true if the service has had the time to list the flow, so that absence is proof. */
function findFlow(
  { ports, batch: { searches } }: Delivery,
  entry: ClaimedEntry,
  { claimedAt }: Doubt,
  mayBeAbsent: boolean,
): Promise<Found> {
  return searches.find({ tag: flowTagOf(entry, ports.settings.pipeline), since: claimedAt, mayBeAbsent });
}

/**
 * The upload waits until the operator retries it, or its flow is found after all. If a flow most probably exists, the
 * upload waits for {@link UNDECIDED_MAX_MS} at most.
 */
function hold(delivery: Delivery, claim: Claim, { isAccepted, sentBy }: Doubt, why: string): Ending {
  const answer = lastAnswerOf(claim.entry);
  const endsAt = sentBy + UNDECIDED_MAX_MS;
  if (isAccepted && delivery.ports.clock.now() >= endsAt) {
    const message = `It is unknown whether a flow exists (${why}), and nobody has decided for seven days.${answer}`;
    return failing(delivery, claim, { code: 'undecided', message });
  }
  delivery.count('DoubtsHeld');
  const until = isAccepted ? ` It fails if there is none by ${iso(endsAt)}.${answer}` : '';
  const message = `It is unknown whether a flow exists (${why}). The upload waits for the operator's decision.${until}`;
  const notBefore = delivery.ports.clock.now() + HELD_WAIT_MS;
  return { kind: 'wait', claim, wait: { reason: 'undecided', message, notBefore } };
}
