import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import * as z from 'zod/mini';

/** An error in the form in which AWS's JSON services give theirs. */
export class AwsError extends Error {
  override readonly name = 'AwsError';
  /** The name by which the SDK knows it, such as `ResourceNotFoundException`. */
  readonly code: string;
  readonly status: number;
  /** The code of the older query protocol, which SQS still sends along in a header. */
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

/** Answers one operation: `input` is the request's body, parsed but not yet checked. */
export type Operation = (input: unknown) => object | Promise<object>;

/** An operation whose input is checked against a schema; what does not fit is refused as AWS refuses it. */
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

export interface Served {
  /** `http://127.0.0.1:<port>`. */
  readonly endpoint: string;
  close(): Promise<void>;
}

/** A request as its service's policies see it. */
export interface AwsCall {
  /** Of whoever signed the request. */
  readonly accessKeyId: string | undefined;
  /** In IAM's words, such as `sqs:SendMessage`. */
  readonly action: string;
  readonly input: unknown;
}

/** Beyond every limit of the services played here. */
const REQUEST_BYTES_MAX = 16 * 2 ** 20;

/**
 * Serves operations over AWS's JSON protocols on loopback: `POST /` with the operation in `X-Amz-Target`.
 * Signatures are not checked. https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html
 */
export async function serveAwsJson({
  version,
  target,
  service,
  operations,
  onCall,
}: {
  readonly version: '1.0' | '1.1';
  /** What stands before the dot in `X-Amz-Target`. */
  readonly target: string;
  /** What stands before the colon in IAM's actions. */
  readonly service: string;
  readonly operations: Readonly<Record<string, Operation>>;
  /** Told of every request before it is answered. */
  readonly onCall?: ((call: AwsCall) => void) | undefined;
}): Promise<Served> {
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
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
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
