import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { beforeAll, describe, expect, it } from 'vitest';
import { buildPage } from '../../page/build.ts';
import { PAGE_PATH, type PageFiles } from '../../page/page-files.ts';

/** Maximum size of all that is loaded before the first model is shown, gzipped, in bytes. */
const GZIPPED_BYTES_MAX = 60_000;

const APP = new URL('../../page/app/', import.meta.url);

describe('the built page', () => {
  let files: PageFiles;
  beforeAll(async () => {
    files = await buildPage();
  });
  const textOf = (path: string): string => {
    const file = files.get(path);
    if (file === undefined) throw new Error(`The page has no ${path}`);
    return Buffer.from(file.body).toString();
  };

  /** What the browser loads at once: what the HTML names, and what these scripts import statically. */
  function loadedAtOnce(): readonly string[] {
    const loaded = new Set([PAGE_PATH]);
    for (const path of loaded) {
      if (path !== PAGE_PATH && !path.endsWith('.js')) continue;
      const pattern = path === PAGE_PATH ? /(?:src|href)="([^"]+)"/g : /(?:from|import)\s*"\.\/([^"]+)"/g;
      for (const [, found = ''] of textOf(path).matchAll(pattern)) {
        loaded.add(found.startsWith('/') ? found : `/assets/${found}`);
      }
    }
    return [...loaded];
  }

  it('is small without the viewer of models', () => {
    const loaded = loadedAtOnce();
    expect(loaded).toEqual(expect.arrayContaining(['/', '/assets/app.js', '/assets/app.css']));
    const bytes = loaded.map((path) => gzipSync(files.get(path)?.body ?? '').length);
    expect(bytes.reduce((sum, each) => sum + each, 0)).toBeLessThan(GZIPPED_BYTES_MAX);
    expect(loaded.map(textOf).join('')).not.toContain('WebGLRenderer');
  });

  it('has the viewer of models in a script that is loaded when it is needed', () => {
    const [, viewer = ''] = /import\("\.\/(viewer-[^"]+)"\)/.exec(textOf('/assets/app.js')) ?? [];
    expect(textOf(`/assets/${viewer}`)).toContain('WebGLRenderer');
  });

  it('has no style element, which the policy would block', () => {
    const scripts = [...files.keys()].filter((path) => path.endsWith('.js'));
    expect(scripts.length).toBeGreaterThan(2);
    expect(scripts.filter((path) => textOf(path).includes('<style>'))).toEqual([]);
  });

  it('names no other host in its HTML and its styles', () => {
    for (const path of [PAGE_PATH, '/assets/app.css']) expect(textOf(path)).not.toMatch(/https?:|url\(\s*["']?\/\//);
  });

  it('makes no HTML from texts', () => {
    const sources = readdirSync(APP).filter((name) => name.endsWith('.ts'));
    expect(sources.length).toBeGreaterThan(10);
    const dangerous = /unsafeHTML|unsafeSVG|unsafeStatic|innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc/;
    expect(sources.filter((name) => dangerous.test(readFileSync(new URL(name, APP), 'utf8')))).toEqual([]);
  });
});
