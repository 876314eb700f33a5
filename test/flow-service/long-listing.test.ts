import { describe, expect, it } from 'vitest';
import { type SearchPlace, searchPlaceSchema } from '../../functions/flow-service/search-place.ts';
import type { FlowService, Found } from '../../functions/flow-service/types.ts';
import type { StandInFlowService } from '../../local/flow-service/flow-service.ts';
import type { Variation } from '../../local/flow-service/variation.ts';
import { serveStandIn } from '../support/servers.ts';
import { clientOf, never, StillClock, TAG, TOKEN } from './scripted.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

interface Options {
  readonly variation?: Partial<Variation>;
  /** Duration of the flow with the given number, in milliseconds. Default: 1 to 60 seconds, in no order. */
  readonly flowMs?: (index: number) => number;
  readonly flowsQuery?: string;
}

/** An account in which a flow is made every three seconds, and a client that reads three pages of ten in a look. */
class Account {
  readonly clock = new StillClock();
  readonly service: StandInFlowService;
  readonly asked: string[] = [];
  /** When the request in doubt was claimed, and when its last byte was sent. */
  claimedAt = 0;
  sentBy = 0;
  place: SearchPlace | undefined;
  looks = 0;
  readonly #baseUrl: URL;
  readonly #flowsQuery: string | undefined;
  #flows: FlowService;
  #index = 0;

  static async open(options: Options = {}): Promise<Account> {
    let account: Account | undefined;
    const { flowMs = (index) => ((index * 37) % 60) * SECOND + SECOND } = options;
    const { service, url } = await serveStandIn({
      clock: { now: () => account?.clock.now() ?? 0 },
      tokens: [TOKEN],
      flowMs: () => flowMs(account?.index ?? 0),
      variation: { paging: 'next_cursor', pageSize: 10, ...options.variation },
    });
    account = new Account(service, new URL(url), options.flowsQuery);
    return account;
  }

  /** An account in which a request is in doubt. See {@link doubt}. */
  static async inDoubt({ isMade = false, ...options }: Options & { readonly isMade?: boolean } = {}): Promise<Account> {
    const account = await Account.open(options);
    await account.doubt({ isMade });
    return account;
  }

  private constructor(service: StandInFlowService, baseUrl: URL, flowsQuery: string | undefined) {
    this.service = service;
    this.#baseUrl = baseUrl;
    this.#flowsQuery = flowsQuery;
    this.#flows = this.#client();
    service.intercept = ({ method, url }) => {
      if (method === 'GET') this.asked.push(url);
      return undefined;
    };
  }

  get index(): number {
    return this.#index;
  }

  #client(): FlowService {
    return clientOf(this.#baseUrl, { clock: this.clock, flowsQuery: this.#flowsQuery, findPagesMax: 3 });
  }

  /** Another process goes on. */
  restart(): void {
    this.#flows = this.#client();
  }

  async make(additional: object = { customer: 7 }): Promise<void> {
    this.#index += 1;
    const inputs = [{ data: 'data:text/plain;base64,AAAA', additional: {} }];
    const parameters = this.#index % 4 === 1 ? { fail: true } : {};
    const body = Buffer.from(JSON.stringify({ template: 'bytes_echo', parameters, additional, inputs }));
    const { status } = await this.service.handle({
      method: 'POST',
      url: '/flows',
      headers: {
        authorization: `Bearer ${TOKEN}`,
        'content-type': 'application/json',
        'content-length': String(body.length),
      },
      body: (async function* () {
        yield body;
      })(),
    });
    expect(status).toBe(201);
  }

  /** Time passes, with a flow every three seconds. */
  async pass(ms: number): Promise<void> {
    for (const end = this.clock.now() + ms; this.clock.now() < end; ) {
      this.clock.pass(3 * SECOND);
      await this.make();
    }
  }

  /** A request is sent, with the result that a flow exists or does not. Then five minutes pass. */
  async doubt({ isMade }: { readonly isMade: boolean }): Promise<void> {
    await this.pass(12 * MINUTE);
    this.claimedAt = this.clock.now();
    this.clock.pass(SECOND);
    if (isMade) await this.make({ flowdrop: TAG });
    this.sentBy = this.clock.now() + SECOND;
    await this.pass(5 * MINUTE + SECOND);
  }

