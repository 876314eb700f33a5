/** What a pattern for the keys of assets may contain. `assetKey` replaces each. */
const PLACEHOLDERS = ['{key}', '{flowId}', '{assetId}', '{ext}'] as const;
export type Placeholder = (typeof PLACEHOLDERS)[number];

export const isPlaceholder = (text: string): text is Placeholder => PLACEHOLDERS.some((each) => each === text);

/** How a pattern for the keys of assets ends. */
export const RESULTS_KEY_END = /\{assetId\}(\{ext\})?$/;

/**
 * Returns what is wrong with a pattern for the keys of assets, if anything is.
 *
 * A pattern must give every asset of every flow a key of its own. Ids in keys are percent-encoded, so they contain no
 * slash. Two assets cannot get the same key if a slash separates any two placeholders and the last segment has the
 * asset's id. That it ends in this id is checked by {@link RESULTS_KEY_END}.
 */
export function issueOfResultsKey(pattern: string): string | undefined {
  const issue = issueOfPlaceholders(pattern, PLACEHOLDERS);
  if (issue !== undefined) return issue;
  if (!pattern.includes('{flowId}')) return 'expected {flowId} in it, or assets would overwrite each other';
  const segments = pattern.replace(/\{ext\}$/, '').split('/');
  if (segments.some((segment) => (segment.match(/\{/g) ?? []).length > 1)) {
    return 'expected a slash between {key}, {flowId} and {assetId}, or two assets could get the same key';
  }
  if (segments.includes('')) return 'expected no slash at the start and no two in a row';
  return undefined;
}

/** Returns what is wrong with the placeholders of a pattern, if anything is. Each may stand in it once. */
function issueOfPlaceholders(pattern: string, known: readonly string[]): string | undefined {
  const found: readonly string[] = pattern.match(/\{[^{}]*\}/g) ?? [];
  const unknown = found.find((each) => !known.includes(each));
  if (unknown !== undefined) return `expected only ${known.join(', ')} in braces, not ${unknown}`;
  if (/[{}]/.test(pattern.replaceAll(/\{[^{}]*\}/g, ''))) return 'expected every brace to be part of a placeholder';
  return new Set(found).size < found.length ? 'expected each placeholder once' : undefined;
}

/** What an alias may contain. `aliasKey` replaces each. */
const ALIAS_PLACEHOLDERS: readonly string[] = ['{key}', '{folder}', '{name}', '{n}', '{ext}'];

/**
 * Returns what is wrong with an alias, if anything is. Two files must not get the same one: the key, or folder and name,
 * must be found in it again. Extensions are left out of `{name}` on purpose, so `a.png` and `a.jpg` still meet. Then the
 * alias stays with the first of them. It begins with a folder of its own, in which no results lie.
 */
export function issueOfAlias(pattern: string): string | undefined {
  const issue = issueOfPlaceholders(pattern, ALIAS_PLACEHOLDERS);
  if (issue !== undefined) return issue;
  // A permission names this folder. IAM takes an asterisk for any folder, and refuses letters beyond Latin-1.
  if (!/^[A-Za-z0-9!_.'()-]+\//.test(pattern)) {
    return "expected it to begin with a folder of its own, such as models/, of letters, digits and !_.'()-";
  }
  if (/\/\/|\/$/.test(pattern)) return 'expected no two slashes in a row, and none at the end';
  const [hasKey, hasFolder, hasName] = ['{key}', '{folder}', '{name}'].map((each) => pattern.includes(each));
  if (hasKey ? hasFolder || hasName : !(hasFolder && hasName)) {
    return 'expected {key}, or both {folder} and {name}: otherwise two files could get the same alias';
  }
  const isApart = /\/\{(key|name)\}(?!\{(?!ext\}))/.test(pattern) && (hasKey || /\/\{folder\}\//.test(pattern));
  if (!isApart) return 'expected a slash before {key} and {name}, and on both sides of {folder}';
  if (/\{ext\}(?!$)/.test(pattern)) return 'expected {ext} at the end';
  if (pattern.includes('{n}') && !/[^{}\d]\{n\}(?![\d{](?!ext\}$))/.test(pattern)) {
    return 'expected {n} between characters that are no digits, or two assets could get the same alias';
  }
  return undefined;
}

/** The folder at the beginning of an alias, with its slash. */
export const aliasFolderOf = (pattern: string): string => pattern.slice(0, pattern.indexOf('/') + 1);
