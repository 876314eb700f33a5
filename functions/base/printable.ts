/** Longest quotation in a message, in characters, if nothing else is said. */
const QUOTE_CHARS_MAX = 80;

/** Nesting of a value that a quotation shows. */
const QUOTE_DEPTH_MAX = 32;

/** Stands for what is deeper. */
const TOO_DEEP = 'nested too deeply to be shown';

/** Issues that one message tells. The others are counted. */
export const ISSUES_TOLD_MAX = 10;

/** The secrets in a presigned address of S3. A service may quote the one that it got, in whatever spelling. */
const PRESIGNED = /(X-Amz-(?:Signature|Security-Token|Credential)(?:=|%3D|%253D|\\u003d))[^\s&"'<>\\]+/gi;

/**
 * A text of outside as it may be quoted, stored, sent or printed: well-formed, without the secrets of a presigned address,
 * and no longer than that. Every such text goes through here or through {@link quoted}. Cuts between code points, so that
 * no text ends in half a character.
 * @param end shows that the text was cut.
 */
export function shorten(text = 'nothing', charsMax = QUOTE_CHARS_MAX, end = '...'): string {
  // A code point has at most two units. The text may be far longer, and need not be read to its end.
  const read = text.slice(0, 2 * charsMax + 2);
  const safe = read.replace(PRESIGNED, '$1[secret]');
  const points = Array.from(safe);
  const isWhole = read.length === text.length && points.length <= charsMax;
  // Joined, and not sliced: V8 keeps a whole text in memory while a slice of it is in use.
  return (isWhole ? safe : `${points.slice(0, charsMax).join('')}${end}`).toWellFormed();
}

/**
 * The same for any value, as JSON. Only the part that is shown is made, so neither the size nor the nesting of the value
 * can fill the memory or overflow the stack.
 */
export function quoted(value: unknown, charsMax = QUOTE_CHARS_MAX, end = '...'): string {
  let json = '';
  const add = (each: unknown, depth: number): void => {
    if (json.length > 2 * charsMax) return;
    if (typeof each === 'string') json += JSON.stringify(each.slice(0, 2 * charsMax + 1));
    else if (typeof each !== 'object' || each === null) json += String(each);
    else if (depth === 0) json += TOO_DEEP;
    else if (Array.isArray(each)) addAll('[', each.values(), ']', (item) => add(item, depth - 1));
    else {
      addAll('{', ownNames(each), '}', (name) => {
        add(name, 0);
        json += ':';
        add((each as Record<string, unknown>)[name], depth - 1);
      });
    }
  };
  const addAll = <T>(open: string, items: Iterable<T>, close: string, one: (item: T) => void): void => {
    json += open;
    let isFirst = true;
    for (const item of items) {
      if (json.length > 2 * charsMax) return;
      if (!isFirst) json += ',';
      isFirst = false;
      one(item);
    }
    json += close;
  };
  add(value, QUOTE_DEPTH_MAX);
  return shorten(json, charsMax, end);
}

/** The same in ASCII, so that texts that look alike can be told apart. */
export const quotedInAscii = (value: unknown, charsMax = QUOTE_CHARS_MAX): string =>
  quoted(value, charsMax).replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** The names of an object, without a list of all of them. */
function* ownNames(object: object): Generator<string> {
  for (const name in object) if (Object.hasOwn(object, name)) yield name;
}

/** The message of what was thrown. Node leaves it empty for a name with several addresses, each with its own error. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}

/** The issues that a message tells: the first ones, and how many more there are. */
export const toldIssues = (issues: readonly string[], max = ISSUES_TOLD_MAX): readonly string[] =>
  issues.length <= max
    ? issues
    : [...issues.slice(0, max), `and ${(issues.length - max).toLocaleString('en-US')} more`];

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

/** `1 upload`, `2 uploads`, `1,200 uploads`. */
export const counted = (count: number, noun: string): string =>
  `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
