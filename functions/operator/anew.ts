import { isDeepStrictEqual } from 'node:util';
import pMap from 'p-map';
import {
  begunAnew,
  chainAlone,
  gatheredEntry,
  madeAnew,
  seenAnew,
  unfinishedAnew,
  withAssetsFor,
} from '../chains/chain.ts';
import type { Chain, ChainUpload } from '../chains/chain-schema.ts';
import { isTerminal, previousOf, type WaitingEntry } from '../ledger/entry.ts';
import { readableOr, type Stored } from '../ledger/store.ts';
import { DUE_AGAIN_MS } from '../ledger/waits.ts';
import type { Upload } from '../uploads/upload.ts';
import {
  beginAgain,
  type Changed,
  CONCURRENCY,
  each,
  type OperatorPorts,
  putAndSend,
  readPublished,
  SETTLED_MS,
} from './changes.ts';
import { type Again, isLate, retryUploads } from './retry.ts';

/**
 * Maximum number of uploads that one request to make stages anew begins. A chain has up to ten thousand. Each takes about
 * ten requests to S3, so these take a minute.
 */
export const ANEW_AT_ONCE_MAX = 1_000;

/** Uploads of a stage made anew that a tick looks at, and the time until the next tick goes on, in milliseconds. */
const ANEW_STEP_MAX = 100;
const NEXT_STEP_MS = 30_000;

interface AnewOptions extends Again {
  /** The route of the stage. Default: that of the first file, so that all is made anew. */
  readonly from?: string | undefined;
}

/** How many uploads a request may still begin. */
interface Room {
  left: number;
}

/**
 * Has files made anew, with the later stages of their chains, by the present routes. From a later stage on, the stored
 * assets of the stage before are taken. All of it is paid for. The same request for a later stage goes on where the one
 * before ended.
 * @param firstIds the uploads of the chains' first files. The result has these, if nothing was begun, and otherwise the
 * uploads of the stage.
 */
export async function makeAnew(
  firstIds: readonly string[],
  { from, given, late = isLate(firstIds), atOnceMax = ANEW_AT_ONCE_MAX }: AnewOptions & { readonly atOnceMax?: number },
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const room = { left: atOnceMax };
  const all = await pMap(firstIds, (id) => makeFileAnew(id, { from, given, late, room }, ports, signal), {
    concurrency: CONCURRENCY,
  });
  return all.flat();
}

async function makeFileAnew(
  upload: string,
  options: AnewOptions & { readonly room: Room },
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const { given, late, room } = options;
  const chain = await ports.chains.read(upload, signal);
  if (room.left <= 0) return [{ upload, result: 'not begun yet' }];
  const { from = chain?.uploads[0]?.route } = options;
  if (chain !== undefined && from !== undefined) {
    return makeStageAnew(chain, { from, given, late, room }, ports, signal);
  }
  const stored = await readPublished(upload, ports, signal);
  const { entry } = stored ?? {};
  if (entry?.upload.stage !== undefined) return [{ upload, result: 'not in its chain' }];
  if (stored !== undefined && entry !== undefined && from !== undefined && from !== entry.route.name) {
    if (!isTerminal(entry)) return [{ upload, result: 'under way' }];
    return makeStageAnew(chainAlone(entry), { from, late, room, stored }, ports, signal);
  }
  room.left -= 1;
  return retryUploads([upload], ports, signal, { given, isAnew: true, late });
}

interface StageAnew extends AnewOptions {
  readonly from: string;
  readonly room: Room;
  /** The entry of the first file, if its chain is not written yet. */
  readonly stored?: Stored;
}

