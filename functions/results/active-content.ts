/**
 * Media types of active content: a browser that opens it from the bucket's address runs its scripts there. These are
 * HTML, everything in XML (SVG and XSLT among it), scripts, archived web pages, and the types for which a browser
 * guesses another one. (WHATWG MIME Sniffing, "Determining the computed MIME type".)
 *
 * A PDF is not among them: browsers show it in a viewer of its own, whose scripts cannot reach the bucket's address.
 */
const ACTIVE_CONTENT: readonly RegExp[] = [
  /^text\/html$/,
  /[/+-]xml$/,
  /^text\/xml-|^application\/xml-/,
  /^text\/xsl$|^application\/xslt/,
  /xhtml|svg/,
  /(?:java|ecma|j|live|vb)script/,
  /^multipart\/|^message\/|mhtml|mimearchive/,
  /shockwave-flash|x-silverlight|^application\/hta$/,
  /^(?:application|unknown)\/unknown$|^\*\//,
];

/** Tells whether a browser must download a media type instead of opening it. */
export function isActiveContent(mediaType: string): boolean {
  const essence = (mediaType.split(';')[0] ?? '').trim().toLowerCase();
  return ACTIVE_CONTENT.some((pattern) => pattern.test(essence));
}
