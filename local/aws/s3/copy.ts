import type { ByteRange } from './bodies.ts';
import { type Call, demand, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Version } from './catalog.ts';
import { CHECKSUM_ALGORITHMS, type Checksum, type ChecksumAlgorithm, createHasher } from './checksums.ts';
import { checkTarget, commit, demandWrite, keeping, versionHeader } from './commit.ts';
import { checkCopySource, writeCondition } from './conditions.ts';
import { S3Error } from './errors.ts';
import { findObject, type ObjectRef } from './find.ts';
import { PUT_BYTES_MAX, receive } from './incoming.ts';
import { checksumElement, checksumElements, partTarget, storePart } from './multipart.ts';
import { type Headers, objectHeaders } from './object-headers.ts';
import { headerTags, type Tags } from './tags.ts';

/** Copies an object under the conditions on its source and on the object that it replaces. */
export async function copyObject(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const condition = writeCondition(headers);
  const replacesHeaders = directive(headers, 'metadata') === 'REPLACE';
  const { source, from } = findSource(service, call);
  if (!replacesHeaders && from.versionId === undefined && from.bucket === bucket && from.key === key) {
    const message =
      "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.";
    throw new S3Error('InvalidRequest', { message });
  }
  if (source.bytes > PUT_BYTES_MAX) {
    const message = `The specified copy source is larger than the maximum allowable size for a copy source: ${PUT_BYTES_MAX}`;
    throw new S3Error('InvalidRequest', { message });
  }
  const kept = replacesHeaders ? objectHeaders(headers) : source.headers;
  const tags = copiedTags(service, call, source, from);
  const algorithm = requestedAlgorithm(headers) ?? source.checksum?.algorithm;
  // An object that was uploaded in parts becomes one body. Its ETag becomes that of a single PUT.
  const { chunks, received } = receive({
    headers: { 'content-length': String(source.bytes) },
    body: service.bodies.read(source.segments, { start: 0, end: source.bytes }),
  });
  const hashed = withChecksum(chunks, algorithm);
  const segment = await service.bodies.write(hashed.chunks);
  const etag = received().md5.toString('hex');
  const checksum = hashed.checksum();
  const version = keeping(service, segment, () =>
    commit(service, condition, {
      ...source,
      bucket,
      key,
      etag,
      modifiedMs: service.now(),
      headers: kept,
      tags,
      checksum,
      segments: [segment],
    }),
  );
  await service.publish('ObjectCreated:Copy', version, call);
  return xmlResponse(
    [
      'CopyObjectResult',
      [['LastModified', isoSeconds(version.modifiedMs)], ['ETag', `"${etag}"`], ...checksumElements(checksum)],
    ],
    { ...versionHeader(service, version), ...sourceVersionHeader(service, source) },
  );
}

