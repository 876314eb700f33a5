/** A token shorter than this is a mistake. Redacting it would mangle the text. */
const TOKEN_CHARS_MIN = 8;

/** Stands in a text for the token that was there. */
export const REDACTED = '[token]';

/** The pattern of the token in use. Building it for every response would cost more than the rest of a poll. */
let latestPattern: { readonly secret: string; readonly pattern: RegExp } | undefined;

/** Replaces the token wherever the service has quoted it back, as it is or encoded. */
export function redact(text: string, secret: string | undefined): string {
  if (secret === undefined || secret.length < TOKEN_CHARS_MIN) return text;
  if (latestPattern?.secret !== secret) latestPattern = { secret, pattern: patternOf(secret) };
  return text.replace(latestPattern.pattern, REDACTED);
}

/**
 * Tells whether a text holds the token, or held it until it was redacted. An id, an address or a media type is of no
 * use once it is redacted.
 */
export const holdsToken = (text: string, secret?: string): boolean => redact(text, secret).includes(REDACTED);

/**
 * Matches every spelling of a secret that JSON, a URL, HTML or base64 allows, in either case: a host name is made lower
 * case, and a media type may be.
 */
function patternOf(secret: string): RegExp {
  const plain = Array.from(secret, spellingsOf).join('');
  const encoded = [0, 1, 2].map((offset) => base64At(offset, secret).replace(/[+/]/g, base64SpellingsOf));
  return new RegExp([plain, ...encoded].join('|'), 'gi');
}

/** A character as it is, and escaped for JSON, a URL or HTML. */
function spellingsOf(character: string): string {
  const code = character.charCodeAt(0);
  const hex = code.toString(16).padStart(2, '0');
  return `(?:\\\\?${RegExp.escape(character)}|(?:\\\\u00|%)${hex}|&#(?:${code}|x${hex});)`;
}

const base64SpellingsOf = (character: string): string =>
  `(?:${spellingsOf(character)}|${character === '+' ? '-' : '_'})`;

/**
 * The base64 of a secret that stands in a longer text.
 * @param offset number of bytes before the secret, modulo 3: 1 after `Bearer `. It decides how the secret is encoded.
 * The first and the last character are left out if they also hold bits of the text around the secret.
 */
function base64At(offset: number, secret: string): string {
  const bytes = offset + secret.length;
  const base64 = Buffer.from(secret.padStart(bytes)).toString('base64');
  return base64.slice(Math.ceil((offset * 8) / 6), Math.floor((bytes * 8) / 6));
}
