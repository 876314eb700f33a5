import { iso } from '../base/clock.ts';
import { OutOfTimeError } from '../base/invocation.ts';
import { messageOf } from '../base/printable.ts';
import {
  FlowServiceError,
  MisaddressedError,
  UnauthorisedError,
  UnintelligibleAnswerError,
} from '../flow-service/errors.ts';
import { listedWithinMs } from '../flow-service/flow-search.ts';
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
import { BACKOFF_MAX_MS, HELD_WAIT_MS, UNDECIDED_MAX_MS } from '../ledger/waits.ts';
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

/** What a search for the flow of an earlier POST came to. Unanswered: no listing was read to its end. */
type Look =
  | Found
  | { readonly result: 'unanswered'; readonly why: string; readonly error: FlowServiceError | OutOfTimeError };

/**
 * Searches for the flow that an earlier POST may have made, and decides what follows. The first line that applies:
 *
 *   found                                   adopt the flow
 *   no answer, and the operator asked       send
 *   something else answers again            wait for the service, for three days at most
 *   no answer, and the key is good          send again with the key. In an outage, the last attempt waits
 *   no answer, but one may come             wait, and search again: for a day in an outage, without end while the token
 *                                           is refused, else for an hour
 *   not proved absent, and the key is good  send again with the key
 *   too early for a proof                   wait until the flow must be listed. Send if the operator asked
 *   proved absent                           there is no flow: the upload may be sent, or fails if it was rejected
 *   unknown, and the operator asked         send
 *   unknown                                 the setting `inDoubt` decides: send, or ask the operator. If the service
 *                                           accepted the POST, ask the operator in any case, for a week at most
 *
 * The two lines that send after "no answer" apply only if the service did not answer. They do not apply if the
 * invocation's time ended.
 *
 * The key is good while the service honours it. Then the service makes no second flow.
 *
 * @param answer why the POST is in doubt. Default: unknown, because the POST was made earlier.
 */
export async function settleDoubt(delivery: Delivery, claim: Claim, answer?: string): Promise<Ending | Settled> {
  const { clock, settings, flows } = delivery.ports;
  const { isAsked } = claim;
  const { doubt, misaddressedSince } = claim.entry;
  if (doubt === undefined || doubt.isDismissed) return { kind: 'settled', claim };
  const conclusiveAt = doubt.sentBy + listedWithinMs(flows.service);
  // A listing whose reading began before this time may lack the flow.
  const isEarly = clock.now() < conclusiveAt;
  const mayRepeat = isKeyGood(delivery, claim.entry);
  const isForOperator = (settings.inDoubt === 'ask' || doubt.isAccepted === true) && !isAsked;
  // Without a listing, nothing shows the flow. So this checks first whether the service is there: in an outage, each
  // further request uses up an attempt, and may make a flow whose answer is lost again.
  const isChecked = flows.service.list === undefined && (mayRepeat || !isForOperator);
  const look = await findFlow(delivery, claim.entry, doubt, { mayBeAbsent: !isEarly, isChecked });
  const now = clock.now();
  const waitAfterAnswer = (message: string, notBefore: number): Ending => {
    if (answer === undefined) return waitInDoubt(delivery, claim, { message, notBefore });
    const misaddressed = misaddressedSince === undefined ? undefined : answer;
    return waitInDoubt(delivery, claim, { message: `${message} The answer: ${answer}`, notBefore, misaddressed });
  };
  const repeat = (why: string): Ending | Settled => {
    const { nextAttemptAt = now } = doubt;
    return nextAttemptAt <= now ? sendInDoubt(delivery, claim, why) : waitAfterAnswer(REPEATED_WORDS, nextAttemptAt);
  };
  if (look.result === 'found') return adopt(delivery, claim, look.flow);
  if (look.result === 'unanswered') {
    const { error, why } = look;
    const isOfService = error instanceof FlowServiceError;
    if (error instanceof UnauthorisedError) delivery.count('TokenRejected');
    if (isAsked && isOfService) return sendInDoubt(delivery, claim, why);
    if (error instanceof MisaddressedError && misaddressedSince !== undefined) {
      // Only the listing can tell whether the POST made a flow. So nothing is sent before the service answers again.
      delivery.count('ServiceMisaddressed');
      const notBefore = now + operatorBackoffMs(claim.entry);
      return waitInDoubt(delivery, claim, { message: why, notBefore, misaddressed: why });
    }
    if (isOutage(error)) claim = uncharged(claim, settings.attemptsMax, mayRepeat);
    if (mayRepeat && isOfService && !isLastKept(delivery, claim.entry, error)) return repeat(why);
    if (!isListingHopeless(error, now - conclusiveAt)) {
      const message = unansweredWords(delivery, claim.entry, error);
      const notBefore = Math.max(conclusiveAt, now + backoffMs(claim.entry));
      return waitInDoubt(delivery, claim, { message, notBefore });
    }
  }
  if (look.result !== 'absent' && mayRepeat) return repeat(look.why);
  if (isEarly && isAsked) return sendInDoubt(delivery, claim, 'the operator asked before the flow must be listed');
  if (isEarly) return waitAfterAnswer(earlyWords(delivery, claim.entry), conclusiveAt);
  if (look.result === 'absent') return withoutFlow(delivery, claim, doubt);
  return (isForOperator ? askOperator : sendInDoubt)(delivery, claim, look.why);
}

