import { beforeEach, describe, expect, it } from 'vitest';
import { parsedState } from '../../functions/collect-outputs/collector.ts';
import {
  type ClaimedEntry,
  claimAgain,
  type Entry,
  firstClaim,
  running,
  type Wait,
  waiting,
  waitingMarkerOf,
} from '../../functions/ledger/entry.ts';
import type { Turn, WaitingMarker } from '../../functions/ledger/keys.ts';
import { BEGINNING, nextTurns, type Room } from '../../functions/resubmit/line.ts';
import { WaitingUploads } from '../../functions/resubmit/waiting-uploads.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { uploadId } from '../../functions/uploads/upload.ts';
import { never } from '../flow-service/scripted.ts';
import { ECHO, HOUR, INBOX, LEDGER, MINUTE, openWorld, SECOND, type World } from '../support/world.ts';

/** Each takes the files with its name as their suffix. */
const ROUTES = ['echo', 'a', 'b', 'full', 'open', 'tight'].map((name) => ({ ...ECHO, name, suffixes: [`.${name}`] }));

let world: World;
let waitingUploads: WaitingUploads;
beforeEach(async () => {
  world = await openWorld({ isVirtual: true, routes: ROUTES });
  waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true });
});

/** An object. The ids of these objects are in the reverse order of the times since which the uploads wait. */
function objectOf(index: number, folder = '', route = 'echo') {
  const lastModified = (Math.floor(world.clock.now() / SECOND) - index) * SECOND;
  const object = { bucket: INBOX, key: `${folder}${index}.${route}`, etag: 'e', lastModified };
  return { id: uploadId(object), ...object, bytes: 1, mediaType: 'a/b' };
}

interface Of {
  readonly reason?: Wait['reason'];
  /** With a slash at its end. Default: none. */
  readonly folder?: string;
  readonly route?: string;
  readonly late?: true;
  /** How long it may not be sent yet. Default: it is due. */
  readonly waitMs?: number;
}

/** Makes an upload that has waited for so many minutes. */
async function waits(index: number, minutesAgo: number, of: Of = {}): Promise<WaitingMarker> {
  const { reason = 'throttled', folder, route: name = 'echo', late, waitMs = -SECOND } = of;
  const { ledger, clock, settings } = world.ports;
  const since = clock.now() - minutesAgo * MINUTE;
  const upload = objectOf(index, folder, name);
  const route = { name, input: 'file' as const, template: 'bytes_echo' };
  const claim = firstClaim(upload, route, {
    claimedAt: since,
    deadline: since + MINUTE,
    pipeline: 'test',
    keyScope: '',
    late,
  });
  const written = await ledger.create(claim, never);
  if (!written.won) throw new Error(`There is an upload ${index} already`);
  const wait = { reason, message: 'Come again.', counted: false, notBefore: clock.now() + waitMs };
  const entry = waiting(claim, wait);
  await ledger.replace({ ...written.stored, entry: claim }, entry, never);
  const marker = waitingMarkerOf(entry, settings) as WaitingMarker;
  await ledger.putWaitingMarker(marker, never);
  return marker;
}

const throttled = async (count: number, of?: Of, from = 0): Promise<WaitingMarker[]> => {
  const markers: WaitingMarker[] = [];
  for (let index = from; index < from + count; index += 1) markers.push(await waits(index, 600 - index, of));
  return markers;
};

/** Returns the keys of the uploads that one round resubmits, in its order, a minute after the last round. */
async function keysOfRound(endedCount = 0): Promise<string[]> {
  world.clock.advance(MINUTE);
  const { failures } = await waitingUploads.resubmitDue(endedCount, never);
  expect(failures).toEqual([]);
  const messages: string[] = [];
  for (let taken = world.takeMessages(); taken.length > 0; taken = world.takeMessages()) messages.push(...taken);
  return messages.map((body) => decodeURIComponent(/"key":"([^"]+)"/.exec(body)?.[1] ?? ''));
}

/** The same, sorted by their numbers. */
const round = async (endedCount?: number): Promise<number[]> =>
  (await keysOfRound(endedCount)).map(numberOf).sort((a, b) => a - b);

const numberOf = (key: string): number => Number(/\d+(?=\.)/.exec(key)?.[0]);

/** The same, and the service makes a flow of each. */
async function acceptedRound(endedCount?: number): Promise<number[]> {
  const sent = await round(endedCount);
  await accepted(sent);
  return sent;
}

