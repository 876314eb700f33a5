import { MEDIA_TYPE, OCTET_STREAM, registeredType, TOKEN } from '../base/media-type.ts';
import { holdsToken } from './redact.ts';

/**
 * Type and subtype have at most 127 characters each (RFC 6838, section 4.2). Parameters have no limit of their own. But
 * S3 refuses an object whose headers are too long, and then the asset would be fetched again for ever.
 */
const MEDIA_TYPE_CHARS_MAX = 255;

const PARAMETER = new RegExp(`^${TOKEN}=${TOKEN}$`);

/**
 * A media type in a form that both a header and a data URI can carry: without white space, and with no quotes around
 * its parameters (RFC 9110, section 8.3.1; RFC 2397). Another name of a type becomes the registered one. Returns
 * `application/octet-stream` for any other text, and for a text that holds the token. Drops a parameter that has another
 * form, and all of them if the whole is too long. Takes linear time, whatever the service sends.
 */
export function canonicalMediaType(text: string | undefined, secret?: string): string {
  const [spelled = '', ...parts] = (text ?? '').split(';').map((part) => part.trim());
  const parameters = parts.map((part) => part.replace(/="([^"]*)"/g, '=$1')).filter((each) => PARAMETER.test(each));
  const compact = [spelled, ...parameters].join(';');
  // Checked last: a text may hold the token only after its quotes and white space are removed.
  if (!MEDIA_TYPE.test(spelled) || holdsToken(compact, secret)) return OCTET_STREAM;
  const registered = registeredType(spelled);
  const essence = registered === spelled.toLowerCase() ? spelled : registered;
  const whole = essence + compact.slice(spelled.length);
  if (whole.length <= MEDIA_TYPE_CHARS_MAX) return whole;
  return essence.length <= MEDIA_TYPE_CHARS_MAX ? essence : OCTET_STREAM;
}

/** Bytes of an asset that are looked at to tell its type. */
export const SIGNATURE_BYTES = 64;

/** How files of a type begin, each byte as one character. A question mark stands for any byte. */
const SIGNATURES: readonly (readonly [mediaType: string, ...signatures: string[]])[] = [
  ['model/gltf-binary', 'glTF'],
  ['model/ply', 'ply\n', 'ply\r'],
  ['application/vnd.autodesk.fbx', 'Kaydara FBX Binary'],
  ['image/png', '\x89PNG\r\n'],
  ['image/jpeg', '\xff\xd8\xff'],
  ['image/gif', 'GIF87a', 'GIF89a'],
  ['image/webp', 'RIFF????WEBP'],
  ['image/avif', '????ftypavi'],
  ['image/heic', '????ftyphe'],
  ['image/heif', '????ftypmif1', '????ftypmsf1'],
  ['image/tiff', 'II*\0', 'MM\0*'],
  ['image/ktx2', '\xabKTX 20\xbb'],
  ['image/vnd.radiance', '#?RADIANCE\n'],
  ['audio/mpeg', 'ID3', '\xff\xfb', '\xff\xfa', '\xff\xf3', '\xff\xf2'],
  ['audio/wav', 'RIFF????WAVE'],
  ['audio/ogg', 'OggS'],
  ['audio/flac', 'fLaC'],
  ['audio/mp4', '????ftypM4A '],
  ['video/quicktime', '????ftypqt  '],
  ['video/mp4', '????ftyp'],
  // After a header of a fixed form, with a short or a long length.
  ['video/webm', `\x1aE\xdf\xa3${'?'.repeat(20)}webm`, `\x1aE\xdf\xa3${'?'.repeat(27)}webm`],
  ['video/x-matroska', '\x1aE\xdf\xa3'],
  ['application/pdf', '%PDF-'],
  ['application/zip', 'PK\x03\x04'],
  ['application/gzip', '\x1f\x8b\x08'],
];

/** Types of these whose files may also be text, or begin in another way. */
const UNCERTAIN: readonly string[] = ['application/vnd.autodesk.fbx', 'image/vnd.radiance', 'audio/mpeg'];

/** Types of files that are ZIP archives. */
const ZIPPED = /\+zip$|^model\/3mf$|^application\/vnd\.openxmlformats-/;

/** True for a type whose files are never text without a signature: a PNG, a GLB, a ZIP. */
export const isNeverText = (essence: string): boolean =>
  ZIPPED.test(essence) || (SIGNATURES.some(([type]) => type === essence) && !UNCERTAIN.includes(essence));

/**
 * The media type of a file that begins with these bytes, of which {@link SIGNATURE_BYTES} are enough. Undefined if they
 * do not tell.
 */
export function typeOfBytes(bytes: Uint8Array): string | undefined {
  const beginning = Buffer.from(bytes.subarray(0, SIGNATURE_BYTES)).toString('latin1');
  const fits = (signature: string): boolean =>
    Array.from(signature).every(
      (character, at) => character === beginning[at] || (character === '?' && at < beginning.length),
    );
  return SIGNATURES.find(([, ...signatures]) => signatures.some(fits))?.[0];
}
