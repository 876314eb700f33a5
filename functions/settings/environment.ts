import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import * as z from 'zod/mini';
import { deepFreeze } from '../base/deep-freeze.ts';
import { messageOf, quoted } from '../base/printable.ts';
import type { Monitoring } from '../base/telemetry.ts';
import { ConfigurationError, check, text } from '../base/validation.ts';
import type { ServiceDescription } from '../flow-service/service-description.ts';
import type { Proxies } from '../flow-service/types.ts';
import { ENCRYPTION_HEADERS, type Encryption, type EncryptionHeader } from '../s3/encryption.ts';
import type { Route } from '../uploads/route.ts';
import { routesSchema, skipping } from '../uploads/routes.ts';
import { issuesOfBuckets } from './buckets.ts';
import { checkProxies, type ProxyVariables } from './proxies.ts';
import { serviceSchema } from './service.ts';
import { baseUrlSchema } from './service-address.ts';
import { type PipelineSettings, pipelineNameSchema, settingsSchema } from './settings.ts';

/**
 * The environment of both functions. The compiler checks the stack against this type. A function parses it once, at its
 * cold start. Two things come another way: long routes in a file beside the bundle, and the number of a collector in
 * the event of its schedule.
 */
export interface Env extends ProxyVariables {
  /** Name of the pipeline. It is part of every flow's tag. */
  readonly PIPELINE: string;
  /** Base address of the flow service, `https://...`, without a slash at its end. */
  readonly FLOW_SERVICE_URL: string;
  /** ARN or name of the secret that holds the token. */
  readonly TOKEN_SECRET_ID: string;
  readonly INBOX_BUCKET: string;
  readonly RESULTS_BUCKET: string;
  readonly LEDGER_BUCKET: string;
  /** URL of the queue that delivers uploads, and to which waiting uploads are resubmitted. */
  readonly QUEUE_URL: string;
  /** URL of the queue whose delayed messages begin the rounds of a tick. Without it, a tick waits for its rounds itself. */
  readonly ROUND_QUEUE_URL?: string;
  /** Name of the collecting function, for the command that retries a failed upload. */
  readonly COLLECT_FUNCTION: string;
  /** How `flowdrop` is typed where the pipeline was deployed from. */
  readonly COMMAND?: string;
  /** The inbox folder of a local run, and empty if the run has none. A deployment does not set it. */
  readonly LOCAL_INBOX?: string;
  /** Name or ARN of the event bus that receives an event for each ended upload. */
  readonly EVENT_BUS: string;
  /**
   * JSON of the routes. Or `file:<name>`: a file with that JSON beside the bundle, if they are too long for here. A text
   * such as `{TEXT_1}` in it is the name of a variable with the value.
   */
  readonly ROUTES: string;
  /** A value of the routes that is known only at deployment. */
  readonly [name: LaterName]: string;
  /** JSON of the {@link PipelineSettings} that differ from the defaults. */
  readonly SETTINGS: string;
  /** JSON of how the service speaks: the name of a description, or a description. Default: `flows`. */
  readonly SERVICE?: string;
  /** What reads the metrics. Default: `full`. */
  readonly MONITORING?: Monitoring;
  /** Days after which the lifecycle of the results bucket expires assets. Absent: they stay, and get no tag. */
  readonly RESULTS_RETENTION_DAYS?: string;
  /** The encryption that every write to S3 names. Absent: none, so S3 takes the default of the bucket. */
  readonly ENCRYPTION_HEADER?: EncryptionHeader;
  /** ARN of the key that writes to the inbox name beside it, if the bucket has one. */
  readonly INBOX_KEY?: string;
  readonly RESULTS_KEY?: string;
  readonly LEDGER_KEY?: string;
}

/** Name of the variable of a value that is known only at deployment. */
export type LaterName = `TEXT_${number}` | `NUMBER_${number}`;

/** The settings of both functions: their environment, parsed and frozen. */
export interface Settings extends PipelineSettings {
  readonly pipeline: string;
  readonly baseUrl: URL;
  readonly tokenSecretId: string;
  readonly inboxBucket: string;
  readonly resultsBucket: string;
  readonly ledgerBucket: string;
  readonly queueUrl: string;
  readonly roundQueueUrl?: string | undefined;
  readonly collectFunction: string;
  /** How `flowdrop` is typed, in the commands that a receipt shows. */
  readonly command: string;
  /** The inbox folder of a local run, or nothing if it has none. Undefined in a deployment. */
  readonly localInbox?: string | undefined;
  readonly eventBus: string;
  readonly monitoring: Monitoring;
  /** Days after which S3 expires assets, by their tag. Undefined if they stay. */
  readonly resultsRetentionDays?: number | undefined;
  /** Undefined if writes rely on the default encryption of the buckets. */
  readonly encryption?: Encryption;
  /** How the flow service speaks. */
  readonly service: ServiceDescription;
  /** The proxies between the functions and the service. No request to AWS goes through them. */
  readonly proxies: Proxies;
  readonly routes: readonly Route[];
  /** True if the routes are in a file beside the bundle, because the environment has no room for them. */
  readonly areRoutesBeside?: true;
}

/** Environment variables by name, as `process.env` has them. */
type Variables = Readonly<Record<string, string | undefined>>;

const nonEmpty = (what: string) => text(what, (value) => value.trim() !== '');

