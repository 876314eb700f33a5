import { createHash } from 'node:crypto';
import {
  type Call,
  demand,
  EMPTY,
  integer,
  invalid,
  isoSeconds,
  type S3Response,
  type Service,
  xmlResponse,
} from './call.ts';
import type { NewVersion, Part, Upload } from './catalog.ts';
import { CHECKSUM_ALGORITHMS, type Checksum, type ChecksumAlgorithm, createHasher } from './checksums.ts';
import { S3Error } from './errors.ts';
import { receive, receiveXml } from './incoming.ts';
import { encoder } from './listing.ts';
import {
  type Content,
  checkWrite,
  commit,
  conditionOf,
  keeping,
  objectHeaders,
  unquoted,
  versionHeader,
} from './objects.ts';
import { childText, type XmlElement, type XmlNode } from './xml.ts';

const PART_NUMBER_MAX = 10_000;
/** "5 MB to 5 GB. There is no minimum size limit on the last part of your multipart upload." */
const PART_BYTES_MIN = 5 * 1024 ** 2;
/** Maximum number of uploads in a listing. The next page cannot be asked for: the local run aborts what it listed. */
const LISTED_MAX = 1000;

export function createMultipartUpload(service: Service, call: Call): S3Response {
  const { bucket, key, headers } = call;
  checkWrite(service, call);
  const checksum = requestedChecksum(call);
  const begun = { bucket, key, initiatedMs: service.now(), headers: objectHeaders(headers), checksum };
  const { id } = service.catalog.transaction(() => service.catalog.createUpload(begun));
  const children: XmlElement[] = [
    ['Bucket', bucket],
    ['Key', key],
    ['UploadId', id],
  ];
  return xmlResponse(
    ['InitiateMultipartUploadResult', children],
    checksum && {
      'x-amz-checksum-algorithm': checksum.algorithm.toUpperCase(),
      'x-amz-checksum-type': checksum.type,
    },
  );
}

/** CRC64NVME is for whole objects only, SHA is composite only. CRC32 is composite by default. */
export function requestedChecksum({ headers }: Call): Upload['checksum'] {
  const name = headers['x-amz-checksum-algorithm']?.toLowerCase();
  if (name === undefined) return undefined;
  const algorithm = CHECKSUM_ALGORITHMS.find((known) => known === name);
  if (algorithm === undefined) throw new S3Error('NotImplemented');
  const type = headers['x-amz-checksum-type'] ?? (algorithm === 'crc64nvme' ? 'FULL_OBJECT' : 'COMPOSITE');
  const isPossible =
    algorithm === 'crc32' || (algorithm === 'crc64nvme' ? type === 'FULL_OBJECT' : type === 'COMPOSITE');
  if ((type !== 'FULL_OBJECT' && type !== 'COMPOSITE') || !isPossible) {
    const message = `The ${type} checksum type cannot be used with the ${name} checksum algorithm.`;
    throw new S3Error('InvalidRequest', { message });
  }
  return { algorithm, type };
}

export async function uploadPart(service: Service, call: Call): Promise<S3Response> {
  const { number } = partOf(service, call);
  const { chunks, received } = receive(call);
  const segment = await service.bodies.write(chunks);
  const { md5, checksum } = received();
  const { etag } = keepPart(service, call, number, { segment, etag: md5.toString('hex'), checksum });
  const sum = checksum && { [`x-amz-checksum-${checksum.algorithm}`]: checksum.value };
  return { status: 200, headers: { etag: `"${etag}"`, ...sum }, body: EMPTY };
}

/** Checks the write of a part before its bytes are read. Throws NoSuchUpload, InvalidArgument. */
export function partOf(service: Service, call: Call): { readonly number: number; readonly upload: Upload } {
  checkWrite(service, call);
  // An upload names its encryption once, at its beginning.
  const name = 'x-amz-server-side-encryption';
  if (call.headers[name] !== undefined) throw invalid(name, `${name} header is not supported for this operation.`);
  const upload = uploadOf(service, call);
  const number = integer(call, 'partNumber', 0, Number.MAX_SAFE_INTEGER);
  if (number >= 1 && number <= PART_NUMBER_MAX) return { number, upload };
  throw invalid('partNumber', `Part number must be an integer between 1 and ${PART_NUMBER_MAX}, inclusive`);
}

/** Adds a stored body to an upload. It may have been completed or aborted meanwhile. Throws NoSuchUpload. */
export function keepPart(service: Service, call: Call, number: number, content: Content): Part {
  const { catalog, bodies } = service;
  const part = { number, modifiedMs: service.now(), ...content };
  const replaced = keeping(service, content.segment, () =>
    catalog.transaction(() => catalog.putPart(uploadOf(service, call).id, part)),
  );
  if (replaced !== undefined) bodies.remove([replaced.segment]);
  return part;
}

/** Throws NoSuchUpload. */
function uploadOf({ catalog }: Service, { bucket, key, query }: Call): Upload {
  return catalog.upload(bucket, key, query.get('uploadId') ?? '');
}

export async function completeMultipartUpload(service: Service, call: Call): Promise<S3Response> {
  const { bucket, key, headers } = call;
  const { catalog, bodies } = service;
  checkWrite(service, call);
  const upload = uploadOf(service, call);
  const condition = conditionOf(headers);
  const request = await receiveXml({ ...call, headers: bodyHeaders(call) }, 'CompleteMultipartUpload');
  const parts = chooseParts(upload, catalog.parts(upload.id), request.children);
  const completed = await completedVersion(service, call, upload, parts);
  let unused: readonly Part[] = [];
  const version = commit(service, condition, completed, () => {
    unused = closeUpload(service, call, parts);
  });
  bodies.remove(unused.map(({ segment }) => segment));
  await service.publish('ObjectCreated:CompleteMultipartUpload', version, call);
  const { etag, checksum } = completed;
  const children: XmlElement[] = [
    ['Location', `http://${headers.host ?? 'localhost'}/${bucket}/${encodeURIComponent(key)}`],
    ['Bucket', bucket],
    ['Key', key],
    ['ETag', `"${etag}"`],
  ];
  if (checksum) children.push(checksumElement(checksum), ['ChecksumType', checksum.type]);
  return xmlResponse(['CompleteMultipartUploadResult', children], versionHeader(service, version));
}

