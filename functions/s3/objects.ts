import {
  GetObjectCommand,
  type GetObjectCommandInput,
  HeadObjectCommand,
  type HeadObjectCommandInput,
  type HeadObjectCommandOutput,
  ListObjectVersionsCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import type { HttpRequest } from './client.ts';
import { decodedKey } from './encoded-keys.ts';
import { ifThere } from './errors.ts';

/** The description of an object. Undefined if there is none at the key. */
export const headObject = (
  s3: S3Client,
  where: HeadObjectCommandInput & { readonly Bucket: string; readonly Key: string },
  abortSignal: AbortSignal,
): Promise<HeadObjectCommandOutput | undefined> => ifThere(s3.send(new HeadObjectCommand(where), { abortSignal }));

/** What the SDK's signers can do beside what their type says. */
interface Presigner {
  presign(request: object, options: object): Promise<{ readonly query: Readonly<Record<string, string>> }>;
}

/**
 * An address of one version of an object, for some seconds. Everyone who has it can read that version, so it is a
 * secret. It is signed as the client signs its requests, and ends sooner if the client's credentials do.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
 */
export async function presignedGet(
  s3: S3Client,
  object: GetObjectCommandInput & { readonly VersionId: string },
  { seconds, now }: { readonly seconds: number; readonly now: number },
): Promise<string> {
  const command = new GetObjectCommand(object);
  let address = '';
  command.middlewareStack.add(
    (_, context) => async (args) => {
      const request = args.request as HttpRequest;
      const { protocol, hostname, port, path } = request;
      const [scheme] = context.endpointV2?.properties?.authSchemes ?? [];
      const signer = (await s3.config.signer(scheme)) as unknown as Presigner;
      const host = port === undefined ? hostname : `${hostname}:${port}`;
      // No other header is signed: the service would have to send it.
      const headers = { host, 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' };
      const signed = await signer.presign(
        { ...request, headers },
        { expiresIn: seconds, signingDate: new Date(now), signingRegion: scheme?.signingRegion, signingService: 's3' },
      );
      const query = Object.entries(signed.query).map((pair) => pair.map(encodeURIComponent).join('='));
      address = `${protocol}//${host}${path}?${query.join('&')}`;
      return { response: {}, output: { $metadata: {} } };
    },
    // The last step before the request is signed and sent.
    { step: 'build', name: 'presignedGet', priority: 'low' },
  );
  await s3.send(command);
  return address;
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
