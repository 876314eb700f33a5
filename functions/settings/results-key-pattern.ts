/** What a pattern for the keys of assets may contain. `assetKey` replaces each. */
const PLACEHOLDERS = ['{key}', '{flowId}', '{assetId}', '{ext}'] as const;
export type Placeholder = (typeof PLACEHOLDERS)[number];

export const isPlaceholder = (text: string): text is Placeholder => PLACEHOLDERS.some((each) => each === text);

/**
 * Returns what is wrong with a pattern for the keys of assets, if anything is.
 *
 * A pattern must give every asset of every flow a key of its own. Ids in keys are percent-encoded, so they contain no
 * slash. Two assets cannot get the same key if a slash separates any two placeholders and the last segment has the
 * asset's id.
 */
export function issueOfResultsKey(pattern: string, lengthMax: number): string | undefined {
  const placeholders: readonly string[] = pattern.match(/\{[^{}]*\}/g) ?? [];
  const unknown = placeholders.find((each) => !isPlaceholder(each));
  const known = `${PLACEHOLDERS.slice(0, -1).join(', ')} and ${PLACEHOLDERS.at(-1)}`;
  if (unknown !== undefined) return `expected only ${known} in braces, not ${unknown}`;
  if (/[{}]/.test(pattern.replaceAll(/\{[^{}]*\}/g, ''))) return 'expected every brace to be part of a placeholder';
  for (const needed of ['{flowId}', '{assetId}']) {
    if (!placeholders.includes(needed)) return `expected ${needed} in it, or assets would overwrite each other`;
  }
  if (new Set(placeholders).size < placeholders.length) return 'expected each placeholder once';
  if (!/\{assetId\}(\{ext\})?$/.test(pattern)) return 'expected it to end in {assetId} or {assetId}{ext}';
  const segments = pattern.replace(/\{ext\}$/, '').split('/');
  if (segments.some((segment) => (segment.match(/\{/g) ?? []).length > 1)) {
    return 'expected a slash between {key}, {flowId} and {assetId}, or two assets could get the same key';
  }
  if (segments.includes('')) return 'expected no slash at the start and no two in a row';
  if (pattern.length > lengthMax) return `expected at most ${lengthMax} characters`;
  return undefined;
}
