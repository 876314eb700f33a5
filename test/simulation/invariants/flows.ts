import { FIND_PAGES_MAX } from '../../../functions/flow-service/flow-search.ts';
import { ANSWER_SECONDS } from '../../../functions/flow-service/service-description.ts';
import type { Entry } from '../../../functions/ledger/entry.ts';
import { FLOW_ENTRIES_READ_MAX } from '../../../functions/ledger/store.ts';
import type { FlowView } from '../../../local/flow-service/flow.ts';
import { DEFAULT_VARIATION } from '../../../local/flow-service/variation.ts';
import { demand } from '../demand.ts';
import type { Fault } from '../faults.ts';
import { flowTagOf } from '../flow-tag.ts';
import { NEXT_PIPELINE, PIPELINE } from '../names.ts';
import type { Logged } from '../observations.ts';
import { MINUTE, SECOND } from '../timeline.ts';
import type { World } from '../world.ts';

/** Age from which a flow is listed, in milliseconds. A doubt waits for that time before it is settled. */
const LISTED_AFTER_MS = 5 * 60_000;

/** Time in which a search of four readings ends, in milliseconds. */
const SEARCH_MS = 2 * MINUTE;

/** Longest time from the beginning of a creation, from which its key counts, until it makes its flow, in milliseconds. */
const BODY_MS = 2 * MINUTE;

/** Faults after which a listing is as good as not served. */
const LISTING_REFUSALS: readonly Fault[] = [
  ...(['403', '404', '422', 'garbled', 'cut cleanly', 'no ids', 'failed list', 'endless'] as const),
];

/** Longest time from the head of the answer to a creation to its end, in milliseconds. */
const ANSWER_REST_MS = MINUTE;

/** How the log lines begin that tell of a second flow for a generation. No metric tells which upload it is. */
export const SECOND_FLOW_LINES = {
  decided: 'It may be sent again although a flow may exist',
  resent: 'Sent again although a flow may exist',
  orphaned: 'Another invocation took over this upload',
} as const;

/** Counts flows where they are paid for, at the service: at most one for a generation of an upload. */
export function checkFlows(world: World, entries: readonly Entry[]): void {
  const { creationAnswerMsMax, wasAnyFrozen } = world.observed;
  // Each process looks at its own clock, which may run late by a few turns of the network.
  const { answerSeconds = ANSWER_SECONDS } = world.settings.service.create;
  const isInTime = wasAnyFrozen || creationAnswerMsMax <= answerSeconds * SECOND + ANSWER_REST_MS + SECOND;
  demand(isInTime, 'the answer to a creation held its invocation for too long', creationAnswerMsMax);
  const generations = flowsByGeneration(world, entries);
  for (const entry of entries) checkFlowOf(entry, generations);
  for (const [name, flows] of generations) {
    const [uploadId = '', generation] = name.split(' ');
    checkCount(world, entries, uploadId, flows);
    const entry = entries.find(({ upload }) => upload.id === uploadId);
    if (entry !== undefined) checkCollected(world, entry, Number(generation), flows);
  }
}

/** Our flows by the upload and the generation in their tags. */
function flowsByGeneration(world: World, entries: readonly Entry[]): ReadonlyMap<string, readonly FlowView[]> {
  const { service, observed } = world;
  const generations = new Map<string, FlowView[]>();
  for (const flow of service.flows) {
    const tag = flowTagOf(flow);
    if (tag?.pipeline === 'another') continue;
    if (tag === undefined) {
      // The inputs of neighbours have three bytes.
      const isNeighbours = flow.inputs.every(({ bytes }) => bytes === 3);
      demand(isNeighbours, 'a flow of ours bears no tag', flow);
      continue;
    }
    const { pipeline, upload, generation } = tag;
    const isOurs = pipeline === PIPELINE || (pipeline === NEXT_PIPELINE && observed.deployedAt.has('pipeline'));
    demand(isOurs, 'a tag is of no pipeline of ours', flow);
    if (upload === observed.damaged?.id) continue;
    demand(typeof generation === 'number', 'a tag has no generation', flow);
    const entry = entries.find((one) => one.upload.id === upload);
    const isKnown = entry !== undefined && generation <= entry.generation;
    demand(isKnown || observed.expired.has(upload), 'a flow is of no upload', flow);
    const name = `${upload} ${generation}`;
    generations.set(name, [...(generations.get(name) ?? []), flow]);
  }
  return generations;
}

