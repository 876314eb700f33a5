import type { RetentionDays } from 'aws-cdk-lib/aws-logs';
import * as z from 'zod/mini';
import {
  ConfigurationError,
  check,
  compareMembers,
  matching,
  strictObject,
  wholeNumber,
} from '../functions/base/validation.ts';
import { ENCRYPTION_HEADERS } from '../functions/s3/encryption.ts';
import { issuesOfBuckets } from '../functions/settings/buckets.ts';
import { type Context, contextSchema, frozenContext } from '../functions/settings/context.ts';
import { idleBudgets, warningsOfRoutes } from '../functions/settings/route-checks.ts';
import { type Configuration, type ConfigurationPlace, readConfiguration } from './configuration.ts';
import { deployedProxySchema, exceptionSchema } from './deployed-proxy.ts';
import { notifySchema } from './notify.ts';
import {
  BATCH_WINDOW_SECONDS,
  COLLECTORS,
  MAX_CONCURRENCY,
  type Range,
  RESULTS_RETENTION_DAYS,
  RUNBOOK_URL_MAX,
  VERSION_RETENTION_DAYS,
} from './ranges.ts';

const whole = ({ min, max }: Range) => wholeNumber('a whole number', min, max);

/**
 * The ends that S3 keeps for aliases of access points and for buckets of other kinds. Permissions and events of a bucket
 * have its own name, and a directory bucket sends no events.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
 */
const bucketName = matching(
  'the name of a bucket, and not of an access point or a directory bucket',
  // Capitals and underscores were allowed in us-east-1 until March 2018.
  /^(?!.*(?:-s3alias|--(?:ol|x|table)-s3|\.mrap)$)[A-Za-z0-9][\w.-]{1,61}[A-Za-z0-9]$/,
);
const keyArn = matching('the ARN of a key', /^arn:[\w-]+:kms:[\w-]+:\d{12}:key\/[\w-]+$/);

const account = matching('the 12 digits of an account', /^\d{12}$/);
const RUNBOOK_URL = new RegExp(`^(?!.{${RUNBOOK_URL_MAX + 1}})https?://\\S+$`);
const topicArn = matching('the ARN of a topic', /^arn:[\w-]+:sns:[\w-]+:\d{12}:[\w-]+$/);

const SECRET_ARN = 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:flows/token-AbCdEf';
/**
 * Secrets Manager adds a hyphen and six characters to the name of a secret in its ARN. A name has no colon.
 * @see https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_CreateSecret.html
 */
const SECRET = /^(arn:[\w-]+:secretsmanager:[\w-]+:\d{12}:secret:[\w/+=.@-]{1,512}-[A-Za-z0-9]{6}|[\w/+=.@-]{1,512})$/;

/**
 * Roles that IAM Identity Center or a service made cannot be changed by their users.
 * @see https://docs.aws.amazon.com/singlesignon/latest/userguide/using-service-linked-roles.html
 */
const roleArns = z.array(
  matching(
    'the ARN of a role that IAM lets you change',
    /^arn:[\w-]+:iam::\d{12}:role\/(?!aws-reserved\/|aws-service-role\/)([\w+=,.@/-]+\/)?[\w+=,.@-]{1,64}$/,
  ),
  { error: 'expected a list of ARNs of roles' },
);
const ROLES = ['viewerRoleArns', 'operatorRoleArns', 'uploaderRoleArns'] as const;

/**
 * The values of {@link RetentionDays}. They are written out, because `flowdrop doctor` checks this part without CDK.
 */
export const RETENTION_DAYS: readonly number[] = [
  1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653, 9999,
];

/**
 * AWS allows 50 tags on a resource, and one of them is ours.
 * @see https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html
 */
const TAGS_MAX = 49;
/** The tag that everything has, with the name of the pipeline. */
export const PIPELINE_TAG = 'flowdrop:pipeline';
const TAG_KEY = /^(?![aA][wW][sS]:)[\p{L}\p{Z}\p{N}_.:/=+\-@]{1,128}$/u;
/**
 * An alarm and a schedule group refuse a tag without a value, and IAM refuses a value that looks like one of AWS.
 * Everything gets the same tags.
 */
