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
  ignorePiTags: true,
  maxNestedTags: DEPTH_MAX,
  // The parser's own decoder leaves an unknown entity as it is, and no numeric reference is decoded.
  entityDecoder: {
    decode: unescapeXml,
    setExternalEntities() {},
    addInputEntities() {},
    setXmlVersion() {},
    reset() {},
  },
});

const ENTITIES: ReadonlyMap<string, string> = new Map([
  ['amp', '&'],
  ['lt', '<'],
  ['gt', '>'],
  ['quot', '"'],
  ['apos', "'"],
]);

/** Decodes the five entities of XML and references to characters. Throws MalformedXML at every other entity. */
function unescapeXml(text: string): string {
  return text.replace(/&([^;&]{0,10});?/g, (whole, name: string) => {
    const [, hexadecimal, decimal] = /^#(?:x([0-9a-f]+)|(\d+))$/i.exec(name) ?? [];
    const code = hexadecimal === undefined ? Number(decimal) : Number.parseInt(hexadecimal, 16);
    const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
    const decoded = isCharacter ? String.fromCodePoint(code) : ENTITIES.get(name);
    if (decoded === undefined || !whole.endsWith(';')) throw new S3Error('MalformedXML');
    return decoded;
  });
}

/** Refuses document types, which could define entities, and everything else in `<!` that is no comment or CDATA. */
function refuseDeclarations(document: string): void {
  for (let start = document.indexOf('<!'); start >= 0; ) {
    const isComment = document.startsWith('<!--', start);
    if (!isComment && !document.startsWith('<![CDATA[', start)) throw new S3Error('MalformedXML');
    const end = document.indexOf(isComment ? '-->' : ']]>', start + 4);
    if (end < 0) throw new S3Error('MalformedXML');
    start = document.indexOf('<!', end);
  }
}

/** Parses a document. Its root must be `rootName`. Throws MalformedXML. */
export function parseXml(document: string, rootName: string): XmlNode {
  refuseDeclarations(document);
  const { children, text } = parseDocument(document);
  const [root] = children;
  if (root?.name !== rootName || children.length > 1 || text.trim() !== '') throw new S3Error('MalformedXML');
  return root;
}

/** The document as a node that holds the root. */
function parseDocument(document: string): XmlNode {
  try {
    // The parser passes over some errors that the validator finds, and the other way round.
    if (XMLValidator.validate(document) !== true) throw new S3Error('MalformedXML');
    // The parser drops text beside the root. Within another element it keeps the text, and the caller can refuse it.
    const [whole] = parser.parse(`<document>${document}</document>`) as readonly Parsed[];
    return nodeOf('document', whole?.document as readonly Parsed[]);
  } catch (cause) {
    throw cause instanceof S3Error ? cause : new S3Error('MalformedXML', { cause });
  }
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

/** All children with that name. */
export function childrenNamed(node: XmlNode, name: string): readonly XmlNode[] {
  return node.children.filter((child) => child.name === name);
}

/** The text of the first child with that name. */
export function childText(node: XmlNode, name: string): string | undefined {
  return node.children.find((child) => child.name === name)?.text;
}
