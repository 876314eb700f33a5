import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import * as z from 'zod/mini';
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

/** An event source mapping as the endpoint serves it. */
export interface ServedMapping {
  readonly id: string;
  /** The name of the function that it invokes. */
  readonly functionName: string;
  /** The mapping as `GetEventSourceMapping` answers. */
  describe(): object;
  /** Begins the change and returns the mapping as it is then. @throws {AwsError} it is being changed already. */
  update(change: { readonly Enabled?: boolean | undefined }): object;
}

/**
 * Serves four operations of Lambda to a client that signs its requests: `GetFunctionConfiguration`; `Invoke` with the
 * invocation type `RequestResponse`; and `GetEventSourceMapping` and `UpdateEventSourceMapping`, which changes
 * `Enabled` alone. https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
 * https://docs.aws.amazon.com/lambda/latest/api/API_UpdateEventSourceMapping.html
 */
export async function serveLambda(
  {
    functions,
    mapping,
  }: { readonly functions: Readonly<Record<string, ServedFunction>>; readonly mapping: ServedMapping },
  access: EndpointAccess,
): Promise<AwsEndpoint> {
  const read = signedBody({ ...access, service: 'lambda' });
  const { url, close } = await listenOnLoopback(
    async (request, response, wantBody) => {
      response.setHeader('content-type', 'application/json');
      response.setHeader('x-amzn-requestid', randomUUID());
      try {
        const { accessKeyId, body } = await read(request, wantBody);
        const route = routeOf(request);
        const { kind, name, action } = route;
        const input = kind === 'function' ? { FunctionName: name } : { UUID: name, FunctionName: mapping.functionName };
        access.onCall?.({ accessKeyId, action: `lambda:${action}`, input });
        if (route.kind === 'function') {
          await OF_FUNCTIONS[route.action](find(functions, name), { name, body, response });
        } else if (name === mapping.id) {
          const answer = OF_MAPPINGS[route.action](mapping, body);
          // An update is accepted, and made afterwards.
          response.writeHead(route.action === 'UpdateEventSourceMapping' ? 202 : 200).end(JSON.stringify(answer));
        } else {
          throw new AwsError('ResourceNotFoundException', 'The resource you requested does not exist.', {
            status: 404,
          });
        }
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
const OF_FUNCTIONS = {
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

const updateSchema = z.strictObject({ Enabled: z.optional(z.boolean()) });

/** The same for event source mappings. */
const OF_MAPPINGS = {
  GetEventSourceMapping: (mapping: ServedMapping): object => mapping.describe(),
  UpdateEventSourceMapping(mapping: ServedMapping, body: Buffer): object {
    const { success, data, error } = updateSchema.safeParse(JSON.parse(body.toString()));
    if (!success) throw new AwsError('InvalidParameterValueException', z.prettifyError(error));
    return mapping.update(data);
  },
} as const;

const FUNCTION_PATH = /^\/2015-03-31\/functions\/([^/?]+)\/(configuration|invocations)$/;
const MAPPING_PATH = /^\/2015-03-31\/event-source-mappings\/([^/?]+)$/;

type Route =
  | { readonly kind: 'function'; readonly name: string; readonly action: keyof typeof OF_FUNCTIONS }
  | { readonly kind: 'mapping'; readonly name: string; readonly action: keyof typeof OF_MAPPINGS };

function routeOf({ method, url = '' }: IncomingMessage): Route {
  const [, of = '', last] = FUNCTION_PATH.exec(url) ?? [];
  const [, mapping] = MAPPING_PATH.exec(url) ?? [];
  const name = decodeURIComponent(mapping ?? of);
  if (mapping !== undefined && method === 'GET') return { kind: 'mapping', name, action: 'GetEventSourceMapping' };
  if (mapping !== undefined && method === 'PUT') return { kind: 'mapping', name, action: 'UpdateEventSourceMapping' };
  if (method === 'GET' && last === 'configuration') {
    return { kind: 'function', name, action: 'GetFunctionConfiguration' };
  }
  if (method === 'POST' && last === 'invocations') return { kind: 'function', name, action: 'InvokeFunction' };
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
