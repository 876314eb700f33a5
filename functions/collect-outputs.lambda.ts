import { SQSClient } from '@aws-sdk/client-sqs';
import { collect } from './collect-outputs.ts';
import { portsOf } from './ports.ts';
import { AWS_CLIENT, lambda } from './runtime.ts';
import { uploadQueue } from './upload-queue.ts';

/** On schedule: one tick. With `{"retry": ["<upload id>"]}`: failed and held uploads are sent on their way again. */
export const handler = lambda(
  (world) => portsOf({ ...world, queue: uploadQueue(new SQSClient(AWS_CLIENT), world.settings.queueUrl) }),
  collect,
);
