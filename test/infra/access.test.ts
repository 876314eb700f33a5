import { Match } from 'aws-cdk-lib/assertions';
import { Key } from 'aws-cdk-lib/aws-kms';
import { describe, expect, it } from 'vitest';
import { ACCOUNT, lineOf, permissionsOf } from './policies.ts';
import { defaultPipeline, newRole, synthesisePipeline } from './synthesis.ts';
import { only, resources } from './template.ts';

/**
 * What the roles of a pipeline may do, written out. That it is neither too little nor too much is proved in
 * permissions.test.ts.
 */
const { template } = defaultPipeline();

/** A pipeline with prefixes, and two roles with its grants. */
const prefixed = synthesisePipeline({ settings: { inboxPrefix: 'in/', resultsPrefix: 'out/' } }, (pipeline, stack) => {
  pipeline.grantUpload(newRole(stack, 'Uploader'));
  expect(pipeline.grantReadResults(newRole(stack, 'Reader')).success).toBe(true);
}).template;

describe('the permissions', () => {
  it('of the creating function', () => {
    expect(permissionsOf(template, 'CreateFlowRole').map(lineOf)).toEqual([
      'events:PutEvents event-bus/default if events:source StringEquals flowdrop',
      'logs:CreateLogStream log-group:/aws/lambda/flowdrop-create-flow:*',
      'logs:PutLogEvents log-group:/aws/lambda/flowdrop-create-flow:*',
      's3:DeleteObject ledger/running/*',
      's3:GetObject inbox/*',
      's3:GetObject ledger/uploads/*',
      's3:GetObject results/*/receipt.json',
      's3:GetObjectVersion inbox/*',
      's3:ListBucket inbox',
      's3:ListBucket ledger',
      's3:ListBucket results',
      's3:ListBucketVersions inbox',
      's3:PutObject ledger/failed/*',
      's3:PutObject ledger/running/*',
      's3:PutObject ledger/uploads/*',
      's3:PutObject ledger/waiting/*',
      's3:PutObject results/*/receipt.json',
      'secretsmanager:GetSecretValue secret:token-AbCdEf',
      'sqs:DeleteMessage uploads',
      'sqs:GetQueueAttributes uploads',
      'sqs:ReceiveMessage uploads',
    ]);
  });

  it('of the collecting function', () => {
    expect(permissionsOf(template, 'CollectOutputsRole').map(lineOf)).toEqual([
      'events:PutEvents event-bus/default if events:source StringEquals flowdrop',
      'logs:CreateLogStream log-group:/aws/lambda/flowdrop-collect-outputs:*',
      'logs:PutLogEvents log-group:/aws/lambda/flowdrop-collect-outputs:*',
      's3:AbortMultipartUpload results/*',
      's3:DeleteObject ledger/failed/*',
      's3:DeleteObject ledger/running/*',
      's3:DeleteObject ledger/waiting/*',
      's3:GetObject inbox/*',
      's3:GetObject ledger/state/*',
      's3:GetObject ledger/uploads/*',
      's3:GetObject results/*',
      's3:ListBucket inbox',
      's3:ListBucket ledger',
      's3:ListBucket results',
      's3:ListBucketVersions inbox',
      's3:PutObject ledger/failed/*',
      's3:PutObject ledger/running/*',
      's3:PutObject ledger/state/*',
      's3:PutObject ledger/uploads/*',
      's3:PutObject ledger/waiting/*',
      's3:PutObject results/*',
      'secretsmanager:GetSecretValue secret:token-AbCdEf',
      'sqs:SendMessage uploads',
    ]);
  });

  it.each([
    ['CreateFlowRole', ['s3:GetObjectVersion inbox/in/*', 's3:ListBucketVersions inbox if s3:prefix StringLike in/*']],
    [
      'CollectOutputsRole',
      [
        's3:GetObject inbox/in/*',
        's3:ListBucketVersions inbox if s3:prefix StringLike in/*',
        's3:PutObject results/out/*',
      ],
    ],
  ])('of %s end at the prefixes, if there are any', (role, expected) => {
    const lines = permissionsOf(prefixed, role).map(lineOf);
    expect(lines).toEqual(expect.arrayContaining(expected));
    expect(lines.filter((line) => /(inbox|results)\/\*/.test(line))).toEqual([]);
  });
});

