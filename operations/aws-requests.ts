import { createHash, createHmac } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseXML } from '@aws-sdk/xml-builder';
import { SignatureV4 } from '@smithy/signature-v4';
import { messageOf } from '../functions/base/printable.ts';

/**
 * Signed requests to the services of AWS of which operations need one or two requests. A client of the SDK for each of
 * them would be larger than all other operations together.
 */

/**
 * Tries of a request that the service throttles or fails, and the time before the first further one, in milliseconds.
 */
const TRIES_MAX = 4;
const BACKOFF_FIRST_MS = 300;

/** Credentials of AWS, as the providers of its SDK return them. */
export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Of temporary credentials. */
  readonly sessionToken?: string | undefined;
  /** When temporary credentials end. */
  readonly expiration?: Date | undefined;
}

/** Where the services are, and who asks. */
export interface AwsAccess {
  readonly region: string;
  /** The ordinary chain of the SDK, or the credentials of a local run. */
  readonly credentials: () => Promise<AwsCredentials>;
  /**
   * By service, such as `lambda`. Default: the variable `AWS_ENDPOINT_URL_<SERVICE>`, or the endpoint of the region.
   */
  readonly endpoints?: Readonly<Record<string, string | undefined>> | undefined;
  /** Sends a request. Default: `fetch`. */
  readonly fetch?: ((request: Request, signal: AbortSignal) => Promise<Response>) | undefined;
}

