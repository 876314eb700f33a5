/** One encoded word, and the white space behind it if another one follows: the standard says to drop that. */
const ENCODED_WORDS = /=\?([^?\s]+)\?([bq])\?([^?\s]*)\?=(?:\s+(?==\?[^?\s]+\?[bq]\?[^?\s]*\?=))?/gi;

/**
 * Decodes the words in which S3 returns metadata that is not ASCII. The bytes of neighbouring words are joined before
 * they are decoded, because the end of a word may cut a character in two.
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
  return decoded + value.slice(end);
}

function decodeQ(content: string): Buffer {
  const latin1 = content
    .replaceAll('_', ' ')
    .replaceAll(/=([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(latin1, 'latin1');
}
