/** S3's limit on a key, in bytes of UTF-8. (Amazon S3 User Guide, "Naming Amazon S3 objects".) */
export const KEY_BYTES_MAX = 1024;
