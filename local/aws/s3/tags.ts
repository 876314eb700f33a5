import { type Call, demand, EMPTY, type S3Response, type Service, xmlResponse } from './call.ts';
import type { Version } from './catalog.ts';
import { versionHeader } from './commit.ts';
import { S3Error } from './errors.ts';
import { findObject } from './find.ts';
import { receiveXml } from './incoming.ts';
import type { Headers } from './object-headers.ts';
import { childText, type XmlNode } from './xml.ts';

/**
 * A tag of a bucket or of an object version. Tags can change while the version stays as it is.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-tagging.html
 */
export interface Tag {
  readonly key: string;
  readonly value: string;
}

export type Tags = readonly Tag[];

const OBJECT_TAGS_MAX = 10;
const BUCKET_TAGS_MAX = 50;
/** S3 counts characters in UTF-16. */
const KEY_CHARACTERS_MAX = 128;
const VALUE_CHARACTERS_MAX = 256;
/** "letters, numbers, and spaces representable in UTF-8, and the following characters: + - = . _ : / @" */
const CHARACTERS = /^[\p{L}\p{N}\p{Z}+\-=._:/@]*$/u;

/** The tags in `x-amz-tagging`: a query string. Throws InvalidArgument, InvalidTag, BadRequest. */
export function headerTags(headers: Headers): Tags {
  const header = headers['x-amz-tagging'] ?? '';
  const tags = header
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => headerTag(pair, header));
  if (duplicate(tags) !== undefined) throw malformedHeader(header);
  return checkTags(tags, 'Object');
}

function headerTag(pair: string, header: string): Tag {
  const [key = '', value = '', ...more] = pair.replaceAll('+', ' ').split('=');
  if (more.length > 0) throw malformedHeader(header);
  try {
    return { key: decodeURIComponent(key), value: decodeURIComponent(value) };
  } catch {
    throw malformedHeader(header);
  }
}

function malformedHeader(header: string): S3Error {
  const message =
    "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.";
  return new S3Error('InvalidArgument', {
    message,
    details: { ArgumentName: 'x-amz-tagging', ArgumentValue: header },
  });
}

/** The tags in a `Tagging` document. Throws MalformedXML, InvalidTag, BadRequest. */
function documentTags({ children }: XmlNode, of: 'Object' | 'Bucket'): Tags {
  const [set] = children;
  if (children.length !== 1 || set?.name !== 'TagSet') throw new S3Error('MalformedXML');
  const tags = set.children.map((node) => {
    const key = childText(node, 'Key');
    const value = childText(node, 'Value');
    if (node.name !== 'Tag' || node.children.length !== 2 || key === undefined || value === undefined) {
      throw new S3Error('MalformedXML');
    }
    return { key, value };
  });
  const twice = duplicate(tags);
  if (twice !== undefined) {
    const message = 'Cannot provide multiple Tags with the same key';
    throw new S3Error('InvalidTag', { message, details: { TagKey: twice.key } });
  }
  return checkTags(tags, of);
}

/** The first tag whose key an earlier one has. */
function duplicate(tags: Tags): Tag | undefined {
  const seen = new Set<string>();
  return tags.find(({ key }) => {
    const isKnown = seen.has(key);
    seen.add(key);
    return isKnown;
  });
}

function checkTags(tags: Tags, of: 'Object' | 'Bucket'): Tags {
  const max = of === 'Object' ? OBJECT_TAGS_MAX : BUCKET_TAGS_MAX;
  if (tags.length > max) throw new S3Error('BadRequest', { message: `${of} tags cannot be greater than ${max}` });
  for (const { key, value } of tags) {
    if (key === '' || key.length > KEY_CHARACTERS_MAX || !CHARACTERS.test(key)) {
      throw new S3Error('InvalidTag', {
        message: 'The TagKey you have provided is invalid',
        details: { TagKey: key },
      });
    }
    if (key.toLowerCase().startsWith('aws:')) {
      throw new S3Error('InvalidTag', {
        message: 'Your TagKey cannot be prefixed with aws:',
        details: { TagKey: key },
      });
    }
    if (value.length > VALUE_CHARACTERS_MAX || !CHARACTERS.test(value)) {
      throw new S3Error('InvalidTag', {
        message: 'The TagValue you have provided is invalid',
        details: { TagKey: key, TagValue: value },
      });
    }
  }
  return tags;
}

