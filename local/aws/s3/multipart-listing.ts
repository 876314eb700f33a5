import { type Call, demand, integer, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import { S3Error } from './errors.ts';
import { encodeKey } from './events.ts';
import { checksumElement, PART_NUMBER_MAX } from './multipart.ts';
import type { XmlElement } from './xml.ts';

/** Maximum number of uploads or parts on a page. */
const LISTED_MAX = 1000;

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

export function listMultipartUploads(service: Service, call: Call): S3Response {
  const { catalog, uploads } = service;
  const { bucket, query } = call;
  demand(service, call, 's3:ListBucketMultipartUploads');
  catalog.bucket(bucket);
  if (query.get('delimiter')) throw new S3Error('NotImplemented', { details: { Query: 'delimiter' } });
  const encode = query.get('encoding-type') === 'url' ? encodeKey : (text: string) => text;
  const max = integer(call, 'max-uploads', LISTED_MAX, LISTED_MAX);
  const keyMarker = query.get('key-marker') ?? '';
  const idMarker = query.get('upload-id-marker') ?? '';
  const prefix = query.get('prefix') ?? '';
  const rest = uploads.list({ bucket, prefix, keyMarker, idMarker, limit: max + 1 });
  const page = rest.slice(0, max);
  const last = page.at(-1);
  const truncated = rest.length > page.length && last !== undefined;
  return xmlResponse([
    'ListMultipartUploadsResult',
    [
      ['Bucket', bucket],
      ['KeyMarker', encode(keyMarker)],
      ['UploadIdMarker', idMarker],
      truncated ? ['NextKeyMarker', encode(last.key)] : undefined,
      truncated ? ['NextUploadIdMarker', last.id] : undefined,
      ['Prefix', encode(prefix)],
      ['MaxUploads', max],
      ['IsTruncated', truncated],
      ...page.map(
        ({ key, id, initiatedMs }): XmlElement => [
          'Upload',
          [
            ['Key', encode(key)],
            ['UploadId', id],
            ['StorageClass', 'STANDARD'],
            ['Initiated', isoSeconds(initiatedMs)],
          ],
        ],
      ),
    ],
  ]);
}
