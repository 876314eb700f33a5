import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { S3Error } from './errors.ts';

/** An element: its name, and its text or children. `undefined` children are omitted. */
export type XmlElement = readonly [name: string, content: XmlContent];
type XmlContent = string | number | boolean | readonly (XmlElement | undefined)[];

const NAMESPACE = 'http://s3.amazonaws.com/doc/2006-03-01/';
/** Maximum number of elements within each other. S3's deepest request has six. */
const DEPTH_MAX = 16;

/**
 * Escapes text for XML. Control characters become numeric references, as in S3, although XML 1.0 forbids most of them.
 * A client that lists such keys uses `encoding-type=url`.
 */
function escapeXml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replace(/[\p{Cc}\ufffe\uffff]/gu, (character) => `&#x${character.charCodeAt(0).toString(16)};`);
}

function render([name, content]: XmlElement, attributes = ''): string {
  const inner = Array.isArray(content)
    ? content.map((child: XmlElement | undefined) => (child === undefined ? '' : render(child))).join('')
    : escapeXml(String(content));
  return `<${name}${attributes}>${inner}</${name}>`;
}

/** Renders a document. Errors have no namespace, as in S3. */
export function xmlDocument(root: XmlElement): Buffer {
  const attributes = root[0] === 'Error' ? '' : ` xmlns="${NAMESPACE}"`;
  return Buffer.from(`<?xml version="1.0" encoding="UTF-8"?>\n${render(root, attributes)}`);
}

/** A parsed element. Prefixes and attributes are dropped, because no request of S3 needs them. */
export interface XmlNode {
  readonly name: string;
  readonly children: readonly XmlNode[];
  /** The text directly in the element, with its white space. Numbers stay text. */
  readonly text: string;
}

/** What the parser returns: one property, which is the text or the name of an element. */
type Parsed = Readonly<Record<string, string | readonly Parsed[]>>;

const TEXT = '#text'; // Not the name of an element: `#` is not allowed there.

const parser = new XMLParser({
  preserveOrder: true,
  textNodeName: TEXT,
  removeNSPrefix: true,
  parseTagValue: false,
  trimValues: false,
  ignoreDeclaration: true,
  maxNestedTags: DEPTH_MAX,
  // Also decodes references such as `&#34;`, with which some clients quote an ETag.
  htmlEntities: true,
});

/** Parses a document. Its root must be `rootName`. Document types are refused. Throws MalformedXML. */
export function parseXml(document: string, rootName: string): XmlNode {
  try {
    // The parser passes over some errors that the validator finds.
    if (document.includes('<!') || XMLValidator.validate(document) !== true) throw new S3Error('MalformedXML');
    const [root] = nodeOf('document', parser.parse(document) as readonly Parsed[]).children;
    if (root?.name === rootName) return root;
  } catch (cause) {
    throw new S3Error('MalformedXML', { cause });
  }
  throw new S3Error('MalformedXML');
}

function nodeOf(name: string, content: readonly Parsed[]): XmlNode {
  const children: XmlNode[] = [];
  let text = '';
  for (const [inner, value] of content.flatMap((each) => Object.entries(each))) {
    if (typeof value === 'string') text += value;
    else children.push(nodeOf(inner, value));
  }
  return { name, children, text };
}

/** The text of the first child with that name. */
export function childText(node: XmlNode, name: string): string | undefined {
  return node.children.find((child) => child.name === name)?.text;
}
