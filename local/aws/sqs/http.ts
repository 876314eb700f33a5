import * as z from 'zod/mini';
import { AwsError, operation, serveAwsJson } from '../aws-json.ts';
import type { AwsEndpoint, EndpointAccess } from '../endpoint.ts';
import { md5, type Queue } from './queue.ts';

export interface SqsEndpoint extends AwsEndpoint {
  urlOf(queue: Queue): string;
}

/**
 * Serves queues to the SDK's SQS client. The functions send, and an operator asks how many messages there are. Lambda's
 * event source mapping receives and deletes messages, and takes them from the {@link Queue} itself.
 */
export async function serveQueues(queues: readonly Queue[], access: EndpointAccess): Promise<SqsEndpoint> {
  const find = (queueUrl: string): Queue => {
    const name = queueUrl.split('/').at(-1);
    const queue = queues.find((candidate) => candidate.name === name);
    if (queue) return queue;
    throw new AwsError('QueueDoesNotExist', 'The specified queue does not exist.', {
      queryCode: 'AWS.SimpleQueueService.NonExistentQueue',
    });
  };
  const endpoint = await serveAwsJson({
    version: '1.0',
    target: 'AmazonSQS',
    service: 'sqs',
    hasQueryCodes: true,
    ...access,
    operations: {
      GetQueueAttributes: operation(z.object({ QueueUrl: z.string() }), ({ QueueUrl }) => {
        const queue = find(QueueUrl);
        const { visible, inFlight, delayed } = queue.counts();
        return {
          Attributes: {
            ...queue.attributes,
            ApproximateNumberOfMessages: String(visible),
            ApproximateNumberOfMessagesNotVisible: String(inFlight),
            ApproximateNumberOfMessagesDelayed: String(delayed),
          },
        };
      }),
      SendMessage: operation(
        z.object({ QueueUrl: z.string(), MessageBody: z.optional(z.string()), DelaySeconds: z.optional(z.number()) }),
        ({ QueueUrl, MessageBody = '', DelaySeconds = 0 }) => {
          const { messageId } = find(QueueUrl).send(MessageBody, { delaySeconds: DelaySeconds });
          return { MessageId: messageId, MD5OfMessageBody: md5(MessageBody) };
        },
      ),
    },
  });
  return { ...endpoint, urlOf: (queue) => `${endpoint.endpoint}/000000000000/${queue.name}` };
}
