import type { Entry, TerminalEntry } from '../../../functions/ledger/entry.ts';
import type { Receipt } from '../../../functions/publish/report-schemas.ts';
import { demand } from '../demand.ts';
import { NEXT_RESULTS, RESULTS } from '../names.ts';
import { isOfChain, type Put } from '../observations.ts';
import type { World } from '../world.ts';
import { failureCodeOf, isOf } from './facts.ts';
import { openResults } from './results.ts';

/**
 * The receipt at a key is that of the upload that was put there last, of those that have ended. There are two
 * exceptions, both of multipart uploads that rank by a time before their end: one that the sweep found soon after its
 * end, and, without versions, one that the late event of an earlier put of the same content led to. An upload that was
 * put in between may rank above it.
 */
export async function checkReceipts(world: World, entries: readonly TerminalEntry[]): Promise<void> {
  const ends = [...entries, ...formerEnds(world, entries)];
  for (const key of new Set(ends.map(({ upload }) => upload.key))) {
    if (!isOwnerUnknown(world, key, entries)) await checkReceiptAt(world, key, ends);
  }
}

/**
 * The last ends that receipts told of, of the uploads that have not ended now. Such an upload was retried, and its doubt
 * is held. Its receipt stays until it ends again.
 */
function formerEnds({ orderChecker }: World, entries: readonly TerminalEntry[]): readonly TerminalEntry[] {
  const { endings, receipted } = orderChecker;
  const isOver = new Set(entries.map(({ upload }) => upload.id));
  const former = [...endings.values()].filter(
    ({ upload, generation }) => !isOver.has(upload.id) && receipted.has(`${upload.id}-${generation}`),
  );
  return [...new Map(former.map((end) => [end.upload.id, end])).values()];
}

/** True if an upload at a key has no readable entry any more. Then it is unknown whose receipt must be there. */
function isOwnerUnknown(world: World, key: string, entries: readonly TerminalEntry[]): boolean {
  const { observed, orderChecker } = world;
  const lost = [...observed.expired.keys()].filter((id) => !entries.some(({ upload }) => upload.id === id));
  return observed.damaged?.key === key || lost.some((id) => orderChecker.uploads.get(id)?.key === key);
}

async function checkReceiptAt(world: World, key: string, ends: readonly TerminalEntry[]): Promise<void> {
  const { scenario } = world;
  const all = ends.filter(({ upload }) => upload.key === key);
  const { expected, excepted } = ownersAt(world, all);
  const stored = await openResults(world, `${scenario.settings.resultsPrefix}${key}/receipt.json`);
  const receipts = stored.map(({ body }) => JSON.parse(body.toString()) as Receipt);
  // The receipt of an earlier upload may be in the other bucket.
  const own = receipts
    .filter(({ upload }) => upload.id === expected?.upload.id)
    .toSorted((one, other) => one.generation - other.generation || Date.parse(one.endedAt) - Date.parse(other.endedAt));
  const receipt = own.at(-1) ?? receipts.at(-1);
  if (receipt === undefined || expected === undefined) return demand(false, 'a receipt is missing', key, all);
  if (excepted.some(({ upload }) => upload.id === receipt.upload.id)) return;
  demand(receipt.upload.id === expected.upload.id, 'a receipt is of another upload', key, {
    receipt: receipt.upload,
    expected: expected.upload,
  });
  if (isOfForgotten(world, receipt, expected)) return;
  checkReceipt(receipt, endToldOf(world, expected));
}

/**
 * The upload whose receipt must be at the key of these, and whose chain tells of its end there; and those that are there
 * instead by an exception.
 */
export function ownersAt<E extends Pick<Entry, 'upload'>>(
  { observed }: Pick<World, 'observed'>,
  all: readonly E[],
): { readonly expected: E | undefined; readonly excepted: readonly E[] } {
  const last = observed.puts.findLast((put) => all.some((entry) => isOf(put, entry)));
  // The address of a later stage has one upload.
  const expected = all.find((entry) => entry.upload.stage !== undefined || (last !== undefined && isOf(last, entry)));
  if (expected === undefined || last === undefined) return { expected, excepted: [] };
  const { lastModified, currentAt = lastModified, sequencer } = expected.upload;
  const isOfEarlierPut = last.versionId === undefined && observed.puts.some((put) => isTwin(put, last, currentAt));
  if (sequencer !== undefined && !isOfEarlierPut) return { expected, excepted: [] };
  const between = observed.puts.filter(({ at }) => at >= currentAt);
  return { expected, excepted: all.filter((one) => one !== expected && between.some((put) => isOf(put, one))) };
}

