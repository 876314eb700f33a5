import * as z from 'zod/mini';
import { type AwsAccess, askJson } from './aws-requests.ts';

const oneOrMore = z.union([z.string(), z.array(z.string())]);
const statementSchema = z.object({
  Effect: z.string(),
  Action: z.optional(oneOrMore),
  Principal: z.optional(
    z.union([z.string(), z.object({ AWS: z.optional(oneOrMore), Service: z.optional(oneOrMore) })]),
  ),
});
const policySchema = z.object({ Statement: z.union([statementSchema, z.array(statementSchema)]) });

/** Who is let in: accounts and roles by their names in a policy, or services of AWS. */
export interface PolicyPrincipal {
  readonly AWS?: readonly string[];
  readonly Service?: readonly string[];
}

/** Tells whether the policy of a resource allows one of the principals an action. Conditions are not checked. */
export function policyAllows(policy: string, { AWS = [], Service = [] }: PolicyPrincipal, wanted: string): boolean {
  const { Statement } = policySchema.parse(JSON.parse(policy));
  return [Statement].flat().some(({ Effect, Action = [], Principal }) => {
    const named = typeof Principal === 'object' ? Principal : { AWS: Principal };
    const accounts = [named.AWS ?? []].flat();
    const services = [named.Service ?? []].flat();
    const isLetIn =
      accounts.includes('*') ||
      AWS.some((each) => accounts.includes(each)) ||
      Service.some((each) => services.includes(each));
    return Effect === 'Allow' && isLetIn && [Action].flat().some((action) => isLike(wanted, action));
  });
}

const keyPolicySchema = z.object({ Policy: z.string() });

/** What a service or a role does with a key under which it writes. */
export const KEY_ACTIONS: readonly string[] = ['kms:Decrypt', 'kms:GenerateDataKey'];

/** The policy of a KMS key. @throws {AwsRequestError} */
export async function keyPolicy(KeyId: string, access: AwsAccess, signal: AbortSignal): Promise<string> {
  const question = { service: 'kms', target: 'TrentService.GetKeyPolicy', version: '1.1' } as const;
  const answer = await askJson({ ...question, input: { KeyId, PolicyName: 'default' } }, access, signal);
  return keyPolicySchema.parse(answer).Policy;
}

/** Those of the actions that the policy of a key does not allow. */
export const missingKeyActions = (
  policy: string,
  principal: PolicyPrincipal,
  needed = KEY_ACTIONS,
): readonly string[] => needed.filter((action) => !policyAllows(policy, principal, action));

/** Compares actions as IAM does: without regard to case, `*` for any characters and `?` for one. */
function isLike(action: string, pattern: string): boolean {
  const source = RegExp.escape(pattern).replaceAll('\\*', '.*').replaceAll('\\?', '.');
  return new RegExp(`^${source}$`, 'i').test(action);
}
