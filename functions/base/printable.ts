/**
 * Characters that a terminal obeys instead of showing: they clear the screen, move the cursor, begin a line, or reverse
 * the order of what follows. These are control characters (C0, DEL and C1), bidirectional marks, embeddings, overrides
 * and isolates, and the separators of lines and paragraphs. Halves of a surrogate pair have no bytes in UTF-8.
 */
const OBEYED = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}\p{Cs}]/gu;

const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

const escaped = (character: string): string =>
  SHORT[character] ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;

/**
 * Returns one line of text that is safe on a terminal: what the terminal would obey is shown as an escape such as
 * `\u001b`. File names and the answers of a service may hold anything. A line of JSON keeps its meaning.
 */
export const printable = (text: string): string => text.replace(OBEYED, escaped);

/** Does the same for a text of several lines, and keeps its line breaks. */
export const printableLines = (text: string): string =>
  text.replace(OBEYED, (each) => (each === '\n' ? each : escaped(each)));

/** JSON in several lines. It means the same as without the escapes. */
export const printableJson = (value: unknown): string => printableLines(JSON.stringify(value, undefined, 2));

export const isPrintable = (text: string): boolean => text.search(OBEYED) === -1;

/**
 * Returns a text as one word of a POSIX shell such as bash, zsh or dash. The word has quotes unless it is harmless
 * without them. One that begins with `=` needs them, because zsh replaces it.
 *
 * Quotes do not help with a control character: a terminal obeys it while a line is typed or pasted, before the shell
 * reads the quotes. `$'\n'` would help, but dash does not know it. So a command names such a file in another way.
 * @throws {Error} the text is not {@link isPrintable}.
 */
export function shellWord(text: string): string {
  if (!isPrintable(text)) throw new Error(`No word of a shell can be made of ${JSON.stringify(text)}`);
  return /^(?!=)[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
