import * as z from 'zod/mini';
import { askJson } from './aws-requests.ts';
import type { Outcome } from './checks.ts';
import type { Deployment } from './deployment.ts';

/** Who brings announcements to the queue: the bucket itself, or a rule. */
export type Sender = 's3.amazonaws.com' | 'events.amazonaws.com';

const answerSchema = z.object({
  Attributes: z._default(z.object({ Policy: z.optional(z.string()), KmsMasterKeyId: z.optional(z.string()) }), {}),
});

const oneOrMore = z.union([z.string(), z.array(z.string())]);
const policySchema = z.object({
  Statement: z.array(
    z.object({
      Effect: z.string(),
      Action: z.optional(oneOrMore),
      Principal: z.optional(z.union([z.string(), z.object({ Service: z.optional(oneOrMore) })])),
    }),
  ),
});

/**
 * Tells whether the policy of the queue lets a sender in, and whether the sender can use its key. The conditions of the
 * policy, and the policy of a key of your own, are not checked.
 * @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
 */
export async function examineQueuePolicy(
  sender: Sender,
  { access, settings }: Pick<Deployment, 'access' | 'settings'>,
  signal: AbortSignal,
): Promise<Outcome> {
  const { queueUrl: QueueUrl } = settings;
  const input = { QueueUrl, AttributeNames: ['Policy', 'KmsMasterKeyId'] };
  const answer = await askJson({ service: 'sqs', target: 'AmazonSQS.GetQueueAttributes', input }, access, signal);
  const { Policy, KmsMasterKeyId } = answerSchema.parse(answer).Attributes;
  if (KmsMasterKeyId !== undefined && /(^|\/)alias\/aws\//.test(KmsMasterKeyId)) {
    return {
      severity: 'fault',
      what: `The queue is encrypted with the key ${KmsMasterKeyId} of AWS, which ${sender} may not use.`,
      todo: 'Deploy the stack again, or give the queue a key of your own that lets the service in.',
    };
  }
  if (Policy !== undefined && allows(Policy, sender)) return 'good';
  const what = `The policy of the queue ${QueueUrl} does not let ${sender} send, so no upload is announced.`;
  return { severity: 'fault', what, todo: 'Deploy the stack again. Until then the daily sweep finds the uploads.' };
}

function allows(policy: string, sender: Sender): boolean {
  const { Statement } = policySchema.parse(JSON.parse(policy));
  return Statement.some(({ Effect, Action = [], Principal }) => {
    const services = typeof Principal === 'object' ? list(Principal.Service ?? []) : [];
    const isSender = Principal === '*' || services.includes(sender);
    return Effect === 'Allow' && isSender && list(Action).some((action) => /^(sqs:)?(\*|sendmessage)$/i.test(action));
  });
}

const list = (value: string | readonly string[]): readonly string[] => (typeof value === 'string' ? [value] : value);
