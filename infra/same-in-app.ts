import { Reference, Tokenization } from 'aws-cdk-lib';

/**
 * Tells whether two values, such as ARNs, are the same in the whole app. Once resolved, they can only be compared
 * within one stack: the stacks of an app often have the same logical ids.
 */
export const isSameInApp = (one: string, other: string): boolean => identityOf(one) === identityOf(other);

function identityOf(value: string): string {
  const { length, firstToken } = Tokenization.reverseString(value);
  const isReference = length === 1 && firstToken !== undefined && Reference.isReference(firstToken);
  return isReference ? `${firstToken.target.node.path}.${firstToken.displayName}` : value;
}
