import { holdsToken } from './redact.ts';

/** Stands for an unknown media type. */
const OCTET_STREAM = 'application/octet-stream';

/**
 * Type and subtype have at most 127 characters each (RFC 6838, section 4.2). Parameters have no limit of their own. But
 * S3 refuses an object whose headers are too long, and then the asset would be fetched again for ever.
 */
const MEDIA_TYPE_CHARS_MAX = 255;

const TOKEN = /[\w!#$%&'*+.^`|~-]+/.source;
const MEDIA_TYPE = new RegExp(`^${TOKEN}/${TOKEN}(;${TOKEN}=${TOKEN})*$`);

/**
 * A media type in a form that both a header and a data URI can carry: without white space, and with no quotes around
 * its parameters (RFC 9110, section 8.3.1; RFC 2397). Returns `application/octet-stream` for any other text, and for a
 * text that holds the token. Drops the parameters if the whole is too long. Takes linear time, whatever the service
 * sends.
 */
export function canonicalMediaType(text: string | undefined, secret?: string): string {
  const compact = (text ?? '')
    .split(';')
    .map((part) => part.trim())
    .join(';')
    .replace(/="([^"]*)"/g, '=$1');
  // Checked last: a text may hold the token only after its quotes and white space are removed.
  if (!MEDIA_TYPE.test(compact) || holdsToken(compact, secret)) return OCTET_STREAM;
  if (compact.length <= MEDIA_TYPE_CHARS_MAX) return compact;
  const [essence = ''] = compact.split(';');
  return essence.length <= MEDIA_TYPE_CHARS_MAX ? essence : OCTET_STREAM;
}