async function makeStageAnew(
  chain: Chain,
  { from, given, late, room, stored }: StageAnew,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const { chains, ledger, settings, clock } = ports;
  const upload = chain.first.id;
  // An earlier request was cut off after it had changed the chain, or had no room for the whole stage.
  if (chain.anew?.some(({ route }) => route === from)) return goOnAnew(chain, { from, late, room }, ports, signal);
  const isFirst = from === chain.uploads[0]?.route;
  const whole = await withAssetsFor(chain, from, settings.routes, async (id) => (await ledger.read(id, signal))?.entry);
  const anew = isFirst ? undefined : madeAnew(whole, from, settings.routes, clock.now());
  if (!isFirst && anew === undefined) return [{ upload, result: 'not in its chain' }];
  const { begins = [], dropped = chain.uploads } = anew ?? {};
  if (!isFirst && begins.length === 0) return [{ upload, result: 'withheld' }];
  const inputs = begins.flatMap((each) => each.inputs ?? []);
  if (!(await ports.sources.areThere(inputs, signal))) return [{ upload, result: 'source gone' }];
  const generations = await endedGenerations([...dropped, ...begins.map((each) => each.upload)], ports, signal);
  if (generations === undefined) return [{ upload, result: 'under way' }];
  const unfinished = dropped.filter(({ state }) => state === 'under way');
  // The entries of these have ended, and the chain is about to hear of it.
  if (unfinished.some(({ id, generation }) => (generations.get(id) ?? 0) >= generation)) {
    return [{ upload, result: 'under way' }];
  }
  // They are in the chain, and have not begun. The invocation that was about to begin them has died.
  if (unfinished.length > 0) {
    const left = unfinished.flatMap(
      ({ id }) => gatheredEntry(chain, id) ?? begins.find((each) => each.upload.id === id) ?? [],
    );
    // The upload before them has just ended, and the tick that publishes it begins them.
    if (left.length === 0) return [{ upload, result: 'under way' }];
    return each(left.slice(0, taken(room, left.length)), async (fresh) => {
      const isBegun = await beginStage({ ...fresh, late }, ports, signal);
      return { upload: fresh.upload.id, result: isBegun ? 'resubmitted' : 'under way' };
    });
  }
  if (anew === undefined) {
    room.left -= 1;
    return retryUploads([upload], ports, signal, { given, isAnew: true, late });
  }
  // If this invocation dies after it has changed the chain, this marker leads a tick to what has not begun.
  await ledger.putWaitingMarker({ uploadId: upload, notBefore: clock.now() + SETTLED_MS }, signal);
  // From now on, whatever becomes of the first file is told to its chain.
  const joins = stored && (await ledger.replace(stored, { ...stored.entry, isInChain: true }, signal));
  if (joins?.won === false) return [{ upload, result: 'under way' }];
  const known = stored === undefined ? chain : undefined;
  const next = withGenerations(anew.chain, begins, generations);
  const written = await chains.update(upload, (now) => (isDeepStrictEqual(now, known) ? next : now), signal);
  // If only the answer to the write was lost, the chain has all of them.
  const isUnderWay = (id: string) => written?.uploads.some((each) => each.id === id && each.state === 'under way');
  if (!begins.every((begin) => isUnderWay(begin.upload.id))) return [{ upload, result: 'under way' }];
  // If their chain had not ended, nobody else would tag them.
  const made = dropped.flatMap(({ assets }) => assets);
  await ports.sources.expire(made, signal);
  return goOnAnew(written as Chain, { from, late, room }, ports, signal);
}

/** Takes as much of the room as there is, and returns that. */
function taken(room: Room, wanted: number): number {
  const count = Math.min(Math.max(room.left, 0), wanted);
  room.left -= count;
  return count;
}

