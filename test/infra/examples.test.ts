import { spawnSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { folderWith } from '../support/folder.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PAGES = ['README.md', 'docs/**/*.md'].flatMap((pattern) => globSync(pattern, { cwd: ROOT })).sort();

type Data = Readonly<Record<string, unknown>>;

/** What the construct has of an example. What is no configuration, such as a receipt, has nothing of it. */
function propsIn(example: unknown): Data | undefined {
  const { pipeline, name, template, baseUrl, routes, settings, service, notify } = example as Data;
  if (name !== undefined && template !== undefined) return { routes: [example] };
  if (Array.isArray(example)) return { routes: example };
  const props = { name: pipeline, baseUrl, routes, settings, service, notify };
  return Object.values(props).some((value) => value !== undefined) ? props : undefined;
}

/** The examples in JSON of a page, each with its page. Some are the inside of an object. */
function examplesOf(page: string): readonly (readonly [string, unknown])[] {
  const text = readFileSync(join(ROOT, page), 'utf8');
  const blocks = text.matchAll(/^( *)(?:```json|cat > flowdrop\S*\.json <<'EOF')\n([\s\S]*?)\n\1(?:```|EOF)$/gm);
  return Array.from(blocks, ([, , block = '']) => {
    const json = /^\s*"/.test(block) ? `{${block}}` : block;
    return [page, JSON.parse(json)] as const;
  });
}

it('every JSON example of README.md and docs/ that is a configuration compiles as props of FlowPipeline', () => {
  const all = PAGES.flatMap(examplesOf).flatMap(([page, example]) => {
    const props = propsIn(example);
    return props === undefined ? [] : [`  /* ${page} */ ${JSON.stringify(props)},\n`];
  });
  expect(all.length).toBeGreaterThan(20);
  const source = [
    `import type { FlowPipelineProps } from '${join(ROOT, 'infra/index.ts')}';\n`,
    `export const examples: readonly Partial<FlowPipelineProps>[] = [\n${all.join('')}];\n`,
    // Proves that the compiler looks.
    `// @ts-expect-error\nexport const wrong: Partial<FlowPipelineProps> = { settings: { budget: { flows: '1' } } };\n`,
  ].join('');
  const folder = folderWith({ 'examples.mts': source });
  const options = { typeRoots: [join(ROOT, 'node_modules/@types')] };
  const config = {
    extends: join(ROOT, 'tsconfig.json'),
    compilerOptions: options,
    include: [],
    files: ['examples.mts'],
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  const { stdout } = spawnSync(join(ROOT, 'node_modules/.bin/tsc'), ['--project', folder], { encoding: 'utf8' });
  expect(stdout).toBe('');
});
