import { createHash } from 'node:crypto';
import { type Headers, notImplemented } from './call.ts';
import { CHECKSUM_ALGORITHMS, type ChecksumAlgorithm, createHasher, type Hasher } from './checksums.ts';
import { S3Error } from './errors.ts';
import { parseXml, type XmlNode } from './xml.ts';

/** "The largest object that can be uploaded in a single PUT is 5 GB." */
const PUT_BYTES_MAX = 5 * 1024 ** 3;
/** 10,000 parts with a checksum each take 3 MB. */
const XML_BYTES_MAX = 4 * 1024 ** 2;
/** Limit for a line of an aws-chunked body: a length with a signature, or a trailer. */
const CHUNK_LINE_BYTES_MAX = 4096;
const TRAILERS_MAX = 16;
/** The length of a chunk. */
const CHUNK_HEADER = /^([0-9a-fA-F]{1,12})$/;

interface Incoming {
  readonly headers: Headers;
  readonly body: AsyncIterable<Uint8Array>;
}

/** The hashes of a body. They are known after its last chunk. */
export interface Received {
  readonly md5: Buffer;
  /** The client's checksum, which equals the computed one. */
  readonly checksum: { readonly algorithm: ChecksumAlgorithm; readonly value: string } | undefined;
}

/**
 * Takes the client's bytes out of their framing and checks them: length, Content-MD5, x-amz-content-sha256 and
 * the x-amz-checksum-* in the headers or trailers. A failed check throws an S3Error, mostly after the last chunk, so the
 * caller must then drop the chunks that it stored.
 */
export function receive({ headers, body }: Incoming): {
  chunks: AsyncIterable<Uint8Array>;
  received(): Received;
} {
  const { bytes, framed } = declaredLength(headers);
  if (bytes > PUT_BYTES_MAX)
    throw new S3Error('EntityTooLarge', { details: { MaxSizeAllowed: String(PUT_BYTES_MAX) } });

  const trailers = new Map<string, string>();
  const announced = announcedChecksum(headers);
  const md5 = createHash('md5');
  const sha256 = /^[0-9a-f]{64}$/.test(headers['x-amz-content-sha256'] ?? '') ? createHash('sha256') : undefined;
  const checksum = announced && createHasher(announced.algorithm);
  const hashers: Hasher[] = [md5, sha256, checksum].filter((hasher) => hasher !== undefined);
  let result: Received | undefined;

  async function* checked(): AsyncGenerator<Uint8Array, void> {
    let count = 0;
    for await (const chunk of framed ? unframe(body, trailers) : body) {
      count += chunk.byteLength;
      if (count > bytes) break;
      for (const hasher of hashers) hasher.update(chunk);
      yield chunk;
    }
    if (count !== bytes) throw new S3Error('IncompleteBody');
    if (sha256 !== undefined && sha256.digest('hex') !== headers['x-amz-content-sha256']) {
      throw new S3Error('XAmzContentSHA256Mismatch');
    }
    result = { md5: md5.digest(), checksum: checkChecksum(announced, checksum, headers, trailers) };
    checkMd5(headers['content-md5'], result.md5);
  }

  return {
    chunks: checked(),
    received() {
      if (result === undefined) throw new TypeError('received() was called before the body was read to its end.');
      return result;
    },
  };
}

/** Reads an XML body with that root. Throws MalformedXML, MaxMessageLengthExceeded. */
export async function receiveXml(incoming: Incoming, rootName: string): Promise<XmlNode> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of receive(incoming).chunks) {
    bytes += chunk.byteLength;
    if (bytes > XML_BYTES_MAX) throw new S3Error('MaxMessageLengthExceeded');
    parts.push(chunk);
  }
  return parseXml(Buffer.concat(parts).toString(), rootName);
}

/** The declared length of the body, and whether the body has aws-chunked framing. */
function declaredLength(headers: Headers): { bytes: number; framed: boolean } {
  const encodings = (headers['content-encoding'] ?? '').split(',').map((name) => name.trim());
  const framed = headers['x-amz-content-sha256']?.startsWith('STREAMING-') || encodings.includes('aws-chunked');
  const declared = framed ? headers['x-amz-decoded-content-length'] : headers['content-length'];
  if (declared === undefined && headers['transfer-encoding'] !== undefined) throw new S3Error('NotImplemented');
  if (declared === undefined) throw new S3Error('MissingContentLength');
  if (!/^\d{1,15}$/.test(declared)) throw new S3Error('InvalidArgument', { details: { ArgumentValue: declared } });
  return { bytes: Number(declared), framed: framed === true };
}

interface Announced {
  readonly algorithm: ChecksumAlgorithm;
  readonly from: 'header' | 'trailer';
}

