import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { EmbeddedS3 } from './s3.ts';
import { xmlDocument } from './xml.ts';

export interface S3Server {
  /** For `AWS_ENDPOINT_URL_S3`. */
  readonly endpoint: string;
  /** Ends at once, whatever is under way. The S3 itself stays open. */
  close(): Promise<void>;
}

/** Serves an S3 on 127.0.0.1. `port` 0, the default, takes any that is free. */
export async function serveS3(s3: EmbeddedS3, { port = 0 }: { port?: number } = {}): Promise<S3Server> {
  const server = createServer({ requestTimeout: 0 }, (request, response) => {
    answer(s3, request, response).catch((error: unknown) => {
      // In the middle of a body the only way to say that it is not whole is to break off. A client that has left
      // does not mind the answer.
      if (response.headersSent) response.destroy();
      else
        response.writeHead(500, { 'content-type': 'application/xml', connection: 'close' }).end(internalError(error));
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
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
    // A body that is given up half-way must leave the socket open for the answer that says why.
    body: request.iterator({ destroyOnReturn: false }),
  });
  response.writeHead(status, headers);
  if (body instanceof Uint8Array) response.end(body);
  else await pipeline(Readable.from(body, { objectMode: false }), response);
}
