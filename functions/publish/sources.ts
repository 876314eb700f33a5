import {
  DeleteObjectCommand,
  GetObjectTaggingCommand,
  PutObjectTaggingCommand,
  type S3Client,
  type Tag,
} from '@aws-sdk/client-s3';
import pMap from 'p-map';
import type { Log } from '../base/telemetry.ts';
import type { Input } from '../ledger/entry.ts';
import { EXPIRY_TAG } from '../results/results-keys.ts';
import { ifThere, isConditionUnmet, isRefused } from '../s3/errors.ts';
import { headObject } from '../s3/objects.ts';
import type { Settings } from '../settings/environment.ts';
import { type Inbox, isCanary } from '../uploads/inbox.ts';
import { type Upload, unquoted } from '../uploads/upload.ts';

/** The tag that `afterSuccess: "tag"` sets. Its value is `succeeded` or `failed`. */
const TAG = 'flowdrop';

/** Tags of one object. (Amazon S3 User Guide, "Categorizing your objects using tags".) */
const TAGS_MAX = 10;

/** Objects that are tagged or looked up side by side. */
const CONCURRENCY = 8;

type SourceSettings = Pick<Settings, 'routes' | 'inboxBucket' | 'canaryKey' | 'resultsBucket' | 'resultsRetentionDays'>;

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
 * it twice changes nothing, and a file that was deleted or replaced is left as it is. It also says which assets S3 may
 * expire: those that no stage of a chain takes any more.
 */
export class Sources {
  readonly #s3: S3Client;
  readonly #inbox: Pick<Inbox, 'current'>;
  readonly #settings: SourceSettings;
  readonly #log: Pick<Log, 'warn'>;

  constructor(s3: S3Client, inbox: Pick<Inbox, 'current'>, settings: SourceSettings, log: Pick<Log, 'warn'>) {
    this.#s3 = s3;
    this.#inbox = inbox;
    this.#settings = settings;
    this.#log = log;
  }

  /**
   * @returns why S3 has refused it, which is logged. Undefined if it was done, or nothing was to be done.
   * @throws any other error of S3: it is worth another attempt.
   */
  async settle(end: SourceEnd, signal: AbortSignal): Promise<string | undefined> {
    const issue = await this.#settle(end, signal);
    if (issue !== undefined) this.#log.warn(issue, { uploadId: end.upload.id });
    return issue;
  }

  async #settle({ upload, route: name, isWhole }: SourceEnd, signal: AbortSignal): Promise<string | undefined> {
    const asked = this.#settings.routes.find((route) => route.name === name)?.afterSuccess;
    // The next canary is made of the one that is there.
    if (asked === undefined || isCanary(upload, this.#settings)) return undefined;
    try {
      if (asked === 'tag') return await this.#tag(upload, isWhole ? 'succeeded' : 'failed', signal);
      if (isWhole) await this.#delete(upload, signal);
      return undefined;
    } catch (error) {
      if (isConditionUnmet(error)) return undefined;
      if (!isRefused(error)) throw error;
      return `S3 refused to ${asked} the file: ${(error as Error).message}`;
    }
  }

  async #tag({ bucket, key, versionId }: Upload, value: string, abortSignal: AbortSignal): Promise<string | undefined> {
    if (versionId === undefined) {
      return 'The file has no version id, so the tag could meet a newer file. Turn on versioning of the inbox.';
    }
    const isSet = await this.#set(
      { Key: TAG, Value: value },
      { Bucket: bucket, Key: key, VersionId: versionId },
      abortSignal,
    );
    return isSet ? undefined : `The file has ${TAGS_MAX} tags already, and S3 allows no more.`;
  }

  /** Sets a tag, or removes it if it has no value. The others stay. @returns false if the object has too many. */
  async #set(
    tag: { readonly Key: string; readonly Value: string | undefined },
    object: { readonly Bucket: string; readonly Key: string; readonly VersionId?: string },
    abortSignal: AbortSignal,
  ): Promise<boolean> {
    const { TagSet = [] } = await this.#s3.send(new GetObjectTaggingCommand(object), { abortSignal });
    if (TagSet.find(({ Key }) => Key === tag.Key)?.Value === tag.Value) return true;
    const others: readonly Tag[] = TagSet.filter(({ Key }) => Key !== tag.Key);
    if (tag.Value !== undefined && others.length === TAGS_MAX) return false;
    const Tagging = { TagSet: tag.Value === undefined ? [...others] : [...others, { ...tag, Value: tag.Value }] };
    await this.#s3.send(new PutObjectTaggingCommand({ ...object, Tagging }), { abortSignal });
    return true;
  }

  /**
   * Lets S3 expire assets that no later stage takes any more. If S3 refuses, that is logged.
   * @throws any other error of S3.
   */
  expire(assets: readonly Input[], signal: AbortSignal): Promise<void> {
    return this.#setExpiry(EXPIRY_TAG.Value, assets, signal);
  }

  /** True if everything is there that a later stage takes. */
  async areThere(inputs: readonly Input[], signal: AbortSignal): Promise<boolean> {
    const isThere = async ({ bucket: Bucket, key: Key, etag }: Input) =>
      unquoted((await headObject(this.#s3, { Bucket, Key }, signal))?.ETag ?? '') === etag;
    return !(await pMap(this.#here(inputs), isThere, { concurrency: CONCURRENCY })).includes(false);
  }

  /**
   * Has S3 keep what a later stage takes, until its chain has ended. Ask for it once the chain knows that the stage is
   * under way: an end of the chain before that would let it expire again, and nothing would if the stage never began.
   * If S3 refuses, that is logged.
   * @throws any other error of S3.
   */
  keep(inputs: readonly Input[], signal: AbortSignal): Promise<void> {
    return this.#setExpiry(undefined, inputs, signal);
  }

  /** The functions may not be allowed to read a bucket that had the results before. */
  #here(objects: readonly Input[]): readonly Input[] {
    return objects.filter(({ bucket }) => bucket === this.#settings.resultsBucket);
  }

  async #setExpiry(Value: string | undefined, objects: readonly Input[], signal: AbortSignal): Promise<void> {
    if (this.#settings.resultsRetentionDays === undefined) return;
    let refused: { readonly key: string; readonly error: Error } | undefined;
    const setOne = async ({ bucket: Bucket, key }: Input) => {
      try {
        await ifThere(this.#set({ Key: EXPIRY_TAG.Key, Value }, { Bucket, Key: key }, signal));
      } catch (error) {
        if (!isRefused(error)) throw error;
        refused ??= { key, error: error as Error };
      }
    };
    await pMap(this.#here(objects), setOne, { concurrency: CONCURRENCY });
    const what = Value === undefined ? 'may expire before it is sent' : 'does not expire with its chain';
    if (refused !== undefined) this.#log.warn(`S3 refused to change the tag of an asset, so it ${what}`, refused);
  }

  /** With versions, this leaves a delete marker. The condition is about the current version. */
  async #delete({ id, bucket, key, etag }: Upload, abortSignal: AbortSignal): Promise<void> {
    // The ETag alone would not tell the same content that was put again.
    if ((await this.#inbox.current(bucket, key, abortSignal))?.id !== id) return;
    const object = { Bucket: bucket, Key: key, IfMatch: `"${etag}"` };
    await this.#s3.send(new DeleteObjectCommand(object), { abortSignal });
  }
}
