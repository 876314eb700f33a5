import type { ByteRange, Segment } from './bodies.ts';
import { type Call, demand, EMPTY, KEY_BYTES_MAX, type S3Response, type Service, xmlResponse } from './call.ts';
import type { NewVersion, Version } from './catalog.ts';
import type { Checksum } from './checksums.ts';
import { checkRead, checkWrite, deleteCondition, type WriteCondition, writeCondition } from './conditions.ts';
import { S3Error } from './errors.ts';
import { receive, receiveText } from './incoming.ts';
import { answerHeaders, type Headers, objectHeaders } from './object-headers.ts';
import { childText, parseXml, type XmlElement } from './xml.ts';

/** "A request can contain a list of up to 1,000 keys to delete." */
const DELETE_KEYS_MAX = 1000;

/** Demands a key that S3 takes and a bucket that is there, before any byte of a body is read. */
export function checkTarget({ catalog }: Service, { bucket, key }: Pick<Call, 'bucket' | 'key'>): void {
  catalog.bucket(bucket);
  const bytes = Buffer.byteLength(key);
  if (bytes > KEY_BYTES_MAX) {
    throw new S3Error('KeyTooLongError', { details: { Size: String(bytes), MaxSizeAllowed: String(KEY_BYTES_MAX) } });
  }
}

/**
 * The one place where an object comes to be: checks the condition and commits in one step, then forgets the bodies that
 * nothing names any more.
 */
export function commit(
  service: Service,
  condition: WriteCondition | undefined,
  version: NewVersion,
  alongside: () => void = () => {},
): Version {
  const { catalog, bodies } = service;
  const { added, replaced } = catalog.transaction(() => {
    checkConflict(service, condition);
    catalog.bucket(version.bucket);
    checkWrite(condition, catalog.latest(version.bucket, version.key));
    alongside();
    return catalog.addVersion(version);
  });
  if (replaced !== undefined) bodies.remove(replaced.segments);
  return added;
}

/** Runs what commits a body just stored; where it does not come to that, the body is forgotten. */
export function keeping<T>({ bodies }: Service, segment: Segment, work: () => T): T {
  try {
    return work();
  } catch (error) {
    bodies.remove([segment]);
    throw error;
  }
}

function checkConflict(service: Service, condition: WriteCondition | undefined): void {
  if (condition !== undefined && service.conflict()) throw new S3Error('ConditionalRequestConflict');
}

/** `x-amz-version-id`, in a bucket that has, or had, versioning. */
export function versionHeader({ catalog }: Service, { bucket, versionId }: Version): Record<string, string> {
  return catalog.bucket(bucket).versioning === undefined ? {} : { 'x-amz-version-id': versionId };
}

export function checksumHeaders(checksum: Checksum | undefined): Record<string, string> {
  if (checksum === undefined) return {};
  return { [`x-amz-checksum-${checksum.algorithm}`]: checksum.value, 'x-amz-checksum-type': checksum.type };
}

export async function putObject(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const condition = writeCondition(headers);
  const kept = objectHeaders(headers);
  const { chunks, received } = receive(call);
  const segment = await service.bodies.write(chunks);
  const { md5, checksum: sent } = received();
  const checksum = sent && ({ ...sent, type: 'FULL_OBJECT' } as const);
  const etag = md5.toString('hex');
  const version = keeping(service, segment, () =>
    commit(service, condition, {
      bucket,
      key,
      deleteMarker: false,
      bytes: segment.bytes,
      etag,
      modifiedMs: service.now(),
      headers: kept,
      checksum,
      segments: [segment],
    }),
  );
  await service.publish('ObjectCreated:Put', version, call);
  const answer = { etag: `"${etag}"`, ...versionHeader(service, version), ...checksumHeaders(checksum) };
  return { status: 200, headers: answer, body: EMPTY };
}

