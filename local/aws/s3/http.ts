import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { closeAfter, listenOnLoopback } from '../../loopback.ts';
import type { AwsEndpoint, Credentials } from '../endpoint.ts';
import { SignatureVerifier } from '../signature.ts';
import type { EmbeddedS3 } from './s3.ts';
import { xmlDocument } from './xml.ts';

export interface ServeS3Options {
  /** Every request must be signed with one of these. */
  readonly credentials: readonly Credentials[];
  /** Default 0, which takes any free port. */
  readonly port?: number | undefined;
  /** The clock that signatures are checked with. @default the system's clock */
  readonly now?: () => number;
}

/** Serves an S3 to clients that sign their requests. */
export async function serveS3(s3: EmbeddedS3, { credentials, port = 0, now }: ServeS3Options): Promise<AwsEndpoint> {
  const verifier = new SignatureVerifier({ credentials, service: 's3', now });
  const { url, close } = await listenOnLoopback(
    (request, response, wantBody) => {
      answer(s3, { request, response, wantBody, verifier }).catch((error: unknown) => {
        // Within a body, breaking the connection is the only way to say that the body is incomplete. If the client has
        // left, nobody reads the answer.
        if (response.headersSent) response.destroy();
        else
          response.writeHead(500, { 'content-type': 'application/xml', connection: 'close' }).end(internalError(error));
      });
    },
    { port, requestTimeout: 0, proves: credentials },
  );
  return { endpoint: url, close };
}

function internalError(error: unknown): Buffer {
  return xmlDocument([
    'Error',
    [
      ['Code', 'InternalError'],
      ['Message', String(error)],
    ],
  ]);
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly wantBody: () => void;
  readonly verifier: SignatureVerifier;
}

async function answer(s3: EmbeddedS3, { request, response, wantBody, verifier }: Exchange): Promise<void> {
  const { status, headers, body, isStranger } = await s3.handle({
    method: request.method ?? '',
    url: request.url ?? '',
    headers: request.headers as Record<string, string | undefined>,
    body: bodyOf(request, wantBody),
    verifier,
  });
  // A client that signed keeps its connection for the next request.
  if (isStranger) closeAfter(response);
  response.writeHead(status, headers);
  if (body instanceof Uint8Array) response.end(body);
  else await pipeline(body, response);
}

/** A client that waits with its body learns first whether its request is refused. */
async function* bodyOf(request: IncomingMessage, wantBody: () => void): AsyncGenerator<Uint8Array, void> {
  wantBody();
  // If the body is abandoned half-way, the socket must stay open for the answer that says why.
  yield* request.iterator({ destroyOnReturn: false });
}
