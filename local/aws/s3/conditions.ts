import type { Version } from './catalog.ts';
import { S3Error } from './errors.ts';
import type { Headers } from './object-headers.ts';

/** What a write demands of the current object at its key. */
export interface WriteCondition {
  readonly kind: 'absent' | 'present' | 'etag';
  readonly etag: string;
}

/** Of a PUT or the completion of a multipart upload: If-None-Match takes `*` only, If-Match an ETag only. */
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

/** Of a deletion: If-Match takes an ETag, or `*` for any object. */
export function deleteCondition(etag: string | undefined): WriteCondition | undefined {
  if (etag === undefined) return undefined;
  return etag === '*' ? { kind: 'present', etag: '' } : { kind: 'etag', etag: unquote(etag) };
}

/** Throws PreconditionFailed, or NoSuchKey where an ETag is demanded and there is no object. */
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
 * Of a read, in the order of RFC 9110 as S3 describes it: If-Match that holds outweighs If-Unmodified-Since,
 * If-None-Match outweighs If-Modified-Since. Throws PreconditionFailed; says whether the answer is 304.
 */
export function checkRead(headers: Headers, { etag, modifiedMs }: Version): 'read' | 'not modified' {
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
  return modifiedSince !== undefined && modified <= modifiedSince ? 'not modified' : 'read';
}

function matches(list: string, etag: string): boolean {
  return list.split(',').some((item) => item.trim() === '*' || unquote(item.trim()) === etag);
}

function unquote(etag: string): string {
  return etag.replace(/^"(.*)"$/, '$1');
}

/** A date that does not parse is as good as none. */
function seconds(date: string | undefined): number | undefined {
  const ms = date === undefined ? Number.NaN : Date.parse(date);
  return Number.isNaN(ms) ? undefined : Math.floor(ms / 1000);
}
