import { createHash } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import type { Segment } from './bodies.ts';
import type { Checksum, ChecksumAlgorithm, ChecksumType } from './checksums.ts';
import { S3Error } from './errors.ts';

/** Undefined if it was never enabled. Once enabled, versioning can only be suspended. */
export type Versioning = 'Enabled' | 'Suspended';

export interface Bucket {
  readonly name: string;
  readonly versioning: Versioning | undefined;
  readonly createdMs: number;
}

/** What an upload says about its object in headers. */
export interface ObjectHeaders {
  readonly system: Readonly<Record<string, string>>;
  /** User metadata: names without `x-amz-meta-`, values as sent. */
  readonly user: Readonly<Record<string, string>>;
  /** Objects of earlier versions of this catalog have none. */
  readonly tags?: readonly Tag[];
}

export type Tag = readonly [key: string, value: string];

/** The part of a version that listings show. */
export interface ListedVersion<Key = Buffer> {
  readonly key: Key;
  /** Sequence number of the commit. A higher one is newer. */
  readonly sequence: number;
  /** `null` if the version was written while versioning was not enabled. */
  readonly versionId: string;
  readonly latest: boolean;
  readonly deleteMarker: boolean;
  readonly bytes: number;
  /** Without quotes. Empty for a delete marker. */
  readonly etag: string;
  readonly modifiedMs: number;
}

export interface Version extends ListedVersion<string> {
  readonly bucket: string;
  readonly headers: ObjectHeaders;
  readonly checksum: Checksum | undefined;
  readonly segments: readonly Segment[];
}

export type NewVersion = Omit<Version, 'sequence' | 'versionId' | 'latest'>;

/** An unfinished multipart upload. */
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

// Keys are blobs, because SQLite compares blobs byte by byte. That is the order of S3's listings. The orders of UTF-16
// and of locales differ from it. Databases of former versions have more columns, which are not read.
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

const LISTED = 'key, sequence, versionId, latest, deleteMarker, bytes, etag, modifiedMs';

type Row = Record<string, unknown>;

/**
 * The metadata of buckets, versions and unfinished uploads, in SQLite. Every change is one synchronous transaction that
 * checks its condition and commits. Therefore exactly one of several racing writers finds its condition true.
 */
export class Catalog {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  /** The buckets by their names. Every request asks for one, and they seldom change. */
  readonly #buckets = new Map<string, Bucket>();

  /** @param path of the database file, or `:memory:`. Throws if another process has the file open. */
  constructor(path: string) {
    // SQLite would let everybody read it. Its journals take the mode of the database.
    if (path !== ':memory:') closeSync(openSync(path, 'a', 0o600));
    this.#database = new DatabaseSync(path);
    this.#database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;');
    this.#database.exec(`BEGIN; ${SCHEMA} COMMIT`);
  }

  close(): void {
    this.#database.close();
  }

  /** Runs `change` in a transaction, which is rolled back if `change` throws. */
  transaction<T>(change: () => T): T {
    this.#run('BEGIN IMMEDIATE');
    try {
      const result = change();
      this.#run('COMMIT');
      return result;
    } catch (error) {
      this.#run('ROLLBACK');
      throw error;
    }
  }

  /** The next number of a sequence that grows for ever, across restarts too. */
  nextSequence(): number {
    return this.#one('UPDATE counter SET value = value + 1 RETURNING value')?.value as number;
  }

