import type { Segment } from './bodies.ts';
import type { Checksum } from './checksums.ts';
import { blob, type Database, fromJson, opaqueId, type Row, text, toJson } from './database.ts';
import { S3Error } from './errors.ts';
import type { NotificationConfiguration } from './notifications.ts';
import type { ObjectHeaders } from './object-headers.ts';
import type { Tags } from './tags.ts';

/** Undefined if it was never enabled. Once enabled, versioning can only be suspended. */
export type Versioning = 'Enabled' | 'Suspended';

export interface Bucket {
  readonly name: string;
  readonly versioning: Versioning | undefined;
  readonly createdMs: number;
  readonly notification: NotificationConfiguration | undefined;
  readonly tags: Tags;
}

export interface NewVersion {
  readonly bucket: string;
  readonly key: string;
  readonly deleteMarker: boolean;
  readonly bytes: number;
  /** Without quotes. Empty for a delete marker. */
  readonly etag: string;
  readonly modifiedMs: number;
  readonly headers: ObjectHeaders;
  readonly checksum: Checksum | undefined;
  readonly segments: readonly Segment[];
  readonly tags: Tags;
}

export interface Version extends NewVersion {
  /** Sequence number of the commit. A higher one is newer. */
  readonly sequence: number;
  /** `null` if the version was written while versioning was not enabled. */
  readonly versionId: string;
  readonly latest: boolean;
}

/** The part of a version that listings show. */
export interface ListedVersion {
  readonly key: Buffer;
  readonly sequence: number;
  readonly versionId: string;
  readonly latest: boolean;
  readonly deleteMarker: boolean;
  readonly bytes: number;
  readonly etag: string;
  readonly modifiedMs: number;
}

const LISTED = 'key, sequence, versionId, latest, deleteMarker, bytes, etag, modifiedMs';

/**
 * The metadata of buckets and object versions. Every change is one synchronous transaction that checks its condition
 * and commits. Therefore exactly one of several racing writers finds its condition true.
 */
