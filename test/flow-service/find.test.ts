import { describe, expect, it } from 'vitest';
import { NotFoundError, NotServedError, RejectedError, ThrottledError } from '../../functions/flow-service/errors.ts';
import { FIND_FLOWS_MAX, FIND_PAGES_MAX } from '../../functions/flow-service/flow-search.ts';
import type { FlowService, Found } from '../../functions/flow-service/types.ts';
import { clientOf, never, type Page, PUBLIC_ORIGIN, paged, StillClock, TAG } from './scripted.ts';

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

/** A client whose listing has the pages of `pageAt`, and the paths that it requested. */
function listing(pageAt: PageAt) {
  const { asked, transport } = paged((path, index) => {
    const answer = pageAt(path, index);
    return isPage(answer) ? answer : { body: answer };
  });
  const clock = new StillClock();
  return { flows: clientOf(new URL(PUBLIC_ORIGIN), { clock, transport }), asked, clock };
}

/** Searches a listing with the pages of `pageAt`. */
async function find(pageAt: PageAt) {
  const { flows, asked } = listing(pageAt);
  const found: Found = await flows.find(TAG, SINCE, never);
  return { found, asked };
}

const resultOf = async (pageAt: PageAt): Promise<string> => {
  const { found } = await find(pageAt);
  return found.result === 'found' ? found.flow.flowId : found.result;
};

