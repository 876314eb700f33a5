import { createHash } from 'node:crypto';
import type { ByteRange } from './bodies.ts';
import { type Call, demand, invalid, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import type { ObjectHeaders, Version } from './catalog.ts';
import { type ChecksumAlgorithm, createHasher } from './checksums.ts';
import { S3Error } from './errors.ts';
import { checksumElement, keepPart, partOf, requestedChecksum } from './multipart.ts';
import {
  type Content,
  checkWrite,
  conditionOf,
  demandRead,
  findObject,
  keepObject,
  objectHeaders,
  unquoted,
  versionHeader,
} from './objects.ts';
import type { XmlElement } from './xml.ts';

/** "You create a copy of your object up to 5 GB in size in a single atomic action using this API." */
const SOURCE_BYTES_MAX = 5 * 1024 ** 3;
/** "You can copy a range only if the source object is greater than 5 MB." */
const RANGED_SOURCE_BYTES_MIN = 5 * 1024 ** 2;

/** CopyObject. The caller needs the permissions to read the source and to write the target. */
export async function copyObject(service: Service, call: Call): Promise<S3Response> {
  checkWrite(service, call);
  const condition = conditionOf(call.headers);
  const directives = { metadata: directive(call, 'metadata'), tagging: directive(call, 'tagging') };
  const asked = sourceCall(call);
  const source = findSource(service, call, asked);
  requireChange(call, asked, directives);
  const headers = copiedHeaders(service, { call, asked, source, directives });
  const algorithm = requestedChecksum(call)?.algorithm ?? source.checksum?.algorithm;
  const content = await copyBytes(service, source, { start: 0, end: source.bytes }, algorithm);
  const version = keepObject(service, call, condition, { ...content, headers });
  await service.publish('ObjectCreated:Copy', version, call);
  const type: XmlElement | undefined = version.checksum && ['ChecksumType', version.checksum.type];
  return xmlResponse(['CopyObjectResult', [...facts(version), type]], {
    ...sourceHeader(service, source),
    ...versionHeader(service, version),
  });
}

/** UploadPartCopy: a part of a multipart upload from an object, or from a range of it. */
export async function uploadPartCopy(service: Service, call: Call): Promise<S3Response> {
  const { number, upload } = partOf(service, call);
  const source = findSource(service, call, sourceCall(call));
  const content = await copyBytes(service, source, copiedRange(call, source), upload.checksum?.algorithm);
  const part = keepPart(service, call, number, content);
  return xmlResponse(['CopyPartResult', facts(part)], sourceHeader(service, source));
}

function facts({ etag, modifiedMs, checksum }: Pick<Version, 'etag' | 'modifiedMs'> & Pick<Content, 'checksum'>) {
  const children: (XmlElement | undefined)[] = [
    ['LastModified', isoSeconds(modifiedMs)],
    ['ETag', `"${etag}"`],
    checksum && checksumElement(checksum),
  ];
  return children;
}

/** The request that would read the source: `<bucket>/<key>`, percent-encoded, and perhaps `?versionId=<id>`. */
function sourceCall(call: Call): Call {
  const [place = '', versionId] = (call.headers['x-amz-copy-source'] ?? '').split(/\?versionId=(.*)$/s);
  const [, bucket = '', key = ''] = /^\/?([^/]+)\/(.+)$/s.exec(decoded(place)) ?? [];
  if (key === '') {
    const message = 'Copy Source must mention the source bucket and key: sourcebucket/sourcekey';
    throw invalid('x-amz-copy-source', message);
  }
  return { ...call, bucket, key, query: new Map(versionId === undefined ? [] : [['versionId', versionId]]) };
}

/** S3 takes a `+` for a space here. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw invalid('x-amz-copy-source', 'Invalid copy source encoding.');
  }
}

/** Throws InvalidRequest, PreconditionFailed, and what a read throws. */
function findSource(service: Service, call: Call, asked: Call): Version {
  demandRead(service, asked);
  const source = orDeleteMarker(() => findObject(service, asked));
  const failed = failedCondition(call.headers, source);
  if (failed !== undefined) throw new S3Error('PreconditionFailed', { details: { Condition: failed } });
  return source;
}

function orDeleteMarker(find: () => Version): Version {
  try {
    return find();
  } catch (error) {
    if (!(error instanceof S3Error) || error.code !== 'MethodNotAllowed') throw error;
    const message = 'The source of a copy request may not specifically refer to a delete marker by version id.';
    throw new S3Error('InvalidRequest', { message });
  }
}

/** A condition on the ETag outweighs that on the time, as in RFC 9110. */
function failedCondition(headers: Call['headers'], { etag, modifiedMs }: Version): string | undefined {
  const value = (name: string): string | undefined => headers[`x-amz-copy-source-${name}`];
  const [match, noneMatch] = [value('if-match'), value('if-none-match')];
  const isEtag = (text: string) => text === '*' || unquoted(text) === etag;
  const isNewerThan = (name: string, text: string) => Math.floor(modifiedMs / 1000) * 1000 > timeOf(name, text);
  const [since, unmodified] = [value('if-modified-since'), value('if-unmodified-since')];
  if (match !== undefined ? !isEtag(match) : unmodified && isNewerThan('if-unmodified-since', unmodified)) {
    return match === undefined ? 'x-amz-copy-source-If-Unmodified-Since' : 'x-amz-copy-source-If-Match';
  }
  if (noneMatch !== undefined ? isEtag(noneMatch) : since && !isNewerThan('if-modified-since', since)) {
    return noneMatch === undefined ? 'x-amz-copy-source-If-Modified-Since' : 'x-amz-copy-source-If-None-Match';
  }
  return undefined;
}

function timeOf(name: string, text: string): number {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) throw invalid(`x-amz-copy-source-${name}`, 'Bad date value in header');
  return ms;
}

