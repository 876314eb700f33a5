import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import * as z from 'zod/mini';
import { ConfigurationError, check, shorten, strictObject } from '../base/validation.ts';
import { isHttpsOrLoopback } from '../flow-service/addresses.ts';
import { type Route, routesSchema } from '../uploads/routes.ts';

export { ConfigurationError } from '../base/validation.ts';

/**
 * The environment of both functions, and the only way in which infrastructure tells them anything. The stack is
 * checked against this type by the compiler, and a function parses it once, at its cold start.
 */
export interface Env {
  /** Name of the deployment; it is part of every flow's tag. */
  readonly PIPELINE: string;
  /** The flow service's base address, `https://...`, without a trailing slash. */
  readonly FLOW_SERVICE_URL: string;
  /** ARN or name of the secret that holds the token. */
  readonly TOKEN_SECRET_ID: string;
  readonly INBOX_BUCKET: string;
  readonly RESULTS_BUCKET: string;
  readonly LEDGER_BUCKET: string;
  /** The queue that uploads come from, and that waiting ones are sent to again. */
  readonly QUEUE_URL: string;
  /** Name of the collecting function: it is in the command that retries a failed upload. */
  readonly COLLECT_FUNCTION: string;
  /** Name or ARN of the event bus that is told how uploads ended. */
  readonly EVENT_BUS: string;
  /** JSON: the routes. Or `file:<name>`, a file of that JSON beside the bundle, where they are too long for here. */
  readonly ROUTES: string;
  /** JSON: those of {@link PipelineSettings} that differ from the defaults. */
  readonly SETTINGS: string;
}

/** Every limit and choice that has a default. Units come last in a name. */
export interface PipelineSettings {
  /** Uploads sent side by side within one invocation. Default 4. */
  readonly uploadConcurrency: number;
  /** Largest upload that is sent, in bytes. Default 5 GiB. */
  readonly inputBytesMax: number;
  /** Largest text upload, in bytes; text is held in memory. Default 1 MiB. */
  readonly textBytesMax: number;
  /** Largest asset that is stored, in bytes. Default 20 GiB. */
  readonly assetBytesMax: number;
  /** Most outputs of one flow that are stored. Default 1,000. */
  readonly outputsMax: number;
  /**
   * How deep the lists and objects of the service's JSON may be nested. Default 100: what is known of it is below ten
   * deep, but for what users put into `additional`.
   */
  readonly answerDepthMax: number;
  /** Failures that the file may be the cause of before it ends as failed. Default 5. */
  readonly attemptsMax: number;
  /** What becomes of a doubt that cannot be settled: `retry` may pay twice, `hold` waits for a person. Default retry. */
  readonly inDoubt: 'retry' | 'hold';
  /**
   * Seconds between two looks at a flow that is younger than ten minutes. A flow younger than twice that is looked at
   * three times as often. Default 15.
   */
  readonly pollIntervalSeconds: number;
  /** Flows looked at side by side. Default 64. */
  readonly pollConcurrency: number;
  /** Large assets stored side by side, each with 7.5 MiB of memory. Small ones share that memory. Default 4. */
  readonly assetConcurrency: number;
  /**
   * Ceiling of the requests that one process sends to the service in a second: one for creations, and one for all
   * others. Below it, the pace is learnt from what the service refuses. Default `unlimited`.
   */
  readonly requestsPerSecond: number | 'unlimited';
  /** Oldest that a running flow may become before it ends as failed, in seconds. Default 7 days. */
  readonly flowAgeMaxSeconds: number;
  /**
   * Days after which an ended upload's entry expires. The scheduled sweep leaves older uploads alone, for without its
   * entry an upload would be paid for again. Default `forever`.
   */
  readonly ledgerRetentionDays: number | 'forever';
  /** Where the outputs listing is: found out, or pinned to one of the two spellings. Default auto. */
  readonly outputsPath: 'auto' | 'flows' | 'root';
  /**
   * Key of an asset in the results bucket, below `resultsPrefix`: `{key}`, `{flowId}`, `{assetId}` and `{ext}` are
   * replaced. Default `{key}/{flowId}/{assetId}{ext}`.
   */
  readonly resultsKey: string;
  /** Only uploads whose keys start with this are looked at. Default none: the whole bucket. */
  readonly inboxPrefix: string;
  /** Everything in the results bucket, receipts too, has a key that starts with this. Default none. */
  readonly resultsPrefix: string;
}

