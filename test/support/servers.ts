import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo, Server } from 'node:net';
import { onTestFinished } from 'vitest';
import { StandInFlowService, type StandInOptions } from '../../local/flow-service/flow-service.ts';
import { serveFlowService } from '../../local/flow-service/http.ts';

/** Starts a server on a free port of loopback, until the test ends. Returns its address and port. */
export async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A web server until the test ends, and the methods and paths that it was asked for. */
export async function web(answer: RequestListener): Promise<{ readonly origin: string; readonly requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    answer(request, response);
  });
  onTestFinished(() => server.closeAllConnections());
  return { origin: `http://${await listening(server)}`, requests };
}

/** Answers every request with the same response. Text is a page; anything else is sent as JSON. */
export function answering(status: number, body: unknown, headers: Record<string, string> = {}): RequestListener {
  const isPage = typeof body === 'string';
  return (_request, response) => {
    response.writeHead(status, {
      'content-type': isPage ? 'text/html; charset=utf-8' : 'application/json',
      ...headers,
    });
    response.end(isPage ? body : JSON.stringify(body));
  };
}

/** A stand-in for the flow service over HTTP, until the test ends. */
export async function serveStandIn(
  options: StandInOptions,
): Promise<{ readonly service: StandInFlowService; readonly url: string }> {
  const service = new StandInFlowService(options);
  const { url, close } = await serveFlowService(service);
  onTestFinished(async () => {
    await close();
    service.close();
  });
  return { service, url };
}
