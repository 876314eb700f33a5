/*
 * What stands in for an AWS service. Each has a folder here with two things in it: a class that holds the service's
 * state in this process (`EmbeddedS3`, `Queue`, `SecretStore`, `EventBus`), and `http.ts`, which serves that state on
 * 127.0.0.1 to the SDK's client. `serve-aws.ts` starts them all. A new service gets a folder of
 * this shape, and a line in `serve-aws.ts`.
 */

/** A service that listens on 127.0.0.1. */
export interface AwsEndpoint {
  /** The value of the service's variable `AWS_ENDPOINT_URL_<SERVICE>`. */
  readonly endpoint: string;
  /** Stops the endpoint at once, with all requests under way. The state behind it stays usable. */
  close(): Promise<void>;
}

/** A request, in the terms of an IAM policy. */
export interface AwsCall {
  /** The access key that signed the request. */
  readonly accessKeyId: string | undefined;
  /** The IAM action, such as `sqs:SendMessage`. */
  readonly action: string;
  readonly input: unknown;
}
