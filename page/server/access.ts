import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { ErrorCode, ProofHeader, ProofParameter, ProofSubject } from '../api.ts';

/**
 * Who may use the page. Other users of the machine reach the port, and so do all web pages in a browser of this
 * machine. When the server has ended, any of these users can take the port.
 *
 * - The key is made for one run of the server. It is in the printed address, behind `#`: a browser does not send that
 *   part. The page keeps the key for its own origin. There is no cookie, which a browser would send to every port.
 * - The key itself is never sent by the page. The page first has its server prove that it has the key. Then it sends a
 *   proof of its own.
 * - What the browser loads by an address alone, such as a picture, has a proof in that address. It opens nothing else.
 * - `Host` must name this server: with DNS rebinding, the name of another site leads here.
 * - `Origin` and `Sec-Fetch-Site`, if sent, must name this page.
 */

const KEY_BYTES = 32;

/** Time for a browser to start, in milliseconds. After that, a key that opens the page once opens nothing. */
const ONCE_MAX_MS = 60_000;

const PROOF_HEADER: ProofHeader = 'x-flowdrop-proof';
const PROOF_PARAMETER: ProofParameter = 'proof';

/** Why a request is refused. `message` is a sentence for a person. */
export interface Refusal {
  readonly status: number;
  readonly code: ErrorCode;
  readonly message: string;
}

/** 256 random bits, in characters that an address can hold. */
const randomKey = (): string => randomBytes(KEY_BYTES).toString('base64url');

/** What one run of a server demands of its visitors. */
export class Access {
  readonly #key = randomKey();
  readonly #port: number;
  /** Keys that open the page once, and when they end. */
  readonly #onceKeys = new Map<string, number>();

  constructor(port: number) {
    this.#port = port;
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
    return `http://127.0.0.1:${this.#port}/#key=${key}`;
  }

  /** The proofs of this server, one for each key that opens the page. The page knows which one it needs. */
  proofs(nonce: string): readonly string[] {
    return [this.#key, ...this.#onceKeys.keys()].map((key) => proofOf(key, `server ${nonce} ${this.#port}`));
  }

  /** The key of this run, for a page with a key that opens it. One that opens it once is used up by this. */
  keyFor({ headers }: IncomingMessage): string | undefined {
    const proof = headers[PROOF_HEADER];
    if (typeof proof !== 'string') return undefined;
    for (const [key, endsAt] of this.#onceKeys) {
      if (performance.now() >= endsAt) this.#onceKeys.delete(key);
      else if (isSame(proof, proofOf(key, 'page'))) {
        this.#onceKeys.delete(key);
        return this.#key;
      }
    }
    return isSame(proof, proofOf(this.#key, 'page')) ? this.#key : undefined;
  }

  /** An address of this server that can be read without a header. */
  proven(path: string): string {
    return `${path}?${PROOF_PARAMETER}=${proofOf(this.#key, `GET ${path}`)}`;
  }

  /** Why a request does not come from this page, or from a person who typed its address. */
  foreignness({ method, url = '', headers, headersDistinct }: IncomingMessage): Refusal | undefined {
    const [host = '', ...others] = (headersDistinct.host ?? []).map((each) => each.toLowerCase());
    const names = ['127.0.0.1', 'localhost'].map((name) => `${name}:${this.#port}`);
    // A target with a host of its own would override the header.
    if (others.length > 0 || !names.includes(host) || !url.startsWith('/')) {
      return { status: 421, code: 'wrong-host', message: `This server answers only to ${names.join(' and ')}.` };
    }
    const { origin, 'sec-fetch-site': site, 'sec-fetch-mode': mode } = headers;
    const isNavigation = mode === 'navigate' && (method === 'GET' || method === 'HEAD');
    const isOwnOrigin = origin === undefined || origin === `http://${host}`;
    const isOwnSite = site === undefined || site === 'same-origin' || (site === 'none' && isNavigation);
    if (isOwnOrigin && isOwnSite) return undefined;
    return { status: 403, code: 'forbidden', message: 'Requests of other sites are not answered.' };
  }

  /** Why a visitor has no access. */
  strangeness({ method, url = '', headers }: IncomingMessage): Refusal | undefined {
    const header = headers[PROOF_HEADER];
    if (typeof header === 'string' && isSame(header, proofOf(this.#key, 'page'))) return undefined;
    const [path = '', query = ''] = url.split('?', 2);
    const proof = method === 'GET' || method === 'HEAD' ? new URLSearchParams(query).get(PROOF_PARAMETER) : null;
    if (proof !== null && isSame(proof, proofOf(this.#key, `GET ${path}`))) return undefined;
    return {
      status: 401,
      code: 'no-access',
      message:
        'Open the page by its full address, with the key: npm start or flowdrop open printed it in the terminal.',
    };
  }
}

const proofOf = (key: string, subject: ProofSubject): string =>
  createHmac('sha256', key).update(subject).digest('base64url');

/** Compares hashes, so that the time tells nothing of the secret. */
const isSame = (one: string, other: string): boolean => timingSafeEqual(sha256(one), sha256(other));

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest();