describe('a flow with the tag', () => {
  it('is found on any page, and no further page is read', async () => {
    const pages = ['/flows', '/flows?page=1', '/flows?page=2', '/flows?page=3'];
    const { found, asked } = await find((path) => {
      const number = Math.max(1, pages.indexOf(path));
      return [flow(`a${number}`, 3 - number), number === 3 ? ours('mine', 0) : flow(`b${number}`, 3 - number)];
    });
    expect(found).toMatchObject({ result: 'found', flow: { flowId: 'mine', state: 'running', tag: TAG } });
    expect(asked).toEqual(pages);
  });

  it.each(['flows', 'items', 'results', 'data'])('is found in the member %s', async (member) => {
    expect(await resultOf(() => ({ [member]: [ours('mine')] }))).toBe('mine');
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

/** A page of an ordinary account: a flow a minute, the newest first, and every third failed. */
const newestFirst = (from: number, to: number): readonly object[] =>
  Array.from({ length: from - to + 1 }, (_, index) =>
    flow(`m${from - index}`, from - index, { state: index % 3 === 1 ? 'failed' : 'completed' }),
  );

describe('absence is proven', () => {
  it('if the listing is newest first and was read back past the request, with clocks five minutes apart', async () => {
    const { found, asked } = await find(() => newestFirst(3, -15));
    expect({ found, asked }).toEqual({ found: { result: 'absent' }, asked: ['/flows'] });
    expect(await resultOf(() => newestFirst(3, -9))).toBe('unknown');
  });

  it('if a later page proves it, and no flow was deleted meanwhile', async () => {
    const { found, asked } = await find((path) =>
      path === '/flows?page=2' ? newestFirst(-7, -20) : newestFirst(3, -6),
    );
    expect(found.result).toBe('absent');
    const pages = ['/flows', '/flows?page=1', '/flows?page=2'];
    expect(asked).toEqual([...pages, ...pages]);
  });

  it.each<[string, (index: number) => object]>([
    ['of which some still run', (index) => flow('', -index / 6, index < 20 ? { state: 'running' } : {})],
    ['of which none runs and some failed', (index) => flow('', -index / 6, index % 9 === 0 ? { state: 'failed' } : {})],
    [
      'that are made ten at a time',
      (index) => flow('', -Math.floor(index / 10), index < 9 ? { state: 'running' } : {}),
    ],
    [
      'that take an hour',
      (index) =>
        flow('', 9 - index / 2, { finished_at: at(69 - index / 2), ...(index < 120 ? { state: 'running' } : {}) }),
    ],
  ])('in an account of a million flows %s, with few requests', async (_, made) => {
    const { found, asked } = await find((path) => {
      const first = 50 * (Number(/page=(\d+)/.exec(path)?.[1] ?? 1) - 1);
      const flows = Array.from({ length: 50 }, (_, index) => ({
        ...made(first + index),
        flow_id: `f${first + index}`,
      }));
      return { flows, total: 1_000_000 };
    });
    expect(found.result).toBe('absent');
    expect(asked.length).toBeLessThanOrEqual(14);
  });

  it.each([
    ['next is null', { flows: [flow('a')], next: null }],
    ['there is no cursor', { flows: [flow('a')], next_cursor: null }],
    ['there is no page token', { flows: [flow('a')], next_page_token: '' }],
    ['there is no more', { flows: [flow('a')], has_more: false }],
    ['there are no more than these', { flows: [flow('a'), flow('b')], total: 2 }],
    ['there is nothing', { flows: [] }],
    ['there is nothing at all', []],
    ['there are only pages before', { body: [flow('a')], link: '<https://flows.example.com/flows>; rel="first"' }],
  ])('if the listing says that %s', async (_, page) => {
    expect(await resultOf(() => page)).toBe('absent');
  });

  it('if numbered pages end with an empty one, counted from 1 or from 0', async () => {
    for (const first of [1, 0]) {
      const { found, asked } = await find((path) => {
        const number = Number(/page=(\d+)/.exec(path)?.[1] ?? first);
        return number < first + 3 ? [flow(`f${number}`)] : [];
      });
      expect(found.result).toBe('absent');
      // All three pages are read a second time.
      expect(asked.length).toBe(first === 1 ? 5 + 4 : 4 + 3);
    }
    const zeroBased = (path: string) =>
      [[ours('mine')], []][Number(/page=(\d+)/.exec(path)?.[1] ?? 9) - 1] ?? [flow('a')];
    expect(await resultOf(zeroBased)).toBe('mine');
  });

  it.each([
    ['an address', { next: 'https://flows.example.com/flows?after=x2' }, ['/flows', '/flows?after=x2']],
    ['a path', { next: '/flows?after=x2' }, ['/flows', '/flows?after=x2']],
    ['a query', { next: '?limit=10&after=x2' }, ['/flows', '/flows?limit=10&after=x2']],
    ['a cursor', { next_cursor: 'a b' }, ['/flows', '/flows?cursor=a+b']],
    ['a bare cursor', { cursor: 'x' }, ['/flows', '/flows?cursor=x']],
    ['a page token', { next_page_token: 'x' }, ['/flows', '/flows?page_token=x']],
    ['a cursor called next', { next: 'x' }, ['/flows', '/flows?cursor=x']],
    // A second reading shows whether a flow moved to a page already read.
    ['a number', { next: 2 }, ['/flows', '/flows?page=2', '/flows', '/flows?page=2']],
    ['a next page', { next_page: 2 }, ['/flows', '/flows?page=2', '/flows', '/flows?page=2']],
    ['an offset', { next: '/flows?offset=1' }, ['/flows', '/flows?offset=1', '/flows', '/flows?offset=1']],
  ])('if the listing names the next page by %s, and then no more', async (_, next, paths) => {
    const { found, asked } = await find((path) => ({ flows: [flow(path)], ...(path === '/flows' ? next : {}) }));
    expect({ found, asked }).toEqual({ found: { result: 'absent' }, asked: paths });
  });

  it('if the listing names the next page in a Link header, and then no more', async () => {
    const link = '</flows?p=a>; rel="prev", </flows?p=c>; title="x"; rel=next';
    const { found, asked } = await find((path) => ({ body: [flow(path)], ...(path === '/flows' ? { link } : {}) }));
    expect({ found, asked }).toEqual({ found: { result: 'absent' }, asked: ['/flows', '/flows?p=c'] });
  });
});

describe('absence is not proven', () => {
  it.each([404, 405, 501, 400, 422])('if the listing is answered with %i', async (status) => {
    const { found } = await find(() => ({ body: 'no', status }));
    expect(found).toMatchObject({ result: 'unknown', why: expect.stringContaining(String(status)) });
  });

  it('if a page after the first is always rejected', async () => {
    const { found, asked } = await find((path) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 422 }));
    expect(found.result).toBe('unknown');
    expect(asked.filter((path) => path === '/flows')).toHaveLength(3);
  });

  it.each([
    ['gives the same page whatever is asked for', [flow('a', 3), flow('b', 2)]],
    ['is not newest first', [...newestFirst(-9, -30), flow('b', 2), flow('c', -31)]],
    ['has a flow without a time', [flow('a', 3), flow('b'), ...newestFirst(2, -30)]],
    ['has one flow alone, from before', [flow('a', -9)]],
    ['has few flows, from before', newestFirst(-7, -15)],
    ['has two falling times, and goes back past the request', [flow('a', 3), flow('b', 2), flow('c', -6)]],
    ['has flows of one time alone, from before', Array.from({ length: 50 }, (_, index) => flow(`f${index}`, -9))],
    ['has running flows alone, from before', newestFirst(3, -30).map((each) => ({ ...each, state: 'running' }))],
    ['has flows of one state alone', newestFirst(3, -30).map((each) => ({ ...each, state: 'completed' }))],
    ['has flows alone that changed since', newestFirst(3, -30).map((each) => ({ ...each, updated_at: at(1) }))],
    ['counts more flows than it shows to its end', { flows: [flow('a')], next: null, total: 2 }],
    ['counts more than it shows', { flows: [flow('a')], total: 2 }],
    ['counts what is on the page', { flows: [flow('a')], count: 1 }],
    ['has a flow of an unusable id', { flows: [flow('a'), flow('..')], total: 2 }],
  ])('if the listing %s', async (_, page) => {
    expect(await resultOf(() => page)).toBe('unknown');
  });

  it('if the next page is on another origin, where the token must not go', async () => {
    for (const next of ['https://other.example.com/flows', 'http://flows.example.com/flows', 'https://']) {
      const { found, asked } = await find(() => ({ flows: [flow('a')], next }));
      expect(found.result).toBe('unknown');
      expect(asked).toEqual(['/flows']);
    }
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
});

describe('a tag that is not visible', () => {
  it.each([
    ['has none', undefined],
    ['has null', null],
    ['is empty', {}],
    ['is a text of another kind', 'invoice 7'],
    ['is a text of a list', '[{"customer":7}]'],
    ['is cut JSON', '{"customer":7'],
    ['is nested without end', `{"a":${'['.repeat(10_000)}${']'.repeat(10_000)}}`],
  ])('proves nothing: additional %s', async (_, additional) => {
    const { found } = await find(() => ({ flows: [flow('a', -9, { additional })], next: null }));
    expect(found).toEqual({ result: 'unknown', why: expect.stringContaining('no additional data') });
    const paged = newestFirst(3, -30).map((each) => ({ ...each, additional }));
    expect(await resultOf(() => paged)).toBe('unknown');
  });

  it('is visible if `additional` comes as a text of JSON', async () => {
    const text = (tag: object) => flow('mine', 0, { additional: JSON.stringify({ flowdrop: tag }) });
    expect(await resultOf(() => ({ flows: [text(TAG)], next: null }))).toBe('mine');
    expect(await resultOf(() => ({ flows: [text({ ...TAG, upload: 'other' })], next: null }))).toBe('absent');
  });

  it('on the first page may be visible on a later one', async () => {
    const page = (number: number) => newestFirst(30 - 31 * number, -31 * number);
    const without = page(0).map((each) => ({ ...each, additional: null }));
    const { found, asked } = await find((path) => {
      const number = Math.max(1, Number(/page=(\d+)/.exec(path)?.[1] ?? 1)) - 1;
      return number === 0 ? without : page(number);
    });
    expect(found.result).toBe('absent');
    expect(asked.length).toBe(6);
  });
});

describe('a listing in another order, in which the flow is on the second page,', () => {
  const old = Array.from({ length: 60 }, (_, index) =>
    flow(`o${index}`, -30 - index, { state: index % 4 === 1 ? 'failed' : 'completed' }),
  );
  const fresh = Array.from({ length: 20 }, (_, index) => flow(`n${index}`, 6 - index / 10));
  const touched = old.map((each, index) => ({
    ...each,
    finished_at: at(7 - index / 10),
    updated_at: at(7 - index / 10),
  }));
  const orders: readonly [string, readonly object[]][] = [
    ['by last change', [...touched, ours('mine', 0)]],
    ['by last change, with a flow from long ago among the newest', [...fresh, flow('x', -60), ours('mine', 0), ...old]],
    ['by state', [...fresh, ...old.map((each) => ({ ...each, state: 'completed' })), ours('mine', 0)]],
    ['by name', [flow('a', -20), flow('b', -21), flow('c', -50), ...fresh, ours('mine', 0)]],
    ['oldest first', [...old.toReversed(), ours('mine', 0), ...fresh.toReversed()]],
  ];

  it.each(orders)('%s, is read until it is found', async (_, all) => {
    const size = all.findIndex((each) => 'flow_id' in each && each.flow_id === 'mine');
    const page = (cursor: string | undefined) =>
      cursor === undefined ? { flows: all.slice(0, size), next: 'rest' } : { flows: all.slice(size), next: null };
    expect(await resultOf((path) => page(/cursor=(\w+)/.exec(path)?.[1]))).toBe('mine');
  });

  it.each(orders)('%s, proves nothing if that page cannot be read', async (_, all) => {
    const size = all.findIndex((each) => 'flow_id' in each && each.flow_id === 'mine');
    expect(await resultOf(() => all.slice(0, size))).toBe('unknown');
  });
});

describe('a listing of active flows only', () => {
  it('proves nothing, because the flow may have ended', async () => {
    const running = [flow('a', 3, { state: 'running' }), flow('b', -3, { state: 'queued' })];
    const { found } = await find(() => ({ flows: running, next: null }));
    expect(found).toEqual({ result: 'unknown', why: expect.stringContaining('no ended flow') });
  });

  it('proves nothing when it is empty if the process knows a flow', async () => {
    const { flows, clock } = listing((path) => (path === '/flows/f1' ? { flow_id: 'f1', state: 'completed' } : []));
    expect(await flows.find(TAG, SINCE, never)).toEqual({ result: 'absent' });
    await flows.get('f1', never);
    // The flow may be new, and new flows are listed late.
    clock.pass(5 * MINUTE - 1);
    expect(await flows.find(TAG, SINCE, never)).toEqual({ result: 'absent' });
    clock.pass(1);
    expect(await flows.find(TAG, SINCE, never)).toEqual({ result: 'unknown', why: expect.stringContaining('empty') });
  });

  it('proves nothing if the caller knows a flow that must be listed by now', async () => {
    const { flows, clock } = listing(() => []);
    const asked: number[] = [];
    const hadFlowBefore = async (before: number) => {
      asked.push(before);
      return true;
    };
    expect(await flows.find(TAG, SINCE, never, { hadFlowBefore })).toMatchObject({ result: 'unknown' });
    expect(asked).toEqual([clock.now() - 5 * MINUTE]);
  });
});

describe('flows that are deleted during the reading', () => {
  /** An account with numbered pages of two flows. `between` runs after the first page was read. */
  const changing = (ids: readonly string[], between: (ids: string[]) => void, isAgain = false) => {
    const left = [...ids];
    return find((path, index) => {
      const first = 2 * (Math.max(1, Number(/page=(\d+)/.exec(path)?.[1] ?? 1)) - 1);
      const page = left.slice(first, first + 2).map((id) => (id === 'mine' ? ours(id) : flow(id)));
      if (index === 1 || (isAgain && path === '/flows')) between(left);
      return page;
    });
  };

  it('do not hide the flow that moved to a page already read', async () => {
    const { found } = await changing(['a', 'b', 'mine', 'c'], (ids) => ids.shift());
    expect(found).toMatchObject({ result: 'found', flow: { flowId: 'mine' } });
  });

  it('leave it unknown whether others were hidden if flows leave during every reading', async () => {
    const { found } = await changing([...'abcdefghijkl'], (ids) => ids.shift(), true);
    expect(found).toEqual({ result: 'unknown', why: expect.stringContaining('leave the listing') });
  });

  it('are no reason for doubt if nothing leaves the listing while it is read anew', async () => {
    const { found } = await changing(['a', 'b', 'c', 'd'], (ids) => ids.shift());
    expect(found).toEqual({ result: 'absent' });
  });

  it('are no reason for doubt if they only made a cursor invalid', async () => {
    // A cursor names the flow before it, and that one is gone when the cursor is used.
    const left = [flow('a'), flow('b'), flow('c')];
    const { found, asked } = await find((path, index) => {
      if (index === 1) return { body: 'The cursor is not valid', status: 422 };
      return path === '/flows' ? { flows: left.slice(0, 2), next: 'b' } : { flows: left.slice(2), next: null };
    });
    expect(found).toEqual({ result: 'absent' });
    expect(asked).toEqual(['/flows', '/flows?cursor=b', '/flows', '/flows?cursor=b']);
  });

  it('are told from flows that are made meanwhile', async () => {
    const { found } = await changing(['a', 'b', 'c', 'd'], (ids) => ids.unshift('new'));
    expect(found).toEqual({ result: 'absent' });
  });
});

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
    const { flows } = listing((path) =>
      path.endsWith('2') ? [flow('b'), flow('c')] : path.endsWith('3') ? [] : [flow('a'), flow('b')],
    );
    expect(await all(flows)).toEqual([['a', 'b'], [], ['c'], []]);
  });

  it.each([
    ['repeats itself', () => [flow('a')]],
    ['leads to another origin', () => ({ flows: [flow('a')], next: 'https://other.example.com/flows' })],
    ['rejects a further page', (path: string) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 422 })],
    ['does not have a further page', (path: string) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 404 })],
  ])('ends if it %s', async (_, pageAt) => {
    expect((await all(listing(pageAt).flows)).flat()).toEqual(['a']);
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
    const { flows } = listing((path) => (path === '/flows' ? [flow('a')] : { body: 'no', status: 429 }));
    await expect(all(flows)).rejects.toThrow(ThrottledError);
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
