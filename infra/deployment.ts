import { RemovalPolicy } from 'aws-cdk-lib';
import { SecurityGroup, Subnet, Vpc } from 'aws-cdk-lib/aws-ec2';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { ManagedPolicy } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { RetentionDays } from 'aws-cdk-lib/aws-logs';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import type { Construct } from 'constructs';
import * as z from 'zod/mini';
import { ConfigurationError } from '../functions/config.ts';
import { check, strictObject } from '../functions/validation.ts';
import type { FlowPipelineProps } from './flow-pipeline.ts';

function matching(expected: string, pattern: RegExp) {
  const error = `expected ${expected}`;
  return z.string({ error }).check(z.regex(pattern, { error }));
}

const bucketName = matching('the name of a bucket', /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/);
const number = z.number({ error: 'expected a number' });

const RETENTION_DAYS: readonly number[] = Object.values(RetentionDays).filter((value) => typeof value === 'number');

/** The part `deployment` of the context: into what it is deployed, by names, since cdk.json cannot hold constructs. */
const deploymentSchema = strictObject({
  inboxBucket: z.optional(bucketName),
  resultsBucket: z.optional(bucketName),
  accessLogsBucket: z.optional(bucketName),
  tokenSecret: z.optional(matching('the ARN or name of a secret', /^[\w/+=.@:-]{1,512}$/)),
  eventBusArn: z.optional(matching('the ARN of an event bus', /^arn:[\w-]+:events:[\w-]+:\d{12}:event-bus\/.+$/)),
  encryptionKeyArn: z.optional(matching('the ARN of a key', /^arn:[\w-]+:kms:[\w-]+:\d{12}:key\/[\w-]+$/)),
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
    number.check(
      z.refine((days) => RETENTION_DAYS.includes(days), { error: `expected one of ${RETENTION_DAYS.join(', ')}` }),
    ),
  ),
  removalPolicy: z.optional(z.enum(['retain', 'destroy'], { error: 'expected "retain" or "destroy"' })),
  maxConcurrency: z.optional(number),
  collectors: z.optional(number),
  alarmEmail: z.optional(matching('an address of electronic mail', /^[^@\s]+@[^@\s]+$/)),
  runbookUrl: z.optional(matching('a URL', /^https?:\/\/\S+$/)),
  tags: z.optional(z.record(z.string(), z.string({ error: 'expected text' }), { error: 'expected an object' })),
});

export type Deployment = z.infer<typeof deploymentSchema>;

/** @throws {ConfigurationError} naming every fault with its path (`flowdrop.deployment.vpc.id`) and value. */
export function parseDeployment(value: unknown): Deployment {
  const { faults, data } = check(deploymentSchema, value ?? {}, 'flowdrop.deployment');
  if (data === undefined) throw new ConfigurationError(faults);
  return data;
}

/** What is named in a deployment, as the construct takes it. */
export function pipelinePropsOf(
  deployment: Deployment,
  scope: Construct,
): Omit<FlowPipelineProps, 'name' | 'baseUrl' | 'routes' | 'limits' | 'alarmTopic'> {
  const { vpc, eventBusArn, encryptionKeyArn, permissionsBoundaryArn } = deployment;
  const bucket = (id: string, name: string | undefined) =>
    name === undefined ? undefined : Bucket.fromBucketName(scope, id, name);
  return {
    inboxBucket: bucket('InboxBucket', deployment.inboxBucket),
    resultsBucket: bucket('ResultsBucket', deployment.resultsBucket),
    accessLogsBucket: bucket('AccessLogsBucket', deployment.accessLogsBucket),
    tokenSecret: tokenSecret(scope, deployment.tokenSecret),
    eventBus: eventBusArn === undefined ? undefined : EventBus.fromEventBusArn(scope, 'EventBus', eventBusArn),
    encryptionKey:
      encryptionKeyArn === undefined ? undefined : Key.fromKeyArn(scope, 'EncryptionKey', encryptionKeyArn),
    permissionsBoundary:
      permissionsBoundaryArn === undefined
        ? undefined
        : ManagedPolicy.fromManagedPolicyArn(scope, 'Boundary', permissionsBoundaryArn),
    ...(vpc && networkOf(scope, vpc)),
    s3Events: deployment.s3Events,
    logRetention: deployment.logRetentionDays,
    removalPolicy: deployment.removalPolicy === 'destroy' ? RemovalPolicy.DESTROY : RemovalPolicy.RETAIN,
    maxConcurrency: deployment.maxConcurrency,
    collectors: deployment.collectors,
    runbookUrl: deployment.runbookUrl,
  };
}

function tokenSecret(scope: Construct, nameOrArn: string | undefined) {
  if (nameOrArn === undefined) return undefined;
  return nameOrArn.startsWith('arn:')
    ? Secret.fromSecretCompleteArn(scope, 'TokenSecret', nameOrArn)
    : Secret.fromSecretNameV2(scope, 'TokenSecret', nameOrArn);
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
