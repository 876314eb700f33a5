import { createHmac, createSecretKey, hash, type KeyObject } from 'node:crypto';
import { isSameSecret } from '../secrets.ts';
import { type Credentials, REGION } from './endpoint.ts';

const ALGORITHM = 'AWS4-HMAC-SHA256';

/** Maximum difference between the clocks of client and server, in milliseconds: AWS's 15 minutes. */
const SKEW_MS_MAX = 15 * 60_000;

/** Maximum validity of a presigned address, in seconds: AWS's seven days. */
const EXPIRES_SECONDS_MAX = 7 * 24 * 3600;

export interface SignableRequest {
  readonly method: string;
  /** Path and query, percent-encoded as on the wire. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
}

export type SignatureProblem =
  /** The request has no signature of Version 4. */
  | 'missing'
  /** It cannot be read, is for another service or region, or leaves out a header. */
  | 'malformed'
  | 'unknown-key'
  | 'wrong-session-token'
  /** The clocks of client and server differ too much. */
  | 'skewed'
  /** A presigned address that is not valid at this time. */
  | 'expired'
  | 'mismatch';

/** A request whose signature does not prove that the sender has a secret key. Each service has its own answer. */
export class SignatureError extends Error {
  override readonly name = 'SignatureError';
  readonly problem: SignatureProblem;

  constructor(problem: SignatureProblem, message: string = problem) {
    super(message);
    this.problem = problem;
  }
}

/** A signature as it was sent. */
interface SentSignature {
  readonly isPresigned: boolean;
  readonly accessKeyId: string;
  /** `<date>/<region>/<service>/aws4_request`. */
  readonly scope: string;
  readonly signedHeaders: readonly string[];
  readonly signature: string;
  /** `YYYYMMDD'T'HHMMSS'Z'`. */
  readonly timestamp: string;
  /** Validity of a presigned address. */
  readonly expiresSeconds: number;
  readonly sessionToken: string;
}

export interface VerifierOptions {
  readonly credentials: readonly Credentials[];
  /** The name of the service in the scope of a signature, such as `s3`. */
  readonly service: string;
  /** @default the system's clock */
  readonly now?: (() => number) | undefined;
}

/**
 * Verifies Signature Version 4, in the header `Authorization` or in the query of a presigned address.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
 */
export class SignatureVerifier {
  readonly #credentials: ReadonlyMap<string, Credentials>;
  readonly #service: string;
  readonly #now: () => number;
  /** The signing key of each access key, with the scope that it was derived for. Deriving takes longer than the rest. */
  readonly #signingKeys = new Map<string, { readonly scope: string; readonly key: KeyObject }>();

  constructor({ credentials, service, now = Date.now }: VerifierOptions) {
    this.#credentials = new Map(credentials.map((each) => [each.accessKeyId, each]));
    this.#service = service;
    this.#now = now;
  }

  /**
   * Returns the access key that signed the request.
   * @param payload the last line of the canonical request: the SHA-256 of the body in hexadecimal digits, or the word
   * that says why there is none.
   * @throws {SignatureError}
   */
  verify(request: SignableRequest, payload: string): string {
    const query = queryPairs(request.url);
    const sent = sentSignature(request, query);
    this.#checkScope(sent);
    const known = this.#credentials.get(sent.accessKeyId);
    if (known === undefined) throw new SignatureError('unknown-key');
    if (!isSameSecret(sent.sessionToken, known.sessionToken ?? '')) throw new SignatureError('wrong-session-token');
    this.#checkTime(sent);
    checkSignedHeaders(request, sent);
    const text = [ALGORITHM, sent.timestamp, sent.scope, sha256(canonical(request, query, sent, payload))].join('\n');
    const signature = hmac(this.#signingKey(known, sent.scope), text).toString('hex');
    if (!isSameSecret(sent.signature, signature)) throw new SignatureError('mismatch');
    return sent.accessKeyId;
  }

  #signingKey({ accessKeyId, secretAccessKey }: Credentials, scope: string): KeyObject {
    const last = this.#signingKeys.get(accessKeyId);
    if (last?.scope === scope) return last.key;
    const key = createSecretKey(scope.split('/').reduce<Buffer>(hmac, Buffer.from(`AWS4${secretAccessKey}`)));
    this.#signingKeys.set(accessKeyId, { scope, key });
    return key;
  }

  #checkScope({ scope, timestamp }: SentSignature): void {
    const expected = `${timestamp.slice(0, 8)}/${REGION}/${this.#service}/aws4_request`;
    if (scope !== expected) {
      throw new SignatureError('malformed', `the credential is for ${scope}; expecting ${expected}`);
    }
  }

  #checkTime({ isPresigned, timestamp, expiresSeconds }: SentSignature): void {
    const sinceMs = this.#now() - timeOf(timestamp);
    if (Math.abs(sinceMs) <= SKEW_MS_MAX && !isPresigned) return;
    if (!isPresigned) throw new SignatureError('skewed');
    if (sinceMs < -SKEW_MS_MAX || sinceMs > expiresSeconds * 1000) throw new SignatureError('expired');
  }
}

