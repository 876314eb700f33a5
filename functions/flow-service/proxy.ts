import { type Agent as HttpAgent, request as httpRequest, type RequestOptions, STATUS_CODES } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { BlockList, isIP, type TcpSocketConnectOpts } from 'node:net';
import { messageOf } from '../base/printable.ts';
import { hasCredentials, hostOf, isLoopback } from './addresses.ts';
import { plain, TransportError } from './transport.ts';
import type { Proxies } from './types.ts';

/** The proxy gave no connection. Nothing was sent to the service, so it says nothing about the service. */
export class ProxyError extends TransportError {
  /** A clause that names the proxy, without the user and the password in its address. */
  readonly why: string;
  /** What the operator can do: sentences without the final full stop. */
  readonly todo: string;
  constructor(why: string, todo: string, options: ErrorOptions = {}) {
    super(`${why}. ${todo}.`, { ...options, sent: 'nothing' });
    this.why = why;
    this.todo = todo;
  }
}

/** The address of a proxy as it may be shown: without user and password. */
export const shownProxy = ({ protocol, host }: URL): string => `the proxy ${protocol}//${host}`;

/** The port of an http or https address. */
export const portOf = ({ protocol, port }: URL): number => Number(port || { 'https:': 443 }[protocol] || 80);

/**
 * The proxy for an address. Undefined if the request goes straight there. An address of this machine goes only through a
 * proxy of this machine: elsewhere it would name another machine, and http would carry the token there readable for all.
 */
export function proxyFor(url: URL, { https, http, except = [] }: Proxies): URL | undefined {
  const proxy = url.protocol === 'https:' ? https : http;
  if (proxy === undefined || (isLoopback(url) && !isLoopback(proxy))) return undefined;
  return except.some((entry) => isExcepted(url, entry)) ? undefined : proxy;
}

/** A name covers the names below it: `example.com` also `api.example.com`, as for curl. */
function isExcepted(url: URL, entry: string): boolean {
  if (entry === '*') return true;
  const host = hostOf(url).toLowerCase();
  const range = rangeOf(entry);
  if (range !== undefined) return isIP(host) !== 0 && range.check(host, isIP(host) === 6 ? 'ipv6' : 'ipv4');
  const [, name = '', port] = /^(.*?)(?::(\d+))?$/.exec(entry.toLowerCase()) ?? [];
  if (port !== undefined && Number(port) !== portOf(url)) return false;
  const bare = name.replace(/^\*?\./, '').replace(/^\[(.*)\]$/, '$1');
  return bare !== '' && (host === bare || (isIP(host) === 0 && host.endsWith(`.${bare}`)));
}

/** The range of an entry such as `10.0.0.0/8` or `10.0.0.1`. Undefined if it is none. */
export function rangeOf(entry: string): BlockList | undefined {
  const [, address = '', bits] = /^([\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(entry) ?? [];
  const [longest, family] = isIP(address) === 6 ? ([128, 'ipv6'] as const) : ([32, 'ipv4'] as const);
  if (isIP(address) === 0 || Number(bits ?? 0) > longest) return undefined;
  const range = new BlockList();
  range.addSubnet(address, Number(bits ?? longest), family);
  return range;
}

/** What a request tells the agent of its tunnel. */
export interface TunnelOptions extends RequestOptions, Pick<TcpSocketConnectOpts, 'autoSelectFamilyAttemptTimeout'> {
  /** Ends the making of a tunnel. */
  readonly tunnelSignal?: AbortSignal;
}

/**
 * Lets the connections of an agent go through a tunnel of a proxy (CONNECT, RFC 9110, section 9.3.6), for http addresses
 * too. So the proxy's answers and those of the service cannot be taken for each other.
 *
 * Node's own `proxyEnv` is not used. When a request ends early, it leaves the connection to the proxy open, and its errors
 * do not tell whether the proxy or the service failed.
 */
export function tunnelThrough(proxy: URL, agent: HttpAgent): void {
  const connect = agent.createConnection.bind(agent);
  const isHttps = agent instanceof HttpsAgent;
  const setting = isHttps ? 'HTTPS_PROXY, or deployment.proxy' : 'HTTP_PROXY';
  agent.createConnection = (options: TunnelOptions, callback = () => {}) => {
    const host = String(options.host);
    const target = `${isIP(host) === 6 ? `[${host}]` : host}:${options.port}`;
    const fail = (error: Error): void => callback(error, undefined as never);
    const isTls = proxy.protocol === 'https:';
    const signal = options.tunnelSignal;
    const asking = (isTls ? httpsRequest : httpRequest)({
      ...{ method: 'CONNECT', path: target, agent: false, signal },
      ...{ host: hostOf(proxy), port: portOf(proxy) },
      headers: { Host: target, ...authorization(proxy) },
    });
    asking.on('error', (error) => {
      const why = `${shownProxy(proxy)} cannot be used: ${messageOf(error)}`;
      fail(new ProxyError(why, `Check ${setting}`, { cause: plain(error) }));
    });
    asking.once('connect', ({ statusCode = 0, headers }, socket, head) => {
      // The agent listens once it has the connection.
      socket.on('error', () => {});
      // In a tunnel, the client speaks first.
      const isPage = head.byteLength > 0 || /html/i.test(headers['content-type'] ?? '');
      if (statusCode < 200 || statusCode > 299 || isPage) {
        socket.destroy();
        return fail(refusalOf(statusCode, { proxy, target, setting }));
      }
      if (!isHttps) return callback(null, socket);
      const secured = connect({ ...options, socket } as RequestOptions);
      signal?.addEventListener('abort', () => secured?.destroy(), { once: true });
      secured?.on('error', fail);
      secured?.once('secureConnect', () => callback(null, secured));
    });
    asking.end();
    return undefined;
  };
}

function authorization(proxy: URL): Record<string, string> {
  if (proxy.username === '' && proxy.password === '') return {};
  const [user, password] = [proxy.username, proxy.password].map(decodeURIComponent);
  return { 'Proxy-Authorization': `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` };
}

function refusalOf(
  status: number,
  { proxy, target, setting }: { readonly proxy: URL; readonly target: string; readonly setting: string },
): ProxyError {
  const name = shownProxy(proxy);
  const answer = `${status} ${STATUS_CODES[status] ?? ''}`.trim();
  if (status >= 200 && status <= 299) {
    return new ProxyError(`${name} answers with something else than a tunnel, as no proxy does`, `Check ${setting}`);
  }
  if (status === 407) {
    const what = hasCredentials(proxy) ? 'refuses the user and the password in its address' : 'asks for a login';
    const todo = 'On this machine, HTTPS_PROXY may hold one that it takes as Basic: http://user:password@host:port';
    return new ProxyError(`${name} ${what} (${answer})`, `${todo}. Or let it serve ${target} without a login`);
  }
  const what = status >= 500 ? `could not reach ${target}` : `refuses to lead to ${target}`;
  const todo = status >= 500 ? 'Check that the proxy can reach it' : 'Let the proxy allow it';
  return new ProxyError(
    `${name} ${what} (${answer})`,
    `${todo}, or let it go past the proxy: NO_PROXY, or noProxy of deployment.proxy`,
  );
}
