import { createHash } from 'node:crypto';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import type { Segment } from './bodies.ts';
import type { Checksum, ChecksumAlgorithm, ChecksumType } from './checksums.ts';
import { S3Error } from './errors.ts';
import type { ObjectHeaders } from './object-headers.ts';

/** Absent: never enabled. Once enabled, a bucket can only be suspended. */
export type Versioning = 'Enabled' | 'Suspended';

export interface Bucket {
  readonly name: string;
  readonly versioning: Versioning | undefined;
  readonly createdMs: number;
}

export interface NewVersion {
  readonly bucket: string;
  readonly key: string;
  readonly deleteMarker: boolean;
  readonly bytes: number;
  /** Unquoted; empty for a delete marker. */
  readonly etag: string;
  readonly modifiedMs: number;
  readonly headers: ObjectHeaders;
  readonly checksum: Checksum | undefined;
  readonly segments: readonly Segment[];
}

export interface Version extends NewVersion {
  /** Of the commit: higher is newer. */
  readonly sequence: number;
  /** `null` for versions written while versioning was not enabled. */
  readonly versionId: string;
  readonly latest: boolean;
}

export interface Upload {
  readonly id: string;
  readonly bucket: string;
  readonly key: string;
  readonly initiatedMs: number;
  readonly headers: ObjectHeaders;
  readonly checksum: { readonly algorithm: ChecksumAlgorithm; readonly type: ChecksumType } | undefined;
}

export interface Part {
  readonly number: number;
  readonly etag: string;
  readonly modifiedMs: number;
  readonly checksum: { readonly algorithm: ChecksumAlgorithm; readonly value: string } | undefined;
  readonly segment: Segment;
}

/** What listings show of a version. */
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

// Keys are blobs, which SQLite compares byte by byte: the order of S3's listings, which is neither that of UTF-16 nor
// that of any locale.
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, versioning TEXT, createdMs INTEGER NOT NULL) STRICT;
  CREATE TABLE IF NOT EXISTS versions (
    bucket TEXT NOT NULL, key BLOB NOT NULL, sequence INTEGER NOT NULL, versionId TEXT NOT NULL,
    latest INTEGER NOT NULL, deleteMarker INTEGER NOT NULL, bytes INTEGER NOT NULL, etag TEXT NOT NULL,
    modifiedMs INTEGER NOT NULL, headers TEXT NOT NULL, checksum TEXT, segments TEXT NOT NULL,
    PRIMARY KEY (bucket, key, sequence DESC)
  ) STRICT, WITHOUT ROWID;
  CREATE UNIQUE INDEX IF NOT EXISTS latestVersions ON versions (bucket, key) WHERE latest = 1;
  CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, bucket TEXT NOT NULL, key BLOB NOT NULL, initiatedMs INTEGER NOT NULL,
    headers TEXT NOT NULL, checksum TEXT
  ) STRICT;
  CREATE TABLE IF NOT EXISTS parts (
    upload TEXT NOT NULL, number INTEGER NOT NULL, etag TEXT NOT NULL, modifiedMs INTEGER NOT NULL,
    checksum TEXT, segment TEXT NOT NULL, PRIMARY KEY (upload, number)
  ) STRICT;
  CREATE TABLE IF NOT EXISTS counter (value INTEGER NOT NULL) STRICT;
  INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
