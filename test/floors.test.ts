import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const FUNCTIONS = fileURLToPath(new URL('../functions', import.meta.url));

/** The folders of `functions/`, lowest first. A folder imports only from itself and from lower ones. */
const FLOORS = [
  'base',
  's3',
  'flow-service',
  'uploads',
  'settings',
  'results',
  'ledger',
  'chains',
  'publish',
  'holds',
  'resubmit',
  'sweep',
  'operator',
  'create-flow',
  'collect-outputs',
  'lambda',
  '.',
];

/** Both functions stand on the same floors, and neither on the other. */
const APART: readonly (readonly [string, string])[] = [['collect-outputs', 'create-flow']];

interface Import {
  readonly from: string;
  readonly to: string;
}

const folderOf = (path: string): string => relative(FUNCTIONS, dirname(path)) || '.';

function importsOf(file: string): readonly Import[] {
  const specifiers = readFileSync(file, 'utf8').matchAll(/(?:from|import\()\s*'(\.[^']+)'/g);
  return Array.from(specifiers, ([, specifier = '']) => ({
    from: relative(FUNCTIONS, file),
    to: relative(FUNCTIONS, normalize(join(dirname(file), specifier))),
  }));
}

const files = readdirSync(FUNCTIONS, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name));
const imports = files.flatMap(importsOf);
const shown = (each: readonly Import[]): readonly string[] => each.map(({ from, to }) => `${from} -> ${to}`);

describe('the folders of functions/', () => {
  it('all have a floor', () => {
    expect(files.map(folderOf).filter((each) => !FLOORS.includes(each))).toEqual([]);
    expect(FLOORS.filter((each) => !files.map(folderOf).includes(each))).toEqual([]);
  });

  it('import downwards only', () => {
    expect(imports.length).toBeGreaterThan(100);
    const upwards = imports.filter(({ from, to }) => FLOORS.indexOf(dirname(from)) < FLOORS.indexOf(dirname(to)));
    expect(shown(upwards)).toEqual([]);
  });

  it('do not import beside each other', () => {
    const beside = imports.filter(({ from, to }) => APART.some(([a, b]) => a === dirname(from) && b === dirname(to)));
    expect(shown(beside)).toEqual([]);
  });

  it('import nothing from outside of functions/', () => {
    expect(shown(imports.filter(({ to }) => to.startsWith('..')))).toEqual([]);
  });

  it('have the two entry points above them', () => {
    expect(files.filter((file) => folderOf(file) === '.').map((file) => relative(FUNCTIONS, file))).toEqual([
      'collect-outputs.lambda.ts',
      'create-flow.lambda.ts',
    ]);
  });
});

it('operations/ stands on functions/ and on nothing else of the project', () => {
  const operations = fileURLToPath(new URL('../operations', import.meta.url));
  const outside = readdirSync(operations)
    .flatMap((name) => importsOf(join(operations, name)))
    .filter(({ to }) => !to.startsWith('../operations/'));
  expect(outside.length).toBeGreaterThan(20);
  expect(shown(outside.filter(({ to }) => to.startsWith('..')))).toEqual([]);
});

describe('npm start and flowdrop', () => {
  const root = fileURLToPath(new URL('..', import.meta.url));
  const importsIn = (dir: string) =>
    readdirSync(join(root, dir), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .flatMap((name) => importsOf(join(root, dir, name)))
      .map(({ from, to }) => ({ from: from.slice('../'.length), to: to.slice('../'.length) }));
  const isFlowdrop = (path: string): boolean => path.startsWith('command-line/flowdrop');

  it('stand on the files of command-line/ beside flowdrop, and not on each other', () => {
    const [local, commandLine] = [importsIn('local'), importsIn('command-line')];
    expect(local.filter(({ to }) => to.startsWith('command-line/')).length).toBeGreaterThan(5);
    expect(shown(local.filter(({ to }) => isFlowdrop(to)))).toEqual([]);
    expect(shown(commandLine.filter(({ to }) => to.startsWith('local/')))).toEqual([]);
    expect(shown(commandLine.filter(({ from, to }) => !isFlowdrop(from) && isFlowdrop(to)))).toEqual([]);
  });
});

describe('page/', () => {
  const server = fileURLToPath(new URL('../page/server', import.meta.url));
  const page = fileURLToPath(new URL('../page', import.meta.url));
  const importsIn = (dir: string, names: readonly string[]) =>
    names.flatMap((name) =>
      Array.from(
        readFileSync(join(dir, name), 'utf8').matchAll(/^import (type )?[^;]*?from '(\.[^']+)';$/gm),
        ([, type = '', to = '']) => ({ name, isType: type !== '', to }),
      ),
    );

  it('has a server that stands on operations/ and on nothing else of the project', () => {
    const imports = importsIn(server, readdirSync(server));
    expect(imports.length).toBeGreaterThan(40);
    const outside = imports.filter(({ isType, to }) => {
      const isOwn = to.startsWith('./') || ['../api.ts', '../page-files.ts'].includes(to);
      // The forms of receipts and of JSON have their owners there. Nothing of it is loaded.
      const isForm = isType && to.startsWith('../../functions/');
      return !isOwn && !isForm && !to.startsWith('../../operations/');
    });
    expect(outside).toEqual([]);
  });

  it('has an app that loads nothing else into the browser but how texts, amounts, states and ends of uploads are shown, and what is a job file', () => {
    const app = join(page, 'app');
    const imports = importsIn(
      app,
      readdirSync(app).filter((name) => name.endsWith('.ts')),
    );
    expect(imports.length).toBeGreaterThan(20);
    const shared = [
      ...['../../functions/base/money.ts', '../../functions/base/printable.ts'],
      ...['../../functions/ledger/terminal-states.ts', '../../functions/uploads/job-keys.ts'],
      ...['../../operations/cost-texts.ts', '../../operations/shown-state.ts'],
    ];
    expect(imports.filter(({ isType, to }) => !isType && !to.startsWith('./') && !shared.includes(to))).toEqual([]);
    // The shared files load nothing but each other.
    const loaded = importsIn(app, shared).filter(({ isType }) => !isType);
    const known = ['base/money.ts', 'ledger/terminal-states.ts', 'uploads/job-keys.ts'].map(
      (to) => `../functions/${to}`,
    );
    expect(loaded.map(({ to }) => to)).toEqual(known);
  });

  it('has an API of types alone', () => {
    const imports = importsIn(page, ['api.ts']);
    expect(imports.length).toBeGreaterThan(3);
    expect(imports.filter(({ isType }) => !isType)).toEqual([]);
    expect(readFileSync(join(page, 'api.ts'), 'utf8')).not.toMatch(/^export (?!type|interface)/m);
  });

  it('is loaded by the local run only when it is visited', () => {
    const loaded = new Set<string>();
    const load = (name: string): void => {
      if (loaded.has(name)) return;
      loaded.add(name);
      for (const { isType, to } of importsIn(server, [name])) {
        expect([name, isType, to]).toEqual([name, isType, isType ? to : expect.stringMatching(/^\.\//)]);
        if (!isType) load(to.slice(2));
      }
    };
    load('serve-page.ts');
    load('open-browser.ts');
    expect([...loaded].sort()).toEqual(['access.ts', 'answers.ts', 'open-browser.ts', 'serve-page.ts', 'visitors.ts']);
  });
});
