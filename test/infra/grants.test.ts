import { App, Stack } from 'aws-cdk-lib';
import { ArnPrincipal, Group, type IGrantable, ManagedPolicy, Role, ServicePrincipal, User } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { expect, it } from 'vitest';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { messagesOf } from '../settings/fixtures.ts';
import { newRole, PROPS, type Synthesis, synthesise } from './synthesis.ts';
import { resources } from './template.ts';

const env = { account: '111111111111', region: 'eu-central-1' };
const roleArn = (account: string) => `arn:aws:iam::${account}:role/Theirs`;
const OURS = roleArn(env.account);
const OTHERS = roleArn('222222222222');

type Method = 'grantUpload' | 'grantReadResults' | 'grantView' | 'grantOperate' | 'grantForget';
const METHODS: readonly Method[] = ['grantUpload', 'grantReadResults', 'grantView', 'grantOperate', 'grantForget'];

interface Granted extends Synthesis {
  /** For each method, whether its grant is a success, and the warnings about it. */
  readonly outcomes: readonly (readonly [Method, isSuccess: boolean, warnings: readonly string[]])[];
}

/** Each method grants to a grantee of its own. */
function granted(
  methods: readonly Method[],
  granteeOf: (stack: Stack, id: string) => IGrantable,
  propsOf: (stack: Stack) => Partial<FlowPipelineProps> = () => ({}),
): Granted {
  let successes: readonly boolean[] = [];
  const synthesis = synthesise((app) => {
    const stack = new Stack(app, 'test', { env });
    const pipeline = new FlowPipeline(stack, 'Pipeline', { ...PROPS, ...propsOf(stack) });
    successes = methods.map((method) => pipeline[method](granteeOf(stack, method)).success);
    return stack;
  });
  const outcomes = methods.map((method, index) => {
    const warnings = synthesis.messages.filter((message) => message.startsWith(`${method}: `));
    return [method, successes[index] === true, warnings] as const;
  });
  return { ...synthesis, outcomes };
}

const imported = (arn: string, mutable?: boolean) => (stack: Stack, id: string) =>
  Role.fromRoleArn(stack, id, `${arn}${id}`, { mutable });

it.each<[string, (stack: Stack, id: string) => IGrantable]>([
  ['a role', newRole],
  ['an imported role of the account', imported(OURS)],
  ['a user', (stack, id) => new User(stack, id)],
  ['a group', (stack, id) => new Group(stack, id)],
  ['a managed policy', (stack, id) => new ManagedPolicy(stack, id)],
])('every grant to %s is a success, without a warning or a finding of cdk-nag', (_, granteeOf) => {
  const { outcomes, findings } = granted(METHODS, granteeOf);
  expect(outcomes).toEqual(METHODS.map((method) => [method, true, []]));
  expect(findings.filter((finding) => finding.includes('IAM5'))).toEqual([]);
});

it.each<[string, (stack: Stack, id: string) => IGrantable]>([
  ['an imported role that is not to be changed', imported(OURS, false)],
  ['a role without updates', (stack, id) => newRole(stack, id).withoutPolicyUpdates()],
])('every grant to %s is no success, and synth prints the statements that it needs', (_, granteeOf) => {
  for (const [method, isSuccess, warnings] of granted(METHODS, granteeOf).outcomes) {
    expect([method, isSuccess, warnings.length]).toEqual([method, false, 1]);
    expect(warnings[0]).toContain(`${method}: this app cannot change the policy of the grantee. Add to it: {"Action":`);
    expect(warnings[0]).not.toContain('[object');
  }
});

/** A pipeline whose functions are not bundled. */
const newPipeline = () => {
  const stack = new Stack(new App({ context: { 'aws:cdk:bundling-stacks': [] } }), 'test', { env });
  return { stack, pipeline: new FlowPipeline(stack, 'Pipeline', PROPS) };
};

it('assertSuccess of a grant that lacks a statement throws', () => {
  const { stack, pipeline } = newPipeline();
  expect(() => pipeline.grantView(imported(OURS, false)(stack, 'Role')).assertSuccess()).toThrow(/could not be added/);
});

const bucketPolicies = ({ template }: Pick<Synthesis, 'template'>) =>
  JSON.stringify(resources(template, 'AWS::S3::BucketPolicy'));

it('a role of another account is allowed by the new bucket, and synth prints what its own policy needs', () => {
  const { outcomes, ...synthesis } = granted(['grantUpload'], imported(OTHERS));
  expect(bucketPolicies(synthesis).match(/:role\/TheirsgrantUpload/g)).toHaveLength(1);
  const warning = expect.stringMatching(/policy of the grantee\. Add to it: .*"s3:PutObject"/);
  expect(outcomes).toEqual([['grantUpload', false, [warning]]]);
});

it('for a role of another account and an imported bucket with its key, synth prints what all three policies need', () => {
  const keyArn = 'arn:aws:kms:eu-central-1:111111111111:key/theirs';
  const { outcomes } = granted(['grantReadResults'], imported(OTHERS), (stack) => {
    const encryptionKey = Key.fromKeyArn(stack, 'Key', keyArn);
    return { resultsBucket: Bucket.fromBucketAttributes(stack, 'Theirs', { bucketName: 'theirs', encryptionKey }) };
  });
  const [[, isSuccess, warnings] = []] = outcomes;
  expect(isSuccess).toBe(false);
  const principal = `"Principal":{"AWS":"${OTHERS}grantReadResults"}`;
  expect(warnings).toEqual([
    expect.stringMatching(/of the grantee\. .*"kms:Decrypt".*"s3:GetObject".*"s3:ListBucket"/),
    expect.stringMatching(new RegExp(String.raw`of the key\. .*"kms:Decrypt".*${principal},"Resource":"\*"`)),
    expect.stringMatching(new RegExp(String.raw`of the bucket\. .*"s3:GetObject".*${principal}.*"s3:ListBucket"`)),
  ]);
});

it('a role of another account cannot view, operate or forget', () => {
  const { stack, pipeline } = newPipeline();
  const methods = ['grantView', 'grantOperate', 'grantForget'] as const;
  expect(methods.flatMap((method) => messagesOf(() => pipeline[method](imported(OTHERS)(stack, method))))).toEqual(
    methods.map(
      (method) =>
        `test/Pipeline.${method}: expected a grantee of the account 111111111111 of the stack, got one of ` +
        '222222222222. Let it assume a role of 111111111111',
    ),
  );
});

it.each<[string, IGrantable]>([
  ['a role by its ARN', new ArnPrincipal(OURS)],
  ['a service', new ServicePrincipal('transfer.amazonaws.com')],
])('%s has no policy that an app could change, so the new bucket allows it', (_, grantee) => {
  const { outcomes, ...synthesis } = granted(['grantUpload'], () => grantee);
  expect(outcomes).toEqual([['grantUpload', true, []]]);
  // Once, although it was added twice.
  expect(bucketPolicies(synthesis).match(/s3:ListMultipartUploadParts/g)).toHaveLength(1);
});
