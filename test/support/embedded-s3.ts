import { S3Client } from '@aws-sdk/client-s3';
import { onTestFinished } from 'vitest';
import { s3Client } from '../../functions/s3/client.ts';
import { serveS3 } from '../../local/aws/s3/http.ts';
import { EmbeddedS3, type S3Options } from '../../local/aws/s3/s3.ts';
import { type Raw, send } from './raw-request.ts';
import type { Place } from './s3-calls.ts';
import { signedHeaders } from './sigv4.ts';

export const BUCKET = 'bucket';
export const VERSIONED = 'versioned';

export const CREDENTIALS = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'not-a-secret' };

export interface Running {
  readonly s3: EmbeddedS3;
  readonly endpoint: string;
  /** The SDK's client with its defaults, except for the endpoint. */
  readonly client: S3Client;
  /** The object `k` in the bucket of each kind. */
  readonly at: Place;
  readonly versioned: Place;
}

/** An S3 over HTTP with a bucket of each kind. It ends with the test. */
export async function startS3(options: S3Options = {}): Promise<Running> {
  const s3 = new EmbeddedS3(options);
  s3.createBucket(BUCKET);
  s3.createBucket(VERSIONED, { versioning: 'Enabled' });
  const server = await serveS3(s3, { credentials: [CREDENTIALS] });
  const client = new S3Client({
    endpoint: server.endpoint,
    region: 'us-east-1',
    credentials: CREDENTIALS,
    maxAttempts: 1,
  });
  onTestFinished(async () => {
    client.destroy();
    await server.close();
    s3.close();
  });
  const inBucket = (Bucket: string): Place => ({ client, Bucket, Key: 'k' });
  return { s3, endpoint: server.endpoint, client, at: inBucket(BUCKET), versioned: inBucket(VERSIONED) };
}

/** A client of ours to an S3 that answers as `handle` does. Both end with the test. */
export async function clientThrough(embedded: EmbeddedS3, handle: EmbeddedS3['handle']): Promise<S3Client> {
  const server = await serveS3({ handle } as EmbeddedS3, { credentials: [CREDENTIALS] });
  const client = s3Client({ endpoint: server.endpoint, region: 'us-east-1', credentials: CREDENTIALS });
  onTestFinished(async () => {
    client.destroy();
    await server.close();
    embedded.close();
  });
  return client;
}

/** A request to sign: each header has one value. */
interface Signable extends Raw {
  readonly headers?: Record<string, string>;
}

/** Sends a request with a signature that leaves the body out unless the headers say otherwise. */
export async function raw(endpoint: string, method: string, path: string, { headers = {}, body = '' }: Signable = {}) {
  const signed = await signedHeaders(
    { method, path, headers: { 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD', ...headers }, body },
    { endpoint, service: 's3', credentials: CREDENTIALS },
  );
  return send(endpoint, method, path, { headers: signed, body });
}