/** The service makes a flow of each. */
const accepted = (sent: readonly number[]): Promise<void> =>
  decided(sent, (claim) => running(claim, { id: claim.upload.id, createdAt: world.clock.now() }));

async function decided(sent: readonly number[], next: (claim: ClaimedEntry) => Entry): Promise<void> {
  const { ledger, clock } = world.ports;
  for (const { upload } of await world.entries()) {
    const stored = await ledger.read(upload.id, never);
    if (!sent.includes(numberOf(upload.key)) || stored?.entry.state !== 'waiting') continue;
    const now = clock.now();
    const claim = claimAgain(stored.entry, { claimedAt: now, deadline: now + MINUTE, pipeline: 'test', keyScope: '' });
    await ledger.replace(stored, next(claim), never);
  }
}

/** The service refuses resubmitted uploads, so their markers are back at their places in the line. */
async function refused(sent: readonly number[], waitMs: number): Promise<void> {
  const { ledger, clock, settings } = world.ports;
  await decided(sent, (claim) => {
    const wait = { message: 'Come again.', counted: false, notBefore: clock.now() + waitMs };
    return waiting(claim, { ...wait, reason: 'throttled' });
  });
  for (const entry of await world.entries()) {
    if (!sent.includes(numberOf(entry.upload.key)) || entry.state !== 'waiting') continue;
    await ledger.putWaitingMarker(waitingMarkerOf(entry, settings) as WaitingMarker, never);
  }
}

