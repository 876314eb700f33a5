import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { ErrorCode, TokenHeader } from '../api.ts';

/**
 * Who may use the page. Other users of the machine reach the port, and so do all web pages in a browser of this
 * machine.
 *
 * - The key is in the printed address. The first visit turns it into a cookie that no script can read.
 * - `Host` must name this server: with DNS rebinding, the name of another site leads here.
 * - `Origin` and `Sec-Fetch-Site`, if sent, must name this page: requests of a page on another port carry the cookie.
 * - `Sec-Fetch-Dest`, if sent, must be that of a script. Only the bytes of a file may also be loaded as a picture, a
 *   sound or a film. If a file names an address as its picture, the browser requests it with the cookie too.
 * - Every change needs the token, which only a script of this page can read.
 */

const KEY_BYTES = 32;

/** Time for a browser to start, in milliseconds. After that, a key that opens the page once opens nothing. */
const ONCE_MAX_MS = 60_000;

/** The only addresses of the API that pictures, sounds and films of the page are loaded from. */
const BYTES_PATH = /^\/api\/uploads\/[^/?]+\/(?:inputs|assets)\/\d+(?:\?|$)/;

const TOKEN_HEADER: TokenHeader = 'x-flowdrop-token';

/** Why a request is refused. `message` is a sentence for a person. */
export interface Refusal {
  readonly status: number;
  readonly code: ErrorCode;
  readonly message: string;
}

/** 256 random bits, in characters that an address can hold. */
export const randomKey = (): string => randomBytes(KEY_BYTES).toString('base64url');

/** What one server demands of its visitors. */
export class Access {
  readonly #key: string;
  readonly #port: number;
  /** Keys that open the page once, and when they end. */
  readonly #onceKeys = new Map<string, number>();
  /** The same for the same key, so that an open page goes on after a restart with that key. */
  readonly token: string;

  constructor(key: string, port: number) {
    this.#key = key;
    this.#port = port;
    this.token = createHmac('sha256', key).update('token').digest('base64url');
  }

  /** The address of the page, with the key. */
  get url(): string {
    return this.#addressWith(this.#key);
  }

  /** An address that opens the page once. For places that other users see, such as the list of processes. */
  urlForOnce(): string {
    const key = randomKey();
    this.#onceKeys.set(key, performance.now() + ONCE_MAX_MS);
    return this.#addressWith(key);
  }

  #addressWith(key: string): string {
    return `http://127.0.0.1:${this.#port}/?key=${key}`;
  }

  /** Cookies have no port, so its name has: two pages on this machine must not overwrite each other's. */
  get #cookieName(): string {
    return `flowdrop-page-${this.#port}`;
  }

  get cookie(): string {
    return `${this.#cookieName}=${this.#key}; HttpOnly; SameSite=Strict; Path=/`;
  }

  /** True for a key that opens the page. One that opens it once is used up by this. */
  opensWith(key: string): boolean {
    const endsAt = this.#onceKeys.get(key);
    this.#onceKeys.delete(key);
    return (endsAt !== undefined && performance.now() < endsAt) || isSame(key, this.#key);
  }

  /** Why a request does not come from this page, or from a person who typed its address. */
  foreignness({ method, url = '', headers, headersDistinct }: IncomingMessage): Refusal | undefined {
    const [host = '', ...others] = (headersDistinct.host ?? []).map((each) => each.toLowerCase());
    const names = ['127.0.0.1', 'localhost'].map((name) => `${name}:${this.#port}`);
    // A target with a host of its own would override the header.
    if (others.length > 0 || !names.includes(host) || !url.startsWith('/')) {
      return { status: 421, code: 'wrong-host', message: `This server answers only to ${names.join(' and ')}.` };
    }
    const { origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode, 'sec-fetch-dest': use } = headers;
    const isNavigation = mode === 'navigate' && (method === 'GET' || method === 'HEAD');
    const isOwnOrigin = origin === undefined || origin === `http://${host}`;
    const isOwnSite = site === undefined || site === 'same-origin' || (site === 'none' && isNavigation);
    // Browsers say `empty` for the request of a script. A person opens a `document`.
    const isByScript = use === undefined || use === 'empty' || use === 'document';
    if (url.startsWith('/api/') && !isByScript && !BYTES_PATH.test(url)) {
      return { status: 403, code: 'forbidden', message: 'This address is answered only to scripts of the page.' };
    }
    if (isOwnOrigin && isOwnSite) return undefined;
    return { status: 403, code: 'forbidden', message: 'Requests of other sites are not answered.' };
  }

  /** Why a visitor has no access. */
  strangeness({ headers }: IncomingMessage): Refusal | undefined {
    const prefix = `${this.#cookieName}=`;
    const cookies = (headers.cookie ?? '').split(';').map((each) => each.trim());
    if (cookies.some((each) => each.startsWith(prefix) && isSame(each.slice(prefix.length), this.#key)))
      return undefined;
    return {
      status: 401,
      code: 'no-access',
      message: 'Open this by its full address, with the key: npm start or flowdrop open printed it in the terminal.',
    };
  }

  /** Why a change is not made. */
  untokened({ method, headers }: IncomingMessage): Refusal | undefined {
    if (method === 'GET' || method === 'HEAD') return undefined;
    const token = headers[TOKEN_HEADER];
    if (typeof token === 'string' && isSame(token, this.token)) return undefined;
    return { status: 403, code: 'forbidden', message: 'The request has no valid token. Load the page again.' };
  }
}

/** Compares hashes, so that the time tells nothing of the secret. */
const isSame = (one: string, other: string): boolean => timingSafeEqual(sha256(one), sha256(other));

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest();
