import { SQSClient } from '@aws-sdk/client-sqs';
import { collect } from './collect-outputs/collect-outputs.ts';
import { downloadAsset } from './flow-service/asset-download.ts';
import { AWS_CLIENT, lambda } from './lambda/lambda.ts';
import { collectOutputsPorts } from './lambda/ports.ts';
import { roundQueue, uploadQueue } from './resubmit/resubmit.ts';

/** An emulator may give queues an address that its functions cannot reach, so the client goes by its own endpoint. */
const SQS = { ...AWS_CLIENT, useQueueUrlAsEndpoint: false } as const;

/** Runs one tick on schedule, a later round of it, or what an operator's event asks for: see `collect-event.ts`. */
export const handler = lambda(
  (wiring) => {
    const { queueUrl, roundQueueUrl } = wiring.settings;
    const sqs = new SQSClient(SQS);
    return {
      ...collectOutputsPorts({ ...wiring, queue: uploadQueue(sqs, queueUrl) }),
      nextRound: roundQueueUrl === undefined ? undefined : roundQueue(sqs, roundQueueUrl),
    };
  },
  collect,
  { download: downloadAsset },
);
