import {
  DeleteObjectCommand,
  GetObjectTaggingCommand,
  PutObjectTaggingCommand,
  type S3Client,
  type Tag,
} from '@aws-sdk/client-s3';
import { isAbsent, isPreconditionFailed, isRefused } from '../s3/errors.ts';
import type { Settings } from '../settings/environment.ts';
import { type Inbox, isCanary } from '../uploads/inbox.ts';
import type { Upload } from '../uploads/upload.ts';

/** The tag that `afterSuccess: "tag"` sets. Its value is `succeeded` or `failed`. */
const TAG = 'flowdrop';

/** Tags of one object. (Amazon S3 User Guide, "Categorizing your objects using tags".) */
const TAGS_MAX = 10;

/** How an upload without a chain, or a whole chain, has ended. */
export interface SourceEnd {
  /** The upload, or that of the chain's first file. */
  readonly upload: Upload;
  /** The name of its route. */
  readonly route: string;
  /** True if everything succeeded, and every output was stored. */
  readonly isWhole: boolean;
}

/**
 * Does with the file of an upload what `afterSuccess` of its route says, once the receipt of the whole chain is out. Doing
 * it twice changes nothing, and a file that was deleted or replaced is left as it is.
 */
export class Sources {
  readonly #s3: S3Client;
  readonly #inbox: Pick<Inbox, 'current'>;
  readonly #settings: Pick<Settings, 'routes' | 'inboxBucket' | 'canaryKey'>;

  constructor(
    s3: S3Client,
    inbox: Pick<Inbox, 'current'>,
    settings: Pick<Settings, 'routes' | 'inboxBucket' | 'canaryKey'>,
  ) {
    this.#s3 = s3;
    this.#inbox = inbox;
    this.#settings = settings;
  }

  /**
   * @returns why S3 has refused it. Undefined if it was done, or nothing was to be done.
   * @throws any other error of S3: it is worth another attempt.
   */
  async settle({ upload, route: name, isWhole }: SourceEnd, signal: AbortSignal): Promise<string | undefined> {
    const asked = this.#settings.routes.find((route) => route.name === name)?.afterSuccess;
    // The next canary is made of the one that is there.
    if (asked === undefined || isCanary(upload, this.#settings)) return undefined;
    try {
      if (asked === 'tag') return await this.#tag(upload, isWhole ? 'succeeded' : 'failed', signal);
      if (isWhole) await this.#delete(upload, signal);
      return undefined;
    } catch (error) {
      if (isAbsent(error) || isPreconditionFailed(error)) return undefined;
      if (!isRefused(error)) throw error;
      return `S3 refused to ${asked} the file: ${(error as Error).message}`;
    }
  }

  async #tag({ bucket, key, versionId }: Upload, value: string, abortSignal: AbortSignal): Promise<string | undefined> {
    if (versionId === undefined) {
      return 'The file has no version id, so the tag could meet a newer file. Turn on versioning of the inbox.';
    }
    const version = { Bucket: bucket, Key: key, VersionId: versionId };
    const { TagSet = [] } = await this.#s3.send(new GetObjectTaggingCommand(version), { abortSignal });
    if (TagSet.some((tag) => tag.Key === TAG && tag.Value === value)) return undefined;
    const others: readonly Tag[] = TagSet.filter((tag) => tag.Key !== TAG);
    if (others.length === TAGS_MAX) return `The file has ${TAGS_MAX} tags already, and S3 allows no more.`;
    const Tagging = { TagSet: [...others, { Key: TAG, Value: value }] };
    await this.#s3.send(new PutObjectTaggingCommand({ ...version, Tagging }), { abortSignal });
    return undefined;
  }

  /** With versions, this leaves a delete marker. The condition is about the current version. */
  async #delete({ id, bucket, key, etag }: Upload, abortSignal: AbortSignal): Promise<void> {
    // The ETag alone would not tell the same content that was put again.
    if ((await this.#inbox.current(bucket, key, abortSignal))?.id !== id) return;
    const object = { Bucket: bucket, Key: key, IfMatch: `"${etag}"` };
    await this.#s3.send(new DeleteObjectCommand(object), { abortSignal });
  }
}
