import { Readable } from 'node:stream';
import { type PutObjectCommandInput, S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import type { Encryption } from './encryption.ts';

/**
 * Size of the slices in which a body is written, in bytes. If a body were written whole, Node's TLS would hold an
 * encrypted copy of all of it until the other side has received it.
 */
const SLICE_BYTES = 256 * 1024;

const UNSIGNED = 'UNSIGNED-PAYLOAD';

/** At an address of its own, S3 may have no host name for each bucket: an emulator, or a server that speaks S3. */
export const pathStyle = (): { readonly forcePathStyle: boolean } => ({
  forcePathStyle: (process.env.AWS_ENDPOINT_URL_S3 ?? process.env.AWS_ENDPOINT_URL) !== undefined,
});

/** Commands that make an object. The parts of an upload may not say it again: S3 knows it from the first request. */
const MAKES_OBJECT = /^(PutObject|CopyObject|CreateMultipartUpload)Command$/;

/** A policy may refuse a write that relies on the default encryption of the bucket. So each says its encryption. */
export function sayEncryption(client: S3Client, encryption: Encryption): void {
  client.middlewareStack.add(
    (next, { commandName = '' }) =>
      (args) => {
        const { input } = args;
        const { Bucket = '' } = input as Pick<PutObjectCommandInput, 'Bucket'>;
        return next(MAKES_OBJECT.test(commandName) ? { ...args, input: { ...input, ...encryption[Bucket] } } : args);
      },
    { step: 'initialize', name: 'encryption' },
  );
}

/**
 * Makes the SDK's client without four costs that it adds to the bytes of files:
 *
 * - It would check the CRC64 of every object that it reads, in plain JavaScript, at a third of the speed. The length is
 *   checked anyway, and TLS protects the bytes.
 * - It would hash every body for the signature. A body of bytes has a signed CRC32, which S3 checks, and goes over TLS.
 *   (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, `UNSIGNED-PAYLOAD`)
 * - It would write a body in one piece: see {@link SLICE_BYTES}.
 * - It would open a new connection for every body of 2 MB and more, to ask S3 first whether it accepts the body
 *   (`Expect: 100-continue`).
 */
export function s3Client(config: S3ClientConfig, encryption: Encryption = {}): S3Client {
  const client = new S3Client({
    ...pathStyle(),
    ...config,
    responseChecksumValidation: 'WHEN_REQUIRED',
    expectContinueHeader: false,
  });
  sayEncryption(client, encryption);
  client.middlewareStack.add(
    (next) => (args) => {
      const { body, headers } = args.request as HttpRequest;
      if (body instanceof Uint8Array) headers['x-amz-content-sha256'] = UNSIGNED;
      return next(args);
    },
    { step: 'build', name: 'unsignedBytes' },
  );
  client.middlewareStack.add(
    (next) => (args) => {
      const request = args.request as HttpRequest;
      const body = sliced(request.body);
      // This step runs below the retries and the signature, so every attempt gets a new stream over the same bytes.
      return next(body === request.body ? args : { ...args, request: { ...request, body } });
    },
    { step: 'deserialize', name: 'slicedBytes', priority: 'low' },
  );
  return client;
}

/** The parts that we use of the request that the SDK's middleware passes on. */
export interface HttpRequest {
  readonly protocol: string;
  readonly hostname: string;
  readonly port?: number;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body?: unknown;
}

/** A body as it is written: large ones of bytes in slices. */
const sliced = (body: unknown): unknown =>
  body instanceof Uint8Array && body.byteLength > SLICE_BYTES ? Readable.from(slices(body)) : body;

function* slices(body: Uint8Array): Generator<Uint8Array> {
  for (let from = 0; from < body.byteLength; from += SLICE_BYTES) yield body.subarray(from, from + SLICE_BYTES);
}
