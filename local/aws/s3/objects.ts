import type { ByteRange, Segment } from './bodies.ts';
import {
  type Call,
  demand,
  EMPTY,
  type Headers,
  invalid,
  notImplemented,
  type S3Response,
  type Service,
} from './call.ts';
import type { NewVersion, ObjectHeaders, Part, Version } from './catalog.ts';
import type { Checksum } from './checksums.ts';
import { S3Error } from './errors.ts';
import { receive } from './incoming.ts';
import { tagsInHeader } from './tags.ts';

const KEY_BYTES_MAX = 1024;

/** Checks a write before a byte of the body is read. S3 requires `s3:GetObject` too if the request compares an ETag. */
export function checkWrite(service: Service, call: Call): void {
  const { bucket, key, headers } = call;
  service.catalog.bucket(bucket);
  const bytes = Buffer.byteLength(key);
  if (bytes > KEY_BYTES_MAX) {
    throw new S3Error('KeyTooLongError', { details: { Size: String(bytes), MaxSizeAllowed: String(KEY_BYTES_MAX) } });
  }
  demand(service, call, 's3:PutObject');
  if (headers['if-match'] !== undefined) demand(service, call, 's3:GetObject');
  if (headers['x-amz-tagging'] !== undefined) demand(service, call, 's3:PutObjectTagging');
}

export async function putObject(service: Service, call: Call): Promise<S3Response> {
  checkWrite(service, call);
  const condition = conditionOf(call.headers);
  const headers = objectHeaders(call.headers);
  const { chunks, received } = receive(call);
  const segment = await service.bodies.write(chunks);
  const { md5, checksum } = received();
  const version = keepObject(service, call, condition, { segment, etag: md5.toString('hex'), checksum, headers });
  await service.publish('ObjectCreated:Put', version, call);
  const answer = {
    etag: `"${version.etag}"`,
    ...versionHeader(service, version),
    ...checksumHeaders(version.checksum),
  };
  return { status: 200, headers: answer, body: EMPTY };
}

/** A stored body, with what is known of it. */
export interface Content extends Pick<Part, 'etag' | 'checksum' | 'segment'> {}

/** Makes a stored body the current object of a key. Throws PreconditionFailed, ConditionalRequestConflict, NoSuchKey. */
export function keepObject(
  service: Service,
  { bucket, key }: Call,
  condition: Condition | undefined,
  { segment, etag, checksum, headers }: Content & Pick<Version, 'headers'>,
): Version {
  return keeping(service, segment, () =>
    commit(service, condition, {
      ...{ bucket, key, deleteMarker: false, bytes: segment.bytes, etag, modifiedMs: service.now(), headers },
      checksum: checksum && { ...checksum, type: 'FULL_OBJECT' },
      segments: [segment],
    }),
  );
}

/**
 * Adds a version to the catalog. It is the only place that does, except for delete markers. The condition is checked
 * in the same transaction. Afterwards the bodies of the overwritten version are removed.
 */
export function commit(
  service: Service,
  condition: Condition | undefined,
  version: NewVersion,
  alongside: () => void = () => {},
): Version {
  const { catalog, bodies } = service;
  const { added, replaced } = catalog.transaction(() => {
    check(service, condition, catalog.latest(version.bucket, version.key));
    alongside();
    return catalog.addVersion(version);
  });
  if (replaced !== undefined) bodies.remove(replaced.segments);
  return added;
}

/** Runs `work`, which commits a stored body. If it throws, the body is removed. */
export function keeping<T>({ bodies }: Service, segment: Segment, work: () => T): T {
  try {
    return work();
  } catch (error) {
    bodies.remove([segment]);
    throw error;
  }
}

/** The condition of a write on the current object of the key: its ETag, or that there is none. */
export type Condition = { readonly etag: string } | 'absent';

/** If-None-Match accepts only `*`, and If-Match only an ETag. */
export function conditionOf(headers: Headers): Condition | undefined {
  const { 'if-match': ifMatch, 'if-none-match': ifNoneMatch } = headers;
  if (ifMatch === '*' || (ifNoneMatch ?? '*') !== '*' || (ifMatch !== undefined && ifNoneMatch !== undefined)) {
    throw notImplemented('This condition');
  }
  if (ifNoneMatch !== undefined) return 'absent';
  return ifMatch === undefined ? undefined : { etag: unquoted(ifMatch) };
}

