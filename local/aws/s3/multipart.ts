import { createHash } from 'node:crypto';
import { type Call, demand, EMPTY, integer, isoSeconds, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Part, Upload } from './catalog.ts';
import { CHECKSUM_ALGORITHMS, type Checksum, type ChecksumAlgorithm, createHasher } from './checksums.ts';
import { writeCondition } from './conditions.ts';
import { S3Error } from './errors.ts';
import { encodeKey } from './events.ts';
import { receive, receiveText } from './incoming.ts';
import { objectHeaders } from './object-headers.ts';
import { checkTarget, commit, demandWrite, keeping, versionHeader } from './objects.ts';
import { childText, parseXml, type XmlElement, type XmlNode } from './xml.ts';

const PART_NUMBER_MAX = 10_000;
/** "5 MB to 5 GB. There is no minimum size limit on the last part of your multipart upload." */
const PART_BYTES_MIN = 5 * 1024 ** 2;
const LISTED_MAX = 1000;

export function createMultipartUpload(service: Service, call: Call): S3Response {
  const { bucket, key, headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const checksum = requestedChecksum(call);
  const upload = service.catalog.transaction(() =>
    service.catalog.createUpload({
      bucket,
      key,
      initiatedMs: service.now(),
      headers: objectHeaders(headers),
      checksum,
    }),
  );
  return xmlResponse(
    [
      'InitiateMultipartUploadResult',
      [
        ['Bucket', bucket],
        ['Key', key],
        ['UploadId', upload.id],
      ],
    ],
    checksum && {
      'x-amz-checksum-algorithm': checksum.algorithm.toUpperCase(),
      'x-amz-checksum-type': checksum.type,
    },
  );
}

/** CRC64NVME is for whole objects only, SHA is composite only, the other CRCs are composite unless asked otherwise. */
function requestedChecksum({ headers }: Call): Upload['checksum'] {
  const name = headers['x-amz-checksum-algorithm']?.toLowerCase();
  if (name === undefined) return undefined;
  const algorithm = CHECKSUM_ALGORITHMS.find((known) => known === name);
  if (algorithm === undefined)
    throw new S3Error('InvalidRequest', { message: 'Checksum algorithm provided is unsupported.' });
  const type = headers['x-amz-checksum-type'] ?? (algorithm === 'crc64nvme' ? 'FULL_OBJECT' : 'COMPOSITE');
  const possible =
    algorithm === 'crc64nvme' ? ['FULL_OBJECT'] : algorithm.startsWith('sha') ? ['COMPOSITE'] : undefined;
  if ((type !== 'FULL_OBJECT' && type !== 'COMPOSITE') || possible?.includes(type) === false) {
    const message = `The ${type} checksum type cannot be used with the ${name} checksum algorithm.`;
    throw new S3Error('InvalidRequest', { message });
  }
  return { algorithm, type };
}

export async function uploadPart(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, query } = call;
  const { catalog, bodies } = service;
  checkTarget(service, call);
  demandWrite(service, call);
  const uploadId = query.get('uploadId') ?? '';
  catalog.upload(bucket, key, uploadId);
  const number = integer(call, 'partNumber', 0, Number.MAX_SAFE_INTEGER);
  if (number < 1 || number > PART_NUMBER_MAX) {
    const message = `Part number must be an integer between 1 and ${PART_NUMBER_MAX}, inclusive`;
    throw new S3Error('InvalidArgument', { message, details: { ArgumentName: 'partNumber' } });
  }
  const { chunks, received } = receive(call);
  const segment = await bodies.write(chunks);
  const { md5, checksum } = received();
  const etag = md5.toString('hex');
  keeping(service, segment, () => {
    const replaced = catalog.transaction(() => {
      catalog.upload(bucket, key, uploadId); // It may have been completed or aborted while the part was coming in.
      return catalog.putPart(uploadId, { number, etag, modifiedMs: service.now(), checksum, segment });
    });
    if (replaced !== undefined) bodies.remove([replaced.segment]);
  });
  const sum = checksum && { [`x-amz-checksum-${checksum.algorithm}`]: checksum.value };
  return { status: 200, headers: { etag: `"${etag}"`, ...sum }, body: EMPTY };
}