/** What both functions run on: the environment, parsed and frozen. */
export interface Settings extends PipelineSettings {
  readonly pipeline: string;
  readonly baseUrl: URL;
  readonly tokenSecretId: string;
  readonly inboxBucket: string;
  readonly resultsBucket: string;
  readonly ledgerBucket: string;
  readonly queueUrl: string;
  readonly collectFunction: string;
  readonly eventBus: string;
  readonly routes: readonly Route[];
}

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;
const TIB = 1024 * GIB;

const SECONDS_PER_HOUR = 3600;
const SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR;

export const SETTINGS_DEFAULT: PipelineSettings = Object.freeze({
  uploadConcurrency: 4,
  inputBytesMax: 5 * GIB,
  textBytesMax: MIB,
  assetBytesMax: 20 * GIB,
  outputsMax: 1_000,
  answerDepthMax: 100,
  attemptsMax: 5,
  inDoubt: 'retry',
  pollIntervalSeconds: 15,
  pollConcurrency: 64,
  assetConcurrency: 4,
  requestsPerSecond: 'unlimited',
  flowAgeMaxSeconds: 7 * SECONDS_PER_DAY,
  ledgerRetentionDays: 'forever',
  outputsPath: 'auto',
  resultsKey: '{key}/{flowId}/{assetId}{ext}',
  inboxPrefix: '',
  resultsPrefix: '',
});

/** Half of what S3 allows in a key, so that prefix and pattern leave room for the names that fill it. */
const KEY_PART_LENGTH_MAX = 512;
const PIPELINE_LENGTH_MAX = 40;

function whole(unit: string, min: number, max: number) {
  const error = `expected a whole number of ${unit} from ${min} to ${max}`;
  return z.int({ error }).check(z.gte(min, { error }), z.lte(max, { error }));
}

function oneOf<const T extends readonly string[]>(...values: T) {
  return z.enum(values, { error: `expected one of ${values.map((value) => `"${value}"`).join(', ')}` });
}

function text(expected: string, holds: (value: string) => boolean) {
  const error = `expected ${expected}`;
  return z.string({ error }).check(z.refine(holds, { error }));
}

const nonEmpty = (what: string) => text(what, (value) => value.trim() !== '');

/**
 * Ids in keys are percent-encoded and so hold no slash. With a slash between any two placeholders, and the asset's id
 * in the last segment, no two assets of any flows can come to the same key.
 */
