import { hash } from 'node:crypto';
import { encodedId } from '../base/key-segment.ts';
import { extensionOf } from '../base/media-type.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';
import { isPlaceholder, type Placeholder } from '../uploads/results-key-pattern.ts';
import { CHAIN_FOLDER } from '../uploads/upload.ts';

/** Length of the hash that replaces the cut part of a key, in hexadecimal digits: 80 bits. */
const HASH_DIGITS = 20;

/** Longest last name, with its slash, that a shortened key keeps, in bytes. */
const LAST_NAME_BYTES_MAX = KEY_BYTES_MAX / 4;

/** The last part of a receipt's key. */
export const RECEIPT_NAME = 'receipt.json';

/** The last part of the key at which a chain tells how it ended. */
export const CHAIN_NAME = 'chain.json';

/** Names below the key of an upload that no flow and no asset may have. */
const RESERVED: readonly string[] = [RECEIPT_NAME, CHAIN_NAME, CHAIN_FOLDER];

/** Name of the metadata in which every asset and receipt carries the id of its upload. */
export const UPLOAD_METADATA = 'flowdrop-upload';

/** The tag of assets that S3 may expire. Receipts and aliases do not have it. */
export const EXPIRY_TAG = { Key: 'flowdrop', Value: 'asset' } as const;

/** Names of the metadata in which every asset carries the ids of its flow and its own, both percent-encoded. */
export const FLOW_METADATA = 'flowdrop-flow';
export const ASSET_METADATA = 'flowdrop-asset';

/**
 * The key of an asset: the settings' pattern, filled in. Ids from the service are percent-encoded, so that no id can
 * lead into another folder or overwrite a receipt.
 */
export function assetKey(
  settings: { readonly resultsPrefix: string; readonly resultsKey: string },
  asset: { readonly key: string; readonly flowId: string; readonly assetId: string; readonly mediaType: string },
): string {
  const parts: Readonly<Record<Placeholder, string>> = {
    '{key}': asset.key,
    '{flowId}': unreserved(encodedId(asset.flowId)),
    // Encode its dots too: otherwise `a` with the extension .glb and `a.glb` without one would get the same key.
    '{assetId}': encodedId(asset.assetId).replaceAll('.', '%2E'),
    '{ext}': extensionOf(asset.mediaType),
  };
  const filled = settings.resultsKey.replace(/\{\w+\}/g, (name) => (isPlaceholder(name) ? parts[name] : name));
  const key = settings.resultsPrefix + filled;
  // An upload whose key equals the asset's folder stores its receipt and its chain there.
  return shortened(key.replace(/[^/]+$/, unreserved));
}

/**
 * The key of an alias: the pattern of its route, filled in.
 * @example `models/{folder}/{name}{ext}` for `chairs/oak.png` and a binary glTF is `models/chairs/oak.glb`.
 * @param asset the key of the chain's first file, the media type of the asset, and its number, from 1.
 */
export function aliasKey(
  resultsPrefix: string,
  pattern: string,
  { key, mediaType, n }: { readonly key: string; readonly mediaType: string; readonly n: number },
): string {
  const folder = key.slice(0, key.lastIndexOf('/') + 1);
  const parts: Readonly<Record<string, string>> = {
    '{key}': key,
    // A file outside of folders leaves no empty segment.
    '{folder}/': folder,
    '{name}': key.slice(folder.length).replace(/(?<=.)\.[^.]*$/, ''),
    '{n}': String(n),
    '{ext}': extensionOf(mediaType),
  };
  const filled = pattern.replace(/\{folder\}\/|\{\w+\}/g, (name) => parts[name] ?? name);
  return shortened((resultsPrefix + filled).replace(/[^/]+$/, unreserved));
}

/** Encodes the first letter of a reserved name. So nothing is at once a file and a folder. */
const unreserved = (segment: string): string =>
  RESERVED.includes(segment) ? `%${segment.charCodeAt(0).toString(16)}${segment.slice(1)}` : segment;

/** The key at which the chain of the upload that is current at `key` tells how it ended. */
export const chainReportKey = (prefix: string, key: string): string => shortened(`${prefix}${key}/${CHAIN_NAME}`);

/** The key of the receipt of the upload that is current at `key`. */
export const receiptKey = (prefix: string, key: string): string => shortened(`${prefix}${key}/${RECEIPT_NAME}`);

/**
 * Shortens a key that is too long for S3: a hash of the whole key replaces its middle, and its last name stays. A key
 * that looks shortened is shortened too, however long it is. Otherwise it could be the shortened key of another name.
 * So two names have the same key only if 80 bits of their hashes are the same.
 */
function shortened(key: string): string {
  const bytes = Buffer.from(key);
  if (bytes.length <= KEY_BYTES_MAX && !looksShortened(key, bytes.length)) return key;
  const digits = hash('sha256', bytes).slice(0, HASH_DIGITS);
  const end = key.slice(key.lastIndexOf('/'));
  const tail = Buffer.byteLength(end) <= LAST_NAME_BYTES_MAX ? `~${digits}${end}` : `~${digits}`;
  let cut = KEY_BYTES_MAX - Buffer.byteLength(tail);
  // No key ends within a character. A byte of the form 10xxxxxx continues one.
  while (((bytes[cut] ?? 0) & 0xc0) === 0x80) cut -= 1;
  return bytes.toString('utf8', 0, cut) + tail;
}

/** Matches the end of every shortened key. */
const SHORTENED_END = new RegExp(`~[0-9a-f]{${HASH_DIGITS}}(?:/[^/]*)?$`);

/** Tells whether `shortened` could return this key for another one. It cuts at most three bytes of a character. */
const looksShortened = (key: string, bytes: number): boolean => bytes >= KEY_BYTES_MAX - 3 && SHORTENED_END.test(key);
