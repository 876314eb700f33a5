import {
  GetBucketEncryptionCommand,
  GetBucketLifecycleConfigurationCommand,
  GetBucketNotificationConfigurationCommand,
  type LifecycleRule,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3';
import * as z from 'zod/mini';
import { EXPIRING_PREFIXES, LASTING_PREFIXES } from '../functions/ledger/keys.ts';
import { pathStyle } from '../functions/s3/client.ts';
import { type AwsAccess, AwsRequestError, askJson, askQuery, isDenied, sendToAws } from './aws-requests.ts';
import { combined, type Finding, type NamedCheck, type Outcome } from './checks.ts';
import { type AwsPlace, accessOf, overHttps } from './deployment.ts';
import { KEY_ACTIONS, keyPolicy, missingKeyActions } from './policy.ts';
import { stackOutputs } from './stack.ts';

/** What a configuration says of the account, and the resources in it that exist already. */
export interface PlannedResources {
  readonly account?: string | undefined;
  readonly inboxBucket?: string | undefined;
  readonly inboxKeyArn?: string | undefined;
  readonly inboxAccount?: string | undefined;
  readonly resultsBucket?: string | undefined;
  readonly resultsKeyArn?: string | undefined;
  readonly resultsAccount?: string | undefined;
  readonly ledgerBucket?: string | undefined;
  readonly ledgerKeyArn?: string | undefined;
  readonly ledgerAccount?: string | undefined;
  /** Days that the ledger keeps entries, as in the settings. */
  readonly ledgerRetentionDays: number | 'forever';
  readonly accessLogsBucket?: string | undefined;
  readonly tokenSecret?: string | undefined;
  readonly tokenKeyArn?: string | undefined;
  readonly encryptionKeyArn?: string | undefined;
  readonly encryptionHeader?: string | undefined;
  readonly alarmEmail?: string | undefined;
  readonly notify?: readonly unknown[] | undefined;
  /** Tells whether `settings.canaryKey` is set. */
  readonly hasCanary: boolean;
  readonly maxConcurrency: number;
  readonly collectors: number;
}

/** The account in which a configuration is about to be deployed, as its operator sees it. */
export interface PlannedAccount {
  readonly resources: PlannedResources;
  readonly access: AwsAccess;
  readonly s3: S3Client;
}

/** The account of the ordinary chain of credentials. */
export async function plannedAccount(resources: PlannedResources, place: AwsPlace): Promise<PlannedAccount> {
  const access = await accessOf(place);
  const { region, credentials } = access;
  return { resources, access, s3: new S3Client({ ...pathStyle(), ...overHttps(), region, credentials }) };
}

interface Subject {
  readonly aws: PlannedAccount;
  readonly signal: AbortSignal;
}

/** Checks what AWS would refuse during a deployment or after it. Nothing is changed. */
export const RESOURCE_CHECKS: readonly NamedCheck<Subject>[] = [
  ['the account', examineAccount],
  ['buckets of your own', examineBuckets],
  ['keys of your own', examineKeys],
  ['the secret', examineSecret],
  ['quotas', examineQuotas],
];

const OWN_RESOURCES = 'See docs/own-resources.md.';

const identitySchema = z.object({
  GetCallerIdentityResponse: z.object({ GetCallerIdentityResult: z.object({ Account: z.coerce.string() }) }),
});

/** The account of the credentials. */
async function accountOf(access: AwsAccess, signal: AbortSignal): Promise<string> {
  const answer = await askQuery('sts', { Action: 'GetCallerIdentity', Version: '2011-06-15' }, access, signal);
  // The parser of XML may take it for a number, and drop zeros at its beginning.
  const { Account } = identitySchema.parse(answer).GetCallerIdentityResponse.GetCallerIdentityResult;
  return Account.padStart(12, '0');
}

/** The account of the credentials, and whether CDK can deploy to it. */
async function examineAccount({ aws: { resources, access }, signal }: Subject): Promise<Outcome> {
  const account = await accountOf(access, signal);
  if (resources.account !== undefined && resources.account !== account) {
    return {
      severity: 'fault',
      what: `Your credentials are of the account ${account}, and deployment.account is ${resources.account}.`,
      todo: 'Use the credentials of that account, for example with AWS_PROFILE.',
    };
  }
  try {
    await stackOutputs('CDKToolkit', access, signal);
    return 'good';
  } catch (error) {
    if (!(error instanceof AwsRequestError && /does not exist/.test(error.message))) throw error;
    return {
      severity: 'warning',
      what: `The account ${account} has no stack CDKToolkit in ${access.region}, without which CDK does not deploy.`,
      todo: `Unless your bootstrap stack has another name: npx cdk bootstrap aws://${account}/${access.region}`,
    };
  }
}

/** The members that name a bucket, each with the members that name its key and its owner. */
const BUCKETS = [
  ['inboxBucket', 'inboxKeyArn', 'inboxAccount'],
  ['resultsBucket', 'resultsKeyArn', 'resultsAccount'],
  ['ledgerBucket', 'ledgerKeyArn', 'ledgerAccount'],
  ['accessLogsBucket', undefined, undefined],
] as const;
type Members = (typeof BUCKETS)[number];

async function examineBuckets({ aws, signal }: Subject): Promise<Outcome> {
  const findings: Finding[] = [];
  const unread: string[] = [];
  for (const members of BUCKETS) {
    const [member] = members;
    const bucket = aws.resources[member];
    if (bucket === undefined) continue;
    try {
      for await (const finding of findingsOfBucket(members, bucket, aws, signal)) findings.push(finding);
    } catch (error) {
      if (!isDenied(error)) throw error;
      unread.push(`The bucket ${bucket} (deployment.${member}) was not checked: ${(error as Error).name}`);
    }
  }
  return combined(findings, unread);
}

/** Yields one finding after another, so that those before a question that is denied are kept. */
async function* findingsOfBucket(
  members: Members,
  bucket: string,
  aws: PlannedAccount,
  signal: AbortSignal,
): AsyncGenerator<Finding> {
  const [member] = members;
  const misplaced = await findingOfPlace(member, bucket, aws, signal);
  if (misplaced !== undefined) {
    yield misplaced;
    return;
  }
  if (members[1] !== undefined) yield* await findingsOfEncryption(bucket, members, aws, signal);
  if (member === 'inboxBucket') yield* await findingsOfEvents(bucket, aws, signal);
  if (member === 'ledgerBucket') yield* await findingsOfLifecycle(bucket, aws, signal);
}

async function findingOfPlace(
  member: string,
  bucket: string,
  { s3, access }: PlannedAccount,
  signal: AbortSignal,
): Promise<Finding | undefined> {
  const place = await placeOfBucket(bucket, s3, signal);
  if (place === 'here') return undefined;
  if (place === 'nowhere') {
    const what = `There is no bucket ${bucket} (deployment.${member}).`;
    return { severity: 'fault', what, todo: 'Make it, or leave the member out: then the stack makes a new one.' };
  }
  const what = `The bucket ${bucket} (deployment.${member}) is in another region than ${access.region}.`;
  return { severity: 'fault', what, todo: REGION_OF_BUCKETS };
}

/** What to read about a bucket in another region. */
export const REGION_OF_BUCKETS = 'See docs/own-resources.md, the region of your buckets.';

/** Tells whether a bucket is in the region of the client, by the codes with which S3 refuses a request elsewhere. */
export async function placeOfBucket(
  Bucket: string,
  s3: S3Client,
  abortSignal: AbortSignal,
): Promise<'here' | 'elsewhere' | 'nowhere'> {
  try {
    await s3.send(new ListObjectsV2Command({ Bucket, MaxKeys: 1 }), { abortSignal });
    return 'here';
  } catch (error) {
    const { name } = error as Error;
    if (name === 'NoSuchBucket') return 'nowhere';
    if (name === 'PermanentRedirect' || name === 'AuthorizationHeaderMalformed') return 'elsewhere';
    throw error;
  }
}

/**
 * The key of AWS for S3, which a bucket has without an id of a key, too. Its policy cannot be changed.
 * @see https://docs.aws.amazon.com/kms/latest/developerguide/concepts.html#aws-managed-cmk
 */
const AWS_KEY = 'alias/aws/s3';

/** Compares the key of a bucket with the one that the configuration names, which the functions may use. */
async function findingsOfEncryption(
  Bucket: string,
  [, member, ownerMember]: Extract<Members, readonly [string, string, string]>,
  { s3, resources, access }: PlannedAccount,
  abortSignal: AbortSignal,
): Promise<readonly Finding[]> {
  const { [member]: keyArn, [ownerMember]: owner } = resources;
  const { ServerSideEncryptionConfiguration } = await s3.send(new GetBucketEncryptionCommand({ Bucket }), {
    abortSignal,
  });
  const defaults = ServerSideEncryptionConfiguration?.Rules?.flatMap(
    (rule) => rule.ApplyServerSideEncryptionByDefault ?? [],
  )[0];
  const { SSEAlgorithm = '', KMSMasterKeyID: key } = defaults ?? {};
  if (!SSEAlgorithm.startsWith('aws:kms')) return [];
  // With the header, writes do not take the encryption of the bucket. Uploads do.
  const isTaken = resources.encryptionHeader === undefined || member === 'inboxKeyArn';
  const isOfAws = key === undefined || key.endsWith(AWS_KEY);
  if (isOfAws && isTaken && owner !== undefined && owner !== (await accountOf(access, abortSignal))) {
    const what = `The bucket ${Bucket} of the account ${owner} is encrypted with AWS's own key (aws/s3), which no role of another account may use.`;
    const todo = `Let its owner change the default encryption to SSE-S3, or to a key of KMS of their own, and then set deployment.${member}.`;
    return [{ severity: 'fault', what, todo }];
  }
  // Every role of the account may use the key of AWS. An alias does not tell its key.
  if (key === undefined || key.includes('alias/')) return [];
  if (keyArn !== undefined && keyIdOf(keyArn) === keyIdOf(key)) return [];
  const named = keyArn === undefined ? `deployment.${member} is not set` : `deployment.${member} is ${keyArn}`;
  const what = `The bucket ${Bucket} is encrypted with the key ${key}, and ${named}, so the functions may not use its key.`;
  return [{ severity: 'fault', what, todo: `Set deployment.${member} to the ARN of that key.` }];
}

const keyIdOf = (arnOrId: string): string => arnOrId.slice(arnOrId.lastIndexOf('/') + 1);

async function findingsOfEvents(
  Bucket: string,
  { s3 }: PlannedAccount,
  abortSignal: AbortSignal,
): Promise<readonly Finding[]> {
  const { EventBridgeConfiguration } = await s3.send(new GetBucketNotificationConfigurationCommand({ Bucket }), {
    abortSignal,
  });
  if (EventBridgeConfiguration !== undefined) return [];
  const what = `The bucket ${Bucket} does not send its events to EventBridge, so only the daily sweep would find its files.`;
  return [{ severity: 'fault', what, todo: 'Turn them on: see docs/recipes/existing-bucket.md.' }];
}

/** Storage classes whose objects S3 hands out only after they were restored. */
const ARCHIVES: readonly string[] = ['GLACIER', 'DEEP_ARCHIVE'];

/** The lifecycle of a bucket must keep the ledger: without its entry, a file could be paid for again. */
async function findingsOfLifecycle(
  Bucket: string,
  { s3, resources }: PlannedAccount,
  abortSignal: AbortSignal,
): Promise<readonly Finding[]> {
  const rules = await lifecycleOf(Bucket, s3, abortSignal);
  const keptDays = resources.ledgerRetentionDays;
  return rules.flatMap((rule): Finding[] => {
    const { ID = 'without a name', Expiration: { Days, Date: date } = {}, Transitions = [] } = rule;
    const isExpired = Days !== undefined || date !== undefined;
    const isEarly = Days === undefined || keptDays === 'forever' || Days < keptDays;
    const isGone = isExpired && (isOf(LASTING_PREFIXES, rule) || (isEarly && isOf(EXPIRING_PREFIXES, rule)));
    const isArchived = Transitions.some(({ StorageClass = '' }) => ARCHIVES.includes(StorageClass));
    if (!isGone && !(isArchived && isOf([...EXPIRING_PREFIXES, ...LASTING_PREFIXES], rule))) return [];
    const does = isGone
      ? `deletes objects of the ledger ${date === undefined ? `after ${Days} days` : 'at a date'}`
      : 'archives objects of the ledger';
    const what = `The lifecycle rule "${ID}" of the bucket ${Bucket} ${does}. A file whose entry is gone could be paid for again.`;
    const kept = keptDays === 'forever' ? 'for ever' : `for ${keptDays} days`;
    const todo = `Let it leave out ${LASTING_PREFIXES.join(', ')}, and keep ${EXPIRING_PREFIXES.join(', ')} ${kept} (settings.ledgerRetentionDays).`;
    return [{ severity: 'warning', what, todo }];
  });
}

/** The rules that are on. */
async function lifecycleOf(Bucket: string, s3: S3Client, abortSignal: AbortSignal): Promise<readonly LifecycleRule[]> {
  try {
    const { Rules = [] } = await s3.send(new GetBucketLifecycleConfigurationCommand({ Bucket }), { abortSignal });
    return Rules.filter(({ Status }) => Status === 'Enabled');
  } catch (error) {
    if ((error as Error).name === 'NoSuchLifecycleConfiguration') return [];
    throw error;
  }
}

/** True if a rule is of objects of the ledger below one of these prefixes. They have no tags. */
function isOf(prefixes: readonly string[], { Filter, Prefix }: LifecycleRule): boolean {
  const { Tag, And } = Filter ?? {};
  const prefix = Filter?.Prefix ?? And?.Prefix ?? Prefix ?? '';
  const isOfTagged = Tag !== undefined || (And?.Tags ?? []).length > 0;
  return !isOfTagged && prefixes.some((own) => own.startsWith(prefix) || prefix.startsWith(own));
}

const keySchema = z.object({ KeyMetadata: z.object({ KeyState: z.string() }) });

async function examineKeys({ aws, signal }: Subject): Promise<Outcome> {
  const { resources } = aws;
  const members = ['inboxKeyArn', 'resultsKeyArn', 'ledgerKeyArn', 'tokenKeyArn', 'encryptionKeyArn'] as const;
  const findings: Finding[] = [];
  const unread: string[] = [];
  for (const member of members) {
    const arn = resources[member];
    if (arn === undefined) continue;
    const finding = await findingOfKey(member, arn, aws, signal);
    if (typeof finding === 'string') unread.push(finding);
    else if (finding !== undefined) findings.push(finding);
  }
  return combined(findings, unread);
}

/** @returns a text if the key could not be looked at. */
async function findingOfKey(
  member: string,
  KeyId: string,
  { resources, access }: PlannedAccount,
  signal: AbortSignal,
): Promise<Finding | string | undefined> {
  const name = `The key ${KeyId} (deployment.${member})`;
  const fault = (what: string, todo = OWN_RESOURCES): Finding => ({ severity: 'fault', what: `${name} ${what}`, todo });
  const [, partition = 'aws', , region, owner] = KeyId.split(':');
  if (region !== access.region) return fault(`is not in the region ${access.region}.`);
  const description = { service: 'kms', target: 'TrentService.DescribeKey', version: '1.1' } as const;
  try {
    const answer = await askJson({ ...description, input: { KeyId } }, access, signal);
    const { KeyMetadata } = keySchema.parse(answer);
    if (KeyMetadata.KeyState !== 'Enabled') {
      return fault(`is not enabled (${KeyMetadata.KeyState}).`, 'Enable it, or name another one.');
    }
    const policy = await keyPolicy(KeyId, access, signal);
    const account = `arn:${partition}:iam::${owner}:root`;
    const needed = actionsWith(member, resources);
    if (missingKeyActions(policy, { AWS: [account, owner ?? ''] }, needed).length > 0) {
      return fault(
        'does not leave access to IAM, so the roles of the functions may not use it.',
        `Let its policy allow ${needed.join(' and ')} to ${account}.`,
      );
    }
    const missing = member === 'encryptionKeyArn' ? servicesRefused(policy, resources, access.region) : [];
    if (missing.length === 0) return undefined;
    return fault(`does not let in ${missing.join(', ')}.`, 'npm run synth prints the statements to add to its policy.');
  } catch (error) {
    if (!(error instanceof AwsRequestError)) throw error;
    if (error.code === 'NotFoundException') return fault('does not exist.');
    return `${name} cannot be looked at: ${error.code}`;
  }
}

/** What the functions do with a key: they only read the token, and the inbox too unless they put a canary into it. */
function actionsWith(member: string, { hasCanary }: PlannedResources): readonly string[] {
  const isOnlyRead = member === 'tokenKeyArn' || (member === 'inboxKeyArn' && !hasCanary);
  return isOnlyRead ? ['kms:Decrypt'] : KEY_ACTIONS;
}

/** The services that use the key of the new resources, and that its policy does not let in. */
function servicesRefused(policy: string, resources: PlannedResources, region: string): readonly string[] {
  const { inboxBucket, notify = [], alarmEmail } = resources;
  const services = [
    `logs.${region}.amazonaws.com`,
    ...(inboxBucket === undefined ? ['s3.amazonaws.com'] : []),
    ...(inboxBucket !== undefined || notify.length > 0 ? ['events.amazonaws.com'] : []),
    ...(alarmEmail === undefined ? [] : ['cloudwatch.amazonaws.com']),
  ];
  return services.filter((service) => missingKeyActions(policy, { Service: [service] }).length > 0);
}

const secretSchema = z.object({
  DeletedDate: z.optional(z.unknown()),
  KmsKeyId: z.optional(z.string()),
  VersionIdsToStages: z._default(z.record(z.string(), z.array(z.string())), {}),
});

/** Looks at the secret, and does not read it. */
async function examineSecret({ aws: { resources, access }, signal }: Subject): Promise<Outcome> {
  const { tokenSecret: SecretId, tokenKeyArn } = resources;
  if (SecretId === undefined) return 'good'; // The stack makes a new one.
  const name = `The secret ${SecretId} (deployment.tokenSecret)`;
  const ask = { service: 'secretsmanager', target: 'secretsmanager.DescribeSecret', version: '1.1' } as const;
  let secret: z.infer<typeof secretSchema>;
  try {
    secret = secretSchema.parse(await askJson({ ...ask, input: { SecretId } }, access, signal));
  } catch (error) {
    if (!(error instanceof AwsRequestError && error.code === 'ResourceNotFoundException')) throw error;
    return {
      severity: 'fault',
      what: `${name} does not exist in ${access.region}.`,
      todo: 'Make it, or correct its name.',
    };
  }
  const { DeletedDate, KmsKeyId: key, VersionIdsToStages } = secret;
  if (DeletedDate !== undefined && DeletedDate !== null) {
    return { severity: 'fault', what: `${name} is deleted.`, todo: 'Restore it, or name another one.' };
  }
  const isOwnKey = key !== undefined && !key.includes('alias/');
  if (isOwnKey && (tokenKeyArn === undefined || keyIdOf(key) !== keyIdOf(tokenKeyArn))) {
    const what = `${name} is encrypted with the key ${key}, and deployment.tokenKeyArn is ${tokenKeyArn ?? 'not set'}.`;
    return { severity: 'fault', what, todo: 'Set deployment.tokenKeyArn to the ARN of that key.' };
  }
  if (Object.values(VersionIdsToStages).some((stages) => stages.includes('AWSCURRENT'))) return 'good';
  return {
    severity: 'warning',
    what: `${name} holds no value.`,
    todo: 'Store the token in it. Until then files wait.',
  };
}

const limitSchema = z.object({
  AccountLimit: z.object({ ConcurrentExecutions: z.number(), UnreservedConcurrentExecutions: z.number() }),
});

/** Compares how many functions may run at once in the account with how many the pipeline may need. */
async function examineQuotas({ aws: { resources, access }, signal }: Subject): Promise<Outcome> {
  const { text } = await sendToAws(
    { service: 'lambda', method: 'GET', path: '/2016-08-19/account-settings/' },
    access,
    signal,
  );
  const { ConcurrentExecutions, UnreservedConcurrentExecutions } = limitSchema.parse(JSON.parse(text)).AccountLimit;
  const { maxConcurrency, collectors } = resources;
  const needed = maxConcurrency + collectors;
  if (UnreservedConcurrentExecutions >= needed) return 'good';
  return {
    severity: 'warning',
    what:
      `The pipeline may run ${needed} functions at once (deployment.maxConcurrency and .collectors), and the account has ` +
      `${UnreservedConcurrentExecutions} of its ${ConcurrentExecutions} left in ${access.region}.`,
    todo: 'Lower deployment.maxConcurrency, or ask AWS for a higher quota of concurrent executions of Lambda.',
  };
}
