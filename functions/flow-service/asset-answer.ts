import { essenceOf, isTelling, OCTET_STREAM, typeOfName } from '../base/media-type.ts';
import { startOf } from './answers.ts';
import { Base64Decoder, Block, PercentDecoder, PIECE_CHARS_MAX } from './data-decoders.ts';
import { ENVELOPE_BYTES_MAX, ENVELOPE_TEXT_BYTES_MAX, type Envelope, EnvelopeScanner } from './envelope-scanner.ts';
import { AssetTooLargeError, DamagedAssetError, EmptyAssetError, NotAnAssetError } from './errors.ts';
import { isPage } from './foreign-answer.ts';
import { GatheredBytes, parsedJson } from './json-answer.ts';
import { at as valueAt } from './json-pointer.ts';
import { BACKSLASH, closingQuote, lengthWithoutCutEscape, QUOTE, unescaped } from './json-string.ts';
import { LongTexts } from './long-texts.ts';
import { canonicalMediaType, isNeverText, SIGNATURE_BYTES, typeOfBytes } from './media-type.ts';
import { redact } from './redact.ts';
import type { Asset } from './types.ts';

/** Bytes of an asset that are looked at to tell its type, or what came in its place. Error documents have less. */
const HEAD_BYTES_MAX = 4 * 1024;

/** Takes each answer for the asset itself. */
const PLAIN: Pick<EnvelopeScanner, 'push' | 'end'> = {
  push: (chunk) => ({ is: 'asset', received: [chunk] }),
  end: () => ({ is: 'asset', received: [] }),
};

/** Media type of a data URI that names none, if neither a name nor the bytes tell it (RFC 2397, section 2). */
const URI_MEDIA_TYPE_DEFAULT = 'text/plain;charset=US-ASCII';

/** Nothing is no asset, whatever the route declares. */
const NOTHING = 'Nothing came in place of the asset: it has no bytes';

/** Longest quotation of what came in place of an asset, in characters. */
const QUOTE_CHARS_MAX = 200;

interface AnswerFacts {
  /** Pointer to the data URI of an asset that comes in JSON. Undefined if each answer is the asset itself. */
  readonly data?: string | undefined;
  /** True if there may be bare base64. */
  readonly isBare?: boolean | undefined;
  /** Fetches the asset from an address at that pointer. */
  readonly elsewhere?: ((address: string) => Promise<Asset>) | undefined;
  /** True if the answer must be an envelope: the same request was answered with one. */
  readonly isEnvelope?: boolean | undefined;
  /** The `Content-Type`. Undefined if the response has none. */
  readonly mediaType: string | undefined;
  /** Names of the asset, the most telling one first: their extensions tell its type if nothing else does. */
  readonly names: readonly string[];
  /** The token, which no media type and no quotation may hold. */
  readonly secret?: string | undefined;
  /** The `Content-Length`. Undefined if the response has none. */
  readonly length?: number | undefined;
  /** True if HTTP marks the end of the body, by its length or by chunks. */
  readonly isDelimited: boolean;
  /** Tells whether an asset may have a media type. Default: any type but that of a document. */
  readonly accepts?: ((mediaType: string) => boolean) | undefined;
  readonly assetBytesMax: number;
  /**
   * Called when the data begins, and as more of it comes, with a count of the asset's bytes, and of those behind it in an
   * envelope. In an answer that must be an envelope, those before it count too.
   */
  readonly onData?: ((bytes: number) => void) | undefined;
}

