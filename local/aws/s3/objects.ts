import type { ByteRange } from './bodies.ts';
import { type Call, demand, EMPTY, type S3Response, type Service } from './call.ts';
import type { Version } from './catalog.ts';
import type { Checksum } from './checksums.ts';
import { checkTarget, commit, demandWrite, keeping, versionHeader } from './commit.ts';
import { checkRead, writeCondition } from './conditions.ts';
import { S3Error } from './errors.ts';
import { findObject, modified } from './find.ts';
import { receive } from './incoming.ts';
import { partNumber } from './multipart.ts';
import { answerHeaders, objectHeaders } from './object-headers.ts';
import { headerTags, tagCountHeader } from './tags.ts';

export async function putObject(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const condition = writeCondition(headers);
  const kept = objectHeaders(headers);
  const tags = headerTags(headers);
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
      tags,
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
  if (checkRead(headers, version, service.now()) === 'not modified')
    return { status: 304, headers: about, body: EMPTY };

  const { bytes } = version;
  const range = query.has('partNumber') ? partRange(call, version) : parseRange(headers.range, bytes);
  const whole = range.start === 0 && range.end === bytes;
  const answer = {
    ...answerHeaders(version.headers),
    ...overrides(query),
    ...about,
    ...tagCountHeader(service, call, version),
    ...(whole && headers['x-amz-checksum-mode']?.toUpperCase() === 'ENABLED' ? checksumHeaders(version.checksum) : {}),
    ...(range.partial ? { 'content-range': `bytes ${range.start}-${range.end - 1}/${bytes}` } : {}),
    ...(range.parts === undefined ? {} : { 'x-amz-mp-parts-count': String(range.parts) }),
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

interface AnsweredRange extends ByteRange {
  readonly partial: boolean;
  /** Number of parts of an object that was uploaded in parts, if the request named one. */
  readonly parts?: number;
}

/** The bytes of a part. An object that was not uploaded in parts has one. Throws InvalidPartNumber, InvalidRequest. */
function partRange(call: Call, { segments, etag, bytes }: Version): AnsweredRange {
  if (call.headers.range !== undefined) {
    const message = 'Cannot specify both Range header and partNumber query parameter';
    throw new S3Error('InvalidRequest', { message });
  }
  const number = partNumber(call);
  const parts = etag.includes('-') ? segments.length : undefined;
  if (number > (parts ?? 1)) {
    throw new S3Error('InvalidPartNumber', {
      details: { ActualPartCount: String(parts ?? 1), PartNumberRequested: String(number) },
    });
  }
  if (parts === undefined) return { start: 0, end: bytes, partial: bytes > 0 };
  const start = segments.slice(0, number - 1).reduce((sum, segment) => sum + segment.bytes, 0);
  return { start, end: start + (segments[number - 1]?.bytes ?? 0), partial: bytes > 0, parts };
}

/** Parses a single range. As in S3, every other value means no range. Throws InvalidRange if it covers no byte. */
function parseRange(header: string | undefined, bytes: number): AnsweredRange {
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