describe('uploads in the line', () => {
  it('leave it longest waiting first, one more of them than flows have ended', async () => {
    await throttled(9);
    expect(await acceptedRound()).toEqual([0]);
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true });
    expect(await acceptedRound(3)).toEqual([1, 2, 3, 4]);
  });

  it('leave it in twice the number each time, until one comes back', async () => {
    await throttled(40);
    const sizes: number[] = [];
    for (let i = 0; i < 4; i += 1) sizes.push((await acceptedRound()).length);
    expect(sizes).toEqual([1, 2, 4, 8]);
    await refused(await round(), HOUR);
    expect(await acceptedRound()).toHaveLength(1);
  });

  it('leave it one by one again after one came back', async () => {
    await throttled(12);
    for (let i = 0; i < 2; i += 1) await acceptedRound();
    await refused((await round()).slice(-1), HOUR);
    const sizes: number[] = [];
    for (let i = 0; i < 2; i += 1) sizes.push((await acceptedRound()).length);
    expect(sizes).toEqual([1, 2]);
  });

  it('leave it in smaller numbers, and no extra ones, while the service does not let us poll all flows in time', async () => {
    await throttled(30);
    expect(await acceptedRound()).toEqual([0]);
    waitingUploads.notePolls(0.25);
    expect(await acceptedRound(40)).toHaveLength(10);
    waitingUploads.notePolls(1);
    expect(await acceptedRound(45)).toHaveLength(5 + 1);
    waitingUploads.notePolls(1);
    expect(await acceptedRound(45)).toHaveLength(2);
  });

  it('leave it in no larger numbers if polls that took too long end while the line is read', async () => {
    await throttled(60);
    for (let i = 0; i < 4; i += 1) await acceptedRound();
    const { ledger } = world.ports;
    const read = ledger.read.bind(ledger);
    ledger.read = (...args) => {
      ledger.read = read;
      waitingUploads.notePolls(0.25);
      return read(...args);
    };
    await acceptedRound();
    waitingUploads.notePolls(1);
    expect(await acceptedRound()).toHaveLength(1);
  });

  it('leave it no faster than flows end, while the last ones are still in the queue or being sent', async () => {
    await throttled(12);
    expect(await round()).toEqual([0]);
    world.clock.advance(-MINUTE);
    expect(await round(2)).toEqual([1, 2]);
    await decided([2], (claim) => claim);
    world.clock.advance(-MINUTE);
    expect(await round(2)).toEqual([]);
  });

  it('do not wait for ever for one whose message was lost', async () => {
    await throttled(6);
    expect(await round()).toEqual([0]);
    expect(await round()).toEqual([]);
    expect(await round()).toEqual([1, 2]);
  });

  it('leave it in the numbers of the last tick', async () => {
    await throttled(8);
    for (let i = 0; i < 2; i += 1) await acceptedRound();
    waitingUploads = new WaitingUploads(world.ports, waitingUploads.remembered, { isOurs: () => true });
    expect(await round()).toHaveLength(4);
  });

  it('do not wait behind one that comes back every time', async () => {
    await throttled(6);
    const sent: number[] = [];
    for (let i = 0; i < 10; i += 1) {
      const next = await round();
      if (next.includes(0)) await refused([0], 2 * MINUTE);
      await accepted(next.filter((number) => number !== 0));
      sent.push(...next);
    }
    expect(new Set(sent)).toEqual(new Set([0, 1, 2, 3, 4, 5]));
  });

  /**
   * Rounds until the service has made a flow of each upload of route `b`. It refuses each one of `a`. It does each after
   * some time.
   */
  async function roundsUntilDone(refusalRounds: number, creationRounds: number): Promise<number> {
    let inQueue: { number: number; until: number }[] = [];
    let inCreation: { number: number; until: number }[] = [];
    for (let rounds = 1; rounds < 100; rounds += 1) {
      const keys = await keysOfRound();
      const ofA = keys.filter((key) => key.endsWith('.a')).map(numberOf);
      inQueue.push(...ofA.map((number) => ({ number, until: rounds + refusalRounds })));
      const late = inQueue.filter(({ until }) => until <= rounds).map(({ number }) => number);
      inQueue = inQueue.filter(({ until }) => until > rounds);
      if (late.length > 0) await refused(late, 2 * MINUTE);
      const ofB = keys.filter((key) => key.endsWith('.b')).map(numberOf);
      inCreation.push(...ofB.map((number) => ({ number, until: rounds + creationRounds })));
      await accepted(inCreation.filter(({ until }) => until <= rounds).map(({ number }) => number));
      inCreation = inCreation.filter(({ until }) => until > rounds);
      const waiting = await world.entries();
      if (waiting.every(({ state, upload }) => state !== 'waiting' || upload.key.endsWith('.a'))) return rounds;
    }
    throw new Error('Uploads still wait after 100 rounds');
  }

  it.each([
    [0, 0],
    [1, 0],
    [0, 1],
    [1, 1],
  ])(
    'do not crawl because another route is refused every time, after %i rounds, and they have their flows after %i',
    async (refusalRounds, creationRounds) => {
      await throttled(20, { route: 'a' });
      await throttled(60, { route: 'b' }, 20);
      // Alone they need six: 1, 2, 4, 8, 16 and the rest.
      expect(await roundsUntilDone(refusalRounds, creationRounds)).toBeLessThanOrEqual(20);
    },
  );

  it('of a route that was refused every time leave it like others once one goes through', async () => {
    await throttled(40, { route: 'a' });
    await throttled(4, { route: 'b' }, 40);
    const sizes: number[] = [];
    for (let rounds = 0; rounds < 10; rounds += 1) {
      const sent = await round();
      const isRefused = rounds < 5;
      if (isRefused)
        await refused(
          sent.filter((number) => number < 40),
          MINUTE / 2,
        );
      await accepted(sent.filter((number) => number >= 40 || !isRefused));
      sizes.push(sent.filter((number) => number < 40).length);
    }
    // Alone, one at a time. Then in twice the number each time.
    expect(Math.max(...sizes.slice(0, 6))).toBe(1);
    expect(sizes.slice(6).reduce((sum, size) => sum + size)).toBeGreaterThan(20);
  });

  it('of a route with a limit of its own leave it in small numbers, however many others leave', async () => {
    await throttled(40, { route: 'a' });
    await throttled(120, { route: 'b' }, 40);
    const sizes: number[] = [];
    for (let rounds = 0; rounds < 12; rounds += 1) {
      const sent = await round();
      const ofA = sent.filter((number) => number < 40);
      sizes.push(ofA.length);
      // From the seventh round on, one place is free in each.
      const taken = sent.filter((number) => number >= 40 || (rounds >= 6 && number === ofA[0]));
      await accepted(taken);
      await refused(
        ofA.filter((number) => !taken.includes(number)),
        MINUTE / 2,
      );
    }
    expect(sizes.slice(6)).toEqual([1, 2, 1, 2, 1, 2]);
  });

  it('are watched until they are decided, although one goes through that has the place of an ended flow', async () => {
    await throttled(60);
    for (let i = 0; i < 3; i += 1) await acceptedRound();
    const eight = await round();
    expect(eight).toHaveLength(8);
    world.clock.advance(-MINUTE / 2);
    expect(await acceptedRound(1)).toHaveLength(1);
    await refused(eight, HOUR);
    expect(await acceptedRound(1)).toHaveLength(1);
  });

  it('of a route that is refused every time do not hold back others while it has no room', async () => {
    let room = Number.POSITIVE_INFINITY;
    const rooms = async () => (route?: string) => (route === 'a' ? room : Number.POSITIVE_INFINITY);
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true, room: rooms });
    await throttled(2, { route: 'a' });
    await throttled(40, { route: 'b' }, 2);
    await refused(await round(), HOUR);
    room = 0;
    const sizes: number[] = [];
    for (let i = 0; i < 5; i += 1) sizes.push((await acceptedRound()).length);
    expect(sizes).toEqual([1, 2, 4, 8, 16]);
  });

  it('do not delay uploads that wait for another reason', async () => {
    await throttled(3);
    for (let index = 10; index < 16; index += 1) await waits(index, 5, { reason: 'unavailable' });
    expect(await round()).toEqual([0, 10, 11, 12, 13, 14, 15]);
  });

  it('are left to their own collector', async () => {
    const [first] = await throttled(3);
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: (id) => id !== first?.uploadId });
    expect(await round()).toEqual([1]);
  });

  it('are found behind many that may not be sent yet', async () => {
    await throttled(250, { waitMs: HOUR });
    await throttled(1, {}, 250);
    expect(await round()).toEqual([250]);
  });
});