/** Reads the signature of a request, wherever it is. */
function sentSignature({ headers }: SignableRequest, query: readonly Pair[]): SentSignature {
  const sent = headers.authorization === undefined ? inQuery(query) : inHeader(headers, headers.authorization);
  if (Number.isNaN(timeOf(sent.timestamp))) throw new SignatureError('malformed', 'there is no valid time');
  if (!(sent.expiresSeconds <= EXPIRES_SECONDS_MAX)) {
    throw new SignatureError('malformed', `X-Amz-Expires must be a number up to ${EXPIRES_SECONDS_MAX}`);
  }
  return sent;
}

function inHeader(headers: SignableRequest['headers'], authorization: string): SentSignature {
  if (!authorization.startsWith(`${ALGORITHM} `)) throw new SignatureError('missing', `expecting ${ALGORITHM}`);
  const [, credential, signedHeaders, signature] =
    / Credential=([^, ]+), *SignedHeaders=([^, ]+), *Signature=([^, ]+)$/.exec(authorization) ?? [];
  if (!credential || !signedHeaders || !signature) {
    throw new SignatureError('malformed', 'expecting Credential, SignedHeaders and Signature, each once');
  }
  return {
    isPresigned: false,
    ...parseCredential(credential),
    signedHeaders: signedHeaders.split(';'),
    signature,
    timestamp: headers['x-amz-date'] ?? '',
    expiresSeconds: 0,
    sessionToken: headers['x-amz-security-token'] ?? '',
  };
}

function inQuery(query: readonly Pair[]): SentSignature {
  const value = (name: string): string => query.find(([each]) => each === `X-Amz-${name}`)?.[1] ?? '';
  const signature = value('Signature');
  if (signature === '' || value('Algorithm') !== ALGORITHM) throw new SignatureError('missing');
  return {
    isPresigned: true,
    ...parseCredential(value('Credential')),
    signedHeaders: value('SignedHeaders').split(';'),
    signature,
    timestamp: value('Date'),
    expiresSeconds: /^\d+$/.test(value('Expires')) ? Number(value('Expires')) : Number.NaN,
    sessionToken: value('Security-Token'),
  };
}

function parseCredential(credential: string): Pick<SentSignature, 'accessKeyId' | 'scope'> {
  const [accessKeyId = '', ...scope] = credential.split('/');
  return { accessKeyId, scope: scope.join('/') };
}

/** `host` and all `x-amz-*` must be signed. Otherwise a signed request could be given other ones on its way. */
function checkSignedHeaders({ headers }: SignableRequest, { signedHeaders }: SentSignature): void {
  const mustBeSigned = Object.keys(headers).filter((name) => name === 'host' || name.startsWith('x-amz-'));
  const missing = mustBeSigned.find((name) => headers[name] !== undefined && !signedHeaders.includes(name));
  if (missing !== undefined) throw new SignatureError('malformed', `the header ${missing} is not signed`);
}

/**
 * The canonical request. The path is encoded once, as S3 does. Other services encode it twice and resolve its dots,
 * which makes no difference for the paths that they have here: `/` and those of queues and functions.
 */
function canonical(
  { method, url, headers }: SignableRequest,
  query: readonly Pair[],
  { isPresigned, signedHeaders }: SentSignature,
  payload: string,
): string {
  const path = decoded(url.split('?')[0] ?? '')
    .split('/')
    .map(encoded)
    .join('/');
  const pairs = query
    .filter(([name]) => !(isPresigned && name === 'X-Amz-Signature'))
    .map(([name, value]) => [encoded(name), encoded(value)] as const)
    .sort(([a, x], [b, y]) => compare(a, b) || compare(x, y));
  return [
    method,
    path === '' ? '/' : path,
    pairs.map(([name, value]) => `${name}=${value}`).join('&'),
    ...signedHeaders.map((name) => `${name}:${(headers[name] ?? '').trim().replace(/ {2,}/g, ' ')}`),
    '',
    signedHeaders.join(';'),
    payload,
  ].join('\n');
}

/** A parameter of the query, decoded. */
type Pair = readonly [name: string, value: string];

/** All parameters of an address, in its order. @throws {SignatureError} */
function queryPairs(url: string): readonly Pair[] {
  const [, query = ''] = url.split(/\?(.*)/s);
  return query
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const [name = '', value = ''] = pair.replaceAll('+', ' ').split(/=(.*)/s);
      return [decoded(name), decoded(value)];
    });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new SignatureError('malformed', 'the address is not percent-encoded UTF-8');
  }
}

/** Percent-encodes all but the unreserved characters of RFC 3986. `encodeURIComponent` leaves five more. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Milliseconds since the epoch, or `NaN`. */
function timeOf(timestamp: string): number {
  const [, y, mo, d, h, mi, s] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(timestamp) ?? [];
  return Date.parse(`${y}-${mo}-${d}T${h}:${mi}:${s}Z`);
}

function hmac(key: Buffer | KeyObject, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

/** In hexadecimal digits. */
export function sha256(data: string | Uint8Array): string {
  return hash('sha256', data);
}