/** Drops the checksum headers: in a completion they belong to the object, not to the XML. */
function bodyHeaders({ headers }: Call): Call['headers'] {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith('x-amz-checksum-')));
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
    const message = 'The provided x-amz-mp-object-size does not match the object size.';
    throw new S3Error('InvalidRequest', { message });
  }
  const md5 = createHash('md5');
  for (const { etag } of parts) md5.update(etag, 'hex');
  return {
    bucket: upload.bucket,
    key: upload.key,
    deleteMarker: false,
    bytes,
    etag: `${md5.digest('hex')}-${parts.length}`,
    // S3: "For multipart uploads, the object creation date is the date of initiation of the multipart upload."
    modifiedMs: upload.initiatedMs,
    headers: upload.headers,
    checksum: await wholeChecksum(service, call, upload, parts),
    segments,
  };
}

/** Removes an upload and returns its parts that the object does not use. Throws InvalidPart. Call in a transaction. */
function closeUpload(service: Service, call: Call, parts: readonly Part[]): readonly Part[] {
  const { id } = uploadOf(service, call);
  const present = service.catalog.parts(id);
  const isIn = (some: readonly Part[], part: Part) => some.some(({ segment }) => segment.id === part.segment.id);
  // A part may have been uploaded again while the checksum was computed.
  if (!parts.every((part) => isIn(present, part))) throw new S3Error('InvalidPart');
  service.catalog.removeUpload(id);
  return present.filter((part) => !isIn(parts, part));
}

/** The parts that the client lists, in its order. Throws InvalidPartOrder, InvalidPart, EntityTooSmall, MalformedXML. */
function chooseParts(upload: Upload, present: readonly Part[], named: readonly XmlNode[]): Part[] {
  if (named.length === 0 || named.some(({ name }) => name !== 'Part')) throw new S3Error('MalformedXML');
  let previous = 0;
  const chosen = named.map((node) => {
    const text = childText(node, 'PartNumber') ?? '';
    const number = Number(text);
    const etag = childText(node, 'ETag');
    if (!/^\d{1,10}$/.test(text) || etag === undefined) throw new S3Error('MalformedXML');
    if (number <= previous) throw new S3Error('InvalidPartOrder');
    previous = number;
    const part = present.find((each) => each.number === number);
    if (part === undefined || part.etag !== unquoted(etag) || !checksumHolds(upload, part, node)) {
      throw new S3Error('InvalidPart', { details: { UploadId: upload.id, PartNumber: text, ETag: etag } });
    }
    return part;
  });
  const small = chosen.slice(0, -1).find(({ segment }) => segment.bytes < PART_BYTES_MIN);
  if (small === undefined) return chosen;
  const details = { ProposedSize: String(small.segment.bytes), PartNumber: String(small.number) };
  throw new S3Error('EntityTooSmall', { details });
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
  { bodies }: Service,
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
    for await (const chunk of bodies.read(segments, { start: 0, end })) hasher.update(chunk);
  }
  const digest = hasher.digest().toString('base64');
  const sent = headers[`x-amz-checksum-${algorithm}`];
  if (sent !== undefined && sent.split('-')[0] !== digest) throw new S3Error('BadDigest');
  return { algorithm, type, value: type === 'COMPOSITE' ? `${digest}-${parts.length}` : digest };
}

export const checksumElement = ({ algorithm, value }: Pick<Checksum, 'algorithm' | 'value'>): XmlElement => [
  elementName(algorithm),
  value,
];

function elementName(algorithm: ChecksumAlgorithm): string {
  return `Checksum${algorithm.toUpperCase()}`;
}

export function abortMultipartUpload(service: Service, call: Call): S3Response {
  const { catalog, bodies } = service;
  demand(service, call, 's3:AbortMultipartUpload');
  catalog.bucket(call.bucket);
  const parts = catalog.transaction(() => {
    const { id } = uploadOf(service, call);
    const parts = catalog.parts(id);
    catalog.removeUpload(id);
    return parts;
  });
  bodies.remove(parts.map(({ segment }) => segment));
  return { status: 204, headers: {}, body: EMPTY };
}

export function listMultipartUploads(service: Service, call: Call): S3Response {
  const { bucket, query } = call;
  demand(service, call, 's3:ListBucketMultipartUploads');
  service.catalog.bucket(bucket);
  const encode = encoder(call);
  const prefix = query.get('prefix') ?? '';
  const uploads = service.catalog.uploads(bucket).filter(({ key }) => key.startsWith(prefix));
  return xmlResponse([
    'ListMultipartUploadsResult',
    [
      ['Bucket', bucket],
      ['Prefix', encode(prefix)],
      query.has('encoding-type') ? ['EncodingType', 'url'] : undefined,
      ['MaxUploads', LISTED_MAX],
      ['IsTruncated', uploads.length > LISTED_MAX],
      ...uploads.slice(0, LISTED_MAX).map(({ key, id, initiatedMs }): XmlElement => {
        const children: XmlElement[] = [
          ['Key', encode(key)],
          ['UploadId', id],
          ['Initiated', isoSeconds(initiatedMs)],
        ];
        return ['Upload', children];
      }),
    ],
  ]);
}
