import { createHmac, hash } from 'node:crypto';
import { isSameSecret, randomSecret } from '../secrets.ts';

/** The only region here. */
export const REGION = 'us-east-1';

const ALGORITHM = 'AWS4-HMAC-SHA256';
const EMPTY_SHA256 = hash('sha256', '');

/** Maximum difference between the clocks of client and server, in milliseconds: AWS's 15 minutes. */
export const SKEW_MS_MAX = 15 * 60_000;
/** Maximum validity of a presigned URL, in seconds: AWS's seven days. */
export const EXPIRES_SECONDS_MAX = 7 * 24 * 3600;

export interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** If set, every request must carry it. If not, none may carry one. */
  readonly sessionToken?: string;
}

/** New credentials. Nobody can guess them. */
export function randomCredentials(): Credentials & { readonly sessionToken?: never } {
  return { accessKeyId: `LOCAL${randomSecret().slice(0, 15).toUpperCase()}`, secretAccessKey: randomSecret() };
}

/** New credentials with a session token, as those of a role are. */
export function randomRoleCredentials(): Required<Credentials> {
  return { ...randomCredentials(), sessionToken: randomSecret() };
}

export interface SignableRequest {
  readonly method: string;
  /** Path and query, percent-encoded as on the wire. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
}

/** Where a request carries its signature. */
export type SignatureForm = 'header' | 'query';

export type SignatureProblem =
  /** The request has no signature. */
  | 'missing'
  /** It has a signature of another kind. */
  | 'unsupported'
  | 'two-signatures'
  | 'malformed'
  /** The credential is for another region. */
  | 'wrong-region'
  | 'no-date'
  | 'unknown-key'
  | 'wrong-session-token'
  /** The clocks of client and server differ too much. */
  | 'skewed'
  /** A presigned URL from the future. */
  | 'not-yet-valid'
  /** A presigned URL that was valid before. */
  | 'expired'
  /** A header is not signed although it must be. */
  | 'header-not-signed'
  | 'mismatch';

/** What was read and computed before the problem was found. */
export interface SignatureFacts {
  readonly accessKeyId?: string;
  readonly region?: string;
  readonly requestTimeMs?: number;
  readonly expiresSeconds?: number;
  readonly header?: string;
  readonly signature?: string;
  readonly canonicalRequest?: string;
  readonly stringToSign?: string;
}

/** A request whose signature does not prove that the sender has a secret key. Each service has its own answer. */
export class SignatureError extends Error {
  override readonly name = 'SignatureError';
  readonly problem: SignatureProblem;
  readonly form: SignatureForm;
  readonly facts: SignatureFacts;

  constructor(
    problem: SignatureProblem,
    { form, message, ...facts }: SignatureFacts & { form: SignatureForm; message?: string },
  ) {
    super(message ?? problem);
    this.problem = problem;
    this.form = form;
    this.facts = facts;
  }
}

/** A signature as it was sent. */
interface Sent {
  readonly form: SignatureForm;
  readonly accessKeyId: string;
  /** `<date>/<region>/<service>/aws4_request`. */
  readonly scope: string;
  readonly signedHeaders: readonly string[];
  readonly signature: string;
  /** `YYYYMMDD'T'HHMMSS'Z'`. */
  readonly timestamp: string;
  readonly timeMs: number;
  /** Undefined in a header. */
  readonly expiresSeconds: number | undefined;
  readonly sessionToken: string | undefined;
}

/** A request that its signer sent within the last minutes, or presigned for this time. */
export interface Verified {
  readonly accessKeyId: string;
  readonly form: SignatureForm;
  /** Verifies the chunks of the body, if each has a signature. */
  readonly chunks: ChunkSignatures;
}

export interface VerifierOptions {
  readonly credentials: readonly Credentials[];
  /** The name of the service in the scope of a signature, such as `s3`. */
  readonly service: string;
  /** @default the system's clock */
  readonly now?: (() => number) | undefined;
}

/**
 * Verifies Signature Version 4, in the header `Authorization` or in the query of a presigned URL.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
 */
export class SignatureVerifier {
  readonly #credentials: ReadonlyMap<string, Credentials>;
  readonly #service: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** By access key and scope. Only valid times get here, which span eight days, so there are few. */
  readonly #signingKeys = new Map<string, Buffer>();

