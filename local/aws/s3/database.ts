import { createHash } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';

// Keys are blobs, because SQLite compares blobs byte by byte. That is the order of S3's listings. The orders of UTF-16
// and of locales differ from it.
const FIRST_SCHEMA = `
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

/** Each schema changes the one before it. `user_version` of a database counts those that it has. */
const SCHEMAS = [
  FIRST_SCHEMA,
  `ALTER TABLE versions ADD COLUMN tags TEXT;
   ALTER TABLE uploads ADD COLUMN tags TEXT;
   ALTER TABLE buckets ADD COLUMN notification TEXT;
   ALTER TABLE buckets ADD COLUMN tags TEXT;`,
];

export type Row = Record<string, unknown>;

/** The SQLite database that holds all metadata. Its statements are prepared once. */
export class Database {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  /** @param path of the database file, or `:memory:`. Throws if another process has the file open. */
  constructor(path: string) {
    // SQLite would let everybody read it. Its journals take the mode of the database.
    if (path !== ':memory:') closeSync(openSync(path, 'a', 0o600));
    this.#database = new DatabaseSync(path);
    this.#database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;');
    const { user_version: present } = this.#database.prepare('PRAGMA user_version').get() as { user_version: number };
    const missing = SCHEMAS.slice(present);
    if (missing.length === 0) return;
    this.#database.exec(`BEGIN; ${missing.join('')} PRAGMA user_version = ${SCHEMAS.length}; COMMIT`);
  }

  close(): void {
    this.#database.close();
  }

  /** Runs `change` in a transaction, which is rolled back if `change` throws. */
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

  /** The next number of a sequence that grows for ever, across restarts too. */
  nextSequence(): number {
    return this.one('UPDATE counter SET value = value + 1 RETURNING value')?.value as number;
  }

  /** The ids of all bodies that a version or a part refers to. */
  bodyIds(): Set<string> {
    const rows = this.all(
      `SELECT value ->> 'id' AS id FROM versions, json_each(segments) UNION SELECT segment ->> 'id' FROM parts`,
    );
    return new Set(rows.map((row) => row.id as string));
  }

  one(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#statement(sql).get(...values);
  }

  all(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#statement(sql).all(...values);
  }

  iterate(sql: string, ...values: SQLInputValue[]): Iterable<Row> {
    return this.#statement(sql).iterate(...values);
  }

  run(sql: string, ...values: SQLInputValue[]): void {
    this.#statement(sql).run(...values);
  }

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

export function blob(text: string): Buffer {
  return Buffer.from(text);
}

export function toJson(value: object | undefined): string | null {
  return value === undefined ? null : JSON.stringify(value);
}

export function fromJson<T>(value: unknown): T {
  return (value === null ? undefined : JSON.parse(value as string)) as T;
}

export function text(value: unknown): string {
  return Buffer.from(value as Uint8Array).toString();
}
