import { createServer, type IncomingMessage, type ServerOptions, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { CHALLENGE_HEADER, PROOF_HEADER, PROOF_PROTOCOL, proofOf } from '../operations/run-proof.ts';
import { CONNECTIONS_MAX, closeAfter, HEAD_MS_MAX } from '../page/server/visitors.ts';
import type { Credentials } from './aws/endpoint.ts';

/**
 * Longer than clients keep an idle connection, in milliseconds. Otherwise a client could write into a connection that
 * the server has just closed.
 */
const KEEP_ALIVE_MS = 75_000;

export { closeAfter } from '../page/server/visitors.ts';

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
  readonly port?: number | undefined;
  /** If a client names one of these, the server proves that it has it too. Default: it proves nothing. */
  readonly proves?: readonly Credentials[];
}

/**
 * Starts a server on 127.0.0.1, where only this machine reaches it. All servers of the local run start here.
 *
 * A web page in a browser of this machine reaches it too. Such requests are answered with 403 before `answer` sees
 * them. The server cannot tell users of this machine apart: `answer` must demand a secret.
 */
export async function listenOnLoopback(
  answer: Answer,
  { port = 0, proves, ...options }: LoopbackOptions = {},
): Promise<Listening> {
  const server = createServer({ headersTimeout: HEAD_MS_MAX, keepAliveTimeout: KEEP_ALIVE_MS, ...options });
  server.maxConnections = CONNECTIONS_MAX;
  const guarded =
    (wantBody: (response: ServerResponse) => void) => (request: IncomingMessage, response: ServerResponse) => {
      const problem = foreignness(request);
      if (problem === undefined) answer(request, response, () => wantBody(response));
      else refuse(response, problem);
    };
  server.on(
    'request',
    guarded(() => {}),
  );
  server.on(
    'checkContinue',
    guarded((response) => response.writeContinue()),
  );
  if (proves !== undefined) {
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      const proof = foreignness(request) === undefined && head.length === 0 && proofFor(request, proves);
      if (!proof) {
        // The visitor may leave its end open for ever, and `closeAllConnections` no longer reaches it.
        const refusal = 'HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n';
        socket.on('error', () => {}).end(refusal, () => socket.destroy());
        return;
      }
      const headers = { connection: 'upgrade', upgrade: PROOF_PROTOCOL, [PROOF_HEADER]: proof };
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`);
      server.emit('connection', socket); // Requests follow on the same connection.
    });
  }
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

/** Returns undefined if the request asks for no proof, or for the proof of a secret that is not known here. */
function proofFor({ headers, socket }: IncomingMessage, known: readonly Credentials[]): string | undefined {
  const [id, nonce = ''] = String(headers[CHALLENGE_HEADER] ?? '').split(' ');
  const asked = known.find(({ accessKeyId }) => accessKeyId === id);
  if (headers.upgrade !== PROOF_PROTOCOL || asked === undefined || nonce === '') return undefined;
  return proofOf(asked.secretAccessKey, nonce, socket.localPort ?? 0);
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

function refuse(response: ServerResponse, problem: string): void {
  closeAfter(response);
  response.writeHead(403, { 'content-type': 'text/plain; charset=utf-8' }).end(`${problem}\n`);
}
