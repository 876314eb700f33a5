import { randomBytes } from 'node:crypto';
import { systemClock } from '../../functions/base/clock.ts';
import { httpTransport } from '../../functions/flow-service/http-transport.ts';
import { isCompressed, readErrorBody } from '../../functions/flow-service/json-answer.ts';
import { redact } from '../../functions/flow-service/redact.ts';
import { errorDetail } from '../../functions/flow-service/schemas.ts';
import { TransportError, type TransportResponse } from '../../functions/flow-service/transport.ts';
import { issueOfBaseUrl } from '../../functions/settings/service-address.ts';
import { printable } from './printable.ts';

/** Longest wait for a connection, and for each part of an answer, in milliseconds. The user is waiting for a word. */
const ANSWER_MS = 10_000;
/** Maximum nesting of an explanation's JSON, in levels. */
const DETAIL_DEPTH_MAX = 20;

export interface Service {
  readonly url: string;
  readonly token: string;
}

/** What an answer says about the service. A `missing` operation may be one that this service does not have. */
type Verdict =
  | { readonly is: 'good' }
  | { readonly is: 'missing' }
  /** `issue` completes "The flow service at <address> ...". */
  | { readonly is: 'wrong'; readonly issue: string };

interface Answer extends TransportResponse {
  /** The beginning of the body. */
  readonly text: string;
}

/**
 * Asks the service for its templates and, if it does not list these, for its flows. Neither costs anything. Returns one
 * sentence that says what is wrong and what to do; undefined if the service can be used.
 *
 * A service that lists neither can still be used if it serves the outputs of flows: then it answers for the outputs of
 * an unknown flow in another way than for an address that nobody serves.
 * @throws the signal's reason.
 */
export async function issueOfService(service: Service, signal: AbortSignal): Promise<string | undefined> {
  const issue = await new ServiceCheck(service, signal).issue();
  return issue === undefined ? undefined : printable(`The flow service at ${service.url} ${issue}`);
}

