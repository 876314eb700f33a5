import type { Bodies } from './bodies.ts';
import type { Catalog, Version } from './catalog.ts';
import { S3Error } from './errors.ts';
import type { S3EventName } from './events.ts';
import type { Headers } from './object-headers.ts';
import { type XmlElement, xmlDocument } from './xml.ts';

export interface S3Request {
  readonly method: string;
  /** Path and query as on the wire, percent-encoded. */
  readonly url: string;
  /** Names in lower case. `host` decides whether the bucket is in it or in the path. */
  readonly headers: Headers;
  readonly body: AsyncIterable<Uint8Array>;
}

export interface S3Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** An iterable must be taken to its end or returned, as `for await` does. */
  readonly body: Uint8Array | AsyncIterable<Uint8Array>;
}

/** A request, taken apart. */
export interface Call {
  readonly method: string;
  /** Empty where the request is to the service, or to a bucket. */
  readonly bucket: string;
  readonly key: string;
  readonly query: ReadonlyMap<string, string>;
  readonly headers: Headers;
  readonly body: AsyncIterable<Uint8Array>;
  readonly requestId: string;
}

/** One permission that a request needs, in IAM's words. */
export interface S3Access {
  /** Of whoever signed the request. */
  readonly accessKeyId: string | undefined;
  /** Such as `s3:GetObject`. */
  readonly action: string;
  /** Such as `arn:aws:s3:::bucket/key`. */
  readonly resource: string;
  /** What conditions may ask of: the prefix of a listing. */
  readonly context: Readonly<Record<string, string>>;
  /** The request that needs it. */
  readonly request: Pick<Call, 'method' | 'query'>;
}

/** What every operation works with. */
export interface Service {
  readonly catalog: Catalog;
  readonly bodies: Bodies;
  /** Milliseconds since the epoch. */
  now(): number;
  /** Whether the caller may do this to the bucket, or with a key to the object. */
  allows(call: Call, action: string, bucket: string, key?: string): boolean;
  /** Keys on a page of a listing, at most. */
  readonly keysMax: number;
  /** Whether a conditional write is to meet a conflict that is not there. */
  conflict(): boolean;
  /** To be called after the commit and in the order of commits. */
  publish(eventName: S3EventName, version: Version, call: Call, sequence?: number): Promise<void>;
}

export const KEY_BYTES_MAX = 1024;

export const EMPTY = new Uint8Array();

export function xmlResponse(root: XmlElement, headers: Record<string, string> = {}): S3Response {
  return { status: 200, headers: { 'content-type': 'application/xml', ...headers }, body: xmlDocument(root) };
}

/** Throws AccessDenied. */
export function demand(service: Service, call: Call, action: string, bucket: string, key?: string): void {
  if (!service.allows(call, action, bucket, key)) throw new S3Error('AccessDenied');
}

/** A whole number from a query. Throws InvalidArgument. */
export function integer(call: Call, name: string, fallback: number, max: number): number {
  const value = call.query.get(name);
  if (value === undefined || value === '') return fallback;
  if (!/^\d{1,10}$/.test(value) || Number(value) > 2 ** 31 - 1) {
    throw new S3Error('InvalidArgument', {
      message: `Provided ${name} not an integer or within integer range`,
      details: { ArgumentName: name, ArgumentValue: value },
    });
  }
  return Math.min(Number(value), max);
}

/** The time in listings: S3 keeps whole seconds and writes them with `.000`. */
export function isoSeconds(ms: number): string {
  return new Date(Math.floor(ms / 1000) * 1000).toISOString();
}
