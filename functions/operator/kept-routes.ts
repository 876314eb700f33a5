import { PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import { ROUTES_KEY } from '../ledger/keys.ts';
import type { Settings } from '../settings/environment.ts';

/*
 * Routes that are too long for the environment are in a file beside the code, which only the functions can read. So the
 * collecting function keeps them in the ledger as well, where every operator can read them.
 */

/** The settings whose routes this process has kept. A process begins with its deployment, and the routes stay the same. */
const kept = new WeakSet<Settings>();

/** Keeps the routes of this process, once, if the environment does not hold them. @throws any error of S3. */
export async function keepRoutes(
  { s3, settings }: { readonly s3: S3Client; readonly settings: Settings },
  abortSignal: AbortSignal,
): Promise<void> {
  if (settings.areRoutesBeside !== true || kept.has(settings)) return;
  const object = { Bucket: settings.ledgerBucket, Key: ROUTES_KEY, ContentType: 'application/json' };
  await s3.send(new PutObjectCommand({ ...object, Body: JSON.stringify({ routes: settings.routes }) }), {
    abortSignal,
  });
  kept.add(settings);
}
