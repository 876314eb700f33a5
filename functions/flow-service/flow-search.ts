import type { FlowPage } from './schemas.ts';
import type { FlowRecord, Found, Mark } from './types.ts';

/** Pages and flows of a listing that are read in one search. */
export const FIND_PAGES_MAX = 50;
export const FIND_FLOWS_MAX = 10_000;

/** How far the service's clock and ours may be apart, in milliseconds. */
export const CLOCK_SKEW_MS = 5 * 60_000;

/**
 * Looks for the flow that bears a mark in a listing whose pagination nobody has specified.
 *
 * A flow that is seen is found. That there is none may be said only where nothing can have been overlooked, since a
 * flow that is wrongly called absent is paid for twice:
 *
 * - the listing shows itself to be newest first (every flow has a time, none is newer than the one before, and one at
 *   least is older), and has come to flows from before the request that is in doubt; or
 * - its end is known: it said that there is no next page, or stopped naming one after it had; a page was empty; or as
 *   many flows were seen as it says there are.
 *
 * Where it says nothing of further pages it may have them all the same, so `?page=` is tried: 1 first, for a service
 * that counts from 0 has its second page there. A service that does not know the parameter gives the same flows again,
 * and then its one page may be the first of many, or all there is: unknown. So it is where a page leads elsewhere,
 * where one is refused, and beyond {@link FIND_PAGES_MAX} and {@link FIND_FLOWS_MAX}.
 */
export class FlowSearch {
  /** The page to read next. */
  url: URL;
  readonly #list: URL;
  readonly #mark: Mark;
  readonly #horizon: number;
  readonly #seen = new Set<string>();
  /** The newest that bears the mark and has failed: taken only if there is no other. */
  #failed: FlowRecord | undefined;
  #pages = 0;
  /** The number last asked for, where pages are asked for by number. */
  #page = 0;
  #hasNamedNext = false;
  /** What was listed and could not be read may have been the flow that is looked for. */
  #hasOverlooked = false;
  #isNewestFirst = true;
  #hasDescended = false;
  #previous = Number.POSITIVE_INFINITY;

  /** @param since when the request in doubt began, in milliseconds since the epoch. */
  constructor(list: URL, mark: Mark, since: number) {
    this.url = list;
    this.#list = list;
    this.#mark = mark;
    this.#horizon = since - CLOCK_SKEW_MS;
  }

  /** Takes in the page at {@link url}. Undefined: there is another to read. */
  read(page: FlowPage, link: string | undefined): Found | undefined {
    this.#pages += 1;
    this.#hasOverlooked ||= page.isPartial;
    const fresh = page.flows.filter(({ flowId }) => !this.#seen.has(flowId));
    for (const flow of fresh) {
      this.#seen.add(flow.flowId);
      this.#noteOrder(flow);
      if (!this.#bearsMark(flow)) continue;
      if (flow.state === 'running' || flow.state === 'completed') return { result: 'found', flow };
      if ((flow.createdAt ?? 0) >= (this.#failed?.createdAt ?? 0)) this.#failed = flow;
    }
    const next = nextOf(page, link);
    const isPastHorizon = this.#isNewestFirst && this.#hasDescended && this.#previous < this.#horizon;
    if (isPastHorizon) return this.#none();
    if (next.kind === 'end') return this.#none();
    if (next.kind === 'unsaid') {
      const isComplete = page.total !== undefined && this.#seen.size >= page.total;
      if (this.#hasNamedNext || page.isEmpty || isComplete) return this.#none();
      if (this.#page >= 2 && fresh.length === 0) return this.without('the listing cannot be paged through');
      this.#page += 1;
      this.url = withParameter(this.#list, 'page', String(this.#page));
    } else {
      if (this.#pages > 1 && fresh.length === 0 && !page.isEmpty) return this.without('the listing repeats itself');
      this.#hasNamedNext = true;
      const url = next.kind === 'parameter' ? withParameter(this.#list, next.name, next.value) : this.#at(next.address);
      if (url === undefined) return this.without('the next page of the listing is elsewhere');
      this.url = url;
    }
    if (this.#pages >= FIND_PAGES_MAX || this.#seen.size > FIND_FLOWS_MAX) {
      return this.without(`more than ${this.#seen.size} flows are listed`);
    }
    return undefined;
  }

  /** What can be said without reading on. */
  without(why: string): Found {
    return this.#failed === undefined ? { result: 'unknown', why } : { result: 'found', flow: this.#failed };
  }

  #none(): Found {
    if (this.#hasOverlooked) return this.without('the listing has flows whose ids are unusable');
    return this.#failed === undefined ? { result: 'absent' } : { result: 'found', flow: this.#failed };
  }

  #noteOrder({ createdAt }: FlowRecord): void {
    if (createdAt === undefined || createdAt > this.#previous) {
      this.#isNewestFirst = false;
      return;
    }
    if (createdAt < this.#previous && this.#previous !== Number.POSITIVE_INFINITY) this.#hasDescended = true;
    this.#previous = createdAt;
  }

  #bearsMark({ mark }: FlowRecord): boolean {
    const { pipeline, upload, generation } = this.#mark;
    return mark?.pipeline === pipeline && mark.upload === upload && mark.generation === generation;
  }

  /** An address that the listing names, if the token may be sent there. */
  #at(address: string): URL | undefined {
    const url = URL.parse(address, this.url.href);
    return url?.origin === this.#list.origin ? url : undefined;
  }
}

function withParameter(list: URL, name: string, value: string): URL {
  const url = new URL(list);
  url.searchParams.set(name, value);
  return url;
}

/** What a page says of the next, in its body or, as RFC 8288 has it, in its `Link` header. */
function nextOf({ next }: FlowPage, link: string | undefined): FlowPage['next'] {
  if (next.kind !== 'unsaid' || link === undefined) return next;
  const relation = (name: string): string | undefined =>
    new RegExp(`<([^>]*)>[^<]*;\\s*rel="?${name}"?(?:[\\s;,]|$)`, 'i').exec(link)?.[1];
  const address = relation('next');
  if (address !== undefined) return { kind: 'address', address };
  return ['prev', 'previous', 'first', 'last'].some((name) => relation(name) !== undefined) ? { kind: 'end' } : next;
}
