import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { closeAfter, type Listening, listenOnLoopback } from '../loopback.ts';
import type { ServiceRequest, ServiceResponse } from './call.ts';
import { ConnectionLostError } from './fault.ts';

/** The ids in a path may be long. */
const HEADER_BYTES_MAX = 256 * 1024;

/** A service without a transport of its own. */
export interface Service {
  handle(request: ServiceRequest): Promise<ServiceResponse>;
}

/**
 * Serves a stand-in over HTTP. `close` breaks the requests under way. The service itself stays open.
 * @param options.port default: any free port.
 */
export function serveFlowService(service: Service, { port = 0 }: { port?: number } = {}): Promise<Listening> {
  return listenOnLoopback(
    // A client that expects `100 Continue` gets it when the body is read. It learns of a wrong token before that.
    (request, response, wantBody) => serve(service, request, response, wantBody),
    { port, maxHeaderSize: HEADER_BYTES_MAX, requestTimeout: 0 },
  );
}

async function serve(
  service: Service,
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
    // If a connection is closed with unread data, it is reset, and the client may lose the answer. Keep it open: the
    // rest is read and dropped, and the client closes it.
    if (status === 401) closeAfter(response);
    else if (!request.complete) response.shouldKeepAlive = true;
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
  // If the service stops reading, it still answers. That must not destroy the connection.
  yield* request.iterator({ destroyOnReturn: false });
}

function lose(error: unknown, request: IncomingMessage, response: ServerResponse, isGone: boolean): void {
  const { socket } = request;
  if (isGone || socket.destroyed) return;
  if (!(error instanceof ConnectionLostError)) {
    console.error('The stand-in flow service failed:', error);
    socket.destroy();
  } else if (error.how === 'closed') {
    // The bytes written so far still go out. Then the connection ends, although more were announced.
    response.flushHeaders();
    socket.end();
  } else {
    socket.resetAndDestroy();
  }
}