describe('turns in the line', () => {
  /** The folders, or the routes, of the uploads of one round. */
  const turnsOf = async (count: number, by: (key: string) => string): Promise<string> =>
    (await keysOfRound(count - 1)).map(by).join('');
  const folder = (key: string): string => key.split('/')[0] ?? '';

  /** One turn in each round: the state of the turns is all that the rounds share. */
  async function oneByOne(rounds: number, by: (key: string) => string): Promise<string> {
    let turns = '';
    for (let i = 0; i < rounds; i += 1) {
      const { remembered } = waitingUploads;
      const stored = parsedState(
        JSON.stringify({ line: remembered && { ...remembered, extra: 1 } }),
        world.clock.now(),
      );
      waitingUploads = new WaitingUploads(world.ports, stored.line, { isOurs: () => true });
      const [key = ''] = await keysOfRound();
      await decided([numberOf(key)], (claim) => running(claim, { id: claim.upload.id, createdAt: 1 }));
      turns += by(key);
    }
    return turns;
  }

  it('go round the first segments of the keys, however many files wait in one of them', async () => {
    await throttled(30, { folder: 'a/' });
    await throttled(1, { folder: 'b/' }, 30);
    await throttled(2, { folder: 'c/' }, 31);
    await throttled(1, {}, 33);
    expect(await turnsOf(8, (key) => (key.includes('/') ? folder(key) : '.'))).toBe('.abcacaa');
  });

  it('go on after the segment of the last one in the next round, and in the next tick', async () => {
    await throttled(6, { folder: 'a/' });
    await throttled(2, { folder: 'b/' }, 6);
    await throttled(2, { folder: 'b-/' }, 8);
    expect(await oneByOne(8, (key) => `${folder(key)} `)).toBe('a b- b a b- b a a ');
  });

  it('go round the routes', async () => {
    const routes = [
      { ...ECHO, name: 'one', suffixes: ['.one'] },
      { ...ECHO, name: 'two', suffixes: ['.two'] },
    ];
    world = await openWorld({ isVirtual: true, routes });
    const of = (name: string) => ({ route: name, folder: `${name}/` });
    await throttled(12, of('one'));
    await throttled(12, of('two'), 12);
    const letter = (key: string): string => key[0] ?? '';
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true });
    expect(await turnsOf(10, letter)).toBe('ototototot');
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true });
    expect(await oneByOne(10, letter)).toBe('ototototot');
  });

  it('are for late uploads once in ten, and otherwise only if no live one is due', async () => {
    await throttled(20, { folder: 'live/' });
    await throttled(20, { folder: 'late/', late: true }, 20);
    const letter = (key: string): string => (folder(key) === 'late' ? 'x' : '.');
    expect(await turnsOf(12, letter)).toBe('.........x..');
    waitingUploads = new WaitingUploads(world.ports, waitingUploads.remembered, { isOurs: () => true });
    expect(await turnsOf(20, letter)).toBe('.......x..xxxxxxxxx');
  });

  it('are not for a route without room, and for no more uploads of a route than it has room for', async () => {
    await throttled(5, { route: 'full' });
    await throttled(5, { route: 'open' }, 5);
    await throttled(5, { route: 'tight' }, 10);
    await throttled(5, { route: 'tight', late: true }, 15);
    const rooms: Record<string, number> = { full: 0, open: Number.POSITIVE_INFINITY, tight: 2 };
    const room = async () => (route?: string) => (route === undefined ? Number.POSITIVE_INFINITY : (rooms[route] ?? 0));
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true, room });
    const lists: string[] = [];
    world.beforeS3((_, { Prefix = '' }) => void lists.push(Prefix));
    const sent = await round(19);
    expect(sent.filter((number) => number >= 10)).toHaveLength(2);
    expect(sent.filter((number) => number < 10)).toEqual([5, 6, 7, 8, 9]);
    expect(lists.filter((prefix) => prefix.includes('full'))).toEqual([]);
  });

  it('are no more than all routes have room for together, and without room the line is not read', async () => {
    await throttled(5, { route: 'a' });
    let room = 2;
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true, room: async () => () => room });
    expect(await round(9)).toEqual([0, 1]);
    room = 0;
    const lists: string[] = [];
    world.beforeS3((call, { Prefix = '' }) => {
      if (call === 'ListObjectsV2' && Prefix.startsWith('waiting/turn/l')) lists.push(Prefix);
    });
    expect(await round(9)).toEqual([]);
    expect(lists).toEqual([]);
  });

  it('cost a bounded number of requests in a round, and none is passed over for ever', async () => {
    for (let index = 0; index < 40; index += 1) await waits(index, 5, { folder: `${index + 100}/`, waitMs: HOUR });
    await waits(40, 5, { folder: '999/' });
    const lists: string[] = [];
    world.beforeS3((call, { Prefix = '' }) => {
      if (call === 'ListObjectsV2') lists.push(Prefix);
    });
    const { ledger } = world.ports;
    const wanted = { count: 1, now: world.clock.now(), ledger, routes: [], isOurs: () => true, room: () => 1 };
    const sent: string[] = [];
    let turns = BEGINNING;
    for (let i = 0; i < 3; i += 1) {
      lists.length = 0;
      const found = await nextTurns({ ...wanted, listsMax: 20 }, turns, never);
      expect(lists.filter((prefix) => prefix.includes('/live/')).length).toBeLessThanOrEqual(20);
      sent.push(...found.next.map(({ turn }) => turn?.segment ?? ''));
      turns = found.turns;
    }
    expect(sent).toEqual(['999']);
  });

  it('are not lost by a route to another one whose uploads, none of them due, take all requests of a round', async () => {
    await throttled(250, { route: 'a', waitMs: HOUR });
    await throttled(1, { route: 'b' }, 250);
    const { ledger } = world.ports;
    const wanted = { count: 1, now: world.clock.now(), ledger, routes: ROUTES, isOurs: () => true, room: () => 1 };
    // They are for the routes, the folders of the first one, and two of its three pages.
    const first = await nextTurns({ ...wanted, listsMax: 4 }, BEGINNING, never);
    const { next } = await nextTurns({ ...wanted, listsMax: 4 }, first.turns, never);
    expect([first.next, next.map(({ turn }) => turn?.route)]).toEqual([[], ['b']]);
  });
});

