import { describe, expect, it } from 'vitest';
import type { Json, JsonObject } from '../../functions/base/json.ts';
import type { FlowServiceOptions } from '../../functions/flow-service/client.ts';
import { NotFoundError, NotServedError, RejectedError, ThrottledError } from '../../functions/flow-service/errors.ts';
import { FIND_FLOWS_MAX, FIND_PAGES_MAX, SharedSearch } from '../../functions/flow-service/flow-search.ts';
import type { FlowService, Found, KnownFlows } from '../../functions/flow-service/types.ts';
import { speaking } from '../support/speaking.ts';
import { clientOf, never, type Page, PUBLIC_ORIGIN, paged, StillClock, TAG, until } from './scripted.ts';

const SINCE = Date.UTC(2026, 0, 1, 12);
const MINUTE = 60_000;

const at = (minutes: number): string => new Date(SINCE + minutes * MINUTE).toISOString();

/** A flow of another client of the account, made and ended `minutes` after the request in doubt. */
const flow = (id: string, minutes?: number, more: object = {}): object => ({
  flow_id: id,
  state: 'completed',
  additional: { customer: 7 },
  ...(minutes === undefined ? {} : { created_at: at(minutes), finished_at: at(minutes) }),
  ...more,
});

const ours = (id: string, minutes?: number, state = 'running'): object =>
  flow(id, minutes, { state, additional: { flowdrop: TAG, more: 1 } });

/** Returns a page, or only its body. */
type PageAt = (pathAndQuery: string, index: number) => unknown;

const isPage = (answer: unknown): answer is Page => typeof answer === 'object' && answer !== null && 'body' in answer;

/** A tag with an upload id as it is. */
const UPLOADED = { ...TAG, upload: '6955b900700a59d8a822991e3f1b90aa6955b900' };

const SOUGHT = { tag: TAG, since: SINCE, mayBeAbsent: true };
/** What a caller knows that knows no flow. */
const NONE_KNOWN: KnownFlows = { hadFlowBefore: async () => false, flowsMade: async () => [] };
/** Ways in which a listing names its next page. */
const NUMBERED = {};
const CURSOR = { by: 'cursor', at: ['/next', '/next_cursor'], parameter: 'cursor' };
const ADDRESS = { by: 'address', at: '/next' };

const listedBy = (pages: Json, list: JsonObject = {}) => ({ service: speaking({ list: { pages, ...list } }) });
const NEWEST_FIRST = listedBy(CURSOR, { order: 'newest-first' });
const NEWEST_FIRST_NUMBERED = listedBy(NUMBERED, { order: 'newest-first' });

/** A client whose listing has the pages of `pageAt`, and the paths that it requested. */
function listing(pageAt: PageAt, options: Partial<FlowServiceOptions> = listedBy(CURSOR)) {
  const { asked, transport } = paged((path, index) => {
    const answer = pageAt(path, index);
    return isPage(answer) ? answer : { body: answer };
  });
  const clock = new StillClock();
  return { flows: clientOf(new URL(PUBLIC_ORIGIN), { clock, transport, ...options }), asked, clock };
}

/** Searches a listing with the pages of `pageAt`. */
async function find(pageAt: PageAt, options: Partial<FlowServiceOptions> = listedBy(CURSOR), sought = SOUGHT) {
  const { flows, asked } = listing(pageAt, options);
  const [found] = await flows.find([sought], never);
  return { found: found as Found, asked };
}

const resultOf = async (...args: Parameters<typeof find>): Promise<string> => {
  const { found } = await find(...args);
  return found.result === 'found' ? found.flow.flowId : found.result;
};

describe('a flow with the tag', () => {
  it('is found on any page, and no further page is read', async () => {
    const pages = ['/flows', '/flows?page=1', '/flows?page=2', '/flows?page=3'];
    const { found, asked } = await find((path) => {
      const number = Math.max(1, pages.indexOf(path));
      return [flow(`a${number}`, 3 - number), number === 3 ? ours('mine', 0) : flow(`b${number}`, 3 - number)];
    }, listedBy(NUMBERED));
    expect(found).toMatchObject({ result: 'found', flow: { flowId: 'mine', state: 'running', tag: TAG } });
    expect(asked).toEqual(pages);
  });

  it('is found where the description says that the flows are', async () => {
    const list = { items: '/data/jobs', id: '/job/id' };
    const job = { job: { id: 'mine' }, state: 'running', additional: { flowdrop: TAG } };
    expect(await resultOf(() => ({ data: { jobs: [job] } }), listedBy(CURSOR, list))).toBe('mine');
  });

  it('is found in an `additional` that comes as a text of JSON', async () => {
    const text = (tag: object) => flow('mine', 0, { additional: JSON.stringify({ flowdrop: tag }) });
    expect(await resultOf(() => ({ flows: [text(TAG)], next: null }))).toBe('mine');
    expect(await resultOf(() => ({ flows: [text({ ...TAG, upload: 'other' })], next: null }))).toBe('absent');
  });

  it.each([
    ['a text of JSON', JSON.stringify(TAG)],
    ['texts', { ...TAG, generation: String(TAG.generation) }],
  ])('is found if the service keeps its tag as %s', async (_, flowdrop) => {
    const listed = flow('mine', 0, { additional: { customer: '7', flowdrop } });
    expect(await resultOf(() => ({ flows: [listed], next: null }))).toBe('mine');
  });

  it('is found where the first pointer finds nothing', async () => {
    const page = { flows: null, jobs: [ours('mine', 0)], next: null };
    expect(await resultOf(() => page, listedBy(CURSOR, { items: ['/flows', '/jobs'] }))).toBe('mine');
  });

  it('is found on a later page if a page counts fewer flows than it shows', async () => {
    const total = (count: number) => (path: string) => ({
      flows: path.endsWith('=2') ? [ours('mine', 0)] : path.endsWith('=3') ? [] : [flow('a', 2), flow('b', 1)],
      total: count,
    });
    for (const count of [0, -1, 1]) expect(await resultOf(total(count), listedBy(NUMBERED))).toBe('mine');
  });

  it('is another flow if any part of its tag differs', async () => {
    for (const part of [{ pipeline: 'other' }, { upload: 'other' }, { generation: 2 }]) {
      const other = flow('other', 0, { additional: { flowdrop: { ...TAG, ...part } } });
      expect(await resultOf(() => ({ flows: [other], next: null }))).toBe('absent');
    }
  });

  it('is preferred if it has not failed; among failed ones the newest is taken', async () => {
    const flows = [ours('old', -2, 'failed'), ours('new', 2, 'failed'), ours('between', 0, 'aborted')];
    expect(await resultOf(() => ({ flows: [...flows, ours('good', -3, 'completed')], next: null }))).toBe('good');
    expect(await resultOf(() => ({ flows, next: null }))).toBe('new');
    expect(await resultOf(() => ({ flows }))).toBe('new');
  });
});

