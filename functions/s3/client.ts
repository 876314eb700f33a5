import { Readable } from 'node:stream';
import { S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';

/**
 * What a body of bytes is written in, in bytes. Given one whole, Node's TLS would keep an encrypted copy of all of it
 * until the other side has taken it.
 */
const SLICE_BYTES = 256 * 1024;

/**
 * The SDK's client, without what it spends on the bytes of files:
 *
 * - It would check S3's CRC64 of every object in plain JavaScript, at a third of the speed. The length of what is read
 *   is checked anyway, and TLS keeps the bytes.
 * - It would hash every body for the signature. A body of bytes has a CRC32 of its own, which S3 checks and which is
 *   signed, and goes over TLS.
 *   (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, `UNSIGNED-PAYLOAD`)
 * - It would write it in one piece: see {@link SLICE_BYTES}.
 * - It would open a connection of its own for every body of 2 MB and more, to ask S3 first whether it wants it
 *   (`Expect: 100-continue`).
 */
export function s3Client(config: S3ClientConfig): S3Client {
  const client = new S3Client({
    ...config,
    responseChecksumValidation: 'WHEN_REQUIRED',
    expectContinueHeader: false,
  });
  client.middlewareStack.add(
    (next) => (args) => {
      const { body, headers } = args.request as HttpRequest;
      if (body instanceof Uint8Array) headers['x-amz-content-sha256'] = 'UNSIGNED-PAYLOAD';
      return next(args);
    },
    { step: 'build', name: 'unsignedBytes' },
  );
  client.middlewareStack.add(
    (next) => (args) => {
      const request = args.request as HttpRequest;
      const { body } = request;
      if (!(body instanceof Uint8Array) || body.byteLength <= SLICE_BYTES) return next(args);
      // Below the retries and the signature: every attempt gets a stream of its own over the same bytes.
      return next({ ...args, request: { ...request, body: Readable.from(slices(body)) } });
    },
    { step: 'deserialize', name: 'slicedBytes', priority: 'low' },
  );
  return client;
}

/** What the SDK's middleware hands on, as far as it is of interest here. */
interface HttpRequest {
  readonly headers: Record<string, string>;
  readonly body?: unknown;
}

function* slices(body: Uint8Array): Generator<Uint8Array> {
  for (let from = 0; from < body.byteLength; from += SLICE_BYTES) yield body.subarray(from, from + SLICE_BYTES);
}
