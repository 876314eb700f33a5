import { Template } from 'aws-cdk-lib/assertions';
import { describe, expect, it } from 'vitest';
import { idleOf, isAllowed, lineOf, permissionsOf, refusedOf, UnknownPolicyError } from './policies.ts';

/** A template with one role and one policy. */
const templateOf = (...Statement: readonly object[]): Template =>
  Template.fromJSON({
    Resources: {
      PipelineInboxBucket01234567: { Type: 'AWS::S3::Bucket' },
      Policy: {
        Type: 'AWS::IAM::Policy',
        Properties: { PolicyDocument: { Statement }, Roles: [{ Ref: 'RoleOfMine' }] },
      },
    },
  });
const permissions = (...statements: readonly object[]) => permissionsOf(templateOf(...statements), 'RoleOfMine');

const inboxArn = { 'Fn::GetAtt': ['PipelineInboxBucket01234567', 'Arn'] };
const READ = { Effect: 'Allow', Action: 's3:GetObject', Resource: { 'Fn::Join': ['', [inboxArn, '/in/*']] } };
const WRITE = { Effect: 'Allow', Action: ['s3:PutObject', 's3:DeleteObject'], Resource: 'arn:aws:s3:::results/*' };
const PUT = { ...WRITE, Action: 's3:PutObject' };
const TOKEN = { ...READ, Resource: 'arn:token-??????' };
const when = (Condition: object) => [{ ...READ, Condition }];
const read = (resource = 'inbox/in/a/b.png', context = {}) => ({
  action: 's3:GetObject',
  resource: `arn:aws:s3:::${resource}`,
  context,
});
const write = { action: 's3:PutObject', resource: 'arn:aws:s3:::results/a.png' };

it.each<[readonly object[], Parameters<typeof isAllowed>[1], boolean]>([
  [[READ, WRITE], read(), true],
  [[READ, WRITE], write, true],
  [[WRITE], read(), false],
  [[READ], write, false],
  [[READ], { ...read(), action: 's3:GetObjectVersion' }, false],
  [[READ], read('inbox/out/a.png'), false],
  [[READ], read('inbox'), false],
  [[READ], read('inbox2/in/a.png'), false],
  [[READ], { ...read(), resource: `x-${read().resource}` }, false],
  [[TOKEN], { ...read(), resource: 'arn:token-AbCdEf' }, true],
  [[TOKEN], { ...read(), resource: 'arn:token-AbCdE' }, false],
  [[TOKEN], { ...read(), resource: 'arn:token-AbCdEfG' }, false],
  [[READ, { ...READ, Effect: 'Deny' }], read(), false],
  [[{ ...READ, Effect: 'Deny' }], read(), false],
  [
    when({ StringEquals: { 'events:source': 'a', 's3:prefix': 'b' } }),
    read(undefined, { 'events:source': 'a' }),
    false,
  ],
])('%j: the call %j is allowed: %s', (statements, call, expected) => {
  expect(isAllowed(permissions(...statements), call)).toBe(expected);
});

it.each([
  ['StringEquals', 'events:source', 'a.b', 'a.b', 'a-b'],
  ['StringEquals', 's3:prefix', 'in/*', 'in/*', 'in/a'],
  ['StringLike', 's3:prefix', 'in/*', 'in/a/b', 'out/a'],
  ['ArnEquals', 'lambda:FunctionArn', 'arn:*:f', 'arn:aws:lambda:a:1:function:f', 'arn:aws:lambda:a:1:function:g'],
  ['StringEquals', 'kms:ViaService', ['s3', 'sqs'], 'sqs', 'sns'],
])('%s of %s %j is met by %j, but not by %j or by an absent key', (operator, key, expected, met, unmet) => {
  const isMet = (context: object) =>
    isAllowed(permissions(...when({ [operator]: { [key]: expected } })), read(undefined, context));
  expect([isMet({ [key]: met }), isMet({ [key]: unmet }), isMet({})]).toEqual([true, false, false]);
});

it.each<[readonly object[], readonly string[], readonly string[]]>([
  [[READ, PUT], [], []],
  [[READ], ['s3:PutObject results/a.png'], []],
  [
    [READ, { ...PUT, Resource: 'arn:aws:s3:::results/b/*' }],
    ['s3:PutObject results/a.png'],
    ['s3:PutObject results/b/*'],
  ],
  [[READ, WRITE], [], ['s3:DeleteObject results/*']],
  // The same twice, in different words, and in the same.
  [[READ, PUT, { ...READ, Resource: 'arn:aws:s3:::inbox/*' }], [], ['s3:GetObject inbox/*', 's3:GetObject inbox/in/*']],
  [[READ, PUT, READ], [], []],
])('%j: of a read and a write are refused: %j, and are idle: %j', (statements, refused, idle) => {
  expect(refusedOf(permissions(...statements), [read(), write]).map(lineOf)).toEqual(refused);
  expect(idleOf(permissions(...statements), [read(), write]).map(lineOf)).toEqual(idle);
});

describe('an unknown element of a policy throws an error', () => {
  it.each([
    ...when({ StringNotEquals: { 's3:prefix': 'in/' } }),
    ...when({ StringEqualsIfExists: { 's3:prefix': 'in/' } }),
    ...when({ 'ForAllValues:StringEquals': { 's3:prefix': 'in/' } }),
    ...when({ toString: { 's3:prefix': 'in/' } }),
    ...when({ StringEquals: { 'aws:SourceIp': '127.0.0.1' } }),
    { ...READ, NotAction: 's3:GetObject' },
    { ...READ, NotResource: 'arn:aws:s3:::a' },
    { ...READ, Resource: { 'Fn::ImportValue': 'a' } },
    { ...READ, Resource: { 'Fn::GetAtt': ['PipelineInboxBucket01234567', 'DomainName'] } },
    { ...READ, Resource: { Ref: 'Nothing' } },
    { ...READ, Resource: `arn:aws:s3:::inbox/$\{aws:userid}/*` },
  ])('%j', (statement) => {
    expect(() => isAllowed(permissions(statement), read())).toThrow(UnknownPolicyError);
  });
});
