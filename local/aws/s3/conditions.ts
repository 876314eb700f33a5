import type { Version } from './catalog.ts';
import { S3Error } from './errors.ts';
import type { Headers } from './object-headers.ts';

/** The condition of a write on the current object of the key. */
export interface WriteCondition {
  readonly kind: 'absent' | 'present' | 'etag';
  readonly etag: string;
}

/** The condition of a PUT, a copy or a completed upload. If-None-Match accepts only `*`, and If-Match only an ETag. */
export function writeCondition(headers: Headers): WriteCondition | undefined {
  const ifMatch = headers['if-match'];
  const ifNoneMatch = headers['if-none-match'];
  if (ifMatch !== undefined && ifNoneMatch !== undefined) throw new S3Error('NotImplemented');
  if (ifNoneMatch !== undefined) {
    if (ifNoneMatch !== '*') throw new S3Error('NotImplemented', { details: { Header: 'If-None-Match' } });
    return { kind: 'absent', etag: '' };
  }
  if (ifMatch === '*') throw new S3Error('NotImplemented', { details: { Header: 'If-Match' } });
  return ifMatch === undefined ? undefined : { kind: 'etag', etag: unquote(ifMatch) };
}

/** The condition of a deletion. If-Match accepts an ETag, or `*` for any object. */
export function deleteCondition(etag: string | undefined): WriteCondition | undefined {
  if (etag === undefined) return undefined;
  return etag === '*' ? { kind: 'present', etag: '' } : { kind: 'etag', etag: unquote(etag) };
}

/** Throws PreconditionFailed; or NoSuchKey if the condition is an ETag and there is no object. */
export function checkWrite(condition: WriteCondition | undefined, current: Version | undefined): void {
  const object = current?.deleteMarker ? undefined : current;
  const failed = (header: string) => new S3Error('PreconditionFailed', { details: { Condition: header } });
  switch (condition?.kind) {
    case 'absent':
      if (object !== undefined) throw failed('If-None-Match');
      break;
    case 'present':
      if (object === undefined) throw failed('If-Match');
      break;
    case 'etag':
      if (object === undefined) throw new S3Error('NoSuchKey');
      if (object.etag !== condition.etag) throw failed('If-Match');
      break;
  }
}

/**
 * Checks the conditions of a read in the order of RFC 9110, as S3 describes it: If-Match replaces If-Unmodified-Since,
 * and If-None-Match replaces If-Modified-Since. S3 ignores an If-Modified-Since in the future. `not modified` means
 * 304. Throws PreconditionFailed.
 */
export function checkRead(headers: Headers, { etag, modifiedMs }: Version, nowMs: number): 'read' | 'not modified' {
  const modified = Math.floor(modifiedMs / 1000);
  const ifMatch = headers['if-match'];
  const unmodifiedSince = seconds(headers['if-unmodified-since']);
  if (ifMatch !== undefined) {
    if (!matches(ifMatch, etag)) throw new S3Error('PreconditionFailed', { details: { Condition: 'If-Match' } });
  } else if (unmodifiedSince !== undefined && modified > unmodifiedSince) {
    throw new S3Error('PreconditionFailed', { details: { Condition: 'If-Unmodified-Since' } });
  }
  const ifNoneMatch = headers['if-none-match'];
  if (ifNoneMatch !== undefined) return matches(ifNoneMatch, etag) ? 'not modified' : 'read';
  const modifiedSince = seconds(headers['if-modified-since']);
  const inPast = modifiedSince !== undefined && modifiedSince <= nowMs / 1000;
  return inPast && modified <= modifiedSince ? 'not modified' : 'read';
}

const COPY_PREFIX = 'x-amz-copy-source-';
const READ_CONDITIONS = ['if-match', 'if-none-match', 'if-modified-since', 'if-unmodified-since'];

/**
 * Checks the conditions of a copy on its source. S3 combines them as those of a read.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html
 *
 * Throws PreconditionFailed, also where a read answers 304.
 */
export function checkCopySource(headers: Headers, source: Version, nowMs: number): void {
  const conditions = Object.fromEntries(READ_CONDITIONS.map((name) => [name, headers[COPY_PREFIX + name]]));
  if (checkRead(conditions, source, nowMs) === 'read') return;
  const Condition = conditions['if-none-match'] === undefined ? 'If-Modified-Since' : 'If-None-Match';
  throw new S3Error('PreconditionFailed', { details: { Condition: COPY_PREFIX + Condition } });
}

function matches(list: string, etag: string): boolean {
  return list.split(',').some((item) => item.trim() === '*' || unquote(item.trim()) === etag);
}

function unquote(etag: string): string {
  return etag.replace(/^"(.*)"$/, '$1');
}

/** Undefined without a valid date. */
function seconds(date: string | undefined): number | undefined {
  const ms = date === undefined ? Number.NaN : Date.parse(date);
  return Number.isNaN(ms) ? undefined : Math.floor(ms / 1000);
}
