import mime from 'mime';

const GENERIC = 'application/octet-stream';
/** The types that tell nothing: S3's own for an object without a type, and the one of programs that do not know. */
const GENERIC_TYPES: readonly string[] = [GENERIC, 'binary/octet-stream'];

/** Type and subtype as tokens. @see https://www.rfc-editor.org/rfc/rfc9110#section-8.3.1 */
export const MEDIA_TYPE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+\/[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** A media type without its parameters, in lower case. */
export const essenceOf = (mediaType: string): string => (mediaType.split(';')[0] ?? '').trim().toLowerCase();

/**
 * The registered type that a media type stands for. People and programs take an extension for a subtype: `image/jpg`,
 * `text/txt`, `image/svg`. A type that an extension stands for stays as it is, and so does an unknown one.
 */
export function registeredType(mediaType: string): string {
  const essence = essenceOf(mediaType);
  if (GENERIC_TYPES.includes(essence)) return GENERIC;
  const meant = typeByExtension(essence);
  // A name that begins with x- is not registered, so neither of the two is better.
  return meant === undefined || meant.includes('/x-') ? essence : meant;
}

/** The type of the same kind whose extension is the subtype of this one, which no extension stands for. */
export function typeByExtension(essence: string): string | undefined {
  if (mime.getExtension(essence) !== null) return undefined;
  const [kind = '', subtype = ''] = essence.split('/');
  const meant = mime.getType(`.${subtype.replace(/^x-/, '')}`);
  return meant?.startsWith(`${kind}/`) ? meant : undefined;
}

/** The media type of an object, without parameters: its `Content-Type` if that is specific, else by its extension. */
export function mediaTypeOf(contentType: string | undefined, key: string): string {
  const essence = essenceOf(contentType ?? '');
  if (MEDIA_TYPE.test(essence) && !GENERIC_TYPES.includes(essence)) return essence;
  const name = key.slice(key.lastIndexOf('/') + 1);
  // The library would take a whole name without a dot for an extension.
  return (name.includes('.') ? mime.getType(name) : null) ?? GENERIC;
}
