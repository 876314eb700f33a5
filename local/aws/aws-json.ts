import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import * as z from 'zod/mini';
import { closeAfter, listenOnLoopback } from '../loopback.ts';
import { isSameSecret } from '../secrets.ts';
import type { AwsEndpoint, EndpointAccess } from './endpoint.ts';
import { SignatureError, type SignatureProblem, SignatureVerifier, sha256 } from './signature.ts';

/** An error answer of one of AWS's JSON services. */
export class AwsError extends Error {
  override readonly name = 'AwsError';
  /** The error's name in the SDK, such as `ResourceNotFoundException`. */
  readonly code: string;
  readonly status: number;
  /** The error code of the older query protocol. SQS still sends it, in a header. */
  readonly queryCode: string | undefined;
  constructor(
    code: string,
    message: string,
    { status = 400, queryCode }: { status?: number; queryCode?: string } = {},
  ) {
    super(message);
    this.code = code;
    this.status = status;
    this.queryCode = queryCode;
  }
}

/** Answers one operation. `input` is the request's body, parsed but not checked. */
export type Operation = (input: unknown) => object | Promise<object>;

/** Checks the input against a schema before the operation runs. Invalid input gets AWS's `ValidationException`. */
export function operation<Schema extends z.ZodMiniType>(
  schema: Schema,
  run: (input: z.output<Schema>) => object | Promise<object>,
): Operation {
  return (input) => {
    const parsed = schema.safeParse(input);
    if (!parsed.success) throw new AwsError('ValidationException', z.prettifyError(parsed.error));
    return run(parsed.data);
  };
}

/** Above the limit of every service that is served here. */
const REQUEST_BYTES_MAX = 16 * 2 ** 20;

export interface AwsJsonService extends EndpointAccess {
  readonly version: '1.0' | '1.1';
  /** The part of `X-Amz-Target` before the dot. */
  readonly target: string;
  /** The prefix of the service's IAM actions. */
  readonly service: string;
  readonly operations: Readonly<Record<string, Operation>>;
  /** The codes of the older query protocol for refused signatures, which SQS sends beside the new ones, with 403. */
  readonly hasQueryCodes?: boolean;
}

/**
 * Serves operations over AWS's JSON protocols: `POST /`, with the operation's name in `X-Amz-Target`.
 * https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html
 */
export async function serveAwsJson(service: AwsJsonService): Promise<AwsEndpoint> {
  const read = signedBody(service);
  const { url, close } = await listenOnLoopback(
    async (request, response, wantBody) => {
      response.setHeader('content-type', `application/x-amz-json-${service.version}`);
      response.setHeader('x-amzn-requestid', randomUUID());
      try {
        response.end(JSON.stringify(await answer(service, request, await read(request, wantBody))));
      } catch (error) {
        refuse(response, error);
      }
    },
    { proves: service.credentials },
  );
  return { endpoint: url, close };
}

async function answer(
  service: AwsJsonService,
  request: IncomingMessage,
  { accessKeyId, body }: SignedBody,
): Promise<object> {
  const [prefix, name] = String(request.headers['x-amz-target']).split('.');
  const { target, operations } = service;
  const run = prefix === target && name !== undefined && Object.hasOwn(operations, name) && operations[name];
  if (!run) throw new AwsError('UnknownOperationException', `${request.headers['x-amz-target']} is not served here`);
  const input = parse(body.toString());
  service.onCall?.({ accessKeyId, action: `${service.service}:${name}`, input });
  return run(input);
}

/** The body of a request, and the access key that signed it. */
export interface SignedBody {
  readonly accessKeyId: string;
  readonly body: Buffer;
}

/** @throws {AwsError} */
type ReadSigned = (request: IncomingMessage, wantBody: () => void) => Promise<SignedBody>;

/**
 * Returns what reads the requests to a service that is called with JSON. A body is read only after the signature of its
 * head was verified, so that strangers cannot fill the memory. AWS also takes requests that do not name the hash of
 * their body, which cannot be verified before. The SDK names it in every request.
 */
export function signedBody({
  credentials,
  service,
  hasQueryCodes = false,
}: Pick<AwsJsonService, 'credentials' | 'service' | 'hasQueryCodes'>): ReadSigned {
  const verifier = new SignatureVerifier({ credentials, service });
  return async (request, wantBody) => {
    try {
      const { method = '', url = '' } = request;
      const headers = request.headers as Record<string, string | undefined>;
      const named = headers['x-amz-content-sha256'] ?? '';
      const accessKeyId = verifier.verify({ method, url, headers }, named);
      wantBody();
      const body = await readBody(request);
      if (!isSameSecret(sha256(body), named)) throw new SignatureError('mismatch');
      return { accessKeyId, body };
    } catch (error) {
      if (!(error instanceof SignatureError)) throw error;
      const [code, message, queryCode] = REFUSALS[error.problem];
      const text = error.problem === 'malformed' ? `${message} ${error.message}.` : message;
      throw new AwsError(code, text, hasQueryCodes ? { status: 403, queryCode } : {});
    }
  };
}

const UNKNOWN_KEY = [
  'UnrecognizedClientException',
  'The security token included in the request is invalid.',
  'InvalidClientTokenId',
] as const;
const EXPIRED = [
  'InvalidSignatureException',
  'Signature expired, or not yet current. The clocks of client and server may differ.',
  'SignatureDoesNotMatch',
] as const;

/** What AWS's JSON services answer to a refused signature: the code, the message, and SQS's older code. */
const REFUSALS = {
  missing: ['MissingAuthenticationTokenException', 'Missing Authentication Token', 'MissingAuthenticationToken'],
  malformed: ['IncompleteSignatureException', 'The signature is incomplete:', 'IncompleteSignature'],
  'unknown-key': UNKNOWN_KEY,
  'wrong-session-token': UNKNOWN_KEY,
  skewed: EXPIRED,
  expired: EXPIRED,
  mismatch: [
    'InvalidSignatureException',
    'The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method.',
    'SignatureDoesNotMatch',
  ],
} as const satisfies Record<SignatureProblem, readonly [string, string, string]>;

function refuse(response: ServerResponse, error: unknown): void {
  const known = error instanceof AwsError ? error : new AwsError('InternalFailure', String(error), { status: 500 });
  closeAfter(response);
  if (known.queryCode) response.setHeader('x-amzn-query-error', `${known.queryCode};Sender`);
  response.writeHead(known.status).end(JSON.stringify({ __type: known.code, message: known.message }));
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > REQUEST_BYTES_MAX) throw new AwsError('RequestEntityTooLarge', 'Too large', { status: 413 });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function parse(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new AwsError('SerializationException', String(error));
  }
}
