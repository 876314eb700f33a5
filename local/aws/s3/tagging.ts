import { type Call, demand, EMPTY, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Tag, Version } from './catalog.ts';
import { receiveXml } from './incoming.ts';
import { findObject, versionHeader } from './objects.ts';
import { tagsElement, tagsInXml } from './tags.ts';

export function getObjectTagging(service: Service, call: Call): S3Response {
  const version = taggedVersion(service, call, 'Get');
  return xmlResponse(tagsElement(version.headers.tags ?? []), versionHeader(service, version));
}

export async function putObjectTagging(service: Service, call: Call): Promise<S3Response> {
  taggedVersion(service, call, 'Put'); // Refuses before the body is read.
  const tags = tagsInXml(await receiveXml(call, 'Tagging'));
  return { status: 200, headers: setTags(service, taggedVersion(service, call, 'Put'), tags), body: EMPTY };
}

export function deleteObjectTagging(service: Service, call: Call): S3Response {
  return { status: 204, headers: setTags(service, taggedVersion(service, call, 'Delete'), []), body: EMPTY };
}

/** Tags belong to one version. It stays the version that it is, and nobody is notified. */
function setTags(service: Service, version: Version, tags: readonly Tag[]): Record<string, string> {
  service.catalog.updateVersion({ ...version, headers: { ...version.headers, tags } });
  return versionHeader(service, version);
}

function taggedVersion(service: Service, call: Call, verb: 'Get' | 'Put' | 'Delete'): Version {
  demand(service, call, `s3:${verb}Object${call.query.has('versionId') ? 'Version' : ''}Tagging`);
  return findObject(service, call);
}