describe('after the routes were changed, uploads in the line', () => {
  const PAGE = 5;
  /** The old route takes nothing that waits, and has no room. */
  const narrowed = { ...ECHO, name: 'full', suffixes: ['.none'] };
  const taking = { ...ECHO, name: 'open' };
  const room = async () => (route?: string) => (route === 'full' ? 0 : Number.POSITIVE_INFINITY);

  /** Redeploys with other routes. The state of the collector is stored in between. */
  function changedTo(room: () => Promise<Room>, ...routes: Route[]): void {
    world.redeploy({ routes });
    const stored = parsedState(JSON.stringify({ line: waitingUploads.remembered }), world.clock.now());
    waitingUploads = new WaitingUploads(world.ports, stored.line, { isOurs: () => true, room, placedPage: PAGE });
  }

  const reads = (): string[] => {
    const ids: string[] = [];
    world.beforeS3((call, { Key = '' }) => {
      if (call === 'GetObject' && Key.startsWith('uploads/')) ids.push(Key);
    });
    return ids;
  };

  it('go with the route that takes them now, although their old one has no room', async () => {
    await throttled(2, { route: 'full', reason: 'paused' });
    changedTo(room, ...ROUTES);
    expect(await round(9)).toEqual([]);
    changedTo(room, narrowed, taking);
    expect(await round(9)).toEqual([0, 1]);
  });

  it('end if no route takes them any more', async () => {
    await throttled(2, { route: 'full', reason: 'budget' });
    changedTo(room, ...ROUTES);
    expect(await round(9)).toEqual([]);
    changedTo(room, narrowed);
    await round();
    // They wait for no turn.
    expect(await round()).toEqual([0, 1]);
  });

  it('get their places in pages, however many they are, and then none is looked at any more', async () => {
    await throttled(24, { route: 'full', reason: 'paused' });
    const nowhere = async () => () => 0;
    changedTo(nowhere, narrowed, taking);
    const placed = async () => (await world.keys(LEDGER, 'waiting/turn/live/open/')).length;
    const read = reads();
    // The new places are behind the old ones, and are looked at as well.
    for (const places of [10, 20, 24, 24, 24]) {
      await round();
      expect(await placed()).toBe(places);
      expect(read.splice(0).length).toBeLessThanOrEqual(10);
    }
    // An invocation with the routes before may still put one.
    const marker = await waits(90, 5, { route: 'full', reason: 'paused' });
    const moved = { ...marker, turn: { ...(marker.turn as Turn), route: 'full' } };
    await world.ports.ledger.deleteWaitingMarker(marker, never);
    await world.ports.ledger.putWaitingMarker(moved, never);
    read.length = 0;
    await round();
    expect(read).toEqual([]);
    world.clock.advance(20 * MINUTE);
    for (let i = 0; i < 3; i += 1) await round();
    expect(await placed()).toBe(25);
    expect(read.splice(0).length).toBeGreaterThan(24);
    world.clock.advance(HOUR);
    await round();
    expect(read).toEqual([]);
  });

  it('that cannot be read keep no other from its place', async () => {
    const [broken] = await throttled(3, { route: 'full', reason: 'paused' });
    await world.put(LEDGER, `uploads/${broken?.uploadId}.json`, '{"schema":99}');
    changedTo(room, narrowed, taking);
    expect(await round(9)).toEqual([1, 2]);
  });
});

