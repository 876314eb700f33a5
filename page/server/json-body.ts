import type { IncomingMessage } from 'node:http';
import * as z from 'zod/mini';
import { invalid, PageError } from './answers.ts';

/** Maximum size of a body of JSON, in bytes: 10,000 keys of the longest kind, escaped, are about as long. */
const BODY_BYTES_MAX = 32 * 1024 * 1024;

/**
 * Reads a body.
 * @throws {PageError} it is too large, no JSON, or not of that form. The message names what is wrong.
 */
export async function jsonBody<T>(request: IncomingMessage, schema: z.ZodMiniType<T>): Promise<T> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.byteLength;
    if (bytes <= BODY_BYTES_MAX) chunks.push(chunk);
  }
  if (bytes > BODY_BYTES_MAX) {
    throw new PageError({ status: 413, code: 'too-large' }, `A request may have ${BODY_BYTES_MAX} bytes at most.`);
  }
  const { success, data, error } = z.safeParse(schema, parsed(Buffer.concat(chunks)));
  if (success) return data;
  const [issue] = error.issues;
  const where = issue === undefined || issue.path.length === 0 ? 'the request' : issue.path.join('.');
  throw invalid(`The request cannot be understood: ${where}: ${issue?.message ?? 'unknown'}.`);
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    throw invalid('The request is not JSON.');
  }
}
