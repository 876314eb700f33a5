import type { ByteRange } from './bodies.ts';
import { type Call, demand, EMPTY, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Checksum } from './checksums.ts';
import { checkTarget, commit, demandWrite, keeping, versionHeader } from './commit.ts';
import { checkRead, writeCondition } from './conditions.ts';
import { S3Error } from './errors.ts';
import { findObject, modified, type ObjectRef } from './find.ts';
import { receive } from './incoming.ts';
import { answerHeaders, type Headers, objectHeaders } from './object-headers.ts';

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

/** HeadObject and GetObject. They differ in the body only. */
export function readObject(service: Service, call: Call): S3Response {
  const { bucket, key, query, headers } = call;
  demand(service, call, query.has('versionId') ? 's3:GetObjectVersion' : 's3:GetObject');
  const version = findObject(service, call, { bucket, key, versionId: query.get('versionId') });
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

const OVERRIDES = [
  'content-type',
  'content-language',
  'expires',
  'cache-control',
  'content-disposition',
  'content-encoding',
];

/** Headers that the query overrides, such as with `response-content-type`. Presigned URLs use them. */
function overrides(query: Call['query']): Record<string, string> {
  const answer: Record<string, string> = {};
  for (const name of OVERRIDES) {
    const value = query.get(`response-${name}`);
    if (value !== undefined) answer[name] = value;
  }
  return answer;
}

/** Parses a single range. As in S3, every other value means no range. Throws InvalidRange if it covers no byte. */
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

function checksumHeaders(checksum: Checksum | undefined): Record<string, string> {
  if (checksum === undefined) return {};
  return { [`x-amz-checksum-${checksum.algorithm}`]: checksum.value, 'x-amz-checksum-type': checksum.type };
}

const UNSUPPORTED_COPY_HEADERS = [
  'if-match',
  'if-none-match',
  'x-amz-copy-source-if-match',
  'x-amz-copy-source-if-none-match',
  'x-amz-copy-source-if-modified-since',
  'x-amz-copy-source-if-unmodified-since',
];

/** Conditions on copies are refused rather than ignored. No client of this S3 needs them. */
export async function copyObject(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const unsupported = UNSUPPORTED_COPY_HEADERS.find((name) => headers[name] !== undefined);
  if (unsupported !== undefined) throw new S3Error('NotImplemented', { details: { Header: unsupported } });

  const from = copySource(headers);
  demand(service, call, from.versionId === undefined ? 's3:GetObject' : 's3:GetObjectVersion', from);
  const source = findObject(service, call, from);
  const replace = headers['x-amz-metadata-directive'] === 'REPLACE';
  if (!replace && from.versionId === undefined && from.bucket === bucket && from.key === key) {
    const message =
      "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata.";
    throw new S3Error('InvalidRequest', { message });
  }
  const kept = replace ? objectHeaders(headers) : source.headers;
  // An object that was uploaded in parts becomes one body. Its ETag becomes that of a single PUT.
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
