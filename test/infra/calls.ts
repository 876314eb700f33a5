import type { Template } from 'aws-cdk-lib/assertions';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import type { S3Access } from '../../local/aws/s3/call.ts';
import { ACCOUNT, type Call, type Permission, permissionsOf, REGION, resolve } from './policies.ts';

const BUCKETS = ['inbox', 'results', 'ledger'] as const;
type BucketPart = (typeof BUCKETS)[number];
export type Part = BucketPart | 'uploads' | 'rounds' | 'token' | 'bus';

/** A permission that a call of a function needed, without the names of the pipeline in which it was recorded. */
export interface RecordedCall {
  readonly by: FunctionName;
  readonly action: string;
  readonly of: Part;
  /** The key of an object, without the prefix of the pipeline. */
  readonly key?: string;
  readonly context: Readonly<Record<string, string>>;
  /** What the service asks KMS for on behalf of the function, if the part is encrypted with a key. */
  readonly kms: readonly string[];
}

/** Turns a permission that the local services report into a call. The local buckets are named like the parts. */
export function recordedCall(
  by: FunctionName,
  { action, resource, context = {}, request }: Pick<S3Access, 'action' | 'resource'> & Partial<S3Access>,
): RecordedCall {
  const [, bucket, key] = /^arn:aws:s3:::([^/]+)(?:\/(.*))?$/s.exec(resource) ?? [];
  const of = BUCKETS.find((each) => each === bucket) ?? PARTS[action];
  if (of === undefined) throw new Error(`Unknown resource of a call: ${action} ${resource}`);
  const kms = kmsActions(action, request);
  return key === undefined ? { by, action, of, context, kms } : { by, action, of, key, context, kms };
}

const PARTS: Readonly<Record<string, Part>> = {
  'sqs:GetQueueAttributes': 'uploads',
  'sqs:SendMessage': 'uploads',
  'secretsmanager:GetSecretValue': 'token',
  'events:PutEvents': 'bus',
};

/**
 * Reading an object decrypts it, and reading its metadata does not. S3 decrypts the parts of a multipart upload to
 * complete it. SQS decrypts each new data key to check it.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPart.html ("Permissions")
 * @see https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
 */
function kmsActions(action: string, request: S3Access['request'] | undefined): readonly string[] {
  switch (action) {
    case 's3:GetObject':
    case 's3:GetObjectVersion':
      return request?.method === 'GET' ? ['kms:Decrypt'] : [];
    case 's3:PutObject':
      return request?.query.has('uploadId') ? ['kms:Decrypt'] : ['kms:GenerateDataKey'];
    case 'sqs:SendMessage':
      return ['kms:GenerateDataKey', 'kms:Decrypt'];
    case 'secretsmanager:GetSecretValue':
      return ['kms:Decrypt'];
    default:
      return [];
  }
}

/** A part of a deployment. */
interface Place {
  readonly arn: string;
  /** The service that calls KMS for it. */
  readonly service: string;
  /** Prefix of the keys of its objects. */
  readonly prefix?: string;
  readonly keyArn: string | undefined;
  /** The account that owns it, if its ARN does not say so. */
  readonly owner?: string;
}

/** A deployed template. The environment of its functions tells what the recorded calls are there. */
export class Deployment {
  readonly #template: Template;
  readonly #keyArns: Partial<Record<Part, string>>;
  readonly #owners: Partial<Record<Part, string>>;

  /** @param keyArns and `owners` are those of the parts that are not in the template. */
  constructor(template: Template, keyArns: Partial<Record<Part, string>> = {}, owners: typeof keyArns = {}) {
    this.#template = template;
    this.#keyArns = keyArns;
    this.#owners = owners;
  }

