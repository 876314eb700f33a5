import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { App, Stack, Validations } from 'aws-cdk-lib';
import { Template } from 'aws-cdk-lib/assertions';
import { Vpc } from 'aws-cdk-lib/aws-ec2';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { AwsSolutionsChecks } from 'cdk-nag';
import type { Construct } from 'constructs';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';

/** The context of cdk.json, as the command line reads it. */
export const CONTEXT: Readonly<Record<string, unknown>> = JSON.parse(
  readFileSync(new URL('../../cdk.json', import.meta.url), 'utf8'),
).context;

/** The required props. */
export const PROPS: FlowPipelineProps = {
  baseUrl: 'https://service.example.com',
  routes: [{ name: 'pictures', mediaTypes: ['image/*'], template: 'model_generate_fromimage' }],
};

/** An existing VPC. */
export const existingVpc = (stack: Stack) => ({
  vpc: Vpc.fromVpcAttributes(stack, 'Vpc', {
    vpcId: 'vpc-01234567',
    availabilityZones: ['eu-central-1a'],
    privateSubnetIds: ['subnet-01234567'],
    privateSubnetRouteTableIds: ['rtb-01234567'],
  }),
});

export const keyArnOf = (id: string) => `arn:aws:kms:eu-central-1:123456789012:key/${id}`;
/** An existing key. The checks want such an id for the key of a new resource. */
export const KEY_ARN = keyArnOf('01234567-89ab-cdef-0123-456789abcdef');

/** An existing key. The warnings of the statements that its policy needs are acknowledged. */
export const existingKey = (stack: Stack, keyArn = KEY_ARN) => {
  for (const service of ['logs', 's3', 'events']) {
    Validations.of(stack).acknowledge({ id: `flowdrop:key-policy-${service}`, reason: 'This stack is not deployed.' });
  }
  return Key.fromKeyArn(stack, `Key ${keyArn.replace(/.*\//, '')}`, keyArn);
};

/** One existing bucket for uploads and results. */
export const oneBucket = (stack: Stack) => {
  const bucket = Bucket.fromBucketName(stack, 'Both', 'existing-bucket');
  return { inboxBucket: bucket, resultsBucket: bucket, settings: { inboxPrefix: 'in/', resultsPrefix: 'out/' } };
};

/** Buckets that belong to another account. */
export const bucketsOf = (account: string) => (stack: Stack) => {
  const bucket = (bucketName: string) => Bucket.fromBucketAttributes(stack, bucketName, { bucketName, account });
  return { inboxBucket: bucket('far-inbox'), resultsBucket: bucket('far-results') };
};

/** A role of an app, which can be given grants. */
export const newRole = (scope: Construct, id: string) =>
  new Role(scope, id, { assumedBy: new ServicePrincipal('ec2.amazonaws.com') });

interface Finding {
  readonly rule: string;
  readonly path: string;
}

export interface Synthesis {
  readonly template: Template;
  /** Findings of the checks that are not acknowledged. */
  readonly findings: readonly Finding[];
  /** Texts of the app's own warnings and notices. */
  readonly messages: readonly string[];
}

interface Report {
  readonly pluginReports: readonly {
    readonly violations: readonly {
      readonly ruleName: string;
      readonly severity: string;
      readonly violatingConstructs: readonly { readonly constructPath: string }[];
    }[];
  }[];
}

/** Synthesises an app with all checks of a real synth, but without bundling the functions. */
export function synthesise(build: (app: App) => Stack): Synthesis {
  const outdir = mkdtempSync(join(tmpdir(), 'flowdrop-synth-'));
  try {
    const app = new App({ outdir, context: { ...CONTEXT, 'aws:cdk:bundling-stacks': [] } });
    const stack = build(app);
    Validations.of(app).addPlugins(new AwsSolutionsChecks(app));
    // A failed check throws an error that does not name it. The report does.
    let failure: unknown;
    try {
      app.synth();
    } catch (error) {
      failure = error;
    }
    const findings = findingsOf(outdir);
    if (failure !== undefined && findings.length === 0) throw failure;
    const template = JSON.parse(readFileSync(join(outdir, stack.templateFile), 'utf8'));
    return { template: Template.fromJSON(template), findings, messages: messagesOf(stack) };
  } finally {
    rmSync(outdir, { recursive: true });
  }
}

/** Synthesises one pipeline in a stack of its own, for an account and region that are unknown at synth. */
export function synthesisePipeline(
  props: Partial<FlowPipelineProps> | ((stack: Stack) => Partial<FlowPipelineProps>) = {},
  use: (pipeline: FlowPipeline, stack: Stack) => void = () => {},
): Synthesis {
  return synthesise((app) => {
    const stack = new Stack(app, 'test');
    // Keeps the output of the tests short. The warning has a test of its own.
    Validations.of(stack).acknowledge({ id: 'flowdrop:alarms-unsent', reason: 'Nobody deploys this.' });
    const given = typeof props === 'function' ? props(stack) : props;
    use(new FlowPipeline(stack, 'Pipeline', { ...PROPS, ...given }), stack);
    return stack;
  });
}

let defaults: Synthesis | undefined;

/** The pipeline with the required props only. It is synthesised once for each test file. */
export function defaultPipeline(): Synthesis {
  defaults ??= synthesisePipeline();
  return defaults;
}

function findingsOf(outdir: string): readonly Finding[] {
  const { pluginReports } = JSON.parse(readFileSync(join(outdir, 'validation-report.json'), 'utf8')) as Report;
  return pluginReports.flatMap(({ violations }) =>
    violations
      // The report also has the app's own warnings, which are no findings of a rule.
      .filter(({ ruleName }) => !ruleName.startsWith('Annotation::flowdrop:'))
      .flatMap(({ ruleName, violatingConstructs }) =>
        violatingConstructs.map(({ constructPath }) => ({ rule: ruleName, path: constructPath })),
      ),
  );
}

function messagesOf(stack: Stack): readonly string[] {
  return stack.node
    .findAll()
    .flatMap(({ node }) => node.metadata)
    .filter(({ type }) => type === 'aws:cdk:warning' || type === 'aws:cdk:info')
    .map(({ data }) => String(data));
}
