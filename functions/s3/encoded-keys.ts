/**
 * The key that S3 has encoded, as it does in notifications and in listings with the encoding type `url`. A plus sign is
 * a space.
 * @throws {URIError} it is not URL-encoded UTF-8.
 */
export const decodedKey = (encoded: string): string => decodeURIComponent(encoded.replaceAll('+', ' '));
