import { pipeline, Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip } from 'node:zlib';
import { codingsOf, essenceOf } from '../base/media-type.ts';
import { type TransportResponse, watched } from './transport.ts';

/** The codings that are undone. We ask for none, but stores keep what was put as `gzip`, and proxies compress all. */
const DECODERS = new Map([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['br', createBrotliDecompress],
]);

/** A body cannot be decoded. */
export class CodingError extends Error {
  override readonly name = 'CodingError';
}

/**
 * The codings of a body. Some servers say of a file that is gzip itself that this is its coding too. Like browsers, we
 * leave such a file as it is.
 */
function codingsIn({ headers }: TransportResponse): readonly string[] {
  const codings = codingsOf(headers['content-encoding']);
  const isOfGzip = /^application\/(?:x-)?(?:gzip|tgz)$/.test(essenceOf(headers['content-type'] ?? ''));
  const isItself = isOfGzip && codings.length === 1 && DECODERS.get(codings[0] ?? '') === createGunzip;
  // Node undoes the chunks of a `Transfer-Encoding`, and no compression in it.
  return [...(isItself ? [] : codings), ...codingsOf(headers['transfer-encoding'])];
}

/** Tells whether a body has a coding, although we ask for `identity`. Then its length is not that of what is in it. */
export const isCompressed = (response: TransportResponse): boolean => codingsIn(response).length > 0;

/**
 * The bytes of a response without its `Content-Encoding`. A few bytes may become gigabytes, so the reader must have a
 * limit. Leaving the loop early destroys the connection.
 * @param body that of the response, perhaps watched.
 * @throws {CodingError} the coding is an unknown one, or the bytes do not fit it, or are cut.
 * @throws any error of `body`.
 */
export async function* decodedBody(
  response: TransportResponse,
  body: AsyncIterable<Uint8Array> = response.body,
): AsyncGenerator<Uint8Array, void> {
  const codings = codingsIn(response);
  const [coding, ...more] = codings;
  if (coding === undefined) return yield* body;
  // A second coding may hide any amount of bytes from every limit.
  const create = more.length > 0 ? undefined : DECODERS.get(coding);
  if (create === undefined) {
    response.destroy();
    throw new CodingError(`The answer is compressed (${codings.join(', ')}), and only gzip and br are undone`);
  }
  let failure: unknown;
  let isEmpty = true;
  async function* encoded() {
    for await (const chunk of body) {
      isEmpty &&= chunk.byteLength === 0;
      yield chunk;
    }
  }
  const source = Readable.from(watched(encoded(), (error) => (failure ??= { error })));
  const decoder = create();
  pipeline(source, decoder, () => {}); // Ends both if one fails. The loop below gets the error.
  try {
    yield* decoder;
  } catch (error) {
    if (failure !== undefined) throw (failure as { readonly error: unknown }).error;
    // Some proxies name a coding for an answer without a body as well.
    if (isEmpty) return;
    throw new CodingError(`The answer is no ${coding}, or is cut: ${(error as Error).message}`, { cause: error });
  } finally {
    decoder.destroy();
    // The source may wait for the next bytes, and would close the connection only then. One that was read to its end stays.
    response.destroy();
  }
}