export async function completeMultipartUpload(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  const { catalog, bodies } = service;
  checkTarget(service, call);
  demandWrite(service, call);
  const upload = catalog.upload(bucket, key, call.query.get('uploadId') ?? '');
  const condition = writeCondition(headers);
  const named = parseXml(
    await receiveText({ ...call, headers: bodyHeaders(call) }),
    'CompleteMultipartUpload',
  ).children;
  const parts = chooseParts(upload, catalog.parts(upload.id), named);
  const segments = parts.map(({ segment }) => segment);
  const bytes = segments.reduce((sum, segment) => sum + segment.bytes, 0);
  const declared = headers['x-amz-mp-object-size'];
  if (declared !== undefined && declared !== String(bytes)) {
    throw new S3Error('InvalidRequest', {
      message: 'The provided x-amz-mp-object-size does not match the object size.',
    });
  }
  const checksum = await wholeChecksum(service, call, upload, parts);
  const etag = `${md5OfParts(parts)}-${parts.length}`;

  let unused: Part[] = [];
  const version = commit(
    service,
    condition,
    {
      bucket,
      key,
      deleteMarker: false,
      bytes,
      etag,
      // S3: "For multipart uploads, the object creation date is the date of initiation of the multipart upload."
      modifiedMs: upload.initiatedMs,
      headers: upload.headers,
      checksum,
      segments,
    },
    () => {
      catalog.upload(bucket, key, upload.id);
      const present = catalog.parts(upload.id);
      const same = parts.every((part) => present.some(({ segment }) => segment.id === part.segment.id));
      if (!same) throw new S3Error('InvalidPart'); // One was uploaded again while the checksum was computed.
      unused = present.filter((part) => !segments.some(({ id }) => id === part.segment.id));
      catalog.removeUpload(upload.id);
    },
  );
  bodies.remove(unused.map(({ segment }) => segment));
  await service.publish('ObjectCreated:CompleteMultipartUpload', version, call);
  return xmlResponse(
    [
      'CompleteMultipartUploadResult',
      [
        ['Location', `http://${headers.host ?? 'localhost'}/${bucket}/${encodeURIComponent(key)}`],
        ['Bucket', bucket],
        ['Key', key],
        ['ETag', `"${etag}"`],
        ...(checksum === undefined ? [] : [checksumElement(checksum), ['ChecksumType', checksum.type] as const]),
      ],
    ],
    versionHeader(service, version),
  );
}

/** The checksum headers of a completion are of the object, not of the XML. */
function bodyHeaders({ headers }: Call): Call['headers'] {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith('x-amz-checksum-')));
}

/** The parts that the client names, in its order. Throws InvalidPartOrder, InvalidPart, EntityTooSmall, MalformedXML. */
function chooseParts(upload: Upload, present: readonly Part[], named: readonly XmlNode[]): Part[] {
  if (named.length === 0 || named.some(({ name }) => name !== 'Part')) throw new S3Error('MalformedXML');
  const byNumber = new Map(present.map((part) => [part.number, part]));
  let previous = 0;
  const chosen = named.map((node) => {
    const number = Number(childText(node, 'PartNumber'));
    const etag = childText(node, 'ETag')?.replace(/^"(.*)"$/, '$1');
    if (!Number.isSafeInteger(number) || etag === undefined) throw new S3Error('MalformedXML');
    if (number <= previous) throw new S3Error('InvalidPartOrder');
    previous = number;
    const part = byNumber.get(number);
    if (part === undefined || part.etag !== etag || !checksumHolds(upload, part, node)) {
      throw new S3Error('InvalidPart', { details: { UploadId: upload.id, PartNumber: String(number), ETag: etag } });
    }
    return part;
  });
  for (const part of chosen.slice(0, -1)) {
    if (part.segment.bytes >= PART_BYTES_MIN) continue;
    throw new S3Error('EntityTooSmall', {
      details: {
        ProposedSize: String(part.segment.bytes),
        MinSizeAllowed: String(PART_BYTES_MIN),
        PartNumber: String(part.number),
        ETag: part.etag,
      },
    });
  }
  return chosen;
}

/** A composite checksum needs that of every part in the request; elsewhere one that is sent must be right. */
function checksumHolds({ checksum: wanted }: Upload, { checksum }: Part, node: XmlNode): boolean {
  if (wanted?.type === 'COMPOSITE') {
    if (checksum?.algorithm !== wanted.algorithm) return false;
    if (childText(node, elementName(wanted.algorithm)) === undefined) {
      const message = `The upload was created using a ${wanted.algorithm} checksum. The complete request must include the checksum for each part.`;
      throw new S3Error('InvalidRequest', { message });
    }
  }
  if (checksum === undefined) return true;
  const sent = childText(node, elementName(checksum.algorithm));
  return sent === undefined || sent === checksum.value;
}

