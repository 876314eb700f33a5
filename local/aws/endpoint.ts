import type { Credentials } from './credentials.ts';

/*
 * The stand-ins for AWS services. Each service has a folder with the same two parts: a class that holds its state in
 * this process (`EmbeddedS3`, `Queue`, `SecretStore`, `EventBus`), and `http.ts`, which serves that state to the SDK's
 * client on 127.0.0.1, if the client signs its requests (`signature.ts`). `serve-aws.ts` starts all endpoints. To add a
 * service, add a folder of this shape and start its endpoint there. Lambda is the exception: only operators call it,
 * and `pipeline.ts` serves its functions by `lambda/http.ts`.
 */

/** A service that listens on 127.0.0.1. */
export interface AwsEndpoint {
  /** The value of the service's variable `AWS_ENDPOINT_URL_<SERVICE>`. */
  readonly endpoint: string;
  /** Stops the endpoint at once, with all requests under way. The state behind it stays usable. */
  close(): Promise<void>;
}

/** A permission that a request needs, in the terms of an IAM policy. */
export interface AwsAccess {
  /** The access key that signed the request. */
  readonly accessKeyId: string | undefined;
  /** Such as `s3:GetObject`. */
  readonly action: string;
  /** An ARN for S3, otherwise the name of the queue, secret or event bus. */
  readonly resource: string;
  /** The condition keys of the request, such as `events:source` or the prefix of a listing. */
  readonly context: Readonly<Record<string, string>>;
}

/** A request to a JSON service. */
export interface AwsCall {
  /** The access key that signed the request. */
  readonly accessKeyId: string;
  /** The IAM action, such as `sqs:SendMessage`. */
  readonly action: string;
  readonly input: unknown;
}

/** Who may call a JSON service. */
export interface EndpointAccess {
  /** Every request must be signed with one of these. */
  readonly credentials: readonly Credentials[];
  /** Called for every request whose signature is valid, before the answer. */
  readonly onCall?: ((call: AwsCall) => void) | undefined;
}
