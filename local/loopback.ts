import { createServer, type IncomingMessage, type ServerOptions, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Listening {
  /** `http://127.0.0.1:<port>`. */
  readonly url: string;
  /** Stops the server at once and breaks its open connections. */
  close(): Promise<void>;
}

/**
 * Answers a request. It calls `wantBody` before it reads the body: a client that sent `Expect: 100-continue` waits for
 * that with its body.
 */
export type Answer = (request: IncomingMessage, response: ServerResponse, wantBody: () => void) => void;

export interface LoopbackOptions extends ServerOptions {
  /** Default 0, which takes any free port. */
  readonly port?: number;
}

/**
 * Starts a server on 127.0.0.1, where only this machine reaches it. All servers of the local run start here.
 *
 * A web page in a browser of this machine reaches it too. Such requests are answered with 403 before `answer` sees
 * them. The server cannot tell users of this machine apart: `answer` must demand a secret.
 */
export async function listenOnLoopback(
  answer: Answer,
  { port = 0, ...options }: LoopbackOptions = {},
): Promise<Listening> {
  const server = createServer(options);
  const guarded =
    (wantBody: (response: ServerResponse) => void) => (request: IncomingMessage, response: ServerResponse) => {
      const problem = foreignness(request);
      if (problem === undefined) answer(request, response, () => wantBody(response));
      else refuse(request, response, problem);
    };
  server.on(
    'request',
    guarded(() => {}),
  );
  server.on(
    'checkContinue',
    guarded((response) => response.writeContinue()),
  );
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

/**
 * Says why a request may come from a web page, or undefined if it does not.
 *
 * - `Host`: with DNS rebinding, a page's own host name leads to 127.0.0.1. The header still has the page's name.
 * - `Origin`: browsers send it with all requests that a script or form makes across sites, except plain `GET`s.
 * - `Sec-Fetch-Site`: browsers send it with all requests to loopback. `none` is a user who typed the address.
 *   https://www.w3.org/TR/fetch-metadata/
 */
function foreignness({ url = '', headers, headersDistinct, socket }: IncomingMessage): string | undefined {
  const [host = '', ...otherHosts] = headersDistinct.host ?? [];
  const names = ['127.0.0.1', 'localhost'].map((name) => `${name}:${socket.localPort}`);
  // A target with a host of its own would override the header.
  if (otherHosts.length > 0 || !names.includes(host.toLowerCase()) || !url.startsWith('/')) {
    return `Only requests to ${names.join(' or ')} are answered.`;
  }
  if (headers.origin !== undefined) return 'Requests of web pages are not answered: this one has the header Origin.';
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'none' && site !== 'same-origin') {
    return `Requests of other sites are not answered: this one has the header Sec-Fetch-Site: ${site}.`;
  }
}

function refuse(request: IncomingMessage, response: ServerResponse, problem: string): void {
  // Drop the body. If the connection were closed with unread data, the client could lose the answer.
  request.resume();
  response.writeHead(403, { 'content-type': 'text/plain; charset=utf-8' }).end(`${problem}\n`);
}