/** Makes a part of an upload from an object, or from a range of its bytes. */
export async function uploadPartCopy(service: Service, call: Call): Promise<S3Response> {
  const { headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const { upload, number } = partTarget(service, call);
  const { source } = findSource(service, call);
  const range = sourceRange(headers['x-amz-copy-source-range'], source.bytes);
  const { chunks, received } = receive({
    headers: { 'content-length': String(range.end - range.start) },
    body: service.bodies.read(source.segments, range),
  });
  const hashed = withChecksum(chunks, upload.checksum?.algorithm);
  const segment = await service.bodies.write(hashed.chunks);
  const etag = received().md5.toString('hex');
  const checksum = hashed.checksum();
  const part = storePart(service, call, { number, etag, checksum, segment });
  return xmlResponse(
    [
      'CopyPartResult',
      [['LastModified', isoSeconds(part.modifiedMs)], ['ETag', `"${etag}"`], checksum && checksumElement(checksum)],
    ],
    sourceVersionHeader(service, source),
  );
}

/** The bytes to copy. Throws InvalidArgument, also if the source ends before the range. */
function sourceRange(header: string | undefined, bytes: number): ByteRange {
  if (header === undefined) return { start: 0, end: bytes };
  const [, first, last] = /^bytes=(\d{1,15})-(\d{1,15})$/.exec(header) ?? [];
  const range = { start: Number(first), end: Number(last) + 1 };
  const refused = (message: string) =>
    new S3Error('InvalidArgument', {
      message,
      details: { ArgumentName: 'x-amz-copy-source-range', ArgumentValue: header },
    });
  if (!(range.start < range.end)) {
    throw refused(
      'The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy',
    );
  }
  if (range.end > bytes) throw refused(`Range specified is not valid for source object of size: ${bytes}`);
  return range;
}

/** The version to copy, if the conditions on it hold. Throws PreconditionFailed, InvalidRequest, NoSuchKey. */
function findSource(service: Service, call: Call): { source: Version; from: ObjectRef } {
  const { headers } = call;
  const from = copySource(headers);
  demand(service, call, from.versionId === undefined ? 's3:GetObject' : 's3:GetObjectVersion', from);
  if (from.versionId !== undefined && isDeleteMarker(service, from)) {
    const message = 'The source of a copy request may not specifically refer to a delete marker by version id.';
    throw new S3Error('InvalidRequest', { message });
  }
  const source = findObject(service, call, from);
  checkCopySource(headers, source, service.now());
  return { source, from };
}

function isDeleteMarker({ catalog }: Service, { bucket, key, versionId = '' }: ObjectRef): boolean {
  return catalog.version(bucket, key, versionId)?.deleteMarker === true;
}

function sourceVersionHeader(service: Service, source: Version): Record<string, string> {
  const versionId = versionHeader(service, source)['x-amz-version-id'];
  return versionId === undefined ? {} : { 'x-amz-copy-source-version-id': versionId };
}

/** `COPY`: the metadata or tags of the source. `REPLACE`: those in the request. */
function directive(headers: Headers, of: 'metadata' | 'tagging'): 'COPY' | 'REPLACE' {
  const name = `x-amz-${of}-directive`;
  const value = headers[name] ?? 'COPY';
  if (value === 'COPY' || value === 'REPLACE') return value;
  const details = { ArgumentName: name, ArgumentValue: value };
  throw new S3Error('InvalidArgument', { message: `Unknown ${of} directive.`, details });
}

function copiedTags(service: Service, call: Call, source: Version, from: ObjectRef): Tags {
  if (directive(call.headers, 'tagging') === 'REPLACE') return headerTags(call.headers);
  if (source.tags.length > 0) {
    demand(service, call, from.versionId === undefined ? 's3:GetObjectTagging' : 's3:GetObjectVersionTagging', from);
    demand(service, call, 's3:PutObjectTagging');
  }
  return source.tags;
}

function requestedAlgorithm(headers: Headers): ChecksumAlgorithm | undefined {
  const name = headers['x-amz-checksum-algorithm']?.toLowerCase();
  if (name === undefined) return undefined;
  const algorithm = CHECKSUM_ALGORITHMS.find((known) => known === name);
  if (algorithm !== undefined) return algorithm;
  throw new S3Error('InvalidRequest', { message: 'Checksum algorithm provided is unsupported.' });
}

/** Passes the chunks on and computes the checksum of the whole, which is known after the last one. */
function withChecksum(chunks: AsyncIterable<Uint8Array>, algorithm: ChecksumAlgorithm | undefined) {
  if (algorithm === undefined) return { chunks, checksum: () => undefined };
  const hasher = createHasher(algorithm);
  async function* hashed(): AsyncGenerator<Uint8Array, void> {
    for await (const chunk of chunks) {
      hasher.update(chunk);
      yield chunk;
    }
  }
  const checksum = (): Checksum => ({ algorithm, type: 'FULL_OBJECT', value: hasher.digest().toString('base64') });
  return { chunks: hashed(), checksum };
}

/** `[/]<bucket>/<key>[?versionId=<id>]`, percent-encoded. */
function copySource(headers: Headers): ObjectRef {
  const match = /^\/?([^/?]+)\/(.+?)(?:\?versionId=(.+))?$/.exec(headers['x-amz-copy-source'] ?? '');
  try {
    const [, bucket, key, versionId] = match ?? [];
    if (bucket !== undefined && key !== undefined) {
      return { bucket: decodeURIComponent(bucket), key: decodeURIComponent(key), versionId };
    }
  } catch {
    // Not percent-encoded UTF-8: refused below, like every other malformed source.
  }
  const message = 'Copy Source must mention the source bucket and key: sourcebucket/sourcekey';
  throw new S3Error('InvalidArgument', { message, details: { ArgumentName: 'x-amz-copy-source' } });
}
