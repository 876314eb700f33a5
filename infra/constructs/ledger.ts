import { Duration, type RemovalPolicy } from 'aws-cdk-lib';
import type { IRole } from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IBucket, LifecycleRule } from 'aws-cdk-lib/aws-s3';
import { Construct } from 'constructs';
import {
  ALIASES_PREFIX,
  CHAINS_PREFIX,
  FAILED_PREFIX,
  HOLDS_KEY,
  LASTING_PREFIXES,
  RUNNING_PREFIX,
  STATE_PREFIX,
  UPLOADS_PREFIX,
  WAITING_PREFIX,
} from '../../functions/ledger/keys.ts';
import type { PipelineSettings } from '../../functions/settings/settings.ts';
import { expireVersions, pipelineBucket } from './bucket.ts';
import type { Grants } from './grants.ts';
import { allowBucket, allowKey } from './permissions.ts';

const WILDCARD_REASON = 'Keys in the ledger end with ids and times. The prefix limits them to one kind of object.';
const READ_AND_WRITE = ['s3:GetObject', 's3:PutObject'];
const PUT_AND_DELETE = ['s3:PutObject', 's3:DeleteObject'];

/**
 * Lifetime of old versions of markers and of state, which nothing restores. It is the shortest that S3 allows. Markers
 * come and go all the time, and S3 must skip the delete markers of those that are gone in each listing.
 */
const MARKER_VERSION_LIFETIME = Duration.days(1);

export interface LedgerProps {
  /** The ledger of an earlier deployment. */
  readonly existing: IBucket | undefined;
  readonly retentionDays: PipelineSettings['ledgerRetentionDays'];
  /** How long replaced and deleted entries are kept. Undefined if the new bucket is not versioned. */
  readonly versionRetention: Duration | undefined;
  readonly encryptionKey: IKey | undefined;
  readonly removalPolicy: RemovalPolicy;
  readonly accessLogsBucket: IBucket | undefined;
}

/** The bucket of entries and markers, for the pipeline alone. */
export class Ledger extends Construct {
  readonly bucket: IBucket;

  constructor(scope: Construct, id: string, { existing, ...props }: LedgerProps) {
    super(scope, id);
    this.bucket = existing ?? this.#newBucket(props);
  }

  #newBucket({ retentionDays, versionRetention, ...props }: Omit<LedgerProps, 'existing'>): IBucket {
    return pipelineBucket(this, 'Bucket', {
      ...props,
      versioned: versionRetention && true,
      lifecycleRules: lifecycleRules(retentionDays, versionRetention),
    });
  }

  /**
   * Allows the role to claim an upload and to record what became of the claim. The role may write chains even if no
   * route has an `after`: a chain that began with earlier routes still comes to its end.
   */
  grantCreate(role: IRole): void {
    this.#grant(role, READ_AND_WRITE, UPLOADS_PREFIX, CHAINS_PREFIX, HOLDS_KEY);
    this.#grant(role, PUT_AND_DELETE, RUNNING_PREFIX);
    this.#grant(role, ['s3:PutObject'], WAITING_PREFIX, FAILED_PREFIX);
    this.#grantList(role);
  }

  /** Allows the role to run ticks: to change its own state, all markers, their entries and the chains of these. */
  grantCollect(role: IRole): void {
    this.#grant(role, READ_AND_WRITE, UPLOADS_PREFIX, CHAINS_PREFIX, STATE_PREFIX);
    this.#grant(role, PUT_AND_DELETE, RUNNING_PREFIX, WAITING_PREFIX, FAILED_PREFIX);
    this.#grantList(role);
  }

  #grant(role: IRole, actions: readonly string[], ...prefixes: readonly string[]): void {
    allowBucket(role, this.bucket, {
      actions,
      resources: prefixes.map((prefix) => this.bucket.arnForObjects(`${prefix}*`)),
      wildcardReason: WILDCARD_REASON,
    });
  }

  /** Allows listing: of markers, and so that S3 answers 404 for an absent entry instead of 403. */
  #grantList(role: IRole): void {
    allowBucket(role, this.bucket, { actions: ['s3:ListBucket'], resources: [this.bucket.bucketArn] });
    allowKey(role, this.bucket.encryptionKey, 'write', 's3');
  }

  /** Allows the grantee to read entries, chains and states, and to list all keys. */
  grantView(grants: Grants): void {
    const { bucket } = this;
    grants.addKey(bucket.encryptionKey, 'read');
    this.#add(grants, 's3:GetObject', UPLOADS_PREFIX, CHAINS_PREFIX, STATE_PREFIX);
    grants.addBucket(bucket, { actions: ['s3:ListBucket'], resources: [bucket.bucketArn] });
  }

  /**
   * Allows the grantee to delete entries, chains, the markers of failures and what aliases show for good, with all
   * their versions.
   */
  grantForget(grants: Grants): void {
    const { bucket } = this;
    this.#add(grants, 's3:DeleteObjectVersion', UPLOADS_PREFIX, CHAINS_PREFIX, FAILED_PREFIX, ALIASES_PREFIX);
    grants.addBucket(bucket, { actions: ['s3:ListBucketVersions'], resources: [bucket.bucketArn] });
  }

  #add(grants: Grants, action: string, ...prefixes: readonly string[]): void {
    const resources = prefixes.map((prefix) => this.bucket.arnForObjects(`${prefix}*`));
    grants.addBucket(this.bucket, { actions: [action], resources, wildcardReason: WILDCARD_REASON });
  }
}

/**
 * One rule for each prefix. By default no entry expires: without its entry, an upload could be paid for again.
 *
 * S3 refuses `expiredObjectDeleteMarker` beside an age. A rule with an age removes such a delete marker once it is of
 * that age.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/API_LifecycleExpiration.html
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/intro-lifecycle-rules.html
 */
function lifecycleRules(
  retentionDays: LedgerProps['retentionDays'],
  versionRetention: Duration | undefined,
): LifecycleRule[] {
  const versions = (prefix: string, after: Duration): LifecycleRule => ({
    prefix,
    ...(versionRetention && expireVersions(after, prefix)),
  });
  const aged = (rule: LifecycleRule): LifecycleRule =>
    retentionDays === 'forever'
      ? rule
      : { ...rule, expiredObjectDeleteMarker: undefined, expiration: Duration.days(retentionDays) };
  return [
    ...[UPLOADS_PREFIX, CHAINS_PREFIX].map((prefix) =>
      aged(versions(prefix, versionRetention ?? MARKER_VERSION_LIFETIME)),
    ),
    aged(versions(FAILED_PREFIX, MARKER_VERSION_LIFETIME)),
    ...LASTING_PREFIXES.map((prefix) => versions(prefix, MARKER_VERSION_LIFETIME)),
  ].filter(({ prefix: _, ...rule }) => Object.keys(rule).length > 0);
}
