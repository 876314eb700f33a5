import { GetObjectCommand, PutObjectCommand, type S3Client } from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import { ROUTES_KEY } from '../ledger/keys.ts';
import { isAbsent } from '../s3/errors.ts';
import type { Settings } from '../settings/environment.ts';
import type { Route } from '../uploads/route.ts';
import { routesSchema } from '../uploads/routes.ts';

/*
 * Routes that are too long for the environment are in a file beside the code, which only the functions can read. So the
 * collecting function keeps them in the ledger as well, where every operator can read them.
 */

const keptSchema = z.object({ routes: routesSchema });

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

/**
 * S3 tells the time of an object in whole seconds, and the first tick after a deployment may come in the second of the
 * deployment. In milliseconds.
 */
const TOLERANCE_MS = 2_000;

/**
 * The routes that the collecting function has kept since its deployment. Undefined if it has made no tick since then.
 * @param deployedAt when the function was last changed, in milliseconds since the epoch. Undefined if that is not known.
 */
export async function readKeptRoutes(
  { s3, bucket, deployedAt = 0 }: { readonly s3: S3Client; readonly bucket: string; readonly deployedAt?: number },
  abortSignal: AbortSignal,
): Promise<readonly Route[] | undefined> {
  try {
    const get = new GetObjectCommand({ Bucket: bucket, Key: ROUTES_KEY });
    const { Body, LastModified } = await s3.send(get, { abortSignal });
    const text = (await Body?.transformToString()) ?? '';
    if ((LastModified?.getTime() ?? 0) + TOLERANCE_MS < deployedAt) return undefined;
    return keptSchema.safeParse(JSON.parse(text)).data?.routes;
  } catch (error) {
    // Another program wrote it, or nobody did.
    if (error instanceof SyntaxError || isAbsent(error)) return undefined;
    throw error;
  }
}
