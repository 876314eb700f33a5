import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ConnectionLostError } from './fault.ts';
import type { StandInFlowService } from './flow-service.ts';

/** Ids in a path may be long. */
const HEADER_BYTES_MAX = 256 * 1024;
/** Longer than clients keep an idle connection, as servers in the field do, lest they write into one just closed. */
const KEEP_ALIVE_MS = 75_000;

/**
 * Serves the stand-in over HTTP on 127.0.0.1. `close` breaks what is still going on; the service itself stays open.
 * @param options.port default: any that is free.
 */
export async function serveFlowService(
  service: StandInFlowService,
  { port = 0 }: { port?: number } = {},
): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer(
    { maxHeaderSize: HEADER_BYTES_MAX, requestTimeout: 0, keepAliveTimeout: KEEP_ALIVE_MS },
    (request, response) => serve(service, request, response, () => {}),
  );
  // Whoever expects 100 before the body gets it when the body is wanted: a wrong token is told before.
  server.on('checkContinue', (request, response) => serve(service, request, response, () => response.writeContinue()));
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function serve(
  service: StandInFlowService,
  request: IncomingMessage,
  response: ServerResponse,
  wantBody: () => void,
): Promise<void> {
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  try {
    const { status, headers, body } = await service.handle({
      method: request.method ?? '',
      url: request.url ?? '',
      headers: Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)])),
      body: bodyOf(request, wantBody),
      signal: gone.signal,
    });
    // Closing a connection on which there is more to read resets it, and the answer can be lost to its reader. Kept
    // open, the rest is read and dropped, and the reader closes it.
    if (!request.complete) response.shouldKeepAlive = true;
    response.writeHead(status, headers);
    if (body instanceof Uint8Array) {
      response.end(body);
      return;
    }
    for await (const chunk of body) {
      if (!response.write(chunk)) await once(response, 'drain', { signal: gone.signal });
      if (gone.signal.aborted) return;
    }
    response.end();
  } catch (error) {
    lose(error, request, response, gone.signal.aborted);
  }
}

async function* bodyOf(request: IncomingMessage, wantBody: () => void): AsyncGenerator<Uint8Array> {
  wantBody();
  // The service may stop reading and still answer: that must not destroy the connection.
  yield* request.iterator({ destroyOnReturn: false });
}

function lose(error: unknown, request: IncomingMessage, response: ServerResponse, isGone: boolean): void {
  const { socket } = request;
  if (isGone || socket.destroyed) return;
  if (!(error instanceof ConnectionLostError)) {
    console.error('The stand-in flow service failed:', error);
    socket.destroy();
  } else if (error.how === 'closed') {
    // What was written still goes out, and then the connection ends although more was promised.
    response.flushHeaders();
    socket.end();
  } else {
    socket.resetAndDestroy();
  }
}
