import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import * as z from 'zod/mini';
import { listenOnLoopback } from '../loopback.ts';
import type { AwsCall, AwsEndpoint } from './endpoint.ts';

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

export interface AwsJsonService {
  readonly version: '1.0' | '1.1';
  /** The part of `X-Amz-Target` before the dot. */
  readonly target: string;
  /** The prefix of the service's IAM actions. */
  readonly service: string;
  readonly operations: Readonly<Record<string, Operation>>;
  /** Called for every request, before the answer. */
  readonly onCall?: ((call: AwsCall) => void) | undefined;
}

/**
 * Serves operations over AWS's JSON protocols: `POST /`, with the operation's name in `X-Amz-Target`. Signatures are
 * not verified. https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html
 */
export async function serveAwsJson({
  version,
  target,
  service,
  operations,
  onCall,
}: AwsJsonService): Promise<AwsEndpoint> {
  const server = createServer(async (request, response) => {
    response.setHeader('content-type', `application/x-amz-json-${version}`);
    response.setHeader('x-amzn-requestid', randomUUID());
    try {
      const body = await readBody(request);
      const [prefix, name] = String(request.headers['x-amz-target']).split('.');
      const run = prefix === target && name !== undefined && Object.hasOwn(operations, name) && operations[name];
      if (!run) {
        throw new AwsError('UnknownOperationException', `${request.headers['x-amz-target']} is not served here`);
      }
      const input = parse(body);
      const accessKeyId = /Credential=([^/,]+)/.exec(request.headers.authorization ?? '')?.[1];
      onCall?.({ accessKeyId, action: `${service}:${name}`, input });
      response.end(JSON.stringify(await run(input)));
    } catch (error) {
      const known = error instanceof AwsError ? error : new AwsError('InternalFailure', String(error), { status: 500 });
      if (known.queryCode) response.setHeader('x-amzn-query-error', `${known.queryCode};Sender`);
      response.writeHead(known.status).end(JSON.stringify({ __type: known.code, message: known.message }));
    }
  });
  const { url, close } = await listenOnLoopback(server);
  return { endpoint: url, close };
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > REQUEST_BYTES_MAX) throw new AwsError('RequestEntityTooLarge', 'Too large', { status: 413 });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function parse(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new AwsError('SerializationException', String(error));
  }
}
