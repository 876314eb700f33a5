import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createRawServer, type Socket } from 'node:net';
import { type Clock, systemClock } from '../../functions/base/clock.ts';
import { downloadAsset } from '../../functions/flow-service/asset-download.ts';
import { createFlowService, type FlowServiceOptions } from '../../functions/flow-service/client.ts';
import { FLOWS } from '../../functions/flow-service/services.ts';
import type { Transport } from '../../functions/flow-service/transport.ts';
import type { CreateRequest, FlowService, InputSource, Token } from '../../functions/flow-service/types.ts';
import { streamed } from './chunks.ts';

export const never = new AbortController().signal;

/** JSON of lists in lists. */
export const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);

/** Ids that no flow and no output can have. */
export const UNUSABLE_IDS: readonly unknown[] = [
  ...[undefined, null, '', '.', '..', 'x'.repeat(257), 'x'.repeat(10_000), 'ä'.repeat(129), '\ud800', 'a\udfffb'],
  ...[{}, { toString: 1 }, [], ['65f0'], true, 1.5, 1e300],
  ...['null', 'undefined', 'None', 'NULL', '[object Object]', '00000000-0000-0000-0000-000000000000'],
];

/** A token that is easy to recognise if it leaks. */
export const TOKEN = 'obviously-fake/token-1';
export const RENEWED = 'obviously-fake/token-2';

/** Returns {@link TOKEN} first, and {@link RENEWED} from `renew`. */
export function scriptedToken(): Token & { renewals: number } {
  return {
    renewals: 0,
    async get() {
      return TOKEN;
    },
    async renew() {
      this.renewals += 1;
      return RENEWED;
    },
  };
}

/** A client of the service at `baseUrl`. */
export const clientOf = (baseUrl: URL, more: Partial<FlowServiceOptions> = {}): FlowService =>
  createFlowService({
    download: downloadAsset,
    baseUrl,
    token: scriptedToken(),
    clock: systemClock,
    service: FLOWS,
    assetBytesMax: 100 * 1024 * 1024,
    ...more,
  });

/** One answer to a request for a page of a listing. */
export interface Page {
  readonly body: unknown;
  readonly link?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly status?: number;
}

/** The origin of {@link paged} listings. */
export const PUBLIC_ORIGIN = 'https://flows.example.com';

/**
 * A transport that answers with the pages of `pageAt`, and what was requested: the path and query on
 * {@link PUBLIC_ORIGIN}, and elsewhere the whole address.
 */
export function paged(pageAt: (pathAndQuery: string, index: number) => Page) {
  const asked: string[] = [];
  const transport: Transport = async ({ url }) => {
    const path = url.origin === PUBLIC_ORIGIN ? `${url.pathname}${url.search}` : url.href;
    const { body, link, headers, status = 200 } = pageAt(path, asked.push(path) - 1);
    return {
      status,
      // Longer than the client waits in place.
      headers: { link, ...headers, 'retry-after': status === 429 ? '700' : undefined },
      body: streamed([Buffer.from(JSON.stringify(body))]),
      destroy() {},
    };
  };
  return { asked, transport };
}

/** A clock that stands still until `pass` is called. */
export class StillClock implements Clock {
  #now: number;
  readonly sleepers = new Set<{ readonly until: number; readonly wake: () => void }>();

  constructor(start = Date.UTC(2026, 0, 1)) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const sleeper = {
        until: this.#now + ms,
        wake: () => {
          this.sleepers.delete(sleeper);
          resolve();
        },
      };
      this.sleepers.add(sleeper);
      signal?.addEventListener('abort', () => {
        this.sleepers.delete(sleeper);
        reject(signal.reason);
      });
    });
  }

  pass(ms: number): void {
    this.#now += ms;
    for (const { until, wake } of [...this.sleepers]) if (until <= this.#now) wake();
  }
}

/** A clock on which every sleep passes at once. Not for code whose time limits would race against each other. */
export class HastyClock implements Clock {
  #now = Date.UTC(2026, 0, 1);

  now(): number {
    return this.#now;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
    this.#now += ms;
  }
}

export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}

interface Scripted extends AsyncDisposable {
  readonly url: URL;
  readonly requests: { readonly method: string; readonly url: string; readonly headers: IncomingMessage['headers'] }[];
  /** Number of connections made so far. */
  connections: number;
  readonly open: Set<Socket>;
}

/** A scripted HTTP server on loopback. */
export async function scripted(
  answer: (request: IncomingMessage, response: ServerResponse, index: number) => unknown,
): Promise<Scripted> {
  const requests: Scripted['requests'] = [];
  const listener: RequestListener = (request, response) => {
    const { method = '', url = '', headers } = request;
    requests.push({ method, url, headers });
    answer(request, response, requests.length - 1);
  };
  return serve(createServer({ keepAliveTimeout: 60_000 }, listener), requests);
}

/** A scripted server of raw connections, for responses that no HTTP server would send. */
export async function scriptedRaw(answer: (socket: Socket, index: number) => unknown): Promise<Scripted> {
  let index = 0;
  const server = createRawServer((socket) => {
    socket.on('error', () => {});
    answer(socket, index);
    index += 1;
  });
  return serve(server, []);
}

async function serve(server: ReturnType<typeof createRawServer>, requests: Scripted['requests']): Promise<Scripted> {
  const open = new Set<Socket>();
  server.on('connection', (socket) => {
    result.connections += 1;
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    socket.on('error', () => {});
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const result: Scripted = {
    url: new URL(`http://127.0.0.1:${port}`),
    requests,
    connections: 0,
    open,
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
  return result;
}

/** Reads the whole body of a request. */
export async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

/** Responds with JSON after it has read the whole request. */
export async function json(request: IncomingMessage, response: ServerResponse, value: unknown, status = 200) {
  await bodyOf(request);
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(typeof value === 'string' ? value : JSON.stringify(value));
}

export function sourceOf(text: string): InputSource & { opened: number } {
  return {
    bytes: Buffer.byteLength(text),
    opened: 0,
    async open() {
      this.opened += 1;
      return (async function* () {
        yield Buffer.from(text);
      })();
    },
  };
}

export const TAG = { pipeline: 'test', upload: 'abc', generation: 1 };

export const requestOf = (source: InputSource, as: 'file' | 'text' = 'file'): CreateRequest => ({
  template: 'echo',
  tag: TAG,
  inputs: [{ as, mediaType: 'image/png', source, additional: {} }],
});

/** A source of `bytes` bytes without delay. It tells how many were taken and whether it was closed. */
export function largeSource(bytes: number): InputSource & { taken: number; isClosed: boolean } {
  const chunk = Buffer.alloc(64 * 1024, 'x');
  return {
    bytes,
    taken: 0,
    isClosed: false,
    async open() {
      const source = this;
      return (async function* () {
        try {
          while (source.taken < bytes) {
            const next = chunk.subarray(0, Math.min(chunk.byteLength, bytes - source.taken));
            source.taken += next.byteLength;
            yield next;
          }
        } finally {
          source.isClosed = true;
        }
      })();
    },
  };
}
