import { describe, expect, it } from 'vitest';
import { createFlowService } from '../../functions/flow-service/client.ts';
import { FIND_FLOWS_MAX, FIND_PAGES_MAX } from '../../functions/flow-service/flow-search.ts';
import type { Transport } from '../../functions/flow-service/transport.ts';
import type { Found } from '../../functions/flow-service/types.ts';
import { streamed } from './chunks.ts';
import { MARK, never, StillClock, scriptedToken } from './scripted.ts';

const SINCE = Date.UTC(2026, 0, 1, 12);
const MINUTE = 60_000;

/** A flow of somebody else's, made so many minutes after the request in doubt. */
const flow = (id: string, minutes?: number, more: object = {}): object => ({
  flow_id: id,
  state: 'running',
  ...(minutes === undefined ? {} : { created_at: new Date(SINCE + minutes * MINUTE).toISOString() }),
  ...more,
});

const ours = (id: string, minutes?: number, state = 'running'): object =>
  flow(id, minutes, { state, additional: { flowdrop: MARK, more: 1 } });

type Page = { readonly body: unknown; readonly link?: string; readonly status?: number };

/** What is found in a listing whose pages are those of `pageAt`, by path and query. */
async function find(pageAt: (pathAndQuery: string, index: number) => unknown) {
  const asked: string[] = [];
  const transport: Transport = async ({ url }) => {
    const path = url.origin === 'https://flows.example.com' ? `${url.pathname}${url.search}` : url.href;
    const answer = pageAt(path, asked.push(path) - 1);
    const isPage = typeof answer === 'object' && answer !== null && 'body' in answer;
    const { body, link, status = 200 } = isPage ? (answer as Page) : { body: answer };
    return { status, headers: { link }, body: streamed([Buffer.from(JSON.stringify(body))]), destroy() {} };
  };
  const flows = createFlowService({
    baseUrl: new URL('https://flows.example.com'),
    token: scriptedToken(),
    clock: new StillClock(),
    outputsPath: 'auto',
    assetBytesMax: 1,
    answerDepthMax: 100,
    transport,
  });
  const found: Found = await flows.find(MARK, SINCE, never);
  return { found, asked };
}

const resultOf = async (pageAt: (pathAndQuery: string, index: number) => unknown): Promise<string> => {
  const { found } = await find(pageAt);
  return found.result === 'found' ? found.flow.flowId : found.result;
};

describe('a flow that bears the mark', () => {
  it('is found on whatever page it is, and nothing is read beyond it', async () => {
    const pages = ['/flows', '/flows?page=1', '/flows?page=2', '/flows?page=3'];
    const { found, asked } = await find((path) => {
      const number = Math.max(1, pages.indexOf(path));
      return [flow(`a${number}`, 3 - number), number === 3 ? ours('mine', 0) : flow(`b${number}`, 3 - number)];
    });
    expect(found).toMatchObject({ result: 'found', flow: { flowId: 'mine', state: 'running', mark: MARK } });
    expect(asked).toEqual(pages);
  });

  it.each(['flows', 'items', 'results', 'data'])('is found in the member %s', async (member) => {
    expect(await resultOf(() => ({ [member]: [ours('mine')] }))).toBe('mine');
  });

  it('is another where any part of the mark is another', async () => {
    for (const part of [{ pipeline: 'other' }, { upload: 'other' }, { generation: 2 }]) {
      const other = flow('other', 0, { additional: { flowdrop: { ...MARK, ...part } } });
      expect(await resultOf(() => ({ flows: [other], next: null }))).toBe('absent');
    }
  });

  it('and has not failed is preferred to one that has, and of those that have the newest is taken', async () => {
    const flows = [ours('old', -2, 'failed'), ours('new', 2, 'failed'), ours('between', 0, 'aborted')];
    expect(await resultOf(() => ({ flows: [...flows, ours('good', -3, 'completed')], next: null }))).toBe('good');
    expect(await resultOf(() => ({ flows, next: null }))).toBe('new');
    expect(await resultOf(() => ({ flows }))).toBe('new');
  });
});

