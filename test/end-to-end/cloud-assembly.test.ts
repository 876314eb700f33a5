import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { App } from 'aws-cdk-lib';
import { Template as CloudFormationTemplate } from 'aws-cdk-lib/assertions';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import type { Receipt } from '../../functions/publish/report-schemas.ts';
import { parseContext } from '../../functions/settings/context.ts';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { INBOX_BUCKET, type Pipeline, RESULTS_BUCKET, startPipeline } from '../../local/pipeline.ts';
import { Deployment, type RecordedCall, recordedCall } from '../infra/calls.ts';
import { lineOf, refusedOf } from '../infra/policies.ts';
import { sharedFolder } from '../support/folder.ts';
import { PATIENCE } from '../support/patience.ts';

const ROOT = new URL('../../', import.meta.url);
const { context } = JSON.parse(readFileSync(new URL('cdk.json', ROOT), 'utf8'));

/** The part of a CloudFormation template that this test reads. */
interface Template {
  readonly Resources: Readonly<
    Record<string, { readonly Type: string; readonly Properties: { readonly Code?: { readonly S3Key?: string } } }>
  >;
}

const dir = sharedFolder();
const modeOf = (path: string): number => statSync(path).mode & 0o777;
let pipeline: Pipeline;
let template: CloudFormationTemplate;
/** The calls that the role of each function must allow. */
const calls: Record<FunctionName, RecordedCall[]> = { 'create-flow': [], 'collect-outputs': [] };
beforeAll(async () => {
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
});
afterAll(() => pipeline?.close());

function onCall(name: FunctionName, action: string, resource: string, context: RecordedCall['context']): void {
  calls[name].push(recordedCall(name, { action, resource, context }));
}

const object = async (key: string): Promise<Buffer> => {
  const { Body } = await pipeline.s3.send(new GetObjectCommand({ Bucket: RESULTS_BUCKET, Key: key }));
  return Buffer.from((await Body?.transformToByteArray()) ?? []);
};

it.each(['robot.png', 'fox.txt', 'gem.glb'])(
  'the deployed code stores exactly the asset that the service made from %s',
  async (name) => {
    const Body = readFileSync(new URL(`examples/${name}`, ROOT));
    await pipeline.s3.send(new PutObjectCommand({ Bucket: INBOX_BUCKET, Key: `in/${name}`, Body }));
    const receipt = await vi.waitFor(
      async () => JSON.parse((await object(`in/${name}/receipt.json`)).toString()) as Receipt,
      PATIENCE,
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

it.each(['000', '022', '077'])('only its user can change the code that is deployed, under the umask %s', (mask) => {
  const outdir = join(dir, `cdk.out-${mask}`);
  const umask = process.umask(Number.parseInt(mask, 8));
  try {
    const app = new App({ context, outdir });
    // Routes that are too long for the environment are a file beside the code.
    const routes = Array.from({ length: 200 }, (_, n) => ({ name: `route ${n}`, prefixes: [`${n}/`], template: 't' }));
    new FlowdropStack(app, 'flowdrop', { context: { ...context.flowdrop, routes } });
    app.synth();
  } finally {
    process.umask(umask);
  }
  const assets = readdirSync(outdir).filter((name) => name.startsWith('asset.'));
  expect(assets).toHaveLength(2);
  for (const asset of assets) {
    expect(modeOf(join(outdir, asset))).toBe(0o700);
    const files = readdirSync(join(outdir, asset)).sort();
    expect(files).toEqual(['THIRD-PARTY-NOTICES.txt', 'index.mjs', 'routes.json']);
    // Lambda runs the code as another user.
    for (const file of files) expect(modeOf(join(outdir, asset, file)), file).toBe(0o644);
  }
});

it.each([
  ['create-flow', ['secretsmanager:GetSecretValue']],
  ['collect-outputs', ['secretsmanager:GetSecretValue', 'events:PutEvents']],
] as const)('the deployed policies allow every call that %s made', (name, expected) => {
  for (const action of expected) expect(calls[name].map((call) => call.action)).toContain(action);
  const deployment = new Deployment(template);
  const permissions = deployment.permissionsOf(name);
  const made = calls[name].flatMap((call) => deployment.callsOf(call));
  expect(refusedOf(permissions, made).map(lineOf)).toEqual([]);
});
