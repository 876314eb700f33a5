/** For what nobody knows more about. */
export const OCTET_STREAM = 'application/octet-stream';

const TOKEN = /[\w!#$%&'*+.^`|~-]+/.source;
const MEDIA_TYPE = new RegExp(`^${TOKEN}/${TOKEN}(;${TOKEN}=${TOKEN})*$`);

/**
 * A media type as it can stand in a header and in a data URI alike: without white space, its parameters without
 * quotes (RFC 9110, section 8.3.1; RFC 2397). Whatever is not one becomes {@link OCTET_STREAM}.
 */
export function mediaTypeOf(text: string | undefined): string {
  const compact = (text ?? '')
    .trim()
    .replace(/\s*;\s*/g, ';')
    .replace(/="([^"]*)"/g, '=$1');
  return MEDIA_TYPE.test(compact) ? compact : OCTET_STREAM;
}
