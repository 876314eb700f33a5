import { hash } from 'node:crypto';
import pMap from 'p-map';
import { shortSegment } from '../base/key-segment.ts';
import { secondsBetween } from '../base/telemetry.ts';
import { type Entry, isInLine, takenBy, waitingMarkerOf } from '../ledger/entry.ts';
import { LINE_PREFIX, type WaitingMarker, waitingKey } from '../ledger/keys.ts';
import { readableOr, type Stored } from '../ledger/store.ts';
import { isHold } from '../ledger/waits.ts';
import type { Route } from '../uploads/route.ts';
import { BEGINNING, type LineState, nextTurns, type Room } from './line.ts';
import { type ResubmitPorts, resubmit } from './resubmit.ts';

/** Uploads that are resubmitted side by side. */
const CONCURRENCY = 16;

/**
 * Maximum number of due uploads resubmitted in a round: half a minute of work, so that running flows are polled in time.
 */
const DUE_MAX = 4_000;

/** Maximum number of uploads that leave the line in a round beyond the number of flows that ended. */
const EXTRA_MAX = 256;

/** How many of the last uploads of each route that left are looked at again, to see what became of them. */
const WATCHED_MAX = 8;

/**
 * How long the uploads of the last turns may be undecided, in milliseconds: some time in the queue, and a minute in
 * which a refused request is repeated. After that, they are taken to be large or lost, and count as gone through.
 */
const WATCHED_MAX_MS = 2 * 60_000;

/** Markers on a page of the line that is looked through. */
const PLACED_PAGE = 1_000;

/** Maximum number of such pages in a round. Their entries are read within seconds. */
const PLACED_PAGES_MAX = 2;

/**
 * Time from a change of the routes until the line is looked through again, in milliseconds. By then every invocation with
 * the old routes has ended.
 */
const PLACED_AGAIN_MS = 20 * 60_000;

/** What became of uploads that left the line. */
type Fate = 'refused' | 'undecided' | 'through';

type Sent = LineState['sent'][string];

interface WaitingOptions {
  readonly isOurs: (uploadId: string) => boolean;
  /** Maximum number of uploads resubmitted in a round, without those in the line. Default {@link DUE_MAX}. */
  readonly dueMax?: number;
  /** The room that holds leave. Asked for in each round in which uploads wait in the line. Default: unlimited. */
  readonly room?: (signal: AbortSignal) => Promise<Room>;
  /** Markers in a listing of a look through the line. Default {@link PLACED_PAGE}. */
  readonly placedPage?: number;
}

/**
 * Resubmits the waiting uploads of a collector, round by round.
 *
 * An upload that waits for a time is due at that time. Uploads that the service throttled, that a hold keeps, or that
 * were submitted in bulk wait in the line. As many leave it as flows have ended, since each ended flow frees a place.
 * Extra ones leave to find out whether the service allows more by now: twice as many each time, until one comes back.
 * No extra one leaves while the last ones are still in the queue: a new file would have to wait behind them.
 *
 * A route may be refused while others go through, because its template has a limit of its own. Then it says nothing of
 * the others, and has a maximum of its own: one upload of it leaves, then two, then four, while all of them go through.
 * When this maximum is no lower than the number of extra ones, the route counts as one of the others again.
 */
export class WaitingUploads {
  readonly #ports: ResubmitPorts;
  readonly #options: Required<WaitingOptions>;
  #line: LineState | undefined;
  /** True if uploads waited in the line in the last round. */
  isLine = false;
  #endedBefore = 0;
  /** Below 1 if the last round of this tick did not keep up with the running flows: see {@link notePolls}. */
  #pollShare = 1;

  constructor(ports: ResubmitPorts, remembered: LineState | undefined, options: WaitingOptions) {
    this.#ports = ports;
    this.#line = remembered;
    const room = async (): Promise<Room> => () => Number.POSITIVE_INFINITY;
    this.#options = { dueMax: DUE_MAX, room, placedPage: PLACED_PAGE, ...options };
  }

