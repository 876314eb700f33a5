import type { Upload } from './upload.ts';

/** The object, or that version of it, no longer exists. A newer upload at its key has an event of its own. */
export class UploadGoneError extends Error {
  override readonly name = 'UploadGoneError';
  readonly key: string;
  /** True if S3 has another upload at its key. False if that is not known. */
  readonly isReplaced: boolean;

  /** @param what happened to it. */
  constructor(
    { bucket, key }: Pick<Upload, 'bucket' | 'key'>,
    what: string,
    { isReplaced = false, ...options }: ErrorOptions & { readonly isReplaced?: boolean } = {},
  ) {
    super(`${bucket}/${key} ${what}`, options);
    this.key = key;
    this.isReplaced = isReplaced;
  }
}

/** The object is in an archive storage class, from which it must be restored first. */
export class UploadArchivedError extends Error {
  override readonly name = 'UploadArchivedError';
}

/** The object is compressed, and is not decompressed here. */
export class UploadEncodedError extends Error {
  override readonly name = 'UploadEncodedError';
}

/** The object exists, but its bytes could not be read: S3 failed, or the stream broke. A retry may succeed. */
export class UploadUnreadableError extends Error {
  override readonly name = 'UploadUnreadableError';
}

/**
 * S3 lists the object, and refuses to hand it out. A retry may succeed after the operator has changed a grant or a key.
 */
export class UploadDeniedError extends Error {
  override readonly name = 'UploadDeniedError';
  /** What the listing says of it. The media type is guessed from the key. */
  readonly upload: Upload;

  constructor(upload: Upload, cause: Error) {
    super(`S3 refuses to hand out ${upload.bucket}/${upload.key}: ${cause.name}`, { cause });
    this.upload = upload;
  }
}
