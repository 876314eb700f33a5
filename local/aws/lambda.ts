import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { closeAfter, listenOnLoopback } from '../loopback.ts';
import { AwsError, signedBody } from './aws-json.ts';
import type { AwsEndpoint, EndpointAccess } from './endpoint.ts';

/** A function as the endpoint serves it. */
export interface ServedFunction {
  /** The function's own variables. */
  readonly environment: Readonly<Record<string, string>>;
  /** Rejects with the error of the handler. Its `errorType` goes into the answer. */
  invoke(event: unknown): Promise<unknown>;
}

/**
 * Serves two operations of Lambda to a client that signs its requests: `GetFunctionConfiguration`, and `Invoke` with the
 * invocation type `RequestResponse`. https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
 */
export async function serveLambda(
  functions: Readonly<Record<string, ServedFunction>>,
  access: EndpointAccess,
): Promise<AwsEndpoint> {
  const read = signedBody({ ...access, service: 'lambda' });
  const { url, close } = await listenOnLoopback(
    async (request, response, wantBody) => {
      response.setHeader('content-type', 'application/json');
      response.setHeader('x-amzn-requestid', randomUUID());
      try {
        const { accessKeyId, body } = await read(request, wantBody);
        const { name, action } = routeOf(request);
        access.onCall?.({ accessKeyId, action: `lambda:${action}`, input: { FunctionName: name } });
        await OPERATIONS[action](find(functions, name), { name, body, response });
      } catch (error) {
        refuse(response, error);
      }
    },
    { proves: access.credentials },
  );
  return { endpoint: url, close };
}

interface Asked {
  readonly name: string;
  readonly body: Buffer;
  readonly response: ServerResponse;
}

/** By the name of the IAM action. */
const OPERATIONS = {
  async GetFunctionConfiguration({ environment }: ServedFunction, { name, response }: Asked): Promise<void> {
    response.end(JSON.stringify({ FunctionName: name, Environment: { Variables: environment } }));
  },
  async InvokeFunction(served: ServedFunction, { body, response }: Asked): Promise<void> {
    const event: unknown = body.byteLength === 0 ? {} : JSON.parse(body.toString());
    try {
      response.end(JSON.stringify((await served.invoke(event)) ?? null));
    } catch (error) {
      const { errorType = 'Error', message } = error as Error & { errorType?: string };
      // An error of the handler is a success of the operation.
      response.setHeader('x-amz-function-error', 'Unhandled');
      response.end(JSON.stringify({ errorType, errorMessage: message }));
    }
  },
} as const;

const FUNCTION_PATH = /^\/2015-03-31\/functions\/([^/?]+)\/(configuration|invocations)$/;

interface Route {
  readonly name: string;
  readonly action: keyof typeof OPERATIONS;
}

function routeOf({ method, url = '' }: IncomingMessage): Route {
  const [, of = '', last] = FUNCTION_PATH.exec(url) ?? [];
  const name = decodeURIComponent(of);
  if (method === 'GET' && last === 'configuration') return { name, action: 'GetFunctionConfiguration' };
  if (method === 'POST' && last === 'invocations') return { name, action: 'InvokeFunction' };
  throw new AwsError('UnknownOperationException', `${method} ${url} is not served here`, { status: 404 });
}

function find(functions: Readonly<Record<string, ServedFunction>>, name: string): ServedFunction {
  const served = Object.hasOwn(functions, name) ? functions[name] : undefined;
  if (served !== undefined) return served;
  throw new AwsError('ResourceNotFoundException', `Function not found: ${name}`, { status: 404 });
}

/** The error's name is in a header and in the body. */
function refuse(response: ServerResponse, error: unknown): void {
  const known = error instanceof AwsError ? error : new AwsError('ServiceException', String(error), { status: 500 });
  closeAfter(response);
  response.setHeader('x-amzn-errortype', known.code);
  response.writeHead(known.status).end(JSON.stringify({ __type: known.code, message: known.message }));
}
