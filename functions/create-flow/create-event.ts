import * as z from 'zod/mini';
import type { Invocation } from '../base/invocation.ts';
import type { Entry } from '../ledger/entry.ts';
import { isDamaged } from '../ledger/store.ts';
import { isDenied } from '../s3/errors.ts';
import { UploadArchivedError, UploadDeniedError, UploadGoneError } from '../uploads/inbox.ts';
import { type BatchResponse, createFlows } from './batch.ts';
import type { CreatePorts } from './delivery.ts';

/**
 * Maximum size of the canary, in bytes. It is held in memory while it is put again, and a small file shows as much as a
 * large one.
 */
export const CANARY_BYTES_MAX = 1024 * 1024;

const requestSchema = z.union([
  z.strictObject({
    /** A stored asset of the results bucket, as an entry names it. Can this function read it? */
    asset: z.strictObject({
      key: z.string(),
      versionId: z.optional(z.string()),
      etag: z.optional(z.string()),
      bytes: z.int().check(z.nonnegative()),
    }),
  }),
  /** Put the canary again. */
  z.strictObject({ canary: z.literal(true) }),
]);
type Asset = Extract<z.infer<typeof requestSchema>, { readonly asset: unknown }>['asset'];

/**
 * Whether this function can read an asset: `refused` if S3 does not hand it out to this function, `gone` if it was
 * replaced, deleted or archived, `unread` if S3 failed.
 */
export type AssetAnswer =
  | { readonly asset: 'readable' }
  | { readonly asset: 'gone' | 'refused' | 'unread'; readonly message: string };

/** Whether the canary was put again, and if not, why not. */
export type CanaryAnswer = { readonly canary: 'put' } | { readonly canary: 'not put'; readonly message: string };

/**
 * Makes flows of uploads, or does what its other events ask.
 *
 * An operator asks whether a later stage can get its input. Only this function can tell: its role, the policies of the
 * bucket and of its key, and the way to S3 decide together.
 *
 * The hourly schedule asks to put the canary again. The canary is then a new upload, and takes the way of every other.
 */
export async function createFlowsOrAnswer(
  event: unknown,
  ports: CreatePorts,
  invocation: Invocation,
): Promise<BatchResponse | AssetAnswer | CanaryAnswer> {
  const { data: request } = requestSchema.safeParse(event);
  if (request === undefined) return createFlows(event, ports, invocation);
  if ('asset' in request) return answerTo(request.asset, ports, invocation.work);
  return putCanary(ports, invocation.work);
}

async function putCanary(
  { inbox, ledger, settings, telemetry }: CreatePorts,
  signal: AbortSignal,
): Promise<CanaryAnswer> {
  const { inboxBucket: bucket, canaryKey: key } = settings;
  if (key === '') return { canary: 'not put', message: 'settings.canaryKey names no file' };
  try {
    const last = await inbox.current(bucket, key, signal);
    const entry = last && (await entryOf(last.id, ledger, signal));
    if (entry?.state === 'waiting' || entry?.state === 'claimed') {
      const why = entry.state === 'waiting' ? entry.message : 'it is being sent';
      telemetry.log.warn('The canary was not put again, because the last one still waits', { key, why });
      return { canary: 'not put', message: `The last canary still waits: ${why}` };
    }
    await inbox.putAgain({ bucket, key }, CANARY_BYTES_MAX, signal);
    return { canary: 'put' };
  } catch (error) {
    signal.throwIfAborted();
    // Not thrown: another try within minutes would not help, and the alarm of the canary tells.
    telemetry.log.error('The canary could not be put again', { key, error: error as Error });
    return { canary: 'not put', message: (error as Error).message };
  }
}

/** The entry of the last canary. One that is damaged keeps no other from being put. */
async function entryOf(id: string, ledger: CreatePorts['ledger'], signal: AbortSignal): Promise<Entry | undefined> {
  try {
    return (await ledger.read(id, signal))?.entry;
  } catch (error) {
    if (isDamaged(error)) return undefined;
    throw error;
  }
}

async function answerTo(asset: Asset, { inbox, settings }: CreatePorts, signal: AbortSignal): Promise<AssetAnswer> {
  try {
    await inbox.probe({ ...asset, bucket: settings.resultsBucket, mediaType: 'application/octet-stream' }, signal);
    return { asset: 'readable' };
  } catch (error) {
    signal.throwIfAborted();
    const { message, cause } = error as Error;
    if (error instanceof UploadGoneError || error instanceof UploadArchivedError) return { asset: 'gone', message };
    // Without the right to list, the refusal is all that is known.
    if (error instanceof UploadDeniedError || isDenied(cause)) return { asset: 'refused', message };
    return { asset: 'unread', message };
  }
}
