import { type Call, demand, integer, isoSeconds, OWNER, type S3Response, type Service, xmlResponse } from './call.ts';
import { commonPrefixOf, encoder } from './listing.ts';
import { checksumElement, PART_NUMBER_MAX } from './multipart.ts';
import type { Upload } from './uploads.ts';
import type { XmlElement } from './xml.ts';

/** Maximum number of uploads or parts on a page. */
const LISTED_MAX = 1000;
const INITIATOR: XmlElement = ['Initiator', OWNER[1]];

export function listParts(service: Service, call: Call): S3Response {
  const { catalog, uploads } = service;
  const { bucket, key, query } = call;
  demand(service, call, 's3:ListMultipartUploadParts');
  catalog.bucket(bucket);
  const upload = uploads.find(bucket, key, query.get('uploadId') ?? '');
  const marker = integer(call, 'part-number-marker', 0, PART_NUMBER_MAX);
  const max = integer(call, 'max-parts', LISTED_MAX, LISTED_MAX);
  const rest = uploads.parts(upload.id).filter(({ number }) => number > marker);
  const parts = rest.slice(0, max);
  return xmlResponse([
    'ListPartsResult',
    [
      ['Bucket', bucket],
      ['Key', key],
      ['UploadId', upload.id],
      INITIATOR,
      OWNER,
      ['StorageClass', 'STANDARD'],
      ['PartNumberMarker', marker],
      ['NextPartNumberMarker', parts.at(-1)?.number ?? marker],
      ['MaxParts', max],
      ['IsTruncated', rest.length > parts.length],
      ...parts.map(
        ({ number, etag, modifiedMs, segment, checksum }): XmlElement => [
          'Part',
          [
            ['PartNumber', number],
            ['LastModified', isoSeconds(modifiedMs)],
            ['ETag', `"${etag}"`],
            ['Size', segment.bytes],
            checksum && checksumElement(checksum),
          ],
        ],
      ),
    ],
  ]);
}

/** An unfinished upload, or a common prefix that stands for all uploads under it. */
type Entry = { readonly upload: Upload } | { readonly commonPrefix: string };

export function listMultipartUploads(service: Service, call: Call): S3Response {
  const { bucket, query } = call;
  demand(service, call, 's3:ListBucketMultipartUploads');
  service.catalog.bucket(bucket);
  const encode = encoder(call);
  const max = integer(call, 'max-uploads', LISTED_MAX, LISTED_MAX);
  const keyMarker = query.get('key-marker') ?? '';
  const idMarker = query.get('upload-id-marker') ?? '';
  const prefix = query.get('prefix') ?? '';
  const delimiter = query.get('delimiter') ?? '';
  const entries = grouped(service.uploads.list({ bucket, prefix, keyMarker, idMarker }), call, max + 1);
  const page = entries.slice(0, max);
  const last = page.at(-1);
  const truncated = entries.length > page.length && last !== undefined;
  const uploadMarker = truncated && 'upload' in last ? last.upload : undefined;
  return xmlResponse([
    'ListMultipartUploadsResult',
    [
      ['Bucket', bucket],
      ['KeyMarker', encode(keyMarker)],
      ['UploadIdMarker', idMarker],
      truncated ? ['NextKeyMarker', encode(uploadMarker?.key ?? keyOf(last))] : undefined,
      uploadMarker && ['NextUploadIdMarker', uploadMarker.id],
      ['Prefix', encode(prefix)],
      delimiter === '' ? undefined : ['Delimiter', encode(delimiter)],
      query.has('encoding-type') ? ['EncodingType', 'url'] : undefined,
      ['MaxUploads', max],
      ['IsTruncated', truncated],
      ...page.flatMap((entry) => ('upload' in entry ? [uploadElement(entry.upload, encode)] : [])),
      ...page.flatMap((entry): XmlElement[] =>
        'upload' in entry ? [] : [['CommonPrefixes', [['Prefix', encode(entry.commonPrefix)]]]],
      ),
    ],
  ]);
}

function keyOf(entry: Entry): string {
  return 'upload' in entry ? entry.upload.key : entry.commonPrefix;
}

/** At most `max` entries. A common prefix that the marker has was listed before, as a whole. */
function grouped(uploads: readonly Upload[], { query }: Call, max: number): Entry[] {
  const [prefix, delimiter] = [query.get('prefix') ?? '', query.get('delimiter') ?? ''].map((text) =>
    Buffer.from(text),
  );
  const marker = query.get('key-marker') ?? '';
  const entries: Entry[] = [];
  for (const upload of uploads) {
    if (entries.length === max) break;
    const common = commonPrefixOf(Buffer.from(upload.key), prefix as Buffer, delimiter as Buffer)?.toString();
    const last = entries.at(-1);
    if (common === undefined) entries.push({ upload });
    else if (!marker.startsWith(common) && (last === undefined || keyOf(last) !== common)) {
      entries.push({ commonPrefix: common });
    }
  }
  return entries;
}

function uploadElement({ key, id, initiatedMs }: Upload, encode: (text: string) => string): XmlElement {
  return [
    'Upload',
    [
      ['Key', encode(key)],
      ['UploadId', id],
      INITIATOR,
      OWNER,
      ['StorageClass', 'STANDARD'],
      ['Initiated', isoSeconds(initiatedMs)],
    ],
  ];
}