/**
 * The end of a doubt if no flow was made: the upload may be sent, or fails if the service has rejected it for good.
 * What was counted for the flow is subtracted. First the entry drops the count: if this invocation dies, the next one
 * must not subtract it again.
 */
async function withoutFlow(delivery: Delivery, claim: Claim, { rejection }: Doubt): Promise<Ending | Settled> {
  const { countedFlows: counted = [] } = claim.entry;
  const entry = withNextKey(withoutDoubt(claim.entry));
  const settled = counted.length === 0 ? { ...claim, entry } : await rewritten(delivery, claim, entry);
  if (counted.length > 0) uncountLater(entry, counted, delivery.ports);
  if (rejection === undefined) return { kind: 'settled', claim: settled };
  return failing(delivery, settled, { code: 'rejected', message: rejection });
}

interface InDoubtWait {
  readonly message: string;
  readonly notBefore: number;
  /** The answer of something else in place of the service. If it has come for three days, the upload fails. */
  readonly misaddressed?: string | undefined;
}

function waitInDoubt(delivery: Delivery, claim: Claim, { message, notBefore, misaddressed }: InDoubtWait): Ending {
  if (misaddressed !== undefined && isMisaddressedTooLong(claim.entry, delivery.ports.clock.now()))
    return failing(delivery, claim, { code: MISADDRESSED, message: misaddressed });
  const reason = misaddressed === undefined ? 'in-doubt' : MISADDRESSED;
  return { kind: 'wait', claim, wait: { reason, message, notBefore } };
}

/** True if only the last attempt is left. It waits until the service answers or its key is about to expire. */
const isLastKept = (delivery: Delivery, entry: ClaimedEntry, error: FlowServiceError): boolean =>
  isOutage(error) &&
  entry.attempts >= delivery.ports.settings.attemptsMax - 1 &&
  isKeyGood(delivery, entry, 2 * BACKOFF_MAX_MS);

/**
 * The claim in an outage. Its final attempt is not charged if the doubt began with that attempt, or if the key lets the
 * request be repeated free of charge.
 */
function uncharged(claim: Claim, attemptsMax: number, mayRepeat: boolean): Claim {
  const { attempts, claimedAt, doubt } = claim.entry;
  if (doubt?.claimedAt !== claimedAt && !mayRepeat) return claim;
  return { ...claim, entry: { ...claim.entry, attempts: Math.min(attempts, attemptsMax - 1) } };
}

const REPEATED_WORDS =
  'The service may have created a flow. The file is sent again with the same key, which creates no second one.';

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
 * refusal is believed, although the flow may not be listed yet.
 */
export async function adoptIfListed(delivery: Delivery, claim: Claim): Promise<Ending | undefined> {
  const doubt = doubtAfter(claim.entry, delivery.ports.clock.now());
  const look = await findFlow(delivery, claim.entry, doubt, { mayBeAbsent: false });
  return look.result === 'found' ? adopt(delivery, claim, look.flow) : undefined;
}

function adopt(delivery: Delivery, claim: Claim, { flowId }: FlowRecord): Ending {
  delivery.count('FlowsAdopted');
  return { kind: 'flow', claim, flowId, how: 'adopted' };
}

const checkHealth = ({ ports, invocation }: Delivery, { upload, route }: ClaimedEntry): Promise<void> =>
  ports.flows.checkHealth(upload.id, invocation.work, { uploadId: upload.id, template: route.template });

/**
 * True if even a request that costs nothing gets no answer, so no file is to blame. True also if the time ends before
 * an answer.
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

/**
 * @param of `mayBeAbsent`: true if the service has had the time to list the flow, so that absence is proof.
 * `isChecked`: true if the service must first answer a request that costs nothing.
 */
async function findFlow(
  delivery: Delivery,
  entry: ClaimedEntry,
  { claimedAt }: Doubt,
  { mayBeAbsent, isChecked = false }: { readonly mayBeAbsent: boolean; readonly isChecked?: boolean },
): Promise<Look> {
  try {
    if (isChecked) await checkHealth(delivery, entry);
    const tag = flowTagOf(entry, delivery.ports.settings.pipeline);
    const found = await delivery.batch.searches.find({ tag, since: claimedAt, mayBeAbsent });
    if (found.result !== 'unknown' || found.mayPass === undefined) return found;
    // It is read again, like a listing that says that it failed.
    const { why } = found;
    return { result: 'unanswered', why, error: new UnintelligibleAnswerError(why, { isOwnError: true }) };
  } catch (error) {
    if (!(error instanceof FlowServiceError || error instanceof OutOfTimeError)) throw error;
    return { result: 'unanswered', why: messageOf(error), error };
  }
}

/**
 * The upload waits until the operator retries it, or its flow is found after all. If a flow most probably exists, the
 * upload waits for {@link UNDECIDED_MAX_MS} at most.
 */
function askOperator(delivery: Delivery, claim: Claim, why: string): Ending {
  const { isAccepted, sentBy } = claim.entry.doubt as Doubt;
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
