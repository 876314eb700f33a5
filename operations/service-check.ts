import { randomBytes } from 'node:crypto';
import { systemClock } from '../functions/base/clock.ts';
import type { JsonObject } from '../functions/base/json.ts';
import { isLoopback } from '../functions/flow-service/addresses.ts';
import { type ErrorWords, wordsOfError } from '../functions/flow-service/answers.ts';
import { isSameWithSlash } from '../functions/flow-service/foreign-answer.ts';
import { httpTransport } from '../functions/flow-service/http-transport.ts';
import { readErrorBody } from '../functions/flow-service/json-answer.ts';
import { at } from '../functions/flow-service/json-pointer.ts';
import { ProxyError, proxyFor, shownProxy } from '../functions/flow-service/proxy.ts';
import { redact } from '../functions/flow-service/redact.ts';
import { filled, jsonBody } from '../functions/flow-service/request-body.ts';
import { headersOf } from '../functions/flow-service/requests.ts';
import {
  type Pointers,
  refusalOf,
  type ServiceDescription,
  tokenHeader,
} from '../functions/flow-service/service-description.ts';
import { type Transport, TransportError, type TransportResponse } from '../functions/flow-service/transport.ts';
import type { Proxies } from '../functions/flow-service/types.ts';
import { issueOfBaseUrl } from '../functions/settings/service-address.ts';

/** Longest wait for a connection, and for each part of an answer, in milliseconds. The user is waiting for a word. */
const ANSWER_MS = 10_000;
/** Maximum nesting of an explanation's JSON, in levels. */
const DETAIL_DEPTH_MAX = 20;

export interface Service {
  readonly url: string;
  readonly token: string;
  /** How it speaks. */
  readonly speaks: ServiceDescription;
  /** The proxies between this machine and the service. Default: none. */
  readonly proxies?: Proxies | undefined;
}

/** How the user changes what is wrong: `npm start` has other ways than a deployment. */
export interface ServiceWords {
  /** The setting that holds the address, such as `--service`. */
  readonly address: string;
  /** What to do to use the service although the check fails, such as `add --skip-check`. */
  readonly goOn: string;
}

/** What is wrong with a service. */
export interface ServiceIssue {
  /** The service refuses the token, or does not answer as the service at this address should. */
  readonly of: 'token' | 'answer';
  /** `warning`: it may be possible to create flows all the same. */
  readonly severity: 'fault' | 'warning';
  /** Completes "The flow service at <address> ...". It may hold the service's own words. */
  readonly what: string;
  /** What the user can do: one or two sentences without the final full stop. */
  readonly todo: string;
}

/** What an answer says about the service. A `missing` operation may be one that this service does not have. */
type Verdict =
  | { readonly is: 'good' }
  | { readonly is: 'missing'; readonly answer: Answer }
  | { readonly is: 'wrong'; readonly issue: ServiceIssue };

interface Answer extends TransportResponse {
  /** The beginning of the body. */
  readonly text: string;
}

/**
 * Asks the service for its templates and, if it does not list these, for its flows. Neither costs anything. Returns
 * what is wrong and what to do; undefined if the service can be used.
 *
 * A service whose description has neither is asked for an unknown job. One that lists neither can still be used if it
 * serves the outputs of flows: then it answers for the outputs of an unknown flow in another way than for an address that
 * nobody serves.
 * @throws the signal's reason.
 */
export async function issueOfService(
  service: Service,
  words: ServiceWords,
  signal: AbortSignal,
): Promise<ServiceIssue | undefined> {
  return new ServiceCheck(service, words, signal).issue();
}

/** Returns what is wrong with a token: it completes "The token ...". It does not quote the token, which is a secret. */
export function issueOfToken(token: string): string | undefined {
  // The characters that a header can carry, as the functions check them.
  const wrong = /[^\x21-\x7e]/.exec(token)?.[0];
  if (wrong === undefined) return undefined;
  if (/[\r\n]/.test(wrong)) return 'holds a line break';
  return wrong === ' ' ? 'holds a space' : 'holds a character that no header can carry';
}