  /** The ids of all bodies that a version or a part refers to. */
  bodyIds(): Set<string> {
    const sql = `SELECT value ->> 'id' AS id FROM versions, json_each(segments) UNION SELECT segment ->> 'id' FROM parts`;
    return new Set(this.#all(sql).map((row) => row.id as string));
  }

  /** Throws BucketAlreadyOwnedByYou. */
  createBucket(bucket: Bucket): void {
    if (this.buckets().some(({ name }) => name === bucket.name)) throw new S3Error('BucketAlreadyOwnedByYou');
    const sql = 'INSERT INTO buckets (name, versioning, createdMs) VALUES (?, ?, ?)';
    this.#run(sql, bucket.name, bucket.versioning ?? null, bucket.createdMs);
  }

  /** Throws NoSuchBucket. */
  bucket(name: string): Bucket {
    const known = this.#buckets.get(name);
    if (known !== undefined) return known;
    const row = this.#one('SELECT * FROM buckets WHERE name = ?', name);
    if (row === undefined) throw new S3Error('NoSuchBucket', { details: { BucketName: name } });
    const bucket = toBucket(row);
    this.#buckets.set(name, bucket);
    return bucket;
  }

  buckets(): Bucket[] {
    return this.#all('SELECT * FROM buckets ORDER BY name').map(toBucket);
  }

  setVersioning(name: string, versioning: Versioning): void {
    this.#run('UPDATE buckets SET versioning = ? WHERE name = ?', versioning, name);
    this.#buckets.delete(name);
  }

  /** The newest version. It may be a delete marker. */
  latest(bucket: string, key: string): Version | undefined {
    const sql = 'SELECT * FROM versions WHERE bucket = ? AND key = ? AND latest = 1';
    const row = this.#one(sql, bucket, Buffer.from(key));
    return row && toVersion(row);
  }

  version(bucket: string, key: string, versionId: string): Version | undefined {
    const sql = 'SELECT * FROM versions WHERE bucket = ? AND key = ? AND versionId = ?';
    const row = this.#one(sql, bucket, Buffer.from(key), versionId);
    return row && toVersion(row);
  }

  /** Makes a version the latest of its key. `replaced` is the version that it overwrote. Call in a transaction. */
  addVersion(version: NewVersion): { added: Version; replaced: Version | undefined } {
    const { bucket, key } = version;
    const enabled = this.bucket(bucket).versioning === 'Enabled';
    const replaced = enabled ? undefined : this.version(bucket, key, 'null');
    if (replaced !== undefined) this.#deleteRow(replaced);
    const sql = 'UPDATE versions SET latest = 0 WHERE bucket = ? AND key = ? AND latest = 1';
    this.#run(sql, bucket, Buffer.from(key));
    const sequence = this.nextSequence();
    const versionId = enabled ? opaqueId('version', sequence).slice(0, 32) : 'null';
    this.#run(
      `INSERT INTO versions (bucket, ${LISTED}, headers, checksum, segments)
        VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?)`,
      ...[bucket, Buffer.from(key), sequence, versionId, Number(version.deleteMarker)],
      ...[version.bytes, version.etag, version.modifiedMs],
      ...[JSON.stringify(version.headers), toJson(version.checksum), JSON.stringify(version.segments)],
    );
    return { added: { ...version, sequence, versionId, latest: true }, replaced };
  }

  /** Keeps the headers of a changed version, and its segments: another body of the same content. */
  updateVersion({ bucket, key, sequence, headers, segments }: Version): void {
    const sql = 'UPDATE versions SET headers = ?, segments = ? WHERE bucket = ? AND key = ? AND sequence = ?';
    this.#run(sql, JSON.stringify(headers), JSON.stringify(segments), bucket, Buffer.from(key), sequence);
  }

