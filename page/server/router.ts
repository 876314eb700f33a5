import type { IncomingMessage, ServerResponse } from 'node:http';
import { invalid, notFound, PageError, sendJson } from './answers.ts';

/** A request, as its handler sees it. */
export interface Call {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The decoded parts of the path that the route names, such as `id`. */
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  /** Aborts when the visitor goes away, or the server closes. */
  readonly signal: AbortSignal;
}

/** Answers with JSON what it returns. Undefined if it has answered by itself. */
export type Handler = (call: Call) => Promise<unknown> | unknown;

/** By method and path: `GET /api/uploads/:id`. */
export type Routes = Readonly<Record<string, Handler>>;

interface Route {
  readonly method: string;
  readonly segments: readonly string[];
  readonly handler: Handler;
}

/** The table of the API. HEAD is answered as GET, without a body. */
export class Router {
  readonly #routes: readonly Route[];

  constructor(routes: Routes) {
    this.#routes = Object.entries(routes).map(([name, handler]) => {
      const [method = '', path = ''] = name.split(' ');
      return { method, segments: path.split('/'), handler };
    });
  }

  /** @throws {PageError} no route takes the request. @throws the errors of the handler. */
  async answer(request: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const [path = '', query = ''] = splitOnce(request.url ?? '', '?');
    // Not by `URL`, which would resolve `..` and `%2e%2e` in names of files.
    const segments = path.split('/').map(decoded);
    const matching = this.#routes.filter((route) => matches(route, segments));
    const method = request.method === 'HEAD' ? 'GET' : request.method;
    const route = matching.find((each) => each.method === method);
    if (matching.length === 0) throw notFound('There is no such address.');
    if (route === undefined) {
      const allow = matching.map((each) => each.method).join(', ');
      throw new PageError({ status: 405, code: 'wrong-method' }, `This address takes ${allow}.`, { allow });
    }
    const named = route.segments.flatMap((name, index) =>
      name.startsWith(':') ? [[name.slice(1), segments[index] ?? '']] : [],
    );
    const params = Object.fromEntries(named);
    const value = await route.handler({ request, response, params, query: new URLSearchParams(query), signal });
    if (value !== undefined) sendJson(response, value);
  }
}

const matches = ({ segments }: Route, path: readonly string[]): boolean =>
  segments.length === path.length && segments.every((each, index) => each.startsWith(':') || each === path[index]);

function splitOnce(text: string, separator: string): readonly string[] {
  const at = text.indexOf(separator);
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw invalid('The address is not encoded as UTF-8.');
  }
}
