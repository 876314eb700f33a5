import { Duration, Stack } from 'aws-cdk-lib';
import { type IRole, PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { type CfnQueuePolicy, type DeadLetterQueue, Queue, QueueEncryption } from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { allowSending } from './encryption.ts';
import { allow, allowKey } from './permissions.ts';
import { FUNCTION_TIMEOUT } from './pipeline-function.ts';

/**
 * How much longer than an invocation may take a message stays hidden, beside the batching window. A claim outlives its
 * invocation by a minute, so a message that came back sooner would find its own claim and could only wait. The second
 * minute is for the time between receiving a message and starting the function.
 * An upload that waits for its turn at a service which limits creations waits within its invocation, so it adds nothing.
 *
 * Six times the function's timeout is often advised, for queues whose function is throttled; here that would be an hour
 * and a half before a file whose function crashed is tried again. Throttling is met by {@link RECEIVES_MAX} instead.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
 */
const HIDDEN_BEYOND_TIMEOUT = Duration.seconds(120);

/**
 * What waits, waits in the ledger; a message comes back only from a crash, a throttled function, an unreachable ledger
 * or a batch that had no time left for it. With this many receives those may last five hours and more. And they are more
 * than the attempts that a file has by default, so that one which the function dies of ends with a receipt.
 */
const RECEIVES_MAX = 20;

/** As long as SQS allows. */
const RETENTION = Duration.days(14);

export interface UploadQueueProps {
  readonly encryptionKey: IKey | undefined;
  readonly batchWindow: Duration | undefined;
}

/** The queue of uploads, and its dead-letter queue. */
export class UploadQueue extends Construct {
  readonly queue: Queue;
  readonly deadLetters: Queue;

  constructor(scope: Construct, id: string, { encryptionKey, batchWindow = Duration.seconds(0) }: UploadQueueProps) {
    super(scope, id);
    const common = {
      encryption: encryptionKey === undefined ? QueueEncryption.SQS_MANAGED : QueueEncryption.KMS,
      encryptionMasterKey: encryptionKey,
      enforceSSL: true,
      retentionPeriod: RETENTION,
    };
    this.deadLetters = new Queue(this, 'DeadLetters', common);
    const deadLetterQueue: DeadLetterQueue = { queue: this.deadLetters, maxReceiveCount: RECEIVES_MAX };
    const visibilityTimeout = FUNCTION_TIMEOUT.plus(HIDDEN_BEYOND_TIMEOUT).plus(batchWindow);
    this.queue = new Queue(this, 'Uploads', { ...common, visibilityTimeout, deadLetterQueue });
  }

  /**
   * Lets S3 or EventBridge send. On behalf of this account only, rather than of one bucket or rule: a bucket can be
   * made only when the policy that lets it send is there, so the policy cannot name the bucket.
   * @returns what must exist before a bucket may be told to send here.
   */
  allowSender(service: 's3.amazonaws.com' | 'events.amazonaws.com'): CfnQueuePolicy {
    this.queue.addToResourcePolicy(
      new PolicyStatement({
        principals: [new ServicePrincipal(service)],
        actions: ['sqs:SendMessage'],
        resources: [this.queue.queueArn],
        conditions: { StringEquals: { 'aws:SourceAccount': Stack.of(this).account } },
      }),
    );
    allowSending(this, this.queue.encryptionMasterKey, service);
    return this.queue.node.findChild('Policy').node.defaultChild as CfnQueuePolicy;
  }

  /** What Lambda's poller needs of the role of the function that it polls for. */
  grantConsume(role: IRole): void {
    const actions = ['sqs:ReceiveMessage', 'sqs:DeleteMessage', 'sqs:GetQueueAttributes'];
    allow(role, { actions, resources: [this.queue.queueArn] });
    allowKey(role, this.queue.encryptionMasterKey, 'read', 'sqs');
  }

  grantSend(role: IRole): void {
    allow(role, { actions: ['sqs:SendMessage'], resources: [this.queue.queueArn] });
    allowKey(role, this.queue.encryptionMasterKey, 'write', 'sqs');
  }
}
