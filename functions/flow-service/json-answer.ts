import { UnintelligibleAnswerError } from './errors.ts';
import { TransportError, type TransportResponse } from './transport.ts';

/** Largest response that is read into memory, in bytes. A listing of ten thousand flows takes a few million. */
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;

/** Bytes read of an error response's body: enough to quote from. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;

/**
 * The whole text of a response. Reads to its end, so that the connection can be reused.
 * @throws {UnintelligibleAnswerError} the body exceeds {@link ANSWER_BYTES_MAX}, is compressed, or is not UTF-8.
 * @throws {TransportError} the body was cut.
 */
export async function readAnswer(response: TransportResponse): Promise<string> {
  if (isCompressed(response)) {
    response.destroy();
    throw new UnintelligibleAnswerError('The answer is compressed, although the request did not allow it');
  }
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body) {
    bytes += chunk.byteLength;
    if (bytes > ANSWER_BYTES_MAX) {
      throw new UnintelligibleAnswerError(`The answer is longer than ${ANSWER_BYTES_MAX} bytes`);
    }
    chunks.push(chunk);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
  } catch (cause) {
    throw new UnintelligibleAnswerError('The answer is not UTF-8', { cause });
  }
}

/** The beginning of an error response's body. Empty if it cannot be read: the status says what matters. */
export async function readErrorBody(response: TransportResponse): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    if (!isCompressed(response)) {
      for await (const chunk of response.body) {
        chunks.push(chunk);
        bytes += chunk.byteLength;
        if (bytes > ERROR_BODY_BYTES_MAX) break;
      }
    }
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
  }
  response.destroy();
  return Buffer.concat(chunks).toString('utf8', 0, ERROR_BODY_BYTES_MAX);
}

/** Tells whether a body is compressed, although we ask for `identity`. A few bytes of gzip may become gigabytes. */
export const isCompressed = ({ headers }: TransportResponse): boolean =>
  !['', 'identity'].includes((headers['content-encoding'] ?? '').trim().toLowerCase());

/**
 * Parses JSON of limited depth.
 * @throws {Error} the text is not JSON, or its lists and objects are nested more than `depthMax` deep.
 */
export function parseJson(text: string, depthMax: number): unknown {
  // Checked before parsing: a few megabytes of brackets would become a gigabyte of arrays.
  if (depthOf(text) > depthMax) throw new Error(`The JSON is nested deeper than ${depthMax}`);
  return JSON.parse(text);
}

function depthOf(json: string): number {
  let depth = 0;
  let deepest = 0;
  let isInString = false;
  for (let at = 0; at < json.length; at += 1) {
    const character = json[at];
    if (isInString) {
      if (character === '\\') at += 1;
      else if (character === '"') isInString = false;
    } else if (character === '"') isInString = true;
    else if (character === '[' || character === '{') {
      depth += 1;
      deepest = Math.max(deepest, depth);
    } else if (character === ']' || character === '}') depth -= 1;
  }
  return deepest;
}
