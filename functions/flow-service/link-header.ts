/** An address, and its parameters up to the comma before the next one. No comma in quotes ends them, also in open ones. */
const LINK = /<([^<>]*)>((?:[^",]|"(?:[^"\\]|\\.)*(?:"|$))*)/gs;

/** A parameter: its name, and its value with or without quotes. */
const PARAMETER = /(?:^|;)\s*([^\s=;]+)\s*=\s*("(?:[^"\\]|\\.)*(?:"|$)|[^;]*)/gs;

/**
 * The first address in a `Link` header (RFC 8288, section 3) whose relation is `next`. It takes linear time, whatever the
 * service sends: no pattern can match the same character in two ways.
 */
export function nextLink(header = ''): string | undefined {
  for (const [, address, parameters = ''] of header.matchAll(LINK)) {
    // Only the first `rel` counts (section 3.3).
    const [, , rel = ''] = parameters.matchAll(PARAMETER).find(([, name]) => name?.toLowerCase() === 'rel') ?? [];
    const relations = rel
      .replace(/^"(.*)"$/s, '$1')
      .toLowerCase()
      .split(/\s+/);
    if (relations.includes('next')) return address;
  }
  return undefined;
}