/** Which requests about a service go through a proxy, in one sentence. Undefined if none do. */
export function proxyInUse(service: URL, proxies: Proxies): string | undefined {
  const proxy = proxyFor(service, proxies);
  if (proxy !== undefined) {
    return `Requests to ${service.host} go through ${shownProxy(proxy)}, and so do those for results at other addresses.`;
  }
  if (proxies.https === undefined || isLoopback(service)) return undefined;
  return `Requests to ${service.host} go past ${shownProxy(proxies.https)}. Those for results at other addresses go through it.`;
}

const wrongAnswer = (what: string, todo: string): ServiceIssue => ({ of: 'answer', severity: 'fault', what, todo });

const ONLY_HTTP2 = wrongAnswer(
  'speaks only HTTP/2',
  'Flowdrop speaks HTTP/1.1: let the service accept it too, or put a proxy before it that does',
);

/** The body that a request about a flow has, and the id in it. With a body, the request is a `POST`. */
interface Described {
  readonly body?: JsonObject | undefined;
  readonly id?: string;
}

class ServiceCheck {
  readonly #service: Service;
  readonly #words: ServiceWords;
  readonly #signal: AbortSignal;
  readonly #transport: Transport;

  constructor(service: Service, words: ServiceWords, signal: AbortSignal) {
    this.#service = service;
    this.#words = words;
    this.#signal = signal;
    this.#transport = httpTransport({
      clock: systemClock,
      limits: { connectMs: ANSWER_MS, firstByteMs: ANSWER_MS, idleMs: ANSWER_MS },
      proxies: service.proxies,
    });
  }

  async issue(): Promise<ServiceIssue | undefined> {
    try {
      const { templates, list } = this.#service.speaks;
      const verdicts: Verdict[] = [];
      for (const listing of [templates, list]) {
        if (listing === undefined) continue;
        const verdict = this.#judge(await this.#get(listing.path), listing.path, listing.items);
        if (verdict.is === 'good') return undefined;
        verdicts.push(verdict);
      }
      const wrong = verdicts.find((verdict) => verdict.is === 'wrong');
      if (wrong !== undefined) return wrong.issue;
      if (verdicts.length === 0) {
        const verdict = await this.#verdictOfJob();
        if (verdict.is !== 'missing') return verdict.is === 'wrong' ? verdict.issue : undefined;
        verdicts.push(verdict);
      }
      if (await this.#servesOutputs()) return undefined;
      return this.#issueOfMissing(verdicts);
    } catch (error) {
      this.#signal.throwIfAborted();
      if (!(error instanceof TransportError)) throw error;
      const url = new URL(this.#service.url);
      const issue = issueOfConnection(error, url, this.#words);
      const proxy = proxyFor(url, this.#service.proxies ?? {});
      const isNamed = proxy === undefined || issue.what.includes(shownProxy(proxy));
      return isNamed ? issue : { ...issue, what: `${issue.what}, through ${shownProxy(proxy)}` };
    }
  }

  /** Nothing that was asked for is there. The service may be another one, or explain its errors at another place. */
  #issueOfMissing(verdicts: readonly Verdict[]): ServiceIssue {
    const { templates, list } = this.#service.speaks;
    const isListed = (templates ?? list) !== undefined;
    const [misread] = verdicts.flatMap((each) => (each.is === 'missing' && this.#wordsOf(each.answer).misread) || []);
    const words = misread === undefined ? '' : ` If the answer is its own, it has ${misread}.`;
    return wrongAnswer(
      `${isListed ? 'lists neither templates nor flows' : 'does not answer for an unknown flow'}: there is no flow service at this address (404)`,
      `Check the path in ${this.#words.address}.${words} If all is right, ${this.#words.goOn}`,
    );
  }

  async #get(path: string, { body: described, id = '' }: Described = {}): Promise<Answer> {
    const url = new URL(`${this.#service.url}${path}`);
    const { token, speaks } = this.#service;
    const method = described === undefined ? 'GET' : 'POST';
    const body = described && jsonBody(filled(described, { '{id}': id, '{template}': id }));
    const headers = headersOf({ operation: 'get', method, body: body && (() => body) }, speaks, { secret: token });
    const answerMs = 2 * ANSWER_MS; // A body that trickles exceeds no single wait.
    const sending = body && { bytes: body.bytes, chunks: body.chunks(this.#signal) };
    const response = await this.#transport({ method, url, headers, body: sending, answerMs }, this.#signal);
    return { ...response, text: redact(await readErrorBody(response), this.#service.token) };
  }

  /** @param items where a listing has its list. Default: it is none. */
  #judge(answer: Answer, path: string, items: Pointers = []): Verdict {
    const { status } = answer;
    const isJson = isJsonAnswer(answer);
    // A server of HTTP/2 alone answers so, in HTTP/1.1, to a client that did not offer it.
    if (status >= 400 && !isJson && /\bALPN\b|HTTP\/2/i.test(answer.text)) {
      return { is: 'wrong', issue: ONLY_HTTP2 };
    }
    const isSuccess = status >= 200 && status < 300;
    if (isSuccess && !isJson) return { is: 'wrong', issue: issueOfNoJson(answer, this.#words) };
    const told = isJson ? this.#wordsOf(answer).detail : '';
    const shown = `(${status}${told === '' ? '' : `: ${told}`})`;
    const refused = isSuccess && mayList(answer, items) ? undefined : this.#issueOfRefusal(shown, answer);
    if (refused !== undefined) return { is: 'wrong', issue: refused };
    if (isSuccess) return { is: 'good' };
    if (status === 404 || status === 410) return { is: 'missing', answer };
    // The operation is known here, but this method of it is not served.
    if (status === 405 || status === 501) return { is: 'good' };
    if (status >= 300 && status < 400) return { is: 'wrong', issue: this.#issueOfRedirect(answer, path) };
    const issue = issueOfStatus(shown, answer);
    if (issue !== undefined) return { is: 'wrong', issue };
    // Such as 400 for a listing that needs parameters. A web server's own 400 is no JSON.
    if (isJson) return { is: 'good' };
    return { is: 'wrong', issue: wrongAnswer(`answers with ${status} and no JSON`, `Check ${this.#words.address}`) };
  }

  /** By the description, as the client understands a refusal. Undefined if it says nothing about the service as a whole. */
  #issueOfRefusal(shown: string, { status, text, headers }: Answer): ServiceIssue | undefined {
    switch (refusalOf(this.#service.speaks.errors, status, text)) {
      case 'tokenRefused': {
        const what = `refuses the token ${shown}`;
        const sent = `It was sent as ${shownTokenHeader(this.#service.speaks)}: if the service wants another form, correct "token" in its description`;
        return {
          of: 'token',
          severity: 'fault',
          what,
          todo: `Set the environment variable FLOWDROP_TOKEN to a valid one. ${sent}`,
        };
      }
      case 'outOfCredit':
        return wrongAnswer(`says that the budget of the account is spent ${shown}`, 'Top it up, then try again');
      case 'throttled': {
        const seconds = /^\d{1,6}$/.exec(headers['retry-after'] ?? '')?.[0];
        const when = seconds === undefined ? 'a few minutes' : `${seconds} s`;
        return { ...wrongAnswer(`asks for fewer requests ${shown}`, `Try again in ${when}`), severity: 'warning' };
      }
      default:
        return undefined;
    }
  }

  #issueOfRedirect({ status, headers: { location } }: Answer, path: string): ServiceIssue {
    const { address } = this.#words;
    const target = location === undefined ? null : URL.parse(location, `${this.#service.url}${path}`);
    if (target === null) return wrongAnswer(`redirects to no address (${status})`, `Check ${address}`);
    const own = new URL(`${this.#service.url}${path}`);
    if (isSameWithSlash(target, own)) {
      const member = path === this.#service.speaks.list?.path ? 'list' : 'templates';
      const slashed = path.replace(/(?=\?|$)/, '/');
      return wrongAnswer(
        `wants a slash at the end of its paths: it redirects ${path} to ${slashed} (${status})`,
        `Declare its paths with it, in "service": { "${member}": { "path": "${slashed}" } } and so on`,
      );
    }
    // The rest of the address may hold a secret.
    const shown = `${target.origin}${target.pathname}`;
    const [end, wanted] = [shown, path].map((each) => each.replace(/\/*(?:\?.*)?$/, '')) as [string, string];
    const base = end.slice(0, -wanted.length);
    const isSuggested = end.endsWith(wanted) && base !== this.#service.url;
    if (isSuggested && issueOfBaseUrl(base) === undefined) {
      return wrongAnswer(`redirects to ${shown} (${status}), and uploads follow no redirect`, `Use ${address} ${base}`);
    }
    const what = `redirects to ${shown} (${status}), which is not its API`;
    return wrongAnswer(what, `Check the address in ${address}`);
  }

  /** What a service without any listing says of an unknown job: its own error shows that the service is there. */
  async #verdictOfJob(): Promise<Verdict> {
    const { state } = this.#service.speaks;
    const nobody = randomBytes(12).toString('hex');
    const path = state.path.replaceAll('{id}', nobody).replaceAll('{template}', nobody);
    const answer = await this.#get(path, { body: state.body, id: nobody });
    const verdict = this.#judge(answer, path);
    return verdict.is === 'missing' && this.#wordsOf(answer).isOwn ? { is: 'good' } : verdict;
  }

  #wordsOf({ headers, text }: Answer): ErrorWords {
    return wordsOfError(headers['content-type'], text, this.#service.speaks.errors, DETAIL_DEPTH_MAX);
  }

  /** True if an unknown flow's outputs are answered in another way than an address that nobody serves. */
  async #servesOutputs(): Promise<boolean> {
    const flow = randomBytes(12).toString('hex');
    const nobody = randomBytes(12).toString('hex');
    const pathOfBase = new URL(`${this.#service.url}/`).pathname;
    const ask = async (path: string, described?: Described) => {
      const answer = await this.#get(path, described);
      // Some answers quote the address, or its part behind a proxy.
      const text = answer.text.replaceAll('\\/', '/');
      return { ...answer, text: text.replaceAll(path, '').replaceAll(pathOfBase, '').replaceAll('/', '') };
    };
    const unserved = await ask(`/${flow}/${nobody}`);
    const again = await ask(`/${nobody}/${flow}`);
    // An answer with a request's id or the time says nothing by its text.
    const isComparable = unserved.text === again.text;
    const { outputs, state } = this.#service.speaks;
    for (const described of [outputs.path ?? state.path].flat()) {
      const path = described.replaceAll('{id}', flow).replaceAll('{template}', nobody);
      const answer = await ask(path, { body: described === state.path ? state.body : undefined, id: flow });
      const differs = answer.status !== unserved.status || (isComparable && answer.text !== unserved.text);
      if (differs && (answer.status === 404 || this.#judge(answer, path).is === 'good')) return true;
    }
    return false;
  }
}

/** True if an answer has a list where it should, or is too long to tell. Then the words of a refusal mean something else. */
function mayList({ text }: Answer, items: Pointers): boolean {
  try {
    const json: unknown = JSON.parse(text);
    return [items].flat().some((pointer) => Array.isArray(at(json, pointer)));
  } catch {
    return true;
  }
}

/** Undefined if the status says nothing about the service as a whole. */
function issueOfStatus(shown: string, { status }: Answer): ServiceIssue | undefined {
  if (status === 401 || status === 403) {
    return {
      of: 'token',
      severity: 'warning', // A token may create flows, and not list anything.
      what: `forbids the request ${shown}`,
      todo: 'Check what the token in FLOWDROP_TOKEN may do, or use another token',
    };
  }
  if (status === 407) {
    return wrongAnswer(`is behind a proxy that asks for a login ${shown}`, 'Reach the service without that proxy');
  }
  if (status < 500) return undefined;
  return wrongAnswer(`fails ${shown}`, 'Try again later. If this stays, tell the operator of the service');
}

function issueOfNoJson(answer: Answer, { address }: ServiceWords): ServiceIssue {
  if (/^\s*<|^$/.test(answer.text) === false && !isHtml(answer)) {
    return wrongAnswer('does not answer with JSON', `Check ${address}`);
  }
  return answer.text.trim() === ''
    ? wrongAnswer('answers with nothing instead of JSON', `Check the address in ${address}`)
    : wrongAnswer('answers with a web page', `Give the address of its API in ${address}, not of its website`);
}

const isHtml = ({ headers }: TransportResponse): boolean => /html/i.test(headers['content-type'] ?? '');

/** The text may be cut, so only its beginning is looked at. */
const isJsonAnswer = (answer: Answer): boolean => !isHtml(answer) && /^\uFEFF?\s*[[{]/.test(answer.text);

/** What a failed connection means. OpenSSL, DNS and the socket each have codes of their own. */
function issueOfConnection(
  error: TransportError,
  { protocol, hostname, host }: URL,
  { address }: ServiceWords,
): ServiceIssue {
  if (error instanceof ProxyError) return wrongAnswer(`cannot be reached: ${error.why}`, error.todo);
  if (error.timedOut) {
    const what = `gives no answer within ${ANSWER_MS / 1000} s`;
    return wrongAnswer(what, 'Check the address, and whether a firewall or a VPN is in between');
  }
  const unreached = (why: string, todo: string) => wrongAnswer(`cannot be reached: ${why}`, todo);
  const untrusted = (why: string, todo: string) => wrongAnswer(`cannot be trusted: its certificate ${why}`, todo);
  const code = String((error.cause as { code?: unknown } | undefined)?.code ?? '');
  switch (code) {
    case 'ECONNREFUSED':
      return unreached(`the connection is refused at ${host}`, 'Check host and port, and that the service runs');
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return unreached(`the host name ${hostname} is unknown`, 'Check its spelling, and your network');
    case 'ECONNRESET':
    case 'EPIPE':
      return unreached(
        'the connection is closed without an answer',
        protocol === 'http:' ? 'Check the port, and whether it speaks https' : 'Check host and port',
      );
    case 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL':
      return ONLY_HTTP2;
    case 'EPROTO':
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
      return unreached(`${host} does not speak https`, 'Check host and port');
    case 'CERT_HAS_EXPIRED':
    case 'CERT_NOT_YET_VALID':
      return untrusted(`is not valid today (${error.message})`, 'Check your clock, or tell its operator');
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return untrusted('is for another host', `Check the host name ${hostname}`);
    default:
      break;
  }
  if (/CERT|SIGNATURE|ISSUER/.test(code)) {
    return untrusted(
      `is signed by none that this machine knows (${error.message})`,
      'If that is right, set NODE_EXTRA_CA_CERTS to the path of the certificate that signed it',
    );
  }
  if (code.startsWith('HPE_')) {
    return wrongAnswer(`cannot be used: ${host} does not speak HTTP`, 'Check host and port');
  }
  return unreached(error.message, `Check the address in ${address}`);
}

/** The header with the token, as a message may show it. */
export function shownTokenHeader(service: ServiceDescription): string {
  const [[name, value] = []] = Object.entries(tokenHeader(service, '[token]'));
  return `"${name}: ${value}"`;
}