export class Catalog {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  createBucket(bucket: Omit<Bucket, 'notification' | 'tags'>): void {
    if (this.findBucket(bucket.name) !== undefined) throw new S3Error('BucketAlreadyOwnedByYou');
    this.#database.run(
      'INSERT INTO buckets VALUES (?, ?, ?, NULL, NULL)',
      bucket.name,
      bucket.versioning ?? null,
      bucket.createdMs,
    );
  }

  findBucket(name: string): Bucket | undefined {
    return toBucket(this.#database.one('SELECT * FROM buckets WHERE name = ?', name));
  }

  /** Throws NoSuchBucket. */
  bucket(name: string): Bucket {
    const bucket = this.findBucket(name);
    if (bucket === undefined) throw new S3Error('NoSuchBucket', { details: { BucketName: name } });
    return bucket;
  }

  buckets(): Bucket[] {
    return this.#database.all('SELECT * FROM buckets ORDER BY name').flatMap((row) => toBucket(row) ?? []);
  }

  setVersioning(name: string, versioning: Versioning): void {
    this.#database.run('UPDATE buckets SET versioning = ? WHERE name = ?', versioning, name);
  }

  setNotification(name: string, notification: NotificationConfiguration): void {
    this.#database.run('UPDATE buckets SET notification = ? WHERE name = ?', JSON.stringify(notification), name);
  }

  setBucketTags(name: string, tags: Tags): void {
    this.#database.run('UPDATE buckets SET tags = ? WHERE name = ?', JSON.stringify(tags), name);
  }

  /** Throws BucketNotEmpty while the bucket has any version or unfinished upload. */
  deleteBucket(name: string): void {
    const used =
      this.#database.one('SELECT 1 FROM versions WHERE bucket = ? LIMIT 1', name) ??
      this.#database.one('SELECT 1 FROM uploads WHERE bucket = ? LIMIT 1', name);
    if (used !== undefined) throw new S3Error('BucketNotEmpty', { details: { BucketName: name } });
    this.#database.run('DELETE FROM buckets WHERE name = ?', name);
  }

  /** The newest version. It may be a delete marker. */
  latest(bucket: string, key: string): Version | undefined {
    const row = this.#database.one(
      'SELECT * FROM versions WHERE bucket = ? AND key = ? AND latest = 1',
      bucket,
      blob(key),
    );
    return row && toVersion(row);
  }

  version(bucket: string, key: string, versionId: string): Version | undefined {
    const sql = 'SELECT * FROM versions WHERE bucket = ? AND key = ? AND versionId = ?';
    const row = this.#database.one(sql, bucket, blob(key), versionId);
    return row && toVersion(row);
  }

  /** Makes a version the latest of its key. `replaced` is the version that it overwrote. Call in a transaction. */
  addVersion(version: NewVersion): { added: Version; replaced: Version | undefined } {
    const enabled = this.bucket(version.bucket).versioning === 'Enabled';
    const replaced = enabled ? undefined : this.version(version.bucket, version.key, 'null');
    if (replaced !== undefined) this.#deleteRow(replaced);
    this.#database.run(
      'UPDATE versions SET latest = 0 WHERE bucket = ? AND key = ? AND latest = 1',
      version.bucket,
      blob(version.key),
    );
    const sequence = this.#database.nextSequence();
    const versionId = enabled ? opaqueId('version', sequence).slice(0, 32) : 'null';
    this.#database.run(
      'INSERT INTO versions VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)',
      version.bucket,
      blob(version.key),
      sequence,
      versionId,
      Number(version.deleteMarker),
      version.bytes,
      version.etag,
      version.modifiedMs,
      JSON.stringify(version.headers),
      toJson(version.checksum),
      JSON.stringify(version.segments),
      JSON.stringify(version.tags),
    );
    return { added: { ...version, sequence, versionId, latest: true }, replaced };
  }

  /** Replaces the tags of a version. Nothing else of it changes. */
  setTags({ bucket, key, sequence }: Version, tags: Tags): void {
    this.#database.run(
      'UPDATE versions SET tags = ? WHERE bucket = ? AND key = ? AND sequence = ?',
      JSON.stringify(tags),
      bucket,
      blob(key),
      sequence,
    );
  }

  /** Removes a version permanently. The version before it becomes the latest. Call in a transaction. */
  removeVersion(version: Version): void {
    this.#deleteRow(version);
    if (!version.latest) return;
    this.#database.run(
      `UPDATE versions SET latest = 1 WHERE bucket = ?1 AND key = ?2
         AND sequence = (SELECT MAX(sequence) FROM versions WHERE bucket = ?1 AND key = ?2)`,
      version.bucket,
      blob(version.key),
    );
  }

  #deleteRow({ bucket, key, sequence }: Version): void {
    this.#database.run(
      'DELETE FROM versions WHERE bucket = ? AND key = ? AND sequence = ?',
      bucket,
      blob(key),
      sequence,
    );
  }

  /** The current objects with `from <= key < to`, in the byte order of their keys. */
  *currentObjects(bucket: string, from: Uint8Array, to: Uint8Array): Generator<ListedVersion, void> {
    const rows = this.#database.iterate(
      `SELECT ${LISTED} FROM versions INDEXED BY latestVersions
        WHERE bucket = ? AND key >= ? AND key < ? AND latest = 1 AND deleteMarker = 0 ORDER BY key`,
      bucket,
      from,
      to,
    );
    for (const row of rows) yield toListed(row);
  }

  /**
   * All versions and delete markers with `from <= key < to`, in the byte order of their keys, newest first within a
   * key. Versions of the key `from` itself only if they are older than `belowSequence`.
   */
  *versions(bucket: string, from: Uint8Array, to: Uint8Array, belowSequence: number): Generator<ListedVersion, void> {
    const rows = this.#database.iterate(
      `SELECT ${LISTED} FROM versions
        WHERE bucket = ?1 AND key >= ?2 AND key < ?3 AND (key > ?2 OR sequence < ?4) ORDER BY key, sequence DESC`,
      bucket,
      from,
      to,
      belowSequence,
    );
    for (const row of rows) yield toListed(row);
  }
}

function toBucket(row: Row | undefined): Bucket | undefined {
  if (row === undefined) return undefined;
  return {
    ...row,
    versioning: row.versioning ?? undefined,
    notification: fromJson(row.notification),
    tags: fromJson(row.tags) ?? [],
  } as Bucket;
}

function toListed(row: Row): ListedVersion {
  const { key, latest, deleteMarker, ...rest } = row;
  return {
    ...rest,
    key: Buffer.from(key as Uint8Array),
    latest: latest === 1,
    deleteMarker: deleteMarker === 1,
  } as ListedVersion;
}

function toVersion(row: Row): Version {
  return {
    ...row,
    key: text(row.key),
    latest: row.latest === 1,
    deleteMarker: row.deleteMarker === 1,
    headers: fromJson(row.headers),
    checksum: fromJson(row.checksum),
    segments: fromJson(row.segments),
    tags: fromJson(row.tags) ?? [],
  } as Version;
}
