import { request } from 'node:http';

export interface RawResponse {
  readonly status: number;
  /** The status, and the code of an error of S3: `200`, `404 NoSuchKey`. */
  readonly outcome: string;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly body: string;
}

export interface Raw {
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array;
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
      response.on('end', () => {
        const { statusCode: status = 0, headers } = response;
        const text = Buffer.concat(chunks).toString();
        const [, code] = /<Code>(.*?)<\/Code>/.exec(text) ?? [];
        resolve({ status, headers, body: text, outcome: code === undefined ? `${status}` : `${status} ${code}` });
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}
