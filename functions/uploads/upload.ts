import { hash } from 'node:crypto';
import { encodedId } from '../base/key-segment.ts';

/**
 * One version of one object, as the answer to a GET or a listing described it. Or, with a `stage`, what a later stage of
 * a chain works on.
 */
export interface Upload {
  readonly id: string;
  readonly bucket: string;
  readonly key: string;
  /** Undefined if the bucket is not versioned, or was not when the object was put. */
  readonly versionId?: string | undefined;
  /** Without quotes. */
  readonly etag: string;
  readonly bytes: number;
  /** Milliseconds since the epoch, in whole seconds: HTTP dates are no more precise. */
  readonly lastModified: number;
  readonly mediaType: string;
  /**
   * A time at which the upload was current at its key, in milliseconds since the epoch. S3's event tells when the
   * upload became current. The sweep tells a time at which it was. Undefined if neither brought the upload.
   */
  readonly currentAt?: number | undefined;
  /**
   * Orders the puts of a key: hexadecimal digits, which sort from the left as a text does. Undefined if no event of S3
   * brought the upload.
   */
  readonly sequencer?: string | undefined;
  /** Present if the upload belongs to a later stage of a chain. */
  readonly stage?: Stage | undefined;
}

/**
 * Where an upload of a later stage comes from. Its input is no object of the inbox, but assets of the stage before. Its
 * key is an address below the key of the chain's first file, and its times are those of that file.
 */
export interface Stage {
  /** The upload of the chain's first file. */
  readonly first: { readonly id: string; readonly key: string };
  /** Name of the route that wants the assets. */
  readonly route: string;
  /** The generation of the chain in which it began. An older one has none. */
  readonly generation?: number | undefined;
  /**
   * The upload whose asset this is. If the route takes all assets of a stage together, `asset` is absent, the parent is
   * the first file, and the generation is that of the chain.
   */
  readonly parent: {
    readonly id: string;
    readonly key: string;
    readonly generation: number;
    readonly asset?: string | undefined;
  };
}

/** Digits of the second at the start of an upload id: 32 bits, which last until the year 2106. */
const SECOND_DIGITS = 8;

/** Digits of the hash that follows the second: 128 bits of SHA-256. */
const HASH_DIGITS = 32;

/** Maximum length of a sequencer. S3 documents none. Its sequencers have 16 to 18 digits. */
export const SEQUENCER_DIGITS_MAX = 64;

/**
 * A text that sorts as the sequencer does: S3 documents that the shorter one is padded with zeros on the right. An upload
 * without one sorts after the others.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html ("sequencer")
 */
export const ordinalOf = ({ sequencer }: Pick<Upload, 'sequencer'>): string =>
  sequencer?.toLowerCase().padEnd(SEQUENCER_DIGITS_MAX, '0') ?? 'without';

/** The digits of LastModified in an upload id. */
export const secondsIn = (id: string): string => id.slice(0, SECOND_DIGITS);

/** The rest of an upload id. Without versions, two uploads of a key have the same one if they have the same ETag. */
export const hashIn = (id: string): string => id.slice(SECOND_DIGITS);

const ID_PATTERN = `[0-9a-f]{${SECOND_DIGITS + HASH_DIGITS}}`;

/** Matches every upload id. */
export const UPLOAD_ID = new RegExp(`^${ID_PATTERN}$`);

/**
 * The upload id: the second of LastModified, and then a hash of the facts that identify one version of an object. So
 * the ids of later uploads sort after those of earlier ones, and a listing of the ledger can begin at a time.
 *
 * A bucket without versioning, or with suspended versioning (`null`), has only ETag and LastModified to tell an upload
 * from the next one at the same key. LastModified counts in whole seconds, because a GET is no more precise, although a
 * listing is.
 */
export function uploadId(
  object: Pick<Upload, 'bucket' | 'key' | 'versionId' | 'etag' | 'lastModified' | 'stage'>,
): string {
  const { stage } = object;
  if (stage !== undefined) {
    const { first, route, parent } = stage;
    return secondDigits(object.lastModified) + hashOf([first.id, route, parent.id, parent.generation, parent.asset]);
  }
  const versionId = pinnedVersion(object.versionId);
  const pin = versionId === undefined ? ['etag', unquoted(object.etag)] : ['version', versionId];
  return secondDigits(object.lastModified) + hashOf([object.bucket, object.key, ...pin]);
}