  /** What the next tick has to know of the line. */
  get remembered(): LineState | undefined {
    return this.#line;
  }

  /**
   * Resubmits what is due, and those whose turn it is in the line.
   * @param endedCount flows that have ended in this tick so far.
   */
  async resubmitDue(endedCount: number, signal: AbortSignal): Promise<{ sent: number; failures: readonly unknown[] }> {
    const { telemetry, clock, ledger, deletions } = this.#ports;
    // What is left over the maximum follows in the next round.
    const { isOurs: isWanted, dueMax: max } = this.#options;
    const { due, isLine } = await ledger.waitingAt(clock.now(), { max, isWanted }, signal);
    this.isLine = isLine;
    const failures = await this.#placeAnew(isLine, signal);
    if (isLine) due.push(...(await this.#nextInLine(endedCount - this.#endedBefore, signal)));
    this.#endedBefore = endedCount;
    // The time for deletions begins only now, because a look through the line may take longer than that.
    deletions?.beginRound();
    const sent: Entry[] = [];
    const resubmitOne = async (marker: WaitingMarker): Promise<void> => {
      const entry = await resubmit(marker, this.#ports, signal);
      if (entry !== undefined) sent.push(entry);
    };
    failures.push(...(await this.#each(due, resubmitOne, 'A waiting upload could not be resubmitted')));
    if (sent.length > 0) {
      telemetry.metrics.add('UploadsResubmitted', sent.length);
      // Uploads that wait to be approved are no backlog.
      const awaited = sent.filter((entry) => entry.state !== 'waiting' || entry.reason !== 'review');
      const oldest = Math.min(clock.now(), ...awaited.map(({ arrivedAt }) => arrivedAt));
      telemetry.metrics.add('OldestWaitingSeconds', secondsBetween(oldest, clock.now()));
    }
    return { sent: sent.length, failures };
  }

  /** Does the same for each marker, side by side. Returns the failures, which keep no other upload back. */
  async #each(
    markers: readonly WaitingMarker[],
    act: (marker: WaitingMarker) => Promise<void>,
    failed: string,
  ): Promise<unknown[]> {
    const failures: unknown[] = [];
    const actAlone = (marker: WaitingMarker) =>
      act(marker).catch((error) => {
        this.#ports.telemetry.log.error(failed, { uploadId: marker.uploadId, error });
        failures.push(error);
      });
    await pMap(markers, actAlone, { concurrency: CONCURRENCY });
    return failures;
  }

  /**
   * Moves uploads in the line to their new places after the routes were changed, some pages of the line in each round.
   * Otherwise an upload whose old route has no room would wait for room, although another route takes it now. The line
   * is looked through twice for each change. Uploads that come into it later have the right place.
   */
  async #placeAnew(isAnyInLine: boolean, signal: AbortSignal): Promise<unknown[]> {
    const { ledger, clock, settings } = this.#ports;
    const { isOurs, placedPage } = this.#options;
    const now = clock.now();
    const line = this.#state;
    const routes = choiceOf(settings.routes);
    let placing: NonNullable<LineState['placing']> =
      line.placing?.routes === routes ? line.placing : { routes, since: now, passes: 0 };
    const failures: unknown[] = [];
    if (placing.passes === 0 || (placing.passes === 1 && now >= placing.since + PLACED_AGAIN_MS)) {
      const { passes, after, ...facts } = placing;
      const pages = isAnyInLine ? ledger.markersInLine(LINE_PREFIX, placedPage, signal, after) : [];
      placing = { ...facts, passes: passes + 1 };
      let count = 0;
      for await (const markers of pages) {
        const last = markers.at(-1);
        const ours = markers.filter(({ uploadId }) => isOurs(uploadId));
        const act = (marker: WaitingMarker) => this.#moveToPlace(marker, signal);
        failures.push(...(await this.#each(ours, act, 'The place of a waiting upload could not be changed')));
        count += 1;
        if (count < PLACED_PAGES_MAX || last === undefined) continue;
        placing = { ...facts, passes, after: waitingKey(last) };
        break;
      }
    }
    this.#line = { ...this.#state, placing };
    return failures;
  }

  /** Replaces the marker of an upload that has another place in the line now. Its entry then names the other route. */
  async #moveToPlace(marker: WaitingMarker, signal: AbortSignal): Promise<void> {
    const { ledger, settings } = this.#ports;
    const stored = await this.#storedOf(marker.uploadId, signal);
    if (stored?.entry.state !== 'waiting') return;
    const present = waitingMarkerOf(stored.entry, settings) as WaitingMarker;
    if (waitingKey(present) === waitingKey(marker)) return;
    const next = takenBy(stored.entry, settings.routes);
    if (next !== stored.entry && !(await ledger.replace(stored, next, signal)).won) return;
    await ledger.putWaitingMarker(present, signal);
    await ledger.deleteWaitingMarker(marker, signal);
  }

  /** What is known of the line. */
  get #state(): LineState {
    return this.#line ?? { sent: {}, throughAt: 0, refused: {}, extra: 1, turns: BEGINNING };
  }

  /**
   * Notes the last round of polls. If the service does not let us poll all running flows in time, fewer leave the line,
   * and no extra ones. Otherwise flows would pile up that wait for their polls, and the flow of a new file behind them.
   * @param share the poll interval divided by what the round took. 1 if the round took no longer than that.
   */
  notePolls(share: number): void {
    this.#pollShare = share;
    if (share < 1 && this.#line !== undefined) this.#line = { ...this.#line, extra: 1 };
  }

  async #nextInLine(endedCount: number, signal: AbortSignal): Promise<readonly WaitingMarker[]> {
    const { ledger, clock, settings } = this.#ports;
    const now = clock.now();
    const { line, isUndecided } = await this.#watch(this.#state, signal);
    const { sent, refused } = line;
    // A round of polls may have ended meanwhile, and have been too long.
    this.#line = { ...line, extra: Math.min(line.extra, this.#state.extra) };
    const extra = this.#pollShare < 1 || isUndecided ? 0 : line.extra;
    const held = await this.#options.room(signal);
    const room: Room = (route, of) => {
      const name = route && shortSegment(route);
      if (name === undefined || !Object.hasOwn(refused, name)) return held(route, of);
      return Math.min(held(route, of), Object.hasOwn(sent, name) ? 0 : (refused[name] as number));
    };
    const count = Math.min(Math.ceil(endedCount * this.#pollShare) + extra, room());
    const wanted = { count, now, ledger, routes: settings.routes, isOurs: this.#options.isOurs, room };
    const { next, turns } = await nextTurns(wanted, line.turns, signal);
    const lastOf = (markers: readonly WaitingMarker[]) => markers.slice(-WATCHED_MAX).map(({ uploadId }) => uploadId);
    const left = Map.groupBy(next, ({ turn }) => turn?.route ?? '').entries();
    const leftNow = Object.fromEntries(left.map(([route, markers]) => [route, { at: now, ids: lastOf(markers) }]));
    const grown = next.length === count ? Math.min(EXTRA_MAX, 2 * extra) : extra;
    const isKept = next.length === 0 || extra === 0 || this.#pollShare < 1;
    // If a route has undecided uploads, they stay watched, and those that leave now are not. The latter only take the
    // places of ended flows, so what becomes of them says less.
    this.#line = { ...line, turns, sent: { ...leftNow, ...sent }, extra: isKept ? this.#state.extra : grown };
    return next;
  }

  /** Looks at the uploads that left the line last. Returns what is known of the line by now. */
  async #watch(line: LineState, signal: AbortSignal): Promise<{ line: LineState; isUndecided: boolean }> {
    const read = async (id: string) => [id, (await this.#storedOf(id, signal))?.entry] as const;
    const ids = Object.values(line.sent).flatMap((sent) => sent.ids);
    const entries = new Map(await pMap(ids, read, { concurrency: CONCURRENCY }));
    const now = this.#ports.clock.now();
    const look = ([route, sent]: [string, Sent]): Look => ({ route, sent, fate: fateOf(sent, entries, now) });
    return afterLook(line, Object.entries(line.sent).map(look));
  }

  /** Undefined also if it cannot be read: that is reported when its marker is due again. */
  #storedOf(uploadId: string, signal: AbortSignal): Promise<Stored | undefined> {
    return readableOr(this.#ports.ledger.read(uploadId, signal), () => undefined);
  }
}

/** A hash of what chooses between the routes. */
function choiceOf(routes: readonly Route[]): string {
  const choices = routes.map(({ template, parameters, additional, price, budget, ...choice }) => choice);
  return hash('sha256', JSON.stringify(choices));
}

/** What became of these uploads of a route. @param all their entries by id, undefined if one cannot be read. */
function fateOf({ at: sentAt, ids }: Sent, all: ReadonlyMap<string, Entry | undefined>, now: number): Fate {
  const entries = ids.map((id) => all.get(id));
  // An upload that came back because of a hold says nothing about the service.
  const inLine = entries.flatMap((entry) =>
    entry?.state === 'waiting' && isInLine(entry) && !isHold(entry.reason) ? [entry] : [],
  );
  if (inLine.some(({ notBefore }) => notBefore > sentAt)) return 'refused';
  const isUndecided = inLine.length > 0 || entries.some((entry) => entry?.state === 'claimed');
  return isUndecided && now < sentAt + WATCHED_MAX_MS ? 'undecided' : 'through';
}

interface Look {
  readonly route: string;
  readonly sent: Sent;
  readonly fate: Fate;
}

/**
 * What is known of the line after a look at the uploads that left it last, and whether some of them are undecided. In
 * this order:
 *
 * 1. A route that was refused is refused alone if others went through at the same time or later. Its maximum is 1.
 * 2. Each time that the uploads of such a route go through, its maximum doubles. Once that is no lower than the extra
 *    number of the others, the route is one of them again.
 * 3. If another route is refused, the extra number is 1 again.
 *
 * If a and b left at 60 and the extra number is 8, with a refused and b through, then a has a maximum of 1 and the extra
 * number stays 8. The next three times that a goes through, its maximum is 2, then 4, and then it has none.
 */
function afterLook(line: LineState, looks: readonly Look[]): { line: LineState; isUndecided: boolean } {
  const throughAt = Math.max(line.throughAt, ...looks.map(({ sent, fate }) => (fate === 'through' ? sent.at : 0)));
  const alone = new Map(Object.entries(line.refused));
  for (const { route, sent, fate } of looks) {
    const max = alone.get(route);
    if (fate === 'refused' && (max !== undefined || sent.at <= throughAt)) alone.set(route, 1);
    if (fate !== 'through' || max === undefined) continue;
    if (2 * max < line.extra) alone.set(route, 2 * max);
    else alone.delete(route);
  }
  // What becomes of a route that is refused alone says nothing of the others.
  const isAny = (wanted: Fate) => looks.some(({ route, fate }) => fate === wanted && !alone.has(route));
  const isUndecided = isAny('undecided');
  // While others are undecided, it is not known yet whether a route is refused alone.
  const isOpen = ({ route, fate }: Look) =>
    fate === 'undecided' || (fate === 'refused' && isUndecided && !alone.has(route));
  const sent = Object.fromEntries(looks.filter(isOpen).map(({ route, sent }) => [route, sent]));
  const extra = isAny('refused') ? 1 : line.extra;
  return { line: { ...line, sent, throughAt, refused: Object.fromEntries(alone), extra }, isUndecided };
}