describe('a grant', () => {
  it('allows to upload below the prefix and nothing else', () => {
    expect(permissionsOf(prefixed, 'Uploader').map(lineOf)).toEqual([
      's3:AbortMultipartUpload inbox/in/*',
      's3:ListMultipartUploadParts inbox/in/*',
      's3:PutObject inbox/in/*',
    ]);
  });

  it('allows to read results below the prefix and nothing else', () => {
    expect(permissionsOf(prefixed, 'Reader').map(lineOf)).toEqual([
      's3:GetObject results/out/*',
      's3:ListBucket results if s3:prefix StringLike out/*',
    ]);
  });

  it('allows nothing in a bucket that somebody else made under the same name', () => {
    for (const role of ['Uploader', 'Reader']) {
      for (const { conditions } of permissionsOf(prefixed, role)) {
        expect(conditions.StringEquals?.['aws:ResourceAccount']).toEqual([ACCOUNT]);
      }
    }
  });

  it('allows to read all results if there is no prefix', () => {
    const { template: granted } = synthesisePipeline({}, (pipeline, stack) => {
      expect(pipeline.grantReadResults(newRole(stack, 'Reader')).success).toBe(true);
    });
    expect(permissionsOf(granted, 'Reader').map(lineOf)).toEqual(['s3:GetObject results/*', 's3:ListBucket results']);
  });
});

describe('an encryption key', () => {
  const encrypted = synthesisePipeline((stack) => ({
    encryptionKey: new Key(stack, 'Key', { enableKeyRotation: true }),
  }));

  it('of the app encrypts every resource that holds data', () => {
    const keyArn = { 'Fn::GetAtt': [Match.stringLikeRegexp('^Key'), 'Arn'] };
    encrypted.template.allResourcesProperties('AWS::S3::Bucket', {
      BucketEncryption: {
        ServerSideEncryptionConfiguration: [
          {
            BucketKeyEnabled: true,
            ServerSideEncryptionByDefault: { KMSMasterKeyID: keyArn, SSEAlgorithm: 'aws:kms' },
          },
        ],
      },
    });
    encrypted.template.allResourcesProperties('AWS::SQS::Queue', { KmsMasterKeyId: keyArn });
    encrypted.template.allResourcesProperties('AWS::SecretsManager::Secret', { KmsKeyId: keyArn });
    encrypted.template.allResourcesProperties('AWS::Logs::LogGroup', { KmsKeyId: keyArn });
  });

  it.each([
    ['CreateFlowRole', ['Decrypt s3', 'Decrypt secretsmanager', 'Decrypt sqs', 'GenerateDataKey s3']],
    [
      'CollectOutputsRole',
      ['Decrypt s3', 'Decrypt secretsmanager', 'Decrypt sqs', 'GenerateDataKey s3', 'GenerateDataKey sqs'],
    ],
  ])('of the app can be used by %s through the services that hold its data, and not directly', (role, expected) => {
    const lines = permissionsOf(encrypted.template, role).map(lineOf);
    const through = (service: string) => `${service}.eu-central-1.amazonaws.com`;
    expect(lines.filter((line) => line.startsWith('kms:'))).toEqual(
      expected.map((each) => {
        const [action, service = ''] = each.split(' ');
        return `kms:${action} key/key if kms:ViaService StringEquals ${through(service)} or ${through(service)}.cn`;
      }),
    );
  });

  it('of the app can be used by S3, for notifications, and by CloudWatch Logs, on behalf of the account', () => {
    const { KeyPolicy } = only(resources(encrypted.template, 'AWS::KMS::Key'));
    const services = KeyPolicy.Statement.filter(
      ({ Principal }: { Principal: { Service?: unknown } }) => Principal.Service !== undefined,
    );
    expect(services).toEqual([
      expect.objectContaining({
        Principal: { Service: 's3.amazonaws.com' },
        Condition: { StringEquals: { 'aws:SourceAccount': { Ref: 'AWS::AccountId' } } },
      }),
      expect.objectContaining({ Condition: { ArnLike: { 'kms:EncryptionContext:aws:logs:arn': expect.anything() } } }),
    ]);
  });
});
