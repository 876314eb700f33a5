import { isTelling, OCTET_STREAM, typeOfName } from '../base/media-type.ts';
import { Base64Decoder, Block, PercentDecoder, PIECE_CHARS_MAX } from './data-decoders.ts';
import { type Envelope, EnvelopeScanner } from './envelope-scanner.ts';
import { AssetTooLargeError, DamagedAssetError, NotAnAssetError } from './errors.ts';
import { isPage } from './foreign-answer.ts';
import { GatheredBytes } from './json-answer.ts';
import { closingQuote, lengthWithoutCutEscape, unescaped } from './json-string.ts';
import { canonicalMediaType, SIGNATURE_BYTES, typeOfBytes } from './media-type.ts';
import type { Asset } from './types.ts';

/** Bytes of a plain asset that are looked at to recognise a page. A page may begin with white space. */
const PAGE_HEAD_BYTES_MAX = 1024;

const BYTE_ORDER_MARK_BYTES = 3;

/** Media type of a data URI that names none, if no name of the asset tells it (RFC 2397, section 2). */
const URI_MEDIA_TYPE_DEFAULT = 'text/plain;charset=US-ASCII';

/** Maximum number of bytes that may follow the data URI in its envelope. They are held until the end, to be checked. */
const ENVELOPE_TAIL_BYTES_MAX = 1024 * 1024;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

interface AnswerFacts {
  /** The `Content-Type`. Undefined if the response has none. */
  readonly mediaType: string | undefined;
  /** Names of the asset, the most telling one first: their extensions tell its type if nothing else does. */
  readonly names?: readonly string[] | undefined;
  /** The token, which no media type may hold. */
  readonly secret?: string | undefined;
  /** The `Content-Length`. Undefined if the response has none. */
  readonly length?: number | undefined;
  /** True if HTTP marks the end of the body, by its length or by chunks. */
  readonly isDelimited: boolean;
  /** True if the asset may be an HTML page. Default false. */
  readonly mayBePage?: boolean | undefined;
  readonly assetBytesMax: number;
  /** Called when the data begins, and as more of it comes, with a count of the asset's bytes. */
  readonly onData?: ((bytes: number) => void) | undefined;
}

/**
 * Reads an asset from the body of its response.
 *
 * If the response is a JSON object whose member `data` is a data URI that begins within {@link SCAN_BYTES_MAX}, it is
 * an envelope. Then the asset is the data of the URI, decoded on the fly. Any other response is the asset as it came,
 * also if it is JSON.
 *
 * An envelope proves by itself that it is whole: the parts before and after the data are kept, and together they must
 * be JSON. This detects a cut envelope and any bytes behind its end. A plain asset is whole according to its length or
 * its chunks. A plain asset with neither is rejected.
 *
 * If its media type says nothing, the extension of a name of it decides, and then its first bytes.
 *
 * A plain asset that is an HTML page is rejected, unless it may be one: a proxy in front of the service answers
 * with a page and 200. No proxy knows the form of the envelope, so the data in it may be a page.
 * @throws {NotAnAssetError}
 * @throws {DamagedAssetError} the beginning is already damaged. See {@link Asset.chunks} for the rest.
 * @throws any error of `body`, here and in the chunks.
 */
export async function assetOf(body: AsyncIterable<Uint8Array>, facts: AnswerFacts): Promise<Asset> {
  const incoming = wholeBody(body, facts.length);
  const scanner = new EnvelopeScanner();
  const { onData = () => {} } = facts;
  try {
    for (;;) {
      const next = await incoming.next();
      const found = next.done === true ? scanner.end() : scanner.push(bufferOf(next.value));
      if (found === undefined) continue;
      if (found.is === 'asset' && !facts.isDelimited) {
        throw new DamagedAssetError('The answer does not say where it ends, so a cut one would look whole');
      }
      const said = (found.is === 'asset' ? facts : found).mediaType;
      const mediaType = canonicalMediaType(said, facts.secret);
      const unnamed = found.is === 'envelope' && said === undefined ? URI_MEDIA_TYPE_DEFAULT : undefined;
      const chunks =
        found.is === 'asset'
          ? following(await beginningOf(found.received, incoming, mediaType, facts), incoming, onData)
          : decoded(found, incoming, onData);
      onData(0);
      return {
        bytesMax: facts.length,
        ...(await typed(mediaType, facts.names ?? [], limited(chunks, facts.assetBytesMax), unnamed)),
      };
    }
  } catch (error) {
    await incoming.return();
    throw error;
  }
}

