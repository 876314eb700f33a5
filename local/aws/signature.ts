import { createHmac, hash } from 'node:crypto';
import { isSameSecret } from '../secrets.ts';
import { type Credentials, REGION } from './credentials.ts';
import {
  ALGORITHM,
  decoded,
  type Pair,
  queryPairs,
  type SentSignature,
  type SignableRequest,
  SignatureError,
  type SignatureForm,
  sentSignature,
} from './sent-signature.ts';

const EMPTY_SHA256 = hash('sha256', '');

/** Maximum difference between the clocks of client and server, in milliseconds: AWS's 15 minutes. */
export const SKEW_MS_MAX = 15 * 60_000;

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
   * @param payloadHash returns the last line of the canonical request: the SHA-256 of the body in hexadecimal digits,
   * or the word that says why there is none.
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

  #checkScope({ form, scope, timestamp }: SentSignature): void {
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

  #checkTime({ form, timeMs, expiresSeconds }: SentSignature): void {
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

/** `host` and all `x-amz-*` must be signed. Otherwise a signed request could be given other ones on its way. */
function checkSignedHeaders({ headers }: SignableRequest, { form, accessKeyId, signedHeaders }: SentSignature): void {
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

/** Percent-encodes all but the unreserved characters of RFC 3986. `encodeURIComponent` leaves five more. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

/** In hexadecimal digits. */
export function sha256(data: string | Uint8Array): string {
  return hash('sha256', data);
}
