import { ArnFormat, Duration, RemovalPolicy, Stack } from 'aws-cdk-lib';
import { SecurityGroup, Subnet, Vpc } from 'aws-cdk-lib/aws-ec2';
import { EventBus, type IEventBus } from 'aws-cdk-lib/aws-events';
import { type IManagedPolicy, ManagedPolicy } from 'aws-cdk-lib/aws-iam';
import { type IKey, Key } from 'aws-cdk-lib/aws-kms';
import { Bucket, type BucketAttributes, type IBucket } from 'aws-cdk-lib/aws-s3';
import { type ISecret, Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { type ITopic, Topic } from 'aws-cdk-lib/aws-sns';
import type { Construct } from 'constructs';
import type { Deployment } from './deployment.ts';
import type { FlowPipelineProps } from './flow-pipeline-props.ts';

/** The props that a deployment decides. Existing resources are imported by their names into `scope`. */
export function deploymentProps(
  deployment: Deployment,
  scope: Construct,
): Omit<FlowPipelineProps, 'name' | 'baseUrl' | 'routes' | 'settings' | 'alarmTopic'> {
  const { vpc, batchWindowSeconds, versionRetentionDays, resultsRetentionDays } = deployment;
  return {
    ...existingBuckets(scope, deployment),
    tokenSecret: existingSecret(scope, deployment.tokenSecret, existingKey(scope, 'TokenKey', deployment.tokenKeyArn)),
    eventBus: existingEventBus(scope, deployment.eventBusArn),
    notify: deployment.notify,
    encryptionKey: existingKey(scope, 'EncryptionKey', deployment.encryptionKeyArn),
    encryptionHeader: deployment.encryptionHeader,
    permissionsBoundary: existingPolicy(scope, deployment.permissionsBoundaryArn),
    ...(vpc && existingNetwork(scope, vpc)),
    proxy: deployment.proxy,
    s3Events: deployment.s3Events,
    logRetention: deployment.logRetentionDays,
    removalPolicy: deployment.removalPolicy === 'destroy' ? RemovalPolicy.DESTROY : RemovalPolicy.RETAIN,
    versionRetention: versionRetentionDays === undefined ? undefined : Duration.days(versionRetentionDays),
    resultsRetention: resultsRetentionDays === undefined ? undefined : Duration.days(resultsRetentionDays),
    maxConcurrency: deployment.maxConcurrency,
    batchWindow: batchWindowSeconds === undefined ? undefined : Duration.seconds(batchWindowSeconds),
    collectors: deployment.collectors,
    ticketTopic: existingTopic(scope, 'TicketTopic', deployment.ticketTopicArn),
    monitoring: deployment.monitoring,
    runbookUrl: deployment.runbookUrl,
  };
}

function existingBuckets(scope: Construct, deployment: Deployment) {
  const bucket = (id: string, bucketName: string | undefined, of: BucketAttributes = {}): IBucket | undefined =>
    bucketName === undefined ? undefined : Bucket.fromBucketAttributes(scope, id, { bucketName, ...of });
  const inboxKey = existingKey(scope, 'InboxKey', deployment.inboxKeyArn);
  const resultsKey = existingKey(scope, 'ResultsKey', deployment.resultsKeyArn);
  const ledgerKey = existingKey(scope, 'LedgerKey', deployment.ledgerKeyArn);
  return {
    inboxBucket: bucket('InboxBucket', deployment.inboxBucket, {
      encryptionKey: inboxKey,
      account: deployment.inboxAccount,
    }),
    resultsBucket: bucket('ResultsBucket', deployment.resultsBucket, {
      encryptionKey: resultsKey,
      account: deployment.resultsAccount,
    }),
    ledgerBucket: bucket('LedgerBucket', deployment.ledgerBucket, {
      encryptionKey: ledgerKey,
      account: deployment.ledgerAccount,
    }),
    accessLogsBucket: bucket('AccessLogsBucket', deployment.accessLogsBucket),
  };
}

function existingKey(scope: Construct, id: string, arn: string | undefined): IKey | undefined {
  return arn === undefined ? undefined : Key.fromKeyArn(scope, id, arn);
}

export function existingTopic(scope: Construct, id: string, arn: string | undefined): ITopic | undefined {
  return arn === undefined ? undefined : Topic.fromTopicArn(scope, id, arn);
}

function existingEventBus(scope: Construct, arn: string | undefined): IEventBus | undefined {
  return arn === undefined ? undefined : EventBus.fromEventBusArn(scope, 'EventBus', arn);
}

function existingPolicy(scope: Construct, arn: string | undefined): IManagedPolicy | undefined {
  return arn === undefined ? undefined : ManagedPolicy.fromManagedPolicyArn(scope, 'Boundary', arn);
}

function existingSecret(
  scope: Construct,
  nameOrArn: string | undefined,
  encryptionKey: IKey | undefined,
): ISecret | undefined {
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

function existingNetwork(scope: Construct, { id, subnetIds, securityGroupIds }: NonNullable<Deployment['vpc']>) {
  // CDK asks for at least one availability zone. Nothing uses it, because the subnets are given one by one.
  const vpc = Vpc.fromVpcAttributes(scope, 'Vpc', { vpcId: id, availabilityZones: ['unused'] });
  // CDK warns without a route table. Nothing uses it, because no route is added.
  const subnets = [...new Set(subnetIds)].map((subnetId) =>
    Subnet.fromSubnetAttributes(scope, subnetId, { subnetId, routeTableId: 'unused' }),
  );
  const securityGroups = [...new Set(securityGroupIds)].map((groupId) =>
    SecurityGroup.fromSecurityGroupId(scope, groupId, groupId, { mutable: false }),
  );
  return { vpc, vpcSubnets: { subnets }, securityGroups };
}
