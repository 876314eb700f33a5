import { type Call, demand, type Service } from './call.ts';
import type { Version } from './catalog.ts';
import { versionHeader } from './commit.ts';
import { S3Error } from './errors.ts';

/** Names a version. Without a version id it is the latest. */
export interface ObjectRef {
  readonly bucket: string;
  readonly key: string;
  readonly versionId: string | undefined;
}

/** Finds the version to read or copy. Throws NoSuchKey, NoSuchVersion, MethodNotAllowed. */
export function findObject(service: Service, call: Call, ref: ObjectRef): Version {
  const { catalog } = service;
  const { bucket, key, versionId } = ref;
  catalog.bucket(bucket);
  const version =
    versionId === undefined ? catalog.latest(bucket, key) : findVersion(service, { bucket, key, versionId });
  // A caller that must not list the bucket must not learn that a key is absent, or one of its versions.
  const isHidden = versionId === undefined ? version?.deleteMarker !== false : version === undefined;
  if (isHidden) demand(service, call, 's3:ListBucket', { bucket });
  if (version === undefined) {
    if (versionId === undefined) throw new S3Error('NoSuchKey', { details: { Key: key } });
    throw new S3Error('NoSuchVersion', { details: { Key: key, VersionId: versionId } });
  }
  if (version.deleteMarker) {
    const headers = { 'x-amz-delete-marker': 'true', ...versionHeader(service, version) };
    if (versionId === undefined) throw new S3Error('NoSuchKey', { details: { Key: key }, headers });
    throw new S3Error('MethodNotAllowed', { headers: { ...headers, allow: 'DELETE', ...modified(version) } });
  }
  return version;
}

/** True if S3 could have issued the id. */
export function isVersionId(id: string): boolean {
  return id === 'null' || /^[\w.]{32}$/.test(id);
}

/** Throws InvalidArgument. */
export function findVersion({ catalog }: Service, ref: ObjectRef & { versionId: string }): Version | undefined {
  const { bucket, key, versionId } = ref;
  if (!isVersionId(versionId)) {
    const message = versionId === '' ? 'Version id cannot be the empty string' : 'Invalid version id specified';
    throw new S3Error('InvalidArgument', { message, details: { ArgumentName: 'versionId', ArgumentValue: versionId } });
  }
  return catalog.version(bucket, key, versionId);
}

export function modified({ modifiedMs }: Version): Record<string, string> {
  return { 'last-modified': new Date(modifiedMs).toUTCString() };
}
