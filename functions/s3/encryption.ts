/** The values of the header `x-amz-server-side-encryption` that writes to the buckets may have. */
export const ENCRYPTION_HEADERS = ['aws:kms', 'aws:kms:dsse', 'AES256'] as const;
export type EncryptionHeader = (typeof ENCRYPTION_HEADERS)[number];

/** What every write to a bucket says of its encryption, by the bucket. It is part of the input of the SDK's commands. */
export type Encryption = Readonly<
  Record<
    string,
    { readonly ServerSideEncryption: EncryptionHeader | undefined; readonly SSEKMSKeyId?: string | undefined }
  >
>;
