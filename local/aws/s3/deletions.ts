import { type Call, demand, EMPTY, type S3Response, type Service, xmlResponse } from './call.ts';
import type { NewVersion } from './catalog.ts';
import { checkConflict, checkTarget } from './commit.ts';
import { checkWrite, deleteCondition } from './conditions.ts';
import { S3Error } from './errors.ts';
import { findVersion } from './find.ts';
import { receiveXml, XML_LIST_BYTES_MAX } from './incoming.ts';
import { childrenNamed, childText, type XmlElement } from './xml.ts';

/** "A request can contain a list of up to 1,000 keys to delete." */
const DELETE_KEYS_MAX = 1000;

interface Deletion {
  readonly key: string;
  readonly versionId: string | undefined;
  /** The ETag that the object must have, or `*` for any. */
  readonly etag: string | undefined;
}

export async function deleteObject(service: Service, call: Call): Promise<S3Response> {
  const { key, query, headers } = call;
  checkTarget(service, call);
  const versionId = query.get('versionId');
  const etag = headers['if-match'];
  const deletion = { key, versionId, etag };
  demandDeletion(service, call, deletion);
  const deleted = await remove(service, call, deletion);
  return {
    status: 204,
    headers: {
      ...(deleted.versionId === undefined ? {} : { 'x-amz-version-id': deleted.versionId }),
      ...(deleted.deleteMarker ? { 'x-amz-delete-marker': 'true' } : {}),
    },
    body: EMPTY,
  };
}

function demandDeletion(service: Service, call: Call, { key, versionId, etag }: Deletion): void {
  const target = { bucket: call.bucket, key };
  demand(service, call, versionId === undefined ? 's3:DeleteObject' : 's3:DeleteObjectVersion', target);
  if (etag !== undefined && etag !== '*') demand(service, call, 's3:GetObject', target);
}

interface Deleted {
  readonly versionId: string | undefined;
  readonly deleteMarker: boolean;
}

/** Removes a version permanently. Without a version id, a bucket with versioning gets a delete marker instead. */
async function remove(service: Service, call: Call, { key, versionId, etag }: Deletion): Promise<Deleted> {
  const { database, catalog, bodies } = service;
  const { bucket } = call;
  const condition = deleteCondition(etag);
  const { versioning } = catalog.bucket(bucket);
  const { added, removed, sequence } = database.transaction(() => {
    checkConflict(service, condition);
    const latest = catalog.latest(bucket, key);
    checkWrite(condition, latest);
    if (versionId === undefined && versioning !== undefined) {
      const { added, replaced } = catalog.addVersion(deleteMarker(bucket, key, service.now()));
      return { added, removed: replaced, sequence: added.sequence };
    }
    const removed = versionId === undefined ? latest : findVersion(service, { bucket, key, versionId });
    if (removed !== undefined) catalog.removeVersion(removed);
    return { added: undefined, removed, sequence: database.nextSequence() };
  });
  if (removed !== undefined) bodies.remove(removed.segments);
  if (added !== undefined) await service.publish('ObjectRemoved:DeleteMarkerCreated', added, call);
  else if (removed !== undefined) await service.publish('ObjectRemoved:Delete', removed, call, sequence);
  return { versionId: added?.versionId ?? versionId, deleteMarker: (added ?? removed)?.deleteMarker ?? false };
}

function deleteMarker(bucket: string, key: string, modifiedMs: number): NewVersion {
  const headers = { system: {}, user: {} };
  return {
    bucket,
    key,
    deleteMarker: true,
    bytes: 0,
    etag: '',
    modifiedMs,
    headers,
    checksum: undefined,
    segments: [],
    tags: [],
  };
}

/** S3 refuses a list of keys that may have been altered on its way. Throws InvalidRequest. */
function demandDigest({ headers }: Call): void {
  const isDigest = (name: string) => name === 'content-md5' || name.startsWith('x-amz-checksum-');
  const trailers = (headers['x-amz-trailer'] ?? '').toLowerCase().split(',');
  if ([...Object.keys(headers), ...trailers.map((name) => name.trim())].some(isDigest)) return;
  const message = 'Missing required header for this request: Content-MD5';
  throw new S3Error('InvalidRequest', { message });
}

export async function deleteObjects(service: Service, call: Call): Promise<S3Response> {
  service.catalog.bucket(call.bucket);
  demandDigest(call);
  const request = await receiveXml(call, 'Delete', XML_LIST_BYTES_MAX);
  const quiet = childText(request, 'Quiet') === 'true';
  const objects = childrenNamed(request, 'Object');
  if (objects.length === 0 || objects.length > DELETE_KEYS_MAX) throw new S3Error('MalformedXML');

  const answers: XmlElement[] = [];
  for (const object of objects) {
    const key = childText(object, 'Key');
    const versionId = childText(object, 'VersionId');
    if (key === undefined || key === '') throw new S3Error('MalformedXML');
    const named: XmlElement[] = [['Key', key], ...(versionId === undefined ? [] : [['VersionId', versionId] as const])];
    try {
      const etag = childText(object, 'ETag');
      const deletion = { key, versionId, etag };
      demandDeletion(service, call, deletion);
      const deleted = await remove(service, call, deletion);
      if (quiet) continue;
      const marker: XmlElement[] = [];
      if (deleted.deleteMarker) {
        marker.push(['DeleteMarker', true], ['DeleteMarkerVersionId', deleted.versionId ?? 'null']);
      }
      answers.push(['Deleted', [...named, ...marker]]);
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      answers.push(['Error', [...named, ['Code', error.code], ['Message', error.message]]]);
    }
  }
  return xmlResponse(['DeleteResult', answers]);
}
