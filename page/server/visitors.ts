import type { ServerResponse } from 'node:http';

/*
 * Limits of all servers on this machine for visitors that are not known yet. Any user of the machine can connect.
 */

/** Maximum number of connections of one server. All functions and commands of a run have fewer. */
export const CONNECTIONS_MAX = 1_000;

/** Time for the head of a request, in milliseconds. Otherwise idle visitors could use up all connections. */
export const HEAD_MS_MAX = 60_000;

/** Longest time for which the rest of a refused request is read and dropped, in milliseconds. */
const DROPPED_MS_MAX = 2_000;

/**
 * Closes the connection after an answer that refuses its visitor. Call it before the head of the answer.
 *
 * If a connection is closed with unread data, the visitor can lose the answer. So what it still sends is dropped, for a
 * limited time.
 */
export function closeAfter(response: ServerResponse): void {
  const { req: request } = response;
  response.shouldKeepAlive = !request.complete; // Otherwise Node closes at the end of the answer.
  if (request.complete) return;
  const { socket } = request;
  response.once('finish', () => {
    const limit = setTimeout(() => socket.destroy(), DROPPED_MS_MAX).unref();
    socket.once('close', () => clearTimeout(limit));
    request.once('end', () => socket.destroySoon()).resume();
  });
}
