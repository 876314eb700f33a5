import { essenceOf } from '../base/media-type.ts';
import { cut, type ErrorWords } from './answers.ts';
import { type FlowServiceError, LedOnError, MisaddressedError } from './errors.ts';
import { redact } from './redact.ts';
import type { TransportResponse } from './transport.ts';

/** A response, and the request that it answers. */
export interface Asked {
  readonly operation: string;
  readonly url: URL;
  readonly response: TransportResponse;
  /** The token, to be redacted from any quotation. A server elsewhere may know it from the service. */
  readonly secret: string;
}

/** What an answer without the wanted JSON consists of. */
export interface AnswerFacts extends ErrorWords {
  readonly response: TransportResponse;
  /** The beginning of the body. */
  readonly text: string;
}

/**
 * Statuses that mean the same whether a page comes with them or not. The server has read the request (413, 415, 422),
 * or the client has a rule of its own for them.
 */
const PLAIN_STATUSES: readonly number[] = [401, 402, 404, 405, 408, 409, 410, 413, 415, 422, 425, 429];

/** Longest quotation of something that is not the service's, and longest base address in a message, in characters. */
const QUOTE_CHARS_MAX = 120;

const PAGE_TYPES: readonly string[] = ['text/html', 'application/xhtml+xml'];

/** Tells whether a body is an HTML page, by its media type or by its beginning. */
export function isPage(mediaType: string | undefined, text: string): boolean {
  return PAGE_TYPES.includes(essenceOf(mediaType ?? '')) || /^\s*<(!doctype\s+html|html)\b/i.test(text);
}

/** Tells whether an answer is a page. Some frameworks call every answer HTML, also JSON. */
export const isPageAnswer = ({ response: { headers }, text }: Pick<AnswerFacts, 'response' | 'text'>): boolean =>
  isPage(headers['content-type'], text) && !/^\s*[{[]/.test(text);

/** Characters of a page in which its words are looked for. */
const PAGE_CHARS_MAX = 8_192;

/** The words of a page. */
export const wordsOfPage = (text: string): string =>
  cut(
    text
      .slice(0, PAGE_CHARS_MAX)
      .replaceAll(/<!--.*?-->|<(script|style)\b.*?<\/\1\s*>|<[^>]*>?/gis, ' ')
      .replaceAll(/&(?:amp|lt|gt|quot|nbsp|#39);/g, (entity) => ENTITIES[entity] ?? ' ')
      .replaceAll(/\s+/g, ' ')
      .trim(),
    QUOTE_CHARS_MAX,
  );

const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
};

/** What it can mean that every request gets a 403. */
export const refusedBy = (base: string): string =>
  'Every request is refused so: the token is refused, or something before the service refuses all requests, such as a ' +
  `firewall. Check the token, baseUrl (${cut(base, QUOTE_CHARS_MAX)}), and what stands before it.`;

const isRedirect = ({ status }: TransportResponse): boolean => status >= 300 && status < 400;

/** Tells whether an answer cannot come from the service: a redirect, or an HTML page. */
export function isForeign(facts: Pick<AnswerFacts, 'response' | 'text'>): boolean {
  const { status } = facts.response;
  if (isRedirect(facts.response)) return true;
  return status < 500 && !PLAIN_STATUSES.includes(status) && isPageAnswer(facts);
}

/**
 * Tells whether the request or the address caused a creation to fail. No file can cause a redirect, a 405 or a 501. A
 * 404 may mean an unknown template: the service's own words may say so. Otherwise, and for a page with a status that a
 * request may deserve, only another request to the address can tell. That the address made flows before says nothing: a
 * proxy may have changed.
 */
export function blameOf(facts: AnswerFacts): 'request' | 'address' | 'unclear' {
  const { status } = facts.response;
  if (isRedirect(facts.response) || status === 405 || status === 501) return 'address';
  if (status === 404) return namesTemplate(facts) ? 'request' : 'unclear';
  return isForeign(facts) ? 'unclear' : 'request';
}

const namesTemplate = ({ text, detail }: AnswerFacts): boolean =>
  text.trimStart().startsWith('{') && /template/i.test(detail);

/** Tells whether a redirect only adds a slash to the path of a request. Behind a proxy, a server may think that it is http. */
export const isSameWithSlash = (target: URL, own: URL): boolean =>
  target.host === own.host && target.pathname === `${own.pathname}/`;

/** Tells whether a redirect leads to a path below that of a URL, such as from `/flows` to `/flows/f1`. */
export function leadsBelow({ response, url }: Pick<Asked, 'response' | 'url'>, { host, pathname }: URL): boolean {
  const target = isRedirect(response) ? URL.parse(response.headers.location ?? '', url.href) : null;
  const folder = pathname.endsWith('/') ? pathname : `${pathname}/`;
  // Behind a proxy, a server may think that it is http.
  return target?.host === host && target.pathname.startsWith(folder) && target.pathname !== folder;
}

/**
 * The error for an answer that does not come from the service.
 * @param base the base address. It holds no credentials and no query.
 * @param cause the error for its status, if there is one.
 */
export function misaddressed(
  { operation, url, response, secret }: Asked,
  { detail, isOwn, misread }: ErrorWords,
  base: string,
  cause?: FlowServiceError,
): MisaddressedError {
  const { status, headers } = response;
  const location = isRedirect(response) ? URL.parse(headers.location ?? '', url.href) : null;
  if (location !== null && isSameWithSlash(location, url)) {
    const words = `${operation}: ${status} to the same path with a slash. The service wants a slash at the end of its`;
    return new MisaddressedError(`${words} paths: declare them with it in "service" of the configuration.`, { cause });
  }
  // Only the origin is quoted: the rest of the address may hold a secret.
  const to = location === null ? '' : ` to ${cut(redact(location.origin, secret), QUOTE_CHARS_MAX)}`;
  const said = detail === '' ? '' : `: ${cut(detail, QUOTE_CHARS_MAX)}`;
  // In words of its own, a service says so of a path, of a template, or of a model.
  const check = isOwn && status === 404 ? 'Check the template,' : 'This is no answer of a flow service. Check';
  const words = misread === undefined ? '' : ` If it is one, it has ${misread}.`;
  const isLedOn = [302, 303].includes(status) && leadsBelow({ response, url }, new URL(base));
  return new (isLedOn ? LedOnError : MisaddressedError)(
    `${operation}: ${status}${to}${said}. ${check} baseUrl ` +
      `(${cut(base, QUOTE_CHARS_MAX)}), and what stands before it: a proxy, a login, a firewall.${words}`,
    { cause },
  );
}