  /** Removes a version permanently. The version before it becomes the latest. Call in a transaction. */
  removeVersion(version: Version): void {
    this.#deleteRow(version);
    if (!version.latest) return;
    this.#run(
      `UPDATE versions SET latest = 1 WHERE bucket = ?1 AND key = ?2
         AND sequence = (SELECT MAX(sequence) FROM versions WHERE bucket = ?1 AND key = ?2)`,
      version.bucket,
      Buffer.from(version.key),
    );
  }

  #deleteRow({ bucket, key, sequence }: Version): void {
    const sql = 'DELETE FROM versions WHERE bucket = ? AND key = ? AND sequence = ?';
    this.#run(sql, bucket, Buffer.from(key), sequence);
  }

  /** The current objects with `from <= key < to`, in the byte order of their keys. */
  *currentObjects(bucket: string, from: Uint8Array, to: Uint8Array): Generator<ListedVersion, void> {
    const sql = `SELECT ${LISTED} FROM versions INDEXED BY latestVersions
      WHERE bucket = ? AND key >= ? AND key < ? AND latest = 1 AND deleteMarker = 0 ORDER BY key`;
    for (const row of this.#statement(sql).iterate(bucket, from, to)) yield toListed(row);
  }

  /**
   * All versions and delete markers with `from <= key < to`, in the byte order of their keys, newest first within a
   * key. Versions of the key `from` itself only if they are older than `belowSequence`.
   */
  *versions(bucket: string, from: Uint8Array, to: Uint8Array, belowSequence: number): Generator<ListedVersion, void> {
    const sql = `SELECT ${LISTED} FROM versions
      WHERE bucket = ?1 AND key >= ?2 AND key < ?3 AND (key > ?2 OR sequence < ?4) ORDER BY key, sequence DESC`;
    for (const row of this.#statement(sql).iterate(bucket, from, to, belowSequence)) yield toListed(row);
  }

  createUpload(upload: Omit<Upload, 'id'>): Upload {
    const id = opaqueId('upload', this.nextSequence());
    const { bucket, key, initiatedMs, headers, checksum } = upload;
    this.#run(
      'INSERT INTO uploads (id, bucket, key, initiatedMs, headers, checksum) VALUES (?, ?, ?, ?, ?, ?)',
      ...[id, bucket, Buffer.from(key), initiatedMs, JSON.stringify(headers), toJson(checksum)],
    );
    return { id, ...upload };
  }

  /** Throws NoSuchUpload. */
  upload(bucket: string, key: string, id: string): Upload {
    const sql = 'SELECT * FROM uploads WHERE id = ? AND bucket = ? AND key = ?';
    const row = this.#one(sql, id, bucket, Buffer.from(key));
    if (row === undefined) throw new S3Error('NoSuchUpload', { details: { UploadId: id } });
    return toUpload(row);
  }

  /** The unfinished uploads of a bucket, by key and then by initiation. */
  uploads(bucket: string): Upload[] {
    return this.#all('SELECT * FROM uploads WHERE bucket = ? ORDER BY key, initiatedMs, id', bucket).map(toUpload);
  }

  /** Stores a part and returns the part that it replaced. Call in a transaction. */
  putPart(upload: string, part: Part): Part | undefined {
    const replaced = this.parts(upload).find(({ number }) => number === part.number);
    this.#run(
      'INSERT OR REPLACE INTO parts (upload, number, etag, modifiedMs, checksum, segment) VALUES (?, ?, ?, ?, ?, ?)',
      ...[upload, part.number, part.etag, part.modifiedMs, toJson(part.checksum), JSON.stringify(part.segment)],
    );
    return replaced;
  }

  parts(upload: string): Part[] {
    return this.#all('SELECT * FROM parts WHERE upload = ? ORDER BY number', upload).map(toPart);
  }

  removeUpload(id: string): void {
    this.#run('DELETE FROM parts WHERE upload = ?', id);
    this.#run('DELETE FROM uploads WHERE id = ?', id);
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

  /** Statements are prepared once. */
  #statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

/** The lower bound of all keys after those that start with `bytes`. */
export function successor(bytes: Buffer): Buffer {
  if (bytes.length === 0) return Buffer.of(0xff); // No UTF-8 text begins with 0xff.
  const next = Buffer.from(bytes);
  next.writeUInt8((next.at(-1) as number) + 1, next.length - 1); // No UTF-8 text ends with 0xff.
  return next;
}

/** Makes an id that looks random, as S3's ids do. A simulation that is run again gets the same ids. */
export function opaqueId(kind: string, sequence: number): string {
  return createHash('sha256').update(`${kind} ${sequence}`).digest('base64url').replaceAll('-', '.');
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

function toBucket(row: Row): Bucket {
  return { ...row, versioning: row.versioning ?? undefined } as Bucket;
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
