import { Duration, type Stack, Validations } from 'aws-cdk-lib';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Secret } from 'aws-cdk-lib/aws-secretsmanager';
import { beforeAll, describe, expect, it } from 'vitest';
import { FUNCTION_NAMES, type FunctionName } from '../../infra/bundle/bundle.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { Deployment, NETWORK_ACTIONS, type Part, type RecordedCall } from './calls.ts';
import { ACCOUNT, idleOf, isAllowed, lineOf, REGION, refusedOf, resolve } from './policies.ts';
import { recordCalls } from './recorded-calls.ts';
import { bucketsOf, existingKey, existingVpc, KEY_ARN, keyArnOf, oneBucket, synthesisePipeline } from './synthesis.ts';

let recorded: readonly RecordedCall[];
beforeAll(async () => {
  recorded = await recordCalls();
}, 240_000);

/** Props of a pipeline, and the keys and owners of the existing resources in them. */
interface Variant {
  readonly props?: (stack: Stack) => Partial<FlowPipelineProps>;
  readonly keyArns?: Partial<Record<Part, string>>;
  readonly owners?: Partial<Record<Part, string>>;
  /** Permissions that no call uses, with the reason to keep them. */
  readonly unused?: Partial<Record<FunctionName, Readonly<Record<string, string>>>>;
}

/** Keys of existing resources. */
const KEY_ARNS = {
  all: KEY_ARN,
  inbox: keyArnOf('inbox'),
  results: keyArnOf('results'),
  token: keyArnOf('token'),
};
/** Two other accounts. */
const [THEIRS, STRANGERS] = ['111111111111', '999999999999'] as const;
const PREFIXES = { inboxPrefix: 'a/b/', resultsPrefix: 'c/' };
const existing = (stack: Stack): Partial<FlowPipelineProps> => {
  const bucket = (of: 'inbox' | 'results') =>
    Bucket.fromBucketAttributes(stack, of, {
      bucketName: `their-${of}`,
      encryptionKey: existingKey(stack, KEY_ARNS[of]),
    });
  return {
    inboxBucket: bucket('inbox'),
    resultsBucket: bucket('results'),
    tokenSecret: Secret.fromSecretAttributes(stack, 'their-token', {
      secretCompleteArn: `arn:aws:secretsmanager:${REGION}:${ACCOUNT}:secret:their/token-AbCdEf`,
      encryptionKey: existingKey(stack, KEY_ARNS.token),
    }),
  };
};
const VIA_S3 = `if kms:ViaService StringEquals s3.${REGION}.amazonaws.com or s3.${REGION}.amazonaws.com.cn`;
const UNUSED_OF_EXISTING = {
  'create-flow': {
    [`kms:Decrypt ${KEY_ARNS.results.split(':').at(-1)} ${VIA_S3}`]:
      'A bucket may share a data key among objects (S3 Bucket Keys), which S3 then decrypts to write one.',
  },
};

const VARIANTS: Readonly<Record<string, Variant>> = {
  'defaults only': {},
  'another name': { props: () => ({ name: 'another-name' }) },
  'prefixes in new buckets': { props: () => ({ settings: PREFIXES }) },
  'existing buckets': {
    props: (stack) => ({
      inboxBucket: Bucket.fromBucketName(stack, 'Inbox', 'their-inbox'),
      resultsBucket: Bucket.fromBucketName(stack, 'Results', 'their-results'),
    }),
  },
  'one bucket for inbox and results': { props: oneBucket },
  'buckets of another account': { props: bucketsOf(THEIRS), owners: { inbox: THEIRS, results: THEIRS } },
  'a key of the app': { props: (stack) => ({ encryptionKey: new Key(stack, 'Key', { enableKeyRotation: true }) }) },
  'an existing key, and prefixes': {
    props: (stack) => ({ encryptionKey: existingKey(stack), settings: PREFIXES }),
  },
  'existing buckets and an existing secret, each with a key': {
    props: existing,
    keyArns: KEY_ARNS,
    unused: UNUSED_OF_EXISTING,
  },
  'a secret given by its name': {
    props: (stack) => ({ tokenSecret: Secret.fromSecretNameV2(stack, 'Secret', 'flows/token') }),
  },
  'an event bus of the app': { props: (stack) => ({ eventBus: new EventBus(stack, 'Bus') }) },
  'an existing event bus': { props: (stack) => ({ eventBus: EventBus.fromEventBusName(stack, 'Bus', 'theirs') }) },
  'a VPC': { props: existingVpc },
  'versions of ledger and results': { props: () => ({ versionRetention: Duration.days(35) }) },
  everything: {
    props: (stack) => ({
      ...existing(stack),
      ...existingVpc(stack),
      name: 'another-name',
      encryptionKey: existingKey(stack),
      eventBus: EventBus.fromEventBusName(stack, 'Bus', 'theirs'),
      settings: PREFIXES,
    }),
    keyArns: KEY_ARNS,
    unused: UNUSED_OF_EXISTING,
  },
};

