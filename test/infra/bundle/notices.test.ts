import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Metafile } from 'esbuild';
import { beforeAll, describe, expect, it } from 'vitest';
import { FUNCTION_NAMES } from '../../../infra/bundle/bundle.ts';
import { sharedFolder } from '../../support/folder.ts';

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

const directory = sharedFolder();

interface Bundling {
  readonly metafile?: Metafile;
  readonly notices?: string;
  readonly error: string;
}

/** Bundles in the process that `bundleModule` starts, and reads what it says. */
function bundling(entry: string, outDir: string, cwd = here('../../..')): Bundling {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [here('../../../infra/bundle/process.ts'), entry, outDir],
    { cwd, encoding: 'utf8', maxBuffer: 2 ** 26 },
  );
  if (status !== 0) return { error: stderr };
  const notices = readFileSync(join(outDir, 'THIRD-PARTY-NOTICES.txt'), 'utf8');
  return { metafile: JSON.parse(stdout), notices, error: stderr };
}

describe.each(FUNCTION_NAMES)('the notices of %s', (name) => {
  const entry = here(`../../../functions/${name}.lambda.ts`);
  let metafile: Metafile;
  let notices: string;
  beforeAll(() => {
    const made = bundling(entry, join(directory, name));
    expect(made.error).toBe('');
    metafile = made.metafile as Metafile;
    notices = made.notices ?? '';
  });

  /** Folders of the packages with code in the bundle. */
  const packageFolders = (): readonly string[] => {
    const paths = Object.values(metafile.outputs).flatMap(({ inputs }) =>
      Object.keys(inputs).filter((path) => (inputs[path]?.bytesInOutput ?? 0) > 0),
    );
    const folders = paths.flatMap((path) => {
      const parts = resolve(here('../../..'), path).split('/');
      const at = parts.lastIndexOf('node_modules');
      const length = parts[at + 1]?.startsWith('@') ? 2 : 1;
      return at === -1 ? [] : [parts.slice(0, at + 1 + length).join('/')];
    });
    return [...new Set(folders)];
  };

  it('name every package with its version and its licence, and contain its licence file', () => {
    expect(packageFolders().length).toBeGreaterThan(15);
    for (const folder of packageFolders()) {
      const { name: packageName, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      expect(notices).toContain(`\n${packageName} ${version} (${license})\n`);
      for (const file of ['LICENSE', 'license', 'NOTICE'].filter((each) => readdirSync(folder).includes(each))) {
        expect(notices, packageName).toContain(readFileSync(join(folder, file), 'utf8').trim());
      }
    }
  });

  it('contain the licences of Middy and Powertools, which are published without one', () => {
    expect(notices).toMatch(/\n@middy\/core \S+ \(MIT\)\n[^=]*will Farrell, Luciano Mammino, and Middy contributors/);
    expect(notices).toMatch(
      /\n@aws-lambda-powertools\/metrics \S+ \(MIT-0\)\n[^=]*Amazon\.com, Inc\. or its affiliates[^=]*to permit persons/,
    );
  });

  it('contain each text once, and nothing of this machine', () => {
    const licences = notices.split('Copyright 2019 Amazon.com, Inc. or its affiliates. All Rights Reserved.');
    expect(licences).toHaveLength(2);
    expect(notices).not.toMatch(/node_modules|\r/);
    expect(notices).not.toContain(here('../../..'));
  });

  it('are the same, and so is the bundle, wherever the build is started', () => {
    const elsewhere = join(directory, `${name} elsewhere`);
    expect(bundling(entry, elsewhere, tmpdir()).notices).toBe(notices);
    const code = (outDir: string) => readFileSync(join(outDir, 'index.mjs'), 'utf8');
    expect(code(elsewhere) === code(join(directory, name))).toBe(true);
  });
});

describe('the notices of a bundle with a package', () => {
  let made = 0;

  /** Bundles a module that imports one package, made of `files`. */
  function bundleWith(name: string, files: Readonly<Record<string, string>>): Bundling {
    made += 1;
    const project = join(directory, `project-${made}`);
    for (const [path, content] of Object.entries({ 'index.js': 'export const value = Math.random();', ...files })) {
      const file = join(project, 'node_modules', name, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, content);
    }
    const entry = join(project, 'entry.ts');
    writeFileSync(entry, `export { value } from '${name}';`);
    return bundling(entry, join(project, 'out'));
  }

  const manifest = (name: string, more: object = {}) =>
    JSON.stringify({ name, version: '1.2.3', type: 'module', main: 'index.js', license: 'Apache-2.0', ...more });

  it('contain its NOTICE beside its licence', () => {
    const { notices } = bundleWith('a-package', {
      'package.json': manifest('a-package'),
      'LICENSE.txt': 'The licence.\r\nIts second line.\r\n',
      NOTICE: 'The notice.\n',
      'license-checker.js': 'throw new Error();',
    });
    expect(notices).toContain('\na-package 1.2.3 (Apache-2.0)\n');
    expect(notices).toContain('\nThe licence.\nIts second line.\n');
    expect(notices).toContain('\nThe notice.\n');
    expect(notices).not.toContain('throw');
  });

  it('cannot be made without its licence file: the build fails and names the package', () => {
    const { error, notices } = bundleWith('@a/package', {
      'package.json': manifest('@a/package'),
      NOTICE: 'No licence.',
    });
    expect(notices).toBe(undefined);
    expect(error).toContain('The bundle contains code of @a/package 1.2.3 (Apache-2.0), which has no licence file.');
    expect(error).toContain('infra/bundle/notices.ts');
  });

  it('cannot be made if the package changed the licence that is kept for it', () => {
    const { error } = bundleWith('@middy/other', { 'package.json': manifest('@middy/other') });
    expect(error).toContain('The bundle contains code of @middy/other 1.2.3 (Apache-2.0), which has no licence file.');
  });

  describe('that contains code of others', () => {
    const three = (file: string) => {
      const inside = `examples/jsm/libs/${file}`;
      return bundleWith('three', {
        'package.json': manifest('three', { main: inside, license: 'MIT' }),
        LICENSE: 'The licence of three.',
        [inside]: 'export const value = Math.random();',
      });
    };

    it('contain their licences too', () => {
      const { notices } = three('meshopt_decoder.module.js');
      expect(notices).toMatch(/\nmeshoptimizer \(MIT\)\n[^=]*Arseny Kapoulkine/);
      expect(notices).toContain('The licence of three.');
      expect(notices).not.toContain('fflate');
    });

    it('cannot be made without the licence: the build fails and names the file', () => {
      const { error, notices } = three('other.module.js');
      expect(notices).toBe(undefined);
      expect(error).toMatch(
        /contains code of \S*three\/examples\/jsm\/libs\/other\.module\.js, which has no licence file/,
      );
      expect(error).toContain('infra/bundle/notices.ts');
    });
  });

  it('do not name a package that left no code in the bundle, and need no licence of it', () => {
    const { notices, error } = bundleWith('types-only', {
      'package.json': manifest('types-only'),
      'index.js': 'export {};',
      'index.d.ts': 'export type value = string;',
    });
    expect(error).toBe('');
    expect(notices).not.toContain('types-only');
  });
});
