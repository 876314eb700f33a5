/**
 * Characters that a terminal obeys instead of showing: they clear the screen, move the cursor, begin a line, or reverse
 * the order of what follows. These are control characters (C0, DEL and C1), bidirectional marks, embeddings, overrides
 * and isolates, and the separators of lines and paragraphs.
 */
const OBEYED = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu;

const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/**
 * Returns one line of text that is safe on a terminal: what the terminal would obey is shown as an escape such as
 * `\u001b`. File names and the answers of a service may hold anything.
 */
export const printable = (text: string): string =>
  text.replace(
    OBEYED,
    (character) => SHORT[character] ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
