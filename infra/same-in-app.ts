import { Reference, Stack, Stage, Token, TokenComparison, Tokenization } from 'aws-cdk-lib';
import type { IConstruct } from 'constructs';

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

/**
 * Tells whether two constructs are deployed to one account and region, as far as synth can know. Stacks whose
 * environment is unknown are taken for that, unless they are of different stages.
 */
export function isBeside(one: IConstruct, other: IConstruct): boolean {
  const [ours, theirs] = [Stack.of(one), Stack.of(other)];
  return (['account', 'region'] as const).every((part) => {
    const comparison = Token.compareStrings(ours[part], theirs[part]);
    if (comparison === TokenComparison.BOTH_UNRESOLVED) return Stage.of(ours) === Stage.of(theirs);
    return comparison === TokenComparison.SAME;
  });
}
