import type { Deployment, S3ClientAccess } from './deployment.ts';

export interface S3Credentials extends S3ClientAccess {
  readonly buckets: { readonly inbox: string; readonly results: string; readonly ledger: string };
}

/** Undefined for a deployed pipeline: the clients of its inbox have credentials of AWS. */
export function credentials({ s3Access, settings }: Deployment): S3Credentials | undefined {
  const { inboxBucket, resultsBucket, ledgerBucket } = settings;
  return s3Access && { ...s3Access, buckets: { inbox: inboxBucket, results: resultsBucket, ledger: ledgerBucket } };
}

/** Commands for a shell, which set what the AWS CLI, rclone and s3cmd read. */
export function exportLines({ endpoint, region, accessKeyId, secretAccessKey }: S3ClientAccess): readonly string[] {
  return [
    `export AWS_ENDPOINT_URL_S3=${endpoint}`,
    `export AWS_REGION=${region}`,
    // Version 1 of the AWS CLI reads only this one.
    `export AWS_DEFAULT_REGION=${region}`,
    `export AWS_ACCESS_KEY_ID=${accessKeyId}`,
    `export AWS_SECRET_ACCESS_KEY=${secretAccessKey}`,
    // A token of other credentials would be sent with these.
    'unset AWS_SESSION_TOKEN',
  ];
}

/** Commands for a shell with these variables, which put a file into a bucket: one for each usual client. */
export const clientLines = (bucket: string): readonly string[] => [
  // AWS_ENDPOINT_URL_S3 is not known to the AWS CLI before 1.29 and 2.13.
  `aws --endpoint-url "$AWS_ENDPOINT_URL_S3" s3 cp FILE s3://${bucket}/`,
  `rclone copy FILE ":s3,provider=Other,env_auth,endpoint='$AWS_ENDPOINT_URL_S3':${bucket}"`,
  `s3cmd --no-ssl --host="\${AWS_ENDPOINT_URL_S3#http://}" --host-bucket="\${AWS_ENDPOINT_URL_S3#http://}" put FILE s3://${bucket}/`,
];