/** True if a put has the content of a later one, and the time by which that one ranks. */
const isTwin = (put: Put, later: Put, currentAt: number): boolean =>
  put.at < later.at &&
  put.key === later.key &&
  put.etag === later.etag &&
  Math.floor(put.at / 1000) === Math.floor(currentAt / 1000);

/**
 * The end that an upload's receipt tells of. As a rule it is that of the entry. An entry that expired and was made anew
 * begins with the first generation again, and then the receipt of a higher generation stays.
 */
function endToldOf({ observed, orderChecker }: World, entry: TerminalEntry): TerminalEntry {
  const { id } = entry.upload;
  if (!observed.expired.has(id)) return entry;
  const told = [...orderChecker.endings.values()].filter(
    ({ upload, generation }) => upload.id === id && orderChecker.receipted.has(`${id}-${generation}`),
  );
  const [highest = entry] = told.toSorted((a, b) => b.generation - a.generation || b.endedAt - a.endedAt);
  return highest.generation > entry.generation ? highest : entry;
}

/**
 * True if a receipt tells of the end before the entry expired, because the clock of that end was ahead. In truth a month
 * lies between the two.
 */
const isOfForgotten = ({ observed, scenario }: World, receipt: Receipt, entry: TerminalEntry): boolean =>
  scenario.skewMs > 0 &&
  observed.expired.has(entry.upload.id) &&
  receipt.generation === entry.generation &&
  Date.parse(receipt.endedAt) > entry.endedAt;

function checkReceipt(receipt: Receipt, entry: TerminalEntry): void {
  const told = {
    status: receipt.status,
    generation: receipt.generation,
    endedAt: receipt.endedAt,
    flow: receipt.flow?.id,
    assets: receipt.assets,
    failedOutputs: receipt.failedOutputs,
    code: receipt.failure?.code,
  };
  const is = {
    status: entry.state,
    generation: entry.generation,
    endedAt: new Date(entry.endedAt).toISOString(),
    flow: entry.flow?.id,
    assets: entry.assets,
    failedOutputs: entry.failedOutputs,
    code: failureCodeOf(entry),
  };
  demand(JSON.stringify(told) === JSON.stringify(is), 'a receipt differs from its entry', told, is);
  // Nothing else keeps S3 from putting an alias in the end.
  const { aliasIssue = OF_ANOTHER } = receipt;
  demand(aliasIssue.includes(OF_ANOTHER), 'a receipt says for no reason that an alias could not be put', aliasIssue);
}

/** Two files may have the same alias. */
const OF_ANOTHER = 'an object of something else';

interface EventFacts {
  readonly id: string;
  readonly pipeline: string;
  readonly upload: { readonly id: string };
  readonly generation: number;
  readonly endedAt: string;
}

/**
 * Every end was published in an event, and always in the same words. The sweep makes one exception on purpose: an
 * upload that failed before it had a flow, whose receipt is out and whose message died before the event was sent. The
 * sweep sees the receipt and takes the event for sent.
 */
export function checkEvents(world: World, entries: readonly TerminalEntry[]): void {
  const { observed, orderChecker, scenario } = world;
  const mayMessageDie = scenario.isLossy || scenario.versioning !== 'Enabled';
  const published = publishedEnds(world);
  for (const entry of [...orderChecker.endings.values(), ...entries]) {
    const { upload, generation, endedAt } = entry;
    const isExcepted =
      mayMessageDie && entry.flow === undefined && orderChecker.receipted.has(`${upload.id}-${generation}`);
    // The entry may have expired before the end was published.
    const isForgotten = observed.expired.has(upload.id) && !entries.includes(entry);
    const isPublished = published.has(endName(upload.id, generation, endedAt));
    demand(isPublished || isExcepted || isForgotten, 'an end was never published', entry);
  }
}

function publishedEnds({ observed }: World): ReadonlySet<string> {
  const words = new Map<string, string>();
  const ends = new Set<string>();
  for (const event of observed.published) {
    const { detailType, detail } = event;
    // After a renaming, the same end is published under the new name.
    const { pipeline: _, ...facts } = JSON.parse(detail) as EventFacts;
    // So it is if the results go to another bucket.
    const said = `${detailType} ${JSON.stringify(facts)}`.replaceAll(NEXT_RESULTS, RESULTS);
    demand((words.get(facts.id) ?? said) === said, 'an end was published in two ways', words.get(facts.id), said);
    words.set(facts.id, said);
    if (isOfChain(event)) continue;
    ends.add(endName(facts.upload.id, facts.generation, Date.parse(facts.endedAt)));
  }
  return ends;
}

const endName = (uploadId: string, generation: number, endedAt: number): string =>
  `${uploadId} ${generation} ${endedAt}`;
