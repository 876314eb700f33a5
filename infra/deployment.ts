import { ArnFormat, Duration, RemovalPolicy, Stack } from 'aws-cdk-lib';
import { SecurityGroup, Subnet, Vpc } from 'aws-cdk-lib/aws-ec2';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { ManagedPolicy } from 'aws-cdk-lib/aws-iam';
import { type IKey, Key } from 'aws-cdk-lib/aws-kms';
import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import type { Construct } from 'constructs';
import * as z from 'zod/mini';
import { ConfigurationError, check, strictObject, together } from '../functions/base/validation.ts';
import { type Context, parseContext } from '../functions/settings/context.ts';
import {
  BATCH_WINDOW_SECONDS,
  COLLECTORS,
  type FlowPipelineProps,
  MAX_CONCURRENCY,
  type Range,
} from './flow-pipeline.ts';

function matching(expected: string, pattern: RegExp) {
  const error = `expected ${expected}`;
  return z.string({ error }).check(z.regex(pattern, { error }));
}

function whole({ min, max }: Range) {
  const error = `expected a whole number from ${min} to ${max}`;
  return z.int({ error }).check(z.gte(min, { error }), z.lte(max, { error }));
}

const bucketName = matching('the name of a bucket', /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/);
const keyArn = matching('the ARN of a key', /^arn:[\w-]+:kms:[\w-]+:\d{12}:key\/[\w-]+$/);

const RETENTION_DAYS: readonly number[] = Object.values(RetentionDays).filter((value) => typeof value === 'number');

/** What AWS allows of a tag. One of the 50 is ours. @see https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html */
const TAGS_MAX = 49;
const TAG_KEY = /^(?!aws:)[\p{L}\p{Z}\p{N}_.:/=+\-@]{1,128}$/iu;
const TAG_VALUE = /^[\p{L}\p{Z}\p{N}_.:/=+\-@]{0,256}$/u;
const TAG_CHARACTERS = 'letters, digits, spaces and _.:/=+-@';

const tagsSchema = z
  .record(z.string(), matching(`at most 256 ${TAG_CHARACTERS}`, TAG_VALUE), { error: 'expected an object' })
  .check(
    z.superRefine((tags, context) => {
      for (const key of Object.keys(tags).filter((each) => !TAG_KEY.test(each))) {
        const message = `expected a name of at most 128 ${TAG_CHARACTERS} that does not start with "aws:"`;
        context.addIssue({ code: 'custom', path: [key], message, input: key });
      }
      const count = Object.keys(tags).length;
      if (count > TAGS_MAX) context.addIssue({ code: 'custom', message: `expected at most ${TAGS_MAX}`, input: count });
    }),
  );

/** A part that is there already does not tell which key it is encrypted with. */
const KEYS_OF_PARTS = [
  ['inboxKeyArn', 'inboxBucket'],
  ['resultsKeyArn', 'resultsBucket'],
  ['tokenKeyArn', 'tokenSecret'],
] as const;

/** The part `deployment` of the context: into what it is deployed, by names, since cdk.json cannot hold constructs. */
const deploymentSchema = strictObject({
  inboxBucket: z.optional(bucketName),
  inboxKeyArn: z.optional(keyArn),
  resultsBucket: z.optional(bucketName),
  resultsKeyArn: z.optional(keyArn),
  accessLogsBucket: z.optional(bucketName),
  tokenSecret: z.optional(matching('the ARN or name of a secret', /^[\w/+=.@:-]{1,512}$/)),
  tokenKeyArn: z.optional(keyArn),
  eventBusArn: z.optional(matching('the ARN of an event bus', /^arn:[\w-]+:events:[\w-]+:\d{12}:event-bus\/.+$/)),
  encryptionKeyArn: z.optional(keyArn),
  vpc: z.optional(
    strictObject({
      id: matching('the id of a VPC', /^vpc-[0-9a-f]+$/),
      subnetIds: z
        .array(matching('the id of a subnet', /^subnet-[0-9a-f]+$/), { error: 'expected a list of subnets' })
        .check(z.minLength(1, { error: 'expected at least one subnet' })),
      securityGroupIds: z.optional(
        z.array(matching('the id of a security group', /^sg-[0-9a-f]+$/), { error: 'expected a list of groups' }),
      ),
    }),
  ),
  permissionsBoundaryArn: z.optional(matching('the ARN of a policy', /^arn:[\w-]+:iam::(\d{12}|aws):policy\/.+$/)),
  s3Events: z.optional(z.boolean({ error: 'expected true or false' })),
  logRetentionDays: z.optional(
    z.custom<RetentionDays>((days) => RETENTION_DAYS.includes(days as number), {
      error: `expected one of ${RETENTION_DAYS.join(', ')}`,
    }),
  ),
  removalPolicy: z.optional(z.enum(['retain', 'destroy'], { error: 'expected "retain" or "destroy"' })),
  maxConcurrency: z.optional(whole(MAX_CONCURRENCY)),
  batchWindowSeconds: z.optional(whole(BATCH_WINDOW_SECONDS)),
  collectors: z.optional(whole(COLLECTORS)),
  alarmEmail: z.optional(matching('an address of electronic mail', /^[^@\s]+@[^@\s]+$/)),
  runbookUrl: z.optional(matching('a URL', /^https?:\/\/\S+$/)),
  tags: z.optional(tagsSchema),
}).check(
  z.superRefine((deployment, context) => {
    for (const [key, part] of KEYS_OF_PARTS) {
      if (deployment[key] === undefined || deployment[part] !== undefined) continue;
      const message = `expected ${part} beside it, whose key it is; what is made here is encrypted with encryptionKeyArn`;
      context.addIssue({ code: 'custom', path: [key], message, input: deployment[key] });
    }
  }),
);