export interface AwsRequest {
  /** The name of the service in its endpoint and in signatures. */
  readonly service: string;
  readonly method: 'GET' | 'POST' | 'PUT';
  /** Begins with a slash, percent-encoded, without a query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>> | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: string | undefined;
}

export interface AwsAnswer {
  readonly headers: Headers;
  readonly text: string;
}

/** AWS refused a request. `code` is AWS's name of the error, such as `AccessDeniedException`. */
export class AwsRequestError extends Error {
  override readonly name = 'AwsRequestError';
  readonly code: string;
  readonly status: number;
  constructor(code: string, status: number, message: string) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** True if AWS does not allow the request. A request that is throttled may be sent again. */
export const isDenied = (error: unknown): boolean =>
  (error instanceof AwsRequestError &&
    error.status !== 429 &&
    /AccessDenied|NotAuthorized|Unauthorized/.test(error.code)) ||
  (error instanceof Error && /AccessDenied/.test(error.name));

/** @throws {Error} that names the host, and why it could not be reached. */
async function connected(asked: Request, signal: AbortSignal): Promise<Response> {
  try {
    return await fetch(asked, { redirect: 'error', signal });
  } catch (error) {
    signal.throwIfAborted();
    // What `fetch` says is only that it failed. The proxy's answer is two causes further down.
    let cause = error as Error;
    while (cause.cause instanceof Error) cause = cause.cause;
    throw new Error(`${new URL(asked.url).host} could not be reached: ${messageOf(cause)}`, { cause: error });
  }
}

/**
 * Sends a request, and again if the service throttles it or fails.
 * @throws {AwsRequestError} @throws the errors of the connection and of the credentials' chain.
 */
export async function sendToAws(request: AwsRequest, access: AwsAccess, signal: AbortSignal): Promise<AwsAnswer> {
  const { fetch: send = connected } = access;
  for (let tries = 1; ; tries += 1) {
    const response = await send(await signed(request, access), signal);
    const text = await response.text();
    if (response.ok) return { headers: response.headers, text };
    const error = errorOf(request, response, text);
    const mayPass = error.status === 429 || error.status >= 500 || /throttl|TooManyRequests/i.test(error.code);
    if (!mayPass || tries === TRIES_MAX) throw error;
    await sleep(BACKOFF_FIRST_MS * 2 ** (tries - 1), undefined, { signal });
  }
}

/** A question to a service that speaks JSON. */
export interface JsonQuestion {
  readonly service: string;
  /** The value of `x-amz-target`, such as `AmazonSQS.GetQueueAttributes`. */
  readonly target: string;
  /** Version of the JSON protocol. Default: 1.0. */
  readonly version?: '1.0' | '1.1' | undefined;
  readonly input: object;
}

/** Returns the answer of an operation, parsed. @throws as {@link sendToAws} does. */
export async function askJson(
  { service, target, version = '1.0', input }: JsonQuestion,
  access: AwsAccess,
  signal: AbortSignal,
): Promise<unknown> {
  const headers = { 'content-type': `application/x-amz-json-${version}`, 'x-amz-target': target };
  const request: AwsRequest = { service, method: 'POST', path: '/', headers, body: JSON.stringify(input) };
  return JSON.parse((await sendToAws(request, access, signal)).text);
}

/**
 * Asks a service of the older query protocol, and returns its XML, parsed.
 * @param input with `Action` and `Version`. @throws as {@link sendToAws} does.
 */
export async function askQuery(
  service: string,
  input: Readonly<Record<string, string>>,
  access: AwsAccess,
  signal: AbortSignal,
): Promise<unknown> {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const body = new URLSearchParams(input).toString();
  const { text } = await sendToAws({ service, method: 'POST', path: '/', headers, body }, access, signal);
  return parseXML(text);
}

async function signed(request: AwsRequest, access: AwsAccess): Promise<Request> {
  const { service, method, path, query = {}, headers = {}, body } = request;
  const base = new URL(endpointOf(service, access));
  const signer = new SignatureV4({ service, region: access.region, credentials: access.credentials, sha256: Sha256 });
  const { protocol, hostname, port, host } = base;
  const toSign = {
    ...{ method, protocol, hostname, path, query: { ...query }, body },
    ...(port === '' ? {} : { port: Number(port) }),
    headers: { host, ...headers },
  };
  const { headers: signedHeaders } = await signer.sign(toSign);
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  // The host is a header that `fetch` sets by itself.
  const { host: _, ...sent } = signedHeaders;
  return new Request(url, { method, headers: sent, ...(body === undefined ? {} : { body }) });
}

/** The domains of AWS elsewhere, by the first word of a region. */
const DOMAINS: Readonly<Record<string, string>> = { cn: 'amazonaws.com.cn', eusc: 'amazonaws.eu' };

function endpointOf(service: string, { region, endpoints }: AwsAccess): string {
  const variable = `AWS_ENDPOINT_URL_${service.toUpperCase()}`;
  const given = endpoints?.[service] ?? process.env[variable] ?? process.env.AWS_ENDPOINT_URL;
  return given ?? `https://${service}.${region}.${DOMAINS[region.split('-', 1)[0] ?? ''] ?? 'amazonaws.com'}`;
}

/** JSON services name the error in a header or in the body, and query services in XML. */
function errorOf({ service, path }: AwsRequest, { status, headers }: Response, text: string): AwsRequestError {
  const json = parsedJson(text);
  const inXml = (name: string) => new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1];
  const code = headers.get('x-amzn-errortype') ?? json.__type ?? json.code ?? inXml('Code') ?? String(status);
  const why = json.message ?? json.Message ?? inXml('Message') ?? text.slice(0, 200);
  const name = String(code).replace(/^.*#/, '').replace(/:.*$/, '');
  return new AwsRequestError(name, status, `${service} ${path}: ${name}: ${why}`);
}

function parsedJson(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {};
  }
}

/** SHA-256 in the form that the signer takes. */
class Sha256 {
  readonly #hash: { update(data: Uint8Array | string): unknown; digest(): Buffer };

  constructor(secret?: string | ArrayBuffer | ArrayBufferView) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', bytesOf(secret));
  }

  update(data: string | ArrayBuffer | ArrayBufferView): void {
    this.#hash.update(bytesOf(data));
  }

  async digest(): Promise<Uint8Array> {
    return this.#hash.digest();
  }

  /** The signer makes a new object for each hash. */
  reset(): void {}
}

function bytesOf(data: string | ArrayBuffer | ArrayBufferView): Buffer {
  if (typeof data === 'string') return Buffer.from(data);
  return ArrayBuffer.isView(data) ? Buffer.from(data.buffer, data.byteOffset, data.byteLength) : Buffer.from(data);
}
