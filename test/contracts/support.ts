import { createHash } from 'node:crypto';
import { afterAll, test } from 'vitest';
import type { Place } from '../support/s3-calls.ts';
import { type BucketKind, openTarget } from './target.ts';

/** The S3 of this test file. */
export const target = await openTarget();
afterAll(() => target.close());

/** A key that no other test uses. Keys that begin with it are free too. */
export type Given = Place;

/** Tests one behaviour with a bucket of a kind. */
export function behaviour(name: string, kind: BucketKind | 'any', ask: (given: Given) => Promise<void>): void {
  test(name, async ({ skip }) => {
    const bucket = target.bucket(kind);
    if ('missing' in bucket) return skip(bucket.missing);
    const id = createHash('sha256').update(name).digest('hex').slice(0, 12);
    await ask({ client: target.client, Bucket: bucket.name, Key: `${target.prefix}${id}` });
  });
}
