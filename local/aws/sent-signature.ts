export const ALGORITHM = 'AWS4-HMAC-SHA256';

/** Maximum validity of a presigned URL, in seconds: AWS's seven days. */
const EXPIRES_SECONDS_MAX = 7 * 24 * 3600;

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
export interface SentSignature {
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

/** A parameter of the query, decoded. */
export type Pair = readonly [name: string, value: string];

/** Reads the signature of a request, wherever it is. @throws {SignatureError} */
export function sentSignature({ headers }: SignableRequest, query: readonly Pair[]): SentSignature {
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

function inHeader(headers: SignableRequest['headers'], authorization: string): SentSignature {
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
  // There are three fields, so each name is there exactly once.
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
    signedHeaders: signedHeaders.split(';'),
    signature,
    timestamp,
    timeMs,
    expiresSeconds: undefined,
    sessionToken: headers['x-amz-security-token'],
  };
}

const PRESIGNED = ['Algorithm', 'Credential', 'Signature', 'Date', 'SignedHeaders', 'Expires'] as const;

function inQuery(query: readonly Pair[]): SentSignature {
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
    signedHeaders: signedHeaders.split(';'),
    signature,
    timestamp,
    timeMs,
    expiresSeconds: Number(expires),
    sessionToken: tokens[0],
  };
}

function parseCredential(credential: string, form: SignatureForm): Pick<SentSignature, 'accessKeyId' | 'scope'> {
  const [accessKeyId = '', ...scope] = credential.split('/');
  if (accessKeyId === '' || scope.length !== 4) {
    const message = 'the Credential is mal-formed; expecting "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request"';
    throw new SignatureError('malformed', { form, message });
  }
  return { accessKeyId, scope: scope.join('/') };
}

/** All parameters of an address, in its order. @throws {SignatureError} */
export function queryPairs(url: string): readonly Pair[] {
  const [, query = ''] = url.split(/\?(.*)/s);
  return query
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const [name = '', value = ''] = pair.replaceAll('+', ' ').split(/=(.*)/s);
      return [decoded(name), decoded(value)];
    });
}

/** @throws {SignatureError} */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new SignatureError('malformed', { form: 'header', message: 'The address is not percent-encoded UTF-8' });
  }
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
