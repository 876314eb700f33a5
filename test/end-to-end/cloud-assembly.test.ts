import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GetObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { App } from 'aws-cdk-lib';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { parseContext } from '../../functions/config.ts';
import type { Receipt } from '../../functions/objects/receipts.ts';
import { FUNCTION_NAMES } from '../../infra/bundle.ts';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { INBOX_BUCKET, type Pipeline, RESULTS_BUCKET, startPipeline } from '../../local/pipeline.ts';

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
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'flowdrop-assembly-'));
  const app = new App({ context, outdir: join(dir, 'cdk.out') });
  const stack = new FlowdropStack(app, 'flowdrop', { context: context.flowdrop });
  const assembly = app.synth();
  const template = assembly.getStackArtifact(stack.artifactId).template as Template;
  const bundleDir = join(dir, 'bundles');
  for (const name of FUNCTION_NAMES) {
    const id = name === 'create-flow' ? 'CreateFlow' : 'CollectOutputs';
    const [code] = Object.entries(template.Resources).flatMap(([logicalId, { Type, Properties }]) =>
      Type === 'AWS::Lambda::Function' && logicalId.includes(id) ? [Properties.Code?.S3Key ?? ''] : [],
    );
    mkdirSync(join(bundleDir, name), { recursive: true });
    const asset = join(assembly.directory, `asset.${code?.replace(/\.zip$/, '')}`);
    copyFileSync(join(asset, 'index.mjs'), join(bundleDir, name, 'index.mjs'));
  }
  const { routes } = parseContext(context.flowdrop);
  pipeline = await startPipeline({ bundleDir, routes, standIn: { flowMs: 200 }, tickIntervalMs: 500 });
}, 60_000);
afterAll(async () => {
  await pipeline?.close();
  rmSync(dir, { recursive: true, force: true });
});

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
