import { pipeline } from 'node:stream/promises';
import type { ByteRange, StoredBytes } from '../../operations/stored-bytes.ts';
import { begin, INERT_POLICY, notFound, PageError } from './answers.ts';
import type { Call } from './router.ts';

/**
 * Media types that a browser may show in place: it runs nothing in them. SVG runs scripts if it is opened, so it is
 * served in a sandbox without scripts. The page shows it as a picture, which runs nothing and loads nothing. A PDF has
 * scripts of its own, which the viewer of the browser keeps away from the page and from the network.
 */
const SHOWN: readonly RegExp[] = [
  /^image\/(?:png|jpeg|gif|webp|avif|bmp|svg\+xml)$/,
  /^(?:audio|video)\/(?:mpeg|mp4|ogg|webm|wav|x-wav|flac|aac|quicktime)$/,
  /^model\/gltf-binary$/,
  /^application\/pdf$/,
  /^text\/plain$/,
  /^application\/json$/,
];

const SVG = 'image/svg+xml';

/** A drawing has styles and pictures of its own. */
const SVG_POLICY = `${INERT_POLICY}; style-src 'unsafe-inline'; img-src data:`;

/** True if the bytes may be served with their media type. All others are only downloaded. */
export const isShown = (mediaType: string): boolean => SHOWN.some((pattern) => pattern.test(mediaType));

/** An object whose bytes a visitor wants. */
export interface Wanted {
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  /** Undefined if it is gone. */
  open(range: ByteRange | undefined): Promise<StoredBytes | undefined>;
}

/** Streams an object, or the part of it that `Range` names. @throws {PageError} */
export async function sendBytes({ request, response, query, signal }: Call, wanted: Wanted): Promise<void> {
  const { key, mediaType } = wanted;
  const range = rangeOf(request.headers.range, wanted.bytes);
  const opened = await wanted.open(range);
  // A list asks for many small pictures. One that is gone is no error there.
  if (opened === undefined && query.has('thumbnail')) {
    begin(response, 204, {});
    response.end();
    return;
  }
  if (opened === undefined) throw notFound(`${key} is gone: it was deleted, replaced or archived.`);
  const { body, bytes, contentRange } = opened;
  const type = isShown(mediaType) ? mediaType : 'application/octet-stream';
  const isSaved = query.has('download') || !isShown(mediaType);
  begin(response, contentRange === undefined ? 200 : 206, {
    'content-type': /^text|json$/.test(type) ? `${type}; charset=utf-8` : type,
    'content-length': bytes,
    'content-range': contentRange,
    'content-disposition': isSaved ? `attachment; filename*=UTF-8''${encodedName(key)}` : undefined,
    'content-security-policy': mediaType === SVG ? SVG_POLICY : INERT_POLICY,
    'accept-ranges': 'bytes',
  });
  if (request.method === 'HEAD') {
    body.destroy();
    response.end();
    return;
  }
  try {
    await pipeline(body, response, { signal });
  } catch {
    // The status is sent. A connection that breaks tells that bytes are missing.
    response.destroy();
  }
}

/**
 * The part that a request asks for. Undefined for the whole: also if several parts are asked for, or the header cannot
 * be understood. @see https://www.rfc-editor.org/rfc/rfc9110#section-14.2
 * @throws {PageError} there is no such part.
 */
function rangeOf(header: string | undefined, bytes: number): ByteRange | undefined {
  const [, from = '', to = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? [];
  if (from === '' && to === '') return undefined;
  const first = from === '' ? Math.max(0, bytes - Number(to)) : Number(from);
  const last = from === '' || to === '' ? bytes - 1 : Math.min(Number(to), bytes - 1);
  if (from !== '' && to !== '' && Number(to) < first) return undefined;
  if (first <= last && !(from === '' && Number(to) === 0)) return { first, last };
  const headers = { 'content-range': `bytes */${bytes}` };
  throw new PageError({ status: 416, code: 'invalid-range' }, `The file has only ${bytes} bytes.`, headers);
}

/** The last name of a key, as a header can carry it. @see https://www.rfc-editor.org/rfc/rfc8187 */
function encodedName(key: string): string {
  const name = key.slice(key.lastIndexOf('/') + 1).toWellFormed();
  return encodeURIComponent(name).replace(/['()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}