/** One object of each kind, and one of no known kind. */
const KINDS: readonly Pick<RecordedCall, 'of' | 'key'>[] = [
  { of: 'inbox' },
  { of: 'inbox', key: 'a' },
  { of: 'results' },
  { of: 'results', key: 'a/receipt.json' },
  { of: 'results', key: 'a/flow/asset.png' },
  { of: 'ledger' },
  { of: 'ledger', key: 'uploads/1.json' },
  { of: 'ledger', key: 'running/1' },
  { of: 'ledger', key: 'waiting/1' },
  { of: 'ledger', key: 'failed/1' },
  { of: 'ledger', key: 'state/1' },
  { of: 'ledger', key: 'else/1' },
];

function kindOf({ of, key }: Pick<RecordedCall, 'of' | 'key'>): string {
  if (key === undefined) return of;
  if (of === 'results') return key.endsWith('/receipt.json') ? 'a receipt' : 'an asset';
  return of === 'ledger' ? `ledger/${key.split('/')[0]}` : 'an upload';
}

/** Actions that no policy may name. */
const OTHER_ACTIONS = ['s3:DeleteObject', 's3:DeleteObjectVersion', 's3:PutObjectAcl', 's3:GetBucketPolicy'];

/** Actions that are allowed on one kind of object too many, because its keys cannot be told from those of another. */
const WIDER: Readonly<Record<FunctionName, Readonly<Record<string, string>>>> = {
  'create-flow': {},
  'collect-outputs': {
    's3:AbortMultipartUpload a receipt': 'Receipts are stored beside assets, and are too small for a multipart upload.',
  },
};

/** Wildcards that the checks at synth do not see, with their reasons. */
const UNSEEN_WILDCARDS = [
  { pattern: /:log-group:[^*]*:\*$/, reason: 'The ARN of a log group ends in `:*`, which stands for its streams.' },
  {
    pattern: /:secret:[^*]*-\?{6}$/,
    reason: 'Secrets Manager adds six random characters, which are unknown if only the name is given.',
  },
];

/** The acknowledgements of a construct and of its parents. */
function acknowledgementsOf(
  root: Stack | undefined,
  path: string,
): readonly { readonly id: string; readonly reason: string }[] {
  const around = root?.node
    .findAll()
    .filter(({ node }) => node.path.endsWith(path))
    .flatMap(({ node }) => node.scopes);
  return (around ?? [])
    .flatMap(({ node }) => node.metadata)
    .filter(({ type }) => type === Validations.ACKNOWLEDGED_RULES_METADATA_KEY)
    .flatMap(({ data }) => Object.entries(data as Record<string, string>).map(([id, reason]) => ({ id, reason })))
    .filter(({ id }) => !id.includes('flowdrop:'));
}

