import * as cdk from 'aws-cdk-lib';
import { AspectPriority, Aspects, CfnResource, Stack } from 'aws-cdk-lib';
import { CfnManagedPolicy, CfnPolicy } from 'aws-cdk-lib/aws-iam';
import type { IConstruct } from 'constructs';

/** Absent in an older CDK, such as 2.240. */
const { Validations }: Partial<Pick<typeof cdk, 'Validations'>> = cdk;

/** A rule of cdk-nag, and why what it finds here is right as it is. */
export interface Acknowledgement {
  readonly id: string;
  readonly reason: string;
}

/** Acknowledges what cdk-nag finds at a construct. Its version 3 asks the construct, and version 2 its resource. */
export function acknowledge(construct: IConstruct, acknowledgement: Acknowledgement): void {
  Validations?.of(construct).acknowledge(acknowledgement);
  const resource = construct.node.defaultChild;
  if (CfnResource.isCfnResource(resource)) addMetadata(resource, acknowledgement);
}

const METADATA = 'cdk_nag';

/** @see https://github.com/cdklabs/cdk-nag/blob/v2.38.2/README.md */
interface Metadata {
  readonly rules_to_suppress: readonly (Acknowledgement & { readonly applies_to?: readonly string[] })[];
}

function addMetadata(resource: CfnResource, rule: Metadata['rules_to_suppress'][number]): void {
  const { rules_to_suppress: others } = (resource.getMetadata(METADATA) ?? { rules_to_suppress: [] }) as Metadata;
  resource.addMetadata(METADATA, { rules_to_suppress: [...others, rule] } satisfies Metadata);
}

const WILDCARDS = 'AwsSolutions-IAM5';

/**
 * Acknowledges each wildcard in the policies of a role. The checks name a finding by the resource as they see it in the
 * template. Version 3 sees it once references between stacks are resolved. Validation runs after that and before the
 * checks. Version 2 is an aspect, and sees it earlier.
 */
export function acknowledgeWildcards(role: IConstruct, resources: readonly string[], reason: string): void {
  const findings = (): readonly string[] =>
    resources
      .map((resource) => `Resource::${flattened(Stack.of(role).resolve(resource))}`)
      .filter((finding) => finding.includes('*'));
  role.node.addValidation({
    validate: () => {
      try {
        for (const finding of findings()) Validations?.of(role).acknowledge({ id: `${WILDCARDS}[${finding}]`, reason });
      } catch (error) {
        // An older CDK, such as 2.253, refuses an id that ends in a resource. Then nothing can acknowledge it.
        if (!String(error).includes('Invalid validation rule ID')) throw error;
      }
      return [];
    },
  });
  Aspects.of(role).add(
    {
      visit(node) {
        if (!(node instanceof CfnPolicy || node instanceof CfnManagedPolicy)) return;
        addMetadata(node, { id: WILDCARDS, reason, applies_to: findings() });
      },
    },
    // Before the aspects that only read.
    { priority: AspectPriority.MUTATING },
  );
}

/** A value of a template as text, as the checks spell it: `<Logical.Attribute>/*`. */
function flattened(value: unknown): string {
  if (typeof value === 'string') return value;
  const [[name, argument] = []] = Object.entries(value as Record<string, unknown>);
  if (name === 'Ref') return `<${argument}>`;
  if (name === 'Fn::GetAtt') return `<${(argument as string[]).join('.')}>`;
  if (name === 'Fn::ImportValue') return flattened(argument);
  if (name === 'Fn::Join') {
    const [delimiter, parts] = argument as [string, unknown[]];
    return parts.map(flattened).join(delimiter);
  }
  return JSON.stringify(value);
}