/**
 * When an upload was put, in milliseconds since the epoch. A multipart upload has the date of its beginning, and only the
 * message of S3 about it, which has a sequencer, says when it was completed.
 */
export const putAt = ({ lastModified, currentAt, sequencer }: Upload): number =>
  sequencer === undefined ? lastModified : Math.max(lastModified, currentAt ?? 0);

const hashOf = (facts: readonly unknown[]): string => hash('sha256', JSON.stringify(facts)).slice(0, HASH_DIGITS);

/**
 * The upload of a later stage. It keeps the times of the first file, so that receipts of a replaced file never rank
 * above those of the file that replaced it.
 * @param first the upload of the chain's first file, or any later upload of the chain.
 * @param input the size of its inputs together, and the media type of the first one.
 */
export function stageUpload(
  first: Upload,
  stage: Stage,
  { bytes, mediaType }: Pick<Upload, 'bytes' | 'mediaType'>,
): Upload & { readonly stage: Stage } {
  const { bucket, lastModified, currentAt, sequencer } = first;
  const id = uploadId({ bucket, key: '', etag: '', lastModified, stage });
  const key = stageAddress(stage.first.key, stage.route, id);
  return { id, bucket, key, etag: '', bytes, lastModified, mediaType, currentAt, sequencer, stage };
}

/** The key of an upload of a later stage: the address of its results. */
export const stageAddress = (firstKey: string, route: string, uploadId: string): string =>
  `${firstKey}/${CHAIN_FOLDER}/${encodedId(route)}/${uploadId}`;

/** The chain's first file, for any upload of the chain. */
export const firstOf = ({ id, key, stage }: Pick<Upload, 'id' | 'key' | 'stage'>): Stage['first'] =>
  stage?.first ?? { id, key };

/** The folder below the key of a chain's first file that has the results of all later stages. */
export const CHAIN_FOLDER = 'chain';

/** Matches the key of a later stage: that of the first file, and the segment of the route. */
export const STAGE_KEY = new RegExp(`^(.+)\\/${CHAIN_FOLDER}\\/([^/]+)\\/${ID_PATTERN}$`, 's');

/**
 * Tells whether a key has the form `<first key>/chain/<route>/<upload id>`, which only the upload of a later stage has.
 * An object of the inbox with such a key is no upload: its receipt would replace that of the later stage.
 */
export const isStageKey = (key: string): boolean => STAGE_KEY.test(key);

/** Says of an object with a key of a later stage why nothing is sent of it. */
export const STAGE_KEY_TAKEN =
  'Its key has the form of a later stage of a chain (…/chain/<route>/<upload id>), so it is no upload. Give it another key.';

/**
 * The digits of a time with which upload ids begin. The ids of earlier uploads sort before them, all others after.
 * @param time milliseconds since the epoch.
 */
export function secondDigits(time: number): string {
  const second = Math.min(Math.max(0, Math.floor(time / 1000)), 16 ** SECOND_DIGITS - 1);
  return second.toString(16).padStart(SECOND_DIGITS, '0');
}

/**
 * A number from 0 to below 1 that is always the same for one upload, and spread evenly over all uploads. It is taken
 * from the hash in the id: uploads that come together share the second.
 */
export function spreadOf(uploadId: string): number {
  return Number.parseInt(uploadId.slice(SECOND_DIGITS, SECOND_DIGITS + 8), 16) / 2 ** 32;
}

/** The version id if it identifies a version. Absent, empty and `null`, which unversioned objects have, do not. */
export function pinnedVersion(versionId: string | undefined | null): string | undefined {
  return versionId === undefined || versionId === null || versionId === '' || versionId === 'null'
    ? undefined
    : versionId;
}

/** Removes the quotes of an ETag. S3 quotes it in headers and listings, but not in events. */
export function unquoted(etag: string): string {
  return etag.replace(/^(?:W\/)?"(.*)"$/, '$1');
}