describe.each(Object.entries(VARIANTS))(
  'the permissions of the functions, with %s:',
  (_, { props, keyArns, owners, unused }) => {
    let root: Stack | undefined;
    const { template, findings } = synthesisePipeline(props, (_, stack) => {
      root = stack;
    });
    const deployment = new Deployment(template, { keyArns, owners });
    const callsOf = (by: FunctionName) => [
      ...recorded.filter((call) => call.by === by).flatMap((call) => deployment.callsOf(call)),
      ...deployment.callsOfLambda(by),
    ];
    const permissions = {
      'create-flow': deployment.permissionsOf('create-flow'),
      'collect-outputs': deployment.permissionsOf('collect-outputs'),
    };
    const s3Actions = new Set([
      ...OTHER_ACTIONS,
      ...Object.values(permissions).flatMap((all) => all.map(({ action }) => action).filter((one) => /^s3:/.test(one))),
    ]);

    it.each(FUNCTION_NAMES)('%s may make every call that it makes', (by) => {
      const calls = callsOf(by);
      expect(calls.length).toBeGreaterThan(200);
      expect(refusedOf(permissions[by], calls).map(lineOf)).toEqual([]);
    });

    it.each(FUNCTION_NAMES)('%s uses every permission', (by) => {
      expect(idleOf(permissions[by], callsOf(by)).map(lineOf)).toEqual(Object.keys(unused?.[by] ?? {}));
    });

    it.each(FUNCTION_NAMES)('%s may use no action on a kind of object for which it needs others only', (by) => {
      const done = new Set(recorded.map((call) => `${call.by} ${call.action} ${kindOf(call)}`));
      const wider = [...s3Actions].flatMap((action) =>
        KINDS.filter((kind) => !done.has(`${by} ${action} ${kindOf(kind)}`))
          .filter((kind) => {
            const context: RecordedCall['context'] = kind.key === undefined ? { 's3:prefix': '' } : {};
            const [call] = deployment.callsOf({ by, action, context, kms: [], ...kind });
            return call !== undefined && isAllowed(permissions[by], call);
          })
          .map((kind) => `${action} ${kindOf(kind)}`),
      );
      expect(wider).toEqual(Object.keys(WIDER[by]));
    });

    it.each(FUNCTION_NAMES)('the code of %s may do nothing outside of the pipeline', (by) => {
      const accounts = [ACCOUNT, ...Object.values(owners ?? {})];
      const s3 = deployment
        .outside()
        .flatMap((resource) =>
          [...s3Actions].flatMap((action) =>
            accounts.map((owner) => ({ action, resource, context: { 'aws:ResourceAccount': owner } })),
          ),
        );
      const keys = new Set(permissions[by].map(({ resource }) => resource).filter((one) => one.includes(':kms:')));
      const kms = [...keys].flatMap((resource) =>
        ['kms:Decrypt', 'kms:GenerateDataKey', 'kms:Encrypt'].map((action) => ({ action, resource })),
      );
      // Lambda connects the function to its VPC with the same role, so the code must be denied the same.
      const network = NETWORK_ACTIONS.map((action) => ({ action, resource: '*' }));
      const bus = permissions[by].filter(({ action }) => action === 'events:PutEvents').map(({ resource }) => resource);
      const events = [`arn:aws:events:${REGION}:${ACCOUNT}:event-bus/others`, ...bus].map((resource, index) => ({
        action: 'events:PutEvents',
        resource,
        context: { 'events:source': index === 0 ? 'flowdrop' : 'aws.s3' },
      }));
      const messages = { action: 'sqs:SendMessage', resource: `arn:aws:sqs:${REGION}:${ACCOUNT}:others` };
      const secret = `arn:aws:secretsmanager:${REGION}:${ACCOUNT}:secret:others-AbCdEf`;
      const secrets = { action: 'secretsmanager:GetSecretValue', resource: secret };
      const others = [...s3, ...kms, ...network, ...events, messages, secrets].map((call) =>
        deployment.byCodeOf(by, call),
      );
      expect(others.filter((call) => isAllowed(permissions[by], call)).map(lineOf)).toEqual([]);
    });

    it.each(FUNCTION_NAMES)('%s may use no bucket that somebody else made under the name of one of its own', (by) => {
      const ours = callsOf(by).filter(({ action }) => action.startsWith('s3:'));
      expect(ours.length).toBeGreaterThan(200);
      const taken = ours.map((call) => ({ ...call, context: { ...call.context, 'aws:ResourceAccount': STRANGERS } }));
      expect(taken.filter((call) => isAllowed(permissions[by], call)).map(lineOf)).toEqual([]);
    });

    it('every action is named in full', () => {
      const all = Object.values(permissions).flat();
      expect(all.filter(({ action }) => /[*?]/.test(action)).map(lineOf)).toEqual([]);
    });

    it.each(FUNCTION_NAMES)(
      '%s has wildcards only in resources that are acknowledged one by one, with reasons',
      (by) => {
        const wildcards = permissions[by]
          .filter(({ effect, resource }) => effect === 'Allow' && /[*?]/.test(resource))
          .map(({ resource }) => resource)
          .filter((resource) => !UNSEEN_WILDCARDS.some(({ pattern }) => pattern.test(resource)));
        const acknowledged = acknowledgementsOf(
          root,
          `${{ 'create-flow': 'CreateFlow', 'collect-outputs': 'CollectOutputs' }[by]}/Role`,
        );
        for (const { reason } of acknowledged) expect(reason).toMatch(/^[A-Z].{30,}\.$/);
        const resources = acknowledged.map(({ id }) => {
          const [, resource = id] = /^Annotation::AwsSolutions-IAM5\[Resource::(.*)\]$/.exec(id) ?? [];
          return resource.replace(/<([\w:]+)(?:\.(\w+))?>/g, (_, name, attribute) =>
            resolve(attribute === undefined ? { Ref: name } : { 'Fn::GetAtt': [name, attribute] }, template),
          );
        });
        expect(new Set(resources)).toEqual(new Set(wildcards));
        expect(findings).toEqual([]);
      },
    );
  },
);