/** Throws PreconditionFailed, ConditionalRequestConflict; or NoSuchKey if an ETag is asked for and there is no object. */
export function check({ conflict }: Service, condition: Condition | undefined, current: Version | undefined): void {
  if (condition === undefined) return;
  if (conflict()) throw new S3Error('ConditionalRequestConflict');
  const object = current?.deleteMarker ? undefined : current;
  const failed = (header: string) => new S3Error('PreconditionFailed', { details: { Condition: header } });
  if (condition === 'absent') {
    if (object !== undefined) throw failed('If-None-Match');
  } else {
    if (object === undefined) throw new S3Error('NoSuchKey');
    if (object.etag !== condition.etag) throw failed('If-Match');
  }
}

export function unquoted(etag: string): string {
  return etag.replace(/^"(.*)"$/, '$1');
}

/** `x-amz-version-id`, if the bucket has or had versioning. */
export function versionHeader({ catalog }: Service, { bucket, versionId }: Version): Record<string, string> {
  return catalog.bucket(bucket).versioning === undefined ? {} : { 'x-amz-version-id': versionId };
}

/** HeadObject and GetObject. They differ in the body only. */
export function readObject(service: Service, call: Call): S3Response {
  const { method, headers } = call;
  const other = ['if-none-match', 'if-modified-since', 'if-unmodified-since'].find((name) => name in headers);
  if (other !== undefined) throw notImplemented(`${other} of a read`);
  demandRead(service, call);
  const version = findObject(service, call);
  const ifMatch = headers['if-match'];
  if (ifMatch !== undefined && unquoted(ifMatch) !== version.etag) {
    throw new S3Error('PreconditionFailed', { details: { Condition: 'If-Match' } });
  }
  const { bytes } = version;
  const range = parseRange(headers.range, bytes);
  const isChecked = !range.partial && headers['x-amz-checksum-mode']?.toUpperCase() === 'ENABLED';
  const asked = call.query.get('response-content-type');
  const answer = {
    ...answerHeaders(version.headers),
    ...(asked && { 'content-type': asked }),
    ...taggingCount(service, call, version),
    etag: `"${version.etag}"`,
    ...modified(version),
    ...versionHeader(service, version),
    ...(isChecked ? checksumHeaders(version.checksum) : {}),
    ...(range.partial ? { 'content-range': `bytes ${range.start}-${range.end - 1}/${bytes}` } : {}),
    'accept-ranges': 'bytes',
    'content-length': String(range.end - range.start),
  };
  const body = method === 'HEAD' ? EMPTY : service.bodies.read(version.segments, range);
  return { status: range.partial ? 206 : 200, headers: answer, body };
}

/** Throws AccessDenied. */
export function demandRead(service: Service, call: Call): void {
  demand(service, call, call.query.has('versionId') ? 's3:GetObjectVersion' : 's3:GetObject');
}

/** Finds the version to read. Throws NoSuchKey, NoSuchVersion, MethodNotAllowed. */
export function findObject(service: Service, call: Call): Version {
  const { catalog } = service;
  const { bucket, key, query } = call;
  catalog.bucket(bucket);
  const versionId = query.get('versionId');
  const version = versionId === undefined ? catalog.latest(bucket, key) : findVersion(service, call, versionId);
  // A caller that must not list the bucket must not learn that a key is absent, or one of its versions.
  const isHidden = versionId === undefined ? version?.deleteMarker !== false : version === undefined;
  if (isHidden) demand(service, call, 's3:ListBucket', { bucket });
  if (version === undefined) {
    if (versionId === undefined) throw new S3Error('NoSuchKey', { details: { Key: key } });
    throw new S3Error('NoSuchVersion', { details: { Key: key, VersionId: versionId } });
  }
  if (version.deleteMarker) {
    const headers = { 'x-amz-delete-marker': 'true', ...versionHeader(service, version) };
    if (versionId === undefined) throw new S3Error('NoSuchKey', { details: { Key: key }, headers });
    throw new S3Error('MethodNotAllowed', { headers: { ...headers, allow: 'DELETE', ...modified(version) } });
  }
  return version;
}