const TAG_VALUE = /^(?![aA][wW][sS]:)[\p{L}\p{Z}\p{N}_.:/=+\-@]{1,256}$/u;
const TAG_CHARACTERS = 'letters, digits, spaces and _.:/=+-@';

const tagsSchema = z
  .record(
    z.string().check(z.regex(TAG_KEY)),
    matching(`1 to 256 ${TAG_CHARACTERS} that do not start with "aws:"`, TAG_VALUE),
    {
      error: ({ code }) =>
        code === 'invalid_key'
          ? `expected a name of at most 128 ${TAG_CHARACTERS} that does not start with "aws:"`
          : 'expected an object',
    },
  )
  .check(
    z.meta({ maxProperties: TAGS_MAX }), // For the JSON schema.
    compareMembers((tags, _, refuse) => {
      const names = Object.keys(tags);
      if (names.length > TAGS_MAX) refuse([], `expected at most ${TAGS_MAX}`, { input: names.length });
      // See https://docs.aws.amazon.com/IAM/latest/UserGuide/id_tags.html
      const known = new Map([[PIPELINE_TAG, PIPELINE_TAG]]);
      for (const name of names) {
        const twin = known.get(name.toLowerCase());
        if (twin !== undefined) {
          refuse([name], `expected another name than ${twin} in any case, because IAM takes both for one`);
        }
        known.set(name.toLowerCase(), name);
      }
    }),
  );

const vpcSchema = strictObject({
  /** Id of the VPC. */
  id: matching('the id of a VPC', /^vpc-[0-9a-f]+$/),
  /** Ids of the subnets to run the functions in. */
  subnetIds: z
    .array(matching('the id of a subnet', /^subnet-[0-9a-f]+$/), { error: 'expected a list of subnets' })
    .check(z.minLength(1, { error: 'expected at least one subnet' })),
  /** Ids of the security groups of the functions. Default: a new group. */
  securityGroupIds: z.optional(
    z
      .array(matching('the id of a security group', /^sg-[0-9a-f]+$/), { error: 'expected a list of groups' })
      .check(z.minLength(1, { error: 'expected at least one group, or no securityGroupIds for a new one' })),
  ),
});

const IS_ITS_KEY = 'the key is its key; new resources are encrypted with encryptionKeyArn';
const IS_ITS_OWNER = 'the account is its owner; new resources belong to the account of the deployment';

/**
 * The proxy between the functions and the flow service.
 * @internal
 */
export const proxySchema = strictObject({
  /** Its address, such as `http://proxy.example.com:3128`. It holds no user and no password. */
  url: deployedProxySchema,
  /** What goes past it: hosts, domains with all names below them, or ranges of addresses such as `10.0.0.0/8`. */
  noProxy: z.optional(z.array(exceptionSchema, { error: 'expected a list of hosts, domains and ranges of addresses' })),
});

/** @internal */
export const encryptionHeaderSchema = z.enum(ENCRYPTION_HEADERS, {
  error: `expected one of ${ENCRYPTION_HEADERS.map((header) => `"${header}"`).join(', ')}`,
});

/** Why assets in an existing bucket do not expire by a setting. */
export const OWN_LIFECYCLE = 'the lifecycle of a bucket of your own is yours to set';

/** What a resource that is given by its name does not tell: its key and its owner. */
const FACTS_OF_RESOURCES = [
  ['inboxKeyArn', 'inboxBucket', IS_ITS_KEY],
  ['resultsKeyArn', 'resultsBucket', IS_ITS_KEY],
  ['ledgerKeyArn', 'ledgerBucket', IS_ITS_KEY],
  ['tokenKeyArn', 'tokenSecret', IS_ITS_KEY],
  ['inboxAccount', 'inboxBucket', IS_ITS_OWNER],
  ['resultsAccount', 'resultsBucket', IS_ITS_OWNER],
  ['ledgerAccount', 'ledgerBucket', IS_ITS_OWNER],
] as const;

/**
 * Beginnings of names that Systems Manager keeps for itself.
 * @see https://docs.aws.amazon.com/systems-manager/latest/userguide/sysman-parameter-name-constraints.html
 */
const PARAMETER_RESERVED = /^(aws|ssm)/;

/**
 * The part `deployment` of the context: existing resources, and how the pipeline is deployed. Resources are given by
 * names, because cdk.json cannot hold constructs.
 */