function checkFlowOf(entry: Entry, generations: ReadonlyMap<string, readonly FlowView[]>): void {
  const { upload, previous = [] } = entry;
  const flow = 'flow' in entry ? entry.flow?.id : undefined;
  for (const end of [...previous, ...(flow === undefined ? [] : [{ generation: entry.generation, flow }])]) {
    const own = generations.get(`${upload.id} ${end.generation}`) ?? [];
    const hasOwn = own.some(({ id }) => id === end.flow);
    demand(hasOwn, 'an upload was given a flow that is not its own', end, entry, own);
  }
  const numbers = previous.map(({ generation }) => generation);
  const areRising = [...numbers, entry.generation].every((number, at, all) => number > (all[at - 1] ?? 0));
  demand(areRising, 'an earlier generation is not earlier', entry);
}

/** A flow that was made is collected, or the operator is told that there may be one. None that is collected is an orphan. */
function checkCollected({ observed }: World, entry: Entry, generation: number, flows: readonly FlowView[]): void {
  const { upload, previous = [] } = entry;
  const ends = [...previous, { generation: entry.generation, flow: 'flow' in entry ? entry.flow?.id : undefined }];
  const collected = ends.find((end) => end.generation === generation)?.flow;
  const orphans = observed.logged
    .filter(({ message, fields }) => message.startsWith(SECOND_FLOW_LINES.orphaned) && fields.uploadId === upload.id)
    .map(({ fields }) => fields.flowId);
  const values = [entry, generation, { orphans }, flows.map((flow) => ({ ...flow, outputs: undefined }))];
  demand(collected === undefined || !orphans.includes(collected), 'a flow counts as an orphan that is not', ...values);
  // A process that was frozen may make a flow after the end of its upload, and not hear of it.
  if (observed.wasAnyFrozen || observed.expired.has(upload.id)) return;
  const isOrphaned = flows.every(({ id }) => orphans.includes(id));
  if (collected !== undefined || entry.generation > generation || isOrphaned || entry.state === 'waiting') return;
  const isTold = entry.state === 'failed' && entry.failure.message.includes('may have made a flow');
  demand(isTold, 'a flow is not collected, and nobody is told of it', ...values);
}