  async look(): Promise<Found> {
    this.looks += 1;
    return this.#flows.find(TAG, this.claimedAt, never, {
      sentBy: this.sentBy,
      place: this.place,
      onPlace: (place) => {
        // As the ledger keeps it.
        this.place = searchPlaceSchema.safeParse(JSON.parse(JSON.stringify(place ?? null))).data;
      },
    });
  }

  /** Looks until there is a result. A minute passes between two looks. */
  async search(between: () => Promise<void> = () => this.pass(MINUTE)): Promise<Found['result']> {
    for (;;) {
      const { result } = await this.look();
      if (result !== 'unfinished') return result;
      expect(this.looks).toBeLessThan(100);
      await between();
      this.restart();
    }
  }

  async delete(id: string): Promise<void> {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const body = (async function* () {})();
    await this.service.handle({ method: 'DELETE', url: `/flows/${id}`, headers, body });
  }

  idOf(cursor: string): string {
    return Buffer.from(cursor, 'base64url').toString();
  }
}

describe('a listing that is longer than one look', () => {
  it.each(['next', 'next_cursor', 'next_url', 'link'] as const)(
    'is read on in the next looks, by another process, until absence is proven: %s',
    async (paging) => {
      const account = await Account.inDoubt({ variation: { paging } });
      expect(await account.search()).toBe('absent');
      // Ten minutes of a flow every three seconds are 200, and a look brings 20 new ones.
      expect(account.looks).toBeGreaterThan(8);
      expect(account.looks).toBeLessThan(14);
      expect(account.asked.length).toBeLessThanOrEqual(3 * account.looks);
    },
  );

  it('is read until the flow is found', async () => {
    const account = await Account.inDoubt({ isMade: true });
    expect(await account.search()).toBe('found');
    expect(account.looks).toBeGreaterThan(3);
  });

  it('is not read on from a look that came before the flow had to be listed', async () => {
    const account = await Account.inDoubt();
    account.sentBy = account.clock.now();
    expect(await account.look()).toMatchObject({ result: 'unknown' });
    expect(account.place).toBeUndefined();
  });

  it('goes on after a failure where it had come to', async () => {
    const account = await Account.inDoubt();
    await account.look();
    const { flows } = account.place ?? { flows: 0 };
    let requests = 0;
    account.service.intercept = () => {
      requests += 1;
      return requests % 3 === 0 ? { status: 500 } : undefined;
    };
    await expect(account.look()).rejects.toThrow('500');
    expect(account.place?.flows).toBe(flows + 10);
    account.service.intercept = undefined;
    expect(await account.search()).toBe('absent');
  });

  it('by number proves nothing, because flows may move to pages already read', async () => {
    const account = await Account.inDoubt({ isMade: true, variation: { paging: 'page' } });
    expect(await account.look()).toMatchObject({ result: 'unknown' });
    expect(account.place).toBeUndefined();
  });

  it('oldest first proves nothing', async () => {
    const account = await Account.inDoubt({ isMade: true, variation: { order: 'ascending' } });
    expect(await account.look()).toMatchObject({ result: 'unknown' });
  });
});

describe('a flow that moves between two looks to a page already read', () => {
  it('is not called absent in a listing by last change, in which all flows take as long', async () => {
    const ours = 12 * 20 + 1;
    const flowMs = (index: number) => (index === ours ? 6.5 * MINUTE : 2 * SECOND);
    const account = await Account.inDoubt({ isMade: true, variation: { listSort: 'changed' }, flowMs });
    expect(account.service.flows.find(({ state }) => state === 'running')).toMatchObject({
      additional: { flowdrop: TAG },
    });
    expect(await account.search()).not.toBe('absent');
  });

  it('is not called absent if a cursor is a number in disguise and flows are deleted', async () => {
    const account = await Account.open();
    // The cursor of this service counts the flows before the page.
    const { service } = account;
    service.intercept = ({ method, url }) => {
      if (method !== 'GET') return undefined;
      const query = new URL(url, 'http://x').searchParams;
      const listed = service.flows.filter(({ deleted }) => !deleted).toReversed();
      const from = Number((query.get('cursor') ?? 'at-0').slice(3));
      const flows = listed.slice(from, from + 10).map((flow) => ({
        flow_id: flow.id,
        state: flow.state,
        additional: flow.additional,
        created_at: new Date(flow.createdAt).toISOString(),
        finished_at: flow.finishedAt === undefined ? null : new Date(flow.finishedAt).toISOString(),
      }));
      const next_cursor = from + 10 < listed.length ? `at-${from + 10}` : null;
      const headers = { 'content-type': 'application/json' };
      return { status: 200, headers, body: Buffer.from(JSON.stringify({ flows, next_cursor })) };
    };
    await account.doubt({ isMade: true });
    expect(await account.look()).toMatchObject({ result: 'unfinished' });
    // Enough newer flows are deleted to bring the flow in doubt to the first page.
    const newer = service.flows.filter(({ createdAt, finishedAt }) => createdAt > account.sentBy && finishedAt);
    for (const { id } of newer) await account.delete(id);
    expect(await account.search()).toBe('found');
  });
});

