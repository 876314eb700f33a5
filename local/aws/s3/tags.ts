import type { Tag } from './catalog.ts';
import { S3Error } from './errors.ts';
import { childText, type XmlElement, type XmlNode } from './xml.ts';

const TAGS_MAX = 10;
/** In UTF-16 code units, as S3 counts them. */
const KEY_LENGTH_MAX = 128;
const VALUE_LENGTH_MAX = 256;
/** "letters, spaces, and numbers representable in UTF-8, and the following characters: + - = . _ : / @" */
const CHARACTERS = /^[\p{L}\p{Z}\p{N}+\-=._:/@]*$/u;

/** The tags of `x-amz-tagging`, which has the form of a query. Throws InvalidTag, BadRequest, InvalidArgument. */
export function tagsInHeader(header = ''): readonly Tag[] {
  const tags = [...new URLSearchParams(header)];
  if (new Set(tags.map(([key]) => key)).size === tags.length) return checked(tags);
  const message =
    "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.";
  throw new S3Error('InvalidArgument', { message, details: { ArgumentName: 'x-amz-tagging', ArgumentValue: header } });
}

/** The tags of the element `Tagging`. Throws MalformedXML, InvalidTag, BadRequest. */
export function tagsInXml({ children: [set, ...others] }: XmlNode): readonly Tag[] {
  if (set?.name !== 'TagSet' || others.length > 0) throw new S3Error('MalformedXML');
  const tags = set.children.map((tag): Tag => {
    const [key, value] = [childText(tag, 'Key'), childText(tag, 'Value')];
    if (tag.name !== 'Tag' || key === undefined || value === undefined) throw new S3Error('MalformedXML');
    return [key, value];
  });
  if (new Set(tags.map(([key]) => key)).size === tags.length) return checked(tags);
  throw new S3Error('InvalidTag', { message: 'Cannot provide multiple Tags with the same key' });
}

export function tagsElement(tags: readonly Tag[]): XmlElement {
  const set = tags.map(([key, value]): XmlElement => {
    const children: XmlElement[] = [
      ['Key', key],
      ['Value', value],
    ];
    return ['Tag', children];
  });
  return ['Tagging', [['TagSet', set]]];
}

function checked(tags: readonly Tag[]): readonly Tag[] {
  if (tags.length > TAGS_MAX) {
    throw new S3Error('BadRequest', { message: `Object tags cannot be greater than ${TAGS_MAX}` });
  }
  for (const [key, value] of tags) {
    if (key === '' || key.length > KEY_LENGTH_MAX || !CHARACTERS.test(key)) {
      throw new S3Error('InvalidTag', { message: 'The TagKey you have provided is invalid', details: { TagKey: key } });
    }
    if (/^aws:/i.test(key)) {
      const message = 'System tags cannot be added/updated by requester';
      throw new S3Error('InvalidTag', { message, details: { TagKey: key } });
    }
    if (value.length > VALUE_LENGTH_MAX || !CHARACTERS.test(value)) {
      const message = 'The TagValue you have provided is invalid';
      throw new S3Error('InvalidTag', { message, details: { TagKey: key, TagValue: value } });
    }
  }
  return tags;
}