  constructor({ credentials, service, now = Date.now }: VerifierOptions) {
    this.#credentials = new Map(credentials.map((each) => [each.accessKeyId, each]));
    this.#service = service;
    this.now = now;
  }

  /**
   * @param payloadHash returns the last line of the canonical request: the SHA-256 of the body in hexadecimal digits, or
   * the word that says why there is none.
   * @throws {SignatureError} and what `payloadHash` throws.
   */
  verify(request: SignableRequest, payloadHash: () => string): Verified {
    const query = queryPairs(request.url);
    const sent = sentSignature(request, query);
    const { form, accessKeyId, scope, signedHeaders, signature, timestamp } = sent;
    this.#checkScope(sent);
    const known = this.#credentials.get(accessKeyId);
    if (known === undefined) throw new SignatureError('unknown-key', { form, accessKeyId });
    if (!isSameSecret(sent.sessionToken ?? '', known.sessionToken ?? '')) {
      throw new SignatureError('wrong-session-token', { form, accessKeyId });
    }
    this.#checkTime(sent);
    checkSignedHeaders(request, sent);

    const canonicalRequest = canonical(request, query, { form, signedHeaders, payloadHash: payloadHash() });
    const stringToSign = [ALGORITHM, timestamp, scope, sha256(canonicalRequest)].join('\n');
    const key = this.#signingKey(known, scope);
    if (!isSameSecret(signature, hmac(key, stringToSign).toString('hex'))) {
      throw new SignatureError('mismatch', { form, accessKeyId, signature, canonicalRequest, stringToSign });
    }
    return { accessKeyId, form, chunks: new ChunkSignatures(key, { timestamp, scope, signature }) };
  }

  #checkScope({ form, scope, timestamp }: Sent): void {
    const [date, region, service, end] = scope.split('/');
    const malformed = (message: string) => new SignatureError('malformed', { form, message });
    if (service !== this.#service) throw malformed(`incorrect service "${service}"; expecting "${this.#service}"`);
    if (end !== 'aws4_request') throw malformed(`incorrect terminal "${end}"; expecting "aws4_request"`);
    if (date !== timestamp.slice(0, 8)) {
      throw malformed(`invalid credential date "${date}"; expecting that of the request, "${timestamp.slice(0, 8)}"`);
    }
    if (region !== REGION) {
      const message = `the region '${region}' is wrong; expecting '${REGION}'`;
      throw new SignatureError('wrong-region', { form, message, region: REGION });
    }
  }

  #checkTime({ form, timeMs, expiresSeconds }: Sent): void {
    const now = this.now();
    if (expiresSeconds === undefined) {
      if (Math.abs(now - timeMs) > SKEW_MS_MAX) throw new SignatureError('skewed', { form, requestTimeMs: timeMs });
      return;
    }
    if (timeMs - now > SKEW_MS_MAX) throw new SignatureError('not-yet-valid', { form, requestTimeMs: timeMs });
    if (now > timeMs + expiresSeconds * 1000) {
      throw new SignatureError('expired', { form, requestTimeMs: timeMs, expiresSeconds });
    }
  }

  #signingKey({ accessKeyId, secretAccessKey }: Credentials, scope: string): Buffer {
    const name = `${accessKeyId}/${scope}`;
    const cached = this.#signingKeys.get(name);
    if (cached !== undefined) return cached;
    const key = scope.split('/').reduce<Buffer>(hmac, Buffer.from(`AWS4${secretAccessKey}`));
    this.#signingKeys.set(name, key);
    return key;
  }
}

/**
 * Verifies a body that is sent in signed chunks. The signature of each chunk covers that of the chunk before, and the
 * first one covers that of the request. https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
 */
export class ChunkSignatures {
  readonly #key: Buffer;
  readonly #timestamp: string;
  readonly #scope: string;
  #previous: string;

