import { Stack, Validations } from 'aws-cdk-lib';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import { Effect, PolicyStatement } from 'aws-cdk-lib/aws-iam';
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

/** Keeps a role from doing this whatever else lets it. */
export function deny(role: IRole, { actions, resources, conditions }: Omit<Permission, 'wildcardReason'>): void {
  role.addToPrincipalPolicy(
    new PolicyStatement({ effect: Effect.DENY, actions: [...actions], resources: [...resources], conditions }),
  );
}

/**
 * Lets a role use a key for what is read, or for what is written: S3 needs `Decrypt` of a writer too, for the parts of
 * a multipart upload, and SQS needs it of a sender. Only through the service that keeps what the key encrypts: what
 * else the key's owner has encrypted with it is none of the role's business. The key's policy leaves it to its account
 * to say who may use it, as policies of keys do unless somebody takes that out; a key of another account must itself
 * let this one.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html ("Multipart upload API and permissions")
 * @see https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html#conditions-kms-via-service
 */
export function allowKey(
  role: IRole,
  key: IKey | undefined,
  use: 'read' | 'write',
  service: 's3' | 'sqs' | 'secretsmanager',
): void {
  if (key === undefined) return;
  const name = `${service}.${Stack.of(role).region}.amazonaws.com`;
  allow(role, {
    actions: ['kms:Decrypt', ...(use === 'write' ? ['kms:GenerateDataKey'] : [])],
    resources: [key.keyArn],
    // In the regions of China the names of services may end otherwise.
    conditions: { StringEquals: { 'kms:ViaService': [name, `${name}.cn`] } },
  });
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
