import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Deployment } from '../../operations/deployment.ts';
import type { EnterAnswer, ServerProof } from '../api.ts';
import type { PageFiles } from '../page-files.ts';
import { Access } from './access.ts';
import {
  begin,
  INERT_POLICY,
  invalid,
  notFound,
  PAGE_POLICY,
  PageError,
  sendError,
  sendJson,
  sendSentence,
} from './answers.ts';
import type { Page, PageOptions } from './page.ts';
import { CONNECTIONS_MAX, closeAfter, HEAD_MS_MAX } from './visitors.ts';

export interface ServeOptions extends PageOptions {
  /** Makes the files of the app. Default: they are built, or in the package read. */
  readonly appFiles?: (() => Promise<PageFiles>) | undefined;
  /**
   * Prepares the page after so many milliseconds, so that the first visitor does not wait. Default: at the first visit.
   */
  readonly prepareAfterMs?: number | undefined;
  /** Default 0, which takes any free port. */
  readonly port?: number | undefined;
}

export interface ServedPage {
  /** Address with the key, which ends with this server. Anyone who has it can do all that the page can. */
  readonly url: string;
  /** An address that opens the page once, without the key. */
  urlForOnce(): string;
  /** Closes all connections and aborts what this server does. Functions that it has invoked finish their work. */
  close(): Promise<void>;
}

/**
 * Serves the page of a deployment on 127.0.0.1. To prepare it, a function that connects is called, and the app is
 * built.
 */
export async function servePage(
  deployment: Deployment | (() => Promise<Deployment>),
  { port = 0, appFiles: makeFiles = madeFiles, prepareAfterMs, ...options }: ServeOptions = {},
): Promise<ServedPage> {
  const closing = new AbortController();
  const appFiles = untilItSucceeds(makeFiles);
  let opening: Promise<Page> | undefined;
  // The time for a whole request has no limit, because a file may be large.
  const server = createServer({ requestTimeout: 0, headersTimeout: HEAD_MS_MAX });
  server.maxConnections = CONNECTIONS_MAX;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(portIssue(error, port)));
    server.listen(port, '127.0.0.1', resolve);
  });
  const access = new Access((server.address() as AddressInfo).port);
  const openOnce = untilItSucceeds(() => openPage(deployment, { ...options, access, signal: closing.signal }));
  const page = (): Promise<Page> => {
    opening = openOnce();
    return opening;
  };
  const prepare = (): void => {
    // Errors are dropped here: the first visit tries again, and tells its visitor.
    appFiles().catch(() => undefined);
    page().catch(() => undefined);
  };
  const preparing = prepareAfterMs === undefined ? undefined : setTimeout(prepare, prepareAfterMs).unref();
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    if (answerStranger(request, response, { access, appFiles })) return;
    page().then(
      (opened) => opened.answer(request, response),
      (error: Error) => {
        const message = closing.signal.aborted ? 'This server has stopped.' : error.message;
        sendError(response, new PageError({ status: 503, code: 'unavailable' }, message));
      },
    );
  });
  return {
    url: access.url,
    urlForOnce: () => access.urlForOnce(),
    async close() {
      clearTimeout(preparing);
      closing.abort();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
      await opening?.then((opened) => opened.close()).catch(() => undefined);
    },
  };
}

/** The port cannot be used. The message says why. */
export class PortError extends Error {
  override readonly name = 'PortError';
}

function portIssue(cause: NodeJS.ErrnoException, port: number): Error {
  const why = { EADDRINUSE: 'another program uses it', EACCES: 'this user may not' }[cause.code ?? ''];
  return why === undefined ? cause : new PortError(`The page cannot be served at port ${port}: ${why}`, { cause });
}

/** A server without visitors needs no bundler. */
async function madeFiles(): Promise<PageFiles> {
  return (await import('./app-files.ts')).appFiles();
}

/** Calls a function once, and again after it failed. */
function untilItSucceeds<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make().catch((error) => {
      made = undefined;
      throw error;
    });
    return made;
  };
}

/** Loads the page's modules, and connects. */
async function openPage(
  deployment: Deployment | (() => Promise<Deployment>),
  options: ConstructorParameters<typeof Page>[1],
): Promise<Page> {
  if (typeof deployment !== 'function') return new (await import('./page.ts')).Page(deployment, options);
  const [{ Page }, own] = await Promise.all([import('./page.ts'), deployment()]);
  return new Page(own, { ...options, onClose: () => own.close() });
}

/** The nonce of a page, in base64url: 128 to 384 random bits. */
const NONCE = /^[\w-]{22,64}$/;

/**
 * Answers what needs no access: the files of the app, which everybody may read, and what a page needs to enter. Refuses
 * what comes from elsewhere, and the API without a proof.
 * @returns false for all others.
 */
function answerStranger(
  request: IncomingMessage,
  response: ServerResponse,
  { access, appFiles }: { readonly access: Access; readonly appFiles: () => Promise<PageFiles> },
): boolean {
  const [path = '', query = ''] = (request.url ?? '').split('?', 2);
  const foreign = access.foreignness(request);
  if (foreign === undefined && path === '/api/proof' && request.method === 'GET') {
    const nonce = new URLSearchParams(query).get('nonce') ?? '';
    if (NONCE.test(nonce)) sendJson(response, { proofs: access.proofs(nonce) } satisfies ServerProof);
    else sendError(response, invalid('The nonce must have 22 to 64 characters of base64url.'));
    return true;
  }
  if (foreign === undefined && path === '/api/enter' && request.method === 'POST') {
    const key = access.keyFor(request);
    if (key !== undefined) {
      sendJson(response, { key } satisfies EnterAnswer);
      return true;
    }
  }
  if (foreign === undefined && !path.startsWith('/api/')) {
    void sendFile(path, request, response, appFiles);
    return true;
  }
  const refusal = foreign ?? access.strangeness(request);
  if (refusal === undefined) return false;
  closeAfter(response);
  const { status, message } = refusal;
  if (path === '/') sendSentence(response, status, message);
  else sendError(response, new PageError(refusal, message));
  return true;
}

/** Sends a file of the app. It holds no secret. */
async function sendFile(
  path: string,
  { method }: IncomingMessage,
  response: ServerResponse,
  appFiles: () => Promise<PageFiles>,
): Promise<void> {
  try {
    if (method !== 'GET' && method !== 'HEAD') {
      throw new PageError({ status: 405, code: 'wrong-method' }, 'This address takes GET.', { allow: 'GET, HEAD' });
    }
    const file = (await appFiles()).get(path);
    if (file === undefined) throw notFound('There is no such address.');
    const isPage = file.contentType.startsWith('text/html');
    const headers = { 'content-type': file.contentType, 'content-length': file.body.byteLength };
    begin(response, 200, { ...headers, 'content-security-policy': isPage ? PAGE_POLICY : INERT_POLICY });
    response.end(method === 'HEAD' ? undefined : file.body);
  } catch (error) {
    closeAfter(response);
    const failed = { status: 502, code: 'failed' } as const;
    sendError(response, error instanceof PageError ? error : new PageError(failed, (error as Error).message));
  }
}
