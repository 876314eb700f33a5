import { Stack, Validations } from 'aws-cdk-lib';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import { PolicyStatement } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IConstruct } from 'constructs';

export interface Permission {
  readonly actions: readonly string[];
  readonly resources: readonly string[];
  readonly conditions?: Record<string, Record<string, unknown>>;
  /** Why a wildcard among the resources is as narrow as it can be. Needed where there is one. */
  readonly wildcardReason?: string;
}

/** Lets a role do exactly this. A wildcard without a reason is left for the checks at synth to find. */
export function allow(role: IRole, { actions, resources, conditions, wildcardReason }: Permission): void {
  role.addToPrincipalPolicy(new PolicyStatement({ actions: [...actions], resources: [...resources], conditions }));
  if (wildcardReason !== undefined) acknowledgeWildcards(role, resources, wildcardReason);
}

/**
 * Lets a role use a key for what is read, or for what is written: S3 needs `Decrypt` of a writer too, for the parts of
 * a multipart upload, and SQS needs it of a sender.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html ("Multipart upload API and permissions")
 */
export function allowKey(role: IRole, key: IKey | undefined, use: 'read' | 'write'): void {
  key?.grant(role, 'kms:Decrypt', ...(use === 'write' ? ['kms:GenerateDataKey'] : []));
}

/**
 * The checks name a finding by the resource as it stands in the template, and only once references between stacks are
 * resolved is it known how that is: hence at validation, the step between that and the checks.
 */
function acknowledgeWildcards(scope: IConstruct, resources: readonly string[], reason: string): void {
  scope.node.addValidation({
    validate: () => {
      for (const resource of resources) {
        const id = `AwsSolutions-IAM5[Resource::${flattened(Stack.of(scope).resolve(resource))}]`;
        if (id.includes('*')) Validations.of(scope).acknowledge({ id, reason });
      }
      return [];
    },
  });
}

/** A value of a template as one line of text, in the spelling of the checks: `<Logical.Attribute>/*`. */
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