/**
 * The type of an asset, and its chunks. Reads the first of them only if neither type nor names say what it is.
 * @param unnamed the type if no name tells it. Default: what the first bytes say.
 */
async function typed(
  mediaType: string,
  names: readonly string[],
  chunks: AsyncGenerator<Uint8Array, void>,
  unnamed: string | undefined,
): Promise<Pick<Asset, 'mediaType' | 'chunks'>> {
  if (isTelling(mediaType)) return { mediaType, chunks };
  const named = names.map((name) => typeOfName(name) ?? '').find(isTelling) ?? unnamed;
  if (named !== undefined) return { mediaType: named, chunks };
  let beginning = Buffer.alloc(0);
  while (beginning.byteLength < SIGNATURE_BYTES) {
    const next = await chunks.next();
    if (next.done === true) break;
    // Copied, because the producer may reuse the chunk.
    beginning = Buffer.concat([beginning, next.value]);
  }
  return { mediaType: typeOfBytes(beginning) ?? OCTET_STREAM, chunks: rejoined(beginning, chunks) };
}

async function* rejoined(beginning: Buffer, rest: AsyncGenerator<Uint8Array, void>): AsyncGenerator<Uint8Array> {
  try {
    if (beginning.byteLength > 0) yield beginning;
    yield* rest;
  } finally {
    await rest.return();
  }
}

async function* wholeBody(
  body: AsyncIterable<Uint8Array>,
  length: number | undefined,
): AsyncGenerator<Uint8Array, void> {
  let received = 0;
  for await (const chunk of body) {
    received += chunk.byteLength;
    yield chunk;
  }
  if (length !== undefined && received !== length) {
    throw new DamagedAssetError(`The answer has ${received} bytes instead of the ${length} that it announced`);
  }
}

/**
 * The chunks received of a plain asset, with as many more as tell that it is no page.
 * @throws {NotAnAssetError}
 */
async function beginningOf(
  received: readonly Uint8Array[],
  incoming: AsyncGenerator<Uint8Array, void>,
  mediaType: string,
  { mayBePage = false }: AnswerFacts,
): Promise<readonly Uint8Array[]> {
  if (mayBePage) return received;
  const chunks = [...received];
  for (;;) {
    const bytes = chunks.reduce((sum, { byteLength }) => sum + byteLength, 0);
    const text = Buffer.concat(chunks, Math.min(bytes, PAGE_HEAD_BYTES_MAX)).toString();
    // The result must not depend on the pieces in which the answer comes. Even a byte order mark may be cut.
    const isOpen = bytes < PAGE_HEAD_BYTES_MAX && (bytes <= BYTE_ORDER_MARK_BYTES || /^\s*(?:<|$)/.test(text));
    const next = isOpen ? await incoming.next() : undefined;
    if (next !== undefined && next.done !== true) chunks.push(next.value);
    else if (isPage(mediaType, text)) throw pageError(mediaType);
    else return chunks;
  }
}

const pageError = (mediaType: string): NotAnAssetError =>
  new NotAnAssetError(
    `An HTML page (${mediaType}) came in place of the asset. Check what stands before the service and its ` +
      'assets: a proxy, a login. If the template makes pages, name it in settings.htmlTemplates.',
  );

