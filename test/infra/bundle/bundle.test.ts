import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Metafile } from 'esbuild';
import { beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../functions/base/clock.ts';
import { bundleModule } from '../../../infra/bundle/bundle.ts';
import { SecretStore, serveSecrets } from '../../../local/aws/secrets-manager.ts';
import { Queue, serveQueues } from '../../../local/aws/sqs.ts';
import { LocalFunction } from '../../../local/lambda/function.ts';
import { sharedFolder } from '../../support/folder.ts';

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const CREDENTIALS = { accessKeyId: 'fake', secretAccessKey: 'fake', sessionToken: 'fake-session' };
const ENTRY = here('fixtures/sdk-calls.ts');
const NOTICES = 'THIRD-PARTY-NOTICES.txt';
const ROOT = here('../../..');
const directory = sharedFolder();

/** Bundles in the process that `bundleModule` starts. Returns what that prints as errors. */
function errorsOfBundling(entry: string, outDir: string, cwd: string): string {
  const { stderr } = spawnSync(
    process.execPath,
    [here('../../../infra/bundle/process.ts'), dirname(outDir), `${basename(outDir)}=${entry}`],
    {
      cwd,
      encoding: 'utf8',
      maxBuffer: 2 ** 26,
    },
  );
  return stderr;
}

describe('a bundle', () => {
  const bundleDir = join(directory, 'bundle');
  let metafile: Metafile;
  beforeAll(() => {
    metafile = bundleModule(ENTRY, bundleDir);
  });

  it('calls AWS with default clients and the credentials of its environment', async () => {
    const queue = new Queue({ name: 'work', clock: systemClock });
    const queues = await serveQueues([queue], { credentials: [CREDENTIALS] });
    const store = new SecretStore({ clock: systemClock });
    store.put('token', 'fake-token');
    const secrets = await serveSecrets(store, { credentials: [CREDENTIALS] });
    const local = new LocalFunction(
      {
        name: 'sdk-calls',
        bundleDir,
        environment: {
          AWS_ENDPOINT_URL_SQS: queues.endpoint,
          AWS_ENDPOINT_URL_SECRETS_MANAGER: secrets.endpoint,
          QUEUE_URL: queues.urlOf(queue),
          AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
          AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
          AWS_SESSION_TOKEN: CREDENTIALS.sessionToken,
        },
        timeoutSeconds: 30,
        memoryMiB: 256,
      },
      { concurrency: 1 },
    );
    try {
      expect(await local.invoke({ secretId: 'token' })).toEqual({ secretBytes: 10 });
      expect(queue.receive()).toMatchObject([{ body: 'sent from a bundle 🎁' }]);
    } finally {
      await local.close();
      await Promise.all([queues.close(), secrets.close()]);
    }
  });

  it('imports only modules of Node.js, and none that would load lazy exports', () => {
    const imported = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path));
    expect(imported.filter((path) => !path.startsWith('node:'))).toEqual([]);
    for (const name of ['http', 'https', 'crypto', 'process', 'dns', 'util', 'fs'])
      expect(imported).not.toContain(`node:${name}`);
  });

  it('is the same with its notices, wherever the build is started', () => {
    const elsewhere = join(directory, 'elsewhere');
    expect(errorsOfBundling(ENTRY, elsewhere, tmpdir())).toBe('');
    for (const file of ['index.mjs', NOTICES])
      expect(readFileSync(join(elsewhere, file)).equals(readFileSync(join(bundleDir, file))), file).toBe(true);
  });
});

describe('the notices of a bundle', () => {
  const CODE = 'export const value = Math.random();';
  const manifest = (name: string, more: object = {}) => ({
    'package.json': JSON.stringify({ name, version: '1.2.3', type: 'module', license: 'Apache-2.0', ...more }),
  });
  const inThree = (file: string) => ({
    ...manifest('three', { main: `examples/jsm/libs/${file}`, license: 'MIT' }),
    LICENSE: 'The licence of three.',
    [`examples/jsm/libs/${file}`]: CODE,
  });
  const LICENCES = { 'LICENSE.txt': 'The licence.\r\nIts second line.\r\n', NOTICE: 'The notice.\n' };

  /** Bundles a module that imports one package, made of `files`. */
  function bundleWith(name: string, files: Readonly<Record<string, string>>) {
    const project = mkdtempSync(join(directory, 'project-'));
    const write = (path: string, content: string) => {
      mkdirSync(dirname(join(project, path)), { recursive: true });
      writeFileSync(join(project, path), content);
    };
    for (const [path, content] of Object.entries({ 'index.js': CODE, ...files }))
      write(`node_modules/${name}/${path}`, content);
    write('entry.ts', `export { value } from '${name}';`);
    const error = errorsOfBundling(join(project, 'entry.ts'), join(project, 'out'), ROOT);
    return { error, notices: error === '' ? readFileSync(join(project, 'out', NOTICES), 'utf8') : '' };
  }

  it.each<[string, string, Readonly<Record<string, string>>, RegExp, RegExp]>([
    [
      'contain the NOTICE of a package beside its licence',
      'a-package',
      { ...manifest('a-package'), ...LICENCES, 'license-checker.js': 'throw new Error();' },
      /\na-package 1\.2\.3 \(Apache-2\.0\)\n\nThe licence\.\nIts second line\.\n\nThe notice\.\n/,
      /throw/,
    ],
    [
      'contain the licences of code of others inside a package',
      'three',
      inThree('meshopt_decoder.module.js'),
      /\nmeshoptimizer \(MIT\)\n[^=]*Arseny Kapoulkine[\s\S]*The licence of three\./,
      /fflate/,
    ],
    [
      'do not name a package that left no code in the bundle, and need no licence of it',
      'types-only',
      { ...manifest('types-only'), 'index.js': 'export {};', 'index.d.ts': 'export type value = string;' },
      /^This bundle contains code of the packages below/,
      /types-only/,
    ],
  ])('%s', (_, name, files, expected, unwanted) => {
    const { error, notices } = bundleWith(name, files);
    expect(error).toBe('');
    expect(notices).toMatch(expected);
    expect(notices).not.toMatch(unwanted);
  });

  it.each<[string, string, Readonly<Record<string, string>>, RegExp]>([
    [
      'its licence file',
      '@a/package',
      { ...manifest('@a/package'), NOTICE: 'None.' },
      /@a\/package 1\.2\.3 \(Apache-2\.0\)/,
    ],
    [
      'the licence that is kept for it',
      '@middy/other',
      manifest('@middy/other'),
      /@middy\/other 1\.2\.3 \(Apache-2\.0\)/,
    ],
    [
      'a licence of code inside it',
      'three',
      inThree('other.module.js'),
      /\S*three\/examples\/jsm\/libs\/other\.module\.js/,
    ],
  ])('cannot be made of a package without %s: the build fails and names it', (_, name, files, culprit) => {
    const { error } = bundleWith(name, files);
    expect(error).toMatch(new RegExp(`The bundle contains code of ${culprit.source}, which has no licence file`));
    expect(error).toContain('infra/bundle/notices.ts');
  });
});
