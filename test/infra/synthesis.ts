import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { App, CfnResource, type IPolicyValidationPlugin, Stack, Stage, Validations } from 'aws-cdk-lib';
import { Template } from 'aws-cdk-lib/assertions';
import { Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { AwsSolutionsChecks } from 'cdk-nag';
import type { Construct } from 'constructs';
import { vi } from 'vitest';
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

/** A role of an app, which can be given grants. */
export const newRole = (scope: Construct, id: string) =>
  new Role(scope, id, { assumedBy: new ServicePrincipal('ec2.amazonaws.com') });

export interface Synthesis {
  readonly template: Template;
  /** Findings of the checks that are not acknowledged: the rule and the path of the construct. */
  readonly findings: readonly string[];
  /** Findings that are acknowledged: the path of the construct, the rule, and the reason. */
  readonly acknowledged: readonly string[];
  /** The same as version 2 of cdk-nag reads it, by the path of the resource. */
  readonly acknowledgedByMetadata: readonly string[];
  /** Texts of warnings and notices. */
  readonly messages: readonly string[];
  readonly stack: Stack;
}

interface Report {
  readonly pluginReports: readonly {
    readonly violations: readonly {
      readonly ruleName: string;
      readonly violatingConstructs: readonly { readonly constructPath: string }[];
    }[];
  }[];
}

/**
 * Synthesises an app without bundling the functions.
 * @param isValidated true for all checks of a real synth, with the rules of CloudFormation. See vitest.config.ts.
 * @param packs the checks of cdk-nag.
 */
export function synthesise(
  build: (app: App) => Stack,
  isValidated = false,
  packs: readonly (new (app: App) => IPolicyValidationPlugin)[] = [AwsSolutionsChecks],
): Synthesis {
  if (isValidated) vi.stubEnv('CDK_VALIDATION', 'true');
  const outdir = mkdtempSync(join(tmpdir(), 'flowdrop-synth-'));
  // CDK prints the warnings, which are in the report as well.
  const printing = vi.spyOn(console, 'error').mockImplementation(() => {});
  try {
    const app = new App({ outdir, context: { ...CONTEXT, 'aws:cdk:bundling-stacks': [] } });
    const stack = build(app);
    Validations.of(app).addPlugins(...packs.map((Pack) => new Pack(app)));
    // A failed check throws an error that does not name it. The report does.
    let failure: unknown;
    try {
      app.synth();
    } catch (error) {
      failure = error;
    }
    const findings = findingsOf(outdir);
    if (failure !== undefined && findings.length === 0) throw failure;
    const template = JSON.parse(readFileSync(join(Stage.of(stack)?.outdir ?? outdir, stack.templateFile), 'utf8'));
    const messages = [...metadataOf(stack, 'aws:cdk:warning'), ...metadataOf(stack, 'aws:cdk:info')];
    return {
      template: Template.fromJSON(template),
      findings,
      acknowledged: metadataOf(stack, Validations.ACKNOWLEDGED_RULES_METADATA_KEY).flatMap(({ path, data }) =>
        Object.entries(data as Record<string, string>).map(([id, reason]) => `${path} ${id}: ${reason}`),
      ),
      acknowledgedByMetadata: rulesInMetadata(stack),
      messages: messages.map(({ data }) => String(data)),
      stack,
    };
  } finally {
    printing.mockRestore();
    vi.unstubAllEnvs();
    rmSync(outdir, { recursive: true });
  }
}

/** Synthesises one pipeline in a stack of its own, for an account and region that are unknown at synth. */
export const synthesisePipeline = (
  props: Partial<FlowPipelineProps> | ((stack: Stack) => Partial<FlowPipelineProps>) = {},
  use: (pipeline: FlowPipeline, stack: Stack) => void = () => {},
): Synthesis =>
  synthesise((app) => {
    const stack = new Stack(app, 'test');
    const given = typeof props === 'function' ? props(stack) : props;
    use(new FlowPipeline(stack, 'Pipeline', { ...PROPS, ...given }), stack);
    return stack;
  });

function findingsOf(outdir: string): readonly string[] {
  const { pluginReports } = JSON.parse(readFileSync(join(outdir, 'validation-report.json'), 'utf8')) as Report;
  return (
    pluginReports
      .flatMap(({ violations }) => violations)
      .flatMap(({ ruleName, violatingConstructs }) =>
        violatingConstructs.map(({ constructPath }) => `${ruleName} ${constructPath}`),
      )
      // The report also has the warnings of the app and of CDK. They are among the messages.
      .filter((finding) => !finding.startsWith('Annotation::'))
  );
}

/** @see https://github.com/cdklabs/cdk-nag/blob/v2.38.2/README.md */
const rulesInMetadata = (stack: Stack): readonly string[] =>
  stack.node.findAll().flatMap((each) => {
    const rules: readonly Rule[] = CfnResource.isCfnResource(each)
      ? (each.getMetadata('cdk_nag')?.rules_to_suppress ?? [])
      : [];
    return rules.flatMap(({ id, reason, applies_to: findings }) =>
      (findings?.map((finding) => `[${finding}]`) ?? ['']).map((of) => `${each.node.path} ${id}${of}: ${reason}`),
    );
  });

interface Rule {
  readonly id: string;
  readonly reason: string;
  readonly applies_to?: readonly string[];
}

/** The metadata of a type in a stack, each with the path of its construct. */
const metadataOf = (stack: Stack, type: string) =>
  stack.node
    .findAll()
    .flatMap(({ node }) =>
      node.metadata.filter((each) => each.type === type).map(({ data }) => ({ path: node.path, data })),
    );
