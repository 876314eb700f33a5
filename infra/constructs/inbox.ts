import { Annotations, Duration, Names, type RemovalPolicy, Stack, Token } from 'aws-cdk-lib';
import { CfnEventBusPolicy, Rule } from 'aws-cdk-lib/aws-events';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import { CfnBucket, type IBucket } from 'aws-cdk-lib/aws-s3';
import { Construct } from 'constructs';
import { expireVersions, pipelineBucket } from './bucket.ts';
import type { Grants } from './grants.ts';
import { allowBucket, allowKey } from './permissions.ts';
import type { UploadQueue } from './upload-queue.ts';

/**
 * Lifetime of a replaced version. An upload that waits in the ledger, for a new token or a budget, must still find its
 * version when it is due. A month is enough for either.
 */
const REPLACED_VERSION_LIFETIME = Duration.days(30);

const WILDCARD_REASON = 'Uploads may have any key below the prefix of the inbox.';

export interface InboxProps {
  readonly existing: IBucket | undefined;
  readonly prefix: string;
  readonly uploads: UploadQueue;
  readonly encryptionKey: IKey | undefined;
  readonly removalPolicy: RemovalPolicy;
  readonly accessLogsBucket: IBucket | undefined;
  readonly s3Events: boolean;
}

/** The bucket of uploads, which announces each upload to the queue. */
export class Inbox extends Construct {
  readonly bucket: IBucket;
  readonly #prefix: string;
  /** The rule on the events of an existing bucket. */
  readonly #rule: Rule | undefined;

  constructor(scope: Construct, id: string, props: InboxProps) {
    super(scope, id);
    this.#prefix = props.prefix;
    this.bucket = props.existing ?? this.#newBucket(props);
    this.#rule = props.existing && this.#listenTo(props.existing, props);
  }

