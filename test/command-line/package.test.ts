import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { App, Stack } from 'aws-cdk-lib';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { FUNCTION_NAMES } from '../../infra/bundle/bundle.ts';
import { Operated } from '../operations/support.ts';
import { Visitor } from '../page/support.ts';
import { sharedFolder } from '../support/folder.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const run = (command: string, args: string[], cwd: string, env: Record<string, string> = {}) =>
  execFileSync(command, args, {
    cwd,
    encoding: 'utf8',
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });

/** Time limit of tests that start several processes: to build, pack, install or compile. */
const MANY_PROCESSES_TIMEOUT_MS = 240_000;

const json = (path: string) => JSON.parse(readFileSync(here(`../../${path}`), 'utf8'));
const { version, dependencies, devDependencies } = json('package.json');
const example = json('examples/own-app/package.json');
const exampleTsconfig = json('examples/own-app/tsconfig.json');

/** The script that docs/commands.md shows, as it stands there. */
const SCRIPT = /```js\n(import .* from 'flowdrop\/operations';\n.*?)```/s.exec(
  readFileSync(here('../../docs/commands.md'), 'utf8'),
)?.[1];

describe('the package', { timeout: MANY_PROCESSES_TIMEOUT_MS }, () => {
  const directory = sharedFolder();
  const app = join(directory, 'app');

  beforeAll(() => {
    const printed = run(process.execPath, [here('../../command-line/package.ts'), directory], here('../..'));
    const tarball = printed.trimEnd();
    expect(tarball).toBe(join(directory, `flowdrop-${version}.tgz`));
    cpSync(here('../../examples/own-app'), app, { recursive: true });
    cpSync(tarball, join(app, basename(tarball)));
    // Without what npm would ask a registry for. .ci/run installs all, and runs the app’s own test.
    const { flowdrop } = example.dependencies;
    writeFileSync(join(app, 'package.json'), JSON.stringify({ dependencies: { flowdrop } }));
    // An empty cache proves that the package needs nothing from a registry. The app brings CDK. npm skips peer
    // dependencies only with --legacy-peer-deps, not with --omit=peer. The links stand in for the app's own CDK.
    const flags = ['--offline', '--legacy-peer-deps', '--no-audit', '--no-fund'];
    const emptyCache = { npm_config_cache: join(directory, 'empty-cache') };
    run('npm', ['install', ...flags], app, emptyCache);
    for (const name of ['aws-cdk-lib', 'constructs']) {
      symlinkSync(here(`../../node_modules/${name}`), join(app, 'node_modules', name));
    }
  }, MANY_PROCESSES_TIMEOUT_MS);

  it('has checksums, and a bill of materials that names what is bundled', () => {
    const files = [`flowdrop-${version}.tgz`, `flowdrop-${version}.cdx.json`];
    const said = run('sha256sum', ['--check', 'SHA256SUMS'], directory);
    expect(said).toBe(files.map((file) => `${file}: OK\n`).join(''));
    const bill = JSON.parse(readFileSync(join(directory, `flowdrop-${version}.cdx.json`), 'utf8'));
    expect(bill).toMatchObject({
      bomFormat: 'CycloneDX',
      metadata: { component: { name: 'flowdrop', version } },
      components: expect.arrayContaining([
        expect.objectContaining({ name: '@aws-sdk/client-s3', version: dependencies['@aws-sdk/client-s3'] }),
        expect.objectContaining({ name: 'commander', version: devDependencies.commander }),
      ]),
    });
  });

  it('depends on nothing but CDK', () => {
    const manifest = JSON.parse(readFileSync(join(app, 'node_modules/flowdrop/package.json'), 'utf8'));
    expect(manifest.engines).toEqual({ node: '>=24' });
    expect(manifest).not.toHaveProperty('dependencies');
    // Not the versions of package.json, which updates raise. Apps with an older CDK cannot install a higher range.
    expect(manifest.peerDependencies).toEqual({ 'aws-cdk-lib': '^2.172.0', constructs: '^10.5.0' });
    const installed = readdirSync(join(app, 'node_modules')).filter((name) => !name.startsWith('.'));
    expect(installed.sort()).toEqual(['aws-cdk-lib', 'constructs', 'flowdrop']);
  });

  it('has the licences of the packages in each of its bundles', () => {
    const notices = (folder: string) =>
      readFileSync(join(app, 'node_modules/flowdrop', folder, 'THIRD-PARTY-NOTICES.txt'), 'utf8');
    expect(notices('.')).toContain(`\nzod ${dependencies.zod} (MIT)\n`);
    expect(notices('.')).not.toContain('@aws-sdk');
    for (const folder of ['operations', 'command', ...FUNCTION_NAMES.map((name) => `functions/${name}`)])
      expect(notices(folder)).toContain(`\n@aws-sdk/client-s3 ${dependencies['@aws-sdk/client-s3']} (`);
    expect(notices('command')).toContain('\ncommander ');
  });

  it('has the JSON schemas, for editors by their path and for programs by their name', () => {
    const names = ['chain', 'flowdrop', 'flowdrop.stage', 'job', 'receipt', 'service'].map(
      (name) => `${name}.schema.json`,
    );
    expect(readdirSync(join(app, 'node_modules/flowdrop/docs/schemas')).sort()).toEqual(names);
    const { resolve } = createRequire(join(app, 'cdk.json'));
    for (const name of names) {
      const text = readFileSync(resolve(`flowdrop/schemas/${name}`), 'utf8');
      expect(text).toBe(readFileSync(here(`../../docs/schemas/${name}`), 'utf8'));
    }
  });

  it('has the command flowdrop, which says what it can do and what it lacks', () => {
    const command = join(app, 'node_modules/.bin/flowdrop');
    expect(run(command, ['--help'], app)).toContain('flowdrop list --failed --since 24h');
    expect(() => run(command, ['status'], app)).toThrow(
      expect.objectContaining({ status: 2, stderr: expect.stringContaining('--stack NAME') }),
    );
  });

  it('serves the page of a pipeline, with its scripts, the viewer of models and their licences', async () => {
    await using operated = await Operated.start();
    const command = join(app, 'node_modules/flowdrop/command/flowdrop.mjs');
    const server = spawn(process.execPath, [command, 'open', '--no-browser'], {
      cwd: operated.directory,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void server.kill('SIGKILL'));
    let url: string | undefined;
    for await (const line of createInterface(server.stdout)) {
      url = /http:\S+/.exec(line)?.[0];
      if (url !== undefined) break;
    }
    const visitor = await Visitor.open(url ?? '');
    const textAt = async (path: string, type: string): Promise<string> => {
      const { status, headers, text } = await visitor.ask(path);
      expect([path, status, headers['content-type']]).toEqual([path, 200, type]);
      return text;
    };
    const html = await textAt('/', 'text/html; charset=utf-8');
    for (const asset of ['/assets/app.js', '/assets/app.css', '/assets/icon.svg']) expect(html).toContain(asset);
    const javascript = 'text/javascript; charset=utf-8';
    const script = await textAt('/assets/app.js', javascript);
    const [, viewer = ''] = /import\("\.\/(viewer-[^"]+)"\)/.exec(script) ?? [];
    expect(await textAt(`/assets/${viewer}`, javascript)).toContain('WebGLRenderer');
    await textAt('/assets/app.css', 'text/css; charset=utf-8');
    await textAt('/assets/decoders/draco_wasm_wrapper.js', javascript);
    await textAt('/assets/decoders/draco_decoder.wasm', 'application/wasm');
    const notices = await textAt('/THIRD-PARTY-NOTICES.txt', 'text/plain; charset=utf-8');
    const model = devDependencies['@google/model-viewer'];
    expect(notices).toContain(`\n@google/model-viewer ${model} (Apache-2.0)\nDraco (Apache-2.0)\n`);
    for (const name of ['lit-html', 'three', 'earcut', 'meshoptimizer']) expect(notices).toContain(`\n${name} `);
    expect((await visitor.ask('/api/about')).json).toMatchObject({ pipeline: 'operated' });
    server.kill('SIGINT');
    expect(await once(server, 'exit')).toEqual([0, null]);
  });

  it('lets the script of the documentation retry what failed', async () => {
    await using operated = await Operated.start();
    await operated.putRefused('photos/robot.png', 'photos/castle.png');
    const script = join(app, 'retry-rejected.mjs');
    writeFileSync(script, SCRIPT ?? 'throw new Error("There is no script in the documentation");');
    const { FLOWDROP_STACK: _, ...env } = process.env;
    // The pipeline runs in this process, so this process must not wait for the script in one piece.
    const { stdout } = await promisify(execFile)(process.execPath, [script], { cwd: operated.directory, env });
    expect(stdout.split('\n')).toEqual([
      expect.stringMatching(/^photos\/castle\.png failed: .+/),
      expect.stringMatching(/^photos\/robot\.png failed: .+/),
      'retried 2 of 2',
      '',
    ]);
    for (const key of ['photos/robot.png', 'photos/castle.png']) await operated.becomes(key, 'succeeded');
  });

  it('is one module, however an app loads it', async () => {
    const require = createRequire(join(app, 'cdk.json'));
    for (const entry of ['flowdrop', 'flowdrop/operations']) {
      const required = require(entry);
      const imported = await import(require.resolve(entry).replace(/\.js$/, '.mjs'));
      expect(Object.keys(required).length).toBeGreaterThan(1);
      expect({ ...imported }).toEqual(required);
      for (const [name, value] of Object.entries(required)) expect(imported[name]).toBe(value);
    }
  });

  it('lets the example, a CommonJS app, run its own test, which synthesises both functions', () => {
    // Its `npm test` is Jest with swc, which would nearly double our package-lock.json: .ci/run installs and runs that.
    writeFileSync(join(app, 'jest.d.ts'), 'declare const test: (name: string, body: () => void) => void;');
    writeFileSync(join(app, 'jest.cjs'), "globalThis.test = require('node:test');");
    const include = ['bin', 'lib', 'test', 'jest.d.ts'];
    writeFileSync(join(app, 'tsconfig.json'), JSON.stringify({ ...exampleTsconfig, include }));
    const compiled = '--noEmit false --outDir out --declaration false --types node --typeRoots'.split(' ');
    run(here('../../node_modules/.bin/tsc'), [...compiled, here('../../node_modules/@types')], app);
    expect(readFileSync(join(app, 'out/lib/models-stack.js'), 'utf8')).toContain('require("flowdrop")');
    const outdir = join(app, 'cdk.out');
    const ran = run(process.execPath, ['--test', '--require', './jest.cjs', 'out/test/models.test.js'], app, {
      CDK_OUTDIR: outdir,
    });
    expect(ran).toContain('pass 1');
    const bundles = readdirSync(outdir)
      .filter((name) => name.startsWith('asset.'))
      .map((name) => readdirSync(join(outdir, name)).sort());
    const files = ['THIRD-PARTY-NOTICES.txt', 'index.mjs'];
    expect(bundles).toEqual([files, files]);
    const template = JSON.parse(readFileSync(join(outdir, 'Models.template.json'), 'utf8'));
    const types = Object.values<{ Type: string }>(template.Resources).map(({ Type }) => Type);
    expect(types.filter((type) => type === 'AWS::Lambda::Function')).toHaveLength(2);
    expect(types).toContain('AWS::Events::Rule');
  });

  it('puts routes that are too long for the environment into a file beside each bundle', async () => {
    const installed: typeof import('../../infra/index.ts') = await import(join(app, 'node_modules/flowdrop/index.mjs'));
    const outdir = join(app, 'long.out');
    const routes = Array.from({ length: 100 }, (_, i) => ({ name: `route ${i}`, suffixes: [`.${i}`], template: 't' }));
    const props = { baseUrl: 'https://service.example.com', routes };
    // In this process, because another one would load CDK anew. CDK makes the bundles before the synth.
    new installed.FlowPipeline(new Stack(new App({ outdir }), 'Long'), 'Pipeline', props);
    const assets = readdirSync(outdir).filter((name) => name.startsWith('asset.'));
    expect(assets).toHaveLength(2);
    for (const asset of assets) {
      const packed = JSON.parse(readFileSync(join(outdir, asset, 'routes.json'), 'utf8'));
      expect(packed[99]).toEqual({ name: 'route 99', suffixes: ['.99'], input: 'file', template: 't' });
    }
  });

  // The nightly workflow does the same with TypeScript 5.6, which takes a minute.
  it.each(['node16', 'bundler'])(
    'has types for moduleResolution %s that accept right props and reject wrong ones, with a lib of 2020',
    (resolution) => {
      const construct = (settings: string) => `
        import { App, Stack } from 'aws-cdk-lib';
        import { FlowPipeline } from 'flowdrop';
        const routes = [{ name: 'a', template: 't' }];
        const props = { baseUrl: 'https://service.example.com', routes };
        new FlowPipeline(new Stack(new App(), 'S'), 'P', { ...props, settings: ${settings} });`;
      const script = (query: string) => `
        import { connectStack, type Listed, list, type PipelineStatus, status } from 'flowdrop/operations';
        export async function listFailed(signal: AbortSignal): Promise<Listed> {
          const deployment = await connectStack({ stack: 'flowdrop' }, signal);
          const listed: Listed = await list(${query}, deployment, signal);
          const code: string | undefined = listed.uploads[0]?.failure?.code;
          const state: PipelineStatus | { kind: string } = await status(code, deployment, signal);
          return listed;
        }`;
      // As modules of both kinds.
      const files = ['ts', 'mts'].flatMap((extension) => [
        [`right.${extension}`, construct('{ attemptsMax: 3 }')],
        [`wrong.${extension}`, construct('{ atemptsMax: 3 }')],
        [`right-script.${extension}`, script(`{ state: 'failed', since: 0 }`)],
        [`wrong-script.${extension}`, script(`{ state: 'faild' }`)],
      ]) as [string, string][];
      for (const [name, text] of files) writeFileSync(join(app, name), text);
      const options = '--ignoreConfig --noEmit --strict --skipLibCheck false --target es2020 --lib es2020'.split(' ');
      const module = ['--module', resolution === 'bundler' ? 'esnext' : resolution, '--moduleResolution', resolution];
      const types = ['--types', 'node', '--typeRoots', here('../../node_modules/@types')];
      // All in one run: nearly all of it goes into the types of CDK. Several checkers would each check these, and the
      // compiler would spend a quarter of its time on freeing memory.
      const all = [...options, ...module, ...types, '--checkers', '1', ...files.map(([name]) => name)];
      const compile = () => run(here('../../node_modules/.bin/tsc'), all, app, { GOGC: '400' });
      const errors =
        /^(?:wrong-script\.m?ts\(.*'"faild"' is not assignable.*\n){2}(?:wrong\.m?ts\(.*'atemptsMax' does not exist.*\n){2}$/;
      expect(compile).toThrow(expect.objectContaining({ stdout: expect.stringMatching(errors) }));
    },
  );
});

describe('the example', () => {
  it('installs the packed file, and the versions of CDK that are tested here', () => {
    expect(example.dependencies).toEqual({
      'aws-cdk-lib': dependencies['aws-cdk-lib'],
      constructs: dependencies.constructs,
      flowdrop: `file:flowdrop-${version}.tgz`,
    });
    for (const name of ['aws-cdk', '@types/node', 'typescript']) {
      expect(example.devDependencies[name]).toBe(devDependencies[name]);
    }
  });

  it('is as `cdk init` makes an app', () => {
    const template = 'node_modules/aws-cdk/lib/init-templates/app/typescript/';
    expect(exampleTsconfig).toEqual(json(`${template}tsconfig.json`));
    const { devDependencies: usual } = json(`${template}package.json`);
    expect(Object.keys(example.devDependencies).sort()).toEqual(Object.keys(usual).sort());
    expect(example).not.toHaveProperty('type');
  });

  it('has the feature flags of this repository', () => {
    const { context, ...settings } = json('cdk.json');
    const { flowdrop: _, ...flags } = context;
    expect(json('examples/own-app/cdk.json')).toEqual({
      ...settings,
      app: 'npx tsc && npx tsx bin/models.ts',
      context: flags,
    });
  });

  it('names the packed file of this version in its README and in ours', () => {
    for (const page of ['README.md', 'examples/own-app/README.md']) {
      const named = readFileSync(here(`../../${page}`), 'utf8').match(/flowdrop-[\w.]+\.tgz/g) ?? [];
      expect([...new Set(named)], page).toEqual([`flowdrop-${version}.tgz`]);
    }
  });
});