export type Deployment = z.infer<typeof deploymentSchema>;

/**
 * The whole context `flowdrop`, for the functions and for infrastructure.
 * @throws {ConfigurationError} naming every issue with its path (`flowdrop.deployment.vpc.id`) and value.
 */
export function parseStackContext(value: unknown): { readonly context: Context; readonly deployment: Deployment } {
  const [context, deployment] = together(
    () => parseContext(value),
    () => parseDeployment(typeof value === 'object' && value !== null && 'deployment' in value ? value.deployment : {}),
  );
  return { context, deployment };
}

function parseDeployment(value: unknown): Deployment {
  const { issues, data } = check(deploymentSchema, value, 'flowdrop.deployment');
  if (data === undefined) throw new ConfigurationError(issues);
  return data;
}

/** What is named in a deployment, as the construct takes it. */
export function pipelinePropsOf(
  deployment: Deployment,
  scope: Construct,
): Omit<FlowPipelineProps, 'name' | 'baseUrl' | 'routes' | 'settings' | 'alarmTopic'> {
  const { vpc, eventBusArn, permissionsBoundaryArn } = deployment;
  const key = (id: string, arn: string | undefined) => (arn === undefined ? undefined : Key.fromKeyArn(scope, id, arn));
  const bucket = (id: string, bucketName: string | undefined, encryptionKey?: IKey) =>
    bucketName === undefined ? undefined : Bucket.fromBucketAttributes(scope, id, { bucketName, encryptionKey });
  return {
    inboxBucket: bucket('InboxBucket', deployment.inboxBucket, key('InboxKey', deployment.inboxKeyArn)),
    resultsBucket: bucket('ResultsBucket', deployment.resultsBucket, key('ResultsKey', deployment.resultsKeyArn)),
    accessLogsBucket: bucket('AccessLogsBucket', deployment.accessLogsBucket),
    tokenSecret: tokenSecret(scope, deployment.tokenSecret, key('TokenKey', deployment.tokenKeyArn)),
    eventBus: eventBusArn === undefined ? undefined : EventBus.fromEventBusArn(scope, 'EventBus', eventBusArn),
    encryptionKey: key('EncryptionKey', deployment.encryptionKeyArn),
    permissionsBoundary:
      permissionsBoundaryArn === undefined
        ? undefined
        : ManagedPolicy.fromManagedPolicyArn(scope, 'Boundary', permissionsBoundaryArn),
    ...(vpc && networkOf(scope, vpc)),
    s3Events: deployment.s3Events,
    logRetention: deployment.logRetentionDays,
    removalPolicy: deployment.removalPolicy === 'destroy' ? RemovalPolicy.DESTROY : RemovalPolicy.RETAIN,
    maxConcurrency: deployment.maxConcurrency,
    batchWindow:
      deployment.batchWindowSeconds === undefined ? undefined : Duration.seconds(deployment.batchWindowSeconds),
    collectors: deployment.collectors,
    runbookUrl: deployment.runbookUrl,
  };
}

function tokenSecret(scope: Construct, nameOrArn: string | undefined, encryptionKey: IKey | undefined) {
  if (nameOrArn === undefined) return undefined;
  const id = 'TokenSecret';
  if (nameOrArn.startsWith('arn:')) {
    return Secret.fromSecretAttributes(scope, id, { secretCompleteArn: nameOrArn, encryptionKey });
  }
  const arnFormat = ArnFormat.COLON_RESOURCE_NAME;
  const secret = { service: 'secretsmanager', resource: 'secret', resourceName: nameOrArn, arnFormat };
  return Secret.fromSecretAttributes(scope, id, {
    secretPartialArn: Stack.of(scope).formatArn(secret),
    encryptionKey,
  });
}

function networkOf(scope: Construct, { id, subnetIds, securityGroupIds }: NonNullable<Deployment['vpc']>) {
  // Nothing asks for its zones, because the subnets are named one by one; but some there must be.
  const vpc = Vpc.fromVpcAttributes(scope, 'Vpc', { vpcId: id, availabilityZones: ['unused'] });
  // Nor for a route table, without which CDK warns: no route is added.
  const subnets = subnetIds.map((subnetId) =>
    Subnet.fromSubnetAttributes(scope, subnetId, { subnetId, routeTableId: 'unused' }),
  );
  const securityGroups = securityGroupIds?.map((groupId) =>
    SecurityGroup.fromSecurityGroupId(scope, groupId, groupId, { mutable: false }),
  );
  return { vpc, vpcSubnets: { subnets }, securityGroups };
}
