import {
  HeadObjectCommand,
  type HeadObjectCommandInput,
  type HeadObjectCommandOutput,
  ListObjectVersionsCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { decodedKey } from './encoded-keys.ts';
import { isAbsent } from './errors.ts';

/** The description of an object. Undefined if there is none at the key. */
export async function headObject(
  s3: S3Client,
  where: HeadObjectCommandInput & { readonly Bucket: string; readonly Key: string },
  abortSignal: AbortSignal,
): Promise<HeadObjectCommandOutput | undefined> {
  try {
    return await s3.send(new HeadObjectCommand(where), { abortSignal });
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

/** Where a page of a listing of versions ends. */
export interface VersionMarker {
  readonly key: string;
  readonly versionId: string;
}

/** A version in a listing, in S3's words. Its key is decoded. */
export interface ListedVersion {
  readonly Key: string;
  readonly VersionId?: string | undefined;
  readonly ETag?: string | undefined;
  readonly Size?: number | undefined;
  readonly LastModified?: Date | undefined;
  readonly IsLatest?: boolean | undefined;
}

/** One page of a listing of versions. */
interface VersionPage {
  readonly versions: readonly ListedVersion[];
  readonly deleteMarkers: readonly Pick<ListedVersion, 'Key' | 'VersionId'>[];
  /** False if the service did not encode the keys. It may then have changed or dropped some characters. */
  readonly isEncoded: boolean;
  /** True if the service says that this is the last page. */
  readonly isLast: boolean;
  /** Where the next page begins. Undefined if the service names none. */
  readonly next: VersionMarker | undefined;
}

/**
 * Lists one page of the versions of all keys that begin with a prefix, in the order of their keys. The keys are encoded
 * on their way: XML cannot hold every character of a key, and its parser drops some white space.
 */
export async function listVersions(
  s3: S3Client,
  {
    bucket,
    prefix,
    after,
  }: { readonly bucket: string; readonly prefix: string; readonly after?: VersionMarker | undefined },
  abortSignal: AbortSignal,
): Promise<VersionPage> {
  const answer = await s3.send(
    new ListObjectVersionsCommand({
      Bucket: bucket,
      Prefix: prefix,
      EncodingType: 'url',
      KeyMarker: after?.key,
      VersionIdMarker: after?.versionId || undefined, // S3 refuses an empty one.
    }),
    { abortSignal },
  );
  const isEncoded = answer.EncodingType === 'url';
  const keyOf = (key = ''): string => (isEncoded ? decodedKey(key) : key);
  const { IsTruncated, NextKeyMarker, NextVersionIdMarker: versionId = '' } = answer;
  return {
    versions: (answer.Versions ?? []).map((version) => ({ ...version, Key: keyOf(version.Key) })),
    deleteMarkers: (answer.DeleteMarkers ?? []).map(({ Key, VersionId }) => ({ Key: keyOf(Key), VersionId })),
    isEncoded,
    isLast: IsTruncated === false,
    next: IsTruncated === true && NextKeyMarker !== undefined ? { key: keyOf(NextKeyMarker), versionId } : undefined,
  };
}
