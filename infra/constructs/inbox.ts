import { Duration, type RemovalPolicy } from 'aws-cdk-lib';
import { Rule } from 'aws-cdk-lib/aws-events';
import { Grant, type IGrantable, type IRole } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { CfnBucket, IBucket } from 'aws-cdk-lib/aws-s3';
import { Construct } from 'constructs';
import { pipelineBucket } from './bucket.ts';
import { allow, allowKey } from './permissions.ts';
import type { UploadQueue } from './upload-queue.ts';

/**
 * An upload that waits in the ledger, for a new token or for a budget, must still find its version when it is due.
 * Nobody should need a month for either.
 */
const REPLACED_VERSION_LIFETIME = Duration.days(30);

export interface InboxProps {
  readonly existing: IBucket | undefined;
  readonly prefix: string;
  readonly uploads: UploadQueue;
  readonly encryptionKey: IKey | undefined;
  readonly removalPolicy: RemovalPolicy;
  readonly accessLogsBucket: IBucket | undefined;
  readonly s3Events: boolean;
}

/** Where uploads come from, and how they get into the queue. */
export class Inbox extends Construct {
  readonly bucket: IBucket;
  readonly #prefix: string;

  constructor(scope: Construct, id: string, props: InboxProps) {
    super(scope, id);
    this.#prefix = props.prefix;
    this.bucket = props.existing ?? this.#newBucket(props);
    if (props.existing !== undefined) this.#listenTo(props.existing, props);
  }

  #newBucket({ prefix, uploads, s3Events, ...props }: InboxProps): IBucket {
    const bucket = pipelineBucket(this, 'Bucket', {
      ...props,
      // An upload is one version, and stays what it was when its event was sent, whatever is put over it.
      versioned: true,
      lifecycleRules: [
        {
          noncurrentVersionExpiration: REPLACED_VERSION_LIFETIME,
          expiredObjectDeleteMarker: true,
        },
      ],
    });
    const resource = bucket.node.defaultChild as CfnBucket;
    // Set here rather than by `addEventNotification`, which would bring a function of its own that sets it later.
    resource.notificationConfiguration = {
      queueConfigurations: [
        {
          event: 's3:ObjectCreated:*',
          queue: uploads.queue.queueArn,
          filter: prefix === '' ? undefined : { s3Key: { rules: [{ name: 'prefix', value: prefix }] } },
        },
      ],
      eventBridgeConfiguration: s3Events ? { eventBridgeEnabled: true } : undefined,
    };
    // S3 sends a test message when it is told of the queue, and refuses the queue that does not take it.
    resource.addResourceDependency(uploads.allowSender('s3.amazonaws.com'));
    return bucket;
  }

  /** By its EventBridge events, which leave the notifications that its owner has set up as they are. */
  #listenTo(bucket: IBucket, { prefix, uploads }: InboxProps): void {
    uploads.allowSender('events.amazonaws.com');
    new Rule(this, 'ObjectCreated', {
      description: `Uploads of ${this.node.path}, to its queue`,
      eventPattern: {
        source: ['aws.s3'],
        detailType: ['Object Created'],
        detail: {
          bucket: { name: [bucket.bucketName] },
          ...(prefix !== '' && { object: { key: [{ prefix }] } }),
        },
      },
      targets: [{ bind: () => ({ arn: uploads.queue.queueArn }) }],
    });
  }

  /** Lets a function open uploads at exactly their version, and tell an absent one from a forbidden one. */
  grantOpen(role: IRole): void {
    this.#grantRead(role, ['s3:GetObject', 's3:GetObjectVersion']);
    allowKey(role, this.bucket.encryptionKey, 'read', 's3');
  }

  /**
   * Lets a function ask which upload is current at a key, and go through all of them. That takes nothing that is
   * encrypted, so where the inbox has a key of its own the function cannot read what is in it.
   */
  grantCompare(role: IRole): void {
    this.#grantRead(role, ['s3:GetObject']);
    allow(role, {
      actions: ['s3:ListBucketVersions'],
      resources: [this.bucket.bucketArn],
      conditions: this.#prefix === '' ? undefined : { StringEquals: { 's3:prefix': this.#prefix } },
    });
  }

  #grantRead(role: IRole, actions: readonly string[]): void {
    allow(role, {
      actions,
      resources: [this.bucket.arnForObjects(`${this.#prefix}*`)],
      wildcardReason: 'Uploads may have any key below the prefix of the inbox.',
    });
    // Without it S3 says of an absent object that it is forbidden. It cannot be narrowed to a prefix, which a request
    // for one object does not have.
    allow(role, { actions: ['s3:ListBucket'], resources: [this.bucket.bucketArn] });
  }

  /** Lets somebody drop files, and nothing else: not read them, nor list what others have dropped. */
  grantUpload(grantee: IGrantable): Grant {
    this.bucket.encryptionKey?.grant(grantee, 'kms:Decrypt', 'kms:GenerateDataKey');
    return Grant.addToPrincipalOrResource({
      grantee,
      actions: ['s3:PutObject', 's3:AbortMultipartUpload', 's3:ListMultipartUploadParts'],
      resourceArns: [this.bucket.arnForObjects(`${this.#prefix}*`)],
      resource: this.bucket,
    });
  }
}
