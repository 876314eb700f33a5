import mime from 'mime';

/** Stands for an unknown media type. */
export const OCTET_STREAM = 'application/octet-stream';

/** A form with files in it, as `curl -F` and HTML pages send it. What is stored so is not the file itself. */
export const FORM = 'multipart/form-data';

/** The pattern of a token (RFC 9110, section 5.6.2). */
export const TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/.source;

/** Type and subtype as tokens. @see https://www.rfc-editor.org/rfc/rfc9110#section-8.3.1 */
export const MEDIA_TYPE = new RegExp(`^${TOKEN}/${TOKEN}$`);

/**
 * The types that say nothing of the bytes. S3 gives one to an object without a type, curl to a body, web servers to a
 * download.
 */
const SAYS_NOTHING =
  /^(?:application|binary|content|unknown)\/(?:x-)?(?:octet-?stream|binary|unknown|(?:force-)?download|www-form-urlencoded)$/;

/**
 * Other names of a type that no extension leads to. Windows names `application/x-zip-compressed`, `audio/mp3`,
 * `application/vnd.ms-pki.stl` and `application/x-tgif` (of .obj files), and so all its browsers do.
 */
const SAME_TYPES: ReadonlyMap<string, string> = new Map([
  ['image/pjpeg', 'image/jpeg'],
  ['image/x-ms-bmp', 'image/bmp'],
  ['image/x-windows-bmp', 'image/bmp'],
  ['image/x-icon', 'image/vnd.microsoft.icon'],
  ['image/svg-xml', 'image/svg+xml'],
  ['audio/vnd.wave', 'audio/wav'],
  ['audio/wave', 'audio/wav'],
  ['audio/x-pn-wav', 'audio/wav'],
  ['audio/mp3', 'audio/mpeg'],
  ['audio/x-m4a', 'audio/mp4'],
  ['application/x-photoshop', 'image/vnd.adobe.photoshop'],
  ['video/avi', 'video/x-msvideo'],
  ['video/msvideo', 'video/x-msvideo'],
  ['video/mkv', 'video/x-matroska'],
  ['application/x-zip-compressed', 'application/zip'],
  ['application/acrobat', 'application/pdf'],
  ['text/json', 'application/json'],
  ['model/gltf+binary', 'model/gltf-binary'],
  ['application/gltf-buffer', 'model/gltf-binary'],
  ['application/x-tgif', 'model/obj'],
  ['application/ply', 'model/ply'],
  ['application/sla', 'model/stl'],
  ['application/vnd.ms-pki.stl', 'model/stl'],
  ['model/x.stl-binary', 'model/stl'],
]);

/** The extensions that people use, where the library knows none or names another one first. */
const EXTENSIONS: ReadonlyMap<string, string> = new Map([
  ['audio/aac', 'aac'],
  ['audio/aiff', 'aiff'],
  ['audio/flac', 'flac'],
  ['audio/mpeg', 'mp3'],
  ['audio/ogg', 'ogg'],
  ['video/mpeg', 'mpg'],
  ['video/quicktime', 'mov'],
  ['image/vnd.radiance', 'hdr'],
  ['model/fbx', 'fbx'],
  ['model/ply', 'ply'],
]);

/** A media type without its parameters, in lower case. */
export const essenceOf = (mediaType: string): string => (mediaType.split(';')[0] ?? '').trim().toLowerCase();

/**
 * The registered type that a media type stands for, without parameters. People and programs take an extension for a
 * subtype: `image/jpg`, `text/txt`, `image/svg`. A type that an extension stands for stays as it is, and so does an
 * unknown one. All types that say nothing have one name.
 */
export function registeredType(mediaType: string): string {
  const essence = essenceOf(mediaType);
  if (SAYS_NOTHING.test(essence)) return OCTET_STREAM;
  const same = SAME_TYPES.get(essence) ?? withoutX(essence);
  if (same !== undefined) return same;
  const meant = typeByExtension(essence);
  // A name that begins with x- is not registered, so neither of the two is better.
  return meant === undefined || meant.includes('/x-') ? essence : meant;
}

/** True for a name that programs use for a type, whether or not it is the registered one. */
export const isInUse = (essence: string): boolean => essence.includes('/x-') || mime.getExtension(essence) !== null;

/** The type whose name before it was registered is this one, such as `audio/x-wav`. Undefined if it is none. */
function withoutX(essence: string): string | undefined {
  const plain = essence.replace('/x-', '/');
  return plain !== essence && (mime.getExtension(plain) !== null || EXTENSIONS.has(plain)) ? plain : undefined;
}

/** The type of the same kind whose extension is the subtype of this one, which no extension stands for. */
export function typeByExtension(essence: string): string | undefined {
  if (mime.getExtension(essence) !== null) return undefined;
  const [kind = '', subtype = ''] = essence.split('/');
  const meant = typeOfName(`.${subtype.replace(/^x-/, '')}`);
  return meant?.startsWith(`${kind}/`) && meant !== essence ? meant : undefined;
}

/** Tells whether a text is a media type that says what the bytes are. A type with a wildcard does not. */
export function isTelling(mediaType: string): boolean {
  const type = registeredType(mediaType);
  return MEDIA_TYPE.test(type) && !type.includes('*') && type !== OCTET_STREAM;
}

/** The media type that the extension of a name or path stands for. Undefined if it stands for none. */
export function typeOfName(path: string): string | undefined {
  const name = path.slice(path.lastIndexOf('/') + 1);
  // The library would take a whole name without a dot for an extension.
  if (!name.includes('.')) return undefined;
  const known = mime.getType(name);
  if (known !== null) return registeredType(known);
  const extension = name.slice(name.lastIndexOf('.') + 1).toLowerCase();
  return EXTENSIONS.entries().find(([, each]) => each === extension)?.[0];
}

/** The media type of an object, without parameters: its `Content-Type` if that says something, else by its extension. */
export const mediaTypeOf = (contentType: string | undefined, key: string): string =>
  contentType !== undefined && isTelling(contentType) ? registeredType(contentType) : (typeOfName(key) ?? OCTET_STREAM);

/** The extension of files of a media type, as people use it, with its dot. Empty if there is none. */
export function extensionOf(mediaType: string): string {
  const type = registeredType(mediaType);
  const extension = EXTENSIONS.get(type) ?? mime.getExtension(type);
  return extension ? `.${extension}` : '';
}

/** The content codings that are registered, apart from `identity`, and a few that programs use all the same. */
const CODING = /^(?:x-)?(?:gzip|compress|deflate|br|zstd|dcb|dcz|exi|aes128gcm|pack200-gzip|bzip2?|xz|lzma)$/;

/**
 * The codings of a `Content-Encoding` that change the bytes. Programs also write there what is no coding: a character set,
 * or how S3 got the bytes (`aws-chunked`). Without a coding, the bytes are the file.
 */
export const codingsOf = (contentEncoding = ''): readonly string[] =>
  contentEncoding
    .toLowerCase()
    .split(',')
    .map((name) => name.trim())
    .filter((name) => CODING.test(name));
