import { PutObjectCommand, type PutObjectCommandInput, type S3Client } from '@aws-sdk/client-s3';
import { isConflict } from '../s3/errors.ts';

/** Maximum number of attempts while S3 answers 409. */
const CONFLICT_TRIES_MAX = 10;

/**
 * Puts an object if its key is free. Retries while S3 answers 409 because of another conditional write of the same key.
 * @throws 412 if the key is taken: see `isPreconditionFailed`.
 */
export async function putIfAbsent(s3: S3Client, input: PutObjectCommandInput, signal: AbortSignal): Promise<void> {
  const command = new PutObjectCommand({ ...input, IfNoneMatch: '*' });
  for (let tries = 1; ; tries += 1) {
    try {
      await s3.send(command, { abortSignal: signal });
      return;
    } catch (error) {
      if (!isConflict(error) || tries === CONFLICT_TRIES_MAX) throw error;
    }
  }
}
