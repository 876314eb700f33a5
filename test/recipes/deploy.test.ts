import { readFileSync } from 'node:fs';
import { DefaultStackSynthesizer } from 'aws-cdk-lib';
import { describe, expect, it } from 'vitest';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

interface Role {
  readonly RoleName: object;
  readonly AssumeRolePolicyDocument: { readonly Statement: readonly unknown[] };
  readonly Policies: readonly { readonly PolicyDocument: { readonly Statement: readonly unknown[] } }[];
}

interface Roles {
  readonly Parameters: Readonly<Record<string, { readonly Default?: string }>>;
  readonly Resources: Readonly<Record<string, { readonly Properties: Role }>>;
}
const { Resources: ROLES, Parameters: PARAMETERS }: Roles = JSON.parse(read('examples/deploy/roles.json'));

const ISSUER = 'token.actions.githubusercontent.com';
const {
  DEFAULT_QUALIFIER,
  DEFAULT_LOOKUP_ROLE_ARN: LOOKUP,
  DEFAULT_FILE_ASSET_PUBLISHING_ROLE_ARN: PUBLISH,
  DEFAULT_DEPLOY_ROLE_ARN: DEPLOY,
} = DefaultStackSynthesizer;

describe('examples/deploy/roles.json', () => {
  it.each([
    ['Diff', 'flowdrop-diff', 'pull_request', [LOOKUP]],
    ['Deploy', 'flowdrop-deploy', `environment:\${Stage}`, [LOOKUP, PUBLISH, DEPLOY]],
  ])('the role %s is for one kind of job of one repository, and may only assume roles of the bootstrap', (...row) => {
    const [id, name, subject, arns] = row;
    const { RoleName, AssumeRolePolicyDocument, Policies, ...more } = ROLES[id]?.Properties ?? ({} as Role);
    expect(more).toEqual({});
    expect(RoleName).toEqual({ 'Fn::Sub': `${name}-\${Stage}` });
    expect(AssumeRolePolicyDocument.Statement).toEqual([
      {
        Effect: 'Allow',
        Principal: {
          Federated: { 'Fn::Sub': `arn:\${AWS::Partition}:iam::\${AWS::AccountId}:oidc-provider/${ISSUER}` },
        },
        Action: 'sts:AssumeRoleWithWebIdentity',
        Condition: {
          StringEquals: {
            [`${ISSUER}:aud`]: 'sts.amazonaws.com',
            [`${ISSUER}:sub`]: { 'Fn::Sub': `repo:\${Repository}:${subject}` },
          },
        },
      },
    ]);
    expect(Policies.flatMap(({ PolicyDocument }) => PolicyDocument.Statement)).toEqual([
      { Effect: 'Allow', Action: 'sts:AssumeRole', Resource: arns.map((arn) => ({ 'Fn::Sub': arn })) },
    ]);
  });

  it('has these two roles, and nothing else, for the bootstrap of CDK unless told otherwise', () => {
    expect(Object.keys(ROLES)).toEqual(['Diff', 'Deploy']);
    expect(PARAMETERS.Qualifier?.Default).toBe(DEFAULT_QUALIFIER);
  });
});

describe('examples/deploy/deploy.yml', () => {
  const workflow = read('examples/deploy/deploy.yml');
  const [, diff = '', test = '', production = ''] = workflow.split(/^ {2}(?:diff|test|production):$/m);

  it('takes no secret of GitHub, and gives no job more rights than it needs', () => {
    expect(workflow).not.toContain('secrets.');
    expect(workflow).toMatch(/^permissions: \{\}/m);
    expect(Array.from(workflow.matchAll(/^ +([\w-]+: write)$/gm), ([, right]) => right)).toEqual([
      'id-token: write',
      'pull-requests: write',
      'id-token: write',
    ]);
  });

  it('puts no value of GitHub into a command, where a name could be one', () => {
    const lines = workflow.split('\n').filter((line) => line.includes('${{'));
    expect(lines.filter((line) => !/^ +[A-Z_a-z]+: ([\w:/-]|\$\{\{ [\w.]+ \}\})+$/.test(line))).toEqual([]);
  });

  it('looks with one role, for branches of this repository, and deploys with another', () => {
    expect(diff).toContain('github.event.pull_request.head.repo.full_name == github.repository');
    expect(diff).toContain(`:role/flowdrop-diff-\${{ matrix.stage }}\n`);
    expect(diff).toContain('--method template');
    expect(test).toContain(':role/flowdrop-deploy-test\n');
    expect(production).toContain(':role/flowdrop-deploy-production\n');
  });

  it('deploys a stage, tries it with a canary, and begins the next stage only after that', () => {
    expect(test).toContain("if: github.event_name == 'push'");
    expect(test.indexOf('--require-approval never')).toBeLessThan(test.indexOf('--canary'));
    expect(test).toMatch(/steps: &deployment\n/);
    expect(production).toMatch(/^ {4}needs: test$/m);
    expect(production).toMatch(/^ {4}steps: \*deployment$/m);
    for (const job of [test, production]) expect(job).not.toContain('continue-on-error');
  });
});
