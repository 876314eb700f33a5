import type { Readable } from 'node:stream';
import { Upload } from '@aws-sdk/lib-storage';
import { essenceOf, MEDIA_TYPE } from '../functions/base/media-type.ts';
import { partBytesOf } from '../functions/s3/limits.ts';
import { PARAMETERS_METADATA, TEMPLATE_METADATA } from '../functions/uploads/route-snapshot.ts';
import type { Deployment } from './deployment.ts';
import { withPrefix } from './find.ts';

/** @internal */
export { jsonSchema } from '../functions/uploads/routes.ts';

/** What replaces parts of the route for one file, where the route allows it. */
export interface Overrides {
  readonly template?: string | undefined;
  /** JSON. */
  readonly parameters?: string | undefined;
}

/** A file that is in the inbox. */
export interface Put {
  readonly id: string;
  readonly key: string;
  readonly bytes: number;
}

/** How a file is sent. */
export interface PutTerms {
  readonly signal: AbortSignal;
  /** Parts that are under way at the same time. Each is in memory, and so is one that is being filled. */
  readonly partsAtOnce: number;
  /** Called with the bytes of this file that S3 has. */
  readonly onProgress?: ((bytes: number) => void) | undefined;
}

/**
 * A file whose bytes come from elsewhere.
 * @internal
 */
export interface BodyToPut {
  /** With or without the prefix of the inbox. */
  readonly key: string;
  readonly bytes: number;
  readonly body: Readable;
  /** If it is not a valid media type, it is left out, and the key decides. */
  readonly mediaType?: string | undefined;
  /** Replaces parts of the route, where the route allows it. */
  readonly overrides?: Overrides | undefined;
  /** Other metadata, as S3 returned it. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/**
 * Uploads a stream to the inbox, in parts if it is large. If the stream fails, no object and no part is left behind.
 * @throws the error of the stream or of S3.
 * @internal
 */
export async function putBody(
  file: BodyToPut,
  deployment: Deployment,
  { signal, partsAtOnce, onProgress = () => {} }: PutTerms,
): Promise<Put> {
  const { s3, inbox, settings } = deployment;
  const { bytes, body } = file;
  const mediaType = essenceOf(file.mediaType ?? '');
  const { template, parameters } = file.overrides ?? {};
  const key = withPrefix(file.key, deployment);
  const metadata = {
    ...file.metadata,
    ...(template !== undefined && { [TEMPLATE_METADATA]: asciiWord(template) }),
    ...(parameters !== undefined && { [PARAMETERS_METADATA]: asciiJson(parameters) }),
  };
  const type = MEDIA_TYPE.test(mediaType) ? { ContentType: mediaType } : {};
  const upload = new Upload({
    client: s3,
    params: { Bucket: settings.inboxBucket, Key: key, Body: body, Metadata: metadata, ...type },
    partSize: partBytesOf(bytes),
    queueSize: partsAtOnce,
  });
  upload.on('httpUploadProgress', ({ loaded = 0 }) => onProgress(loaded));
  const stop = () => body.destroy(new Error('The upload was stopped.'));
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  try {
    // Not `upload.abort()`: it would return before the parts are deleted. A broken stream has them deleted first.
    const { ETag } = await upload.done();
    // S3 may fail after it has begun to answer 200. What was at the key before must not count as this file.
    if (ETag === undefined) throw new Error(`S3 answered 200, and does not have ${key}`);
  } finally {
    signal.removeEventListener('abort', stop);
    body.destroy();
  }
  const current = await inbox.current(settings.inboxBucket, key, signal);
  if (current === undefined) throw new Error(`${key} was uploaded, and is gone again`);
  return { id: current.id, key, bytes };
}

/** Metadata is sent as ASCII. In JSON, every other character can be escaped. */
const asciiJson = (json: string): string =>
  json.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** As an encoded word, if it is not ASCII. @see https://www.rfc-editor.org/rfc/rfc2047 */
const asciiWord = (text: string): string =>
  /^[\x20-\x7e]*$/.test(text) ? text : `=?UTF-8?B?${Buffer.from(text).toString('base64')}?=`;