  constructor(key: Buffer, { timestamp, scope, signature }: { timestamp: string; scope: string; signature: string }) {
    this.#key = key;
    this.#timestamp = timestamp;
    this.#scope = scope;
    this.#previous = signature;
  }

  /** Tells whether the signature is that of the next chunk. @param dataSha256 hexadecimal. */
  isNext(signature: string, dataSha256: string): boolean {
    return this.#isNext(signature, 'PAYLOAD', [EMPTY_SHA256, dataSha256]);
  }

  /** Tells whether the signature is that of the trailers, which come after the last chunk. */
  isTrailer(signature: string, trailers: ReadonlyMap<string, string>): boolean {
    const lines = [...trailers].map(([name, value]) => `${name}:${value}\n`);
    return this.#isNext(signature, 'TRAILER', [sha256(lines.join(''))]);
  }

  #isNext(signature: string, kind: string, hashes: readonly string[]): boolean {
    const text = [`${ALGORITHM}-${kind}`, this.#timestamp, this.#scope, this.#previous, ...hashes].join('\n');
    this.#previous = hmac(this.#key, text).toString('hex');
    return isSameSecret(signature, this.#previous);
  }
}

type Pair = readonly [name: string, value: string];

/** Reads the signature of a request, wherever it is. @throws {SignatureError} */
function sentSignature({ headers }: SignableRequest, query: readonly Pair[]): Sent {
  const { authorization } = headers;
  const has = (wanted: string) => query.some(([name]) => name === wanted);
  const isPresigned = has('X-Amz-Algorithm') || has('X-Amz-Signature') || has('X-Amz-Credential');
  if (authorization !== undefined && (isPresigned || has('Signature'))) {
    throw new SignatureError('two-signatures', { form: 'header' });
  }
  if (authorization !== undefined) return inHeader(headers, authorization);
  if (isPresigned) return inQuery(query);
  // Version 2 of presigned URLs has `Signature`.
  throw new SignatureError(has('Signature') ? 'unsupported' : 'missing', { form: 'query' });
}

function inHeader(headers: SignableRequest['headers'], authorization: string): Sent {
  const form = 'header';
  const [scheme = '', rest = ''] = authorization.split(/ (.*)/s);
  if (scheme !== ALGORITHM) throw new SignatureError('unsupported', { form });
  const fields = new Map(
    rest.split(',').map((field) => {
      const [name = '', value = ''] = field.trim().split(/=(.*)/s);
      return [name, value];
    }),
  );
  const [credential, signedHeaders, signature] = ['Credential', 'SignedHeaders', 'Signature'].map((name) =>
    fields.get(name),
  );
  // Three names in three fields: none is there twice, and there is no other.
  if (!credential || !signedHeaders || !signature || rest.split(',').length !== 3) {
    const message = 'expecting Credential, SignedHeaders and Signature, each once';
    throw new SignatureError('malformed', { form, message });
  }
  const timestamp = headers['x-amz-date'] ?? basicTime(Date.parse(headers.date ?? ''));
  const timeMs = timeOf(timestamp);
  if (timestamp === undefined || timeMs === undefined) throw new SignatureError('no-date', { form });
  return {
    form,
    ...parseCredential(credential, form),
    ...{ signedHeaders: signedHeaders.split(';'), signature, timestamp, timeMs },
    expiresSeconds: undefined,
    sessionToken: headers['x-amz-security-token'],
  };
}

const PRESIGNED = ['Algorithm', 'Credential', 'Signature', 'Date', 'SignedHeaders', 'Expires'] as const;

function inQuery(query: readonly Pair[]): Sent {
  const form = 'query';
  const malformed = (message: string) => new SignatureError('malformed', { form, message });
  const values = (name: string) => query.filter(([each]) => each === `X-Amz-${name}`).map(([, value]) => value);
  if (PRESIGNED.some((name) => values(name).length !== 1 || values(name)[0] === '')) {
    throw malformed(
      'Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.',
    );
  }
  const [algorithm, credential, signature, timestamp, signedHeaders, expires] = PRESIGNED.map(
    (name) => values(name)[0] ?? '',
  ) as [string, string, string, string, string, string];
  if (algorithm !== ALGORITHM) throw malformed(`X-Amz-Algorithm only supports "${ALGORITHM}"`);
  const timeMs = timeOf(timestamp);
  if (timeMs === undefined) {
    throw malformed(`X-Amz-Date must be in the ISO8601 Long Format "yyyyMMdd'T'HHmmss'Z'"`);
  }
  if (/^-\d+$/.test(expires)) throw malformed('X-Amz-Expires must be non-negative');
  if (!/^\d+$/.test(expires)) throw malformed('X-Amz-Expires should be a number');
  if (Number(expires) > EXPIRES_SECONDS_MAX) {
    throw malformed(
      `X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than ${EXPIRES_SECONDS_MAX} seconds`,
    );
  }
  const tokens = values('Security-Token');
  if (tokens.length > 1) throw malformed('X-Amz-Security-Token must be given once');
  return {
    form,
    ...parseCredential(credential, form),
    ...{ signedHeaders: signedHeaders.split(';'), signature, timestamp, timeMs },
    expiresSeconds: Number(expires),
    sessionToken: tokens[0],
  };
}

function parseCredential(credential: string, form: SignatureForm): Pick<Sent, 'accessKeyId' | 'scope'> {
  const [accessKeyId = '', ...scope] = credential.split('/');
  if (accessKeyId === '' || scope.length !== 4) {
    const message = 'the Credential is mal-formed; expecting "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request"';
    throw new SignatureError('malformed', { form, message });
  }
  return { accessKeyId, scope: scope.join('/') };
}

/** `host` and all `x-amz-*` must be signed. Otherwise a signed request could be given other ones on its way. */
function checkSignedHeaders({ headers }: SignableRequest, { form, accessKeyId, signedHeaders }: Sent): void {
  const mustBeSigned = Object.keys(headers).filter((name) => name === 'host' || name.startsWith('x-amz-'));
  const header = mustBeSigned.find((name) => headers[name] !== undefined && !signedHeaders.includes(name));
  if (header !== undefined) throw new SignatureError('header-not-signed', { form, accessKeyId, header });
}

interface CanonicalParts {
  readonly form: SignatureForm;
  readonly signedHeaders: readonly string[];
  readonly payloadHash: string;
}

/**
 * The path is encoded once, as S3 does. Other services encode it twice and resolve its dots, which makes no difference
 * for the paths that they have here: `/` and that of a queue.
 */
function canonical(
  { method, url, headers }: SignableRequest,
  query: readonly Pair[],
  { form, signedHeaders, payloadHash }: CanonicalParts,
): string {
  const path = decoded(url.split('?')[0] ?? '')
    .split('/')
    .map(encoded)
    .join('/');
  const pairs = query
    .filter(([name]) => !(form === 'query' && name === 'X-Amz-Signature'))
    .map(([name, value]) => [encoded(name), encoded(value)] as const)
    .sort(([a, x], [b, y]) => compare(a, b) || compare(x, y));
  return [
    method,
    path === '' ? '/' : path,
    pairs.map(([name, value]) => `${name}=${value}`).join('&'),
    ...signedHeaders.map((name) => `${name}:${(headers[name] ?? '').trim().replace(/ {2,}/g, ' ')}`),
    '',
    signedHeaders.join(';'),
    payloadHash,
  ].join('\n');
}

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
    throw new SignatureError('malformed', { form: 'header', message: 'The address is not percent-encoded UTF-8' });
  }
}

/** Percent-encodes all but the unreserved characters of RFC 3986. `encodeURIComponent` leaves five more. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function timeOf(timestamp: string | undefined): number | undefined {
  const [, y, mo, d, h, mi, s] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(timestamp ?? '') ?? [];
  const ms = Date.parse(`${y}-${mo}-${d}T${h}:${mi}:${s}Z`);
  return Number.isNaN(ms) ? undefined : ms;
}

/** The inverse of `timeOf`. Undefined for `NaN`. */
export function basicTime(ms: number): string | undefined {
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString().replace(/[-:]|\.\d{3}/g, '');
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

/** In hexadecimal digits. */
export function sha256(data: string | Uint8Array): string {
  return hash('sha256', data);
}
