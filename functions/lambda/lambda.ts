import { randomUUID } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import { injectLambdaContext } from '@aws-lambda-powertools/logger/middleware';
import { EventBridgeClient, PutEventsCommand } from '@aws-sdk/client-eventbridge';
import { SecretsManagerClient } from '@aws-sdk/client-secrets-manager';
import middy from '@middy/core';
import errorLogger from '@middy/error-logger';
import type { Context } from 'aws-lambda';
import { systemClock } from '../base/clock.ts';
import { type Invocation, withinInvocation } from '../base/invocation.ts';
import { createFlowService, type FlowServiceOptions } from '../flow-service/client.ts';
import { httpTransport } from '../flow-service/http-transport.ts';
import { Pacer } from '../flow-service/pacer.ts';
import { EVENT_SOURCE } from '../publish/completion-event.ts';
import type { EventBus } from '../publish/event-bus.ts';
import { s3Client } from '../s3/client.ts';
import { parseEnv } from '../settings/environment.ts';
import type { Wiring } from './ports.ts';
import { powertools } from './powertools.ts';
import { SecretToken } from './token.ts';

/** Maximum number of sockets of one AWS client. The streams to S3 and the small requests around them stay below it. */
const AWS_SOCKETS_MAX = 128;

/** Time limit for a connection to an AWS endpoint, in milliseconds. A connection normally takes a few. */
const AWS_CONNECT_TIMEOUT_MS = 3_000;

/** Time limit for the answer to a request, in milliseconds. Requests to AWS are small, or carry parts of 5 MiB. */
const AWS_REQUEST_TIMEOUT_MS = 60_000;

/** Longest time without a byte on a connection to AWS, in milliseconds. It limits the body behind the head, too. */
const AWS_IDLE_TIMEOUT_MS = 60_000;

/** Maximum number of attempts per request to AWS. */
const AWS_ATTEMPTS_MAX = 5;

/** The configuration of every AWS client of a function. */
export const AWS_CLIENT = {
  maxAttempts: AWS_ATTEMPTS_MAX,
  requestHandler: {
    connectionTimeout: AWS_CONNECT_TIMEOUT_MS,
    requestTimeout: AWS_REQUEST_TIMEOUT_MS,
    socketTimeout: AWS_IDLE_TIMEOUT_MS,
    throwOnRequestTimeout: true,
    httpAgent: { maxSockets: AWS_SOCKETS_MAX },
    httpsAgent: { maxSockets: AWS_SOCKETS_MAX },
  },
} as const;

/**
 * A flag of V8 that keeps the young generation of its heap at the size that it has when the function is loaded.
 *
 * A stream leaves behind small objects in the young generation, and large buffers outside of it. V8 frees both when the
 * small objects fill the young generation, and doubles that generation from time to time, up to 16 MiB. So a longer
 * stream would keep more dead buffers. Node refuses this flag in `NODE_OPTIONS`.
 */
const V8_FLAG = '--semi-space-growth-factor=1';

/**
 * Makes a Lambda function of `body`. Settings, clients, token and ports are made once per process. Logger context,
 * metrics and the logging of errors are middleware.
 * @param download fetches assets, if the function does.
 * @throws {ConfigurationError} at import. It names everything that is wrong with the environment.
 */
export function lambda<P, T>(
  portsOf: (wiring: Wiring) => P,
  body: (event: unknown, ports: P, invocation: Invocation) => Promise<T>,
  { download }: Pick<FlowServiceOptions, 'download'> = {},
) {
  setFlagsFromString(V8_FLAG);
  const settings = parseEnv(process.env);
  const clock = systemClock;
  const { logger, metrics, telemetry } = powertools(settings.pipeline, settings.monitoring);
  const token = new SecretToken(new SecretsManagerClient(AWS_CLIENT), settings.tokenSecretId, clock);
  const pacer = new Pacer(clock, settings.requestsPerSecond);
  const ports = portsOf({
    settings,
    s3: s3Client(AWS_CLIENT, settings.encryption),
    flows: createFlowService({
      baseUrl: settings.baseUrl,
      service: settings.service,
      download,
      assetBytesMax: settings.assetBytesMax,
      assetBytesPerSecondMin: settings.assetBytesPerSecondMin,
      pacer,
      token,
      clock,
      transport: httpTransport({ clock, proxies: settings.proxies }),
    }),
    pacer,
    events: busAt(new EventBridgeClient(AWS_CLIENT), settings.eventBus),
    clock,
    nonce: randomUUID,
    telemetry,
  });
  // Powertools warns of an invocation without metrics, in a line of the log.
  const publish = () => void (metrics.hasStoredMetrics() && metrics.publishStoredMetrics());
  // Without this, middy would answer just before the time limit, while our work still runs in a process that freezes.
  return middy({ timeoutEarlyInMillis: 0 })
    .use(injectLambdaContext(logger))
    .use({ after: publish, onError: publish })
    .use(errorLogger({ logger: ({ error }) => logger.error('The invocation failed', error as Error) }))
    .handler((event: unknown, context: Context) =>
      withinInvocation(context.getRemainingTimeInMillis(), clock, (invocation) => body(event, ports, invocation)),
    );
}

function busAt(eventBridge: EventBridgeClient, EventBusName: string): EventBus {
  return {
    async send({ detailType: DetailType, detail: Detail }, abortSignal) {
      const entry = { EventBusName, Source: EVENT_SOURCE, DetailType, Detail };
      const answer = await eventBridge.send(new PutEventsCommand({ Entries: [entry] }), { abortSignal });
      const [refused] = answer.Entries ?? [];
      // PutEvents reports in a successful answer that the bus refused an event.
      if (refused?.ErrorCode !== undefined) {
        throw new Error(`${EventBusName} refused an event: ${refused.ErrorCode}: ${refused.ErrorMessage}`);
      }
    },
  };
}
