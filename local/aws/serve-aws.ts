import { TEST_EVENT } from '../../functions/publish/completion-event.ts';
import { AwsError } from './aws-json.ts';
import type { AwsAccess, AwsCall, Credentials, EndpointAccess } from './endpoint.ts';
import { type EventBus, type PublishedEvent, serveEvents } from './event-bridge.ts';
import { serveS3 } from './s3/http.ts';
import type { EmbeddedS3 } from './s3/s3.ts';
import { type SecretStore, serveSecrets } from './secrets-manager.ts';
import { type Queue, serveQueues } from './sqs.ts';

export interface AwsServices {
  readonly s3: EmbeddedS3;
  readonly queue: Queue;
  readonly deadLetters: Queue;
  /** The events that targets could not be told of. */
  readonly notifyDeadLetters: readonly Queue[];
  readonly secrets: SecretStore;
  /** The name of the only secret. */
  readonly secretName: string;
  readonly eventBus: EventBus;
  readonly eventBusName: string;
  /** The functions sign with these. They reach every service. */
  readonly functionCredentials: readonly Credentials[];
  /** The other clients of S3 sign with these. They reach no other service: Secrets Manager holds a real token. */
  readonly s3Credentials: readonly Credentials[];
  /** The operator signs with these. They reach S3, SQS and, for a test event, EventBridge. */
  readonly operatorCredentials: Credentials;
  /** The port of S3, if no other program has it. Default: any free one. */
  readonly s3Port?: number | undefined;
}

export interface ServedAws {
  readonly queueUrl: string;
  readonly deadLetterQueueUrl: string;
  /** The SDK's endpoint variables, for a function's environment. */
  readonly environment: Readonly<
    Record<`AWS_ENDPOINT_URL_${'S3' | 'SQS' | 'SECRETS_MANAGER' | 'EVENTBRIDGE'}`, string>
  >;
}

/** Another program has the port, or this user may not have it. */
const PORT_REFUSALS = ['EADDRINUSE', 'EACCES'];

/**
 * Serves every AWS service that the functions call.
 * @param onAccess called for every request whose signature is valid. The S3 reports its requests through its option
 * `authorize` instead.
 * @param closing closes the endpoints.
 */
export async function serveAws(
  {
    s3,
    queue,
    deadLetters,
    notifyDeadLetters,
    secrets,
    secretName,
    eventBus,
    eventBusName,
    functionCredentials,
    ...clients
  }: AwsServices,
  onAccess: (access: AwsAccess) => void,
  closing: AsyncDisposableStack,
): Promise<ServedAws> {
  const accessTo =
    (resource: string) =>
    ({ accessKeyId, action }: AwsCall): void =>
      onAccess({ accessKeyId, action, resource, context: {} });
  const toEvents = ({ accessKeyId, action, input }: AwsCall): void => {
    const { Entries, Name, Rule } = input as { Entries?: PublishedEvent[]; Name?: string; Rule?: string };
    const rule = Name ?? Rule;
    if (rule !== undefined) onAccess({ accessKeyId, action, resource: `rule/${rule}`, context: {} });
    for (const { Source, DetailType } of Entries ?? []) {
      if (accessKeyId === clients.operatorCredentials.accessKeyId && DetailType !== TEST_EVENT) {
        throw new AwsError('AccessDeniedException', 'The operator is not authorized to perform events:PutEvents');
      }
      const context = { 'events:source': Source, 'events:detail-type': DetailType };
      onAccess({ accessKeyId, action, resource: eventBusName, context });
    }
  };

  const access = (onCall: (call: AwsCall) => void): EndpointAccess => ({ credentials: functionCredentials, onCall });
  const { s3Credentials, operatorCredentials, s3Port } = clients;
  const forS3 = [...functionCredentials, ...s3Credentials, operatorCredentials];
  const s3Endpoint = await serveS3(s3, { credentials: forS3, port: s3Port }).catch((error: NodeJS.ErrnoException) => {
    if (s3Port === undefined || !PORT_REFUSALS.includes(error.code ?? '')) throw error;
    return serveS3(s3, { credentials: forS3 });
  });
  closing.defer(() => s3Endpoint.close());
  const sqsEndpoint = await serveQueues([queue, deadLetters, ...notifyDeadLetters], {
    credentials: [...functionCredentials, operatorCredentials],
    onCall: ({ accessKeyId, action, input }) => {
      const { QueueUrl } = input as { QueueUrl: string };
      onAccess({ accessKeyId, action, resource: QueueUrl.split('/').at(-1) ?? '', context: {} });
    },
  });
  closing.defer(() => sqsEndpoint.close());
  const secretsEndpoint = await serveSecrets(secrets, access(accessTo(secretName)));
  closing.defer(() => secretsEndpoint.close());
  const eventsEndpoint = await serveEvents(eventBus, {
    credentials: [...functionCredentials, operatorCredentials],
    onCall: toEvents,
  });
  closing.defer(() => eventsEndpoint.close());
  return {
    queueUrl: sqsEndpoint.urlOf(queue),
    deadLetterQueueUrl: sqsEndpoint.urlOf(deadLetters),
    environment: {
      AWS_ENDPOINT_URL_S3: s3Endpoint.endpoint,
      AWS_ENDPOINT_URL_SQS: sqsEndpoint.endpoint,
      AWS_ENDPOINT_URL_SECRETS_MANAGER: secretsEndpoint.endpoint,
      AWS_ENDPOINT_URL_EVENTBRIDGE: eventsEndpoint.endpoint,
    },
  };
}
