import { OutOfTimeError } from '../base/invocation.ts';
import { FlowServiceError, MisaddressedError, UnauthorisedError } from '../flow-service/errors.ts';
import { LISTING_DELAY_MAX_MS } from '../flow-service/flow-search.ts';
import type { SearchPlace } from '../flow-service/search-place.ts';
import type { FindOptions, Found } from '../flow-service/types.ts';
import {
  type ClaimedEntry,
  type Doubt,
  flowTagOf,
  searchedTo,
  searchedWithoutResult,
  withoutDoubt,
} from '../ledger/entry.ts';
import type { Stored } from '../ledger/store.ts';
import { HELD_WAIT_MS } from '../ledger/waits.ts';
import { commitFlow, failUpload, keepWaiting } from './claim.ts';
import type { Delivery, Outcome } from './delivery.ts';
import {
  backoffMs,
  isListingHopeless,
  isMisaddressedTooLong,
  MISADDRESSED,
  messageOf,
  operatorBackoffMs,
} from './retry-policy.ts';

/**
 * Time after the last byte of a request until a flow that is not listed counts as absent, in milliseconds. If it were
 * shorter than the delay of the listing, the upload could be paid for twice.
 */
const ABSENT_AFTER_MS = LISTING_DELAY_MAX_MS;

/** The outcome, if this delivery is over. Otherwise the claim, which may be sent. */
export type SettledDoubt = { readonly outcome: Outcome } | { readonly claim: Stored<ClaimedEntry> };

/**
 * Looks for the flow that an earlier POST may have made.
 *
 *   found                      adopt it
 *   too early to tell          wait, until five minutes after the last byte
 *   the listing is long        wait for the next tick, and go on where this look stopped
 *   listing not available      wait, and ask for it again, for an hour at most
 *   something else answers     wait, for three days at most, if something else answered the POST too
 *   absent                     the upload may be sent again
 *   unknown                    the setting `inDoubt` decides: send it again, or hold it for the operator
 */
export async function settleDoubt(delivery: Delivery, claim: Stored<ClaimedEntry>): Promise<SettledDoubt> {
  const { clock, settings } = delivery.ports;
  const { entry } = claim;
  const { doubt } = entry;
  if (doubt === undefined) return { claim };
  const conclusiveAt = doubt.sentBy + ABSENT_AFTER_MS;
  // A listing that was read from before this time may lack the flow, however late the last page came.
  const isEarly = clock.now() < conclusiveAt;
  let place = doubt.place;
  const waitOn = async (message: string, notBefore: number): Promise<SettledDoubt> => {
    const wait = { reason: 'in-doubt', message, counted: false, notBefore } as const;
    return { outcome: await keepWaiting(delivery, { ...claim, entry: searchedTo(entry, place) }, wait) };
  };
  let found: Found;
  try {
    found = await findFlow(delivery, entry, doubt, (reached) => {
      place = reached;
    });
  } catch (error) {
    if (!(error instanceof FlowServiceError) && !(error instanceof OutOfTimeError)) throw error;
    if (error instanceof UnauthorisedError) delivery.count('TokenRejected');
    const misaddressed = misaddressedIn(error, entry);
    if (misaddressed !== undefined) return { outcome: await waitForService(delivery, claim, misaddressed) };
    const failingSince = Math.max(conclusiveAt, place?.readAt ?? 0);
    if (!isListingHopeless(error, clock.now() - failingSince)) {
      return waitOn(messageOf(error), Math.max(conclusiveAt, clock.now() + backoffMs(entry)));
    }
    found = { result: 'unknown', why: messageOf(error) };
  }
  if (found.result === 'found') {
    delivery.count('FlowsAdopted');
    return { outcome: await commitFlow(delivery, claim, { flowId: found.flow.flowId, outcome: 'adopted' }) };
  }
  if (isEarly) {
    const time = new Date(conclusiveAt).toISOString();
    return waitOn(`The service may have created a flow. We search its listing again at ${time}.`, conclusiveAt);
  }
  if (found.result === 'unfinished') return waitOn(unfinishedMessage(found.flows, place), clock.now());
  if (found.result === 'unknown') {
    const searched = { ...claim, entry: searchedWithoutResult(entry) };
    if (settings.inDoubt === 'hold') return { outcome: await hold(delivery, searched, found.why) };
    delivery.count('DoubtsRetried');
    delivery.log.warn('Sent again although a flow may exist', { why: found.why });
    // The doubt stays. If this request certainly makes no flow, the first one may still be found before the next.
    return { claim: searched };
  }
  return { claim: { ...claim, entry: withoutDoubt(entry) } };
}

function unfinishedMessage(flows: number, place: SearchPlace | undefined): string {
  const { previous } = place?.evidence ?? {};
  const reached = previous === undefined ? '' : `, back to ${new Date(previous).toISOString()}`;
  return `The service may have created a flow. We have searched ${flows} flows of its listing${reached}, and go on.`;
}

/** The answer of something else to the search, if something else answered the POST as well. */
function misaddressedIn(error: FlowServiceError | OutOfTimeError, entry: ClaimedEntry): MisaddressedError | undefined {
  return error instanceof MisaddressedError && entry.misaddressedSince !== undefined ? error : undefined;
}

/** Nothing is sent before the service answers again: only its listing tells whether the POST made a flow. */
async function waitForService(
  delivery: Delivery,
  claim: Stored<ClaimedEntry>,
  { message }: MisaddressedError,
): Promise<Outcome> {
  const now = delivery.ports.clock.now();
  delivery.count('ServiceMisaddressed');
  if (isMisaddressedTooLong(claim.entry, now)) {
    const unknown = 'It is unknown whether a flow of this upload exists: look for it before you retry.';
    return failUpload(delivery, claim, { code: MISADDRESSED, message: `${message} ${unknown}` });
  }
  const notBefore = now + operatorBackoffMs(claim.entry);
  return keepWaiting(delivery, claim, { reason: MISADDRESSED, message, counted: false, notBefore });
}

function findFlow(
  { ports, invocation }: Delivery,
  entry: ClaimedEntry,
  { claimedAt, sentBy, place, isSearched }: Doubt,
  onPlace: NonNullable<FindOptions['onPlace']>,
): Promise<Found> {
  const { flows, ledger, settings } = ports;
  const { work } = invocation;
  return flows.find(flowTagOf(entry, settings.pipeline), claimedAt, work, {
    sentBy,
    hadFlowBefore: (before) => ledger.hadFlowBefore(before, work),
    place,
    onPlace: isSearched ? undefined : onPlace,
  });
}

/** The upload waits until the operator retries it, or its flow is found after all. */
function hold(delivery: Delivery, claim: Stored<ClaimedEntry>, why: string): Promise<Outcome> {
  delivery.count('DoubtsHeld');
  const message = `It is unknown whether a flow exists (${why}). The upload is held until the operator retries it.`;
  const notBefore = delivery.ports.clock.now() + HELD_WAIT_MS;
  return keepWaiting(delivery, claim, { reason: 'held', message, counted: false, notBefore });
}
