import { SendMessageCommand, type SQSClient } from '@aws-sdk/client-sqs';
import type { UploadQueue } from './resubmit.ts';

/** The queue of uploads in SQS. It stands apart from the other ports because create-flow does not send to it. */
export function uploadQueue(sqs: SQSClient, QueueUrl: string): UploadQueue {
  return {
    async send(MessageBody, abortSignal) {
      await sqs.send(new SendMessageCommand({ QueueUrl, MessageBody }), { abortSignal });
    },
  };
}
