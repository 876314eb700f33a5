import { Stack, Validations } from 'aws-cdk-lib';
import { PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IConstruct } from 'constructs';

type Conditions = Record<string, Record<string, unknown>>;

/**
 * Lets a service of AWS use the key on behalf of this account. A key that is not of this app keeps its policy, so the
 * deployer is told what the policy must say.
 */
export function allowService(scope: IConstruct, key: IKey | undefined, service: string, conditions: Conditions): void {
  if (key === undefined) return;
  const statement = new PolicyStatement({
    principals: [new ServicePrincipal(service)],
    actions: ['kms:Decrypt', 'kms:GenerateDataKey*'],
    resources: ['*'],
    conditions,
  });
  if (key.addToResourcePolicy(statement, true).statementAdded) return;
  Validations.of(scope).addWarning(
    `flowdrop:key-policy:${service}`,
    `The policy of the encryption key is kept elsewhere and must have this statement: ${JSON.stringify(Stack.of(scope).resolve(statement.toStatementJson()))}`,
  );
}
