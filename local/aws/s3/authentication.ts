import { basicTime, SignatureError, type SignatureFacts, type SignatureForm } from '../sent-signature.ts';
import { type SignatureVerifier, SKEW_MS_MAX } from '../signature.ts';
import type { Call } from './call.ts';
import { S3Error, type S3ErrorCode, type S3ErrorOptions } from './errors.ts';

const UNSIGNED_PAYLOAD = 'UNSIGNED-PAYLOAD';
const SIGNED_CHUNKS = ['STREAMING-AWS4-HMAC-SHA256-PAYLOAD', 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER'];
const PAYLOAD_WORDS = [UNSIGNED_PAYLOAD, 'STREAMING-UNSIGNED-PAYLOAD-TRAILER', ...SIGNED_CHUNKS];

/** The parameters of a presigned URL that are about its signature. All its other `X-Amz-*` count as headers. */
const SIGNATURE_PARAMETERS = [
  ...['x-amz-algorithm', 'x-amz-credential', 'x-amz-signature', 'x-amz-date', 'x-amz-signedheaders', 'x-amz-expires'],
  'x-amz-security-token',
];

/**
 * Verifies the signature of a request, and returns the request as its signer meant it.
 *
 * The body is verified while it is read (`incoming.ts`), if its signer signed it: by its SHA-256, or chunk by chunk.
 * The caller stores nothing before that. `UNSIGNED-PAYLOAD` and `STREAMING-UNSIGNED-PAYLOAD-TRAILER` leave the body
 * out, so it is not hashed: the sender of such a request must be trusted, and is, because it has the key.
 * @throws {S3Error}
 */
export function authenticate(call: Call, url: string, verifier: SignatureVerifier): Call {
  try {
    const isPresigned = call.query.has('X-Amz-Signature');
    const headers = isPresigned ? { ...headersIn(call.query), ...call.headers } : call.headers;
    const payload = headers['x-amz-content-sha256'] ?? (isPresigned ? UNSIGNED_PAYLOAD : '');
    const { accessKeyId, chunks } = verifier.verify({ method: call.method, url, headers: call.headers }, () => {
      checkPayload(payload);
      return payload;
    });
    return { ...call, headers, accessKeyId, chunkSignatures: SIGNED_CHUNKS.includes(payload) ? chunks : undefined };
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    throw answerTo(error, verifier.now());
  }
}

function headersIn(query: Call['query']): Record<string, string> {
  const pairs = [...query].map(([name, value]) => [name.toLowerCase(), value] as const);
  return Object.fromEntries(
    pairs.filter(([name]) => name.startsWith('x-amz-') && !SIGNATURE_PARAMETERS.includes(name)),
  );
}

function checkPayload(payload: string): void {
  if (payload === '') {
    throw new S3Error('InvalidRequest', { message: 'Missing required header for this request: x-amz-content-sha256' });
  }
  if (PAYLOAD_WORDS.includes(payload) || /^[0-9a-f]{64}$/.test(payload)) return;
  throw new S3Error('InvalidArgument', {
    message: `x-amz-content-sha256 must be ${PAYLOAD_WORDS.join(', ')} or a valid sha256 value.`,
    details: { ArgumentName: 'x-amz-content-sha256', ArgumentValue: payload },
  });
}

/** The answers of S3. https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html */
function answerTo({ problem, form, message, facts }: SignatureError, now: number): S3Error {
  const { accessKeyId = '', header = '', region = '' } = facts;
  const answer = (code: S3ErrorCode, options?: S3ErrorOptions) => new S3Error(code, options);
  switch (problem) {
    case 'missing':
      return answer('AccessDenied');
    case 'unsupported':
      return answer('InvalidRequest', {
        message: 'The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.',
      });
    case 'two-signatures':
      return answer('InvalidArgument', {
        message:
          'Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified',
        details: { ArgumentName: 'Authorization' },
      });
    case 'malformed':
      return malformed(form, message);
    case 'wrong-region': {
      return malformed(form, message, { Region: region });
    }
    case 'no-date':
      return answer('AccessDenied', { message: 'AWS authentication requires a valid Date or x-amz-date header' });
    case 'unknown-key':
      return answer('InvalidAccessKeyId', { details: { AWSAccessKeyId: accessKeyId } });
    case 'wrong-session-token':
      return answer('InvalidToken');
    case 'skewed':
      return answer('RequestTimeTooSkewed', { details: skew(facts, now) });
    case 'not-yet-valid':
      return answer('AccessDenied', { message: 'Request is not valid yet', details: expiry(facts, now) });
    case 'expired':
      return answer('AccessDenied', { message: 'Request has expired', details: expiry(facts, now) });
    case 'header-not-signed':
      return answer('AccessDenied', {
        message: 'There were headers present in the request which were not signed',
        details: { HeadersNotSigned: header },
      });
    case 'mismatch':
      return answer('SignatureDoesNotMatch', { details: computation(facts) });
  }
}

function malformed(form: SignatureForm, message: string, details: Record<string, string> = {}): S3Error {
  return form === 'header'
    ? new S3Error('AuthorizationHeaderMalformed', {
        message: `The authorization header is malformed; ${message}.`,
        details,
      })
    : new S3Error('AuthorizationQueryParametersError', { message, details });
}

function skew({ requestTimeMs = 0 }: SignatureFacts, now: number): Record<string, string> {
  return {
    RequestTime: basicTime(requestTimeMs) ?? '',
    ServerTime: new Date(now).toISOString(),
    MaxAllowedSkewMilliseconds: String(SKEW_MS_MAX),
  };
}

function expiry({ requestTimeMs = 0, expiresSeconds }: SignatureFacts, now: number): Record<string, string> {
  return {
    ...(expiresSeconds !== undefined && {
      'X-Amz-Expires': String(expiresSeconds),
      Expires: new Date(requestTimeMs + expiresSeconds * 1000).toISOString(),
    }),
    ServerTime: new Date(now).toISOString(),
  };
}

/** Shows the client what was signed here. It holds nothing that the client did not send. */
function computation({ accessKeyId = '', signature = '', stringToSign = '', canonicalRequest = '' }: SignatureFacts) {
  return {
    AWSAccessKeyId: accessKeyId,
    StringToSign: stringToSign,
    SignatureProvided: signature,
    CanonicalRequest: canonicalRequest,
  };
}