/**
 * Reads an asset from the body of its response.
 *
 * If the response is JSON with a data URI at the pointer `data`, which begins within {@link SCAN_BYTES_MAX}, it is an
 * envelope. Then the asset is the data of the URI, decoded on the fly. Any other response is the asset as it came,
 * also if it is JSON. If it must be an envelope, the data may begin behind texts of any length.
 *
 * An envelope proves by itself that it is whole: the parts before and after the data are kept, and together they must
 * be JSON. This detects a cut envelope and any bytes behind its end. A plain asset is whole according to its length or
 * its chunks. A plain asset with neither is rejected.
 *
 * If its media type says nothing, or is that of a text or document and the bytes are none, the extension of a name of it
 * decides, and then its first bytes.
 *
 * If a short answer has an address at the pointer in place of a data URI, the asset is there.
 *
 * A plain asset that is a document is rejected, unless it is declared: services and proxies answer with 200 and a page, an
 * error or a progress in JSON or XML, an address, or nothing. None of them knows the form of the envelope, so the data in
 * it may be a document.
 * @throws {NotAnAssetError}
 * @throws {DamagedAssetError} the beginning is already damaged. See {@link Asset.chunks} for the rest.
 * @throws any error of `body`, here and in the chunks.
 */
export async function assetOf(body: AsyncIterable<Uint8Array>, facts: AnswerFacts): Promise<Asset> {
  const incoming = wholeBody(body, facts.length);
  const { data, isEnvelope = false } = facts;
  const scanner = data === undefined ? PLAIN : new EnvelopeScanner(data, isEnvelope, facts.isBare);
  let bytesBefore = 0;
  const onData = (bytes: number): void => facts.onData?.(bytesBefore + bytes);
  try {
    let found: ReturnType<EnvelopeScanner['push']>;
    do {
      const next = await incoming.next();
      if (next.done === true) {
        found = scanner.end();
        break;
      }
      found = scanner.push(bufferOf(next.value));
      if (found === undefined && isEnvelope) {
        bytesBefore += next.value.byteLength;
        onData(0);
      }
    } while (found === undefined);
    if (found.is === 'asset' && !facts.isDelimited) {
      throw new DamagedAssetError('The answer does not say where it ends, so a cut one would look whole');
    }
    if (found.is === 'asset' && (facts.length ?? 0) > facts.assetBytesMax) throw tooLarge(facts.assetBytesMax);
    const said = (found.is === 'asset' ? facts : found).mediaType;
    const spelled = canonicalMediaType(said, facts.secret);
    const unnamed = found.is === 'envelope' && said === undefined ? URI_MEDIA_TYPE_DEFAULT : undefined;
    const types = [spelled, ...facts.names.map((name) => typeOfName(name) ?? '')].filter(isTelling);
    const head = found.is === 'asset' ? await headOf(found.received, incoming) : undefined;
    if (head?.isAll && head.chunks.every(({ byteLength }) => byteLength === 0)) throw new EmptyAssetError(NOTHING);
    const raw =
      head === undefined ? decoded(found as Envelope, incoming, onData) : following(head.chunks, incoming, onData);
    let chunks = limited(raw, facts.assetBytesMax);
    let mediaType = types[0];
    if (mediaType === undefined || isOfText(mediaType)) {
      const beginning = head ?? (await headOf([], chunks));
      if (head === undefined) chunks = following(beginning.chunks, chunks);
      mediaType = typeOf(types, beginning, unnamed);
    }
    const address = head?.isAll === true && data !== undefined ? addressIn(textOf(head), data) : undefined;
    if (address !== undefined && facts.elsewhere !== undefined) {
      await incoming.return();
      return await facts.elsewhere(address);
    }
    const instead = head === undefined ? undefined : documentIn(head, mediaType, spelled, facts.accepts !== undefined);
    if (facts.accepts === undefined ? instead !== undefined : !facts.accepts(instead?.mediaType ?? mediaType)) {
      await chunks.return();
      throw notAnAsset(instead, mediaType, head, facts.secret);
    }
    onData(0);
    return { bytesMax: facts.length, mediaType, chunks };
  } catch (error) {
    await incoming.return();
    throw error;
  }
}

