import * as z from 'zod/mini';
import { shortSegment } from '../base/key-segment.ts';
import { orDropped } from '../base/stored-state.ts';
import { byName } from '../base/validation.ts';
import { classPrefix, routePrefix, segmentPrefix, type TurnClass, type WaitingMarker } from '../ledger/keys.ts';
import type { Ledger } from '../ledger/store.ts';
import type { Route } from '../uploads/route.ts';
import { UPLOAD_ID } from '../uploads/upload.ts';

/** Maximum number of LIST requests of a round in each of the two classes: a few seconds of work. */
const LISTS_MAX = 150;

/** Minimum number of folders and markers that a LIST request reads. It reads more if there are more turns to give. */
const PAGE_MIN = 100;

/** The most that S3 lists at once. */
const PAGE_MAX = 1_000;

/** One turn in this number is that of a late upload, if one waits. */
const LATE_EVERY = 10;

/** Where the turns of a class stand. */
const classState = z.object({
  /** The route that was looked at last. The next round begins after it. */
  route: z.optional(z.string()),
  /** The segment of each waiting route that was looked at last. The next round begins after it. */
  segments: byName(z.string()),
});
type ClassState = Readonly<z.infer<typeof classState>>;

/** Where the turns stand. If it is lost, they begin anew, and no upload is lost. */
const turnState = z.object({
  /** Turns since the last one that was kept for late uploads. */
  count: z.int().check(z.gte(0)),
  live: classState,
  late: classState,
});
type TurnState = Readonly<z.infer<typeof turnState>>;

/** The form of {@link LineState}. @param time the form of a time in milliseconds since the epoch. @internal */
export const lineState = (time: z.ZodMiniNumber) =>
  z.object({
    /** By route, the last uploads that left, and when. They are kept until it is known what became of them. */
    sent: byName(z.object({ at: time, ids: z.readonly(z.array(z.string().check(z.regex(UPLOAD_ID)))) })),
    /** When the last uploads that went through left the line. */
    throughAt: time,
    /** By route, if it is refused while others go through: how many uploads may leave at a time. */
    refused: byName(z.int().check(z.gte(1))),
    /** How many extra uploads may leave next, beyond one for each flow that ended. */
    extra: z.int().check(z.gte(1)),
    turns: turnState,
    /** How far the line was looked through since the routes were changed. */
    placing: orDropped(
      z.object({
        /** The routes, as a hash of what chooses one of them. */
        routes: z.string(),
        /** When a round first had them. */
        since: time,
        /** How often the line was looked through to its end: up to twice. */
        passes: z.int().check(z.gte(0)),
        /** The key of the last marker that was looked at, if a look has begun. */
        after: z.optional(z.string()),
      }),
    ),
  });
/** What the next round has to know of the line. */
export type LineState = Readonly<z.infer<ReturnType<typeof lineState>>>;

/** Before the first turn. */
export const BEGINNING: TurnState = { count: 0, live: { segments: {} }, late: { segments: {} } };

/** How many uploads may leave the line now: of one class of a route, of a whole route, or of all routes together. */
export type Room = (route?: string, of?: TurnClass) => number;

interface Wanted {
  /** The number of turns. */
  readonly count: number;
  readonly now: number;
  readonly ledger: Pick<Ledger, 'foldersBelow' | 'markersInLine'>;
  readonly routes: readonly Route[];
  readonly isOurs: (uploadId: string) => boolean;
  readonly room: Room;
  /** Maximum number of LIST requests in each class. Default {@link LISTS_MAX}. */
  readonly listsMax?: number;
}

/** What the listings of one class in a round share. */
interface Round extends Wanted {
  /** Folders and markers that a LIST request reads. */
  readonly page: number;
  /** LIST requests that are left. */
  lists: number;
  /** How many more uploads of each route may leave, of both classes together. A class may have less room. */
  readonly rooms: Map<string, number>;
}

/**
 * Finds whose turn it is in the line: each tenth turn is one of a late upload, and all others are of live ones, unless
 * none of them is due. Within a class, the turns go round the routes, within a route they go round the segments, and
 * within a segment the longest waiting upload leaves first.
 *
 * Of 12 turns, the first 9 are of live uploads, the tenth is of a late one, and the last two are of live ones again. If
 * `anna/` has two uploads for the route a, `ben/` one for a, and `carl/` one for b, they leave in this order: the first
 * of `anna/`, that of `carl/`, that of `ben/`, the second of `anna/`.
 *
 * Routes, segments and uploads are listed only when it is their turn.
 * @returns the markers that have the next turns, and where the turns stand then.
 */
export async function nextTurns(
  wanted: Wanted,
  state: TurnState,
  signal: AbortSignal,
): Promise<{ readonly next: readonly WaitingMarker[]; readonly turns: TurnState }> {
  const { count: before, ...states } = state;
  const page = Math.min(PAGE_MAX, Math.max(PAGE_MIN, wanted.count));
  const round: Round = { ...wanted, page, lists: wanted.listsMax ?? LISTS_MAX, rooms: new Map() };
  const live = new ClassTurns('live', { ...round }, states.live);
  const late = new ClassTurns('late', { ...round }, states.late);
  const next: WaitingMarker[] = [];
  let count = before;
  while (next.length < wanted.count) {
    const [first, second] = count === LATE_EVERY - 1 ? [late, live] : [live, late];
    const marker = (await first.next(signal)) ?? (await second.next(signal));
    if (marker === undefined) break;
    next.push(marker);
    count = (count + 1) % LATE_EVERY;
  }
  return { next, turns: { count, live: live.state, late: late.state } };
}

