import { randomUUID } from 'node:crypto';
import { injectLambdaContext } from '@aws-lambda-powertools/logger/middleware';
import { logMetrics } from '@aws-lambda-powertools/metrics/middleware';
import { EventBridgeClient, PutEventsCommand } from '@aws-sdk/client-eventbridge';
import { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import middy from '@middy/core';
import errorLogger from '@middy/error-logger';
import secretsManager from '@middy/secrets-manager';
import type { Context } from 'aws-lambda';
import { systemClock } from '../base/clock.ts';
import { type Invocation, withinInvocation } from '../base/invocation.ts';
import { createFlowService } from '../flow-service/client.ts';
import { EVENT_SOURCE } from '../publish/completion-event.ts';
import type { EventBus } from '../publish/publish.ts';
import { s3Client } from '../s3/client.ts';
import { parseEnv } from '../settings/config.ts';
import type { World } from './ports.ts';
import { powertools } from './powertools.ts';
import { SecretToken } from './token.ts';

/** Sockets to S3 at a time: polls, streams and the small requests around them together stay below this. */
const S3_SOCKETS_MAX = 128;

/** Connecting to an AWS endpoint takes milliseconds; what takes longer than this is tried again. */
const AWS_CONNECT_TIMEOUT_MS = 3_000;

/** Requests to AWS are small, or parts of 5 MiB: one that has no answer after this is tried again. */
const AWS_REQUEST_TIMEOUT_MS = 60_000;

const AWS_ATTEMPTS_MAX = 5;

/** What every AWS client of a function is made with. */
export const AWS_CLIENT = {
  maxAttempts: AWS_ATTEMPTS_MAX,
  requestHandler: {
    connectionTimeout: AWS_CONNECT_TIMEOUT_MS,
    requestTimeout: AWS_REQUEST_TIMEOUT_MS,
    throwOnRequestTimeout: true,
    httpAgent: { maxSockets: S3_SOCKETS_MAX },
    httpsAgent: { maxSockets: S3_SOCKETS_MAX },
  },
} as const;

/**
 * A Lambda function around `body`: settings, clients and token are made once a process, and out of them the function's
 * ports; logger, metrics, the token's first reading and the logging of errors are middleware.
 * @throws {ConfigurationError} at import, naming everything that is wrong with the environment.
 */
export function lambda<P, T>(
  portsOf: (world: World) => P,
  body: (event: unknown, ports: P, invocation: Invocation) => Promise<T>,
) {
  const settings = parseEnv(process.env);
  const clock = systemClock;
  const { logger, metrics, telemetry } = powertools(settings.pipeline);
  const token = new SecretToken(new SecretsManagerClient(AWS_CLIENT), settings.tokenSecretId, clock);
  const ports = portsOf({
    settings,
    s3: s3Client(AWS_CLIENT),
    flows: createFlowService({
      baseUrl: settings.baseUrl,
      outputsPath: settings.outputsPath,
      assetBytesMax: settings.assetBytesMax,
      answerDepthMax: settings.answerDepthMax,
      requestsPerSecond: settings.requestsPerSecond,
      token,
      clock,
    }),
    events: busAt(new EventBridgeClient(AWS_CLIENT), settings.eventBus),
    clock,
    nonce: randomUUID,
    telemetry,
  });
  // Middy would otherwise answer for us just before the end, with our work still under way in a process about to freeze.
  return middy({ timeoutEarlyInMillis: 0 })
    .use(injectLambdaContext(logger))
    .use(logMetrics(metrics))
    .use(errorLogger({ logger: ({ error }) => logger.error('The invocation failed', error as Error) }))
    .use(
      secretsManager({
        fetchData: { token: settings.tokenSecretId },
        awsClientOptions: AWS_CLIENT,
        // Not before the first invocation, or a failure would end the process; and kept, because SecretToken knows
        // when to read it again, while the middleware's own refresh would run in the background of a frozen process.
        disablePrefetch: true,
        cacheExpiry: -1,
      }),
    )
    .use({ before: ({ internal }) => token.offer(Promise.resolve(internal.token)) })
    .handler((event: unknown, context: Context) =>
      withinInvocation(context.getRemainingTimeInMillis(), clock, (invocation) => body(event, ports, invocation)),
    );
}

/** An event that the bus did not take. PutEvents says so within a successful answer. */
class EventRefusedError extends Error {
  override readonly name = 'EventRefusedError';
}

function busAt(eventBridge: EventBridgeClient, EventBusName: string): EventBus {
  return {
    async send({ detailType: DetailType, detail: Detail }, abortSignal) {
      const entry = { EventBusName, Source: EVENT_SOURCE, DetailType, Detail };
      const answer = await eventBridge.send(new PutEventsCommand({ Entries: [entry] }), { abortSignal });
      const [refused] = answer.Entries ?? [];
      if (refused?.ErrorCode !== undefined) {
        throw new EventRefusedError(`${EventBusName}: ${refused.ErrorCode}: ${refused.ErrorMessage}`);
      }
    },
  };
}