async function wholeChecksum(
  service: Service,
  { headers }: Call,
  { checksum: wanted }: Upload,
  parts: readonly Part[],
): Promise<Checksum | undefined> {
  if (wanted === undefined) return undefined;
  const { algorithm, type } = wanted;
  const hasher = createHasher(algorithm);
  if (type === 'COMPOSITE') {
    for (const part of parts) hasher.update(Buffer.from(part.checksum?.value ?? '', 'base64'));
  } else {
    const segments = parts.map(({ segment }) => segment);
    const end = segments.reduce((sum, { bytes }) => sum + bytes, 0);
    for await (const chunk of service.bodies.read(segments, { start: 0, end })) hasher.update(chunk);
  }
  const digest = hasher.digest().toString('base64');
  const sent = headers[`x-amz-checksum-${algorithm}`];
  if (sent !== undefined && sent.split('-')[0] !== digest) throw new S3Error('BadDigest');
  return { algorithm, type, value: type === 'COMPOSITE' ? `${digest}-${parts.length}` : digest };
}

function md5OfParts(parts: readonly Part[]): string {
  const md5 = createHash('md5');
  for (const { etag } of parts) md5.update(etag, 'hex');
  return md5.digest('hex');
}

function elementName(algorithm: ChecksumAlgorithm): string {
  return `Checksum${algorithm.toUpperCase()}`;
}

function checksumElement({ algorithm, value }: Pick<Checksum, 'algorithm' | 'value'>): XmlElement {
  return [elementName(algorithm), value];
}

export function abortMultipartUpload(service: Service, call: Call): S3Response {
  const { catalog, bodies } = service;
  const { bucket, key, query } = call;
  demand(service, call, 's3:AbortMultipartUpload', bucket, key);
  const parts = catalog.transaction(() => {
    catalog.bucket(bucket);
    const { id } = catalog.upload(bucket, key, query.get('uploadId') ?? '');
    const parts = catalog.parts(id);
    catalog.removeUpload(id);
    return parts;
  });
  bodies.remove(parts.map(({ segment }) => segment));
  return { status: 204, headers: {}, body: EMPTY };
}

export function listParts(service: Service, call: Call): S3Response {
  const { catalog } = service;
  const { bucket, key, query } = call;
  demand(service, call, 's3:ListMultipartUploadParts', bucket, key);
  catalog.bucket(bucket);
  const upload = catalog.upload(bucket, key, query.get('uploadId') ?? '');
  const marker = integer(call, 'part-number-marker', 0, PART_NUMBER_MAX);
  const max = integer(call, 'max-parts', LISTED_MAX, LISTED_MAX);
  const rest = catalog.parts(upload.id).filter(({ number }) => number > marker);
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
  const { catalog } = service;
  const { bucket, query } = call;
  demand(service, call, 's3:ListBucketMultipartUploads', bucket);
  catalog.bucket(bucket);
  if (query.get('delimiter')) throw new S3Error('NotImplemented', { details: { Query: 'delimiter' } });
  const encode = query.get('encoding-type') === 'url' ? encodeKey : (text: string) => text;
  const max = integer(call, 'max-uploads', LISTED_MAX, LISTED_MAX);
  const keyMarker = query.get('key-marker') ?? '';
  const idMarker = query.get('upload-id-marker') ?? '';
  const rest = catalog.uploads(bucket, query.get('prefix') ?? '', keyMarker, idMarker, max + 1);
  const uploads = rest.slice(0, max);
  const last = uploads.at(-1);
  const truncated = rest.length > uploads.length && last !== undefined;
  return xmlResponse([
    'ListMultipartUploadsResult',
    [
      ['Bucket', bucket],
      ['KeyMarker', encode(keyMarker)],
      ['UploadIdMarker', idMarker],
      truncated ? ['NextKeyMarker', encode(last.key)] : undefined,
      truncated ? ['NextUploadIdMarker', last.id] : undefined,
      ['Prefix', encode(query.get('prefix') ?? '')],
      ['MaxUploads', max],
      ['IsTruncated', truncated],
      ...uploads.map(
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
