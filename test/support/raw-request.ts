import { type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';

export interface RawResponse {
  readonly status: number;
  /** The status, and the code of an error of S3: `200`, `404 NoSuchKey`. */
  readonly outcome: string;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  /** The bytes as UTF-8. */
  readonly body: string;
}

export interface Raw {
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
}

/**
 * Sends headers that `fetch` forbids, and none of those that `fetch` adds. Each request opens its own connection: a
 * server may close an idle one just as it is used again.
 */
export function send(
  endpoint: string,
  method: string,
  path: string,
  { headers = {}, body = '' }: Raw = {},
): Promise<RawResponse> {
  return new Promise((resolve, reject) => {
    const sent = request(endpoint, { method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const { statusCode: status = 0, headers } = response;
        const bytes = Buffer.concat(chunks);
        const body = bytes.toString();
        const [, code] = /<Code>(.*?)<\/Code>/.exec(body) ?? [];
        resolve({ status, headers, bytes, body, outcome: code === undefined ? `${status}` : `${status} ${code}` });
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}
