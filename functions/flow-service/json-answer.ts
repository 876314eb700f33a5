import { UnintelligibleAnswerError } from './errors.ts';
import type { TransportResponse } from './transport.ts';

/** Largest answer that is read whole, in bytes: a listing of ten thousand flows has a few million. */
export const ANSWER_BYTES_MAX = 16 * 1024 * 1024;

/**
 * The text of an answer, whole. It is read to its end, so that the connection can be used again.
 * @throws {UnintelligibleAnswerError} more than {@link ANSWER_BYTES_MAX}, compressed, or not UTF-8.
 * @throws {TransportError} it was cut.
 */
export async function readAnswer(response: TransportResponse): Promise<string> {
  if (isEncoded(response)) {
    response.destroy();
    throw new UnintelligibleAnswerError('The answer is compressed, which was not asked for');
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

/** Whether a body is something else than it will be taken for: a few bytes of gzip may be gigabytes. */
export const isEncoded = ({ headers }: TransportResponse): boolean =>
  !['', 'identity'].includes((headers['content-encoding'] ?? '').trim().toLowerCase());

/**
 * What JSON says.
 * @throws {Error} it is not JSON, or its lists and objects are nested more than `depthMax` deep.
 */
export function parseJson(text: string, depthMax: number): unknown {
  // Before parsing: a few megabytes of brackets would become a gigabyte of arrays.
  if (depthOf(text) > depthMax) throw new Error(`It is nested deeper than ${depthMax}`);
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
