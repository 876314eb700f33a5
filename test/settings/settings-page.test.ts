import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { SETTINGS, type Setting } from '../../functions/settings/settings.ts';

const PAGE = fileURLToPath(new URL('../../docs/settings.md', import.meta.url));
const SOURCE = readFileSync(new URL('../../functions/settings/settings.ts', import.meta.url), 'utf8');
const UPDATE = 'To write the list of settings: npx vitest run test/settings/settings-page.test.ts --update';

/** The items of the settings, one after the other. */
const ITEMS = /(?:^- `settings\.[^\n]*\n)+/gm;

const SCALES: Readonly<Record<string, readonly (readonly [value: number, name: string])[]>> = {
  bytes: [
    [2 ** 40, 'TiB'],
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [1, 'B'],
  ],
  seconds: [
    [86_400, 'days'],
    [3_600, 'h'],
    [1, 's'],
  ],
};

/** A number as people read it: `5 GiB`, `7 days`, `1,000`. */
function amount(value: number, unit: string | undefined): string {
  const [scale, name] = SCALES[unit ?? '']?.find(([each]) => value % each === 0) ?? [1, ''];
  return `${(value / scale).toLocaleString('en')} ${name}`.trim();
}

/** The comment above the setting's entry. Editors show the same text. */
function meaningOf(name: string): string {
  const comment = new RegExp(String.raw`/\*\*((?:(?!\*/)[^])*)\*/\n  ${name}: `).exec(SOURCE)?.[1];
  if (comment === undefined) throw new Error(`${name}: expected a comment with its meaning above its entry`);
  return comment.replaceAll(/\s*\n\s*\* ?/g, ' ').trim();
}

function rangeOf({ unit, min, max, words = [] }: Setting<unknown>): readonly string[] {
  if (min === undefined || max === undefined) return [];
  return [`${[`${amount(min, unit)} to ${amount(max, unit)}`, ...words.map((word) => `\`${word}\``)].join(', ')}.`];
}

function defaultOf({ default: value, unit }: Setting<unknown>): readonly string[] {
  if (typeof value === 'number') return [`Default: ${amount(value, unit)}.`];
  return String(value) === '' ? [] : [`Default: \`${value}\`.`];
}

const items = Object.entries<Setting<unknown>>(SETTINGS).map(
  ([name, setting]) =>
    `- \`settings.${name}\`: ${[meaningOf(name), ...rangeOf(setting), ...defaultOf(setting)].join(' ')}\n`,
);

describe('docs/settings.md', () => {
  it('says of every setting what the code says', async () => {
    const page = readFileSync(PAGE, 'utf8');
    expect(page.match(ITEMS)).toHaveLength(1);
    await expect(
      page.replace(ITEMS, () => items.join('')),
      UPDATE,
    ).toMatchFileSnapshot(PAGE);
  });

  it('has an item for every setting of the deployment, and no other', () => {
    const source = readFileSync(new URL('../../infra/deployment.ts', import.meta.url), 'utf8');
    const [, schema = ''] = /const deploymentSchema = strictObject\(\{\n([\s\S]*?)\n\}\)/.exec(source) ?? [];
    const names = Array.from(schema.matchAll(/^ {2}(\w+):/gm), ([, name]) => name);
    expect(names.length).toBeGreaterThan(20);
    const named = readFileSync(PAGE, 'utf8').match(/^- `deployment\.[^:]*/gm) ?? [];
    const shown = Array.from(named.join('').matchAll(/`(?:deployment)?\.(\w+)`/g), ([, name]) => name);
    expect(shown.sort()).toEqual(names.sort());
  });
});
