import { Annotations, Stack } from 'aws-cdk-lib';
import { PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IConstruct } from 'constructs';
import { printed } from './permissions.ts';

/** What an AWS service may do with a key. */
interface ServiceUse {
  readonly service: string;
  readonly actions: string[];
  readonly conditions: Record<string, Record<string, unknown>>;
}

/** Permissions to send to an encrypted queue or topic. */
const SENDING = ['kms:Decrypt', 'kms:GenerateDataKey*'];

/**
 * Permissions to encrypt a log group.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
 */
const LOGGING = ['kms:Encrypt*', 'kms:Decrypt*', 'kms:ReEncrypt*', 'kms:GenerateDataKey*', 'kms:Describe*'];

/** Allows an AWS service to send to queues and topics that the key encrypts, on behalf of this account only. */
export function allowSending(scope: IConstruct, key: IKey | undefined, service: string): void {
  allowService(scope, key, sending(scope, service));
}

/** The statement of {@link allowSending}, for a key that is not known. */
export const statementOfSending = (scope: IConstruct, service: string): string =>
  printed(scope, statementOf(sending(scope, service)));

const sending = (scope: IConstruct, service: string): ServiceUse => ({
  service,
  actions: SENDING,
  conditions: { StringEquals: { 'aws:SourceAccount': Stack.of(scope).account } },
});

/** Allows CloudWatch to encrypt the log groups whose names start with `prefix`. */
export function allowLogging(scope: IConstruct, key: IKey | undefined, prefix: string): void {
  const { partition, region, account } = Stack.of(scope);
  const logGroups = `arn:${partition}:logs:${region}:${account}:log-group:${prefix}*`;
  const conditions = { ArnLike: { 'kms:EncryptionContext:aws:logs:arn': logGroups } };
  allowService(scope, key, { service: `logs.${region}.amazonaws.com`, actions: LOGGING, conditions });
}

/** Adds a statement to the key's policy. If the key is imported, a warning at synth asks for the statement instead. */
function allowService(scope: IConstruct, key: IKey | undefined, use: ServiceUse): void {
  if (key === undefined) return;
  const statement = statementOf(use);
  if (key.addToResourcePolicy(statement, true).statementAdded) return;
  Annotations.of(scope).addWarningV2(
    `flowdrop:key-policy-${use.service.split('.')[0]}`,
    `This app cannot change the policy of the encryption key. Add this statement to it: ${printed(scope, statement)}`,
  );
}

const statementOf = ({ service, actions, conditions }: ServiceUse): PolicyStatement =>
  new PolicyStatement({ principals: [new ServicePrincipal(service)], actions, resources: ['*'], conditions });
