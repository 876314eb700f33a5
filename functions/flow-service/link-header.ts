/**
 * The first address in a `Link` header (RFC 8288, section 3) whose relation is `next`. Parsing stops where the syntax is
 * broken. It takes linear time, whatever the service sends.
 */
export function nextLink(header = ''): string | undefined {
  let at = 0;
  for (;;) {
    const open = header.indexOf('<', at);
    const close = open === -1 ? -1 : header.indexOf('>', open);
    if (close === -1) return undefined;
    const [relations, end] = relationsFrom(header, close + 1);
    if (relations.includes('next')) return header.slice(open + 1, close);
    at = end;
  }
}

/** The relations among the parameters that begin at `from`, and the place where the next link may begin. */
function relationsFrom(header: string, from: number): readonly [relations: readonly string[], end: number] {
  let relations: readonly string[] | undefined;
  let at = from;
  while (at < header.length && header[at] !== ',') {
    const end = parameterEnd(header, at);
    const [name = '', value = ''] = header.slice(at, end).split(/=(.*)/s);
    // Only the first `rel` counts (section 3.3).
    if (name.trim().toLowerCase() === 'rel') relations ??= wordsOf(value);
    at = header[end] === ';' ? end + 1 : end;
  }
  return [relations ?? [], at + 1];
}

/** The end of the parameter that begins at `from`: a semicolon or comma outside of quotes. */
function parameterEnd(header: string, from: number): number {
  let isQuoted = false;
  let at = from;
  for (; at < header.length; at += 1) {
    const character = header[at];
    if (isQuoted && character === '\\') at += 1;
    else if (character === '"') isQuoted = !isQuoted;
    else if (!isQuoted && (character === ';' || character === ',')) break;
  }
  return Math.min(at, header.length);
}

const wordsOf = (value: string): readonly string[] => {
  const text = value.trim();
  const inner = text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
  return inner.toLowerCase().split(/\s+/).filter(Boolean);
};
