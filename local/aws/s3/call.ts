import type { AwsAccess } from '../endpoint.ts';
import type { ChunkSignatures, SignatureVerifier } from '../signature.ts';
import type { Bodies } from './bodies.ts';
import type { Catalog, Version } from './catalog.ts';
import type { Database } from './database.ts';
import { S3Error } from './errors.ts';
import type { S3EventName } from './events.ts';
import type { Headers } from './object-headers.ts';
import type { Uploads } from './uploads.ts';
import { type XmlElement, xmlDocument } from './xml.ts';

export interface S3Request {
  readonly method: string;
  /** Path and query, percent-encoded as on the wire. */
  readonly url: string;
  /** Names in lower case. The bucket is in `host` or in the path; `host` decides. */
  readonly headers: Headers;
  readonly body: AsyncIterable<Uint8Array>;
  /** Verifies the request's signature. Undefined if the client is in this process: it needs none. */
  readonly verifier?: SignatureVerifier | undefined;
}

export interface S3Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** The reader must take an iterable to its end or call `return`, as `for await` does. */
  readonly body: Uint8Array | AsyncIterable<Uint8Array>;
  /** True if the request was refused before its signature was verified. */
  readonly isStranger?: boolean;
}

/** A parsed request. */
export interface Call {
  readonly method: string;
  /** Empty for a request to the service itself. */
  readonly bucket: string;
  /** Empty for a request to a bucket. */
  readonly key: string;
  readonly query: ReadonlyMap<string, string>;
  readonly headers: Headers;
  readonly body: AsyncIterable<Uint8Array>;
  /** The access key of a signature that was verified. */
  readonly accessKeyId?: string | undefined;
  /** Set if each chunk of the body has a signature that must be verified. */
  readonly chunkSignatures?: ChunkSignatures | undefined;
  readonly requestId: string;
}

/** One permission that a request needs. */
export interface S3Access extends AwsAccess {
  /** The request that needs the permission. */
  readonly request: Pick<Call, 'method' | 'query'>;
}

/** Everything that the operations work with. */
export interface Service {
  readonly database: Database;
  readonly catalog: Catalog;
  readonly uploads: Uploads;
  readonly bodies: Bodies;
  /** Milliseconds since the epoch. */
  now(): number;
  /** Tells whether the caller has a permission. */
  allows(call: Call, action: string, target: Target): boolean;
  /** Maximum number of keys on a page of a listing. */
  readonly keysMax: number;
  /** Tells whether to refuse a conditional write with a simulated conflict. */
  conflict(): boolean;
  /** Call it after the commit, and in the order of commits. */
  publish(eventName: S3EventName, version: Version, call: Call, sequence?: number): Promise<void>;
}

export const KEY_BYTES_MAX = 1024;

/** The owner of all buckets and objects. */
export const OWNER: XmlElement = ['Owner', [['ID', 'embedded']]];

export const EMPTY = new Uint8Array();

export function xmlResponse(root: XmlElement, headers: Record<string, string> = {}): S3Response {
  return { status: 200, headers: { 'content-type': 'application/xml', ...headers }, body: xmlDocument(root) };
}

/** The bucket or the object that a permission is for. */
export interface Target {
  readonly bucket: string;
  /** Empty or undefined for the bucket itself. */
  readonly key?: string;
}

/** Checks that the caller has a permission. Throws AccessDenied. */
export function demand(service: Service, call: Call, action: string, target: Target = call): void {
  if (!service.allows(call, action, target)) throw new S3Error('AccessDenied');
}

/** Reads a whole number from the query. Throws InvalidArgument. */
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

/** A time in a listing. S3 keeps whole seconds and writes them with `.000`. */
export function isoSeconds(ms: number): string {
  return new Date(Math.floor(ms / 1000) * 1000).toISOString();
}
