import { createHash, createHmac } from 'node:crypto';
import { SignatureV4 } from '@smithy/signature-v4';

export interface KeyPair {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export interface Unsigned {
  readonly method: string;
  /** Path and query, percent-encoded as on the wire. */
  readonly path: string;
  /** `Host` is that of the endpoint, unless it is set here. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

export interface Signing {
  readonly endpoint: string;
  readonly service: string;
  readonly credentials: KeyPair;
  readonly region?: string;
  readonly date?: Date;
}

/**
 * The headers of a request with a signature that the SDK's signer made, which is not the code under test. If the headers
 * name a payload hash, that one is signed.
 */
export async function signedHeaders(unsigned: Unsigned, signing: Signing): Promise<Record<string, string>> {
  const { date = new Date() } = signing;
  const { headers } = await signer(signing).sign(sdkRequest(unsigned, signing), { signingDate: date });
  return headers;
}

/** A presigned path with its query, for a minute. */
export async function presignedPath(unsigned: Unsigned, signing: Signing): Promise<string> {
  const { date = new Date() } = signing;
  const request = sdkRequest(unsigned, signing);
  if (signing.service === 's3') request.headers['x-amz-content-sha256'] ??= 'UNSIGNED-PAYLOAD';
  const { path, query = {} } = await signer(signing).presign(request, { signingDate: date, expiresIn: 60 });
  const pairs = Object.entries(query).map(
    ([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`,
  );
  return `${path}?${pairs.join('&')}`;
}

function signer({ service, credentials, region = 'us-east-1' }: Signing): SignatureV4 {
  return new SignatureV4({
    service,
    region,
    credentials,
    sha256: Sha256,
    // S3 signs a path as it is.
    uriEscapePath: service !== 's3',
  });
}

function sdkRequest({ method, path, headers = {}, body = '' }: Unsigned, { endpoint }: Signing) {
  const { protocol, hostname, port, host } = new URL(endpoint);
  const [pathname = '', search = ''] = path.split(/\?(.*)/s);
  const query: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(search)) query[name] = value;
  return {
    protocol,
    hostname,
    port: Number(port),
    method,
    query,
    body,
    path: pathname,
    headers: { host, ...headers } as Record<string, string>,
  };
}

/** The hash that the SDK's signer computes with. */
class Sha256 {
  readonly #hash;

  constructor(secret?: unknown) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', secret as string | Uint8Array);
  }

  update(data: unknown): void {
    this.#hash.update(data as string | Uint8Array);
  }

  async digest(): Promise<Uint8Array> {
    return this.#hash.digest();
  }

  reset(): void {}
}