/** `x-amz-tagging-count`, if the version has tags and the caller may read them. */
export function tagCountHeader(service: Service, call: Call, { tags }: Version): Record<string, string> {
  const mayRead = tags.length > 0 && service.allows(call, taggingAction(call, 'Get'), call);
  return mayRead ? { 'x-amz-tagging-count': String(tags.length) } : {};
}

/** Tags of a version have permissions of their own. */
function taggingAction({ query }: Call, verb: 'Get' | 'Put' | 'Delete'): string {
  return `s3:${verb}Object${query.has('versionId') ? 'Version' : ''}Tagging`;
}

/** Finds the version whose tags to read or change. Throws MethodNotAllowed if that is a delete marker. */
function findTagged(service: Service, call: Call): Version {
  const { bucket, key, query } = call;
  const latest = service.catalog.latest(bucket, key);
  const versionId = query.get('versionId') ?? (latest?.deleteMarker ? latest.versionId : undefined);
  return findObject(service, call, { bucket, key, versionId });
}

export function getObjectTagging(service: Service, call: Call): S3Response {
  demand(service, call, taggingAction(call, 'Get'));
  const version = findTagged(service, call);
  return taggingResponse(version.tags, versionHeader(service, version));
}

function taggingResponse(tags: Tags, headers: Record<string, string> = {}): S3Response {
  const set = tags.map(
    ({ key, value }) =>
      [
        'Tag',
        [
          ['Key', key],
          ['Value', value],
        ],
      ] as const,
  );
  return xmlResponse(['Tagging', [['TagSet', set]]], headers);
}

/** Replaces all tags of a version. */
export async function putObjectTagging(service: Service, call: Call): Promise<S3Response> {
  demand(service, call, taggingAction(call, 'Put'));
  findTagged(service, call);
  const tags = documentTags(await receiveXml(call, 'Tagging'), 'Object');
  return { status: 200, headers: setTags(service, call, tags), body: EMPTY };
}

export function deleteObjectTagging(service: Service, call: Call): S3Response {
  demand(service, call, taggingAction(call, 'Delete'));
  return { status: 204, headers: setTags(service, call, []), body: EMPTY };
}

function setTags(service: Service, call: Call, tags: Tags): Record<string, string> {
  const version = findTagged(service, call);
  service.catalog.setTags(version, tags);
  return versionHeader(service, version);
}

/** Throws NoSuchTagSet. */
export function getBucketTagging(service: Service, call: Call): S3Response {
  demand(service, call, 's3:GetBucketTagging');
  const { tags } = service.catalog.bucket(call.bucket);
  if (tags.length === 0) throw new S3Error('NoSuchTagSet', { details: { BucketName: call.bucket } });
  return taggingResponse(tags);
}

export async function putBucketTagging(service: Service, call: Call): Promise<S3Response> {
  demand(service, call, 's3:PutBucketTagging');
  service.catalog.bucket(call.bucket);
  return setBucketTags(service, call, documentTags(await receiveXml(call, 'Tagging'), 'Bucket'));
}

export function deleteBucketTagging(service: Service, call: Call): S3Response {
  demand(service, call, 's3:PutBucketTagging');
  return setBucketTags(service, call, []);
}

function setBucketTags({ catalog }: Service, { bucket }: Call, tags: Tags): S3Response {
  catalog.bucket(bucket);
  catalog.setBucketTags(bucket, tags);
  return { status: 204, headers: {}, body: EMPTY };
}
