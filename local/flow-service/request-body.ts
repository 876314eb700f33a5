import { Refusal } from './answer.ts';
import type { BlobFolder } from './blob.ts';
import { ConnectionLostError } from './fault.ts';
import { type InputData, InputDataReader } from './input-data.ts';
import { type JsonPath, JsonReader, JsonSyntaxError, JsonTooLargeError } from './json-reader.ts';
import { essence, type Input, type Template } from './templates.ts';
import type { ServiceRequest } from './transport.ts';
import type { Variation } from './variation.ts';

const INPUTS_MAX = 1_000;

/** A complete body that is a JSON object. */
export interface Body {
  /** The JSON. In place of an input's `data` it has the index into {@link Body.data}. */
  readonly value: Readonly<Record<string, unknown>>;
  readonly data: readonly (InputData | undefined)[];
  /** Drops the inputs. Call it if no flow was created with them. */
  discard(): void;
}

/**
 * Reads a body to its end before any part of it is validated, as services do.
 * @throws {Refusal} the body is not JSON, is too large, or is not an object.
 * @throws {ConnectionLostError} the body ended early.
 */
export async function readBody(
  request: ServiceRequest,
  isLong: (path: JsonPath) => boolean,
  folder: BlobFolder,
  { invalidJsonStatus }: Readonly<Variation>,
): Promise<Body> {
  if (essence(request.headers['content-type'] ?? '') !== 'application/json') {
    throw new Refusal(415, 'The body must be application/json');
  }
  const reader = new JsonReader(isLong, () => new InputDataReader(folder));
  const discard = () => {
    for (const sink of reader.sinks) sink.discard();
  };
  try {
    const value = await readJson(request, reader);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new Refusal(422, [{ loc: ['body'], msg: 'must be an object', type: 'value_error' }]);
    }
    return { value: value as Record<string, unknown>, data: reader.sinks.map((sink) => sink.result), discard };
  } catch (error) {
    discard();
    if (error instanceof JsonTooLargeError) throw new Refusal(413, error.message);
    if (!(error instanceof JsonSyntaxError)) throw error;
    throw new Refusal(invalidJsonStatus, [{ loc: ['body'], msg: error.message, type: 'json_invalid' }]);
  }
}

async function readJson(request: ServiceRequest, reader: JsonReader<InputDataReader>): Promise<unknown> {
  const expected = contentLength(request);
  let received = 0;
  let syntaxError: JsonSyntaxError | undefined;
  for await (const chunk of request.body) {
    received += chunk.length;
    if (received > expected) throw new Refusal(400, 'The body is longer than its Content-Length');
    if (syntaxError !== undefined) continue;
    try {
      reader.push(chunk);
    } catch (error) {
      if (!(error instanceof JsonSyntaxError)) throw error;
      syntaxError = error;
    }
  }
  // Over HTTP the connection would be gone by now. Within a process only this check finds a short body.
  if (Number.isFinite(expected) && received < expected) throw new ConnectionLostError('reset');
  if (syntaxError !== undefined) throw syntaxError;
  return reader.end();
}

/** The request's `Content-Length`, or infinity without one. */
export function contentLength({ headers }: ServiceRequest): number {
  const length = headers['content-length'];
  return length === undefined ? Number.POSITIVE_INFINITY : Number(length);
}

/** `inputs[].data` */
export function isDataOfInputs(path: JsonPath): boolean {
  return path.length === 3 && path[0] === 'inputs' && typeof path[1] === 'number' && path[2] === 'data';
}

/** `data` */
export function isDataOfInput(path: JsonPath): boolean {
  return path.length === 1 && path[0] === 'data';
}

/** Reports a validation error of the body at `loc`. */
export type Problem = (loc: JsonPath, msg: string) => void;

export function inputsOf(
  inputs: unknown,
  template: Template,
  data: readonly (InputData | undefined)[],
  problem: Problem,
): Input[] {
  if (inputs === undefined || inputs === null) return [];
  if (!Array.isArray(inputs)) {
    problem(['inputs'], 'must be a list');
    return [];
  }
  if (inputs.length > INPUTS_MAX) problem(['inputs'], `must be at most ${INPUTS_MAX}`);
  return inputs.flatMap(
    (input, i) => inputOf(input, template, data, (loc, msg) => problem(['inputs', i, ...loc], msg)) ?? [],
  );
}

/** Validates one input of the body. Returns undefined after a problem. */
export function inputOf(
  input: unknown,
  template: Template,
  data: readonly (InputData | undefined)[],
  problem: Problem,
): Input | undefined {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    problem([], 'must be an object');
    return undefined;
  }
  const { data: reference, additional } = input as { data?: unknown; additional?: unknown };
  const received = typeof reference === 'string' ? data[Number(reference)] : undefined;
  if (received === undefined) {
    problem(['data'], reference === undefined ? 'Field required' : 'must be a string');
    return undefined;
  }
  if (!received.ok) {
    problem(['data'], received.why);
    return undefined;
  }
  const { mediaType, blob } = received;
  if (template.inputTypes.length > 0 && !template.inputTypes.includes(essence(mediaType))) {
    problem(['data'], `${template.name} accepts ${template.inputTypes.join(', ')}, not ${mediaType}`);
    return undefined;
  }
  return { mediaType, blob, additional };
}