/** The address at a pointer of an answer in JSON. Undefined if there is none. */
function addressIn(text: string, pointer: string): string | undefined {
  const value = isJsonDocument(text) ? valueAt(parsedJson(text), pointer) : undefined;
  return typeof value === 'string' && /^https?:/i.test(value) ? value : undefined;
}

/** True for a type whose files are text, as that of a document. Servers and gateways also give them to other files. */
const isOfText = (mediaType: string): boolean => isPlainText(mediaType) || isDocument(mediaType);

const isPlainText = (mediaType: string): boolean => essenceOf(mediaType) === 'text/plain';

/** No document begins as the files do whose first bytes tell their type, such as a PDF. */
const isDocument = (mediaType: string): boolean =>
  isPage(mediaType, '') || [...JSON_TYPES, ...XML_TYPES, SCRIPT_TYPE].includes(essenceOf(mediaType));

/**
 * The first type that counts. That of a text or document does only if the bytes may be one.
 * @param types what came with the asset, and what its names stand for.
 * @param unnamed the type if nothing else tells it, and the bytes may be text.
 */
function typeOf(types: readonly string[], { bytes, mayBeText }: Head, unnamed: string | undefined): string {
  const told = typeOfBytes(bytes);
  const counts = (type: string): boolean => !isOfText(type) || (mayBeText && (told === undefined || !isDocument(type)));
  const otherwise = types.find(isPlainText) ?? (mayBeText ? unnamed : undefined);
  return types.find(counts) ?? told ?? otherwise ?? OCTET_STREAM;
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

/** The beginning of an asset. */
interface Head {
  readonly chunks: readonly Uint8Array[];
  /** At most {@link HEAD_BYTES_MAX} bytes. If they may not be text, at least {@link SIGNATURE_BYTES}, or all. */
  readonly bytes: Buffer;
  readonly mayBeText: boolean;
  /** True if the asset has no more bytes. */
  readonly isAll: boolean;
}

/** The beginning of a document or of UTF-16. Such bytes may be text all the same if they have control characters. */
const TEXT_BEGINNING = /^(?:\xff\xfe|\xfe\xff|\s*[<{[])/;

const isMaybeText = (bytes: Buffer): boolean =>
  bytes.every((byte) => byte > 8) || TEXT_BEGINNING.test(bytes.toString('latin1'));

/** Reads on while the bytes may be text. What the head tells does not depend on the pieces in which the answer comes. */
async function headOf(received: readonly Uint8Array[], incoming: AsyncGenerator<Uint8Array, void>): Promise<Head> {
  const chunks = [...received];
  for (;;) {
    const length = chunks.reduce((sum, { byteLength }) => sum + byteLength, 0);
    const bytes = Buffer.concat(chunks, Math.min(length, HEAD_BYTES_MAX));
    const mayBeText = isMaybeText(bytes);
    const isEnough = mayBeText ? length > HEAD_BYTES_MAX : length >= SIGNATURE_BYTES;
    const next = isEnough ? undefined : await incoming.next();
    if (next === undefined || next.done === true) return { chunks, bytes, mayBeText, isAll: next !== undefined };
    // Copied, because the producer may reuse the chunk.
    chunks.push(Buffer.from(next.value));
  }
}

/** The head as text without a byte order mark. A character that is cut at its end does not count. */
const textOf = ({ bytes, isAll }: Head): string => new TextDecoder().decode(bytes, { stream: !isAll });

/** What came in place of an asset, and the media type that a route may declare for it. */
interface Instead {
  readonly what: string;
  readonly mediaType: string;
}

/** An address alone, a data URI, or base64 without anything but quotes around it. */
const ADDRESS = /^\s*"?https?:\/\/\S+\s*$/i;
const DATA_URI = /^\s*"?data:[^,]{0,255},/i;
const BASE64 = /^\s*"?[A-Za-z0-9+/_-]{200,}={0,2}"?\s*$/;

/** The beginning of JSON, and the types whose files never begin so. */
const JSON_BEGINNING = /^\s*(?:\[\s*)?\{\s*"[^"\\]*"\s*:/;
const NEVER_JSON = /^(?:(?:image|audio|video|font|model)\/(?!.*\+(?:json|xml)$)|application\/octet-stream$)/;

/** The types of files that may be JSON as a whole. */
const OWN_JSON = /[+/](?:x-)?(?:nd)?json(?:5|l|lines|-seq)?$/;

const JSON_TYPES: readonly string[] = ['application/json', 'application/problem+json'];
const XML_TYPES: readonly string[] = ['application/xml', 'text/xml', 'application/problem+xml'];

/** The type of `download.php`, which is the name of a script, and not of what it sends. */
const SCRIPT_TYPE = 'application/x-httpd-php';

/**
 * The document that came in place of an asset, by its media type or its content. JSON and XML of other types, such as
 * `model/gltf+json`, `application/x-ndjson` and `image/svg+xml`, are assets. A gateway may give the type of the asset to its base64.
 * @param spelled the type that came with it. Its name may have told another one since.
 * @param isDeclared true if the route declares what it makes. Only then is a text checked that bears another type.
 */
function documentIn(head: Head, mediaType: string, spelled: string, isDeclared: boolean): Instead | undefined {
  const says = essenceOf(spelled);
  // A file stands in it, between other parts and their headers.
  if (says.startsWith('multipart/')) return { what: 'Several parts', mediaType: says };
  if (!head.mayBeText) return undefined;
  const { isAll } = head;
  const text = textOf(head);
  const essence = essenceOf(mediaType);
  if (isPage(mediaType, text)) return { what: 'An HTML page', mediaType: 'text/html' };
  const isOfJson = JSON_TYPES.includes(essence);
  const isWholeJson = isAll && !OWN_JSON.test(essence) && isJsonDocument(text);
  if (isOfJson || isWholeJson || (!isAll && NEVER_JSON.test(essence) && JSON_BEGINNING.test(text))) {
    return { what: 'JSON', mediaType: isOfJson ? essence : 'application/json' };
  }
  const isOfXml = XML_TYPES.includes(essence);
  if (
    isOfXml ||
    (isAll && !/\+xml$/.test(essence) && /^\s*(?:<\?xml[^>]*>\s*)?<(?:\w+:)?(?:Error|Fault)\b/.test(text))
  ) {
    return { what: 'XML', mediaType: isOfXml ? essence : 'application/xml' };
  }
  if (says.startsWith('text/') && says !== 'text/plain') return undefined;
  const mayBeAnything = !isTelling(spelled) || says === 'text/plain';
  // No file of another type is one of these, whatever its name or its header says.
  const declared = isTelling(mediaType) && essence !== 'text/plain' ? 'text/plain' : mediaType;
  if (isAll && ADDRESS.test(text)) return { what: 'An address', mediaType: declared };
  if (DATA_URI.test(text)) return { what: 'A data URI', mediaType: declared };
  const isBase64 = BASE64.test(text) && (mayBeAnything || isFileInBase64(text));
  if (isBase64) return { what: 'Bare base64', mediaType: declared };
  // A signature of another type is left alone: many a PNG comes as a JPEG, and viewers open it all the same.
  const isText = isDeclared && isNeverText(essence) && typeOfBytes(head.bytes) === undefined;
  return isText ? { what: 'Text', mediaType: 'text/plain' } : undefined;
}

/** The decoder skips the quotes. It would misread white space beyond ASCII. */
const isFileInBase64 = (text: string): boolean => typeOfBytes(Buffer.from(text.trim(), 'base64')) !== undefined;

function isJsonDocument(text: string): boolean {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    parsedJson(text);
    return true;
  } catch {
    return false;
  }
}

/** Bare base64 as a member of an answer. */
const BASE64_IN_JSON = /^: \s*[{[].*"(?:\\?[\w+/-]){60}/s;

function notAnAsset(
  instead: Instead | undefined,
  mediaType: string,
  head: Head | undefined,
  secret: string | undefined,
): NotAnAssetError {
  const what = instead?.what ?? `A file of the type ${mediaType}`;
  const declared = essenceOf(instead?.mediaType ?? mediaType);
  const quoted =
    head === undefined || instead === undefined ? '' : `: ${startOf(redact(textOf(head), secret), QUOTE_CHARS_MAX)}`;
  const hasBase64 = BASE64_IN_JSON.test(quoted);
  const todo = hasBase64
    ? 'If the asset is in it as base64, declare "base64": true in "outputs" of the service.'
    : `If the template makes such files, add "${declared}" to "makes" of the route.`;
  return new NotAnAssetError(
    `${what} came in place of the asset${quoted}. Check the service, and what stands before it and its assets: a proxy, ` +
      `a login. ${todo}`,
  );
}

/** What was received, and then what comes. @param onData gets the number of bytes that have come since. */
async function* following(
  received: readonly Uint8Array[],
  incoming: AsyncGenerator<Uint8Array, void>,
  onData = (_: number) => {},
): AsyncGenerator<Uint8Array, void> {
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

const tooLarge = (bytesMax: number): AssetTooLargeError =>
  new AssetTooLargeError(`The asset is larger than the ${bytesMax} bytes allowed`);

/** Passes the chunks on. */
async function* limited(chunks: AsyncIterable<Uint8Array>, bytesMax: number): AsyncGenerator<Uint8Array, void> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) throw tooLarge(bytesMax);
    yield chunk;
  }
  if (bytes === 0) throw new EmptyAssetError(NOTHING);
}

/** Yields the bytes of the data URI in an envelope. Then checks that the envelope is whole. */
async function* decoded(
  { pointer, head, rest, isBase64 }: Envelope,
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
        // The closing quote is met in the next round.
        taken = closingQuote(piece) ?? lengthWithoutCutEscape(piece);
        const text = unescaped(piece.toString('latin1', 0, taken));
        if (text === undefined) throw new DamagedAssetError('The data is not a JSON string');
        decoder.write(text, true);
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
    const behind = await tailOf(bytes.subarray(at), incoming, (more) => onData(block.bytesWritten + more));
    checkEnvelope(pointer, head, behind);
  } finally {
    await incoming.return();
  }
}

/** Reads the JSON behind the data, up to the end of the response. */
async function tailOf(
  received: Buffer,
  incoming: AsyncGenerator<Uint8Array, void>,
  onData: (bytes: number) => void,
): Promise<string> {
  const tail = new GatheredBytes(ENVELOPE_BYTES_MAX);
  const texts = new LongTexts(ENVELOPE_TEXT_BYTES_MAX);
  texts.cut(Buffer.of(QUOTE)); // The data is a text, and what follows begins with its closing quote.
  const add = (chunk: Uint8Array): void => {
    if (tail.add(texts.cut(chunk))) return;
    throw new DamagedAssetError(`More than ${ENVELOPE_BYTES_MAX} bytes follow the data`);
  };
  add(received);
  let bytes = 0;
  for await (const chunk of incoming) {
    add(chunk);
    bytes += chunk.byteLength;
    onData(bytes);
  }
  return tail.bytes.toString();
}

/**
 * Checks that `head` and `tail` are JSON around the data. It tries two values. If the pointer does not find both, another
 * member of the same name follows.
 */
function checkEnvelope(pointer: string, head: string, tail: string): void {
  for (const data of ['', '-']) {
    let envelope: unknown;
    try {
      envelope = parsedJson((head + data + tail).replace(/^\ufeff/, ''));
    } catch (cause) {
      throw new DamagedAssetError('The answer is not whole: the text around its data is not JSON', { cause });
    }
    if (valueAt(envelope, pointer) !== data) throw new DamagedAssetError('The answer has its data twice');
  }
}

const bufferOf = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
