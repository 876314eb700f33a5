import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { GetObjectCommand, type GetObjectCommandOutput, type S3Client } from '@aws-sdk/client-s3';
import { essenceOf } from '../base/media-type.ts';
import type { Log } from '../base/telemetry.ts';
import { isArchived } from '../s3/errors.ts';
import { pinnedVersion, unquoted } from '../uploads/upload.ts';
import { AssetWriter, PartBuffers } from './asset-writer.ts';
import type { ObjectVersion } from './multipart-upload.ts';
import { ASSET_METADATA, EXPIRY_TAG, FLOW_METADATA, UPLOAD_METADATA } from './results-keys.ts';

/** Metadata that tells whose asset an object is. Any two writers of one asset give it the same. */
const OWNER_METADATA = [UPLOAD_METADATA, FLOW_METADATA, ASSET_METADATA] as const;

/**
 * The key of an asset is taken by an object that is not this asset, or that cannot be read. It is not overwritten,
 * because it may be the only copy of something.
 */
export class KeyTakenError extends Error {
  override readonly name = 'KeyTakenError';
  readonly code = 'key-taken';
}

interface AssetFacts {
  readonly bytes: number;
  readonly sha256: string;
  /** Without quotes. */
  readonly etag: string;
  /** Undefined if the bucket is not versioned. */
  readonly versionId?: string | undefined;
}

/** What the download of an asset reports, and what ends it. */
export interface AssetProgress {
  readonly signal: AbortSignal;
  /** Reports the bytes of the asset that were received so far. */
  received(bytes: number): void;
}

/** An asset whose download has begun, and its destination. */
export interface OpenedAsset {
  readonly to: AssetDestination;
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Maximum size of the asset, in bytes. Undefined if it is unknown. */
  readonly bytesMax?: number | undefined;
}

interface AssetDestination {
  readonly key: string;
  readonly mediaType: string;
  /** ASCII only: S3 would return other text encoded. */
  readonly metadata: Readonly<Record<string, string>>;
  /** True if S3 may expire it. Default: false. */
  readonly expires?: boolean;
}

interface ResultsOptions {
  readonly s3: S3Client;
  readonly bucket: string;
  readonly log: Log;
  /** Maximum number of assets that are stored at the same time. */
  readonly assetsMax: number;
}

/**
 * The results bucket: whole assets, each written once.
 *
 * What exists when: nothing exists under the final key until every byte was received and checked. A small asset is one
 * conditional PUT at the very end. A large asset is a multipart upload: it is completed, conditionally, at the very
 * end, and aborted after any error.
 *
 * If the key is taken, the object's metadata tells whether it is this asset, stored by an earlier or another run. Then
 * it is hashed and stands for this asset. Any other object is left alone: {@link KeyTakenError}. The metadata proves
 * nothing against a writer who forges it. A results bucket has one writer.
 */
export class Results {
  readonly #s3: S3Client;
  readonly #bucket: string;
  readonly #log: Log;
  readonly #buffers: PartBuffers;

  constructor({ s3, bucket, log, assetsMax }: ResultsOptions) {
    this.#s3 = s3;
    this.#bucket = bucket;
    this.#log = log;
    // Each large asset has one part. While there are fewer of them, some fill a second one.
    this.#buffers = new PartBuffers(assetsMax);
  }

  /**
   * Stores the chunks of an asset if, and only if, they end normally.
   * @throws {KeyTakenError} another object has the key.
   * @throws the errors of the chunks.
   */
  async store({ to, chunks, bytesMax }: OpenedAsset, progress: AssetProgress): Promise<AssetFacts> {
    const { signal } = progress;
    const target = {
      Bucket: this.#bucket,
      Key: to.key,
      ContentType: to.mediaType,
      ...(isActiveContent(to.mediaType) ? { ContentDisposition: 'attachment' } : {}),
      Metadata: { ...to.metadata },
      ...(to.expires && { Tagging: `${EXPIRY_TAG.Key}=${EXPIRY_TAG.Value}` }),
    };
    const writer = new AssetWriter({
      s3: this.#s3,
      target,
      bytesMax,
      buffers: this.#buffers,
      signal,
    });
    const hash = createHash('sha256');
    let bytes = 0;
    try {
      for await (const chunk of chunks) {
        hash.update(chunk);
        bytes += chunk.byteLength;
        progress.received(bytes);
        await writer.write(chunk);
      }
      const version = await writer.finish();
      if (version !== undefined) return { bytes, sha256: hash.digest('hex'), ...versionOf(version) };
    } catch (error) {
      await this.#abort(writer, to);
      throw error;
    } finally {
      writer.release();
    }
    await this.#abort(writer, to);
    return this.#existing(to, signal);
  }