/** The turns of one class in a round. */
class ClassTurns {
  readonly #class: TurnClass;
  readonly #round: Round;
  readonly #before: ClassState;
  /** The routes that may have a turn, the next one first. Undefined before they are listed. */
  #routes: RouteTurns[] | undefined;
  #listed: readonly RouteTurns[] = [];
  #last: string | undefined;

  constructor(of: TurnClass, round: Round, before: ClassState) {
    this.#class = of;
    this.#round = round;
    this.#before = before;
    this.#last = before.route;
  }

  get state(): ClassState {
    if (this.#routes === undefined) return this.#before;
    const segments = this.#listed.flatMap(({ name, last }) => (last === undefined ? [] : [[name, last] as const]));
    return { route: this.#last, segments: Object.fromEntries(segments) };
  }

  async next(signal: AbortSignal): Promise<WaitingMarker | undefined> {
    this.#routes ??= await this.#list(signal);
    for (;;) {
      const [route] = this.#routes;
      if (route === undefined) return undefined;
      const isLookedAt = this.#round.lists > 0;
      const marker = await route.next(signal);
      // If no request is left for a route, the next round begins with that route.
      if (isLookedAt || marker !== undefined) this.#last = route.name;
      if (marker === undefined) {
        this.#routes.shift();
        continue;
      }
      this.#routes.push(this.#routes.shift() as RouteTurns);
      return marker;
    }
  }

  async #list(signal: AbortSignal): Promise<RouteTurns[]> {
    const { route: last, segments } = this.#before;
    const names = await foldersFrom(classPrefix(this.#class), last, this.#round, signal);
    this.#listed = names.map((name) => {
      const segment = Object.hasOwn(segments, name) ? segments[name] : undefined;
      return new RouteTurns(this.#class, name, this.#round, segment);
    });
    return this.#listed.filter(({ hasRoom }) => hasRoom);
  }
}

/** The turns of one route of a class in a round. */
class RouteTurns {
  /** As it is in keys. */
  readonly name: string;
  readonly #class: TurnClass;
  readonly #round: Round;
  /** The segments that may have a turn, the next one first. Undefined before they are listed. */
  #segments: SegmentTurns[] | undefined;
  /** The segment that was looked at last. */
  last: string | undefined;
  /** How many more uploads of this class may leave. */
  #own: number;

  constructor(of: TurnClass, name: string, round: Round, last: string | undefined) {
    const route = round.routes.find((each) => shortSegment(each.name) === name);
    this.name = name;
    this.#class = of;
    this.#round = round;
    if (!round.rooms.has(name)) round.rooms.set(name, round.room(route?.name ?? name));
    this.#own = round.room(route?.name ?? name, of);
    this.last = last;
  }

  get hasRoom(): boolean {
    return Math.min(this.#own, this.#ofBoth) >= 1;
  }

  get #ofBoth(): number {
    return this.#round.rooms.get(this.name) ?? 0;
  }

  async next(signal: AbortSignal): Promise<WaitingMarker | undefined> {
    if (!this.hasRoom) return undefined;
    this.#segments ??= await this.#list(signal);
    for (;;) {
      const [segment] = this.#segments;
      if (segment === undefined || !segment.mayHaveNext) return undefined;
      this.#segments.shift();
      this.last = segment.name;
      const marker = await segment.next(signal);
      if (marker === undefined) continue;
      this.#segments.push(segment);
      this.#own -= 1;
      this.#round.rooms.set(this.name, this.#ofBoth - 1);
      return marker;
    }
  }

  async #list(signal: AbortSignal): Promise<SegmentTurns[]> {
    const route = { class: this.#class, route: this.name };
    const names = await foldersFrom(routePrefix(route), this.last, this.#round, signal);
    return names.map((segment) => new SegmentTurns(segment, segmentPrefix({ ...route, segment }), this.#round));
  }
}

/** The turns of one segment of a route in a round. */
class SegmentTurns {
  readonly name: string;
  readonly #prefix: string;
  readonly #round: Round;
  #pages: AsyncGenerator<readonly WaitingMarker[]> | undefined;
  #due: WaitingMarker[] = [];

  constructor(name: string, prefix: string, round: Round) {
    this.name = name;
    this.#prefix = prefix;
    this.#round = round;
  }

  /** False if no marker is left, and no request to list more. Then the next round begins with this segment. */
  get mayHaveNext(): boolean {
    return this.#due.length > 0 || this.#round.lists > 0;
  }

  async next(signal: AbortSignal): Promise<WaitingMarker | undefined> {
    const { ledger, isOurs, now, page } = this.#round;
    this.#pages ??= ledger.markersInLine(this.#prefix, page, signal);
    while (this.#due.length === 0 && this.#round.lists > 0) {
      const { value, done } = await this.#pages.next();
      if (done) return undefined;
      this.#round.lists -= 1;
      this.#due = value.filter(({ uploadId, notBefore }) => isOurs(uploadId) && notBefore <= now);
    }
    return this.#due.shift();
  }
}

/** The folders below a prefix, beginning after the one that had the last turn, and then from the first one. */
async function foldersFrom(
  prefix: string,
  last: string | undefined,
  round: Round,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { ledger, page: max } = round;
  if (round.lists <= 0) return [];
  round.lists -= 1;
  const { folders, isTruncated } = await ledger.foldersBelow(prefix, { max }, signal);
  if (last === undefined) return folders;
  const isAfter = (folder: string): boolean => `${folder}/` > `${last}/`;
  const first = folders.filter((folder) => !isAfter(folder));
  if (!isTruncated || round.lists <= 0) return [...folders.filter(isAfter), ...first];
  round.lists -= 1;
  const { folders: after } = await ledger.foldersBelow(prefix, { after: last, max }, signal);
  return [...after, ...first];
}
