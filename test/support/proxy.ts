import { createServer, type IncomingMessage, type Server } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { onTestFinished } from 'vitest';
import { listening } from './servers.ts';

/** What a proxy answers to a CONNECT, instead of making a tunnel. */
type Refusal = (request: IncomingMessage, socket: Duplex) => void;

/** A proxy that makes tunnels, until the test ends. */
export interface TestProxy {
  readonly url: URL;
  /** The target of each CONNECT, and the credentials that came with it. */
  readonly asked: { readonly target: string; readonly authorization: string | undefined }[];
  /** Requests that are none for a tunnel. */
  readonly others: string[];
  /** The open connections of its clients. */
  readonly open: Set<Socket>;
  /** Answers each CONNECT instead. Undefined: each gets its tunnel. */
  refuse: Refusal | undefined;
}

/** An answer to a CONNECT in plain text. */
export const refusing =
  (head: string, body = ''): Refusal =>
  (_, socket) =>
    void socket.end(`HTTP/1.1 ${head}\r\n\r\n${body}`);

/**
 * Starts a proxy on loopback.
 * @param refuse see {@link TestProxy}.
 * @param server its server. Default: one of HTTP.
 */
export async function serveProxy(refuse?: Refusal, server: Server = createServer()): Promise<TestProxy> {
  const asked: TestProxy['asked'] = [];
  const others: string[] = [];
  const open = new Set<Socket>();
  server.on('connection', (socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
  server.on('request', ({ method, url }, response) => {
    others.push(`${method} ${url}`);
    response.writeHead(400).end();
  });
  server.on('connect', (request: IncomingMessage, socket: Duplex) => {
    socket.on('error', () => {});
    const target = request.url ?? '';
    asked.push({ target, authorization: request.headers['proxy-authorization'] });
    // No client of a tunnel closes one half of it.
    socket.once('end', () => socket.destroy());
    if (proxy.refuse !== undefined) {
      socket.resume();
      return proxy.refuse(request, socket);
    }
    const { hostname, port } = new URL(`http://${target}`);
    const outward = connect(Number(port), hostname, () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      outward.pipe(socket).pipe(outward);
    });
    outward.on('error', () => void socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n'));
    outward.on('close', () => socket.destroy());
    socket.on('close', () => outward.destroy());
  });
  const url = new URL(`http://${await listening(server)}`);
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
  });
  const proxy: TestProxy = { url, asked, others, open, refuse };
  return proxy;
}
