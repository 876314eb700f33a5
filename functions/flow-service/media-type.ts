/** For what nobody knows more about. */
export const OCTET_STREAM = 'application/octet-stream';

/**
 * Type and subtype have at most 127 characters each (RFC 6838, section 4.2). Parameters have no limit of their own, but
 * S3 refuses an object whose headers are too long, and then the asset would be fetched for ever.
 */
const MEDIA_TYPE_CHARS_MAX = 255;

const TOKEN = /[\w!#$%&'*+.^`|~-]+/.source;
const MEDIA_TYPE = new RegExp(`^${TOKEN}/${TOKEN}(;${TOKEN}=${TOKEN})*$`);

/**
 * A media type as it can stand in a header and in a data URI alike: without white space, its parameters without
 * quotes (RFC 9110, section 8.3.1; RFC 2397). Whatever is not one becomes {@link OCTET_STREAM}. One that is too long
 * loses its parameters.
 */
export function mediaTypeOf(text: string | undefined): string {
  const compact = (text ?? '')
    .trim()
    .replace(/\s*;\s*/g, ';')
    .replace(/="([^"]*)"/g, '=$1');
  if (!MEDIA_TYPE.test(compact)) return OCTET_STREAM;
  if (compact.length <= MEDIA_TYPE_CHARS_MAX) return compact;
  const [essence = ''] = compact.split(';');
  return essence.length <= MEDIA_TYPE_CHARS_MAX ? essence : OCTET_STREAM;
}
