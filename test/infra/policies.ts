import type { Template } from 'aws-cdk-lib/assertions';

/** One action on one pattern of resources, as a role's policy allows it: `s3:GetObject inbox/*`. */
export interface Allowance {
  readonly action: string;
  readonly resource: string;
}

interface Statement {
  readonly Effect: string;
  readonly Action: string | readonly string[];
  readonly Resource: unknown;
  readonly Condition?: unknown;
}

interface PolicyResource {
  readonly Properties: {
    readonly PolicyDocument: { readonly Statement: readonly Statement[] };
    readonly Roles: unknown;
  };
}

/** How the parts of a pipeline are called in a listing, by what their logical ids contain. */
const NAMES: Readonly<Record<string, RegExp>> = {
  inbox: /^PipelineInboxBucket/,
  results: /^PipelineResultsBucket/,
  ledger: /^PipelineLedgerBucket/,
  token: /^PipelineTokenSecret/,
  'uploads-queue': /^PipelineQueueUploads/,
  'create-flow-logs': /^PipelineCreateFlowLogs/,
  'collect-outputs-logs': /^PipelineCollectOutputsLogs/,
  'collect-outputs': /^PipelineCollectOutputsFunction/,
  key: /^Key/,
};

/** Everything that the roles whose logical id contains `role` may do, sorted. */
export function allowancesOf(template: Template, role: string): readonly Allowance[] {
  const policies = Object.values(template.findResources('AWS::IAM::Policy')) as unknown as PolicyResource[];
  const statements = policies
    .filter(({ Properties }) => JSON.stringify(Properties.Roles).includes(role))
    .flatMap(({ Properties }) => Properties.PolicyDocument.Statement);
  return statements
    .flatMap(({ Action, Resource }) =>
      list(Action).flatMap((action) => list(Resource).map((resource) => ({ action, resource: named(resource) }))),
    )
    .sort((a, b) => (lineOf(a) < lineOf(b) ? -1 : 1));
}

export const lineOf = ({ action, resource }: Allowance): string => `${action} ${resource}`;

/** Whether a call is among what is allowed. In a pattern `*` stands for anything, slashes too, as in IAM. */
export function isAllowed(allowances: readonly Allowance[], call: Allowance): boolean {
  return allowances.some(
    ({ action, resource }) =>
      action === call.action &&
      new RegExp(`^${resource.split('*').map(RegExp.escape).join('.*')}$`, 's').test(call.resource),
  );
}

const list = <T>(value: T | readonly T[]): readonly T[] => (Array.isArray(value) ? value : [value as T]);

function named(value: unknown): string {
  if (typeof value === 'string') return value;
  const [[name, argument] = []] = Object.entries(value as Record<string, unknown>);
  if (name === 'Fn::Join') {
    const joined = (argument as [string, unknown[]])[1].map(named).join('');
    return joined.endsWith(':event-bus/default') ? 'default-bus' : joined;
  }
  const logicalId = name === 'Fn::GetAtt' ? (argument as [string])[0] : String(argument);
  return Object.keys(NAMES).find((each) => NAMES[each]?.test(logicalId)) ?? logicalId;
}
