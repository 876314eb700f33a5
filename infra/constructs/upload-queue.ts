import { Duration, Stack } from 'aws-cdk-lib';
import { type IRole, PolicyStatement, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import {
  type CfnQueuePolicy,
  type DeadLetterQueue,
  Queue,
  QueueEncryption,
  RedrivePermission,
} from 'aws-cdk-lib/aws-sqs';
import { Construct } from 'constructs';
import { HIDDEN_BEYOND_TIMEOUT_SECONDS, RECEIVES_MAX } from '../function-limits.ts';
import { acknowledge } from './acknowledge.ts';
import { allowSending } from './encryption.ts';
import type { Grants } from './grants.ts';
import { allow, allowKey } from './permissions.ts';
import { FUNCTION_TIMEOUT } from './pipeline-function.ts';

/** The maximum of SQS. */
export const MESSAGE_RETENTION = Duration.days(14);

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
      retentionPeriod: MESSAGE_RETENTION,
    };
    this.deadLetters = new Queue(this, 'DeadLetters', common);
    const deadLetterQueue: DeadLetterQueue = { queue: this.deadLetters, maxReceiveCount: RECEIVES_MAX };
    const visibilityTimeout = FUNCTION_TIMEOUT.plus(Duration.seconds(HIDDEN_BEYOND_TIMEOUT_SECONDS)).plus(batchWindow);
    this.queue = new Queue(this, 'Uploads', {
      ...common,
      visibilityTimeout,
      deadLetterQueue,
      // No queue may make this one its dead-letter queue: foreign messages would be taken for uploads. The dead-letter
      // queue cannot be limited to this queue, because each of the two would need the ARN of the other one first.
      redriveAllowPolicy: { redrivePermission: RedrivePermission.DENY_ALL },
    });
  }

  /**
   * Allows S3 or EventBridge to send on behalf of this account. The policy cannot name one bucket: the bucket can be
   * created only after the policy that allows it to send. EventBridge makes a dead letter of what it cannot send.
   * @returns the policy, which must exist before a bucket can send here.
   */
  allowSender(service: 's3.amazonaws.com' | 'events.amazonaws.com'): CfnQueuePolicy {
    for (const queue of service === 'events.amazonaws.com' ? [this.queue, this.deadLetters] : [this.queue]) {
      queue.addToResourcePolicy(
        new PolicyStatement({
          principals: [new ServicePrincipal(service)],
          actions: ['sqs:SendMessage'],
          resources: [queue.queueArn],
          conditions: { StringEquals: { 'aws:SourceAccount': Stack.of(this).account } },
        }),
      );
    }
    allowSending(this, this.queue.encryptionMasterKey, service);
    return this.queue.node.findChild('Policy').node.defaultChild as CfnQueuePolicy;
  }

  /** Allows the role of a function to receive. Lambda's poller uses that role. */
  grantConsume(role: IRole): void {
    const actions = ['sqs:ReceiveMessage', 'sqs:DeleteMessage', 'sqs:GetQueueAttributes'];
    allow(role, { actions, resources: [this.queue.queueArn] });
    allowKey(role, this.queue.encryptionMasterKey, 'read', 'sqs');
  }

  /** Allows the grantee to read the lengths of the queues, and the policies of the upload queue and of its key. */
  grantView(grants: Grants): void {
    const resources = [this.queue.queueArn, this.deadLetters.queueArn];
    grants.add({ actions: ['sqs:GetQueueAttributes'], resources });
    const key = this.queue.encryptionMasterKey;
    if (key === undefined) return;
    grants.add({ actions: ['kms:GetKeyPolicy'], resources: [key.keyArn] });
  }

  /** Allows the role to send, and to ask how many messages wait. */
  grantSend(role: IRole): void {
    allow(role, { actions: ['sqs:SendMessage', 'sqs:GetQueueAttributes'], resources: [this.queue.queueArn] });
    allowKey(role, this.queue.encryptionMasterKey, 'write', 'sqs');
  }
}

/**
 * The queue of the delayed messages that begin the rounds of a tick. A message that was not handled is of no use after
 * the tick's minute: the next tick does the same.
 */
export class RoundQueue extends Construct {
  readonly queue: Queue;

  constructor(scope: Construct, id: string, { encryptionKey }: Pick<UploadQueueProps, 'encryptionKey'>) {
    super(scope, id);
    this.queue = new Queue(this, 'Rounds', {
      encryption: encryptionKey === undefined ? QueueEncryption.SQS_MANAGED : QueueEncryption.KMS,
      encryptionMasterKey: encryptionKey,
      enforceSSL: true,
      retentionPeriod: Duration.minutes(1),
      visibilityTimeout: FUNCTION_TIMEOUT,
    });
    acknowledge(this.queue, {
      id: 'AwsSolutions-SQS3',
      reason: 'A message that was not handled is of no use: the next tick does the same.',
    });
  }

  /** Allows the role of a function to send and to receive. Lambda's poller uses that role. */
  grantUse(role: IRole): void {
    const actions = ['sqs:SendMessage', 'sqs:ReceiveMessage', 'sqs:DeleteMessage', 'sqs:GetQueueAttributes'];
    allow(role, { actions, resources: [this.queue.queueArn] });
    for (const use of ['read', 'write'] as const) allowKey(role, this.queue.encryptionMasterKey, use, 'sqs');
  }
}