/** Throws InvalidArgument if S3 cannot have issued the id. */
export function findVersion({ catalog }: Service, { bucket, key }: Call, versionId: string): Version | undefined {
  if (versionId !== 'null' && !/^[\w.]{32}$/.test(versionId)) {
    throw invalid('versionId', 'Invalid version id specified');
  }
  return catalog.version(bucket, key, versionId);
}

/** S3 tells the number of tags to callers that may read them. */
function taggingCount(service: Service, call: Call, { headers: { tags = [] } }: Version): Record<string, string> {
  const action = call.query.has('versionId') ? 's3:GetObjectVersionTagging' : 's3:GetObjectTagging';
  return tags.length > 0 && service.allows(call, action, call) ? { 'x-amz-tagging-count': String(tags.length) } : {};
}

function modified({ modifiedMs }: Version): Record<string, string> {
  return { 'last-modified': new Date(modifiedMs).toUTCString() };
}

/** Parses a single range. As in S3, every other value means no range. Throws InvalidRange if it covers no byte. */
function parseRange(header: string | undefined, bytes: number): ByteRange & { readonly partial: boolean } {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? [];
  const malformed = (first === '' && last === '') || (first !== '' && last !== '' && Number(last) < Number(first));
  if (malformed) return { start: 0, end: bytes, partial: false };
  const start = first === '' ? Math.max(bytes - Number(last), 0) : Number(first);
  const end = first === '' || last === '' ? bytes : Math.min(Number(last) + 1, bytes);
  if (start >= end) {
    const details = { RangeRequested: header ?? '', ActualObjectSize: String(bytes) };
    throw new S3Error('InvalidRange', { details, headers: { 'content-range': `bytes */${bytes}` } });
  }
  return { start, end, partial: true };
}

function checksumHeaders(checksum: Checksum | undefined): Record<string, string> {
  if (checksum === undefined) return {};
  return { [`x-amz-checksum-${checksum.algorithm}`]: checksum.value, 'x-amz-checksum-type': checksum.type };
}

/** S3: "the user-defined metadata is limited to 2 KB in size", names and values together, in UTF-8. */
const USER_METADATA_BYTES_MAX = 2048;
const USER_PREFIX = 'x-amz-meta-';
const SYSTEM_HEADERS = ['cache-control', 'content-disposition', 'content-language', 'content-type', 'expires'] as const;
const DEFAULT_CONTENT_TYPE = 'binary/octet-stream';

/** The headers of an upload that its object keeps. Throws MetadataTooLarge, InvalidTag. */
export function objectHeaders(headers: Headers): ObjectHeaders {
  const system: Record<string, string> = { 'content-type': DEFAULT_CONTENT_TYPE };
  for (const name of SYSTEM_HEADERS) {
    const value = headers[name];
    if (value !== undefined && value !== '') system[name] = value;
  }
  const encodings = (headers['content-encoding'] ?? '').split(',').map((encoding) => encoding.trim());
  const encoding = encodings.filter((name) => name !== '' && name !== 'aws-chunked').join(',');
  if (encoding !== '') system['content-encoding'] = encoding;

  const user: Record<string, string> = Object.create(null);
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(USER_PREFIX) || value === undefined) continue;
    user[name.slice(USER_PREFIX.length)] = value;
    bytes += Buffer.byteLength(name) - USER_PREFIX.length + Buffer.byteLength(value);
  }
  if (bytes > USER_METADATA_BYTES_MAX) {
    const details = { Size: String(bytes), MaxSizeAllowed: String(USER_METADATA_BYTES_MAX) };
    throw new S3Error('MetadataTooLarge', { details });
  }
  return { system, user, tags: tagsInHeader(headers['x-amz-tagging']) };
}

/** The response headers of a read. */
function answerHeaders({ system, user }: ObjectHeaders): Record<string, string> {
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