describe('absence is certain', () => {
  const long = [flow('a', 3), flow('b', 2), flow('c', -6)];

  it('where the listing is newest first and went back past the request, with clocks five minutes apart', async () => {
    const { found, asked } = await find(() => long);
    expect({ found, asked }).toEqual({ found: { result: 'absent' }, asked: ['/flows'] });
    expect(await resultOf(() => [flow('a', 3), flow('c', -4)])).toBe('unknown');
  });

  it('where that is seen only on a later page', async () => {
    const at = (path: string) =>
      path === '/flows?page=2' ? [flow('c', -1), flow('d', -9)] : [flow('a', 3), flow('b', 3)];
    expect(await resultOf(at)).toBe('absent');
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
  ])('where it says that %s', async (_, page) => {
    expect(await resultOf(() => page)).toBe('absent');
  });

  it('where pages by number come to an empty one, whether they are counted from 1 or from 0', async () => {
    for (const first of [1, 0]) {
      const { found, asked } = await find((path) => {
        const number = Number(/page=(\d+)/.exec(path)?.[1] ?? first);
        return number < first + 3 ? [flow(`f${number}`)] : [];
      });
      expect(found.result).toBe('absent');
      expect(asked.length).toBe(first === 1 ? 5 : 4);
    }
    const zeroBased = (path: string) =>
      [[ours('mine')], []][Number(/page=(\d+)/.exec(path)?.[1] ?? 9) - 1] ?? [flow('a')];
    expect(await resultOf(zeroBased)).toBe('mine');
  });

  it.each([
    ['an address', { next: 'https://flows.example.com/flows?after=2' }, '/flows?after=2'],
    ['a path', { next: '/flows?after=2' }, '/flows?after=2'],
    ['a query', { next: '?after=2' }, '/flows?after=2'],
    ['a cursor', { next_cursor: 'a b' }, '/flows?cursor=a+b'],
    ['a bare cursor', { cursor: 'x' }, '/flows?cursor=x'],
    ['a page token', { next_page_token: 'x' }, '/flows?page_token=x'],
    ['a cursor called next', { next: 'x' }, '/flows?cursor=x'],
    ['a number', { next: 2 }, '/flows?page=2'],
    ['a next page', { next_page: 2 }, '/flows?page=2'],
  ])('where it names the next page by %s, and then no more', async (_, next, path) => {
    const { found, asked } = await find((_, index) => ({ flows: [flow(`f${index}`)], ...(index === 0 ? next : {}) }));
    expect({ found, asked }).toEqual({ found: { result: 'absent' }, asked: ['/flows', path] });
  });

  it('where it names the next page in a Link header, and then no more', async () => {
    const link = '</flows?p=1>; rel="prev", </flows?p=3>; title="x"; rel=next';
    const { found, asked } = await find((_, index) => ({
      body: [flow(`f${index}`)],
      ...(index === 0 ? { link } : {}),
    }));
    expect({ found, asked }).toEqual({ found: { result: 'absent' }, asked: ['/flows', '/flows?p=3'] });
  });
});

describe('absence is not certain', () => {
  it.each([404, 405, 501, 400, 422])('where the listing is answered with %i', async (status) => {
    const { found } = await find(() => ({ body: 'no', status }));
    expect(found).toMatchObject({ result: 'unknown', why: expect.stringContaining(String(status)) });
  });

  it('where a page after the first is refused', async () => {
    expect(await resultOf((_, index) => (index === 0 ? [flow('a')] : { body: 'no', status: 422 }))).toBe('unknown');
  });

  it.each([
    ['gives the same page whatever is asked for', [flow('a', 3), flow('b', 2)]],
    ['is not newest first', [flow('a', -9), flow('b', 2), flow('c', -9)]],
    ['has a flow without a time', [flow('a', 3), flow('b'), flow('c', -9)]],
    ['has one flow alone, from before', [flow('a', -9)]],
    ['has flows of one time alone, from before', [flow('a', -9), flow('b', -9)]],
    ['counts more than it shows', { flows: [flow('a')], total: 2 }],
    ['counts what is on the page', { flows: [flow('a')], count: 1 }],
    ['has a flow of an unusable id', { flows: [flow('a'), flow('..')], total: 2 }],
  ])('where the listing %s', async (_, page) => {
    expect(await resultOf(() => page)).toBe('unknown');
  });

  it('where the next page is elsewhere, and the token does not go there', async () => {
    for (const next of ['https://other.example.com/flows', 'http://flows.example.com/flows', 'https://']) {
      const { found, asked } = await find(() => ({ flows: [flow('a')], next }));
      expect(found.result).toBe('unknown');
      expect(asked).toEqual(['/flows']);
    }
  });

  it('where pages go round in a circle', async () => {
    const { found, asked } = await find(() => ({ flows: [flow('a')], next_cursor: 'again' }));
    expect(found.result).toBe('unknown');
    expect(asked.length).toBe(2);
  });

  it('beyond so many pages and so many flows', async () => {
    const pages = await find((_, index) => ({ flows: [flow(`f${index}`)], next_cursor: `c${index}` }));
    expect(pages.found.result).toBe('unknown');
    expect(pages.asked.length).toBe(FIND_PAGES_MAX);
    const many = (index: number) => Array.from({ length: 3_000 }, (_, place) => flow(`f${index}-${place}`));
    const flows = await find((_, index) => ({ flows: many(index), next_cursor: `c${index}` }));
    expect(flows.found.result).toBe('unknown');
    expect(flows.asked.length).toBe(Math.ceil(FIND_FLOWS_MAX / 3_000));
  });
});
