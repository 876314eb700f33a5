import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { listenOnLoopback } from '../../loopback.ts';
import type { AwsEndpoint } from '../endpoint.ts';
import type { EmbeddedS3 } from './s3.ts';
import { xmlDocument } from './xml.ts';

/** Serves an S3 to the SDK's client. `port` 0, the default, takes any free port. */
export async function serveS3(s3: EmbeddedS3, { port = 0 }: { port?: number } = {}): Promise<AwsEndpoint> {
  const server = createServer({ requestTimeout: 0 }, (request, response) => {
    answer(s3, request, response).catch((error: unknown) => {
      // Within a body, breaking the connection is the only way to say that the body is incomplete. If the client has
      // left, nobody reads the answer.
      if (response.headersSent) response.destroy();
      else
        response.writeHead(500, { 'content-type': 'application/xml', connection: 'close' }).end(internalError(error));
    });
  });
  const { url, close } = await listenOnLoopback(server, port);
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

async function answer(s3: EmbeddedS3, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { status, headers, body } = await s3.handle({
    method: request.method ?? '',
    url: request.url ?? '',
    headers: request.headers as Record<string, string | undefined>,
    // If the body is abandoned half-way, the socket must stay open for the answer that says why.
    body: request.iterator({ destroyOnReturn: false }),
  });
  response.writeHead(status, headers);
  if (body instanceof Uint8Array) response.end(body);
  else await pipeline(Readable.from(body, { objectMode: false }), response);
}
