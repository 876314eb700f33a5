import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { App } from 'aws-cdk-lib';
import { Template as CloudFormationTemplate } from 'aws-cdk-lib/assertions';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { parseContext } from '../../functions/config.ts';
import type { Receipt } from '../../functions/objects/receipts.ts';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle.ts';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { INBOX_BUCKET, type Pipeline, RESULTS_BUCKET, startPipeline, TOKEN_SECRET } from '../../local/pipeline.ts';
import { type Allowance, allowancesOf, isAllowed, lineOf } from '../infra/policies.ts';

const ROOT = new URL('../../', import.meta.url);
const { context } = JSON.parse(readFileSync(new URL('cdk.json', ROOT), 'utf8'));

/** The part of a CloudFormation template that is read here. */
interface Template {
  readonly Resources: Readonly<
    Record<string, { readonly Type: string; readonly Properties: { readonly Code?: { readonly S3Key?: string } } }>
  >;
}

let dir: string;
let pipeline: Pipeline;
let template: CloudFormationTemplate;
/** What the roles of the functions have to allow, by function. */
const calls: Record<FunctionName, Allowance[]> = { 'create-flow': [], 'collect-outputs': [] };
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'flowdrop-assembly-'));
  const app = new App({ context, outdir: join(dir, 'cdk.out') });
  const stack = new FlowdropStack(app, 'flowdrop', { context: context.flowdrop });
  const assembly = app.synth();
  const resources = (assembly.getStackArtifact(stack.artifactId).template as Template).Resources;
  template = CloudFormationTemplate.fromStack(stack);
  const bundleDir = join(dir, 'bundles');
  for (const name of FUNCTION_NAMES) {
    const id = name === 'create-flow' ? 'CreateFlow' : 'CollectOutputs';
    const [code] = Object.entries(resources).flatMap(([logicalId, { Type, Properties }]) =>
      Type === 'AWS::Lambda::Function' && logicalId.includes(id) ? [Properties.Code?.S3Key ?? ''] : [],
    );
    mkdirSync(join(bundleDir, name), { recursive: true });
    const asset = join(assembly.directory, `asset.${code?.replace(/\.zip$/, '')}`);
    copyFileSync(join(asset, 'index.mjs'), join(bundleDir, name, 'index.mjs'));
  }
  const { routes } = parseContext(context.flowdrop);
  pipeline = await startPipeline({ bundleDir, routes, standIn: { flowMs: 200 }, tickIntervalMs: 500, onCall });
}, 60_000);
afterAll(async () => {
  await pipeline?.close();
  rmSync(dir, { recursive: true, force: true });
});

const NAMES: Readonly<Record<string, string>> = {
  uploads: 'uploads-queue',
  [TOKEN_SECRET]: 'token',
  default: 'default-bus',
};

function onCall(name: FunctionName, action: string, resource: string): void {
  calls[name].push({ action, resource: NAMES[resource] ?? resource.replace('arn:aws:s3:::', '') });
}

const object = async (key: string): Promise<Buffer> => {
  const { Body } = await pipeline.s3.send(new GetObjectCommand({ Bucket: RESULTS_BUCKET, Key: key }));
  return Buffer.from((await Body?.transformToByteArray()) ?? []);
};

it.each(['robot.png', 'fox.txt', 'gem.glb'])(
  'what is deployed makes of %s exactly what the service made',
  async (name) => {
    const Body = readFileSync(new URL(`examples/${name}`, ROOT));
    await pipeline.s3.send(new PutObjectCommand({ Bucket: INBOX_BUCKET, Key: `in/${name}`, Body }));
    const receipt = await vi.waitFor(
      async () => JSON.parse((await object(`in/${name}/receipt.json`)).toString()) as Receipt,
      { timeout: 25_000, interval: 100 },
    );
    expect(receipt).toMatchObject({ status: 'succeeded', upload: { key: `in/${name}`, bytes: Body.length } });
    expect(receipt.assets).toHaveLength(1);
    for (const asset of receipt.assets) {
      const made: Buffer[] = [];
      const { content } = pipeline.standIn?.asset(receipt.flow?.id ?? '', asset.id) ?? {};
      for await (const chunk of content?.open() ?? []) made.push(Buffer.from(chunk));
      expect((await object(asset.key)).equals(Buffer.concat(made))).toBe(true);
      if (name.endsWith('.glb')) expect(Buffer.concat(made).equals(Body)).toBe(true);
    }
  },
);

it.each([
  ['create-flow', 'CreateFlowRole', ['secretsmanager:GetSecretValue token']],
  ['collect-outputs', 'CollectOutputsRole', ['secretsmanager:GetSecretValue token', 'events:PutEvents default-bus']],
] as const)('what is deployed lets %s make every call that it made', (name, role, expected) => {
  const made = new Set(calls[name].map(lineOf));
  for (const call of expected) expect(made).toContain(call);
  const allowances = allowancesOf(template, role);
  expect(calls[name].filter((call) => !isAllowed(allowances, call)).map(lineOf)).toEqual([]);
});
