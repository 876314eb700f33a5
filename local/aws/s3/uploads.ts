import type { Segment } from './bodies.ts';
import type { ChecksumAlgorithm, ChecksumType } from './checksums.ts';
import { blob, type Database, fromJson, opaqueId, type Row, successor, text, toJson } from './database.ts';
import { S3Error } from './errors.ts';
import type { ObjectHeaders } from './object-headers.ts';
import type { Tags } from './tags.ts';

export interface Upload {
  readonly id: string;
  readonly bucket: string;
  readonly key: string;
  readonly initiatedMs: number;
  readonly headers: ObjectHeaders;
  readonly tags: Tags;
  readonly checksum: { readonly algorithm: ChecksumAlgorithm; readonly type: ChecksumType } | undefined;
}

export interface Part {
  readonly number: number;
  readonly etag: string;
  readonly modifiedMs: number;
  readonly checksum: { readonly algorithm: ChecksumAlgorithm; readonly value: string } | undefined;
  readonly segment: Segment;
}

export interface UploadsPage {
  readonly bucket: string;
  readonly prefix: string;
  readonly keyMarker: string;
  /** Empty if the page starts after all uploads of `keyMarker`. */
  readonly idMarker: string;
}

/** The metadata of unfinished multipart uploads and their parts. */
export class Uploads {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  create(upload: Omit<Upload, 'id'>): Upload {
    const id = opaqueId('upload', this.#database.nextSequence());
    const { bucket, key, initiatedMs, headers, tags, checksum } = upload;
    this.#database.run(
      'INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?)',
      id,
      bucket,
      blob(key),
      initiatedMs,
      JSON.stringify(headers),
      toJson(checksum),
      JSON.stringify(tags),
    );
    return { id, ...upload };
  }

  /** Throws NoSuchUpload. */
  find(bucket: string, key: string, id: string): Upload {
    const row = this.#database.one(
      'SELECT * FROM uploads WHERE id = ? AND bucket = ? AND key = ?',
      id,
      bucket,
      blob(key),
    );
    if (row === undefined) throw new S3Error('NoSuchUpload', { details: { UploadId: id } });
    return toUpload(row);
  }

  /** Lists the uploads after `keyMarker` (or, with `idMarker`, after that upload), by key and then by initiation. */
  list({ bucket, prefix, keyMarker, idMarker }: UploadsPage): Upload[] {
    const rows = this.#database.all(
      `SELECT * FROM uploads WHERE bucket = ?1 AND key >= ?2 AND key < ?3 AND (key > ?4 OR key = ?4 AND
          (initiatedMs, id) > (SELECT initiatedMs, id FROM uploads WHERE id = ?5))
        ORDER BY key, initiatedMs, id`,
      bucket,
      blob(prefix),
      successor(blob(prefix)),
      blob(keyMarker),
      idMarker,
    );
    return rows.map(toUpload);
  }

  /** Stores a part and returns the part that it replaced. Call in a transaction. */
  putPart(upload: string, part: Part): Part | undefined {
    const replaced = this.#database.one('SELECT * FROM parts WHERE upload = ? AND number = ?', upload, part.number);
    this.#database.run(
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
    return this.#database.all('SELECT * FROM parts WHERE upload = ? ORDER BY number', upload).map(toPart);
  }

  remove(id: string): void {
    this.#database.run('DELETE FROM parts WHERE upload = ?', id);
    this.#database.run('DELETE FROM uploads WHERE id = ?', id);
  }
}

function toUpload(row: Row): Upload {
  return {
    ...row,
    key: text(row.key),
    headers: fromJson(row.headers),
    checksum: fromJson(row.checksum),
    tags: fromJson(row.tags) ?? [],
  } as Upload;
}

function toPart(row: Row): Part {
  return { ...row, checksum: fromJson(row.checksum), segment: fromJson(row.segment) } as Part;
}
