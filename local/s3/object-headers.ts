import { S3Error } from './errors.ts';

/** Headers of a request, lower-cased. Their text is what the wire had, one character per byte. */
export type Headers = Readonly<Record<string, string | undefined>>;

/** What an upload says about its object and every read repeats. */
export interface ObjectHeaders {
  readonly system: Readonly<Record<string, string>>;
  /** User metadata: names without `x-amz-meta-`, values decoded. */
  readonly user: Readonly<Record<string, string>>;
}

/** S3: "the user-defined metadata is limited to 2 KB in size", names and values together, in UTF-8. */
const USER_METADATA_BYTES_MAX = 2048;
const USER_PREFIX = 'x-amz-meta-';
const SYSTEM_HEADERS = ['cache-control', 'content-disposition', 'content-language', 'content-type', 'expires'] as const;
const DEFAULT_CONTENT_TYPE = 'binary/octet-stream';

/** Throws MetadataTooLarge. */
export function objectHeaders(headers: Headers): ObjectHeaders {
  const system: Record<string, string> = { 'content-type': DEFAULT_CONTENT_TYPE };
  for (const name of SYSTEM_HEADERS) {
    const value = headers[name];
    if (value !== undefined && value !== '') system[name] = value;
  }
  const encodings = (headers['content-encoding'] ?? '').split(',').map((encoding) => encoding.trim());
  const encoding = encodings.filter((name) => name !== '' && name !== 'aws-chunked').join(',');
  if (encoding !== '') system['content-encoding'] = encoding;

  const user: Record<string, string> = {};
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(USER_PREFIX) || value === undefined) continue;
    const text = decodeMetadata(value);
    user[name.slice(USER_PREFIX.length)] = text;
    bytes += Buffer.byteLength(name) - USER_PREFIX.length + Buffer.byteLength(text);
  }
  if (bytes > USER_METADATA_BYTES_MAX) {
    throw new S3Error('MetadataTooLarge', {
      details: { Size: String(bytes), MaxSizeAllowed: String(USER_METADATA_BYTES_MAX) },
    });
  }
  return { system, user };
}

/** The headers with which a read repeats what `objectHeaders` kept. */
export function answerHeaders({ system, user }: ObjectHeaders): Record<string, string> {
  const answer: Record<string, string> = { ...system };
  for (const [name, value] of Object.entries(user)) answer[USER_PREFIX + name] = encodeMetadata(value);
  return answer;
}

/** UTF-8 where the bytes are, else Latin-1; RFC 2047 encoded words are decoded, as S3 does. */
function decodeMetadata(value: string): string {
  const text = decodeBytes(Buffer.from(value, 'latin1'));
  return text
    .replace(/(\?=)\s+(?==\?)/g, '$1')
    .replace(/=\?(utf-8|us-ascii)\?([bq])\?([^?\s]*)\?=/gi, (_, _charset: string, kind: string, encoded: string) =>
      kind.toLowerCase() === 'b' ? Buffer.from(encoded, 'base64').toString() : decodeQ(encoded),
    );
}

function decodeBytes(bytes: Buffer): string {
  const text = bytes.toString('utf8');
  return Buffer.from(text).equals(bytes) ? text : bytes.toString('latin1');
}

function decodeQ(encoded: string): string {
  const latin1 = encoded
    .replaceAll('_', ' ')
    .replace(/=([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(latin1, 'latin1').toString();
}

/** "Amazon S3 returns such metadata encoded by RFC 2047": everything that is not printable US-ASCII. */
function encodeMetadata(value: string): string {
  return /^[\x20-\x7e]*$/.test(value) ? value : `=?UTF-8?B?${Buffer.from(value).toString('base64')}?=`;
}