/** Accounts for the flows of one generation of an upload. */
function checkCount(world: World, entries: readonly Entry[], uploadId: string, flows: readonly FlowView[]): void {
  const { scenario, observed } = world;
  const linesOf = (message: string): readonly Logged[] =>
    observed.logged.filter((line) => line.message.startsWith(message) && line.fields.uploadId === uploadId);
  const resent = linesOf(SECOND_FLOW_LINES.resent);
  const orphaned = linesOf(SECOND_FLOW_LINES.orphaned).length;
  // The ledger forgot the upload, or an operator had it sent although a flow might exist.
  const knownExtra = (observed.expired.get(uploadId)?.length ?? 0) + (observed.releasedByHand.has(uploadId) ? 1 : 0);
  const isStrict = !scenario.isSkewWild && !observed.wasAnyFrozen;
  const count = flows.length;
  const values = [
    uploadId,
    { resent: resent.length, orphaned, isStrict, knownExtra },
    flows.map((flow) => ({ ...flow, outputs: undefined })),
  ];
  if (scenario.settings.inDoubt === 'ask') {
    // The operator's retry of a doubt sends it.
    demand(
      resent.length <= (observed.releasedByHand.has(uploadId) ? 1 : 0),
      'a doubt that was to be held was sent again',
      ...values,
    );
    const isAllowed = count <= 1 + knownExtra;
    demand(isAllowed || !isStrict, 'two flows of one generation, although doubts are held', ...values);
  }
  const { idempotencyHours: hours = 0 } = scenario.variation;
  if (hours > 0 && isStrict) {
    // Also if an operator has it sent although a flow may exist: it is sent with the same key.
    // The key of a flow that is made late counts from the request.
    const bodyMs = BODY_MS + (scenario.lateFlows?.msMax ?? 0);
    const times = flows.map(({ createdAt }) => createdAt).toSorted((a, b) => a - b);
    const isOne = times.every(
      (at, index) => index === 0 || at - (times[index - 1] ?? 0) >= hours * 60 * MINUTE - bodyMs,
    );
    demand(isOne, 'two flows of one generation, although the service honours keys', hours, ...values);
  }
  if (areFlowsListed(world)) {
    // While no flow has ended, a full listing cannot be told from one of active flows.
    // The upload of a damaged entry may have had a flow, and so may an earlier generation, or one of more entries than
    // are read. Then a listing without any flow of ours is not a full one.
    const mayHaveHadFlows =
      observed.damaged !== undefined ||
      entries.length > FLOW_ENTRIES_READ_MAX ||
      entries.some(({ generation }) => generation > 1);
    const unsure = mayHaveHadFlows ? /no ended flow|no flow of Flowdrop/ : /no ended flow/;
    const isSettled = linesOf(SECOND_FLOW_LINES.decided).every(({ fields, at }) => {
      const why = String(fields.why);
      // Neighbours may delete flows during each of the four readings, or a flow moves up to a page that was read, and
      // only flows without tags are seen. Then the setting decides.
      if (scenario.doNeighboursDelete && /flows leave the listing|no additional data/.test(why)) return true;
      if (/no additional data/.test(why) && !isAnyTagListed(world, at)) return true;
      if (/flows leave the listing|paged through/.test(why) && doNewFlowsFillPages(world, at)) return true;
      return unsure.test(why) || (/listing has more than/.test(why) && isListingLong(world, at));
    });
    demand(isSettled, 'a doubt was not settled although flows are listed', ...values);
  }
  const allowed = 1 + resent.length + knownExtra + (isStrict ? 0 : orphaned);
  demand(count <= allowed, 'more flows were made for one generation than were accounted for', ...values);
}

/**
 * True if the listing showed the `additional` of a flow at that time. A listing whose flows all have none looks like
 * one that leaves it out.
 */
function isAnyTagListed({ service }: World, at: number): boolean {
  return service.flows.some(
    ({ additional, createdAt, deleted }) =>
      !deleted && createdAt <= at - LISTED_AFTER_MS && Object.keys(additional ?? {}).length > 0,
  );
}

/**
 * True if the listing had more pages at that time than one search reads. If they have numbers, the search asks for the
 * first one twice: without a number, and with 1. And if a flow came meanwhile, only an empty page shows the end.
 */
function isListingLong({ scenario, service }: World, at: number): boolean {
  const { pageSize = DEFAULT_VARIATION.pageSize, paging = DEFAULT_VARIATION.paging } = scenario.variation;
  const pages = paging === 'page' ? FIND_PAGES_MAX - 2 : FIND_PAGES_MAX;
  return service.flows.filter(({ createdAt }) => createdAt <= at).length > pages * pageSize;
}

/**
 * True if one flow fills a page, and flows were made while the listing was read. They then look like pages that repeat
 * themselves, or stand in another order when the listing is read again. After four readings the setting decides.
 */
function doNewFlowsFillPages({ scenario, service }: World, at: number): boolean {
  const { pageSize = DEFAULT_VARIATION.pageSize } = scenario.variation;
  return pageSize === 1 && service.flows.some(({ createdAt }) => at - SEARCH_MS < createdAt && createdAt < at);
}

/** True if the service lists all flows with their tags, in a form that the functions understand. */
function areFlowsListed({ scenario, observed }: World): boolean {
  const { variation, speaks } = scenario;
  const isServed = variation.listFlows === 'served';
  const isPaged = ['page', 'cursor'].includes(variation.paging ?? 'page');
  const isRefused = observed.incidents.some(
    ({ kind, fault }) => kind === 'flows.list' && LISTING_REFUSALS.includes(fault),
  );
  // A listing that is longer than a search proves nothing.
  const isShort = scenario.findPagesMax === undefined;
  return isServed && isPaged && isShort && speaks?.list !== null && !isRefused;
}
