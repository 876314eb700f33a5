import { SQSClient } from '@aws-sdk/client-sqs';
import { collect } from './collect-outputs/collect-outputs.ts';
import { AWS_CLIENT, lambda } from './lambda/lambda.ts';
import { portsOf } from './lambda/ports.ts';
import { uploadQueue } from './resubmit/upload-queue.ts';

/** On schedule: one tick. With `{"retry": ["<upload id>"]}`: failed and held uploads are sent on their way again. */
export const handler = lambda(
  (world) => portsOf({ ...world, queue: uploadQueue(new SQSClient(AWS_CLIENT), world.settings.queueUrl) }),
  collect,
);
