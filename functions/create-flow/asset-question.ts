import * as z from 'zod/mini';
import type { Invocation } from '../base/invocation.ts';
import { isDenied } from '../s3/errors.ts';
import { UploadArchivedError, UploadDeniedError, UploadGoneError } from '../uploads/inbox.ts';
import { type BatchResponse, createFlows } from './batch.ts';
import type { CreatePorts } from './delivery.ts';

const questionSchema = z.strictObject({
  /** A stored asset of the results bucket, as an entry names it. */
  asset: z.strictObject({
    key: z.string(),
    versionId: z.optional(z.string()),
    etag: z.optional(z.string()),
    bytes: z.int().check(z.nonnegative()),
  }),
});
type Question = z.infer<typeof questionSchema>;

/**
 * Whether this function can read an asset: `refused` if S3 does not hand it out to this function, `gone` if it was
 * replaced, deleted or archived, `unread` if S3 failed.
 */
export type AssetAnswer =
  | { readonly asset: 'readable' }
  | { readonly asset: 'gone' | 'refused' | 'unread'; readonly message: string };

/**
 * Makes flows of uploads, or answers an operator whether a later stage can get its input. Only this function can tell:
 * its role, the policies of the bucket and of its key, and the way to S3 decide together.
 */
export async function createFlowsOrAnswer(
  event: unknown,
  ports: CreatePorts,
  invocation: Invocation,
): Promise<BatchResponse | AssetAnswer> {
  const question = questionSchema.safeParse(event);
  return question.success ? answerTo(question.data, ports, invocation.work) : createFlows(event, ports, invocation);
}

async function answerTo(
  { asset }: Question,
  { inbox, settings }: CreatePorts,
  signal: AbortSignal,
): Promise<AssetAnswer> {
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