  permissionsOf(by: FunctionName): readonly Permission[] {
    return permissionsOf(this.#template, by === 'create-flow' ? 'CreateFlowRole' : 'CollectOutputsRole');
  }

  /** A recorded call as it is in this deployment, with its calls of KMS. */
  callsOf({ by, action, of, key, context, kms }: RecordedCall): readonly Call[] {
    const { arn, prefix = '', owner, ...place } = this.#placeOf(of, by);
    const listed = context['s3:prefix'];
    const call = {
      action,
      resource: key === undefined ? arn : `${arn}/${prefix}${key}`,
      context: {
        ...context,
        ...(listed !== undefined && { 's3:prefix': prefix + listed }),
        ...(owner !== undefined && { 'aws:ResourceAccount': owner }),
      },
    };
    return [call, ...kmsCalls(kms, place)].map((one) => this.byCodeOf(by, one));
  }

  /** A call by the function's own code. Lambda itself makes calls without this context. */
  byCodeOf(by: FunctionName, call: Call): Call {
    return { ...call, context: { ...call.context, 'lambda:SourceFunctionArn': this.#functionOf(by).arn } };
  }

  /** The calls that Lambda itself makes with the role of a function. */
  callsOfLambda(by: FunctionName): readonly Call[] {
    const { LoggingConfig, VpcConfig } = this.#functionOf(by).properties;
    const logGroup = resolve(LoggingConfig.LogGroup, this.#template);
    const stream = `arn:aws:logs:${REGION}:${ACCOUNT}:log-group:${logGroup}:log-stream:2030/01/01/[$LATEST]0123`;
    const logging = ['logs:CreateLogStream', 'logs:PutLogEvents'].map((action) => ({ action, resource: stream }));
    const inVpc = VpcConfig === undefined ? [] : NETWORK_ACTIONS.map((action) => ({ action, resource: '*' }));
    return [...logging, ...inVpc, ...this.#polling(by)];
  }

  /** @see https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html#events-sqs-permissions */
  #polling(by: FunctionName): readonly Call[] {
    const { arn, ...place } = this.#placeOf(by === 'create-flow' ? 'uploads' : 'rounds', by);
    const actions = ['sqs:ReceiveMessage', 'sqs:DeleteMessage', 'sqs:GetQueueAttributes'];
    return [...actions.map((action) => ({ action, resource: arn })), ...kmsCalls(['kms:Decrypt'], place)];
  }

  /** The call of a tick that leaves its next round to a message. A local run has none. */
  callsOfRounds(by: FunctionName): readonly Call[] {
    const action = 'sqs:SendMessage';
    const call = { by, action, of: 'rounds', context: {}, kms: kmsActions(action, undefined) } as const;
    return by === 'collect-outputs' ? this.callsOf(call) : [];
  }

  /** Objects and buckets outside of the pipeline: in other buckets, and outside of its prefixes. Of any owner. */
  outside(): readonly { readonly resource: string; readonly owner: string }[] {
    const beside = (['inbox', 'results'] as const).flatMap((part) => {
      const { arn, prefix } = this.#placeOf(part, 'create-flow');
      return prefix === '' ? [] : [`${arn}/elsewhere/a/receipt.json`, `${arn}/receipt.json`];
    });
    const owners = [ACCOUNT, ...Object.values(this.#owners)];
    return [...beside, 'arn:aws:s3:::others', 'arn:aws:s3:::others/uploads/1.json'].flatMap((resource) =>
      owners.map((owner) => ({ resource, owner })),
    );
  }

  #placeOf(part: Part, by: FunctionName): Place {
    const { environment } = this.#functionOf(by);
    const { inboxPrefix = '', resultsPrefix = '' } = JSON.parse(environment.SETTINGS ?? '') as Record<string, string>;
    const bucket = (name = '', prefix = '') => ({
      arn: `arn:aws:s3:::${name}`,
      service: 's3',
      prefix,
      keyArn: this.#keyOf(part, 'AWS::S3::Bucket', name),
      owner: this.#owners[part] ?? ACCOUNT,
    });
    switch (part) {
      case 'inbox':
        return bucket(environment.INBOX_BUCKET, inboxPrefix);
      case 'results':
        // The key of a result begins with the key of its upload.
        return bucket(environment.RESULTS_BUCKET, resultsPrefix + inboxPrefix);
      case 'ledger':
        return bucket(environment.LEDGER_BUCKET);
      case 'uploads':
      case 'rounds': {
        const url = part === 'rounds' ? environment.ROUND_QUEUE_URL : environment.QUEUE_URL;
        const [, region, account, name] = /^https:\/\/sqs\.(.*)\.amazonaws\.com\/(.*)\/(.*)$/.exec(url ?? '') ?? [];
        const keyArn = this.#keyOf(part, 'AWS::SQS::Queue', url);
        return { arn: `arn:aws:sqs:${region}:${account}:${name}`, service: 'sqs', keyArn };
      }
      case 'token': {
        const { TOKEN_SECRET_ID: id = '' } = environment;
        const keyArn = this.#keyOf(part, 'AWS::SecretsManager::Secret', id);
        // Secrets Manager ends every ARN with a hyphen and six characters of its own choice.
        const arn = id.startsWith('arn:') ? id : `arn:aws:secretsmanager:${REGION}:${ACCOUNT}:secret:${id}-AbCdEf`;
        return { arn, service: 'secretsmanager', keyArn };
      }
      case 'bus':
        return { arn: environment.EVENT_BUS ?? '', service: 'events', keyArn: undefined };
    }
  }

  #keyOf(part: Part, type: string, ref: string | undefined): string | undefined {
    const own = Object.entries(this.#template.findResources(type)).find(
      ([id]) => resolve({ Ref: id }, this.#template) === ref,
    );
    if (own === undefined) return this.#keyArns[part];
    const { BucketEncryption, KmsMasterKeyId, KmsKeyId } = own[1].Properties ?? {};
    const [bucket] = BucketEncryption?.ServerSideEncryptionConfiguration ?? [];
    const key = bucket?.ServerSideEncryptionByDefault.KMSMasterKeyID ?? KmsMasterKeyId ?? KmsKeyId;
    return key === undefined ? undefined : resolve(key, this.#template);
  }

  #functionOf(by: FunctionName) {
    const [id, properties] = Object.entries(this.#template.findResources('AWS::Lambda::Function'))
      .map(([id, { Properties }]) => [id, Properties] as const)
      .find(([, { FunctionName: name }]) => name.endsWith(by)) ?? ['', {}];
    const environment: Partial<Record<string, string>> = Object.fromEntries(
      Object.entries(properties.Environment.Variables).map(([name, value]) => [name, resolve(value, this.#template)]),
    );
    return { properties, environment, arn: resolve({ 'Fn::GetAtt': [id, 'Arn'] }, this.#template) };
  }
}

/** @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions */
export const NETWORK_ACTIONS = [
  'ec2:CreateNetworkInterface',
  'ec2:DescribeNetworkInterfaces',
  'ec2:DescribeSubnets',
  'ec2:DeleteNetworkInterface',
  'ec2:AssignPrivateIpAddresses',
  'ec2:UnassignPrivateIpAddresses',
];

function kmsCalls(actions: readonly string[], { keyArn, service }: Pick<Place, 'keyArn' | 'service'>): readonly Call[] {
  if (keyArn === undefined) return [];
  const context = { 'kms:ViaService': `${service}.${REGION}.amazonaws.com` };
  return actions.map((action) => ({ action, resource: keyArn, context }));
}
