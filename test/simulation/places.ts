import { SyntaxKind } from 'typescript/unstable/ast';
import { createScanner } from 'typescript/unstable/ast/scanner';

/*
 * Finds named places in TypeScript source, and code in them. Code is compared token by token: white space, comments,
 * line breaks and trailing commas do not count.
 */

interface Token {
  readonly text: string;
  readonly start: number;
  readonly end: number;
  /** Number of brackets, braces and parentheses around the token. An opening one and its closing one have the same. */
  readonly depth: number;
}

/** A declaration, as a range of tokens: `createFlow`, `Lease` or `Lease.take`. */
interface Place {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** A range of characters. */
interface Range {
  readonly start: number;
  readonly end: number;
}

/** In a pattern: any tokens, as few as possible, that do not leave the brackets around them. */
const ANYTHING = '…';

const MODIFIERS = 'public private protected static override abstract readonly async get set *'.split(' ');
const DECLARATIONS = 'export abstract async function * class const let interface type'.split(' ');

/** After these a slash begins a regular expression and does not divide. */
const BEFORE_OPERAND = /^(?:[-({[,;=:!&|?+*%<>~^]|&&|\|\||\?\?|=>|===|!==|\.\.\.|return|case|typeof|await|of|in)$/;

/** Brackets, and the pieces of a template string before its first value and after its last one. */
const isOpening = (text: string): boolean => /^[([{]$|^`.*\$\{$/s.test(text);
const isClosing = (text: string): boolean => /^[)\]}]$|^\}.*`$/s.test(text);

function tokensOf(source: string): readonly Token[] {
  const scanner = createScanner(true);
  scanner.setText(source);
  const tokens: Token[] = [];
  const open: string[] = [];
  for (let kind = scanner.scan(); kind !== SyntaxKind.EndOfFile; kind = scanner.scan()) {
    const before = tokens.at(-1)?.text;
    if (kind === SyntaxKind.SlashToken && (before === undefined || BEFORE_OPERAND.test(before))) {
      scanner.reScanSlashToken();
    }
    if (kind === SyntaxKind.CloseBraceToken && open.at(-1)?.startsWith('`')) kind = scanner.reScanTemplateToken(false);
    const text = scanner.getTokenText();
    if (isClosing(text)) open.pop();
    if (isClosing(text) && before === ',') tokens.pop();
    tokens.push({ text, start: scanner.getTokenStart(), end: scanner.getTokenEnd(), depth: open.length });
    if (isOpening(text)) open.push(text);
  }
  return tokens;
}

/** All top-level declarations, and the members of those that are classes. */
function placesIn(tokens: readonly Token[]): readonly Place[] {
  return declarationsIn(tokens, 0, tokens.length, DECLARATIONS).flatMap((place) => {
    const words = tokens.slice(place.from, place.to).map(({ text }) => text);
    const bodyAt = words.indexOf('{');
    if (!words.slice(0, bodyAt).includes('class')) return [place];
    const members = declarationsIn(tokens, place.from + bodyAt + 1, place.to - 1, MODIFIERS);
    return [place, ...members.map((member) => ({ ...member, name: `${place.name}.${member.name}` }))];
  });
}

/** Declarations that stand side by side in a range of tokens. Each ends where the next one begins. */
function declarationsIn(
  tokens: readonly Token[],
  from: number,
  to: number,
  modifiers: readonly string[],
): readonly Place[] {
  const depth = tokens[from]?.depth;
  const text = (at: number): string => tokens[at]?.text ?? '';
  const beginnings: { readonly at: number; readonly name: string }[] = [];
  for (let at = from; at < to; at += 1) {
    if (tokens[at]?.depth !== depth || !(at === from || [';', '}'].includes(text(at - 1)))) continue;
    let nameAt = at;
    // A method may be called `get`.
    while (modifiers.includes(text(nameAt)) && text(nameAt + 1) !== '(') nameAt += 1;
    const isName = /^[#\w$]+$/.test(text(nameAt)) && !['as', 'satisfies'].includes(text(nameAt));
    if (isName && (nameAt > at || modifiers === MODIFIERS)) beginnings.push({ at, name: text(nameAt) });
  }
  return beginnings.map(({ at, name }, index) => ({ name, from: at, to: beginnings[index + 1]?.at ?? to }));
}

/** Where a pattern that begins at `at` ends; undefined if it does not match there. */
function endOfMatch(tokens: readonly Token[], at: number, to: number, pattern: readonly string[]): number | undefined {
  const [first, ...rest] = pattern;
  if (first === undefined) return at;
  if (first === ANYTHING) return endAfterAnything(tokens, at, to, rest);
  return at < to && tokens[at]?.text === first ? endOfMatch(tokens, at + 1, to, rest) : undefined;
}

function endAfterAnything(
  tokens: readonly Token[],
  at: number,
  to: number,
  rest: readonly string[],
): number | undefined {
  const before = tokens[at - 1];
  const depth = (before?.depth ?? 0) + (isOpening(before?.text ?? '') ? 1 : 0);
  for (let next = at; next < to; next += 1) {
    const token = tokens[next] as Token;
    if (token.depth > depth || (token.depth === depth && isClosing(token.text))) continue;
    const end = endOfMatch(tokens, next, to, rest);
    if (end !== undefined || token.depth < depth) return end;
  }
  return undefined;
}

const patternOf = (code: string): readonly string[] => tokensOf(code).map(({ text }) => text);

/** A source file with its named places. */
export class Source {
  readonly text: string;
  readonly #tokens: readonly Token[];
  readonly #places: readonly Place[];

  constructor(text: string) {
    this.text = text;
    this.#tokens = tokensOf(text);
    this.#places = placesIn(this.#tokens);
  }

  get placeNames(): readonly string[] {
    return this.#places.map(({ name }) => name);
  }

  /** All occurrences of some code in the places of a name, as ranges of characters. */
  find(name: string, code: string): readonly Range[] {
    const pattern = patternOf(code);
    return this.#places.filter((place) => place.name === name).flatMap((place) => this.#occurrences(place, pattern));
  }

  /** The names of the innermost places in which some code occurs. */
  placesOf(code: string): readonly string[] {
    const pattern = patternOf(code);
    const found = this.#places.filter((place) => this.#occurrences(place, pattern).length > 0).map(({ name }) => name);
    return found.filter((name) => !found.some((other) => other.startsWith(`${name}.`)));
  }

  #occurrences({ from, to }: Place, pattern: readonly string[]): readonly Range[] {
    return this.#tokens.slice(from, to).flatMap((first, offset) => {
      if (first.text !== pattern[0]) return [];
      const end = endOfMatch(this.#tokens, from + offset, to, pattern);
      return end === undefined ? [] : [{ start: first.start, end: this.#tokens[end - 1]?.end ?? first.end }];
    });
  }

  /** The text with a range replaced. In the replacement, `$&` stands for what was there. */
  replaced({ start, end }: Range, replacement: string): string {
    const matched = this.text.slice(start, end);
    return this.text.slice(0, start) + replacement.replaceAll('$&', () => matched) + this.text.slice(end);
  }
}
