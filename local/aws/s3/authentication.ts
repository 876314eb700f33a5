import { REGION } from '../endpoint.ts';
import { SignatureError, type SignatureProblem, type SignatureVerifier } from '../signature.ts';
import { type Call, invalid, notImplemented } from './call.ts';
import { S3Error, type S3ErrorCode } from './errors.ts';

const UNSIGNED_PAYLOAD = 'UNSIGNED-PAYLOAD';
const UNSIGNED_CHUNKS = 'STREAMING-UNSIGNED-PAYLOAD-TRAILER';

/** The parameters of a presigned address that are about its signature. All its other `X-Amz-*` count as headers. */
const SIGNATURE_PARAMETERS = /^x-amz-(?:algorithm|credential|signature|date|signedheaders|expires|security-token)$/;

/**
 * Verifies the signature of a request, and returns the request as its signer meant it.
 *
 * If its signer signed the SHA-256 of the body, the body is verified while it is read (`incoming.ts`), and the caller
 * stores nothing before that. The two words leave the body out, so it is not hashed: the sender of such a request must
 * be trusted, and is, because it has the key.
 * @throws {S3Error}
 */
export function authenticate(call: Call, url: string, verifier: SignatureVerifier): Call {
  const isPresigned = call.query.has('X-Amz-Signature');
  const headers = isPresigned ? { ...headersIn(call.query), ...call.headers } : call.headers;
  const payload = headers['x-amz-content-sha256'] ?? (isPresigned ? UNSIGNED_PAYLOAD : '');
  try {
    const accessKeyId = verifier.verify({ method: call.method, url, headers: call.headers }, payload);
    checkPayload(payload);
    return { ...call, headers, accessKeyId };
  } catch (error) {
    if (!(error instanceof SignatureError)) throw error;
    const [code, message = error.message] = REFUSALS[error.problem];
    throw new S3Error(code, { message, details: error.problem === 'malformed' ? { Region: REGION } : {} });
  }
}

function headersIn(query: Call['query']): Record<string, string> {
  const pairs = [...query].map(([name, value]) => [name.toLowerCase(), value] as const);
  return Object.fromEntries(pairs.filter(([name]) => name.startsWith('x-amz-') && !SIGNATURE_PARAMETERS.test(name)));
}

function checkPayload(payload: string): void {
  if (payload === UNSIGNED_PAYLOAD || payload === UNSIGNED_CHUNKS || /^[0-9a-f]{64}$/.test(payload)) return;
  if (payload.startsWith('STREAMING-')) throw notImplemented(payload);
  const message = `x-amz-content-sha256 must be ${UNSIGNED_PAYLOAD}, ${UNSIGNED_CHUNKS} or a valid sha256 value.`;
  throw invalid('x-amz-content-sha256', message);
}

/**
 * The answers of S3. Without a message, that of the problem is sent.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
 */
const REFUSALS: Readonly<Record<SignatureProblem, readonly [code: S3ErrorCode, message?: string]>> = {
  missing: ['AccessDenied', 'Access Denied'],
  malformed: ['AuthorizationHeaderMalformed'],
  'unknown-key': ['InvalidAccessKeyId', 'The AWS Access Key Id you provided does not exist in our records.'],
  'wrong-session-token': ['InvalidToken', 'The provided token is malformed or otherwise invalid.'],
  skewed: ['RequestTimeTooSkewed', 'The difference between the request time and the current time is too large.'],
  expired: ['AccessDenied', 'Request has expired'],
  mismatch: [
    'SignatureDoesNotMatch',
    'The request signature we calculated does not match the signature you provided. Check your key and signing method.',
  ],
};
