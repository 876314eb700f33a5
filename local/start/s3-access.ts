import { type Credentials, REGION } from '../aws/endpoint.ts';

export interface S3Access {
  readonly endpoint: string;
  readonly credentials: Credentials;
}

/** Shell commands that point the AWS CLI, and what reads the same variables, to the S3 of this run. */
export function exportLines({ endpoint, credentials }: S3Access): readonly string[] {
  return [
    `export AWS_ENDPOINT_URL_S3=${endpoint}`,
    `export AWS_REGION=${REGION}`,
    `export AWS_ACCESS_KEY_ID=${credentials.accessKeyId}`,
    `export AWS_SECRET_ACCESS_KEY=${credentials.secretAccessKey}`,
    // A token of other credentials would be sent with these.
    'unset AWS_SESSION_TOKEN',
  ];
}