/** Where metadata and tags come from: from the source or from the request. */
type Directives = Readonly<Record<'metadata' | 'tagging', 'COPY' | 'REPLACE'>>;

function directive({ headers }: Call, of: keyof Directives): 'COPY' | 'REPLACE' {
  const name = `x-amz-${of}-directive`;
  const value = headers[name] ?? 'COPY';
  if (value !== 'COPY' && value !== 'REPLACE') throw invalid(name, `Unknown ${of} directive.`);
  return value;
}

/** S3 copies an object onto itself only to change something, or to bring back a version that is named. */
function requireChange({ bucket, key, headers }: Call, source: Call, { metadata }: Directives): void {
  const isChange =
    metadata === 'REPLACE' ||
    headers['x-amz-storage-class'] !== undefined ||
    headers['x-amz-server-side-encryption'] !== undefined;
  if (isChange || source.query.has('versionId') || source.bucket !== bucket || source.key !== key) return;
  const message =
    "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.";
  throw new S3Error('InvalidRequest', { message });
}

interface Copying {
  readonly call: Call;
  /** The request that would read the source. */
  readonly asked: Call;
  readonly source: Version;
  readonly directives: Directives;
}

function copiedHeaders(service: Service, { call, asked, source, directives }: Copying): ObjectHeaders {
  const sent = objectHeaders(call.headers);
  const { system, user } = directives.metadata === 'REPLACE' ? sent : source.headers;
  const tags = directives.tagging === 'REPLACE' ? sent.tags : source.headers.tags;
  if (directives.tagging === 'COPY' && tags !== undefined && tags.length > 0) {
    demand(service, asked, asked.query.has('versionId') ? 's3:GetObjectVersionTagging' : 's3:GetObjectTagging');
    demand(service, call, 's3:PutObjectTagging');
  }
  return { system, user, tags };
}

/** The bytes of a range that the request names, both ends included. Default: all. */
function copiedRange({ headers }: Call, { bytes }: Version): ByteRange {
  const text = headers['x-amz-copy-source-range'];
  if (text === undefined) return { start: 0, end: bytes };
  const [, first, last] = /^bytes=(\d{1,15})-(\d{1,15})$/.exec(text) ?? [];
  const [start, end] = [Number(first), Number(last) + 1];
  if (!(start < end)) {
    const message =
      'The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy';
    throw invalid('x-amz-copy-source-range', message);
  }
  if (end > bytes) {
    throw invalid('x-amz-copy-source-range', `Range specified is not valid for source object of size: ${bytes}`);
  }
  if (bytes <= RANGED_SOURCE_BYTES_MIN) {
    const message = `The specified copy range is invalid for a source object of ${bytes} bytes.`;
    throw new S3Error('InvalidRequest', { message });
  }
  return { start, end };
}

/** Stores a copy, a block at a time. If the source is removed meanwhile, it is still read to its end. */
async function copyBytes(
  { bodies }: Service,
  { segments }: Version,
  range: ByteRange,
  algorithm: ChecksumAlgorithm | undefined,
): Promise<Content> {
  if (range.end - range.start > SOURCE_BYTES_MAX) {
    const message = `The specified copy source is larger than the maximum allowable size for a copy source: ${SOURCE_BYTES_MAX}`;
    throw new S3Error('InvalidRequest', { message });
  }
  const md5 = createHash('md5');
  const checksum = algorithm && createHasher(algorithm);
  const stream = bodies.read(segments, range);
  async function* hashed(): AsyncGenerator<Uint8Array, void> {
    for await (const chunk of stream) {
      md5.update(chunk);
      checksum?.update(chunk);
      yield chunk;
    }
  }
  try {
    const segment = await bodies.write(hashed());
    return {
      segment,
      etag: md5.digest('hex'),
      checksum: algorithm && checksum && { algorithm, value: checksum.digest().toString('base64') },
    };
  } finally {
    stream.destroy(); // It was not read if nothing could be written.
  }
}

function sourceHeader(service: Service, source: Version): Record<string, string> {
  const { 'x-amz-version-id': versionId } = versionHeader(service, source);
  return versionId === undefined ? {} : { 'x-amz-copy-source-version-id': versionId };
}
