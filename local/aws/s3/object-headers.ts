import { S3Error } from './errors.ts';

/** Headers of a request, with names in lower case. A value has one character for each byte on the wire. */
export type Headers = Readonly<Record<string, string | undefined>>;

/** The headers that an upload gives to its object. Every read returns them. */
export interface ObjectHeaders {
  readonly system: Readonly<Record<string, string>>;
  /** User metadata: names without `x-amz-meta-`, values as sent. */
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
    user[name.slice(USER_PREFIX.length)] = value;
    bytes += Buffer.byteLength(name) - USER_PREFIX.length + Buffer.byteLength(value);
  }
  if (bytes > USER_METADATA_BYTES_MAX) {
    throw new S3Error('MetadataTooLarge', {
      details: { Size: String(bytes), MaxSizeAllowed: String(USER_METADATA_BYTES_MAX) },
    });
  }
  return { system, user };
}

/** The response headers of a read. */
export function answerHeaders({ system, user }: ObjectHeaders): Record<string, string> {
  const answer: Record<string, string> = { ...system };
  for (const [name, value] of Object.entries(user)) answer[USER_PREFIX + name] = encodeMetadata(value);
  return answer;
}

/**
 * S3: the value "is examined for non US-ASCII characters" and then encoded "as per RFC 2047 to make them mail-safe
 * before returning". S3 reads the header's bytes as Latin-1, as the example on that page shows. A client that wants its
 * text back sends RFC 2047 encoded words itself, and S3 returns them unchanged.
 *
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html
 */
function encodeMetadata(value: string): string {
  return /^[\x20-\x7e]*$/.test(value) ? value : `=?UTF-8?B?${Buffer.from(value).toString('base64')}?=`;
}