describe('a round', () => {
  beforeEach(() => {
    waitingUploads = new WaitingUploads(world.ports, undefined, { isOurs: () => true, dueMax: 3 });
  });

  it('resubmits no more than its limit, longest due first, and the next one resubmits the others', async () => {
    for (let index = 0; index < 5; index += 1) await waits(index, 60 - index, { reason: 'unavailable' });
    expect(await round()).toHaveLength(3);
    expect(await round()).toHaveLength(2);
    expect(await round()).toEqual([]);
  });

  it('is not filled for ever by entries that cannot be read', async () => {
    const due = world.clock.now() - HOUR;
    for (let index = 0; index < 3; index += 1) {
      const { id: uploadId } = objectOf(index);
      await world.put(LEDGER, `uploads/${uploadId}.json`, '{"schema":99}');
      await world.ports.ledger.putWaitingMarker({ uploadId, notBefore: due }, never);
    }
    await waits(9, 5, { reason: 'unavailable' });
    expect(await round()).toEqual([]);
    expect(world.count('EntriesUnreadable')).toBe(3);
    expect(await round()).toEqual([9]);
    expect(world.count('EntriesUnreadable')).toBe(3);
    world.clock.advance(HOUR);
    expect(await round()).toEqual([]);
    expect(world.count('EntriesUnreadable')).toBe(6);
  });
});

describe('the marker of a wait that is over', () => {
  it('is replaced by the missing marker of the flow that the upload has by now', async () => {
    await world.send('a.echo', 'hello');
    const [running = ''] = await world.keys(LEDGER, 'running/');
    const { upload } = await world.entry();
    await world.remove(running, LEDGER);
    const due = { uploadId: upload.id, notBefore: world.clock.now() - 1 };
    await world.ports.ledger.putWaitingMarker(due, never);

    await world.tick();

    expect(await world.keys(LEDGER, 'running/')).toEqual([running]);
    expect(await world.keys(LEDGER, 'waiting/')).toEqual([]);
  });
});