const envSchema = z.object({
  PIPELINE: pipelineNameSchema,
  FLOW_SERVICE_URL: baseUrlSchema,
  TOKEN_SECRET_ID: nonEmpty('the ARN or name of a secret'),
  INBOX_BUCKET: nonEmpty('the name of a bucket'),
  RESULTS_BUCKET: nonEmpty('the name of a bucket'),
  LEDGER_BUCKET: nonEmpty('the name of a bucket'),
  QUEUE_URL: text("a queue's URL", (value) => URL.canParse(value)),
  ROUND_QUEUE_URL: z.optional(text("a queue's URL", (value) => URL.canParse(value))),
  COLLECT_FUNCTION: nonEmpty('the name of a function'),
  COMMAND: z._default(z.string(), 'flowdrop'),
  LOCAL_INBOX: z.optional(z.string()),
  EVENT_BUS: nonEmpty('the name or ARN of an event bus'),
  MONITORING: z._default(z.enum(['full', 'alarms', 'none']), 'full'),
  RESULTS_RETENTION_DAYS: z.optional(text('a number of days', (value) => Number(value) > 0)),
  ENCRYPTION_HEADER: z.optional(z.enum(ENCRYPTION_HEADERS)),
  INBOX_KEY: z.optional(z.string()),
  RESULTS_KEY: z.optional(z.string()),
  LEDGER_KEY: z.optional(z.string()),
});

/**
 * Parses the environment into frozen settings.
 * @throws {ConfigurationError} It names everything that is missing or wrong, not only the first issue.
 */
export function parseEnv(env: Variables): Settings {
  const variables = check(envSchema, env, '');
  const routes = checkJson(routesSchema, 'ROUTES', () => readRoutes(env), withLater(env));
  const chosen = checkJson(settingsSchema, 'SETTINGS', () => env.SETTINGS);
  const service = checkJson(serviceSchema, 'SERVICE', () => env.SERVICE ?? '"flows"');
  const { proxies, ...checked } = checkProxies(env);
  const issues = [...variables.issues, ...routes.issues, ...chosen.issues, ...service.issues, ...checked.issues];
  const isSound = variables.data !== undefined && routes.data !== undefined && chosen.data !== undefined;
  if (!isSound || service.data === undefined || checked.issues.length > 0) throw new ConfigurationError(issues);
  const { RESULTS_RETENTION_DAYS: retentionDays, ENCRYPTION_HEADER: header } = variables.data;
  const withKey = (SSEKMSKeyId?: string) => ({ ServerSideEncryption: header, SSEKMSKeyId });
  const settings: Settings = {
    ...chosen.data,
    pipeline: variables.data.PIPELINE,
    baseUrl: variables.data.FLOW_SERVICE_URL,
    tokenSecretId: variables.data.TOKEN_SECRET_ID,
    inboxBucket: variables.data.INBOX_BUCKET,
    resultsBucket: variables.data.RESULTS_BUCKET,
    ledgerBucket: variables.data.LEDGER_BUCKET,
    queueUrl: variables.data.QUEUE_URL,
    roundQueueUrl: variables.data.ROUND_QUEUE_URL,
    collectFunction: variables.data.COLLECT_FUNCTION,
    command: variables.data.COMMAND,
    localInbox: variables.data.LOCAL_INBOX,
    eventBus: variables.data.EVENT_BUS,
    monitoring: variables.data.MONITORING,
    ...(retentionDays !== undefined && { resultsRetentionDays: Number(retentionDays) }),
    ...(header !== undefined && {
      encryption: {
        [variables.data.INBOX_BUCKET]: withKey(variables.data.INBOX_KEY),
        [variables.data.RESULTS_BUCKET]: withKey(variables.data.RESULTS_KEY),
        [variables.data.LEDGER_BUCKET]: withKey(variables.data.LEDGER_KEY),
      },
    }),
    service: deepFreeze(service.data),
    proxies,
    routes: deepFreeze(skipping(routes.data, chosen.data.skippedNames)),
    ...(areRoutesBeside(env.ROUTES) && { areRoutesBeside: true }),
  };
  const overlaps = issuesOfBuckets(settings);
  if (overlaps.length > 0) throw new ConfigurationError(overlaps);
  return Object.freeze(settings);
}

const FILE_PREFIX = 'file:';

/** True if the variable names a file with the routes. */
export const areRoutesBeside = (variable: string | undefined): boolean => variable?.startsWith(FILE_PREFIX) === true;

/**
 * Reads the JSON of the routes from the variable, or from the file beside the bundle, where Lambda unpacked it.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html (`LAMBDA_TASK_ROOT`)
 */
function readRoutes(env: Variables): string | undefined {
  const { ROUTES, LAMBDA_TASK_ROOT } = env;
  if (ROUTES === undefined || !areRoutesBeside(ROUTES)) return ROUTES;
  return readFileSync(join(LAMBDA_TASK_ROOT ?? '.', basename(ROUTES.slice(FILE_PREFIX.length))), 'utf8');
}

/** Puts values that are known only since the deployment in the places of the names of their variables. */
const withLater = (env: Variables) => (_: string, value: unknown) => {
  const [, name, kind] = (typeof value === 'string' && /^\{((TEXT|NUMBER)_\d+)\}$/.exec(value)) || [];
  if (name === undefined) return value;
  const later = kind === 'NUMBER' ? Number(env[name]?.trim() || Number.NaN) : env[name];
  if (later === undefined || Number.isNaN(later)) throw new Error(`${name} is ${quoted(env[name])}`);
  return later;
};

function checkJson<T extends z.core.$ZodType>(
  schema: T,
  name: string,
  read: () => string | undefined,
  reviver?: (name: string, value: unknown) => unknown,
) {
  let json: string | undefined;
  try {
    json = read();
    return check(schema, json === undefined ? undefined : JSON.parse(json, reviver), name);
  } catch (error) {
    return { issues: [`${name}: expected JSON, got ${quoted(json)} (${messageOf(error)})`], data: undefined };
  }
}