class ServiceCheck {
  readonly #service: Service;
  readonly #signal: AbortSignal;
  readonly #transport = httpTransport({
    clock: systemClock,
    limits: { connectMs: ANSWER_MS, firstByteMs: ANSWER_MS, idleMs: ANSWER_MS },
  });

  constructor(service: Service, signal: AbortSignal) {
    this.#service = service;
    this.#signal = signal;
  }

  async issue(): Promise<string | undefined> {
    try {
      const templates = await this.#verdict('templates');
      if (templates.is === 'good') return undefined;
      const flows = await this.#verdict('flows');
      if (flows.is === 'good') return undefined;
      if (templates.is === 'wrong') return templates.issue;
      if (flows.is === 'wrong') return flows.issue;
      if (await this.#servesOutputs()) return undefined;
      return (
        'lists neither templates nor flows: there is no flow service at this address (404). Check the path in ' +
        '--service. If the path is right, add --skip-check'
      );
    } catch (error) {
      this.#signal.throwIfAborted();
      if (error instanceof TransportError) return issueOfConnection(error, new URL(this.#service.url));
      throw error;
    }
  }

  async #verdict(path: string): Promise<Verdict> {
    return this.#judge(await this.#get(path), path);
  }

  async #get(path: string): Promise<Answer> {
    const url = new URL(`${this.#service.url}/${path}`);
    const headers = {
      Accept: 'application/json',
      'Accept-Encoding': 'identity',
      'User-Agent': 'flowdrop',
      'Content-Type': 'application/json',
      Authorization: `Bearer ${this.#service.token}`,
    };
    const answerMs = 2 * ANSWER_MS; // A body that trickles exceeds no single wait.
    const response = await this.#transport({ method: 'GET', url, headers, answerMs }, this.#signal);
    return { ...response, text: redact(await readErrorBody(response), this.#service.token) };
  }

  #judge(answer: Answer, path: string): Verdict {
    const { status } = answer;
    const isJson = isJsonAnswer(answer);
    if (status >= 200 && status < 300) {
      return isJson ? { is: 'good' } : { is: 'wrong', issue: issueOfNoJson(answer) };
    }
    if (status === 404 || status === 410) return { is: 'missing' };
    // The operation is known here, but this method of it is not served.
    if (status === 405 || status === 501) return { is: 'good' };
    if (status >= 300 && status < 400) return { is: 'wrong', issue: this.#issueOfRedirect(answer, path) };
    const told = isJson ? errorDetail(answer.text, DETAIL_DEPTH_MAX) : '';
    const shown = `(${status}${told === '' ? '' : `: ${told}`})`;
    const issue = issueOfStatus(shown, answer);
    if (issue !== undefined) return { is: 'wrong', issue };
    // Such as 400 for a listing that needs parameters. A web server's own 400 is no JSON.
    return isJson ? { is: 'good' } : { is: 'wrong', issue: `answers with ${status} and no JSON. Check --service` };
  }

  #issueOfRedirect({ status, headers: { location } }: Answer, path: string): string {
    const target = location === undefined ? null : URL.parse(location, `${this.#service.url}/${path}`);
    if (target === null) return `redirects to no address (${status}). Check --service`;
    // The rest of the address may hold a secret.
    const shown = `${target.origin}${target.pathname}`;
    const base = shown.replace(/\/+$/, '').replace(new RegExp(`/${path}$`), '');
    const isSuggested = base !== shown.replace(/\/+$/, '') && base !== this.#service.url;
    if (isSuggested && issueOfBaseUrl(base) === undefined) {
      return `redirects to ${shown} (${status}), and uploads follow no redirect. Use --service ${base}`;
    }
    return `redirects to ${shown} (${status}), which is not its API. Check the address in --service`;
  }

  /** True if an unknown flow's outputs are answered in another way than an address that nobody serves. */
  async #servesOutputs(): Promise<boolean> {
    const flow = randomBytes(12).toString('hex');
    const nobody = randomBytes(12).toString('hex');
    const pathOfBase = new URL(`${this.#service.url}/`).pathname;
    const ask = async (path: string) => {
      const answer = await this.#get(path);
      // Some answers quote the address, or its part behind a proxy.
      const text = answer.text.replaceAll('\\/', '/');
      return { ...answer, text: text.replaceAll(path, '').replaceAll(pathOfBase, '').replaceAll('/', '') };
    };
    const unserved = await ask(`${flow}/${nobody}`);
    const again = await ask(`${nobody}/${flow}`);
    // An answer with a request's id or the time says nothing by its text.
    const isComparable = unserved.text === again.text;
    for (const path of [`flows/${flow}/outputs`, `${flow}/outputs`]) {
      const answer = await ask(path);
      const differs = answer.status !== unserved.status || (isComparable && answer.text !== unserved.text);
      if (differs && (answer.status === 404 || this.#judge(answer, path).is === 'good')) return true;
    }
    return false;
  }
}

/** Undefined if the status says nothing about the service as a whole. */
function issueOfStatus(shown: string, { status, headers }: Answer): string | undefined {
  switch (status) {
    case 401:
      return `refuses the token ${shown}. Set the environment variable FLOWDROP_TOKEN to a valid one`;
    case 403:
      return `forbids the request ${shown}. Check what the token in FLOWDROP_TOKEN may do, or use another token`;
    case 402:
      return `says that the budget of the account is spent ${shown}. Top it up, then start again`;
    case 407:
      return `is behind a proxy that asks for a login ${shown}. Reach the service without that proxy`;
    case 429: {
      const seconds = /^\d{1,6}$/.exec(headers['retry-after'] ?? '')?.[0];
      return `asks for fewer requests ${shown}. Start again in ${seconds === undefined ? 'a few minutes' : `${seconds} s`}`;
    }
    default:
      if (status < 500) return undefined;
      return `fails ${shown}. Start again later. If this stays, tell the operator of the service`;
  }
}

function issueOfNoJson(answer: Answer): string {
  if (/^\s*<|^$/.test(answer.text) === false && !isHtml(answer)) return 'does not answer with JSON. Check --service';
  return answer.text.trim() === ''
    ? 'answers with nothing instead of JSON. Check the address in --service'
    : 'answers with a web page. Give the address of its API in --service, not of its website';
}

const isHtml = ({ headers }: TransportResponse): boolean => /html/i.test(headers['content-type'] ?? '');

/** The text may be cut, so only its beginning is looked at. */
const isJsonAnswer = (answer: Answer): boolean =>
  !isCompressed(answer) && !isHtml(answer) && /^\uFEFF?\s*[[{]/.test(answer.text);

/** What a failed connection means. OpenSSL, DNS and the socket each have codes of their own. */
function issueOfConnection(error: TransportError, { protocol, hostname, host }: URL): string {
  if (error.timedOut) {
    return `gives no answer within ${ANSWER_MS / 1000} s. Check the address, and whether a firewall or a VPN is in between`;
  }
  const code = String((error.cause as { code?: unknown } | undefined)?.code ?? '');
  switch (code) {
    case 'ECONNREFUSED':
      return `cannot be reached: the connection is refused at ${host}. Check host and port, and that the service runs`;
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `cannot be reached: the host name ${hostname} is unknown. Check its spelling, and your network`;
    case 'ECONNRESET':
    case 'EPIPE':
      return protocol === 'http:'
        ? 'cannot be reached: the connection is closed without an answer. Check the port, and whether it speaks https'
        : 'cannot be reached: the connection is closed without an answer. Check host and port';
    case 'EPROTO':
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
      return `cannot be reached: ${host} does not speak https. Check host and port`;
    case 'CERT_HAS_EXPIRED':
    case 'CERT_NOT_YET_VALID':
      return `cannot be trusted: its certificate is not valid today (${error.message}). Check your clock, or tell its operator`;
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `cannot be trusted: its certificate is for another host. Check the host name ${hostname}`;
    default:
      break;
  }
  if (/CERT|SIGNATURE|ISSUER/.test(code)) {
    return (
      `cannot be trusted: its certificate is signed by none that this machine knows (${error.message}). ` +
      'If that is right, set NODE_EXTRA_CA_CERTS to the path of the certificate that signed it'
    );
  }
  if (code.startsWith('HPE_')) return `cannot be used: ${host} does not speak HTTP. Check host and port`;
  return `cannot be reached: ${error.message}. Check the address in --service`;
}
