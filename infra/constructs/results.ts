import { Duration, type RemovalPolicy } from 'aws-cdk-lib';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { CfnBucket, IBucket, LifecycleRule } from 'aws-cdk-lib/aws-s3';
import { Construct } from 'constructs';
import { CHAIN_NAME, EXPIRY_TAG, RECEIPT_NAME } from '../../functions/results/results-keys.ts';
import { expireVersions, pipelineBucket } from './bucket.ts';
import type { Grants } from './grants.ts';
import { allowBucket, allowKey } from './permissions.ts';

/** Keys of the objects that tell how an upload or a chain ended. */
const REPORTS = [RECEIPT_NAME, CHAIN_NAME].map((name) => `*/${name}`);

const WILDCARD_REASON = 'Keys of results begin with the key of their upload, which may be any key.';

/** Lifetime of what the canary brings. Otherwise 24 results a day would pile up. */
const CANARY_RESULTS_LIFETIME = Duration.days(7);

export interface ResultsProps {
  readonly existing: IBucket | undefined;
  readonly prefix: string;
  readonly encryptionKey: IKey | undefined;
  readonly removalPolicy: RemovalPolicy;
  readonly accessLogsBucket: IBucket | undefined;
  readonly s3Events: boolean;
  /** How long replaced and deleted objects are kept. Undefined if the new bucket is not versioned. */
  readonly versionRetention: Duration | undefined;
  /** Age at which assets expire. Undefined if they stay. */
  readonly retention: Duration | undefined;
  /** Key of the file that is put again every hour. Empty if there is none. */
  readonly canaryKey: string;
}

/** The bucket of assets and receipts. */
export class Results extends Construct {
  readonly bucket: IBucket;
  readonly #prefix: string;

  constructor(scope: Construct, id: string, { existing, prefix, s3Events, ...props }: ResultsProps) {
    super(scope, id);
    this.#prefix = prefix;
    this.bucket = existing ?? this.#newBucket(props, s3Events);
  }

  #newBucket(
    { versionRetention, retention, canaryKey, ...props }: Omit<ResultsProps, 'existing' | 'prefix' | 's3Events'>,
    s3Events: boolean,
  ): IBucket {
    const lifecycleRules: LifecycleRule[] = [];
    if (versionRetention !== undefined) lifecycleRules.push(expireVersions(versionRetention));
    // A rule cannot except receipts and aliases. So the tag says what it is for.
    if (retention !== undefined) {
      lifecycleRules.push({ expiration: retention, tagFilters: { [EXPIRY_TAG.Key]: EXPIRY_TAG.Value } });
    }
    if (canaryKey !== '') {
      lifecycleRules.push({ prefix: `${this.#prefix}${canaryKey}/`, expiration: CANARY_RESULTS_LIFETIME });
    }
    const versioned = versionRetention === undefined ? undefined : true;
    const bucket = pipelineBucket(this, 'Bucket', { ...props, versioned, lifecycleRules });
    if (s3Events) {
      const resource = bucket.node.defaultChild as CfnBucket;
      resource.notificationConfiguration = { eventBridgeConfiguration: { eventBridgeEnabled: true } };
    }
    return bucket;
  }

  /** Allows the role to read and write receipts and the reports of chains. */
  grantReceipts(role: IRole): void {
    this.#grantWrite(role, ['s3:GetObject', 's3:PutObject'], ...REPORTS);
  }

  /** Allows the role what {@link grantReceipts} does, and to read assets at exactly their version. */
  grantInputs(role: IRole): void {
    this.#grantObjects(role, ['s3:GetObject', 's3:GetObjectVersion'], '*');
    // An asset that S3 refuses to show is looked up by its key: it may be gone.
    allowBucket(role, this.bucket, {
      actions: ['s3:ListBucketVersions'],
      resources: [this.bucket.bucketArn],
      conditions: this.#prefix === '' ? undefined : { StringLike: { 's3:prefix': `${this.#prefix}*` } },
    });
    this.#grantWrite(role, ['s3:PutObject'], ...REPORTS);
  }

  /** Allows the role to store assets, to check stored ones, and to abort multipart uploads. */
  grantStore(role: IRole): void {
    this.#grantWrite(role, ['s3:GetObject', 's3:PutObject', 's3:AbortMultipartUpload'], '*');
  }

  /** Allows the role to remove aliases that the newest success does not have. @param folders where they are. */
  grantAliases(role: IRole, folders: ReadonlySet<string>): void {
    this.#grantObjects(role, ['s3:DeleteObject'], ...[...folders].map((folder) => `${folder}*`));
  }

  /** Allows the role to say which assets S3 may expire. */
  grantExpire(role: IRole): void {
    this.#grantObjects(role, ['s3:GetObjectTagging', 's3:PutObjectTagging'], '*');
  }

  #grantObjects(role: IRole, actions: readonly string[], ...keys: readonly string[]): void {
    allowBucket(role, this.bucket, {
      actions,
      resources: keys.map((each) => this.bucket.arnForObjects(`${this.#prefix}${each}`)),
      wildcardReason: WILDCARD_REASON,
    });
  }

  #grantWrite(role: IRole, actions: readonly string[], ...keys: readonly string[]): void {
    this.#grantObjects(role, actions, ...keys);
    // Without this permission, S3 answers 403 for an absent object instead of 404.
    allowBucket(role, this.bucket, { actions: ['s3:ListBucket'], resources: [this.bucket.bucketArn] });
    allowKey(role, this.bucket.encryptionKey, 'write', 's3');
  }

  /** Allows the grantee to list and read the results, and nothing else. */
  grantRead(grants: Grants): void {
    grants.addKey(this.bucket.encryptionKey, 'read');
    this.#addResults(grants, 's3:GetObject');
    this.#addList(grants, 's3:ListBucket');
  }

  /** Allows the grantee to list and read the results, and to tell an absent one from a forbidden one. */
  grantView(grants: Grants): void {
    grants.addKey(this.bucket.encryptionKey, 'read');
    this.#addResults(grants, 's3:GetObject');
    // Without a condition: a request for one object has no prefix, and S3 would answer 403 for an absent one.
    grants.addBucket(this.bucket, { actions: ['s3:ListBucket'], resources: [this.bucket.bucketArn] });
  }

  /** Allows the grantee to delete results for good, with all their versions. */
  grantForget(grants: Grants): void {
    this.#addResults(grants, 's3:DeleteObjectVersion');
    this.#addList(grants, 's3:ListBucketVersions');
  }

  #addResults(grants: Grants, action: string): void {
    const resources = [this.bucket.arnForObjects(`${this.#prefix}*`)];
    grants.addBucket(this.bucket, { actions: [action], resources, wildcardReason: WILDCARD_REASON });
  }

  /** Allows listing below the prefix. */
  #addList(grants: Grants, action: string): void {
    grants.addBucket(this.bucket, {
      actions: [action],
      resources: [this.bucket.bucketArn],
      conditions: this.#prefix === '' ? undefined : { StringLike: { 's3:prefix': `${this.#prefix}*` } },
    });
  }
}
