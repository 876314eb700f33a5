/** A token shorter than this is a mistake. Redacting it would mangle the text. */
const TOKEN_CHARS_MIN = 8;

/** The pattern of the token in use. Building it for every response would cost an eighth of a poll's CPU time. */
let latestPattern: { readonly secret: string; readonly pattern: RegExp } | undefined;

/** Replaces the token wherever the service has quoted it back. */
export function redact(text: string, secret: string | undefined): string {
  if (secret === undefined || secret.length < TOKEN_CHARS_MIN) return text;
  if (latestPattern?.secret !== secret) latestPattern = { secret, pattern: patternOf(secret) };
  return text.replace(latestPattern.pattern, '[token]');
}

/** Matches every spelling of a secret that JSON or a URL allows. */
function patternOf(secret: string): RegExp {
  const spellings = Array.from(secret, (character) => {
    const digits = character.charCodeAt(0).toString(16).padStart(2, '0');
    const hex = digits.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
    return `(?:${RegExp.escape(character)}|\\\\${RegExp.escape(character)}|\\\\u00${hex}|%${hex})`;
  });
  return new RegExp(spellings.join(''), 'g');
}
