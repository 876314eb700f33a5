import type { Readable } from 'node:stream';
import type { AwsAccess } from '../endpoint.ts';
import type { SignatureVerifier } from '../signature.ts';
import type { Bodies } from './bodies.ts';
import type { Catalog, Version } from './catalog.ts';
import { S3Error } from './errors.ts';
import type { S3EventName } from './events.ts';
import { type XmlElement, xmlDocument } from './xml.ts';

/** Headers of a request, with names in lower case. A value has one character for each byte on the wire. */
export type Headers = Readonly<Record<string, string | undefined>>;

export interface S3Request {
  readonly method: string;
  /** Path and query, percent-encoded as on the wire. The path begins with the bucket. */
  readonly url: string;
  readonly headers: Headers;
  readonly body: AsyncIterable<Uint8Array>;
  /** Verifies the request's signature. Undefined if the client is in this process: it needs none. */
  readonly verifier?: SignatureVerifier | undefined;
}

export interface S3Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** The reader must take a stream to its end or destroy it. */
  readonly body: Uint8Array | Readable;
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
  readonly requestId: string;
}

/** One permission that a request needs. */
export interface S3Access extends AwsAccess {
  /** The request that needs the permission. */
  readonly request: Pick<Call, 'method' | 'query'>;
}

/** Everything that the operations work with. */
export interface Service {
  readonly catalog: Catalog;
  readonly bodies: Bodies;
  /** The notification configurations as they were put, by bucket. They have no effect, and end with the process. */
  readonly notifications: Map<string, Uint8Array>;
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
export function integer({ query }: Call, name: string, fallback: number, max: number): number {
  const value = query.get(name);
  if (value === undefined || value === '') return fallback;
  if (!/^\d{1,10}$/.test(value)) throw invalid(name, `Provided ${name} not an integer or within integer range`);
  return Math.min(Number(value), max);
}

export function invalid(argument: string, message: string): S3Error {
  return new S3Error('InvalidArgument', { message, details: { ArgumentName: argument } });
}

export function notImplemented(what: string): S3Error {
  return new S3Error('NotImplemented', { message: `${what} is not implemented.` });
}

/** A time in a listing. S3 keeps whole seconds and writes them with `.000`. */
export function isoSeconds(ms: number): string {
  return new Date(Math.floor(ms / 1000) * 1000).toISOString();
}
