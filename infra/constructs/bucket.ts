import { Duration, type RemovalPolicy, Validations } from 'aws-cdk-lib';
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

/** Parts of a multipart upload that nobody completes cost as much as an object, and are seen by nobody. */
const ABANDONED_UPLOAD_LIFETIME = Duration.days(2);

export interface PipelineBucketProps {
  readonly encryptionKey: IKey | undefined;
  readonly removalPolicy: RemovalPolicy;
  readonly accessLogsBucket: IBucket | undefined;
  readonly versioned?: boolean;
  readonly lifecycleRules?: readonly LifecycleRule[];
}

/** A bucket as every bucket of ours is: encrypted, reached over TLS only, closed to the public. */
export function pipelineBucket(scope: Construct, id: string, props: PipelineBucketProps): Bucket {
  const { encryptionKey, removalPolicy, accessLogsBucket, versioned, lifecycleRules = [] } = props;
  const bucket = new Bucket(scope, id, {
    encryption: encryptionKey === undefined ? BucketEncryption.S3_MANAGED : BucketEncryption.KMS,
    encryptionKey,
    // One request to KMS for many objects rather than one for each.
    bucketKeyEnabled: encryptionKey === undefined ? undefined : true,
    blockPublicAccess: BlockPublicAccess.BLOCK_ALL,
    objectOwnership: ObjectOwnership.BUCKET_OWNER_ENFORCED,
    enforceSSL: true,
    minimumTLSVersion: 1.2,
    serverAccessLogsBucket: accessLogsBucket,
    serverAccessLogsPrefix: accessLogsBucket === undefined ? undefined : `${scope.node.path}/`,
    versioned,
    lifecycleRules: [{ abortIncompleteMultipartUploadAfter: ABANDONED_UPLOAD_LIFETIME }, ...lifecycleRules],
    removalPolicy,
  });
  if (accessLogsBucket === undefined) {
    Validations.of(bucket).acknowledge({
      id: 'AwsSolutions-S1',
      reason: 'Whose account it is decides where access logs go: they are written once accessLogsBucket is given.',
    });
  }
  return bucket;
}
