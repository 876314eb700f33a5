import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { App } from 'aws-cdk-lib';
import { describe, expect, it } from 'vitest';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { CONTEXT, synthesise } from '../infra/synthesis.ts';
import { folderWith } from '../support/folder.ts';
import { PATIENCE } from '../support/patience.ts';

const MODULE = fileURLToPath(new URL('../../examples/terraform', import.meta.url));
const RECIPE = fileURLToPath(new URL('../../docs/recipes/terraform.md', import.meta.url));
const FILES = readdirSync(MODULE);
const text = FILES.map((name) => readFileSync(join(MODULE, name), 'utf8')).join('\n');
const named = (pattern: RegExp, within = text) => [
  ...new Set(Array.from(within.matchAll(pattern), ([, name = '']) => name)),
];

const flowdrop = (deployment: object) => ({ ...(CONTEXT.flowdrop as object), deployment });

describe('the module for Terraform', () => {
  it('declares each variable that it uses, and uses each that it declares', () => {
    expect(named(/\bvar\.(\w+)/g).toSorted()).toEqual(named(/^variable "(\w+)"/gm).toSorted());
  });

  it('has only outputs that the stack has', () => {
    const { template } = synthesise((app) => new FlowdropStack(app, 'flowdrop', { context: flowdrop({}) }));
    const outputs = named(/\.outputs\["(\w+)"\]/g);
    expect(outputs).toContain('TokenSecret');
    expect(Object.keys(template.toJSON().Outputs)).toEqual(expect.arrayContaining(outputs));
  });

  it('gets from the recipe what it needs, and nothing that it does not know', () => {
    const [, block = ''] = /module "flowdrop" \{\n([\s\S]*?)\n {3}\}/.exec(readFileSync(RECIPE, 'utf8')) ?? [];
    const given = named(/^ *(\w+) +=/gm, block).filter((name) => name !== 'source');
    const variables = Array.from(text.matchAll(/^variable "(\w+)" \{\n([\s\S]*?)\n\}/gm));
    const required = variables.filter(([, , body = '']) => !/^ +default +=/m.test(body));
    expect(given).toEqual(required.map(([, name]) => name));
  });
});

const ENV = { ...process.env, CHECKPOINT_DISABLE: '1' };
const terraform = (args: readonly string[], cwd: string, input = ''): string =>
  execFileSync('terraform', [...args], {
    ...{ cwd, input, env: ENV, encoding: 'utf8', timeout: PATIENCE.timeout },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
const hasTerraform = ['/usr/bin', '/usr/local/bin'].some((folder) => existsSync(`${folder}/terraform`));

/** The provider for AWS is on another machine, so only what needs none is run: the syntax, and the local values. */
describe.skipIf(!hasTerraform)('Terraform', () => {
  it('can read the files, which are formatted', () => {
    expect(terraform(['fmt', '-check', '-list=true'], MODULE)).toBe('');
  });

  it.each([
    ['of any account', 'eu-central-1', 'amazonaws.com', {}],
    ['of one account', 'eu-central-1', 'amazonaws.com', { account: '222222222222', region: 'eu-central-1' }],
    ['in China', 'cn-north-1', 'amazonaws.com.cn', {}],
    ['in the European Sovereign Cloud', 'eusc-de-east-1', 'amazonaws.eu', {}],
  ])('finds the template %s where CDK puts it', (_, region, domain, deployment) => {
    const folder = folderWith({});
    for (const name of ['variables.tf', 'template.tf']) cpSync(join(MODULE, name), join(folder, name));
    const app = new App({ context: CONTEXT, outdir: join(folder, 'cdk.out') });
    new FlowdropStack(app, 'flowdrop', { context: flowdrop(deployment) });
    app.synth();
    const { files } = JSON.parse(readFileSync(join(folder, 'cdk.out', 'flowdrop.assets.json'), 'utf8'));
    const hash = Object.keys(files).find((each) => files[each].source.path === 'flowdrop.template.json');
    expect(hash).toBeDefined();
    const vars = ['assembly=cdk.out', 'account=222222222222', `region=${region}`].flatMap((each) => ['-var', each]);
    expect(terraform(['console', ...vars], folder, 'local.template_url\n').trim()).toBe(
      `"https://cdk-hnb659fds-assets-222222222222-${region}.s3.${region}.${domain}/${hash}.json"`,
    );
  });
});
