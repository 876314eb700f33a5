import mime from 'mime';

const GENERIC = 'application/octet-stream';
/** The types that tell nothing: S3's own for an object without a type, and the one of programs that do not know. */
const GENERIC_TYPES: readonly string[] = [GENERIC, 'binary/octet-stream'];

/** Type and subtype as tokens. @see https://www.rfc-editor.org/rfc/rfc9110#section-8.3.1 */
export const MEDIA_TYPE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+\/[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** A media type without its parameters, in lower case. */
export const essenceOf = (mediaType: string): string => (mediaType.split(';')[0] ?? '').trim().toLowerCase();

/** The media type of an object, without parameters: its `Content-Type` if that is specific, else by its extension. */
export function mediaTypeOf(contentType: string | undefined, key: string): string {
  const essence = essenceOf(contentType ?? '');
  if (MEDIA_TYPE.test(essence) && !GENERIC_TYPES.includes(essence)) return essence;
  const name = key.slice(key.lastIndexOf('/') + 1);
  // The library would take a whole name without a dot for an extension.
  return (name.includes('.') ? mime.getType(name) : null) ?? GENERIC;
}
