import { createHash } from 'node:crypto';
import { type Call, demand, EMPTY, integer, type S3Response, type Service, xmlResponse } from './call.ts';
import type { NewVersion } from './catalog.ts';
import { CHECKSUM_ALGORITHMS, type Checksum, type ChecksumAlgorithm, createHasher } from './checksums.ts';
import { checkTarget, commit, demandWrite, keeping, versionHeader } from './commit.ts';
import { writeCondition } from './conditions.ts';
import { S3Error } from './errors.ts';
import { receive, receiveXml, XML_LIST_BYTES_MAX } from './incoming.ts';
import { objectHeaders } from './object-headers.ts';
import { headerTags } from './tags.ts';
import type { Part, Upload } from './uploads.ts';
import { childText, type XmlElement, type XmlNode } from './xml.ts';

export const PART_NUMBER_MAX = 10_000;
/** "5 MB to 5 GB. There is no minimum size limit on the last part of your multipart upload." */
const PART_BYTES_MIN = 5 * 1024 ** 2;

export function createMultipartUpload(service: Service, call: Call): S3Response {
  const { bucket, key, headers } = call;
  checkTarget(service, call);
  demandWrite(service, call);
  const checksum = requestedChecksum(call);
  const upload = service.database.transaction(() =>
    service.uploads.create({
      bucket,
      key,
      initiatedMs: service.now(),
      headers: objectHeaders(headers),
      tags: headerTags(headers),
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

/** CRC64NVME is for whole objects only, SHA is composite only. The other CRCs are composite by default. */
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
  checkTarget(service, call);
  demandWrite(service, call);
  const target = partTarget(service, call);
  const { chunks, received } = receive(call);
  const segment = await service.bodies.write(chunks);
  const { md5, checksum } = received();
  const { etag } = storePart(service, call, { number: target.number, etag: md5.toString('hex'), checksum, segment });
  const sum = checksum && { [`x-amz-checksum-${checksum.algorithm}`]: checksum.value };
  return { status: 200, headers: { etag: `"${etag}"`, ...sum }, body: EMPTY };
}

/** The upload and the number of the part that a request brings. Throws NoSuchUpload, InvalidArgument. */
export function partTarget({ uploads }: Service, call: Call): { upload: Upload; number: number } {
  const upload = uploads.find(call.bucket, call.key, call.query.get('uploadId') ?? '');
  return { upload, number: partNumber(call) };
}

/** Reads `partNumber`. Throws InvalidArgument. */
export function partNumber(call: Call): number {
  const number = integer(call, 'partNumber', 0, Number.MAX_SAFE_INTEGER);
  if (number >= 1 && number <= PART_NUMBER_MAX) return number;
  const message = `Part number must be an integer between 1 and ${PART_NUMBER_MAX}, inclusive`;
  throw new S3Error('InvalidArgument', { message, details: { ArgumentName: 'partNumber' } });
}

/** Adds a part whose body is stored. It replaces an earlier part of its number. */
export function storePart(service: Service, call: Call, arrived: Omit<Part, 'modifiedMs'>): Part {
  const { database, uploads, bodies } = service;
  const part = { ...arrived, modifiedMs: service.now() };
  keeping(service, part.segment, () => {
    const replaced = database.transaction(() => {
      // The upload may have been completed or aborted while the part arrived.
      const { id } = uploads.find(call.bucket, call.key, call.query.get('uploadId') ?? '');
      return uploads.putPart(id, part);
    });
    if (replaced !== undefined) bodies.remove([replaced.segment]);
  });
  return part;
}

export async function completeMultipartUpload(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  const { uploads, bodies } = service;
  checkTarget(service, call);
  demandWrite(service, call);
  const upload = uploads.find(bucket, key, call.query.get('uploadId') ?? '');
  const condition = writeCondition(headers);
  const body = { ...call, headers: bodyHeaders(call) };
  const request = await receiveXml(body, 'CompleteMultipartUpload', XML_LIST_BYTES_MAX);
  const parts = chooseParts(upload, uploads.parts(upload.id), request.children);
  const completed = await completedVersion(service, call, upload, parts);
  let unused: readonly Part[] = [];
  const version = commit(service, condition, completed, () => {
    unused = closeUpload(service, upload, parts);
  });
  bodies.remove(unused.map(({ segment }) => segment));
  await service.publish('ObjectCreated:CompleteMultipartUpload', version, call);
  const { etag, checksum } = completed;
  return xmlResponse(
    [
      'CompleteMultipartUploadResult',
      [
        ['Location', `http://${headers.host ?? 'localhost'}/${bucket}/${encodeURIComponent(key)}`],
        ['Bucket', bucket],
        ['Key', key],
        ['ETag', `"${etag}"`],
        ...checksumElements(checksum),
      ],
    ],
    versionHeader(service, version),
  );
}

/** The object that the parts make. Throws InvalidRequest if its size is not the one that the client declared. */
async function completedVersion(
  service: Service,
  call: Call,
  upload: Upload,
  parts: readonly Part[],
): Promise<NewVersion> {
  const segments = parts.map(({ segment }) => segment);
  const bytes = segments.reduce((sum, segment) => sum + segment.bytes, 0);
  const declared = call.headers['x-amz-mp-object-size'];
  if (declared !== undefined && declared !== String(bytes)) {
    throw new S3Error('InvalidRequest', {
      message: 'The provided x-amz-mp-object-size does not match the object size.',
    });
  }
  return {
    bucket: upload.bucket,
    key: upload.key,
    deleteMarker: false,
    bytes,
    etag: `${md5OfParts(parts)}-${parts.length}`,
    // S3: "For multipart uploads, the object creation date is the date of initiation of the multipart upload."
    modifiedMs: upload.initiatedMs,
    headers: upload.headers,
    checksum: await wholeChecksum(service, call, upload, parts),
    segments,
    tags: upload.tags,
  };
}

/** Removes an upload and returns its parts that the object does not use. Throws InvalidPart. Call in a transaction. */
function closeUpload({ uploads }: Service, { bucket, key, id }: Upload, parts: readonly Part[]): readonly Part[] {
  uploads.find(bucket, key, id);
  const present = uploads.parts(id);
  const isIn = (some: readonly Part[], part: Part) => some.some(({ segment }) => segment.id === part.segment.id);
  // A part may have been uploaded again while the checksum was computed.
  if (!parts.every((part) => isIn(present, part))) throw new S3Error('InvalidPart');
  uploads.remove(id);
  return present.filter((part) => !isIn(parts, part));
}

/** Drops the checksum headers: in a completion they belong to the object, not to the XML. */
function bodyHeaders({ headers }: Call): Call['headers'] {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith('x-amz-checksum-')));
}

/**
 * The parts that the client lists, in its order. Throws InvalidPartOrder, InvalidPart, EntityTooSmall, MalformedXML.
 */
function chooseParts(upload: Upload, present: readonly Part[], named: readonly XmlNode[]): Part[] {
  if (named.length === 0 || named.some(({ name }) => name !== 'Part')) throw new S3Error('MalformedXML');
  const byNumber = new Map(present.map((part) => [part.number, part]));
  let previous = 0;
  const chosen = named.map((node) => {
    const text = childText(node, 'PartNumber') ?? '';
    const number = Number(text);
    const etag = childText(node, 'ETag')?.replace(/^"(.*)"$/, '$1');
    if (!/^\d{1,10}$/.test(text) || etag === undefined) throw new S3Error('MalformedXML');
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

/** For a composite checksum the request must list that of every part. Otherwise a listed checksum must be correct. */
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

export function checksumElement({ algorithm, value }: Pick<Checksum, 'algorithm' | 'value'>): XmlElement {
  return [elementName(algorithm), value];
}

export function checksumElements(checksum: Checksum | undefined): XmlElement[] {
  return checksum === undefined ? [] : [checksumElement(checksum), ['ChecksumType', checksum.type]];
}

export function abortMultipartUpload(service: Service, call: Call): S3Response {
  const { database, catalog, uploads, bodies } = service;
  const { bucket, key, query } = call;
  demand(service, call, 's3:AbortMultipartUpload');
  const parts = database.transaction(() => {
    catalog.bucket(bucket);
    const { id } = uploads.find(bucket, key, query.get('uploadId') ?? '');
    const parts = uploads.parts(id);
    uploads.remove(id);
    return parts;
  });
  bodies.remove(parts.map(({ segment }) => segment));
  return { status: 204, headers: {}, body: EMPTY };
}
