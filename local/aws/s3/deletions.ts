import { type Call, demand, EMPTY, notImplemented, type S3Response, type Service, xmlResponse } from './call.ts';
import type { NewVersion } from './catalog.ts';
import { S3Error } from './errors.ts';
import { receiveXml } from './incoming.ts';
import { check, conditionOf, findVersion } from './objects.ts';
import { childText, type XmlElement, type XmlNode } from './xml.ts';

/** Maximum number of objects of one DeleteObjects. */
const OBJECTS_MAX = 1000;

/** Removes a version permanently. Without a version id, a bucket with versioning gets a delete marker instead. */
export async function deleteObject(service: Service, call: Call): Promise<S3Response> {
  const { catalog, bodies } = service;
  const { bucket, key, query, headers } = call;
  const versionId = query.get('versionId');
  const { versioning } = catalog.bucket(bucket);
  demand(service, call, versionId === undefined ? 's3:DeleteObject' : 's3:DeleteObjectVersion');
  if (headers['if-match'] !== undefined) demand(service, call, 's3:GetObject');
  const condition = conditionOf(headers);
  const { added, removed, sequence } = catalog.transaction(() => {
    const latest = catalog.latest(bucket, key);
    check(service, condition, latest);
    if (versionId === undefined && versioning !== undefined) {
      const { added, replaced } = catalog.addVersion(deleteMarker(bucket, key, service.now()));
      return { added, removed: replaced, sequence: added.sequence };
    }
    const removed = versionId === undefined ? latest : findVersion(service, call, versionId);
    if (removed !== undefined) catalog.removeVersion(removed);
    return { added: undefined, removed, sequence: catalog.nextSequence() };
  });
  if (removed !== undefined) bodies.remove(removed.segments);
  if (added !== undefined) await service.publish('ObjectRemoved:DeleteMarkerCreated', added, call);
  else if (removed !== undefined) await service.publish('ObjectRemoved:Delete', removed, call, sequence);
  const named = added?.versionId ?? versionId;
  const answer = {
    ...(named === undefined ? {} : { 'x-amz-version-id': named }),
    ...((added ?? removed)?.deleteMarker ? { 'x-amz-delete-marker': 'true' } : {}),
  };
  return { status: 204, headers: answer, body: EMPTY };
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
  };
}

/** Each object has an outcome of its own, as if it had been deleted by a request of its own. */
export async function deleteObjects(service: Service, call: Call): Promise<S3Response> {
  service.catalog.bucket(call.bucket);
  requireChecksum(call);
  const { children } = await receiveXml(call, 'Delete');
  const objects = children.filter(({ name }) => name === 'Object');
  const isQuiet = children.some(({ name, text }) => name === 'Quiet' && text.trim().toLowerCase() === 'true');
  if (objects.length === 0 || objects.length > OBJECTS_MAX) throw new S3Error('MalformedXML');
  const deletions = objects.map((object) => deletionOf(call, object));
  const outcomes: (XmlElement | undefined)[] = [];
  for (const deletion of deletions) {
    const versionId = deletion.query.get('versionId');
    const named: (XmlElement | undefined)[] = [
      ['Key', deletion.key],
      versionId === undefined ? undefined : ['VersionId', versionId],
    ];
    try {
      const { headers } = await deleteObject(service, deletion);
      if (!isQuiet) outcomes.push(['Deleted', [...named, ...deletedMarker(headers)]]);
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      outcomes.push(['Error', [...named, ['Code', error.code], ['Message', error.message]]]);
    }
  }
  return xmlResponse(['DeleteResult', outcomes]);
}

/** S3 demands a checksum of the list: a damaged one would delete other objects. */
function requireChecksum({ headers }: Call): void {
  const names = [...Object.keys(headers), headers['x-amz-trailer'] ?? ''];
  const hasOne = names.some((name) => name === 'content-md5' || name.trim().startsWith('x-amz-checksum-'));
  if (hasOne) return;
  const message = 'Missing required header for this request: Content-MD5';
  throw new S3Error('InvalidRequest', { message });
}

/** The request that would delete one object of the list. */
function deletionOf(call: Call, object: XmlNode): Call {
  const key = childText(object, 'Key') ?? '';
  if (key === '') throw new S3Error('MalformedXML');
  const other = object.children.find(({ name }) => !['Key', 'VersionId', 'ETag'].includes(name));
  if (other !== undefined) throw notImplemented(`${other.name} of a deletion`);
  const [versionId, etag] = [childText(object, 'VersionId'), childText(object, 'ETag')];
  return {
    ...call,
    key,
    query: new Map(versionId === undefined ? [] : [['versionId', versionId]]),
    headers: etag === undefined ? {} : { 'if-match': etag },
  };
}

function deletedMarker(headers: S3Response['headers']): readonly XmlElement[] {
  if (headers['x-amz-delete-marker'] === undefined) return [];
  return [
    ['DeleteMarker', true],
    ['DeleteMarkerVersionId', headers['x-amz-version-id'] ?? ''],
  ];
}
