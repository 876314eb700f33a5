import { Template } from 'aws-cdk-lib/assertions';
import { describe, expect, it } from 'vitest';
import { idleOf, isAllowed, lineOf, permissionsOf, refusedOf, resolve, UnknownPolicyError } from './policies.ts';

/** A template with one role and one policy. */
const templateOf = (...Statement: readonly object[]): Template =>
  Template.fromJSON({
    Resources: {
      PipelineInboxBucket01234567: { Type: 'AWS::S3::Bucket' },
      Logs: { Type: 'AWS::Logs::LogGroup', Properties: { LogGroupName: '/mine' } },
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
const read = { action: 's3:GetObject', resource: 'arn:aws:s3:::inbox/in/a/b.png' };
const remove = { action: 's3:DeleteObject', resource: 'arn:aws:s3:::results/a.png' };

describe('a call', () => {
  it('is allowed if a statement allows it, and not without that statement', () => {
    expect(isAllowed(permissions(READ, WRITE), read)).toBe(true);
    expect(isAllowed(permissions(WRITE), read)).toBe(false);
    expect(isAllowed(permissions(READ, WRITE), remove)).toBe(true);
    expect(isAllowed(permissions(READ), remove)).toBe(false);
  });

  it.each([
    { ...read, action: 's3:GetObjectVersion' },
    { ...read, resource: 'arn:aws:s3:::inbox/out/a.png' },
    { ...read, resource: 'arn:aws:s3:::inbox' },
    { ...read, resource: 'arn:aws:s3:::inbox2/in/a.png' },
    { ...read, resource: 'x-arn:aws:s3:::inbox/in/a.png' },
  ])('is not allowed because a similar call is: %j', (call) => {
    expect(isAllowed(permissions(READ), call)).toBe(false);
  });

  it('matches any one character at a question mark', () => {
    const all = permissions({ Effect: 'Allow', Action: 'secretsmanager:GetSecretValue', Resource: 'arn:token-??????' });
    const call = { action: 'secretsmanager:GetSecretValue', resource: 'arn:token-AbCdEf' };
    expect(isAllowed(all, call)).toBe(true);
    expect(isAllowed(all, { ...call, resource: 'arn:token-AbCdE' })).toBe(false);
    expect(isAllowed(all, { ...call, resource: 'arn:token-AbCdEfG' })).toBe(false);
  });

  it('is not allowed if a statement denies it, even if another allows it', () => {
    expect(isAllowed(permissions(READ, { ...READ, Effect: 'Deny' }), read)).toBe(false);
    expect(isAllowed(permissions({ ...READ, Effect: 'Deny' }), read)).toBe(false);
  });
});

describe('a policy', () => {
  const CALLS = [read, { action: 's3:PutObject', resource: 'arn:aws:s3:::results/a.png' }];
  const ENOUGH = [READ, { ...WRITE, Action: ['s3:PutObject'] }];
  const checked = (...statements: readonly object[]) => ({
    refused: refusedOf(permissions(...statements), CALLS).map(lineOf),
    idle: idleOf(permissions(...statements), CALLS).map(lineOf),
  });

  it('that allows exactly the calls has nothing refused and nothing idle', () => {
    expect(checked(...ENOUGH)).toEqual({ refused: [], idle: [] });
  });

  it('that lacks a permission has calls refused', () => {
    expect(checked(READ)).toEqual({ refused: ['s3:PutObject results/a.png'], idle: [] });
    const elsewhere = { ...WRITE, Action: 's3:PutObject', Resource: 'arn:aws:s3:::results/b/*' };
    expect(checked(READ, elsewhere)).toEqual({
      refused: ['s3:PutObject results/a.png'],
      idle: ['s3:PutObject results/b/*'],
    });
    const unlessAsked = { ...READ, Condition: { StringEquals: { 's3:prefix': 'in/' } } };
    expect(checked(unlessAsked, ...ENOUGH.slice(1)).refused).toEqual(['s3:GetObject inbox/in/a/b.png']);
  });

  it('that allows too much has idle permissions', () => {
    expect(checked(READ, WRITE)).toEqual({ refused: [], idle: ['s3:DeleteObject results/*'] });
    expect(checked(...ENOUGH, { ...READ, Resource: 'arn:aws:s3:::ledger/*' }).idle).toEqual(['s3:GetObject ledger/*']);
  });

  it('that allows the same twice, in different words, has both idle', () => {
    const again = { ...READ, Resource: 'arn:aws:s3:::inbox/*' };
    expect(checked(...ENOUGH, again).idle).toEqual(['s3:GetObject inbox/*', 's3:GetObject inbox/in/*']);
    expect(checked(...ENOUGH, READ).idle).toEqual([]);
  });
});

describe('a condition', () => {
  const when = (Condition: object) => permissions({ ...READ, Condition });

  it.each([
    ['StringEquals', 'events:source', 'a.b', 'a.b', 'a-b'],
    ['StringEquals', 's3:prefix', 'in/*', 'in/*', 'in/a'],
    ['StringLike', 's3:prefix', 'in/*', 'in/a/b', 'out/a'],
    ['ArnEquals', 'lambda:FunctionArn', 'arn:*:f', 'arn:aws:lambda:a:1:function:f', 'arn:aws:lambda:a:1:function:g'],
  ])('%s of %s %j is met by %j, but not by %j or by an absent key', (operator, key, expected, met, unmet) => {
    const all = when({ [operator]: { [key]: expected } });
    expect(isAllowed(all, { ...read, context: { [key]: met } })).toBe(true);
    expect(isAllowed(all, { ...read, context: { [key]: unmet } })).toBe(false);
    expect(isAllowed(all, read)).toBe(false);
  });

  it('with several values is met by each of them. With several keys, all must be met', () => {
    const all = when({ StringEquals: { 'kms:ViaService': ['s3', 'sqs'], 's3:prefix': 'in/' } });
    const context = { 'kms:ViaService': 'sqs', 's3:prefix': 'in/' };
    expect(isAllowed(all, { ...read, context })).toBe(true);
    expect(isAllowed(all, { ...read, context: { ...context, 'kms:ViaService': 'sns' } })).toBe(false);
    expect(isAllowed(all, { ...read, context: { ...context, 's3:prefix': '' } })).toBe(false);
  });

  it.each([
    [{ StringNotEquals: { 's3:prefix': 'in/' } }],
    [{ StringEqualsIfExists: { 's3:prefix': 'in/' } }],
    [{ 'ForAllValues:StringEquals': { 's3:prefix': 'in/' } }],
    [{ toString: { 's3:prefix': 'in/' } }],
    [{ StringEquals: { 'aws:SourceIp': '127.0.0.1' } }],
  ])('that is unknown throws an error: %j', (condition) => {
    expect(() => isAllowed(when(condition), read)).toThrow(UnknownPolicyError);
  });

  it('on the account is part of the line of its permission if it names another account', () => {
    const ofAccount = (account: string) => when({ StringEquals: { 'aws:ResourceAccount': account } }).map(lineOf);
    expect(ofAccount('123456789012')).toEqual(['s3:GetObject inbox/in/*']);
    expect(ofAccount('999999999999')).toEqual([
      's3:GetObject inbox/in/* if aws:ResourceAccount StringEquals 999999999999',
    ]);
  });

  it('is part of the line of its permission', () => {
    expect(when({ StringEquals: { 's3:prefix': ['a', 'b'] } }).map(lineOf)).toEqual([
      's3:GetObject inbox/in/* if s3:prefix StringEquals a or b',
    ]);
    expect(permissions({ ...READ, Effect: 'Deny' }).map(lineOf)).toEqual(['never s3:GetObject inbox/in/*']);
  });
});

describe('an unknown element of a policy throws an error', () => {
  it.each([
    { Effect: 'Allow', NotAction: 's3:GetObject', Action: [], Resource: '*' },
    { Effect: 'Allow', Action: 's3:GetObject', NotResource: 'arn:aws:s3:::a', Resource: [] },
    { Effect: 'Allow', Action: 's3:GetObject', Resource: { 'Fn::ImportValue': 'a' } },
    {
      Effect: 'Allow',
      Action: 's3:GetObject',
      Resource: { 'Fn::GetAtt': ['PipelineInboxBucket01234567', 'DomainName'] },
    },
    { Effect: 'Allow', Action: 's3:GetObject', Resource: { Ref: 'Nothing' } },
  ])('%j', (statement) => {
    expect(() => permissions(statement)).toThrow(UnknownPolicyError);
  });

  it('a variable in a resource', () => {
    const all = permissions({ ...READ, Resource: `arn:aws:s3:::inbox/$\{aws:userid}/*` });
    expect(() => isAllowed(all, read)).toThrow(UnknownPolicyError);
  });
});

it.each([
  [{ Ref: 'PipelineInboxBucket01234567' }, 'inbox'],
  [inboxArn, 'arn:aws:s3:::inbox'],
  [{ 'Fn::GetAtt': ['Logs', 'Arn'] }, 'arn:aws:logs:eu-central-1:123456789012:log-group:/mine:*'],
  [{ 'Fn::Join': [':', ['arn', { Ref: 'AWS::Partition' }, { Ref: 'AWS::AccountId' }]] }, 'arn:aws:123456789012'],
])('the value %j is %s after deployment', (value, expected) => {
  expect(resolve(value, templateOf())).toBe(expected);
});