`;

type Row = Record<string, unknown>;

/**
 * All that is known about buckets, objects and uploads. Every change is one synchronous transaction that checks its
 * condition and commits, so among racing writers exactly one finds its condition true.
 */
export class Catalog {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  /** @param path of the database file, or `:memory:`. A second owner of the same file fails here. */
  constructor(path: string) {
    this.#database = new DatabaseSync(path);
    this.#database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;');
    this.#database.exec(SCHEMA);
  }

  close(): void {
    this.#database.close();
  }

  /** What `change` throws undoes it. */
  transaction<T>(change: () => T): T {
    this.#database.exec('BEGIN IMMEDIATE');
    try {
      const result = change();
      this.#database.exec('COMMIT');
      return result;
    } catch (error) {
      this.#database.exec('ROLLBACK');
      throw error;
    }
  }

  /** Ever growing, across restarts as well. */
  nextSequence(): number {
    return this.#one('UPDATE counter SET value = value + 1 RETURNING value')?.value as number;
  }

  createBucket(bucket: Bucket): void {
    if (this.findBucket(bucket.name) !== undefined) throw new S3Error('BucketAlreadyOwnedByYou');
    this.#run('INSERT INTO buckets VALUES (?, ?, ?)', bucket.name, bucket.versioning ?? null, bucket.createdMs);
  }

  findBucket(name: string): Bucket | undefined {
    return toBucket(this.#one('SELECT * FROM buckets WHERE name = ?', name));
  }

  /** Throws NoSuchBucket. */
  bucket(name: string): Bucket {
    const bucket = this.findBucket(name);
    if (bucket === undefined) throw new S3Error('NoSuchBucket', { details: { BucketName: name } });
    return bucket;
  }

  buckets(): Bucket[] {
    return this.#all('SELECT * FROM buckets ORDER BY name').flatMap((row) => toBucket(row) ?? []);
  }

  setVersioning(name: string, versioning: Versioning): void {
    this.#run('UPDATE buckets SET versioning = ? WHERE name = ?', versioning, name);
  }

  /** Throws BucketNotEmpty while the bucket has any version or unfinished upload. */
  deleteBucket(name: string): void {
    const used =
      this.#one('SELECT 1 FROM versions WHERE bucket = ? LIMIT 1', name) ??
      this.#one('SELECT 1 FROM uploads WHERE bucket = ? LIMIT 1', name);
    if (used !== undefined) throw new S3Error('BucketNotEmpty', { details: { BucketName: name } });
    this.#run('DELETE FROM buckets WHERE name = ?', name);
  }

  /** The newest version, which may be a delete marker. */
  latest(bucket: string, key: string): Version | undefined {
    const row = this.#one('SELECT * FROM versions WHERE bucket = ? AND key = ? AND latest = 1', bucket, blob(key));
    return row && toVersion(row);
  }

  version(bucket: string, key: string, versionId: string): Version | undefined {
    const sql = 'SELECT * FROM versions WHERE bucket = ? AND key = ? AND versionId = ?';
    const row = this.#one(sql, bucket, blob(key), versionId);
    return row && toVersion(row);
  }

  /** Puts a version on top of its key. Call in a transaction. `replaced` is what it took the place of. */
  addVersion(version: NewVersion): { added: Version; replaced: Version | undefined } {
    const enabled = this.bucket(version.bucket).versioning === 'Enabled';
    const replaced = enabled ? undefined : this.version(version.bucket, version.key, 'null');
    if (replaced !== undefined) this.#deleteRow(replaced);
    this.#run(
      'UPDATE versions SET latest = 0 WHERE bucket = ? AND key = ? AND latest = 1',
      version.bucket,
      blob(version.key),
    );
    const sequence = this.nextSequence();
    const versionId = enabled ? opaqueId('version', sequence).slice(0, 32) : 'null';
    this.#run(
      'INSERT INTO versions VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?)',
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
    );
    return { added: { ...version, sequence, versionId, latest: true }, replaced };
  }

  /** Removes one version for good; the one below becomes the latest. Call in a transaction. */
  removeVersion(version: Version): void {
    this.#deleteRow(version);
    if (!version.latest) return;
    this.#run(
      `UPDATE versions SET latest = 1 WHERE bucket = ?1 AND key = ?2
         AND sequence = (SELECT MAX(sequence) FROM versions WHERE bucket = ?1 AND key = ?2)`,
      version.bucket,
      blob(version.key),
    );
  }

  #deleteRow({ bucket, key, sequence }: Version): void {
    this.#run('DELETE FROM versions WHERE bucket = ? AND key = ? AND sequence = ?', bucket, blob(key), sequence);
  }

  /** The current objects with `from <= key < to`, in the byte order of their keys. */
  *currentObjects(bucket: string, from: Uint8Array, to: Uint8Array): Generator<ListedVersion, void> {
    const statement = this.#statement(
      `SELECT ${LISTED} FROM versions INDEXED BY latestVersions
        WHERE bucket = ? AND key >= ? AND key < ? AND latest = 1 AND deleteMarker = 0 ORDER BY key`,
    );
    for (const row of statement.iterate(bucket, from, to)) yield toListed(row);
  }

  /**
   * All versions and delete markers with `from <= key < to`, in the byte order of their keys, newest first within one;
   * those of `from` itself only where older than `belowSequence`.
   */
  *versions(bucket: string, from: Uint8Array, to: Uint8Array, belowSequence: number): Generator<ListedVersion, void> {
    const statement = this.#statement(
      `SELECT ${LISTED} FROM versions
        WHERE bucket = ?1 AND key >= ?2 AND key < ?3 AND (key > ?2 OR sequence < ?4) ORDER BY key, sequence DESC`,
    );
    for (const row of statement.iterate(bucket, from, to, belowSequence)) yield toListed(row);
  }

  createUpload(upload: Omit<Upload, 'id'>): Upload {
    const id = opaqueId('upload', this.nextSequence());
    const { bucket, key, initiatedMs, headers, checksum } = upload;
    this.#run(
      'INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?)',
      id,
      bucket,
      blob(key),
      initiatedMs,
      JSON.stringify(headers),
      toJson(checksum),
    );
    return { id, ...upload };
  }

  /** Throws NoSuchUpload. */
  upload(bucket: string, key: string, id: string): Upload {
    const row = this.#one('SELECT * FROM uploads WHERE id = ? AND bucket = ? AND key = ?', id, bucket, blob(key));
    if (row === undefined) throw new S3Error('NoSuchUpload', { details: { UploadId: id } });
    return toUpload(row);
  }

  /** In the order of keys, then of initiation; after a key, or after an upload of that key where one is named. */
  uploads(bucket: string, prefix: string, keyMarker: string, idMarker: string, limit: number): Upload[] {
    const rows = this.#all(
      `SELECT * FROM uploads WHERE bucket = ?1 AND key >= ?2 AND key < ?3 AND (key > ?4 OR key = ?4 AND
          (initiatedMs, id) > (SELECT initiatedMs, id FROM uploads WHERE id = ?5))
        ORDER BY key, initiatedMs, id LIMIT ?6`,
      bucket,
      blob(prefix),
      successor(blob(prefix)),
      blob(keyMarker),
      idMarker,
      limit,
    );
    return rows.map(toUpload);
  }

  /** The part that it takes the place of. Call in a transaction. */
  putPart(upload: string, part: Part): Part | undefined {
    const replaced = this.#one('SELECT * FROM parts WHERE upload = ? AND number = ?', upload, part.number);
    this.#run(
      'INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?)',
      upload,
      part.number,
      part.etag,
      part.modifiedMs,
      toJson(part.checksum),
      JSON.stringify(part.segment),
    );
    return replaced && toPart(replaced);
  }

  parts(upload: string): Part[] {
    return this.#all('SELECT * FROM parts WHERE upload = ? ORDER BY number', upload).map(toPart);
  }

  removeUpload(id: string): void {
    this.#run('DELETE FROM parts WHERE upload = ?', id);
    this.#run('DELETE FROM uploads WHERE id = ?', id);
  }

  /** The ids of all bodies that any version or part has. */
  bodyIds(): Set<string> {
    const rows = this.#all(
      `SELECT value ->> 'id' AS id FROM versions, json_each(segments) UNION SELECT segment ->> 'id' FROM parts`,
    );
    return new Set(rows.map((row) => row.id as string));
  }

  #statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #one(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#statement(sql).get(...values);
  }

  #all(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#statement(sql).all(...values);
  }

  #run(sql: string, ...values: SQLInputValue[]): void {
    this.#statement(sql).run(...values);
  }
}

const LISTED = 'key, sequence, versionId, latest, deleteMarker, bytes, etag, modifiedMs';

/** Smaller than no key that starts with `bytes`, and not greater than any other key after them. */
export function successor(bytes: Buffer): Buffer {
  if (bytes.length === 0) return Buffer.of(0xff); // No UTF-8 text begins with it.
  const next = Buffer.from(bytes);
  next.writeUInt8((next.at(-1) as number) + 1, next.length - 1); // No UTF-8 text ends with 0xff.
  return next;
}

/** Ids look random, as S3's do, yet a simulation that is run again gets the same. */
export function opaqueId(kind: string, sequence: number): string {
  return createHash('sha256').update(`${kind} ${sequence}`).digest('base64url').replaceAll('-', '.');
}

function blob(text: string): Buffer {
  return Buffer.from(text);
}

function toJson(value: object | undefined): string | null {
  return value === undefined ? null : JSON.stringify(value);
}

function fromJson<T>(value: unknown): T {
  return (value === null ? undefined : JSON.parse(value as string)) as T;
}

function text(value: unknown): string {
  return Buffer.from(value as Uint8Array).toString();
}

function toBucket(row: Row | undefined): Bucket | undefined {
  if (row === undefined) return undefined;
  const { name, versioning, createdMs } = row;
  return { name, versioning: versioning ?? undefined, createdMs } as Bucket;
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
  } as Version;
}

function toUpload(row: Row): Upload {
  return {
    ...row,
    key: text(row.key),
    headers: fromJson(row.headers),
    checksum: fromJson(row.checksum),
  } as Upload;
}

function toPart(row: Row): Part {
  return { ...row, checksum: fromJson(row.checksum), segment: fromJson(row.segment) } as Part;
}
