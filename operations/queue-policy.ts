import * as z from 'zod/mini';
import { type AwsAccess, askJson } from './aws-requests.ts';
import { DEPLOY_AGAIN, type Outcome } from './checks.ts';
import type { Deployment } from './deployment.ts';
import { keyPolicy, missingKeyActions, policyAllows } from './policy.ts';

/** Who brings announcements to the queue: the bucket itself, or a rule. */
export type Sender = 's3.amazonaws.com' | 'events.amazonaws.com';

const answerSchema = z.object({
  Attributes: z._default(z.object({ Policy: z.optional(z.string()), KmsMasterKeyId: z.optional(z.string()) }), {}),
});

/**
 * Checks that the policies of the queue and of its key let the sender in. Their conditions are not checked.
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
  if (Policy === undefined || !policyAllows(Policy, { Service: [sender] }, 'sqs:SendMessage')) {
    const what = `The policy of the queue ${QueueUrl} does not let ${sender} send, so no upload is announced.`;
    return { severity: 'fault', what, todo: `${DEPLOY_AGAIN} Until then the daily sweep finds the uploads.` };
  }
  return KmsMasterKeyId === undefined ? 'good' : examineKeyPolicy(KmsMasterKeyId, sender, access, signal);
}

async function examineKeyPolicy(
  KeyId: string,
  sender: Sender,
  access: AwsAccess,
  signal: AbortSignal,
): Promise<Outcome> {
  if (/(^|\/)alias\/aws\//.test(KeyId)) {
    return {
      severity: 'fault',
      what: `The queue is encrypted with the key ${KeyId} of AWS, which ${sender} may not use.`,
      todo: `${DEPLOY_AGAIN} Or give the queue a key of your own that lets the service in.`,
    };
  }
  if (/(^|:)alias\//.test(KeyId)) return { notChecked: `the queue names its key by the alias ${KeyId}` };
  const missing = missingKeyActions(await keyPolicy(KeyId, access, signal), { Service: [sender] });
  if (missing.length === 0) return 'good';
  const what = `The policy of the queue's key ${KeyId} does not allow ${sender} to call ${missing.join(' and ')}, so no upload is announced.`;
  const todo =
    "Add the statement from the warning of cdk synth to the key's policy. Until then the daily sweep finds the uploads.";
  return { severity: 'fault', what, todo };
}
