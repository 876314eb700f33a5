import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

const FOLDERS = 'functions operations infra local page command-line test bench examples docs'.split(' ');
const filesOf = (folder: string): readonly string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => basename(path));
const FILES: ReadonlySet<string> = new Set(FOLDERS.flatMap(filesOf));

const pages = ['.', 'docs', 'docs/recipes', 'docs/recipes/services', 'examples', 'examples/own-app', 'test']
  .flatMap((folder) => readdirSync(join(ROOT, folder)).map((name) => join(folder, name)))
  .filter((path) => path.endsWith('.md'));

/** The anchors of a page: those that GitHub makes of its headings, and those that are set by hand. */
function anchorsOf(page: string): readonly string[] {
  const text = read(page).replaceAll(/^```[\s\S]*?^```$/gm, '');
  const headings = Array.from(text.matchAll(/^#+ (.+)$/gm), ([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
  return [...headings, ...Array.from(text.matchAll(/<a id="([^"]+)">/g), ([, id = '']) => id)];
}

describe.each(pages)('%s', (page) => {
  it('links to files and headings that exist', () => {
    const links = Array.from(read(page).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)/g));
    const broken = links.flatMap(([link, path, anchor]) => {
      const target = path ? join(dirname(page), path) : page;
      const isThere = existsSync(join(ROOT, target));
      return isThere && (anchor === undefined || anchorsOf(target).includes(anchor)) ? [] : [link];
    });
    expect(broken).toEqual([]);
  });

  it('names files of the repository that exist', () => {
    const named = Array.from(read(page).matchAll(/`([\w.-]+(?:\/[\w.-]+)*\/?)`/g), ([, path = '']) => path);
    const paths = named.filter((path) => FOLDERS.includes(path.split('/')[0] ?? '') && path.includes('/'));
    expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
    // A file may be named without its folder, after another one of the folder.
    const alone = named.filter((path) => /^[^/]+\.ts$/.test(path));
    expect(alone.filter((name) => !FILES.has(name) && !existsSync(join(ROOT, name)))).toEqual([]);
  });
});

it('README.md, docs/design.md and the list of recipes lead to every page', () => {
  const linksOf = (page: string): string => read(page).replaceAll('](', `](${join(dirname(page), '/')}`);
  const links = read('README.md') + ['docs/design.md', 'docs/recipes/README.md'].map(linksOf).join('');
  expect(pages.filter((page) => page.startsWith('docs/') && !links.includes(`](${page}`))).toEqual([]);
});

it.each(pages)('%s prints npm scripts with -s, so that their output is all that is seen', (page) => {
  // The changelog tells of commands as they were.
  if (page === 'CHANGELOG.md') return;
  const scripts = Array.from(read(page).matchAll(/\bnpm run (?!-s )\S+/g), ([command]) => command);
  expect(scripts).toEqual([]);
});

it('README.md names the command that runs the tests beside the one that starts', () => {
  const [, table = ''] = /^\| command \| what it does \|\n([\s\S]*?)\n\n/m.exec(read('README.md')) ?? [];
  expect(table).toContain('| `npm start');
  expect(table).toContain('| `npm test` |');
});

it('docs/code-map.md shows where every file of functions/ is, and no file that does not exist', () => {
  const [, map = ''] = /```\n([\s\S]*?)```/.exec(read('docs/code-map.md')) ?? [];
  const shown = new Set(Array.from(map.matchAll(/[\w.-]+\.ts\b/g), ([name]) => name));
  expect([...shown].filter((name) => !FILES.has(name))).toEqual([]);
  expect(filesOf('functions').filter((name) => !shown.has(name))).toEqual([]);
});

it('nothing tells a reader to install or run the package by its name, which a stranger could publish', () => {
  const files = [
    ...pages,
    'examples/own-app/lib/models-stack.ts',
    'examples/own-app/package.json',
    'command-line/package.ts',
  ];
  const byName = /\b(?:npm (?:i|install|add|exec|ci)|npx|pnpm|yarn|bunx?)\b[^\n`|;&]*(?<![\w./-])flowdrop(?![\w./-])/;
  expect(files.filter((file) => byName.test(read(file)))).toEqual([]);
});

it('the runbook filters logs by texts that the functions log', () => {
  const sources = readdirSync(join(ROOT, 'functions'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => read(join('functions', path)))
    .join('\n');
  const filters = Array.from(
    read('docs/runbook.md').matchAll(/--filter-pattern '([^'{]+)'/g),
    ([, filter = '']) => filter,
  );
  const texts = filters.flatMap((filter) => Array.from(filter.matchAll(/"([^"]+)"/g), ([, text = '']) => text));
  // Lambda's own line.
  const ours = texts.filter((text) => text !== 'Task timed out');
  expect(ours.length).toBeGreaterThan(3);
  expect(ours.filter((text) => !sources.includes(text))).toEqual([]);
});