describe('several flows', () => {
  const tagOf = (upload: string) => ({ ...TAG, upload });
  const soughtOf = (upload: string, since = SINCE) => ({ tag: tagOf(upload), since, mayBeAbsent: true });
  const flowOf = (upload: string) => flow(upload, 0, { additional: { flowdrop: tagOf(upload) } });

  it('are searched for at once, and each has its own result', async () => {
    const { flows, asked } = listing((path) =>
      path === '/flows' ? { flows: [flow('x'), flowOf('b')], next: 'c' } : { flows: [flowOf('a')], next: null },
    );
    const results = await flows.find(
      ['a', 'b', 'c'].map((upload) => soughtOf(upload)),
      never,
    );
    expect(results.map(({ result }) => result)).toEqual(['found', 'found', 'absent']);
    expect(asked).toHaveLength(4);
  });

  it('are looked for back to the oldest request', async () => {
    const pages = [newestFirst(3, -15), newestFirst(-16, -90)];
    const { flows, asked } = listing(
      (path) => ({ flows: pages[path === '/flows' ? 0 : 1], next: path === '/flows' ? 'rest' : null }),
      NEWEST_FIRST,
    );
    await flows.find([soughtOf('a'), soughtOf('b', SINCE - 60 * MINUTE)], never);
    expect(asked).toHaveLength(4);
  });

  it('share the search after the one that runs, and its error', async () => {
    const searches: string[][] = [];
    const release: (() => void)[] = [];
    const shared = new SharedSearch(async (sought) => {
      searches.push(sought.map(({ tag }) => tag.upload));
      await new Promise<void>((resolve) => release.push(resolve));
      if (searches.length === 2) throw new Error('no');
      return sought.map(() => ({ result: 'absent' }));
    });
    const first = shared.find(soughtOf('a'));
    await until(() => release.length === 1);
    const others = Promise.allSettled(['b', 'c'].map((upload) => shared.find(soughtOf(upload))));
    release[0]?.();
    expect(await first).toEqual({ result: 'absent' });
    await until(() => release.length === 2);
    const last = shared.find(soughtOf('d'));
    release[1]?.();
    expect((await others).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    await until(() => release.length === 3);
    release[2]?.();
    expect(await last).toEqual({ result: 'absent' });
    expect(searches).toEqual([['a'], ['b', 'c'], ['d']]);
  });
});

/** A page of an ordinary account: a flow a minute, the newest first, and every third failed. */
const newestFirst = (from: number, to: number): readonly object[] =>
  Array.from({ length: from - to + 1 }, (_, index) =>
    flow(`m${from - index}`, from - index, { state: index % 3 === 1 ? 'failed' : 'completed' }),
  );

/** Numbers its pages of five from 1. After each request for the first one, a flow may come into the listing. */
function newAccount(flows: readonly object[], timeOf: (reading: number) => number | undefined) {
  const createdAt = (each: object): number => Date.parse((each as { readonly created_at: string }).created_at);
  let listed = flows;
  let readings = 0;
  const pageAt: PageAt = (path) => {
    const start = 5 * (Number(/page=(\d+)/.exec(path)?.[1] ?? 1) - 1);
    const page = listed.slice(start, start + 5);
    const time = path === '/flows' ? timeOf(readings++) : undefined;
    if (time !== undefined) {
      listed = [...listed, flow(`new${readings}`, time)].toSorted((a, b) => createdAt(b) - createdAt(a));
    }
    return page;
  };
  return { pageAt, count: () => listed.length };
}

describe('absence is proven', () => {
  it.each([
    ['next is null', { flows: [flow('a')], next: null }],
    ['there is no cursor', { flows: [flow('a')], next_cursor: null }],
    ['there is no page token', { flows: [flow('a')], next_page_token: '' }],
    ['there is no more', { flows: [flow('a')], has_more: false }],
    ['there are no more than these', { flows: [flow('a'), flow('b')], total: 2 }],
    ['there is nothing', { flows: [] }],
    ['there is nothing at all', []],
    ['there are only pages before', { body: [flow('a')], link: '<https://flows.example.com/flows>; rel="first"' }],
  ])('by one page if the listing says that %s', async (_, page) => {
    expect(await find(() => page)).toEqual({ found: { result: 'absent' }, asked: ['/flows'] });
  });

  it('if numbered pages end with an empty one, counted from 1 or from 0', async () => {
    for (const first of [1, 0]) {
      const { found, asked } = await find((path) => {
        const number = Number(/page=(\d+)/.exec(path)?.[1] ?? first);
        return number < first + 3 ? [flow(`f${number}`)] : [];
      }, listedBy({ first }));
      expect(found.result).toBe('absent');
      expect(asked.length).toBe(2 * 5);
    }
  });

  it.each([
    ['as many as it counts', { total: '/total' }, ['', '?offset=0', '?offset=3', '?offset=6']],
    ['an empty page', {}, ['', '?offset=0', '?offset=3', '?offset=6', '?offset=7']],
  ])('if pages that begin behind some entries end with %s', async (_, total, reading) => {
    const all = Array.from({ length: 7 }, (__, n) => flow(`f${n}`));
    const { found, asked } = await find(
      (path) => {
        const offset = Number(/offset=(\d+)/.exec(path)?.[1] ?? 0);
        return { flows: all.slice(offset, offset + 3), offset, total: 7 };
      },
      listedBy({ by: 'offset', parameter: 'offset', ...total }),
    );
    expect(found.result).toBe('absent');
    expect(asked).toEqual([...reading, ...reading].map((query) => `/flows${query}`));
  });

  it.each([
    ['an address', ADDRESS, { next: 'https://flows.example.com/flows?after=x2' }, '/flows?after=x2'],
    ['a path', ADDRESS, { next: '/flows?after=x2' }, '/flows?after=x2'],
    ['a query', ADDRESS, { next: '?limit=10&after=x2' }, '/flows?limit=10&after=x2'],
    ['a cursor', CURSOR, { next_cursor: 'a b' }, '/flows?cursor=a+b'],
    ['a cursor called next', CURSOR, { next: 'x' }, '/flows?cursor=x'],
    [
      'a page token',
      { ...CURSOR, at: '/nextPageToken', parameter: 'pageToken' },
      { nextPageToken: 'x' },
      '/flows?pageToken=x',
    ],
    ['a number', { ...CURSOR, at: '/meta/next', parameter: 'p' }, { meta: { next: 2 } }, '/flows?p=2'],
    [
      'a Link header',
      { by: 'link' },
      { link: '</flows?p=a>; rel="prev", </flows?p=c>; title="x"; rel=next' },
      '/flows?p=c',
    ],
  ])('by two readings if the listing names the next page by %s', async (_, pages, next, path) => {
    const { found, asked } = await find((at) => {
      const more = at === '/flows' ? next : {};
      return 'link' in next ? { body: [flow(at)], ...more } : { flows: [flow(at)], ...more };
    }, listedBy(pages));
    expect({ found, asked }).toEqual({ found: { result: 'absent' }, asked: ['/flows', path, '/flows', path] });
  });

  it('by one reading past the request if the listing is declared as newest first', async () => {
    const pageAt = () => ({ flows: newestFirst(3, -15), next: 'more' });
    expect(await find(pageAt, NEWEST_FIRST)).toEqual({ found: { result: 'absent' }, asked: ['/flows'] });
    // Clocks may be five minutes apart.
    expect(
      (await find(() => ({ flows: newestFirst(3, -5), next: 'more' }), NEWEST_FIRST)).asked.length,
    ).toBeGreaterThan(1);
  });

  it('if only flows from before the request leave a listing that is newest first', async () => {
    const old = Array.from({ length: 9 }, (_, index) => flow(`old${index}`, -10 - index));
    const { found, asked } = await find((path) => {
      if (path === '/flows') return { flows: newestFirst(3, 1), next: 'x' };
      return { flows: [...newestFirst(0, -2), ...old.splice(0, 1)], next: 'y' };
    }, NEWEST_FIRST);
    expect({ result: found.result, requests: asked.length }).toEqual({ result: 'absent', requests: 4 });
  });

  it.each([
    ['made between the first two requests of every reading', (made: number) => 3 + made],
    ['listed late, below newer ones, in the first reading', (made: number) => (made === 0 ? 1.5 : undefined)],
  ])('if pages are numbered from 1, the listing is newest first, and a flow is %s', async (_, timeOf) => {
    const account = newAccount(newestFirst(3, -15), timeOf);
    const { found, asked } = await find(account.pageAt, NEWEST_FIRST_NUMBERED);
    expect(found).toEqual({ result: 'absent' });
    // Each reading ends with the third page: the first one is read twice.
    expect(asked.length).toBeLessThanOrEqual(3 * 4);
  });

  it.each([
    ['in an order that is not declared', listedBy(NUMBERED)],
    ['newest first', NEWEST_FIRST_NUMBERED],
  ])('if pages are numbered from 1, %s, and counted, and a flow is made in every reading', async (_, options) => {
    // A listing that goes back past the request is not read to its end.
    const account = newAccount(newestFirst(3, -2), (made) => 4 + made);
    const { found, asked } = await find((path, index) => {
      const total = account.count();
      return { flows: account.pageAt(path, index), total };
    }, options);
    expect(found).toEqual({ result: 'absent' });
    // Two readings, each to the last flow: the first page is read twice.
    expect(asked.length).toBe(2 * 3);
  });

  it('if pages are numbered from 1, the listing is newest first, and new flows once fill a page of their own', async () => {
    const made = newestFirst(9, 4);
    let listed = newestFirst(3, -15);
    const { found, asked } = await find((path, index) => {
      if (index === 1) listed = [...made, ...listed];
      const start = 5 * (Number(/page=(\d+)/.exec(path)?.[1] ?? 1) - 1);
      return listed.slice(start, start + 5);
    }, NEWEST_FIRST_NUMBERED);
    expect(found).toEqual({ result: 'absent' });
    expect(asked.length).toBeLessThanOrEqual(3 * 6);
  });

  it('if the last page that a search reads goes back past the request', async () => {
    const pageAt = () => ({ flows: newestFirst(3, -15), next: 'more' });
    expect(await resultOf(pageAt, { ...NEWEST_FIRST, findPagesMax: 1 })).toBe('absent');
  });

  it('with few requests in an account of a million flows, newest first, that take an hour', async () => {
    const pageAt = (path: string) => {
      const first = 50 * (Number(/page=(\d+)/.exec(path)?.[1] ?? 1) - 1);
      const flowAt = (index: number) => flow(`f${index}`, 9 - index / 2, index < 120 ? { state: 'running' } : {});
      return { flows: Array.from({ length: 50 }, (_, index) => flowAt(first + index)), total: 1_000_000 };
    };
    const { found, asked } = await find(pageAt, NEWEST_FIRST_NUMBERED);
    expect(found.result).toBe('absent');
    expect(asked.length).toBeLessThanOrEqual(8);
    expect(await resultOf(pageAt, listedBy(NUMBERED))).toBe('unknown');
  });
});

describe('absence is not proven', () => {
  it.each([404, 405, 501, 400, 422])('if the listing is answered with %i', async (status) => {
    const { found } = await find(() => ({ body: 'no', status }));
    expect(found).toMatchObject({ result: 'unknown', why: expect.stringContaining(String(status)) });
  });

  it.each([
    { flows: [], error: 'search backend timed out' },
    { flows: null, detail: 'internal error' },
    { success: false, flows: [flow('a')], total: 1 },
    { flows: [flow('a')], errors: ['shard 3 is down'], next: null },
    { flows: [], status: 'failed', message: 'The search backend timed out.' },
    { flows: [], code: 500 },
  ])('if the listing says of itself that it failed: %j', async (page) => {
    const why = expect.stringMatching(/the answer says that it failed \(\/(?:errors?|detail|success|status|code)\)/);
    await expect(find(() => page)).rejects.toMatchObject({ name: 'UnintelligibleAnswerError', message: why });
  });

  it('if no listing is declared, and nothing is requested', async () => {
    const { found, asked } = await find(() => [ours('mine')], { service: speaking({ list: null }) });
    expect({ result: found.result, asked }).toEqual({ result: 'unknown', asked: [] });
  });

  it('before the service must list the flow, and the listing is read once', async () => {
    const early = { ...SOUGHT, mayBeAbsent: false };
    const pageAt = (path: string) => ({ flows: [flow(path)], next: path === '/flows' ? 'x' : null });
    const { found, asked } = await find(pageAt, listedBy(CURSOR), early);
    expect({ result: found.result, asked }).toEqual({ result: 'unknown', asked: ['/flows', '/flows?cursor=x'] });
    const other = { ...SOUGHT, tag: { ...TAG, upload: 'other' } };
    const results = await listing(pageAt).flows.find([early, other], never);
    expect(results.map(({ result }) => result)).toEqual(['unknown', 'absent']);
  });

  it('if a page after the first is always rejected', async () => {
    const { found, asked } = await find(
      (path) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 422 }),
      listedBy(NUMBERED),
    );
    expect(found.result).toBe('unknown');
    expect(asked.filter((path) => path === '/flows')).toHaveLength(4);
  });

  it.each([
    ['gives the same page whatever is asked for', [flow('a', 3), flow('b', 2)]],
    ['goes back past the request, and has more pages', newestFirst(3, -30)],
    ['counts more flows than it shows to its end', { flows: [flow('a')], next: null, total: 2 }],
    ['counts more than it shows', { flows: [flow('a')], total: 2 }],
    ['counts what is on the page', { flows: [flow('a')], count: 1 }],
    ['has a flow of an unusable id', { flows: [flow('a'), flow('..')], total: 2 }],
    ['shows no ended flow', { flows: [flow('a', -9, { state: 'queued' })], total: 1 }],
    ['is empty, and names a next page in another form', { flows: [], next_page_token: 'x' }],
    ['counts all that it shows, and names a next page in another form', { flows: [flow('a')], total: 1, next: 'x' }],
  ])('if the listing %s', async (_, page) => {
    expect(await resultOf(() => page, listedBy(NUMBERED))).toBe('unknown');
  });

  it.each([
    ['oldest first', newestFirst(3, -30).toReversed().slice(-12)],
    ['oldest first, in seconds', Array.from({ length: 12 }, (_, index) => flow(`s${index}`, -30 + index / 20))],
    ['by name', [flow('a', 2), flow('b', -20), ...newestFirst(1, -5)]],
  ])('if a listing that is declared as newest first is %s', async (_, flows) => {
    expect(
      await resultOf((path) => (path === '/flows' ? { flows, next: 'x' } : { flows: [], next: null }), NEWEST_FIRST),
    ).toBe('unknown');
  });

  it.each([
    ['a flow moves up above a newer one', [0, 3, 2]],
    ['a newer flow stands on a page without any that was read', [4, 0, -1]],
    ['a newer flow stands below one that was read', [1, 2.5, 0]],
  ])('if %s, although the listing is declared as newest first', async (_, second) => {
    const pages = [[3, 2, 1], second, [-9, -10]];
    const { found } = await find((path) => {
      const times = pages[Number(/page=(\d+)/.exec(path)?.[1] ?? 0)] ?? [];
      return times.map((minutes) => flow(`m${minutes}`, minutes));
    }, NEWEST_FIRST_NUMBERED);
    expect(found).toEqual({ result: 'unknown', why: expect.stringContaining('not newest first') });
  });

  it('if a flow comes into a listing and leaves it during every reading', async () => {
    const all = newestFirst(3, -15);
    let made = 0;
    const { found } = await find((path) => {
      const number = Number(/page=(\d+)/.exec(path)?.[1] ?? 0);
      if (number === 0) made += 1;
      const listed = number === 1 ? [flow(`new${made}`, 3 + made), ...all] : all;
      return listed.slice(5 * Math.max(0, number - 1)).slice(0, 5);
    }, NEWEST_FIRST_NUMBERED);
    expect(found).toEqual({ result: 'unknown', why: expect.stringContaining('while it is read') });
  });

  it.each([
    ['has none', undefined],
    ['has null', null],
    ['is empty', {}],
    ['is a text of another kind', 'invoice 7'],
    ['is a text of a list', '[{"customer":7}]'],
    ['is cut JSON', '{"customer":7'],
    ['is nested without end', `{"a":${'['.repeat(10_000)}${']'.repeat(10_000)}}`],
  ])('if no flow shows the tag: additional %s', async (_, additional) => {
    const { found } = await find(() => ({ flows: [flow('a', -9, { additional })], next: null }));
    expect(found).toEqual({ result: 'unknown', why: expect.stringContaining('no additional data') });
    const paged = newestFirst(3, -30).map((each) => ({ ...each, additional }));
    expect(await resultOf(() => paged, NEWEST_FIRST)).toBe('unknown');
  });

  it.each([
    ['a tag of another form', { flowdrop: 'upload 7' }],
    ['a tag without its generation', { flowdrop: { ...TAG, generation: null } }],
    ['a text of JSON that was cut', '{"customer":7,"flowdr'],
    ['the tag in another place', { source: 'api', user: { flowdrop: UPLOADED } }],
    ['the tag under another name', { Flowdrop: UPLOADED }],
    ['the tag in members of its own', { 'flowdrop.upload': UPLOADED.upload }],
    ['the tag in a list', [{ key: 'flowdrop', value: JSON.stringify(UPLOADED) }]],
  ])('if a flow that is as new as the request has %s', async (_, additional) => {
    const flows = [flow('a', 3), flow('b', 2, { additional })];
    const why = expect.stringContaining('may hold the tag');
    expect((await find(() => ({ flows, next: null }))).found).toEqual({ result: 'unknown', why });
    const older = [flow('a', 3), flow('b', -20, { additional })];
    expect(await resultOf(() => ({ flows: older, next: null }), NEWEST_FIRST)).toBe('absent');
  });

  it('if the next page is on another origin, where the token must not go', async () => {
    for (const next of ['https://other.example.com/flows', 'http://flows.example.com/flows', 'https://']) {
      const { found, asked } = await find(() => ({ flows: [flow('a')], next }), listedBy(ADDRESS));
      expect(found.result).toBe('unknown');
      expect(asked).toEqual(['/flows']);
    }
  });

  it.each([
    ['the first page', [1800]],
    ['a later page', [undefined, 1]],
  ])('if a cache has answered for %s', async (_, ages) => {
    const { found } = await find((path, index) => {
      const age = ages[index];
      const body = { flows: [flow(path)], next: index === 0 ? 'x' : null };
      return { body, headers: age === undefined ? {} : { age: String(age) } };
    });
    expect(found).toEqual({ result: 'unknown', why: expect.stringContaining('a cache') });
    const fresh = () => ({ body: [flow('a')], headers: { age: '0' } });
    expect(await resultOf(fresh)).toBe('absent');
  });

  it.each([
    ['the pages go round in a circle', [flow('a')]],
    ['an empty page names itself as the next', []],
  ])('if %s', async (_, flows) => {
    const { found, asked } = await find(() => ({ flows, next_cursor: 'again' }));
    expect(found.result).toBe('unknown');
    expect(asked.length).toBe(2);
  });

  it('beyond the limits of pages and flows', async () => {
    const pages = await find((_, index) => ({ flows: [flow(`f${index}`)], next_cursor: `c${index}` }));
    expect(pages.found.result).toBe('unknown');
    expect(pages.asked.length).toBe(FIND_PAGES_MAX);
    const many = (index: number) => Array.from({ length: 3_000 }, (_, place) => flow(`f${index}-${place}`));
    const flows = await find((_, index) => ({ flows: many(index), next_cursor: `c${index}` }));
    expect(flows.found.result).toBe('unknown');
    expect(flows.asked.length).toBe(Math.ceil(FIND_FLOWS_MAX / 3_000));
  });

  it('by an empty listing if the process or the caller knows a flow that must be listed by now', async () => {
    const { flows, clock } = listing((path) => (path === '/flows/f1' ? { flow_id: 'f1', state: 'completed' } : []));
    expect(await flows.find([SOUGHT], never)).toEqual([{ result: 'absent' }]);
    const asked: number[] = [];
    const hadFlowBefore = async (before: number) => {
      asked.push(before);
      return true;
    };
    expect(await flows.find([SOUGHT], never, { ...NONE_KNOWN, hadFlowBefore })).toMatchObject([{ result: 'unknown' }]);
    expect(asked).toEqual([clock.now() - 5 * MINUTE]);
    await flows.get('f1', never);
    // The flow may be new, and new flows are listed late.
    clock.pass(5 * MINUTE - 1);
    expect(await flows.find([SOUGHT], never)).toEqual([{ result: 'absent' }]);
    clock.pass(1);
    const why = expect.stringContaining('shows no flow of Flowdrop');
    expect(await flows.find([SOUGHT], never)).toEqual([{ result: 'unknown', why }]);
  });

  it.each(['page_size=2', 'state=all&$top=2', 'maxResults=2'])(
    'if it has as many flows as %s asks for',
    async (query) => {
      const by = { service: speaking({ list: { pages: null, query } }) };
      const flows = [flow('a', 1), ours('other', 0)];
      const sought = { ...SOUGHT, tag: { ...TAG, upload: 'lost' } };
      expect((await find(() => flows, by, sought)).found).toEqual({
        result: 'unknown',
        why: expect.stringContaining('Declare "pages" of the listing'),
      });
      expect((await find(() => [...flows, flow('b', -1)], by, sought)).found).toEqual({ result: 'absent' });
    },
  );

  it('by a listing that lacks a flow that the caller knows from the time of the request', async () => {
    const { flows, clock } = listing(() => ({ flows: [flow('a', 1), flow('b', -9), ours('c', -9)], next: null }));
    const sought = { ...SOUGHT, tag: { ...TAG, upload: 'lost' } };
    const asked: number[][] = [];
    const knowing = (...known: string[]) =>
      flows.find([sought], never, {
        ...NONE_KNOWN,
        flowsMade: async ({ since, before }) => {
          asked.push([since, before]);
          return known;
        },
      });
    expect(await knowing('a', 'b')).toEqual([{ result: 'absent' }]);
    const why = expect.stringContaining('lacks a known flow');
    expect(await knowing('a', 'd')).toEqual([{ result: 'unknown', why, mayPass: true }]);
    expect(asked[0]).toEqual([SINCE, clock.now() - 5 * MINUTE]);
  });

  it('before it was read back to all flows that the caller may know, whose times are those of a slow clock', async () => {
    // The claim was at 0, the known flow was made half a minute before, and the service's clock is 5 minutes late.
    const pages = [
      { flows: [...newestFirst(3, -4), flow('p', -5.1)], next: 'more' },
      { flows: [flow('known', -5.5), ...newestFirst(-7, -9)], next: 'more' },
    ];
    const { flows } = listing((_, index) => pages[index % 2], NEWEST_FIRST);
    const sought = { ...SOUGHT, tag: { ...TAG, upload: 'lost' } };
    const known = { ...NONE_KNOWN, flowsMade: async () => ['known'] };
    expect(await flows.find([sought], never, known)).toEqual([{ result: 'absent' }]);
  });

  describe('by a listing without any flow of Flowdrop if one must be listed by now', () => {
    const others = (minutes: number) => ({
      flows: [flow(`a${-minutes}`, minutes)],
      next: minutes > -60 ? `${minutes - 20}` : null,
    });
    /** @param isListed true if the oldest flow of the listing is one of Flowdrop. */
    const searched = async (isKnown: boolean, isListed: boolean) => {
      const { flows, asked } = listing((path) => {
        const page = others(Number(/cursor=(.+)/.exec(path)?.[1] ?? 0));
        return isListed && page.next === null ? { ...page, flows: [ours('other', -60)] } : page;
      }, NEWEST_FIRST);
      const tag = { ...TAG, upload: 'lost' };
      const known = { ...NONE_KNOWN, hadFlowBefore: async () => isKnown };
      const [found] = await flows.find([{ ...SOUGHT, tag }], never, known);
      return { result: found?.result, pages: asked.length };
    };

    it('so one that is newest first is read back until it shows one', async () => {
      expect(await searched(true, true)).toEqual({ result: 'absent', pages: 8 });
      expect(await searched(true, false)).toEqual({ result: 'unknown', pages: 4 });
    });

    it('but not while the ledger is new', async () => {
      expect(await searched(false, false)).toEqual({ result: 'absent', pages: 4 });
    });
  });
});

