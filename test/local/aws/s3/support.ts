import { request } from 'node:http';
import { S3Client, S3ServiceException } from '@aws-sdk/client-s3';
import { onTestFinished } from 'vitest';
import { serveS3 } from '../../../../local/aws/s3/http.ts';
import { EmbeddedS3, type S3Options } from '../../../../local/aws/s3/s3.ts';
import { signedHeaders } from '../../../support/sigv4.ts';

export const BUCKET = 'bucket';
export const VERSIONED = 'versioned';
export const SUSPENDED = 'suspended';

export const CREDENTIALS = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'not-a-secret' };

export interface Running {
  readonly s3: EmbeddedS3;
  readonly endpoint: string;
  /** The SDK's client with its defaults, except for the endpoint. */
  readonly client: S3Client;
}

/** An S3 over HTTP with a bucket of each kind. It ends with the test. */
export async function startS3(options: S3Options = {}): Promise<Running> {
  const s3 = new EmbeddedS3(options);
  s3.createBucket(BUCKET);
  s3.createBucket(VERSIONED, { versioning: 'Enabled' });
  s3.createBucket(SUSPENDED, { versioning: 'Suspended' });
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
  return { s3, endpoint: server.endpoint, client };
}

export interface RawResponse {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly body: string;
}

interface Raw {
  readonly headers?: Record<string, string>;
  readonly body?: string | Buffer;
}

/** Sends a request exactly as given, with a signature that leaves the body out unless the headers say otherwise. */
export async function raw(
  endpoint: string,
  method: string,
  path: string,
  { headers = {}, body = '' }: Raw = {},
): Promise<RawResponse> {
  const signed = await signedHeaders(
    { method, path, headers: { 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD', ...headers }, body },
    { endpoint, service: 's3', credentials: CREDENTIALS },
  );
  return send(endpoint, method, path, { headers: signed, body });
}

/** Sends a request exactly as given. */
export function send(
  endpoint: string,
  method: string,
  path: string,
  { headers = {}, body = '' }: Raw = {},
): Promise<RawResponse> {
  return new Promise((resolve, reject) => {
    const sent = request(endpoint, { method, path, headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
        }),
      );
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/** The error of a refused call. If the call succeeds, the test fails. */
export async function refusal(call: Promise<unknown>): Promise<{ status: number | undefined; code: string }> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof S3ServiceException)) throw error;
    return { status: error.$metadata.httpStatusCode, code: error.name };
  }
  throw new Error('The call was not refused.');
}
