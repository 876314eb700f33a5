import { S3Error } from './errors.ts';

/** An element: its name, and its text or children. `undefined` children are omitted. */
export type XmlElement = readonly [name: string, content: XmlContent];
type XmlContent = string | number | boolean | readonly (XmlElement | undefined)[];

const NAMESPACE = 'http://s3.amazonaws.com/doc/2006-03-01/';
const DEPTH_MAX = 16;

/**
 * Escapes text for XML. Control characters become numeric references, as in S3, although XML 1.0 forbids most of them.
 * A client that lists such keys uses `encoding-type=url`.
 */
export function escapeXml(text: string): string {
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
  readonly text: string;
}

const TOKEN =
  /<\?[^>]*\?>|<!--[\s\S]*?-->|<\/(?:[\w.-]+:)?([\w.-]+)\s*>|<(?:[\w.-]+:)?([\w.-]+)(?:\s+[\w:.-]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*\s*(\/?)>|([^<]+)/gy;

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

function unescapeXml(text: string): string {
  return text.replace(/&([^;&]{0,10});?/g, (whole, name: string) => {
    const named = ENTITIES[name];
    if (named !== undefined) return named;
    const number = /^#x[0-9a-f]+$/i.test(name)
      ? Number.parseInt(name.slice(2), 16)
      : Number.parseInt(name.slice(1), 10);
    if (!name.startsWith('#') || !whole.endsWith(';') || !(number <= 0x10ffff)) throw new S3Error('MalformedXML');
    return String.fromCodePoint(number);
  });
}

/** Parses a document. Its root must be `rootName`. Throws MalformedXML. */
export function parseXml(document: string, rootName: string): XmlNode {
  interface Open {
    name: string;
    children: XmlNode[];
    text: string;
  }
  const top: Open = { name: '', children: [], text: '' };
  const open: Open[] = [top];
  TOKEN.lastIndex = 0;
  let position = 0;
  for (let match = TOKEN.exec(document); match !== null; match = TOKEN.exec(document)) {
    position = TOKEN.lastIndex;
    const [, closing, opening, selfClosing, text] = match;
    const current = open.at(-1) ?? top;
    if (text !== undefined) current.text += unescapeXml(text);
    else if (closing !== undefined) {
      if (open.length === 1 || current.name !== closing) throw new S3Error('MalformedXML');
      open.pop();
    } else if (opening !== undefined) {
      const element: Open = { name: opening, children: [], text: '' };
      current.children.push(element);
      if (selfClosing === '') open.push(element);
      if (open.length > DEPTH_MAX) throw new S3Error('MalformedXML');
    }
  }
  const root = top.children[0];
  const whole = position === document.length && open.length === 1 && top.children.length === 1;
  if (!whole || root?.name !== rootName || top.text.trim() !== '') throw new S3Error('MalformedXML');
  return root;
}

/** The text of the first child with that name. */
export function childText(node: XmlNode, name: string): string | undefined {
  return node.children.find((child) => child.name === name)?.text;
}
