import { createHash } from 'node:crypto';
import mime from 'mime';
import { encodedId } from '../base/key-segment.ts';
import { KEY_BYTES_MAX } from '../s3/limits.ts';

/** Hexadecimal digits of the hash that stands in for the part of a key that was cut: 80 bits. */
const HASH_DIGITS = 20;

/** The last part of a receipt's key. */
export const RECEIPT_NAME = 'receipt.json';

/**
 * The key of an asset, by the pattern of the settings. Ids from the service are percent-encoded, so that they cannot
 * climb out of their place, nor take the receipt's.
 */
export function assetKey(
  settings: { readonly resultsPrefix: string; readonly resultsKey: string },
  asset: { readonly key: string; readonly flowId: string; readonly assetId: string; readonly mediaType: string },
): string {
  const extension = mime.getExtension(asset.mediaType);
  const parts: Readonly<Record<string, string>> = {
    '{key}': asset.key,
    '{flowId}': encodedId(asset.flowId),
    // Its dots too: else `a` with the extension .glb and `a.glb` without one would come to the same.
    '{assetId}': encodedId(asset.assetId).replaceAll('.', '%2E'),
    '{ext}': extension ? `.${extension}` : '',
  };
  const key = settings.resultsPrefix + settings.resultsKey.replace(/\{\w+\}/g, (name) => parts[name] ?? name);
  // The one name that is taken: the folder of an upload `a/<flow id>` would have its receipt there.
  return shortened(key.replace(/(^|\/)r(?=eceipt\.json$)/, '$1%72'));
}

/** The key of the receipt of whichever upload is current at `key`. */
export const receiptKey = (prefix: string, key: string): string => shortened(`${prefix}${key}/${RECEIPT_NAME}`);

/** A key that fits: the middle of one that is too long is replaced by a hash of the whole. Its end keeps its meaning. */
function shortened(key: string): string {
  const bytes = Buffer.from(key);
  if (bytes.length <= KEY_BYTES_MAX) return key;
  const hash = createHash('sha256').update(bytes).digest('hex').slice(0, HASH_DIGITS);
  const end = key.slice(key.lastIndexOf('/'));
  const tail = Buffer.byteLength(end) <= KEY_BYTES_MAX / 4 ? `~${hash}${end}` : `~${hash}`;
  // A cut in the middle of a character would leave bytes that are no UTF-8: they are dropped.
  const head = bytes.subarray(0, KEY_BYTES_MAX - Buffer.byteLength(tail)).toString('utf8');
  return head.replace(/\uFFFD+$/, '') + tail;
}
