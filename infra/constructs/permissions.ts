import { Stack } from 'aws-cdk-lib';
import { type IRole, PolicyStatement } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IBucket } from 'aws-cdk-lib/aws-s3';
import type { IConstruct } from 'constructs';
import { acknowledgeWildcards } from './acknowledge.ts';

export interface Permission {
  readonly actions: readonly string[];
  readonly resources: readonly string[];
  readonly conditions?: Record<string, Record<string, unknown>>;
  /** Why a wildcard among the resources cannot be narrower. Required if there is one. */
  readonly wildcardReason?: string;
}

/** Allows the role these actions, and no more. The checks at synth report a wildcard that has no reason. */
export function allow(role: IRole, { actions, resources, conditions, wildcardReason }: Permission): void {
  role.addToPrincipalPolicy(new PolicyStatement({ actions: [...actions], resources: [...resources], conditions }));
  if (wildcardReason !== undefined) acknowledgeWildcards(role, resources, wildcardReason);
}

/** Allows the role these actions on a bucket or its objects, as long as the expected account owns the bucket. */
export function allowBucket(role: IRole, bucket: IBucket, permission: Permission): void {
  allow(role, { ...permission, conditions: ofOwner(bucket, permission.conditions) });
}

/**
 * Adds the condition that a bucket belongs to the account that it is known to belong to. An ARN of S3 names no account,
 * so another account could take over the name of a bucket that was deleted. For an imported bucket it is the account
 * that it was imported with, or else that of the stack.
 * @see https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html#condition-keys-resourceaccount
 */
export function ofOwner(bucket: IBucket, conditions: Permission['conditions'] = {}): Permission['conditions'] {
  const { StringEquals, ...others } = conditions;
  return { StringEquals: { ...StringEquals, 'aws:ResourceAccount': bucket.env.account }, ...others };
}

/**
 * Allows the role to use a key for reading or writing. A writer needs `Decrypt` too: S3 asks for it to complete a
 * multipart upload, and SQS asks for it to send. The role may use the key only through the service that holds the
 * encrypted data. So it cannot decrypt anything else that the key encrypts.
 *
 * This works for a key whose policy leaves access to IAM, as the default policy does. The policy of a key in another
 * account must allow this account as well.
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
  allow(role, { actions: keyActions(use), resources: [key.keyArn], conditions: viaService(role, service) });
}

export const keyActions = (use: 'read' | 'write'): string[] =>
  use === 'write' ? ['kms:Decrypt', 'kms:GenerateDataKey'] : ['kms:Decrypt'];

export function viaService(scope: IConstruct, service: string): Record<string, Record<string, string[]>> {
  const name = `${service}.${Stack.of(scope).region}.amazonaws.com`;
  // In the regions of China, the names of services may end in `.cn`.
  return { StringEquals: { 'kms:ViaService': [name, `${name}.cn`] } };
}

/** Words for the references that synth cannot resolve, unless the account and the region of the stack are given. */
const UNKNOWN_WORDS: Readonly<Record<string, string>> = {
  'AWS::AccountId': '<account>',
  'AWS::Region': '<region>',
  'AWS::Partition': '<partition>',
};

/** A statement as JSON that can be pasted into a policy. A word such as `<account>` stands for an unknown value. */
export function printed(scope: IConstruct, statement: PolicyStatement): string {
  return JSON.stringify(inWords(Stack.of(scope).resolve(statement.toStatementJson())));
}

interface Intrinsic {
  readonly Ref?: string;
  readonly 'Fn::GetAtt'?: readonly string[];
  readonly 'Fn::Join'?: readonly [string, unknown[]];
}

function inWords(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inWords);
  if (typeof value !== 'object' || value === null) return value;
  const { Ref, 'Fn::GetAtt': attribute, 'Fn::Join': join } = value as Intrinsic;
  if (Ref !== undefined) return UNKNOWN_WORDS[Ref] ?? `<${Ref}>`;
  if (attribute !== undefined) return `<${attribute.join('.')}>`;
  if (join !== undefined) return join[1].map(inWords).join(join[0]);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, inWords(member)]));
}
