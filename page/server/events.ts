import { begin, INERT_POLICY, PageError } from './answers.ts';
import type { LoggedEvent } from './event-log.ts';
import type { Feed } from './feed.ts';
import type { Call } from './router.ts';

/** Clients that listen at the same time. A browser has at most six connections to one server. */
const LISTENERS_MAX = 32;

/** Time between two comments that keep the connection open, in milliseconds. */
const HEARTBEAT_MS = 15_000;

/** Time after which a browser connects again, in milliseconds. */
const RECONNECT_MS = 1_000;

/** Events that a client has not read, in bytes, above which it is disconnected. It comes back for the rest. */
const UNREAD_BYTES_MAX = 16 * 1024 * 1024;

/** `GET /api/events`: sends the events until the client goes away. */
export function sendEvents({ request, response, query, signal }: Call, feed: Feed): void {
  if (feed.listeners >= LISTENERS_MAX) {
    throw new PageError({ status: 503, code: 'unavailable' }, 'Too many pages are open. Close one.');
  }
  const after = String(request.headers['last-event-id'] ?? query.get('after') ?? '') || undefined;
  begin(response, 200, { 'content-type': 'text/event-stream', 'content-security-policy': INERT_POLICY });
  if (request.method === 'HEAD') {
    response.end();
    return;
  }
  response.write(`retry: ${RECONNECT_MS}\n\n`);
  const send = ({ id, name, data }: LoggedEvent): void => {
    response.write(`id: ${id}\nevent: ${name}\ndata: ${data}\n\n`);
    if (response.writableLength > UNREAD_BYTES_MAX) response.destroy();
  };
  // A client that loses the connection before the first event comes back with this id.
  if (after === undefined) response.write(`id: ${feed.lastId}\n\n`);
  const end = feed.listen(after, send);
  const heartbeat = setInterval(() => response.write(':\n\n'), HEARTBEAT_MS);
  const stop = (): void => {
    clearInterval(heartbeat);
    end();
    response.end();
  };
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop, { once: true });
}
