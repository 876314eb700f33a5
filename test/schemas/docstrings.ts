import { readFileSync } from 'node:fs';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

/** What the members of an object mean, by their names. */
export interface Docs {
  readonly [member: string]: { readonly text?: string | undefined; readonly members?: Docs };
}

/** An object or an interface of the sources: its first line, its members and its end, as the formatter writes them. */
const BLOCK = /^(?:export )?(?:const|interface) (\w+)\b[^\n]*\{\n([\s\S]*?)^\}/gm;
/** A constant of one line, such as the list of an object. */
const ALIAS = /^(?:export )?const (\w+)\b[^\n]* = ([^\n{]*);$/gm;
/** A member of a block, with its comment if it has one; or what it has from another block. */
const MEMBER =
  /^(?: {2}\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n)? {2}(?:readonly )?(?:(?<name>[$\w]+)\??(?:: (?<value>[^\n]*)|,)|\.\.\.(?<spread>[^\n]*))$/gm;

/**
 * Reads the comments above the members of an object, and of those in it.
 * @param files where it and the objects in it are. A name is looked up in the file that uses it first.
 * @param root its name.
 */
export function docsOf(files: readonly string[], root: string): Docs {
  const texts = new Map(files.map((file) => [file, read(file)]));

  function find(name: string, from: string): { readonly file: string; readonly body?: string; readonly rest?: string } {
    for (const file of [from, ...files]) {
      const text = texts.get(file) ?? '';
      for (const [, named, body] of text.matchAll(BLOCK))
        if (named === name && body !== undefined) return { file, body };
      for (const [, named, rest] of text.matchAll(ALIAS))
        if (named === name && rest !== undefined) return { file, rest };
    }
    return { file: from };
  }

  /** The members of the first object that an expression names. */
  function docsIn(expression: string, from: string): Docs | undefined {
    for (const [name] of expression.matchAll(/(?<![.\w])\w+/g)) {
      const { file, body, rest } = find(name, from);
      const docs = body === undefined ? rest !== undefined && docsIn(rest, file) : membersOf(body, file);
      if (docs) return docs;
    }
    return undefined;
  }

  function membersOf(body: string, file: string): Docs {
    const docs: Record<string, Docs[string]> = {};
    for (const { 1: comment, groups } of body.matchAll(MEMBER)) {
      const { name, value, spread } = groups ?? {};
      if (spread !== undefined) Object.assign(docs, docsIn(spread, file));
      if (name === undefined) continue;
      const members = docsIn(value ?? name, file);
      docs[name] = { text: comment && plain(comment), ...(members && { members }) };
    }
    return docs;
  }

  const docs = docsIn(root, files[0] ?? '');
  if (docs === undefined) throw new Error(`${files.join(', ')}: expected an object ${root}`);
  return docs;
}

/** A comment as one line. */
const plain = (comment: string): string =>
  comment
    .replaceAll(/\s*\n\s*\* ?/g, ' ')
    .replaceAll(/\{@link ([^}]*)\}/g, '$1')
    .trim();

/**
 * Reads the lists of `docs/settings.md`.
 * @param prefix that of the names of the wanted items, such as `deployment.`.
 */
export function rowsOf(prefix: string): Docs {
  const docs: Record<string, Docs[string]> = {};
  for (const [, names = '', meaning = '', given = ''] of read('docs/settings.md').matchAll(
    /^- ((?:`[^`]*`(?:, )?)+): (.*?)(?:\.? Default: (.*)\.)?$/gm,
  )) {
    // In an item of several names, the later ones begin with a dot.
    const [first = '', ...others] = Array.from(names.matchAll(/`([\w.]+)`/g), ([, name = '']) => name);
    if (!first.startsWith(prefix) || first.slice(prefix.length).includes('.')) continue;
    const value = given === '' ? '' : ` Default: ${unlinked(given)}.`;
    const text = `${sentence(meaning)}${value}`;
    for (const name of [first.slice(prefix.length), ...others.map((each) => each.replace(/^\./, ''))])
      docs[name] = { text };
  }
  return docs;
}

/** Links are of no use in an editor. */
const unlinked = (text: string): string => text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1');

function sentence(meaning: string): string {
  const text = unlinked(meaning.replace(/[:,] see (?:the )?\[[^\]]*\]\([^)]*\)$/, '')).trim();
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith('.') ? '' : '.'}`;
}
