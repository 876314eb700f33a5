import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { buildSync } from 'esbuild';
import { describe, expect, it } from 'vitest';
import { withLiteralKeys } from '../../../infra/bundle/schemas.ts';
import { sharedFolder } from '../../support/folder.ts';

const CLIENTS = ['client-s3', 'client-sqs', 'client-secrets-manager', 'client-eventbridge'] as const;

const schemasOf = (client: string): string =>
  fileURLToPath(new URL(`../../../node_modules/@aws-sdk/${client}/dist-es/schemas/schemas_0.js`, import.meta.url));

/** A schema as JSON. Schemas refer to each other in circles, so a reference is replaced by a name. */
const readable = (schema: unknown): string =>
  JSON.stringify(schema, (_, value) => {
    if (typeof value !== 'function') return value;
    const referred = value.prototype === undefined ? value() : value.name;
    return `-> ${Array.isArray(referred) ? `${referred[1]}#${referred[2]}` : JSON.stringify(referred)}`;
  });

describe.each(CLIENTS)("the schemas of the SDK's %s with literal keys", (client) => {
  const path = schemasOf(client);
  const original = readFileSync(path, 'utf8');
  const literal = withLiteralKeys(original);
  const directory = sharedFolder();

  async function exportsOf(name: string, contents: string): Promise<Record<string, unknown>> {
    const outfile = join(directory, `${name}.mjs`);
    buildSync({
      stdin: { contents, resolveDir: dirname(path) },
      outfile,
      bundle: true,
      format: 'esm',
      platform: 'node',
      mainFields: ['module', 'main'],
    });
    return import(/* @vite-ignore */ pathToFileURL(outfile).href);
  }

  it('have no computed key', () => {
    expect(original).toMatch(/\[_\w+\]:/);
    expect(literal).not.toMatch(/\[_\w+\]:/);
  });

  it('are otherwise the same', async () => {
    const [before, after] = [await exportsOf('original', original), await exportsOf('literal', literal)];
    const names = Object.keys(before).filter((name) => name !== 'errorTypeRegistries');
    expect(Object.keys(after)).toEqual(Object.keys(before));
    expect(names.length).toBeGreaterThan(20);
    for (const name of names) expect(readable(after[name]), name).toBe(readable(before[name]));
  });
});