/** How the pages of two flows are named. */
interface Naming {
  /** Index of the first flow of a page. NaN if its name means nothing any more. */
  readonly startOf: (path: string, ids: readonly string[]) => number;
  readonly nextOf: (ids: readonly string[], end: number) => object;
  readonly pages: Json;
}

const NAMINGS: Readonly<Record<string, Naming>> = {
  'a number': {
    startOf: (path) => 2 * (Math.max(1, Number(/page=(\d+)/.exec(path)?.[1] ?? 1)) - 1),
    nextOf: () => ({}),
    pages: NUMBERED,
  },
  'a cursor that hides an offset': {
    startOf: (path) => (/cursor=(x*)/.exec(path)?.[1] ?? '').length,
    nextOf: (ids, end) => ({ next_cursor: end < ids.length ? 'x'.repeat(end) : null }),
    pages: CURSOR,
  },
  'the flow before': {
    startOf: (path, ids) => {
      const before = /cursor=(\w+)/.exec(path)?.[1];
      return before === undefined ? 0 : ids.indexOf(before) + 1 || Number.NaN;
    },
    nextOf: (ids, end) => ({ next_cursor: end < ids.length ? ids[end - 1] : null }),
    pages: CURSOR,
  },
};

describe.each(Object.entries(NAMINGS))(
  'a listing that changes, with pages named by %s,',
  (_, { startOf, nextOf, pages }) => {
    const LEAVES = (ids: string[]) => ids.shift();
    const MOVES = (ids: string[]) => ids.push(ids.shift() as string);

    /** Searches an account whose flows `between` changes after its first page was read, `times` times. */
    const changing = async (ids: string, between: (ids: string[]) => void, times = 1) => {
      const left = [...ids];
      let changes = 0;
      const { found } = await find((path) => {
        const start = startOf(path, left);
        if (Number.isNaN(start)) return { body: 'The cursor is not valid', status: 422 };
        const page = left.slice(start, start + 2).map((id) => (id === 'm' ? ours(id) : flow(id)));
        const answer = { flows: page, ...nextOf(left, start + 2) };
        if (start === 0 && path !== '/flows?page=1') {
          changes += 1;
          if (changes <= times) between(left);
        }
        return answer;
      }, listedBy(pages));
      return found;
    };

    it.each<[string, string, (ids: string[]) => void]>([
      ['another was deleted', 'abmc', LEAVES],
      ['another moved to the end', 'abmcd', MOVES],
      ['it moved to the front', 'abcdm', (ids) => ids.unshift(ids.pop() as string)],
    ])('shows a flow that was skipped because %s', async (_, ids, between) => {
      expect(await changing(ids, between)).toMatchObject({ result: 'found', flow: { flowId: 'm' } });
    });

    it.each([
      ['leave it', LEAVES],
      ['move in it', MOVES],
    ])('proves nothing if flows %s during every reading', async (_, between) => {
      const why = expect.stringContaining('while it is read');
      expect(await changing('abcdefghijkl', between, 99)).toEqual({ result: 'unknown', why });
    });

    it.each<[string, (ids: string[]) => void]>([
      ['a flow left it', LEAVES],
      ['a flow moved', MOVES],
      ['a flow was made', (ids) => ids.unshift('n')],
    ])('proves absence once nothing changes: %s', async (_, between) => {
      expect(await changing('abcd', between)).toEqual({ result: 'absent' });
    });
  },
);