async function* following(
  received: readonly Uint8Array[],
  incoming: AsyncGenerator<Uint8Array, void>,
  onData: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  try {
    for (const chunk of received) if (chunk.byteLength > 0) yield chunk;
    for await (const chunk of incoming) {
      bytes += chunk.byteLength;
      onData(bytes);
      yield chunk;
    }
  } finally {
    await incoming.return();
  }
}

async function* limited(chunks: AsyncIterable<Uint8Array>, bytesMax: number): AsyncGenerator<Uint8Array, void> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) throw new AssetTooLargeError(`The asset is larger than the ${bytesMax} bytes allowed`);
    yield chunk;
  }
}

/** Yields the bytes of the data URI in an envelope. Then checks that the envelope is whole. */
async function* decoded(
  { head, rest, isBase64 }: Envelope,
  incoming: AsyncGenerator<Uint8Array, void>,
  onData: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  const block = new Block();
  const decoder = isBase64 ? new Base64Decoder(block) : new PercentDecoder(block);
  try {
    let bytes = rest;
    let at = 0;
    for (let isOpen = true; isOpen; ) {
      if (block.isNearlyFull) yield block.take();
      const piece = bytes.subarray(at, at + PIECE_CHARS_MAX);
      const quote = piece.indexOf(QUOTE);
      const plain = quote === -1 ? piece : piece.subarray(0, quote);
      let taken: number;
      if (!plain.includes(BACKSLASH)) {
        decoder.write(plain.toString('latin1'), false);
        taken = plain.byteLength;
        isOpen = quote === -1;
      } else {
        const end = closingQuote(piece);
        taken = end ?? lengthWithoutCutEscape(piece);
        const text = unescaped(piece.toString('latin1', 0, taken));
        if (text === undefined) throw new DamagedAssetError('The data is not a JSON string');
        decoder.write(text, true);
        isOpen = end === undefined;
      }
      at += taken;
      if (isOpen && (taken === 0 || at === bytes.byteLength)) {
        onData(block.bytesWritten);
        const next = await incoming.next();
        if (next.done === true) throw new DamagedAssetError('The answer ends within its data');
        const chunk = bufferOf(next.value);
        // Any bytes left over are the beginning of an escape. The next chunk completes it.
        bytes = at === bytes.byteLength ? chunk : Buffer.concat([bytes.subarray(at), chunk]);
        at = 0;
      }
    }
    decoder.end();
    if (!block.isEmpty) yield block.take();
    checkEnvelope(head, await tailOf(bytes.subarray(at), incoming));
  } finally {
    await incoming.return();
  }
}

/** Reads the JSON behind the data, up to the end of the response. */
async function tailOf(received: Buffer, incoming: AsyncGenerator<Uint8Array, void>): Promise<string> {
  const tail = new GatheredBytes(ENVELOPE_TAIL_BYTES_MAX);
  const add = (chunk: Uint8Array): void => {
    if (!tail.add(chunk)) throw new DamagedAssetError(`More than ${ENVELOPE_TAIL_BYTES_MAX} bytes follow the data`);
  };
  add(received);
  for await (const chunk of incoming) add(chunk);
  return tail.bytes.toString('latin1');
}

/**
 * Checks that `head` and `tail` are JSON around one member `data`. It tries two values. If `data` does not take both,
 * another member of the same name follows.
 */
function checkEnvelope(head: string, tail: string): void {
  for (const data of ['', '-']) {
    let envelope: { readonly data?: unknown };
    try {
      // In Latin-1, every byte of a string stays one character. Outside of strings, JSON is ASCII.
      envelope = JSON.parse((head + data + tail).replace(/^\xef\xbb\xbf/, ''));
    } catch (cause) {
      throw new DamagedAssetError('The answer is not whole: the text around its data is not JSON', { cause });
    }
    if (envelope.data !== data) throw new DamagedAssetError('The answer has its data twice');
  }
}

const bufferOf = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
