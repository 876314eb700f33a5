import { Stack, Validations } from 'aws-cdk-lib';
import { PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IConstruct } from 'constructs';

type Conditions = Record<string, Record<string, unknown>>;

/** What sending to an encrypted queue or topic takes. */
const SENDING = ['kms:Decrypt', 'kms:GenerateDataKey*'];

/** @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html */
const LOGGING = ['kms:Encrypt*', 'kms:Decrypt*', 'kms:ReEncrypt*', 'kms:GenerateDataKey*', 'kms:Describe*'];

/** Lets a service send to what the key encrypts, on behalf of this account. */
export function allowSending(scope: IConstruct, key: IKey | undefined, service: string): void {
  allowService(scope, key, service, SENDING, {
    StringEquals: { 'aws:SourceAccount': Stack.of(scope).account },
  });
}

/** Lets CloudWatch encrypt the log groups whose names start with `prefix`. */
export function allowLogging(scope: IConstruct, key: IKey | undefined, prefix: string): void {
  const { partition, region, account } = Stack.of(scope);
  allowService(scope, key, `logs.${region}.amazonaws.com`, LOGGING, {
    ArnLike: {
      'kms:EncryptionContext:aws:logs:arn': `arn:${partition}:logs:${region}:${account}:log-group:${prefix}*`,
    },
  });
}

/** A key that is not of this app keeps its policy, so the deployer is told what the policy must say. */
function allowService(
  scope: IConstruct,
  key: IKey | undefined,
  service: string,
  actions: string[],
  conditions: Conditions,
): void {
  if (key === undefined) return;
  const principals = [new ServicePrincipal(service)];
  const statement = new PolicyStatement({ principals, actions, resources: ['*'], conditions });
  if (key.addToResourcePolicy(statement, true).statementAdded) return;
  const json = JSON.stringify(Stack.of(scope).resolve(statement.toStatementJson()));
  Validations.of(scope).addWarning(
    `flowdrop:key-policy-${service.split('.')[0]}`,
    `The policy of the encryption key is kept elsewhere and must have this statement: ${json}`,
  );
}
