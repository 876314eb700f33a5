import { createHmac } from 'node:crypto';
import { request as httpRequest, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http';
import { onTestFinished, vi } from 'vitest';
import type { Deployment } from '../../operations/deployment.ts';
import type { ApiError, Events } from '../../page/api.ts';
import type { PageFiles } from '../../page/page-files.ts';
import type { FeedPace } from '../../page/server/feed.ts';
import { type ServedPage, type ServeOptions, servePage } from '../../page/server/serve-page.ts';
import { type Raw, send } from '../support/raw-request.ts';

export const PAGE_HTML = '<!doctype html><body>the page</body>';

export const APP: PageFiles = new Map([
  ['/', { body: Buffer.from(PAGE_HTML), contentType: 'text/html; charset=utf-8' }],
  ['/assets/app.js', { body: Buffer.from('export {};'), contentType: 'text/javascript; charset=utf-8' }],
]);

/** The machine may be slow. */
vi.setConfig({ testTimeout: 240_000 });

/** Looks so often that no test waits. */
export const QUICK: FeedPace = { windowMs: 7 * 86_400_000, rowsMax: 10_000, lookMs: 50, statusMs: 50 };

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test says by its expectation what it is.
  readonly json: any;
}

export interface Ask extends Raw {
  readonly method?: string;
}

/** Sends a request to the server of the page, and parses an answer in JSON. */
export async function ask(url: string, path: string, { method = 'GET', ...raw }: Ask = {}): Promise<Answer> {
  const { status, headers, bytes, body: text } = await send(url, method, path, raw);
  const isJson = headers['content-type'] === 'application/json';
  return { status, headers, body: bytes, text, json: isJson && text !== '' ? JSON.parse(text) : undefined };
}

/** What a page with a key sends, or wants to hear: see `ProofSubject` in `page/api.ts`. */
export const proofOf = (key: string, subject: string): string =>
  createHmac('sha256', key).update(subject).digest('base64url');

/** The key in an address of the page. */
export const keyOf = (url: string): string => new URL(url).hash.replace(/^#key=/, '');

/** A visitor who opened the address, and whose page has the key. */
export class Visitor {
  readonly url: string;
  /** The key of the run. */
  readonly key: string;
  readonly #headers: OutgoingHttpHeaders;

  static async open(url: string): Promise<Visitor> {
    const { origin, port } = new URL(url);
    const key = keyOf(url);
    const nonce = 'n'.repeat(43);
    const { json } = await ask(origin, `/api/proof?nonce=${nonce}`);
    if (!json.proofs.includes(proofOf(key, `server ${nonce} ${port}`))) throw new Error('The server proves nothing.');
    const headers = { 'x-flowdrop-proof': proofOf(key, 'page') };
    const entered = await ask(origin, '/api/enter', { method: 'POST', headers });
    if (entered.status !== 200) throw new Error(`The page cannot be entered: ${entered.text}`);
    return new Visitor(origin, entered.json.key);
  }

  constructor(url: string, key: string) {
    this.url = url;
    this.key = key;
    this.#headers = { 'x-flowdrop-proof': proofOf(key, 'page') };
  }

  get headers(): OutgoingHttpHeaders {
    return this.#headers;
  }

  ask(path: string, more: Ask = {}): Promise<Answer> {
    return ask(this.url, path, { ...more, headers: { ...this.#headers, ...more.headers } });
  }

  post(path: string, body: unknown): Promise<Answer> {
    return this.ask(path, { method: 'POST', body: JSON.stringify(body) });
  }

  put(key: string, body: string | Uint8Array, headers: OutgoingHttpHeaders = {}): Promise<Answer> {
    const own = { 'content-length': Buffer.byteLength(body), ...headers };
    return this.ask(`/api/files/${encodeURIComponent(key)}`, { method: 'PUT', body, headers: own });
  }

  /** Listens to the events, as an EventSource does. */
  listen(path = '/api/events', headers: OutgoingHttpHeaders = {}): Listener {
    return new Listener(this.url, path, { ...this.#headers, ...headers });
  }
}

export interface Heard {
  readonly id: string;
  readonly name: keyof Events;
  // biome-ignore lint/suspicious/noExplicitAny: by name.
  readonly data: any;
}

/** An event stream, as far as it was read. */
export class Listener {
  readonly heard: Heard[] = [];
  /** As an EventSource keeps it: an event without data sets it too. */
  lastId = '';
  readonly #request;
  #rest = '';

  constructor(url: string, path: string, headers: OutgoingHttpHeaders) {
    const { hostname, port } = new URL(url);
    this.#request = httpRequest({ hostname, port, path, headers, agent: false }, (response) => {
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => this.#read(chunk));
      response.on('error', () => {});
    });
    this.#request.on('error', () => {});
    this.#request.end();
    onTestFinished(() => this.close());
  }

  close(): void {
    this.#request.destroy();
  }

  #read(chunk: string): void {
    const blocks = (this.#rest + chunk).split('\n\n');
    this.#rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const fields = new Map(block.split('\n').map((line) => line.split(/: (.*)/s) as [string, string]));
      this.lastId = fields.get('id') ?? this.lastId;
      const data = fields.get('data');
      if (data === undefined) continue;
      this.heard.push({ id: this.lastId, name: fields.get('event') as keyof Events, data: JSON.parse(data) });
    }
  }
}

export async function serve(
  deployment: Deployment | (() => Promise<Deployment>),
  options: ServeOptions = {},
): Promise<ServedPage> {
  const served = await servePage(deployment, { appFiles: async () => APP, pace: QUICK, ...options });
  onTestFinished(() => served.close());
  return served;
}

export const messageOf = ({ json }: Answer): string => (json as ApiError).error.message;