const deploymentSchema = strictObject({
  inboxBucket: z.optional(bucketName),
  inboxKeyArn: z.optional(keyArn),
  inboxAccount: z.optional(account),
  resultsBucket: z.optional(bucketName),
  resultsKeyArn: z.optional(keyArn),
  resultsAccount: z.optional(account),
  ledgerBucket: z.optional(bucketName),
  ledgerKeyArn: z.optional(keyArn),
  ledgerAccount: z.optional(account),
  accessLogsBucket: z.optional(bucketName),
  tokenSecret: z.optional(matching(`the name of a secret, or its ARN with the suffix, such as ${SECRET_ARN}`, SECRET)),
  tokenKeyArn: z.optional(keyArn),
  eventBusArn: z.optional(matching('the ARN of an event bus', /^arn:[\w-]+:events:[\w-]+:\d{12}:event-bus\/.+$/)),
  notify: z.optional(notifySchema),
  encryptionKeyArn: z.optional(keyArn),
  encryptionHeader: z.optional(encryptionHeaderSchema),
  vpc: z.optional(vpcSchema),
  proxy: z.optional(proxySchema),
  permissionsBoundaryArn: z.optional(matching('the ARN of a policy', /^arn:[\w-]+:iam::(\d{12}|aws):policy\/.+$/)),
  viewerRoleArns: z.optional(roleArns),
  operatorRoleArns: z.optional(roleArns),
  uploaderRoleArns: z.optional(roleArns),
  s3Events: z.optional(z.boolean({ error: 'expected true or false' })),
  logRetentionDays: z.optional(
    z.literal(RETENTION_DAYS as readonly RetentionDays[], { error: `expected one of ${RETENTION_DAYS.join(', ')}` }),
  ),
  account: z.optional(account),
  region: z.optional(matching('the name of a region', /^[a-z]{2,}(-[a-z]+)+-\d+$/)),
  removalPolicy: z.optional(z.enum(['retain', 'destroy'], { error: 'expected "retain" or "destroy"' })),
  versionRetentionDays: z.optional(whole(VERSION_RETENTION_DAYS)),
  resultsRetentionDays: z.optional(whole(RESULTS_RETENTION_DAYS)),
  maxConcurrency: z.optional(whole(MAX_CONCURRENCY)),
  batchWindowSeconds: z.optional(whole(BATCH_WINDOW_SECONDS)),
  collectors: z.optional(whole(COLLECTORS)),
  terminationProtection: z.optional(z.boolean({ error: 'expected true or false' })),
  outputParameters: z.optional(z.boolean({ error: 'expected true or false' })),
  alarmTopicArn: z.optional(topicArn),
  ticketTopicArn: z.optional(topicArn),
  alarmEmail: z.optional(matching('an email address', /^[^@\s]+@[^@\s]+$/)),
  monitoring: z.optional(z.enum(['full', 'alarms', 'none'], { error: 'expected "full", "alarms" or "none"' })),
  runbookUrl: z.optional(matching(`a URL of at most ${RUNBOOK_URL_MAX} characters`, RUNBOOK_URL)),
  tags: z.optional(tagsSchema),
}).check(
  compareMembers((deployment, isSound, refuse) => {
    if (isSound('alarmEmail') && deployment.alarmEmail !== undefined && deployment.alarmTopicArn !== undefined) {
      refuse(['alarmEmail'], 'expected no alarmTopicArn as well; subscribe the address to that topic instead');
    }
    const { account, versionRetentionDays, ledgerBucket, inboxBucket, resultsBucket } = deployment;
    const { inboxAccount, resultsAccount } = deployment;
    const hasOwnVersions = ledgerBucket !== undefined && resultsBucket !== undefined;
    if (isSound('versionRetentionDays') && versionRetentionDays !== undefined && hasOwnVersions) {
      const message =
        'expected only with a new ledger or new results; the versions of buckets of your own are yours to set';
      refuse(['versionRetentionDays'], message);
    }
    const { resultsRetentionDays } = deployment;
    if (isSound('resultsRetentionDays') && resultsRetentionDays !== undefined && resultsBucket !== undefined) {
      refuse(['resultsRetentionDays'], `expected only with a new results bucket; ${OWN_LIFECYCLE}`);
    }
    for (const [fact, resource, reason] of FACTS_OF_RESOURCES) {
      if (!isSound(fact) || deployment[fact] === undefined || deployment[resource] !== undefined) continue;
      refuse([fact], `expected ${resource} as well, because ${reason}`);
    }
    for (const member of ROLES) {
      const arns = deployment[member];
      if (arns === undefined || !isSound(member)) continue;
      if (account === undefined) {
        // CDK attaches a policy by the name of a role. It could meet another role of that name.
        refuse([member], 'expected account as well, because the roles must belong to the account of the stack');
        continue;
      }
      if (!isSound('account')) continue;
      for (const [index, arn] of arns.entries()) {
        if (arn.split(':')[4] === account) continue;
        const message = `expected a role of the account ${account}, because the policy of another one cannot be changed here`;
        refuse([member, index], message);
      }
    }
    const areAccountsSound = isSound('inboxAccount') && isSound('resultsAccount');
    const isOneBucket = isSound('inboxBucket') && inboxBucket !== undefined && inboxBucket === resultsBucket;
    if (areAccountsSound && isOneBucket && inboxAccount !== resultsAccount) {
      refuse(['resultsAccount'], 'expected the inboxAccount, because both are one bucket');
    }
  }),
);