  #newBucket({ prefix, uploads, s3Events, ...props }: InboxProps): IBucket {
    const bucket = pipelineBucket(this, 'Bucket', {
      ...props,
      // An upload is one version of an object. It stays readable after another object was put to the same key.
      versioned: true,
      lifecycleRules: [expireVersions(REPLACED_VERSION_LIFETIME)],
    });
    const resource = bucket.node.defaultChild as CfnBucket;
    // Not by `addEventNotification`: that would deploy another function, which sets the notification later.
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
    // S3 sends a test message when the notification is set. If the queue does not accept it, the deployment fails.
    resource.node.addDependency(uploads.allowSender('s3.amazonaws.com'));
    return bucket;
  }

  /** Subscribes to the bucket's EventBridge events. The notifications that its owner has set up stay as they are. */
  #listenTo(bucket: IBucket, { prefix, uploads }: InboxProps): Rule {
    uploads.allowSender('events.amazonaws.com');
    noteEvents(this, bucket);
    if (bucket.env.account !== Stack.of(this).account) this.#allowEventsOf(bucket.env.account);
    return new Rule(this, 'ObjectCreated', {
      description: `Sends the uploads of ${this.node.path} to its queue`,
      eventPattern: {
        source: ['aws.s3'],
        detailType: ['Object Created'],
        detail: {
          bucket: { name: [bucket.bucketName] },
          ...(prefix !== '' && { object: { key: [{ prefix }] } }),
        },
      },
      targets: [
        { bind: () => ({ arn: uploads.queue.queueArn, deadLetterConfig: { arn: uploads.deadLetters.queueArn } }) },
      ],
    });
  }

  /**
   * Allows the account that owns the inbox to send its events on to the default bus, which the rule listens to. Its
   * owner adds the rule that sends them.
   * @see https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-event-bus-perms.html
   */
  #allowEventsOf(account: string): void {
    const { partition } = Stack.of(this);
    const bus = { service: 'events', resource: 'event-bus', resourceName: 'default' };
    new CfnEventBusPolicy(this, 'EventsOfOwner', {
      // Unique among the statements of the bus, which others may share.
      statementId: Names.uniqueResourceName(this, { maxLength: 64, separator: '-' }),
      statement: {
        Effect: 'Allow',
        Principal: { AWS: `arn:${partition}:iam::${account}:root` },
        Action: 'events:PutEvents',
        Resource: Stack.of(this).formatArn(bus),
        // All rules of this account listen to the bus. Nobody else can send events in the name of S3.
        Condition: { StringEquals: { 'events:source': 'aws.s3' } },
      },
    });
  }

  /** Allows the role to open uploads at exactly their version, and to tell an absent one from a forbidden one. */
  grantOpen(role: IRole): void {
    this.#grantRead(role, ['s3:GetObject', 's3:GetObjectVersion']);
    allowKey(role, this.bucket.encryptionKey, 'read', 's3');
  }

  /** Allows the role to put the object at this key. */
  grantPut(role: IRole, key: string): void {
    allowBucket(role, this.bucket, { actions: ['s3:PutObject'], resources: [this.bucket.arnForObjects(key)] });
    allowKey(role, this.bucket.encryptionKey, 'write', 's3');
  }

  /**
   * Allows the role to ask which upload is current at a key, and to list all uploads. Neither decrypts anything. So if
   * the inbox is encrypted with a key, the role cannot read the uploads.
   */
  grantCompare(role: IRole): void {
    this.#grantRead(role, ['s3:GetObject']);
  }

  /** Allows the role to set tags of exactly one version of an upload. */
  grantTag(role: IRole): void {
    this.#allowUploads(role, ['s3:GetObjectVersionTagging', 's3:PutObjectVersionTagging']);
  }

  /** Allows the role to delete uploads. In a bucket with versions, their versions stay. */
  grantDelete(role: IRole): void {
    this.#allowUploads(role, ['s3:DeleteObject']);
  }

  #grantRead(role: IRole, actions: readonly string[]): void {
    this.#allowUploads(role, actions);
    // Without this permission, S3 answers 403 for an absent object instead of 404. It cannot be limited to a prefix,
    // because a request for one object has none.
    allowBucket(role, this.bucket, { actions: ['s3:ListBucket'], resources: [this.bucket.bucketArn] });
    // An upload that S3 refuses to show is looked up by its key, so the prefix of the inbox is only the beginning.
    allowBucket(role, this.bucket, {
      actions: ['s3:ListBucketVersions'],
      resources: [this.bucket.bucketArn],
      conditions: this.#prefix === '' ? undefined : { StringLike: { 's3:prefix': `${this.#prefix}*` } },
    });
  }

  #allowUploads(role: IRole, actions: readonly string[]): void {
    allowBucket(role, this.bucket, {
      actions,
      resources: [this.bucket.arnForObjects(`${this.#prefix}*`)],
      wildcardReason: WILDCARD_REASON,
    });
  }

  /** Allows the grantee to see and read all uploads, and to see where they are announced. */
  grantView(grants: Grants): void {
    const { bucket } = this;
    grants.addKey(bucket.encryptionKey, 'read');
    this.#addUploads(grants, ['s3:GetObject', 's3:GetObjectVersion']);
    // Without ListBucket, S3 answers 403 for an absent object instead of 404.
    grants.addBucket(bucket, { actions: ['s3:ListBucket'], resources: [bucket.bucketArn] });
    grants.addBucket(bucket, {
      actions: ['s3:ListBucketVersions'],
      resources: [bucket.bucketArn],
      conditions: this.#prefix === '' ? undefined : { StringLike: { 's3:prefix': `${this.#prefix}*` } },
    });
    grants.addBucket(bucket, { actions: ['s3:GetBucketNotification'], resources: [bucket.bucketArn] });
    if (this.#rule === undefined) return;
    grants.add({ actions: ['events:DescribeRule'], resources: [this.#rule.ruleArn] });
    grants.add({
      actions: ['events:ListRuleNamesByTarget'],
      resources: ['*'],
      wildcardReason: 'The names of the rules of a target are asked for before any rule is known.',
    });
  }

  /** Allows the grantee to delete uploads for good. */
  grantForget(grants: Grants): void {
    this.#addUploads(grants, ['s3:DeleteObjectVersion']);
  }

  /** Allows the grantee to put files, and nothing else: neither to read them nor to list those of others. */
  grantUpload(grants: Grants): void {
    grants.addKey(this.bucket.encryptionKey, 'write');
    this.#addUploads(grants, ['s3:PutObject', 's3:AbortMultipartUpload', 's3:ListMultipartUploadParts']);
  }

  #addUploads(grants: Grants, actions: readonly string[]): void {
    const resources = [this.bucket.arnForObjects(`${this.#prefix}*`)];
    grants.addBucket(this.bucket, { actions, resources, wildcardReason: WILDCARD_REASON });
  }
}

/**
 * Says at synth how to turn on the bucket's EventBridge events. For an imported bucket, it is unknown whether they are
 * on.
 */
function noteEvents(scope: Construct, bucket: IBucket): void {
  const resource = bucket.node.defaultChild;
  const notifications = resource instanceof CfnBucket ? resource.notificationConfiguration : undefined;
  const hasEvents =
    bucket.node.tryFindChild('Notifications') !== undefined ||
    (notifications !== undefined && 'eventBridgeConfiguration' in notifications);
  if (hasEvents) return;
  const name = Token.isUnresolved(bucket.bucketName) ? '<name of the bucket>' : bucket.bucketName;
  Annotations.of(scope).addInfo(
    `Uploads are seen only if the inbox ${name} sends its events to EventBridge. ` +
      `To see: aws s3api get-bucket-notification-configuration --bucket ${name}. ` +
      `To turn them on: aws s3api put-bucket-notification-configuration --bucket ${name} ` +
      `--notification-configuration '{"EventBridgeConfiguration": {}}'. ` +
      'This replaces the whole configuration of the bucket, so put what the first command shows into it.',
  );
}
