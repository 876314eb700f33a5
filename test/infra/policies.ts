import type { Template } from 'aws-cdk-lib/assertions';

/** Region and account in which every template counts as deployed. */
export const REGION = 'eu-central-1';
export const ACCOUNT = '123456789012';

/** Values by operator and key. One of the values must match. */
type Conditions = Readonly<Record<string, Readonly<Record<string, string | readonly string[]>>>>;

/** One action on one pattern of resources, as a role's policy allows or denies it. */
export interface Permission {
  readonly effect: 'Allow' | 'Deny';
  readonly action: string;
  /** An ARN. In it, `*` stands for any characters and `?` for one. */
  readonly resource: string;
  readonly conditions: Conditions;
}

/** A call by a role: one action on one resource, with the context that conditions test. */
export interface Call {
  readonly action: string;
  readonly resource: string;
  readonly context?: Readonly<Record<string, string>>;
}

/** A policy uses something that this file does not implement, so it proves nothing. */
export class UnknownPolicyError extends Error {
  override readonly name = 'UnknownPolicyError';
}

const STATEMENT_PARTS = ['Sid', 'Effect', 'Action', 'Resource', 'Condition'];

interface Statement {
  readonly Effect: Permission['effect'];
  readonly Action: string | readonly string[];
  readonly Resource: unknown;
  readonly Condition?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

/** The permissions of the roles whose logical id contains `role`, each once, sorted. */
export function permissionsOf(template: Template, role: string): readonly Permission[] {
  const all = Object.values(template.findResources('AWS::IAM::Policy'))
    .filter(({ Properties }) => JSON.stringify(Properties.Roles).includes(role))
    .flatMap(({ Properties }) => Properties.PolicyDocument.Statement)
    .flatMap((statement) => permissionsIn(statement, template));
  const different = new Map(all.map((permission) => [JSON.stringify(permission), permission]));
  return [...different.values()].sort((a, b) => (lineOf(a) < lineOf(b) ? -1 : 1));
}

function permissionsIn(statement: Statement, template: Template): readonly Permission[] {
  const unknown = Object.keys(statement).filter((part) => !STATEMENT_PARTS.includes(part));
  if (unknown.length > 0) throw new UnknownPolicyError(`A statement has ${unknown.join(', ')}`);
  const { Effect: effect, Action, Resource, Condition = {} } = statement;
  const resolved = (value: unknown) => list(value).map((one) => resolve(one, template));
  const conditions = mapValues(Condition, (keys) => mapValues(keys, resolved));
  return list(Action).flatMap((action) =>
    resolved(Resource).map((resource) => ({ effect, action, resource, conditions })),
  );
}

/** A permission in one line, without partition, region and account, and without the condition that names the account. */
export function lineOf({ action, resource, ...more }: Permission | Call): string {
  const { effect = 'Allow', conditions = {} } = more as Partial<Permission>;
  const about = Object.entries(conditions).flatMap(([operator, keys]) =>
    Object.entries(keys)
      .filter(([key, values]) => key !== 'aws:ResourceAccount' || list(values).join() !== ACCOUNT)
      .map(([key, values]) => ` if ${key} ${operator} ${list(values).map(shortened).join(' or ')}`),
  );
  return `${effect === 'Deny' ? 'never ' : ''}${action} ${shortened(resource)}${about.join('')}`;
}

const shortened = (arn: string): string =>
  arn.replace('arn:aws:s3:::', '').replace(new RegExp(`^arn:aws:[\\w-]+:${REGION}:${ACCOUNT}:`), '');

/** Decides as IAM does: a statement must allow the call, and none may deny it. */
export function isAllowed(permissions: readonly Permission[], call: Call): boolean {
  const matching = permissions.filter((permission) => matches(permission, call));
  return matching.length > 0 && matching.every(({ effect }) => effect === 'Allow');
}

/** The calls that are refused. */
export function refusedOf(permissions: readonly Permission[], calls: readonly Call[]): readonly Call[] {
  return calls.filter((call) => !isAllowed(permissions, call));
}

/** The permissions without which all allowed calls would still be allowed. */
export function idleOf(permissions: readonly Permission[], calls: readonly Call[]): readonly Permission[] {
  const allowing = permissions.filter(({ effect }) => effect === 'Allow');
  const allowedBy = calls
    .filter((call) => isAllowed(permissions, call))
    .map((call) => allowing.filter((permission) => matches(permission, call)));
  const needed = new Set(allowedBy.flatMap((all) => (all.length === 1 ? all : [])));
  return allowing.filter((permission) => !needed.has(permission));
}

function matches({ action, resource, conditions }: Permission, call: Call): boolean {
  return (
    isLike(call.action, action) &&
    isLike(call.resource, resource) &&
    Object.entries(conditions).every(([operator, keys]) =>
      Object.entries(keys).every(([key, values]) => isMet(operator, key, list(values), call.context?.[key])),
    )
  );
}

/** @see https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html */
const OPERATORS: Readonly<Record<string, (value: string, expected: string) => boolean>> = {
  StringEquals: (value, expected) => value === expected,
  StringLike: isLike,
  // IAM takes wildcards in it too.
  ArnEquals: isLike,
};

/** Condition keys for which the recorded calls have values. */
const KEYS = [
  'aws:ResourceAccount',
  'events:detail-type',
  'events:source',
  'kms:ViaService',
  'lambda:FunctionArn',
  'lambda:SourceFunctionArn',
  's3:prefix',
];

/** Tests one condition. If the request lacks the key, the condition is not met. */
function isMet(operator: string, key: string, expected: readonly string[], value: string | undefined): boolean {
  const test = Object.hasOwn(OPERATORS, operator) ? OPERATORS[operator] : undefined;
  if (test === undefined || !KEYS.includes(key)) {
    throw new UnknownPolicyError(`Unknown condition: ${operator} of ${key}`);
  }
  return value !== undefined && expected.some((one) => test(value, one));
}

/** Matches as IAM does: `*` stands for any characters, slashes too, and `?` for one. */
function isLike(value: string, pattern: string): boolean {
  if (pattern.includes('${')) throw new UnknownPolicyError(`A policy has a variable: ${pattern}`);
  let compiled = compiledPatterns.get(pattern);
  if (compiled === undefined) {
    const source = RegExp.escape(pattern).replaceAll('\\*', '.*').replaceAll('\\?', '.');
    compiled = new RegExp(`^${source}$`, 's');
    compiledPatterns.set(pattern, compiled);
  }
  return compiled.test(value);
}

const compiledPatterns = new Map<string, RegExp>();

const list = <T>(value: T | readonly T[]): readonly T[] => (Array.isArray(value) ? value : [value as T]);

const mapValues = <T, U>(all: Readonly<Record<string, T>>, map: (value: T) => U): Readonly<Record<string, U>> =>
  Object.fromEntries(Object.entries(all).map(([key, value]) => [key, map(value)]));

/** Short names for the parts of a pipeline, by their logical ids. */
const NAMES: Readonly<Record<string, RegExp>> = {
  inbox: /^PipelineInboxBucket/,
  results: /^PipelineResultsBucket/,
  ledger: /^PipelineLedgerBucket/,
  token: /^PipelineTokenSecret/,
  uploads: /^PipelineQueueUploads/,
  key: /^Key/,
};

const PSEUDO_PARAMETERS: Readonly<Record<string, string>> = {
  'AWS::Partition': 'aws',
  'AWS::Region': REGION,
  'AWS::AccountId': ACCOUNT,
  'AWS::URLSuffix': 'amazonaws.com',
  'AWS::StackId': `arn:aws:cloudformation:${REGION}:${ACCOUNT}:stack/test/0123`,
};

const arn = (service: string, resource: string): string => `arn:aws:${service}:${REGION}:${ACCOUNT}:${resource}`;

/** Values of `Ref` and of the attribute `Arn` for each type of resource, by the name of the resource. */
const IDENTITIES: Readonly<Record<string, { ref?: (name: string) => string; arn: (name: string) => string }>> = {
  'AWS::S3::Bucket': { ref: (name) => name, arn: (name) => `arn:aws:s3:::${name}` },
  'AWS::SQS::Queue': {
    ref: (name) => `https://sqs.${REGION}.amazonaws.com/${ACCOUNT}/${name}`,
    arn: (name) => arn('sqs', name),
  },
  'AWS::SecretsManager::Secret': {
    ref: (name) => arn('secretsmanager', `secret:${name}-AbCdEf`),
    arn: (name) => arn('secretsmanager', `secret:${name}-AbCdEf`),
  },
  'AWS::KMS::Key': { arn: (name) => arn('kms', `key/${name}`) },
  'AWS::Events::EventBus': { ref: (name) => name, arn: (name) => arn('events', `event-bus/${name}`) },
  'AWS::Logs::LogGroup': { ref: (name) => name, arn: (name) => arn('logs', `log-group:${name}:*`) },
  'AWS::Lambda::EventSourceMapping': {
    ref: (name) => name,
    arn: (name) => arn('lambda', `event-source-mapping:${name}`),
  },
  'AWS::Events::Rule': { ref: (name) => name, arn: (name) => arn('events', `rule/${name}`) },
  'AWS::Lambda::Function': { ref: (name) => name, arn: (name) => arn('lambda', `function:${name}`) },
};

/** A value of a template after deployment. */
export function resolve(value: unknown, template: Template): string {
  if (typeof value === 'string') return value;
  const [[intrinsic, argument] = []] = Object.entries(value as Record<string, unknown>);
  if (intrinsic === 'Fn::Join') {
    const [delimiter, parts] = argument as [string, unknown[]];
    return parts.map((part) => resolve(part, template)).join(delimiter);
  }
  if (intrinsic === 'Ref' && Object.hasOwn(PSEUDO_PARAMETERS, String(argument))) {
    return PSEUDO_PARAMETERS[String(argument)] as string;
  }
  const [id, attribute] = intrinsic === 'Fn::GetAtt' ? (argument as [string, string]) : [String(argument), 'Ref'];
  const { Type, Properties = {} } = template.toJSON().Resources[id] ?? {};
  const identity = IDENTITIES[Type];
  const of =
    attribute === 'Ref' && intrinsic === 'Ref' ? identity?.ref : attribute === 'Arn' ? identity?.arn : undefined;
  if (of === undefined) throw new UnknownPolicyError(`The value after deployment is unknown: ${JSON.stringify(value)}`);
  // An event source mapping refers to its function under the same name of a property.
  const given = [Properties.FunctionName, Properties.LogGroupName, Properties.Name].find(
    (each) => typeof each === 'string',
  );
  return of(given ?? Object.keys(NAMES).find((each) => NAMES[each]?.test(id)) ?? id);
}