export type Deployment = z.infer<typeof deploymentSchema>;

/** @internal */
export const stackSchema = contextSchema(z._default(deploymentSchema, {})).check(
  compareMembers(({ pipeline, settings, deployment }, isSound, refuse) => {
    const add = (message: string) => refuse(['deployment'], message, { isQuoted: true });
    const areBucketsSound = (['inboxBucket', 'resultsBucket', 'ledgerBucket'] as const).every((name) =>
      isSound('deployment', name),
    );
    if (areBucketsSound && isSound('settings', 'inboxPrefix') && isSound('settings', 'resultsPrefix')) {
      // No existing bucket can have the name of a new one here.
      const { inboxBucket = 'a new inbox', resultsBucket = 'a new bucket', ledgerBucket = 'a new ledger' } = deployment;
      const { inboxPrefix, resultsPrefix } = settings;
      for (const issue of issuesOfBuckets({ inboxBucket, resultsBucket, ledgerBucket, inboxPrefix, resultsPrefix })) {
        add(issue);
      }
    }
    const hasParameters = isSound('deployment', 'outputParameters') && deployment.outputParameters === true;
    if (hasParameters && isSound('pipeline') && PARAMETER_RESERVED.test(pipeline)) {
      add(
        `outputParameters with the pipeline ${pipeline}: Systems Manager refuses names of parameters that begin with aws or ssm`,
      );
    }
  }),
);

/** A configuration that was checked. */
export interface StackContext {
  readonly context: Context;
  readonly deployment: Deployment;
}

/**
 * Parses the whole context `flowdrop`: the part of the functions and the part `deployment`. It needs no CDK.
 * @throws {ConfigurationError} naming every issue with its path (`flowdrop.deployment.vpc.id`) and value.
 */
export function parseStackContext(value: unknown, where = 'flowdrop'): StackContext {
  const { issues, data } = check(stackSchema, value, where);
  if (data === undefined) throw new ConfigurationError(issues);
  return { context: frozenContext(data), deployment: data.deployment };
}

export interface ReadStackContext extends StackContext, Configuration {
  /** What is most likely a mistake in routes that can match, each with its file and path. */
  readonly warnings: readonly string[];
}

/**
 * Reads and checks the configuration of a folder. Synth, `flowdrop doctor` and `npm start` do it here, so that they say
 * the same.
 * @throws {ConfigurationError} its source is the files, and each issue has its path in them.
 */
export function readStackContext(place: ConfigurationPlace): ReadStackContext {
  const configuration = readConfiguration(place);
  const { value, where, source } = configuration;
  try {
    const parsed = parseStackContext(value, where);
    const { routes, settings } = parsed.context;
    const warnings = [
      ...warningsOfRoutes(routes, where === '' ? 'routes' : `${where}.routes`),
      ...idleBudgets(routes, settings.budget),
    ];
    return { ...parsed, ...configuration, warnings: warnings.map((warning) => `${source}: ${warning}`) };
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    throw new ConfigurationError(error.issues, { source, cause: error });
  }
}