describe('the listing of flows', () => {
  const all = async (flows: FlowService): Promise<readonly (readonly string[])[]> => {
    const pages: string[][] = [];
    for await (const page of flows.list(never)) pages.push(page.map(({ flowId }) => flowId));
    return pages;
  };

  it('comes page by page, each requested only when it is needed', async () => {
    const { flows, asked } = listing((_, index) => ({
      flows: [flow(`a/${index}`, 1, { state: 'running' }), flow(`b${index}`)],
      next_cursor: index < 2 ? `c${index}` : null,
    }));
    const pages = flows.list(never);
    expect(asked).toEqual([]);
    const { value } = await pages.next();
    expect(value).toMatchObject([
      { flowId: 'a/0', state: 'running', createdAt: SINCE + MINUTE },
      { flowId: 'b0', state: 'completed' },
    ]);
    expect(asked).toEqual(['/flows']);
    await pages.next();
    expect(asked).toEqual(['/flows', '/flows?cursor=c0']);
    expect(await pages.next()).toMatchObject({ done: false });
    expect(await pages.next()).toEqual({ done: true, value: undefined });
    expect(asked.length).toBe(3);
  });

  it('yields each flow once', async () => {
    const { flows } = listing(
      (path) => (path.endsWith('2') ? [flow('b'), flow('c')] : path.endsWith('3') ? [] : [flow('a'), flow('b')]),
      listedBy(NUMBERED),
    );
    expect(await all(flows)).toEqual([['a', 'b'], [], ['c'], []]);
  });

  it('is read on if new flows push a whole page to the next one', async () => {
    const newestFirst = [flow('b'), flow('a')];
    const { flows } = listing((path) => {
      const at = Number(new URLSearchParams(path.split('?')[1]).get('cursor'));
      if (at === 1) newestFirst.unshift(flow('c'));
      return { flows: newestFirst.slice(at, at + 1), next_cursor: newestFirst.length > at + 1 ? String(at + 1) : null };
    });
    expect(await all(flows)).toEqual([['b'], [], ['a']]);
  });

  it.each([0, 1])('is read on if that happens to pages that are only numbered, from %i', async (first) => {
    const newestFirst = [flow('b'), flow('a')];
    const { flows } = listing((path) => {
      const at = Number(/page=(\d+)/.exec(path)?.[1] ?? first) - first;
      if (at === 1) newestFirst.unshift(flow(`c${newestFirst.length}`));
      return newestFirst.slice(at, at + 1);
    }, listedBy({ first }));
    expect((await all(flows)).flat()).toEqual(['b', 'a']);
  });

  it('is read on if new flows push two pages at once', async () => {
    const newestFirst = [flow('c'), flow('b'), flow('a')];
    const { flows } = listing(
      (path) => {
        const at = Number(/page=(\d+)/.exec(path)?.[1] ?? 0);
        if (at === 2) newestFirst.unshift(flow('e'), flow('d'));
        return newestFirst.slice(at, at + 1);
      },
      listedBy({ first: 0 }),
    );
    expect((await all(flows)).flat()).toEqual(['c', 'b', 'a']);
  });

  it('is read again if new flows push more pages at once', async () => {
    const newestFirst = ['f', 'e', 'd', 'c', 'b', 'a'].map((id) => flow(id));
    const { found, asked } = await find(
      (path) => {
        const number = Number(/page=(\d+)/.exec(path)?.[1] ?? 0);
        if (number === 5 && newestFirst.length === 6)
          newestFirst.unshift(...['j', 'i', 'h', 'g'].map((id) => flow(id)));
        return newestFirst.slice(number, number + 1);
      },
      listedBy({ first: 0 }),
    );
    expect(found).toEqual({ result: 'absent' });
    expect(asked.filter((path) => path === '/flows')).toHaveLength(3);
  });

  it('is read once if it ignores the page number', async () => {
    const { found, asked } = await find(() => [flow('a')], listedBy(NUMBERED));
    expect(found).toEqual({ result: 'unknown', why: 'the listing cannot be paged through' });
    expect(asked).toHaveLength(6);
  });

  it('is read on to a sixth page, and no further, if its pages stay the same', async () => {
    const { flows, asked } = listing(() => [flow('a')], listedBy(NUMBERED));
    expect((await all(flows)).flat()).toEqual(['a']);
    expect(asked).toEqual(['/flows', ...[1, 2, 3, 4, 5].map((page) => `/flows?page=${page}`)]);
  });

  it('ends if it names the same next page again', async () => {
    const { flows, asked } = listing(() => ({ flows: [flow('a')], next_cursor: 'same' }));
    expect((await all(flows)).flat()).toEqual(['a']);
    expect(asked).toHaveLength(2);
  });

  it.each([
    ['leads to another origin', () => ({ flows: [flow('a')], next: 'https://other.example.com/flows' })],
    ['rejects a further page', (path: string) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 422 })],
    ['does not have a further page', (path: string) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 404 })],
  ])('ends if it %s', async (_, pageAt) => {
    for (const pages of [NUMBERED, ADDRESS]) {
      expect((await all(listing(pageAt, listedBy(pages)).flows)).flat()).toEqual(['a']);
    }
  });

  it.each([
    [404, NotFoundError],
    [405, NotServedError],
    [422, RejectedError],
    [429, ThrottledError],
  ])('fails if its first page is answered with %i', async (status, kind) => {
    await expect(all(listing(() => ({ body: 'no', status })).flows)).rejects.toThrow(kind);
  });

  it('fails if a later page is throttled', async () => {
    const { flows } = listing(
      (path) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 429 }),
      listedBy(NUMBERED),
    );
    await expect(all(flows)).rejects.toThrow(ThrottledError);
  });

  it('is asked for with the query of the description on each page', async () => {
    const { flows, asked } = listing((path) => [flow(path)], {
      service: speaking({ list: { path: '/flows?all=1', query: 'sort_by=-created_at&limit=2' } }),
    });
    for await (const _ of flows.list(never)) if (asked.length === 2) break;
    await flows.isServing(never);
    expect(asked.map((path) => path.replace('%2D', '-'))).toEqual([
      '/flows?all=1&sort_by=-created_at&limit=2',
      '/flows?all=1&sort_by=-created_at&limit=2&page=1',
      '/flows?all=1&sort_by=-created_at&limit=2',
    ]);
  });

  it.each([
    [newestFirst(9, -9), { flows: 14, hasMore: true, isNewestFirst: true, showsAdditional: true, showsEnded: true }],
    [newestFirst(9, -9).toReversed(), { isNewestFirst: false }],
    [newestFirst(9, -9).map((each) => ({ ...each, additional: null })), { showsAdditional: false }],
    [newestFirst(9, -9).map((each) => ({ ...each, state: 'running' })), { showsEnded: false }],
    [[], { flows: 0, hasMore: false }],
  ])('is sampled by two pages at most', async (all, sample) => {
    const { flows, asked } = listing((_, index) => ({
      flows: all.slice(7 * index, 7 * index + 7),
      next: all.length === 0 ? null : `c${index}`,
    }));
    expect(await flows.sample(never)).toMatchObject(sample);
    expect(asked.length).toBeLessThanOrEqual(2);
  });

  it.each([
    ['the flows of a second are mixed', [[flow('b', 8.99), flow('a', 9), flow('c', 1)]]],
    ['a flow comes into it meanwhile', [newestFirst(9, 5), [flow('new', 10), ...newestFirst(5, 1)]]],
  ])('is newest first in a sample although %s', async (_, pages) => {
    const { flows } = listing((__, index) => ({ flows: pages[index], next: index + 1 < pages.length ? 'more' : null }));
    expect(await flows.sample(never)).toMatchObject({ isNewestFirst: true });
  });

  it('is not newest first in a sample if it has no times', async () => {
    const { flows } = listing(() => [flow('a'), flow('b')]);
    expect(await flows.sample(never)).toMatchObject({ isNewestFirst: false });
  });

  it('has room for more than ten thousand flows', async () => {
    const { flows, asked } = listing((_, index) => ({
      flows: Array.from({ length: 100 }, (_, place) => flow(`f${index}-${place}`)),
      next_cursor: index < 149 ? `c${index}` : null,
    }));
    expect((await all(flows)).flat().length).toBe(15_000);
    expect(asked.length).toBe(150);
  });
});
