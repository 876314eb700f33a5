import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Upload } from '@aws-sdk/lib-storage';
import { partBytesOf } from '../functions/s3/limits.ts';
import { mediaTypeOf } from '../functions/uploads/media-type.ts';
import { PARAMETERS_METADATA, TEMPLATE_METADATA } from '../functions/uploads/route-snapshot.ts';
import { type Route, routeFor } from '../functions/uploads/routes.ts';
import type { Deployment } from './deployment.ts';
import { withPrefix } from './find.ts';

/** A file of this machine, and the key that it gets, with or without the prefix of the inbox. */
export interface FileToPut {
  readonly path: string;
  readonly key: string;
}

/** What replaces parts of the route for one file, where the route allows it. */
export interface Overrides {
  readonly template?: string | undefined;
  /** JSON. */
  readonly parameters?: string | undefined;
}

/** A file that is in the inbox. */
export interface Put {
  readonly key: string;
  readonly uploadId: string;
  readonly bytes: number;
}

/** The route that would take a file. Undefined if none would. */
export const routeOfFile = ({ key }: FileToPut, deployment: Deployment): Route | undefined => {
  const full = withPrefix(key, deployment);
  return routeFor(deployment.settings.routes, { key: full, mediaType: mediaTypeOf(undefined, full) });
};

/**
 * Uploads a file to the inbox, in parts if it is large. Each upload that a route wants is paid for.
 * @param onProgress called with the bytes of this file that S3 has.
 */
export async function put(
  file: FileToPut,
  overrides: Overrides,
  deployment: Deployment,
  { signal, onProgress = () => {} }: { readonly signal: AbortSignal; readonly onProgress?: (bytes: number) => void },
): Promise<Put> {
  const { s3, inbox, settings } = deployment;
  const key = withPrefix(file.key, deployment);
  const { size } = await stat(file.path);
  const body = createReadStream(file.path, { signal });
  const metadata = {
    ...(overrides.template !== undefined && { [TEMPLATE_METADATA]: overrides.template }),
    ...(overrides.parameters !== undefined && { [PARAMETERS_METADATA]: overrides.parameters }),
  };
  const upload = new Upload({
    client: s3,
    params: { Bucket: settings.inboxBucket, Key: key, Body: body, Metadata: metadata },
    partSize: partBytesOf(size),
  });
  upload.on('httpUploadProgress', ({ loaded = 0 }) => onProgress(loaded));
  try {
    await upload.done();
  } finally {
    body.destroy();
  }
  const current = await inbox.current(settings.inboxBucket, key, signal);
  if (current === undefined) throw new Error(`${key} was uploaded, and is gone again`);
  return { key, uploadId: current.id, bytes: size };
}
