import { type Call, demand, integer, invalid, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import { type ListedVersion, successor } from './catalog.ts';
import { encodeKey } from './events.ts';
import type { XmlElement } from './xml.ts';

/** "Returns some or all (up to 1,000) of the objects in a bucket." */
export const KEYS_MAX = 1000;

/** An entry of a listing: an item, or a common prefix that stands for all keys under it. */
type Entry<T> = { readonly item: T } | { readonly commonPrefix: Buffer };

interface Page<T> {
  readonly entries: readonly Entry<T>[];
  readonly truncated: boolean;
}

interface Selection {
  readonly prefix: Buffer;
  readonly delimiter: Buffer;
  readonly max: number;
}

/** Collects one page. Skips all keys under a common prefix with one seek. `scan` starts at a key, inclusively. */
function page<T extends { readonly key: Buffer }>(
  { prefix, delimiter, max }: Selection,
  from: Buffer,
  scan: (from: Buffer, to: Buffer) => Iterable<T>,
): Page<T> {
  const entries: Entry<T>[] = [];
  const end = successor(prefix);
  let next: Buffer | undefined = Buffer.compare(from, prefix) < 0 ? prefix : from;
  while (next !== undefined) {
    const start: Buffer = next;
    next = undefined;
    for (const item of scan(start, end)) {
      if (entries.length >= max) return { entries, truncated: max > 0 };
      const commonPrefix = commonPrefixOf(item.key, prefix, delimiter);
      if (commonPrefix === undefined) {
        entries.push({ item });
      } else {
        entries.push({ commonPrefix });
        next = successor(commonPrefix);
        break;
      }
    }
  }
  return { entries, truncated: false };
}

function commonPrefixOf(key: Buffer, prefix: Buffer, delimiter: Buffer): Buffer | undefined {
  const at = delimiter.length === 0 ? -1 : key.indexOf(delimiter, prefix.length);
  return at < 0 ? undefined : key.subarray(0, at + delimiter.length);
}

/**
 * The first key to list after `marker`. S3 omits a common prefix that is not greater than the marker. Therefore, if the
 * marker has a common prefix, all keys under it are skipped.
 */
function after(marker: Buffer, { prefix, delimiter }: Selection): Buffer {
  if (marker.length === 0) return marker;
  const startsWithPrefix = marker.subarray(0, prefix.length).equals(prefix);
  const commonPrefix = startsWithPrefix ? commonPrefixOf(marker, prefix, delimiter) : undefined;
  return commonPrefix === undefined ? Buffer.concat([marker, Buffer.of(0)]) : successor(commonPrefix);
}

function selection({ keysMax }: Service, call: Call): Selection {
  return {
    prefix: Buffer.from(call.query.get('prefix') ?? ''),
    delimiter: Buffer.from(call.query.get('delimiter') ?? ''),
    max: integer(call, 'max-keys', keysMax, keysMax),
  };
}

/** Encodes keys as the client asked with `encoding-type`. */
export function encoder(call: Call): (text: string | Buffer) => string {
  const encoding = call.query.get('encoding-type');
  if (encoding !== undefined && encoding !== 'url') {
    throw invalid('encoding-type', 'Invalid Encoding Method specified in Request');
  }
  return encoding === 'url' ? (text) => encodeKey(text.toString()) : (text) => text.toString();
}

function echo(call: Call, encode: (text: string) => string): (XmlElement | undefined)[] {
  const delimiter = call.query.get('delimiter');
  return [
    ['Name', call.bucket],
    ['Prefix', encode(call.query.get('prefix') ?? '')],
    delimiter === undefined || delimiter === '' ? undefined : ['Delimiter', encode(delimiter)],
    call.query.has('encoding-type') ? ['EncodingType', 'url'] : undefined,
  ];
}

function contents({ key, modifiedMs, etag, bytes }: ListedVersion, encode: (text: Buffer) => string): XmlElement {
  return [
    'Contents',
    [
      ['Key', encode(key)],
      ['LastModified', isoSeconds(modifiedMs)],
      ['ETag', `"${etag}"`],
      ['Size', bytes],
      ['StorageClass', 'STANDARD'],
    ],
  ];
}

function objectsPage({ catalog }: Service, call: Call, select: Selection, marker: Buffer): Page<ListedVersion> {
  return page(select, after(marker, select), (from, to) => catalog.currentObjects(call.bucket, from, to));
}

function lastKey(entries: readonly Entry<ListedVersion>[]): Buffer {
  const last = entries.at(-1);
  if (last === undefined) return Buffer.alloc(0);
  return 'item' in last ? last.item.key : last.commonPrefix;
}

function objectElements(entries: readonly Entry<ListedVersion>[], encode: (text: Buffer) => string): XmlElement[] {
  const prefixes = entries.flatMap((entry) => ('item' in entry ? [] : [entry.commonPrefix]));
  return [
    ...entries.flatMap((entry) => ('item' in entry ? [contents(entry.item, encode)] : [])),
    ...prefixes.map((prefix): XmlElement => ['CommonPrefixes', [['Prefix', encode(prefix)]]]),
  ];
}

export function listObjectsV2(service: Service, call: Call): S3Response {
  service.catalog.bucket(call.bucket);
  demand(service, call, 's3:ListBucket');
  const select = selection(service, call);
  const encode = encoder(call);
  const token = call.query.get('continuation-token');
  const startAfter = call.query.get('start-after');
  const marker = token === undefined ? Buffer.from(startAfter ?? '') : fromToken(token);
  const { entries, truncated } = objectsPage(service, call, select, marker);
  return xmlResponse([
    'ListBucketResult',
    [
      ...echo(call, encode),
      startAfter === undefined ? undefined : ['StartAfter', encode(startAfter)],
      ['KeyCount', entries.length],
      ['MaxKeys', select.max],
      ['IsTruncated', truncated],
      token === undefined ? undefined : ['ContinuationToken', token],
      truncated ? ['NextContinuationToken', toToken(lastKey(entries))] : undefined,
      ...objectElements(entries, encode),
    ],
  ]);
}

function toToken(key: Buffer): string {
  return `1${key.toString('base64')}`;
}

function fromToken(token: string): Buffer {
  const key = Buffer.from(token.slice(1), 'base64');
  if (toToken(key) !== token) throw invalid('continuation-token', 'The continuation token provided is incorrect');
  return key;
}

export function listObjectsV1(service: Service, call: Call): S3Response {
  service.catalog.bucket(call.bucket);
  demand(service, call, 's3:ListBucket');
  const select = selection(service, call);
  const encode = encoder(call);
  const marker = call.query.get('marker') ?? '';
  const { entries, truncated } = objectsPage(service, call, select, Buffer.from(marker));
  // "This element is returned only if you have the delimiter request parameter specified."
  const nextMarker = truncated && select.delimiter.length > 0;
  return xmlResponse([
    'ListBucketResult',
    [
      ...echo(call, encode),
      ['Marker', encode(marker)],
      nextMarker ? ['NextMarker', encode(lastKey(entries))] : undefined,
      ['MaxKeys', select.max],
      ['IsTruncated', truncated],
      ...objectElements(entries, encode),
    ],
  ]);
}

export function listObjectVersions(service: Service, call: Call): S3Response {
  const { catalog } = service;
  catalog.bucket(call.bucket);
  demand(service, call, 's3:ListBucketVersions');
  const select = selection(service, call);
  const encode = encoder(call);
  const keyMarker = call.query.get('key-marker') ?? '';
  const idMarker = call.query.get('version-id-marker') ?? '';
  // Continues within the marker's key. If the marker's version has been deleted since, the key starts again.
  const within = Buffer.from(keyMarker);
  const below = catalog.version(call.bucket, keyMarker, idMarker)?.sequence ?? Number.MAX_SAFE_INTEGER;
  const from = idMarker === '' ? after(within, select) : within;
  const { entries, truncated } = page(select, from, (start, to) =>
    catalog.versions(call.bucket, start, to, idMarker !== '' && start.equals(within) ? below : Number.MAX_SAFE_INTEGER),
  );
  const last = entries.at(-1);
  return xmlResponse([
    'ListVersionsResult',
    [
      ...echo(call, encode),
      ['KeyMarker', encode(keyMarker)],
      ['VersionIdMarker', idMarker],
      truncated ? ['NextKeyMarker', encode(lastKey(entries))] : undefined,
      truncated && last !== undefined && 'item' in last ? ['NextVersionIdMarker', last.item.versionId] : undefined,
      ['MaxKeys', select.max],
      ['IsTruncated', truncated],
      ...entries.map((entry) =>
        'item' in entry
          ? versionElement(entry.item, encode)
          : (['CommonPrefixes', [['Prefix', encode(entry.commonPrefix)]]] as const),
      ),
    ],
  ]);
}

function versionElement(version: ListedVersion, encode: (text: Buffer) => string): XmlElement {
  const common: XmlElement[] = [
    ['Key', encode(version.key)],
    ['VersionId', version.versionId],
    ['IsLatest', version.latest],
    ['LastModified', isoSeconds(version.modifiedMs)],
  ];
  if (version.deleteMarker) return ['DeleteMarker', common];
  return ['Version', [...common, ['ETag', `"${version.etag}"`], ['Size', version.bytes], ['StorageClass', 'STANDARD']]];
}