describe('a place that is lost', () => {
  /** Deletes the flow that the cursor of the last page names, or the last flow of that page. */
  const losing = (account: Account, what: 'cursor' | 'last flow') => async () => {
    const { address = '', lastFlow = '' } = account.place ?? {};
    const cursor = new URL(address).searchParams.get('cursor') ?? '';
    await account.delete(what === 'cursor' ? account.idOf(cursor) : lastFlow);
  };

  /** An account in doubt after a look that did not come to the end, and the place that it came to. */
  const interrupted = async () => {
    const account = await Account.inDoubt();
    expect(await account.look()).toMatchObject({ result: 'unfinished' });
    account.asked.length = 0;
    return { account, place: account.place as SearchPlace };
  };

  it.each(['cursor', 'last flow'] as const)('begins the search anew, twice at most: %s', async (what) => {
    const account = await Account.inDoubt();
    expect(await account.search(losing(account, what))).toBe('unknown');
    expect(account.looks).toBeLessThanOrEqual(4);
  });

  it('once does not keep absence from being proven, or the flow from being found', async () => {
    for (const isMade of [false, true]) {
      const account = await Account.inDoubt({ isMade });
      await account.look();
      await losing(account, 'cursor')();
      expect(await account.search()).toBe(isMade ? 'found' : 'absent');
    }
  });

  it.each([
    ['on another origin', () => 'http://127.0.0.1:9/flows?cursor=x'],
    ['no address', () => 'nonsense'],
    ['that leads upwards', (address: string) => address.replace('/flows', '/..%2fflows')],
  ])('or was never one is not followed: %s', async (_, changed) => {
    const { account, place } = await interrupted();
    account.place = { ...place, address: changed(place.address) };
    expect(await account.look()).toMatchObject({ result: 'unfinished' });
    expect(account.asked[0]).toBe('/flows');
    expect(account.asked).toHaveLength(3);
  });

  it('proves nothing if the order is another one there', async () => {
    const { account, place } = await interrupted();
    account.place = { ...place, evidence: { ...place.evidence, previous: account.claimedAt } };
    expect(await account.look()).toEqual({ result: 'unknown', why: 'the listing has changed its order' });
  });

  it('of another query is not followed', async () => {
    const { account, place } = await interrupted();
    account.place = { ...place, flowsQuery: 'sort=x' };
    await account.look();
    expect(account.asked[0]).toBe('/flows');
  });

  it('ends the search after three hundred looks, although the last ones were cut off', async () => {
    const { account, place } = await interrupted();
    account.place = { ...place, looks: 298 };
    let requests = 0;
    account.service.intercept = () => {
      requests += 1;
      return requests % 2 === 0 ? { status: 500 } : undefined;
    };
    const results: string[] = [];
    for (let look = 299; look <= 303; look += 1) {
      results.push(
        await account.look().then(
          ({ result }) => result,
          () => 'cut off',
        ),
      );
    }
    expect(results).toEqual(['cut off', 'cut off', 'unknown', 'unknown', 'unknown']);
  });
});