  /** The facts of the object that is there already, if it is this asset. @throws {KeyTakenError} */
  async #existing({ key, metadata }: AssetDestination, signal: AbortSignal): Promise<AssetFacts> {
    const { Body, Metadata = {}, ETag, VersionId } = await this.#get(key, signal);
    const differing = OWNER_METADATA.filter((name) => Metadata[name] !== metadata[name]);
    if (differing.length > 0) {
      (Body as Readable).destroy();
      throw keyTaken(key, `its metadata are not of this asset: ${differing.join(', ')}`);
    }
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of Body as AsyncIterable<Uint8Array>) {
      signal.throwIfAborted();
      hash.update(chunk);
      bytes += chunk.byteLength;
    }
    return { bytes, sha256: hash.digest('hex'), ...versionOf({ ETag, VersionId }) };
  }

  async #get(key: string, signal: AbortSignal): Promise<GetObjectCommandOutput> {
    try {
      return await this.#s3.send(new GetObjectCommand({ Bucket: this.#bucket, Key: key }), { abortSignal: signal });
    } catch (error) {
      // Without this, one archived object would keep its flow from ever ending.
      if (isArchived(error)) throw keyTaken(key, 'it is in an archive storage class');
      throw error;
    }
  }

  /** Only logs a failure, because parts that stay behind are invisible, and the bucket's lifecycle removes them. */
  async #abort(writer: AssetWriter, { metadata }: AssetDestination): Promise<void> {
    try {
      await writer.abort();
    } catch (error) {
      this.#log.warn('A multipart upload could not be aborted; the lifecycle rule will remove its parts', {
        uploadId: metadata[UPLOAD_METADATA],
        error: error as Error,
      });
    }
  }
}

const versionOf = ({ ETag = '', VersionId }: ObjectVersion) => {
  const versionId = pinnedVersion(VersionId);
  return { etag: unquoted(ETag), ...(versionId === undefined ? {} : { versionId }) };
};

const keyTaken = (key: string, why: string): KeyTakenError =>
  new KeyTakenError(
    `Another object is at ${key}: ${why}. It was left as it is. Move it away, and keep other writers out.`,
  );

/**
 * Media types of active content: a browser that opens it from the bucket's address runs its scripts there. These are
 * HTML, everything in XML (SVG and XSLT among it), scripts, archived web pages, and the types for which a browser
 * guesses another one. (WHATWG MIME Sniffing, "Determining the computed MIME type".)
 *
 * A PDF is not among them: browsers show it in a viewer of its own, whose scripts cannot reach the bucket's address.
 */
const ACTIVE_CONTENT: readonly RegExp[] = [
  /^text\/html$/,
  /[/+-]xml$/,
  /^text\/xml-|^application\/xml-/,
  /^text\/xsl$|^application\/xslt/,
  /xhtml|svg/,
  /(?:java|ecma|j|live|vb)script/,
  /^multipart\/|^message\/|mhtml|mimearchive/,
  /shockwave-flash|x-silverlight|^application\/hta$/,
  /^(?:application|unknown)\/unknown$|^\*\//,
];

/** Tells whether a browser must download a media type instead of opening it. */
export function isActiveContent(mediaType: string): boolean {
  const essence = essenceOf(mediaType);
  return ACTIVE_CONTENT.some((pattern) => pattern.test(essence));
}