/** The checksum that the request names. One that is not known here is refused, or the body would pass unchecked. */
function announcedChecksum(headers: Headers): Announced | undefined {
  const inTrailer = (headers['x-amz-trailer'] ?? '').split(',').map((name) => name.trim().toLowerCase());
  const found: Announced[] = [];
  for (const from of ['header', 'trailer'] as const) {
    for (const header of from === 'header' ? Object.keys(headers) : inTrailer) {
      const [, name] = /^x-amz-checksum-(?!mode$|algorithm$|type$)(.+)$/.exec(header) ?? [];
      if (name === undefined) continue;
      const algorithm = CHECKSUM_ALGORITHMS.find((known) => known === name);
      if (algorithm === undefined) throw notImplemented(`The checksum ${name}`);
      found.push({ algorithm, from });
    }
  }
  if (found.length < 2) return found[0];
  const message = 'Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.';
  throw new S3Error('InvalidRequest', { message });
}

function checkChecksum(
  announced: Announced | undefined,
  hasher: Hasher | undefined,
  headers: Headers,
  trailers: ReadonlyMap<string, string>,
): Received['checksum'] {
  if (announced === undefined || hasher === undefined) return undefined;
  const { algorithm, from } = announced;
  const name = `x-amz-checksum-${algorithm}`;
  const sent = from === 'header' ? headers[name] : trailers.get(name);
  if (sent === undefined) throw new S3Error('MalformedTrailerError');
  const value = hasher.digest().toString('base64');
  if (value === sent) return { algorithm, value };
  const message = `The ${algorithm.toUpperCase()} you specified did not match the calculated checksum.`;
  throw new S3Error('BadDigest', { message });
}

function checkMd5(sent: string | undefined, md5: Buffer): void {
  if (sent === undefined || md5.toString('base64') === sent) return;
  const message = 'The Content-MD5 you specified did not match what we received.';
  throw new S3Error('BadDigest', { message });
}

/**
 * Extracts the data from `<hex length>\r\n<data>\r\n ... 0\r\n[<trailer>\r\n ...]\r\n`, the framing of
 * STREAMING-UNSIGNED-PAYLOAD-TRAILER.
 */
async function* unframe(
  body: AsyncIterable<Uint8Array>,
  trailers: Map<string, string>,
): AsyncGenerator<Uint8Array, void> {
  const reader = new ByteReader(body);
  for (;;) {
    const [, length] = CHUNK_HEADER.exec(await reader.line()) ?? [];
    if (length === undefined) throw new S3Error('InvalidRequest', { message: 'The chunk header is not well-formed.' });
    const bytes = Number.parseInt(length, 16);
    yield* reader.take(bytes);
    if (bytes === 0) break;
    if ((await reader.line()) !== '')
      throw new S3Error('InvalidRequest', { message: 'A chunk is longer than it says.' });
  }
  // Some clients omit the empty line after the last chunk or trailer. The end of the body means the same.
  for (let line = await reader.lineOrEnd(); line; line = await reader.lineOrEnd()) {
    const colon = line.indexOf(':');
    if (colon < 1 || trailers.size === TRAILERS_MAX) throw new S3Error('MalformedTrailerError');
    trailers.set(line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim());
  }
  await reader.expectEnd();
}

class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #pending: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Reads a line, without its line end. Throws IncompleteBody if there is none. */
  async line(): Promise<string> {
    const line = await this.lineOrEnd();
    if (line === undefined) throw new S3Error('IncompleteBody');
    return line;
  }

  /** Like `line`, but returns `undefined` at the end of the body. */
  async lineOrEnd(): Promise<string | undefined> {
    for (;;) {
      const end = this.#pending.indexOf('\n');
      if (end >= 0) {
        const line = this.#pending.toString('latin1', 0, end);
        this.#pending = this.#pending.subarray(end + 1);
        return line.endsWith('\r') ? line.slice(0, -1) : line;
      }
      if (this.#pending.length > CHUNK_LINE_BYTES_MAX) throw new S3Error('IncompleteBody');
      const chunk = await this.#next();
      if (chunk === undefined) {
        if (this.#pending.length > 0) throw new S3Error('IncompleteBody');
        return undefined;
      }
      this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    }
  }

  /** Yields exactly `bytes` bytes, in chunks as they arrive. */
  async *take(bytes: number): AsyncGenerator<Uint8Array, void> {
    for (let missing = bytes; missing > 0; ) {
      if (this.#pending.length === 0) {
        const chunk = await this.#next();
        if (chunk === undefined) throw new S3Error('IncompleteBody');
        this.#pending = chunk;
        continue;
      }
      const piece = this.#pending.subarray(0, missing);
      this.#pending = this.#pending.subarray(piece.length);
      missing -= piece.length;
      yield piece;
    }
  }

  async expectEnd(): Promise<void> {
    for (let chunk = await this.#next(); chunk !== undefined; chunk = await this.#next()) {
      if (chunk.length > 0) throw new S3Error('IncompleteBody');
    }
    if (this.#pending.length > 0) throw new S3Error('IncompleteBody');
  }

  async #next(): Promise<Buffer | undefined> {
    const { done, value } = await this.#source.next();
    return done ? undefined : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
}