/** Begins the next uploads of a stage that is being made anew, as many as there is room for. */
async function goOnAnew(
  chain: Chain,
  { from, late, room }: StageAnew,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<readonly Changed[]> {
  const own = { ...chain, anew: chain.anew?.filter(({ route }) => route === from) };
  const all = unfinishedAnew(own, Number.POSITIVE_INFINITY)?.uploads ?? [];
  const step = unfinishedAnew(own, taken(room, all.length));
  if (step === undefined) return [{ upload: chain.first.id, result: 'under way' }];
  const { begun } = await beginStep(chain, { ...step, late: late ?? lateIn(own, from) }, ports, signal);
  const results = { begun: 'resubmitted', 'under way': 'under way', lost: 'withheld' } as const;
  return all.map(({ id }, index) => ({ upload: id, result: results[begun[index] as 'begun'] ?? 'not begun yet' }));
}

/** True if a stage that is made anew has many uploads. */
const lateIn = ({ uploads }: Chain, name: string): true | undefined =>
  isLate(uploads.flatMap(({ id, route }) => (route === name ? [id] : [])));

/**
 * Begins what a request to make a stage anew has left, because it was cut off after it had changed the chain. It looks at
 * {@link ANEW_STEP_MAX} uploads at most, so that a tick does not stand still: the next tick goes on.
 * @returns after how many milliseconds it has to go on. Undefined if nothing is left.
 */
export async function finishAnew(
  firstId: string,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { chains, telemetry } = ports;
  const chain = await readableOr(chains.read(firstId, signal), (error) => {
    telemetry.log.error('This chain cannot be read', { uploadId: firstId, error });
    telemetry.metrics.add('EntriesUnreadable');
    return 'unreadable' as const;
  });
  if (chain === 'unreadable') return DUE_AGAIN_MS;
  const step = chain && unfinishedAnew(chain, ANEW_STEP_MAX);
  if (chain === undefined || step === undefined) return undefined;
  const { begun, isLast } = await beginStep(chain, { ...step, late: lateIn(chain, step.route) }, ports, signal);
  if (begun.includes('under way')) return DUE_AGAIN_MS;
  return isLast ? undefined : NEXT_STEP_MS;
}

interface AnewStep {
  readonly route: string;
  /** Uploads of the stage that have begun after this step. */
  readonly seen: number;
  readonly uploads: readonly ChainUpload[];
  readonly late: true | undefined;
}

/** Begins some uploads of a stage that is being made anew. The chain remembers how far that came. */
async function beginStep(
  chain: Chain,
  { route, seen, uploads, late }: AnewStep,
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<{ readonly begun: readonly ('begun' | 'under way' | 'lost')[]; readonly isLast: boolean }> {
  const { chains, chainNotes, ledger } = ports;
  const begun = await pMap(uploads, (upload) => beginLeft(chain, { upload, late }, ports, signal), {
    concurrency: CONCURRENCY,
  });
  if (begun.includes('under way')) return { begun, isLast: false };
  const lost = uploads.filter((_, index) => begun[index] === 'lost');
  const written = await chains.update(
    chain.first.id,
    (current) =>
      current?.generation === chain.generation
        ? seenAnew(current, { route, seen, lost }, ports.settings.routes)
        : current,
    signal,
  );
  const first = lost.length === 0 ? undefined : await ledger.read(chain.first.id, signal);
  // The chain may have ended with that.
  if (first !== undefined) await chainNotes.note(first.entry, signal);
  return { begun, isLast: written?.anew === undefined };
}

/** Begins an upload of a stage that is made anew, if it has not begun. `lost` if its route is gone. */
async function beginLeft(
  chain: Chain,
  { upload, late }: { readonly upload: ChainUpload; readonly late: true | undefined },
  ports: OperatorPorts,
  signal: AbortSignal,
): Promise<'begun' | 'under way' | 'lost'> {
  const { ledger, settings } = ports;
  if (upload.state !== 'under way') return 'begun';
  const entry = (await ledger.read(upload.id, signal))?.entry;
  if (entry !== undefined && (!isTerminal(entry) || entry.generation >= upload.generation)) return 'begun';
  const parent = upload.parent === undefined ? undefined : (await ledger.read(upload.parent, signal))?.entry;
  const made = parent !== undefined && 'assets' in parent ? (parent.assets ?? []) : [];
  const fresh = begunAnew(chain, upload, made, settings.routes);
  if (fresh === undefined) return 'lost';
  return (await beginStage({ ...fresh, late }, ports, signal)) ? 'begun' : 'under way';
}

/** The generations of uploads that have an entry, by id. Undefined if one of them has not ended. */
async function endedGenerations(
  uploads: readonly Pick<Upload, 'id'>[],
  { ledger }: OperatorPorts,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number> | undefined> {
  const ids = new Set(uploads.map(({ id }) => id));
  const stored = await pMap(ids, (id) => ledger.read(id, signal), { concurrency: CONCURRENCY });
  const entries = stored.flatMap((each) => each?.entry ?? []);
  if (!entries.every(isTerminal)) return undefined;
  return new Map(entries.map(({ upload, generation }) => [upload.id, generation]));
}

/**
 * The chain with the generation in which each of these uploads begins. So no end of an earlier one is taken for its end.
 * Uploads of the stages beside may be under way too, and keep theirs.
 */
function withGenerations(chain: Chain, begins: readonly WaitingEntry[], ended: ReadonlyMap<string, number>): Chain {
  const ids = new Set(begins.map(({ upload }) => upload.id));
  const uploads = chain.uploads.map((each) =>
    ids.has(each.id) ? { ...each, generation: (ended.get(each.id) ?? 0) + 1 } : each,
  );
  return { ...chain, uploads };
}

/** Begins an upload of a stage that is made anew: for the first time, or in a new generation. */
async function beginStage(fresh: WaitingEntry, ports: OperatorPorts, signal: AbortSignal): Promise<boolean> {
  const { ledger, clock } = ports;
  const { upload } = fresh;
  const stored = await readPublished(upload.id, ports, signal);
  if (stored !== undefined) {
    if (!isTerminal(stored.entry)) return false;
    const again = { ...fresh, generation: stored.entry.generation + 1, previous: previousOf(stored.entry) };
    return beginAgain(stored, again, ports, signal);
  }
  await ledger.putWaitingMarker({ uploadId: upload.id, notBefore: clock.now() + SETTLED_MS }, signal);
  if (!(await ledger.create(fresh, signal)).won) return false;
  await putAndSend(fresh, ports, signal);
  return true;
}