function issueOfResultsKey(pattern: string): string | undefined {
  const placeholders: readonly string[] = pattern.match(/\{[^{}]*\}/g) ?? [];
  const unknown = placeholders.find((each) => !['{key}', '{flowId}', '{assetId}', '{ext}'].includes(each));
  if (unknown !== undefined) return `expected only {key}, {flowId}, {assetId} and {ext} in braces, not ${unknown}`;
  if (/[{}]/.test(pattern.replaceAll(/\{[^{}]*\}/g, ''))) return 'expected every brace to be part of a placeholder';
  for (const needed of ['{flowId}', '{assetId}']) {
    if (!placeholders.includes(needed)) return `expected ${needed} in it, or assets would overwrite each other`;
  }
  if (new Set(placeholders).size < placeholders.length) return 'expected each placeholder once';
  if (!/\{assetId\}(\{ext\})?$/.test(pattern)) return 'expected it to end in {assetId} or {assetId}{ext}';
  const segments = pattern.replace(/\{ext\}$/, '').split('/');
  if (segments.some((segment) => (segment.match(/\{/g) ?? []).length > 1)) {
    return 'expected a slash between {key}, {flowId} and {assetId}, or two assets could come to one key';
  }
  if (segments.includes('')) return 'expected no slash at the start and no two in a row';
  if (pattern.length > KEY_PART_LENGTH_MAX) return `expected at most ${KEY_PART_LENGTH_MAX} characters`;
  return undefined;
}

const resultsKeySchema = z.string({ error: 'expected a pattern such as "{key}/{flowId}/{assetId}{ext}"' }).check(
  z.superRefine((pattern, context) => {
    const issue = issueOfResultsKey(pattern);
    if (issue !== undefined) context.addIssue(issue);
  }),
);

/** The characters that S3 calls safe, without the asterisk, which would mean more than itself in a policy. */
const PREFIX = /^([A-Za-z0-9!_.'()-]+\/)*$/;

const prefixSchema = text(
  `nothing, or a prefix such as "in/" of at most ${KEY_PART_LENGTH_MAX} letters, digits and !_.'()-, with a slash at its end`,
  (value) => PREFIX.test(value) && value.length <= KEY_PART_LENGTH_MAX,
);

/** What 10,000 parts of 5 MiB hold: see `results/results.ts`. */
const ASSET_BYTES_MAX = 48 * GIB;

/** Below this, uploads that wait for a person, or run for a week, could lose their entries. */
const RETENTION_DAYS_MIN = 30;
const RETENTION_DAYS_MAX = 3650;
const RETENTION_ERROR = `expected "forever", or a whole number of days from ${RETENTION_DAYS_MIN} to ${RETENTION_DAYS_MAX}`;
const retentionSchema: z.ZodMiniType<number | 'forever'> = z.union(
  [
    z.literal('forever'),
    z
      .int({ error: RETENTION_ERROR })
      .check(
        z.gte(RETENTION_DAYS_MIN, { error: RETENTION_ERROR }),
        z.lte(RETENTION_DAYS_MAX, { error: RETENTION_ERROR }),
      ),
  ],
  { error: RETENTION_ERROR },
);

/** The range of the ceiling, in requests a second: from one in 100 seconds to more than a process can send. */
const REQUESTS_PER_SECOND_MIN = 0.01;
const REQUESTS_PER_SECOND_MAX = 10_000;
const CEILING_ERROR = `expected "unlimited", or a number of requests a second from ${REQUESTS_PER_SECOND_MIN} to ${REQUESTS_PER_SECOND_MAX}`;
const ceilingSchema: z.ZodMiniType<number | 'unlimited'> = z.union(
  [
    z.literal('unlimited'),
    z
      .number({ error: CEILING_ERROR })
      .check(
        z.gte(REQUESTS_PER_SECOND_MIN, { error: CEILING_ERROR }),
        z.lte(REQUESTS_PER_SECOND_MAX, { error: CEILING_ERROR }),
      ),
  ],
  { error: CEILING_ERROR },
);

/**
 * The ranges that make sense, whatever one's taste: their ends are where another limit (of Lambda's memory and time,
 * or of S3's objects) would be met anyway.
 */
const settingsSchema = strictObject({
  uploadConcurrency: z.optional(whole('uploads', 1, 16)),
  inputBytesMax: z.optional(whole('bytes', 1, 5 * TIB)),
  textBytesMax: z.optional(whole('bytes', 1, 16 * MIB)),
  assetBytesMax: z.optional(whole('bytes', 1, ASSET_BYTES_MAX)),
  outputsMax: z.optional(whole('outputs', 1, 10_000)),
  answerDepthMax: z.optional(whole('levels', 50, 1_000)),
  attemptsMax: z.optional(whole('attempts', 1, 100)),
  inDoubt: z.optional(oneOf('retry', 'hold')),
  pollIntervalSeconds: z.optional(whole('seconds', 1, SECONDS_PER_HOUR)),
  pollConcurrency: z.optional(whole('flows', 1, 1_000)),
  assetConcurrency: z.optional(whole('assets', 1, 16)),
  requestsPerSecond: z.optional(ceilingSchema),
  flowAgeMaxSeconds: z.optional(whole('seconds', 60, 365 * SECONDS_PER_DAY)),
  ledgerRetentionDays: z.optional(retentionSchema),
  outputsPath: z.optional(oneOf('auto', 'flows', 'root')),
  resultsKey: z.optional(resultsKeySchema),
  inboxPrefix: z.optional(prefixSchema),
  resultsPrefix: z.optional(prefixSchema),
}).check(
  z.superRefine(({ flowAgeMaxSeconds, pollIntervalSeconds, ledgerRetentionDays }, context) => {
    const age = flowAgeMaxSeconds ?? SETTINGS_DEFAULT.flowAgeMaxSeconds;
    if (typeof ledgerRetentionDays === 'number' && ledgerRetentionDays * SECONDS_PER_DAY < 2 * age) {
      const message = `expected at least twice flowAgeMaxSeconds (${age}), or entries of running flows could expire`;
      context.addIssue({ code: 'custom', path: ['ledgerRetentionDays'], message, input: ledgerRetentionDays });
    }
    const interval = pollIntervalSeconds ?? SETTINGS_DEFAULT.pollIntervalSeconds;
    if (age < 2 * interval) {
      const message = `expected at least twice pollIntervalSeconds (${interval}), or flows would fail before they are polled`;
      context.addIssue({ code: 'custom', path: ['flowAgeMaxSeconds'], message, input: age });
    }
  }),
);

/** The name goes into tags, names of resources and dimensions of metrics, so it has what all of these allow. */
const pipelineSchema = text(
  `a name of at most ${PIPELINE_LENGTH_MAX} lower-case letters, digits and hyphens that starts with a letter`,
  (value) => /^[a-z][a-z0-9-]*$/.test(value) && !value.endsWith('-') && value.length <= PIPELINE_LENGTH_MAX,
);

/** What is wrong with the address of a flow service, if anything is. */
export function issueOfBaseUrl(value: string): string | undefined {
  const url = URL.parse(value);
  if (url === null) return `expected a URL such as https://flows.example.com, got ${shorten(withoutSecrets(value))}`;
  if (!isHttpsOrLoopback(url)) {
    return `expected https:, or http: on a loopback host, got ${shorten(withoutSecrets(value))}`;
  }
  // What follows may hold a secret, so it is named and not quoted.
  if (url.username !== '' || url.password !== '') return 'expected no user name or password in the URL';
  if (url.search !== '' || url.hash !== '') return 'expected a URL without query and fragment';
  return undefined;
}

const withoutSecrets = (url: string) => url.replace(/\/\/[^/]*@/, '//...@').replace(/[?#].*$/s, '?...');

const baseUrlSchema = z.pipe(
  z.string({ error: 'expected a URL such as https://flows.example.com' }).check(
    z.superRefine((value, context) => {
      const issue = issueOfBaseUrl(value);
      if (issue !== undefined)
        context.addIssue({ code: 'custom', message: issue, input: value, params: { quoted: true } });
    }),
  ),
  z.transform((value) => {
    const url = new URL(value);
    url.pathname = url.pathname.replace(/\/+$/, '');
    return url;
  }),
);

const withDefaults = (given: Partial<PipelineSettings>): PipelineSettings => {
  const set = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.freeze({ ...SETTINGS_DEFAULT, ...Object.fromEntries(set) });
};

/** Where things are put: what the refusal of loops needs to know, at synth as at run time. */
export interface Buckets {
  readonly inboxBucket: string;
  readonly resultsBucket: string;
  readonly ledgerBucket: string;
  readonly inboxPrefix: string;
  readonly resultsPrefix: string;
}

/**
 * What would make a result an upload again, for ever and for money; or let the ledger's entries be taken for either.
 * At synth a name may be a token: equal tokens are the same bucket, and different ones different buckets.
 */
export function issuesOfBuckets({
  inboxBucket,
  resultsBucket,
  ledgerBucket,
  inboxPrefix,
  resultsPrefix,
}: Buckets): string[] {
  const issues: string[] = [];
  if (
    inboxBucket === resultsBucket &&
    (inboxPrefix.startsWith(resultsPrefix) || resultsPrefix.startsWith(inboxPrefix))
  ) {
    issues.push(
      `inbox and results are one bucket, ${inboxBucket}, so every result would be an upload again: ` +
        `expected inboxPrefix and resultsPrefix of which neither starts with the other, ` +
        `got ${JSON.stringify(inboxPrefix)} and ${JSON.stringify(resultsPrefix)}`,
    );
  }
  for (const [name, bucket] of [
    ['inbox', inboxBucket],
    ['results', resultsBucket],
  ] as const) {
    if (bucket === ledgerBucket) issues.push(`${name} and ledger are one bucket, ${bucket}: the ledger needs its own`);
  }
  return issues;
}

const FILE_PREFIX = 'file:';

/** Variables by their names, as `process.env` has them. */
type Variables = Readonly<Record<string, string | undefined>>;

/**
 * The routes are in the variable itself, or beside the bundle where Lambda unpacked it.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html (`LAMBDA_TASK_ROOT`)
 */
function readRoutes(env: Variables): string | undefined {
  const { ROUTES, LAMBDA_TASK_ROOT } = env;
  if (!ROUTES?.startsWith(FILE_PREFIX)) return ROUTES;
  return readFileSync(join(LAMBDA_TASK_ROOT ?? '.', basename(ROUTES.slice(FILE_PREFIX.length))), 'utf8');
}

const envSchema = z.object({
  PIPELINE: pipelineSchema,
  FLOW_SERVICE_URL: baseUrlSchema,
  TOKEN_SECRET_ID: nonEmpty('the ARN or name of a secret'),
  INBOX_BUCKET: nonEmpty('the name of a bucket'),
  RESULTS_BUCKET: nonEmpty('the name of a bucket'),
  LEDGER_BUCKET: nonEmpty('the name of a bucket'),
  QUEUE_URL: text("a queue's URL", (value) => URL.canParse(value)),
  COLLECT_FUNCTION: nonEmpty('the name of a function'),
  EVENT_BUS: nonEmpty('the name or ARN of an event bus'),
});

/**
 * The settings that an environment says, frozen.
 * @throws {ConfigurationError} naming everything that is missing or wrong, not only the first.
 */
export function parseEnv(env: Variables): Settings {
  const variables = check(envSchema, env, '');
  const routes = checkJson(routesSchema, 'ROUTES', () => readRoutes(env));
  const chosen = checkJson(settingsSchema, 'SETTINGS', () => env.SETTINGS);
  const issues = [...variables.issues, ...routes.issues, ...chosen.issues];
  if (variables.data === undefined || routes.data === undefined || chosen.data === undefined) {
    throw new ConfigurationError(issues);
  }
  const settings: Settings = {
    ...withDefaults(chosen.data),
    pipeline: variables.data.PIPELINE,
    baseUrl: variables.data.FLOW_SERVICE_URL,
    tokenSecretId: variables.data.TOKEN_SECRET_ID,
    inboxBucket: variables.data.INBOX_BUCKET,
    resultsBucket: variables.data.RESULTS_BUCKET,
    ledgerBucket: variables.data.LEDGER_BUCKET,
    queueUrl: variables.data.QUEUE_URL,
    collectFunction: variables.data.COLLECT_FUNCTION,
    eventBus: variables.data.EVENT_BUS,
    routes: freeze(routes.data),
  };
  const loops = issuesOfBuckets(settings);
  if (loops.length > 0) throw new ConfigurationError(loops);
  return Object.freeze(settings);
}

function checkJson<T extends z.core.$ZodType>(schema: T, name: string, read: () => string | undefined) {
  let json: string | undefined;
  try {
    json = read();
    return check(schema, json === undefined ? undefined : JSON.parse(json), name);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { issues: [`${name}: expected JSON, got ${shorten(JSON.stringify(json))} (${why})`], data: undefined };
  }
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    for (const each of Object.values(value)) freeze(each);
    Object.freeze(value);
  }
  return value;
}

/** The context `flowdrop` of cdk.json, as far as the functions are concerned. */
export interface Context {
  readonly pipeline: string;
  readonly baseUrl: URL;
  readonly routes: readonly Route[];
  readonly settings: PipelineSettings;
  /** How and into what it is deployed: infrastructure's own, and checked there. */
  readonly deployment: unknown;
}

const contextSchema = strictObject(
  {
    pipeline: z.optional(pipelineSchema),
    baseUrl: baseUrlSchema,
    routes: routesSchema,
    settings: z.optional(settingsSchema),
    deployment: z.optional(z.unknown()),
  },
  'an object with baseUrl and routes, such as ' +
    '{"baseUrl": "https://flows.example.com", "routes": [{"name": "all", "template": "the name of a template"}]}',
);

/**
 * The same settings as they are written in cdk.json, checked by the same schemas.
 * @throws {ConfigurationError} naming every issue with its path (`flowdrop.routes[1].suffixes[0]`) and value.
 */
export function parseContext(value: unknown, where = 'flowdrop'): Context {
  const { issues, data } = check(contextSchema, value, where);
  if (data === undefined) throw new ConfigurationError(issues);
  const { pipeline = 'flowdrop', baseUrl, routes, settings = {}, deployment } = data;
  return { pipeline, baseUrl, routes: freeze(routes), settings: withDefaults(settings), deployment };
}