/** The version that a read or a copy is about. Throws as S3 answers: NoSuchKey, NoSuchVersion, MethodNotAllowed. */
function find(service: Service, call: Call, bucket: string, key: string, versionId: string | undefined): Version {
  const { catalog } = service;
  catalog.bucket(bucket);
  const version = versionId === undefined ? catalog.latest(bucket, key) : findVersion(service, bucket, key, versionId);
  // Whoever may not list a bucket does not learn what is not in it.
  if (versionId === undefined && version?.deleteMarker !== false) demand(service, call, 's3:ListBucket', bucket);
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

function findVersion({ catalog }: Service, bucket: string, key: string, versionId: string): Version | undefined {
  if (versionId !== 'null' && !/^[\w.]{32}$/.test(versionId)) {
    const message = versionId === '' ? 'Version id cannot be the empty string' : 'Invalid version id specified';
    throw new S3Error('InvalidArgument', { message, details: { ArgumentName: 'versionId', ArgumentValue: versionId } });
  }
  return catalog.version(bucket, key, versionId);
}

/** HeadObject and GetObject differ in the body alone. */
export function readObject(service: Service, call: Call): S3Response {
  const { bucket, key, query, headers } = call;
  demand(service, call, query.has('versionId') ? 's3:GetObjectVersion' : 's3:GetObject', bucket, key);
  const version = find(service, call, bucket, key, query.get('versionId'));
  const about = { etag: `"${version.etag}"`, ...modified(version), ...versionHeader(service, version) };
  if (checkRead(headers, version) === 'not modified') return { status: 304, headers: about, body: EMPTY };

  const { bytes } = version;
  const range = parseRange(headers.range, bytes);
  const whole = range.start === 0 && range.end === bytes;
  const answer = {
    ...answerHeaders(version.headers),
    ...overrides(query),
    ...about,
    ...(whole && headers['x-amz-checksum-mode']?.toUpperCase() === 'ENABLED' ? checksumHeaders(version.checksum) : {}),
    ...(range.partial ? { 'content-range': `bytes ${range.start}-${range.end - 1}/${bytes}` } : {}),
    'accept-ranges': 'bytes',
    'content-length': String(range.end - range.start),
  };
  const body = call.method === 'HEAD' ? EMPTY : service.bodies.read(version.segments, range);
  return { status: range.partial ? 206 : 200, headers: answer, body };
}

function modified({ modifiedMs }: Version): Record<string, string> {
  return { 'last-modified': new Date(modifiedMs).toUTCString() };
}

const OVERRIDES = [
  'content-type',
  'content-language',
  'expires',
  'cache-control',
  'content-disposition',
  'content-encoding',
];

/** `response-content-type` and its like, which a presigned link may carry. */
function overrides(query: Call['query']): Record<string, string> {
  const answer: Record<string, string> = {};
  for (const name of OVERRIDES) {
    const value = query.get(`response-${name}`);
    if (value !== undefined) answer[name] = value;
  }
  return answer;
}

/** A single range; anything else is no range, as S3 has it. Throws InvalidRange where it covers no byte. */
function parseRange(header: string | undefined, bytes: number): ByteRange & { partial: boolean } {
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

export async function deleteObject(service: Service, call: Call): Promise<S3Response> {
  const { key, query, headers } = call;
  checkTarget(service, call);
  const versionId = query.get('versionId');
  const etag = headers['if-match'];
  demandDeletion(service, call, key, versionId, etag);
  const deleted = await remove(service, call, key, versionId, deleteCondition(etag));
  return {
    status: 204,
    headers: {
      ...(deleted.versionId === undefined ? {} : { 'x-amz-version-id': deleted.versionId }),
      ...(deleted.deleteMarker ? { 'x-amz-delete-marker': 'true' } : {}),
    },
    body: EMPTY,
  };
}

function demandDeletion(service: Service, call: Call, key: string, versionId?: string, etag?: string): void {
  demand(service, call, versionId === undefined ? 's3:DeleteObject' : 's3:DeleteObjectVersion', call.bucket, key);
  if (etag !== undefined && etag !== '*') demand(service, call, 's3:GetObject', call.bucket, key);
}

/** S3 asks for `s3:GetObject` too of whoever compares an ETag. */
export function demandWrite(service: Service, call: Call): void {
  demand(service, call, 's3:PutObject', call.bucket, call.key);
  if (call.headers['if-match'] !== undefined) demand(service, call, 's3:GetObject', call.bucket, call.key);
}

interface Deleted {
  readonly versionId: string | undefined;
  readonly deleteMarker: boolean;
}

/** With a version id removes that version for good; without, puts a delete marker where the bucket has versioning. */
async function remove(
  service: Service,
  call: Call,
  key: string,
  versionId: string | undefined,
  condition: WriteCondition | undefined,
): Promise<Deleted> {
  const { catalog, bodies } = service;
  const { bucket } = call;
  const { versioning } = catalog.bucket(bucket);
  const { added, removed, sequence } = catalog.transaction(() => {
    checkConflict(service, condition);
    const latest = catalog.latest(bucket, key);
    checkWrite(condition, latest);
    if (versionId === undefined && versioning !== undefined) {
      const { added, replaced } = catalog.addVersion(deleteMarker(bucket, key, service.now()));
      return { added, removed: replaced, sequence: added.sequence };
    }
    const removed = versionId === undefined ? latest : findVersion(service, bucket, key, versionId);
    if (removed !== undefined) catalog.removeVersion(removed);
    return { added: undefined, removed, sequence: catalog.nextSequence() };
  });
  if (removed !== undefined) bodies.remove(removed.segments);
  if (added !== undefined) await service.publish('ObjectRemoved:DeleteMarkerCreated', added, call);
  else if (removed !== undefined) await service.publish('ObjectRemoved:Delete', removed, call, sequence);
  return { versionId: added?.versionId ?? versionId, deleteMarker: (added ?? removed)?.deleteMarker ?? false };
}

function deleteMarker(bucket: string, key: string, modifiedMs: number): NewVersion {
  const headers = { system: {}, user: {} };
  return {
    bucket,
    key,
    deleteMarker: true,
    bytes: 0,
    etag: '',
    modifiedMs,
    headers,
    checksum: undefined,
    segments: [],
  };
}

export async function deleteObjects(service: Service, call: Call): Promise<S3Response> {
  service.catalog.bucket(call.bucket);
  const request = parseXml(await receiveText(call), 'Delete');
  const quiet = childText(request, 'Quiet') === 'true';
  const objects = request.children.filter(({ name }) => name === 'Object');
  if (objects.length === 0 || objects.length > DELETE_KEYS_MAX) throw new S3Error('MalformedXML');

  const answers: XmlElement[] = [];
  for (const object of objects) {
    const key = childText(object, 'Key');
    const versionId = childText(object, 'VersionId');
    if (key === undefined || key === '') throw new S3Error('MalformedXML');
    const named: XmlElement[] = [['Key', key], ...(versionId === undefined ? [] : [['VersionId', versionId] as const])];
    try {
      const etag = childText(object, 'ETag');
      demandDeletion(service, call, key, versionId, etag);
      const deleted = await remove(service, call, key, versionId, deleteCondition(etag));
      if (quiet) continue;
      const marker: XmlElement[] = [];
      if (deleted.deleteMarker) {
        marker.push(['DeleteMarker', true], ['DeleteMarkerVersionId', deleted.versionId ?? 'null']);
      }
      answers.push(['Deleted', [...named, ...marker]]);
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      answers.push(['Error', [...named, ['Code', error.code], ['Message', error.message]]]);
    }
  }
  return xmlResponse(['DeleteResult', answers]);
}

const UNSUPPORTED_COPY_HEADERS = [
  'if-match',
  'if-none-match',
  'x-amz-copy-source-if-match',
  'x-amz-copy-source-if-none-match',
  'x-amz-copy-source-if-modified-since',
  'x-amz-copy-source-if-unmodified-since',
];

/** Conditions are refused, not ignored: nothing here relies on them. */
export async function copyObject(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const unsupported = UNSUPPORTED_COPY_HEADERS.find((name) => headers[name] !== undefined);
  if (unsupported !== undefined) throw new S3Error('NotImplemented', { details: { Header: unsupported } });

  const from = copySource(headers);
  demand(service, call, from.versionId === undefined ? 's3:GetObject' : 's3:GetObjectVersion', from.bucket, from.key);
  const source = find(service, call, from.bucket, from.key, from.versionId);
  const replace = headers['x-amz-metadata-directive'] === 'REPLACE';
  if (!replace && from.versionId === undefined && from.bucket === bucket && from.key === key) {
    const message =
      "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata.";
    throw new S3Error('InvalidRequest', { message });
  }
  const kept = replace ? objectHeaders(headers) : source.headers;
  // What was uploaded in parts becomes one body, and its ETag that of a single PUT.
  const { chunks, received } = receive({
    headers: { 'content-length': String(source.bytes) },
    body: service.bodies.read(source.segments, { start: 0, end: source.bytes }),
  });
  const segment = await service.bodies.write(chunks);
  const etag = received().md5.toString('hex');
  const version = keeping(service, segment, () =>
    commit(service, undefined, {
      ...source,
      bucket,
      key,
      etag,
      modifiedMs: service.now(),
      headers: kept,
      checksum: source.checksum?.type === 'FULL_OBJECT' ? source.checksum : undefined,
      segments: [segment],
    }),
  );
  await service.publish('ObjectCreated:Copy', version, call);
  const sourceVersion = versionHeader(service, source)['x-amz-version-id'];
  return xmlResponse(
    [
      'CopyObjectResult',
      [
        ['LastModified', new Date(version.modifiedMs).toISOString()],
        ['ETag', `"${etag}"`],
      ],
    ],
    {
      ...versionHeader(service, version),
      ...(sourceVersion === undefined ? {} : { 'x-amz-copy-source-version-id': sourceVersion }),
    },
  );
}

/** `[/]<bucket>/<key>[?versionId=<id>]`, percent-encoded. */
function copySource(headers: Headers): { bucket: string; key: string; versionId: string | undefined } {
  const match = /^\/?([^/?]+)\/(.+?)(?:\?versionId=(.+))?$/.exec(headers['x-amz-copy-source'] ?? '');
  try {
    const [, bucket, key, versionId] = match ?? [];
    if (bucket !== undefined && key !== undefined) {
      return { bucket: decodeURIComponent(bucket), key: decodeURIComponent(key), versionId };
    }
  } catch {
    // Not percent-encoded UTF-8: refused below, as any other malformed source.
  }
  const message = 'Copy Source must mention the source bucket and key: sourcebucket/sourcekey';
  throw new S3Error('InvalidArgument', { message, details: { ArgumentName: 'x-amz-copy-source' } });
}
