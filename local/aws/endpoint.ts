import { randomSecret } from '../secrets.ts';

/*
 * The stand-ins for AWS services. Each service is a file with the same two parts: a class that holds its state in this
 * process (`Queue`, `SecretStore`, `EventBus`), and a function that serves that state to the SDK's client on 127.0.0.1,
 * if the client signs its requests (`signature.ts`). S3 has a folder. `serve-aws.ts` starts all endpoints. Lambda is the
 * exception: only operators call it, and `pipeline.ts` serves its functions.
 */

/** The only region here. */
export const REGION = 'us-east-1';

/** The only account here. */
export const LOCAL_ACCOUNT = '000000000000';

export interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** If set, every request must carry it. If not, none may carry one. */
  readonly sessionToken?: string;
}

/** New credentials. Nobody can guess them. */
export function randomCredentials(): Credentials & { readonly sessionToken?: never } {
  return { accessKeyId: `LOCAL${randomSecret().slice(0, 15).toUpperCase()}`, secretAccessKey: randomSecret() };
}

/** New credentials with a session token, as those of a role are. */
export function randomRoleCredentials(): Required<Credentials> {
  return { ...randomCredentials(), sessionToken: randomSecret() };
}

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
