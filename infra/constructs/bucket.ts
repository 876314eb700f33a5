import { Duration, RemovalPolicy } from 'aws-cdk-lib';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import {
  BlockPublicAccess,
  Bucket,
  BucketEncryption,
  type IBucket,
  type LifecycleRule,
  ObjectOwnership,
} from 'aws-cdk-lib/aws-s3';
import type { Construct } from 'constructs';
import { acknowledge } from './acknowledge.ts';

/** Lifetime of an abandoned multipart upload. Its parts cost as much as an object, and no listing shows them. */
const ABANDONED_UPLOAD_LIFETIME = Duration.days(2);

/**
 * Deletes old versions of the objects below a prefix after this time, and the delete markers that remain.
 * @param prefix all objects if undefined.
 */
export const expireVersions = (after: Duration, prefix?: string): LifecycleRule => ({
  prefix,
  noncurrentVersionExpiration: after,
  expiredObjectDeleteMarker: true,
});

export interface PipelineBucketProps {
  readonly encryptionKey: IKey | undefined;
  readonly removalPolicy: RemovalPolicy;
  readonly accessLogsBucket: IBucket | undefined;
  readonly versioned?: boolean;
  readonly lifecycleRules?: readonly LifecycleRule[];
}

/** A bucket with what all buckets of the pipeline have: encryption, access over TLS only, and no public access. */
export function pipelineBucket(scope: Construct, id: string, props: PipelineBucketProps): Bucket {
  const { encryptionKey, removalPolicy, accessLogsBucket, versioned, lifecycleRules = [] } = props;
  // A bucket that is kept for ever is deleted all the same if its first deployment fails: it is still empty then.
  const kept = removalPolicy === RemovalPolicy.RETAIN ? RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE : removalPolicy;
  const bucket = new Bucket(scope, id, {
    encryption: encryptionKey === undefined ? BucketEncryption.S3_MANAGED : BucketEncryption.KMS,
    encryptionKey,
    // One request to KMS for many objects instead of one for each.
    bucketKeyEnabled: encryptionKey === undefined ? undefined : true,
    blockPublicAccess: BlockPublicAccess.BLOCK_ALL,
    objectOwnership: ObjectOwnership.BUCKET_OWNER_ENFORCED,
    enforceSSL: true,
    minimumTLSVersion: 1.2,
    serverAccessLogsBucket: accessLogsBucket,
    serverAccessLogsPrefix: accessLogsBucket === undefined ? undefined : `${scope.node.path}/`,
    versioned,
    lifecycleRules: [{ abortIncompleteMultipartUploadAfter: ABANDONED_UPLOAD_LIFETIME }, ...lifecycleRules],
    removalPolicy: kept,
  });
  // A kept bucket keeps its policy too. Without it, the bucket could be read without TLS.
  bucket.policy?.applyRemovalPolicy(kept);
  if (accessLogsBucket === undefined) {
    acknowledge(bucket, {
      id: 'AwsSolutions-S1',
      reason: 'The owner of the account decides where access logs go. They are written if accessLogsBucket is set.',
    });
  }
  return bucket;
}