describe('a filter by time', () => {
  const flowsQuery = 'created_after={iso}';

  it.each(['ascending', 'descending'] as const)('proves absence in a long account listed %s', async (order) => {
    const variation = { listFilter: 'created', order, pageSize: 200 } as const;
    const account = await Account.open({ flowsQuery, variation });
    await account.pass(60 * MINUTE);
    await account.doubt({ isMade: false });
    expect(await account.look()).toEqual({ result: 'absent' });
    expect(account.asked.every((path) => path.includes('created_after='))).toBe(true);
  });

  it('finds the flow at once, before it can prove absence', async () => {
    const account = await Account.open({ flowsQuery, variation: { listFilter: 'created', order: 'ascending' } });
    await account.pass(60 * MINUTE);
    account.claimedAt = account.clock.now();
    await account.make({ flowdrop: TAG });
    account.sentBy = account.clock.now();
    account.service.variation.pageSize = 200;
    expect(await account.look()).toMatchObject({ result: 'found' });
    expect(account.asked).toHaveLength(1);
  });

  it('is kept over several looks', async () => {
    const account = await Account.inDoubt({ flowsQuery, variation: { listFilter: 'created' } });
    expect(await account.search()).toBe('absent');
    expect(account.looks).toBeGreaterThan(5);
    expect(account.asked.every((path) => path.includes('created_after='))).toBe(true);
  });

  const wrong = ['ignored', 'inverted', 'changed', 'ended', 'rejected'] as const;

  it.each(wrong)('that is %s does not hide the flow', async (listFilter) => {
    // Our flow runs, and the others are so short that none began before the filter's time and ended after it.
    const flowMs = (index: number) => (index === 241 ? 60 * MINUTE : SECOND);
    const variation = { listFilter, pageSize: 500 } as const;
    const account = await Account.inDoubt({ isMade: true, flowsQuery, flowMs, variation });
    expect(await account.look()).toMatchObject({ result: 'found' });
  });

  it.each(wrong)('that is %s proves nothing if the whole listing proves nothing', async (listFilter) => {
    const flowMs = (index: number) => (index === 241 ? 60 * MINUTE : SECOND);
    const variation = { listFilter, order: 'ascending', pageSize: 50 } as const;
    const account = await Account.open({ flowsQuery, flowMs, variation });
    await account.pass(9 * MINUTE);
    await account.doubt({ isMade: true });
    expect(await account.look()).not.toMatchObject({ result: 'absent' });
  });

  it.each(wrong)('that is %s does not keep absence from being proven', async (listFilter) => {
    const account = await Account.inDoubt({ flowsQuery, variation: { listFilter } });
    expect(await account.search()).toBe('absent');
  });

  it('that ends too early does not hide the flow', async () => {
    const flowMs = (index: number) => (index % 7 === 3 ? 60 * MINUTE : 5 * SECOND);
    const variation = { listFilter: 'minute', pageSize: 500 } as const;
    const account = await Account.inDoubt({ isMade: true, flowsQuery, flowMs, variation });
    expect(await account.look()).toMatchObject({ result: 'found' });
    expect(account.asked).toHaveLength(2);
  });

  it('that ends shortly before the last byte does not hide the flow', async () => {
    const variation = { listFilter: 'hour', pageSize: 500 } as const;
    const flowMs = (index: number) => (index % 7 === 3 ? 60 * MINUTE : 5 * SECOND);
    const account = await Account.open({ flowsQuery, flowMs, variation });
    await account.pass(12 * MINUTE);
    // The doubt began with a first request. The last one is sent when the filter ends, an hour after its time.
    account.claimedAt = account.clock.now();
    await account.pass(55 * MINUTE);
    await account.make({ flowdrop: TAG });
    account.sentBy = account.clock.now();
    await account.pass(6 * MINUTE);
    expect(await account.look()).toMatchObject({ result: 'found' });
  });

  it('that is ignored is not asked for again', async () => {
    const account = await Account.open({ flowsQuery, variation: { order: 'ascending' } });
    await account.pass(20 * MINUTE);
    await account.doubt({ isMade: true });
    await account.look();
    await account.look();
    expect(account.asked.map((path) => path.includes('created_after='))).toEqual([true, ...Array(6).fill(false)]);
  });

  it('proves nothing where nothing is listed from before the request', async () => {
    const account = await Account.inDoubt({ flowsQuery, variation: { listFilter: 'created', pageSize: 500 } });
    account.asked.length = 0;
    account.claimedAt -= 10 * MINUTE;
    expect(await account.look()).toMatchObject({ result: 'absent' });
    expect(account.asked.map((path) => path.includes('created_after='))).toEqual([true, false]);
  });

  it('and an order may be asked for, and only the order if the filter does nothing', async () => {
    const query = 'sort_by=-created_at&created_after={seconds}';
    const account = await Account.inDoubt({ isMade: true, flowsQuery: query, variation: { listFilter: 'rejected' } });
    await account.search();
    const [first = '', ...others] = account.asked;
    expect(first).toMatch(/^\/flows\?sort_by=-created_at&created_after=\d{10}$/);
    expect(others.every((path) => path.startsWith('/flows?sort_by=-created_at') && !path.includes('after'))).toBe(true);
  });
});
