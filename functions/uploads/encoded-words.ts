import { isUtf8 } from 'node:buffer';

/** One encoded word, and the white space behind it if another one follows: the standard says to drop that. */
const ENCODED_WORDS = /=\?([^?\s]+)\?([bq])\?([^?\s]*)\?=(?:\s+(?==\?[^?\s]+\?[bq]\?[^?\s]*\?=))?/gi;

/**
 * Decodes the words in which S3 returns metadata that is not ASCII, into the text that was sent. The bytes of
 * neighbouring words are joined before they are decoded, because the end of a word may cut a character in two.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html and https://www.rfc-editor.org/rfc/rfc2047
 * @throws {RangeError} the character set is unknown. @throws {TypeError} the bytes are invalid in it.
 */
export function decodeWords(value: string): string {
  let decoded = '';
  let end = 0;
  let pending: { readonly charset: string; bytes: Buffer } | undefined;
  const flush = () => {
    if (pending !== undefined) decoded += new TextDecoder(pending.charset, { fatal: true }).decode(pending.bytes);
    pending = undefined;
  };
  for (const match of value.matchAll(ENCODED_WORDS)) {
    const [whole, charset = '', encoding = '', content = ''] = match;
    const bytes = encoding.toLowerCase() === 'b' ? Buffer.from(content, 'base64') : decodeQ(content);
    if (match.index > end || pending?.charset !== charset.toLowerCase()) {
      flush();
      decoded += value.slice(end, match.index);
      pending = { charset: charset.toLowerCase(), bytes };
    } else {
      pending.bytes = Buffer.concat([pending.bytes, bytes]);
    }
    end = match.index + whole.length;
  }
  flush();
  return asSent(decoded + value.slice(end));
}

/**
 * S3 reads the bytes of a header as Latin-1, as the example on that page shows: `ö` in UTF-8 becomes `Ã¶`. Other S3s return
 * the bytes as they came, and the SDK reads those as Latin-1. Hardly any other text is valid UTF-8 by these bytes.
 */
function asSent(text: string): string {
  const bytes = Buffer.from(text, 'latin1');
  return isUtf8(bytes) && /^[\0-\xff]*$/.test(text) ? bytes.toString() : text;
}

function decodeQ(content: string): Buffer {
  const latin1 = content
    .replaceAll('_', ' ')
    .replaceAll(/=([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(latin1, 'latin1');
}
