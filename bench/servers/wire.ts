import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { createServer as createTlsServer } from 'node:tls';
import type { Certificate } from '../certificate.ts';

/**
 * HTTP/1.1 directly on sockets. node:http would receive at half the speed, and be the bottleneck of what is measured.
 * Supports what the clients here use: `Content-Length`, `Expect: 100-continue` and persistent connections.
 */
export interface WireRequest {
  readonly method: string;
  readonly url: URL;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** The body. Empty if it is longer than {@link KEPT_BYTES_MAX}. */
  readonly body: Buffer;
  readonly bodyBytes: number;
  readonly headBytes: number;
}

export interface WireAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string | number>>;
  readonly body?: Buffer | string | Blocks;
}

/** A body that is generated as it is sent. */
export interface Blocks {
  readonly bytes: number;
  readonly blocks: () => Iterable<Buffer>;
}

type Handler = (request: WireRequest) => WireAnswer | Promise<WireAnswer>;

/** Maximum length of a body that is kept for the handler, in bytes. Longer ones are only counted. */
const KEPT_BYTES_MAX = 256 * 1024;

/** Maximum number of bytes that are written ahead of the reader. */
const WRITE_AHEAD_BYTES = 1024 * 1024;

const HEAD_END = Buffer.from('\r\n\r\n');

/** A server whose answers can be delayed, as calls of its process. */
export function wireServer(handler: Handler) {
  let delayMs = 0;
  // A delay of 0 adds no turn of the event loop.
  const delayed: Handler = (request) => (delayMs > 0 ? sleep(delayMs).then(() => handler(request)) : handler(request));
  return {
    /** Listens on two free ports of 127.0.0.1, in the clear and with TLS. */
    async listen(certificate: Certificate): Promise<{ plain: number; tls: number }> {
      return { plain: await listen(delayed), tls: await listen(delayed, certificate) };
    },
    /** Delays every answer from now on. */
    setAnswerMs({ answerMs }: { answerMs: number }): void {
      delayMs = answerMs;
    },
  };
}

async function listen(handler: Handler, certificate?: Certificate): Promise<number> {
  const listener = (socket: Socket) => void new Connection(socket, handler);
  const options = { highWaterMark: WRITE_AHEAD_BYTES, noDelay: true };
  const server =
    certificate === undefined
      ? createServer(options, listener)
      : createTlsServer({ ...options, key: certificate.key, cert: certificate.certificate }, listener);
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  return (server.address() as AddressInfo).port;
}

class Connection {
  readonly #socket: Socket;
  readonly #handler: Handler;
  #head: Buffer = Buffer.alloc(0);
  #request: Omit<WireRequest, 'body'> | undefined;
  #kept: Buffer[] = [];
  #left = 0;

  constructor(socket: Socket, handler: Handler) {
    this.#socket = socket;
    this.#handler = handler;
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    // A client may close its connection at any time. Its own process reports the failure.
    socket.on('error', () => socket.destroy());
  }

  #receive(chunk: Buffer): void {
    if (this.#request !== undefined) {
      this.#receiveBody(chunk);
      return;
    }
    this.#head = this.#head.byteLength === 0 ? chunk : Buffer.concat([this.#head, chunk]);
    const end = this.#head.indexOf(HEAD_END);
    if (end === -1) return;
    const rest = this.#head.subarray(end + HEAD_END.byteLength);
    this.#request = parseHead(this.#head.toString('latin1', 0, end));
    this.#head = Buffer.alloc(0);
    this.#left = this.#request.bodyBytes;
    if (this.#request.headers.expect !== undefined) this.#socket.write('HTTP/1.1 100 Continue\r\n\r\n');
    this.#receiveBody(rest);
  }

  #receiveBody(chunk: Buffer): void {
    const request = this.#request as Omit<WireRequest, 'body'>;
    this.#left -= chunk.byteLength;
    if (request.bodyBytes <= KEPT_BYTES_MAX) this.#kept.push(chunk);
    if (this.#left > 0) return;
    if (this.#left < 0)
      throw new Error(`${request.method} ${request.url.pathname}: the body is longer than its Content-Length`);
    const body = Buffer.concat(this.#kept);
    this.#kept = [];
    void this.#answer({ ...request, body });
  }

  async #answer(request: WireRequest): Promise<void> {
    const { status, headers = {}, body = '' } = await this.#handler(request);
    const isStreamed = typeof body === 'object' && 'blocks' in body;
    const bytes = isStreamed ? body.bytes : Buffer.byteLength(body);
    const fields = Object.entries({ 'Content-Length': bytes, ...headers }).map(([name, value]) => `${name}: ${value}`);
    const head = `HTTP/1.1 ${status} -\r\n${fields.join('\r\n')}\r\n\r\n`;
    this.#request = undefined;
    if (request.method === 'HEAD') {
      this.#socket.write(head);
      return;
    }
    if (!isStreamed) {
      this.#socket.write(Buffer.concat([Buffer.from(head), Buffer.from(body)]));
      return;
    }
    this.#socket.write(head);
    for (const block of body.blocks()) {
      if (!this.#socket.write(block)) await this.#drained();
      if (this.#socket.destroyed) return;
    }
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#socket.off('drain', done);
        this.#socket.off('close', done);
        resolve();
      };
      this.#socket.on('drain', done);
      this.#socket.on('close', done);
    });
  }
}

function parseHead(head: string): Omit<WireRequest, 'body'> {
  const [start = '', ...lines] = head.split('\r\n');
  const [method = '', target = ''] = start.split(' ');
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  return {
    method,
    url: new URL(target, 'http://127.0.0.1'),
    headers,
    bodyBytes: Number(headers['content-length'] ?? 0),
    headBytes: head.length + HEAD_END.byteLength,
  };
}
