import {
  Aspects,
  CfnParameter,
  type Environment,
  PermissionsBoundary,
  RemovalPolicies,
  Stack,
  Stage,
  Tags,
} from 'aws-cdk-lib';
import type { Template } from 'aws-cdk-lib/assertions';
import { Vpc } from 'aws-cdk-lib/aws-ec2';
import { EventBus } from 'aws-cdk-lib/aws-events';
import { ManagedPolicy, PolicyStatement, Role, ServicePrincipal } from 'aws-cdk-lib/aws-iam';
import { Key } from 'aws-cdk-lib/aws-kms';
import { CfnLogGroup, RetentionDays } from 'aws-cdk-lib/aws-logs';
import { Bucket, CfnBucket } from 'aws-cdk-lib/aws-s3';
import {
  CfnTopicPolicy,
  type ITopic,
  Subscription,
  SubscriptionProtocol,
  Topic,
  TopicPolicy,
} from 'aws-cdk-lib/aws-sns';
import { EmailSubscription } from 'aws-cdk-lib/aws-sns-subscriptions';
import type { Construct } from 'constructs';
import { describe, expect, it } from 'vitest';
import { parseEnv } from '../../functions/settings/environment.ts';
import { FlowPipeline } from '../../infra/flow-pipeline.ts';
import type { FlowPipelineProps } from '../../infra/flow-pipeline-props.ts';
import { differences, readable } from './readable.ts';
import { newRole, PROPS, synthesise, synthesisePipeline } from './synthesis.ts';
import { only, resources } from './template.ts';

/** What an app has to do with a pipeline in one of its stacks, beyond the configurations of templates.test.ts. */

const EVENTS_OFF = 'To turn them on: aws s3api put-bucket-notification-configuration';
const UNSUBSCRIBED = 'the topic test/Topic has no subscription in this app';
const KEY_OF_LOGS = 'S3 does not support a default encryption with a key of KMS for access logs';

it.each<[string, (stack: Stack, topic: Topic) => Partial<FlowPipelineProps>, readonly string[]]>([
  [
    'an inbox without events, a topic without subscription, and access logs with a key',
    (stack) => ({
      inboxBucket: new Bucket(stack, 'Existing'),
      accessLogsBucket: new Bucket(stack, 'Logs', { encryptionKey: new Key(stack, 'Key') }),
    }),
    [EVENTS_OFF, UNSUBSCRIBED, KEY_OF_LOGS],
  ],
  [
    'an inbox with its events on, a topic with a subscription, and access logs without a key',
    (stack, topic) => {
      topic.addSubscription(new EmailSubscription('ops@example.com'));
      return {
        inboxBucket: new Bucket(stack, 'Existing', { eventBridgeEnabled: true }),
        accessLogsBucket: new Bucket(stack, 'Logs'),
      };
    },
    [],
  ],
  [
    'a topic that is subscribed to elsewhere in the app',
    (stack, topic) => {
      const protocol = SubscriptionProtocol.HTTPS;
      new Subscription(stack, 'Elsewhere', { protocol, endpoint: 'https://alarms.example.com', topic });
      return {};
    },
    [],
  ],
  [
    'a topic without subscription, beside one of another stack that has the same logical id',
    (stack) => {
      const other = new Topic(new Stack(stack.node.root, 'other'), 'Topic');
      other.addSubscription(new EmailSubscription('ops@example.com'));
      return {};
    },
    [UNSUBSCRIBED],
  ],
])('warns at synth of what is wrong with %s', (_, propsOf, expected) => {
  const { messages } = synthesisePipeline((stack) => {
    const alarmTopic = new Topic(stack, 'Topic');
    return { alarmTopic, ...propsOf(stack, alarmTopic) };
  });
  const warned = [EVENTS_OFF, UNSUBSCRIBED, KEY_OF_LOGS].filter((text) => messages.join('\n').includes(text));
  expect(warned).toEqual(expected);
});

it('lets alarms publish to a topic with a policy, however that is made, and leaves the default of SNS as it is', () => {
  const { template, stack } = synthesise((app) => {
    new Topic(new Stack(app, 'other'), 'Late', { enforceSSL: true });
    const stack = new Stack(app, 'test');
    const topic = (id: string) => new Topic(stack, id);
    const [late, beside, below, bare] = [topic('Late'), topic('Beside'), topic('Below'), topic('Bare')] as const;
    const principals = [new ServicePrincipal('budgets.amazonaws.com')];
    const budgets = new PolicyStatement({ principals, actions: ['sns:Publish'], resources: [late.topicArn] });
    Aspects.of(stack).add({ visit: (node) => void (node === stack && late.addToResourcePolicy(budgets)) });
    new TopicPolicy(stack, 'Policy', { topics: [beside], enforceSSL: true });
    new TopicPolicy(below, 'Mine', { topics: [below], enforceSSL: true });
    // Two pipelines in one stack, under two names.
    new FlowPipeline(stack, 'First', { ...PROPS, name: 'first', alarmTopic: late, ticketTopic: beside });
    new FlowPipeline(stack, 'Second', { ...PROPS, name: 'second', alarmTopic: below, ticketTopic: bare });
    return stack;
  });
  const allowsAlarms = (document: unknown) => JSON.stringify(document).includes('cloudwatch.amazonaws.com');
  const policies = resources(template, 'AWS::SNS::TopicPolicy');
  expect(policies.map(({ PolicyDocument }) => allowsAlarms(PolicyDocument))).toEqual([true, true, true]);
  // Of another stack, with the same logical id.
  const { document } = stack.node.root.node
    .findChild('other')
    .node.findChild('Late')
    .node.findChild('Policy') as TopicPolicy;
  expect(allowsAlarms(stack.resolve(document))).toBe(false);
});

it.each([1, 2])('lets alarms publish to a topic with a policy inside of %d stages too', (depth) => {
  const { template } = synthesise((app) => {
    let scope: Construct = app;
    for (let level = 0; level < depth; level += 1) scope = new Stage(scope, `Stage${level}`);
    const stack = new Stack(scope, 'test');
    const alarmTopic = new Topic(stack, 'Topic', { enforceSSL: true });
    new FlowPipeline(stack, 'Pipeline', { ...PROPS, alarmTopic });
    return stack;
  });
  const [policy] = resources(template, 'AWS::SNS::TopicPolicy');
  expect(JSON.stringify(policy?.PolicyDocument)).toContain('cloudwatch.amazonaws.com');
});

describe('a policy of the topic for alarms that this app cannot change', () => {
  const ARN = 'arn:aws:sns:eu-central-1:123456789012:alarms';
  const STATEMENT = `"Action":"sns:Publish"`;
  const warningsOf = (topicOf: (stack: Stack) => ITopic) =>
    synthesise((app) => {
      const stack = new Stack(app, 'test');
      new FlowPipeline(stack, 'Pipeline', { ...PROPS, alarmTopic: topicOf(stack) });
      return stack;
    }).messages.filter((message) => message.includes(STATEMENT));

  it.each<[string, (stack: Stack) => ITopic, string | undefined]>([
    ['of an imported topic', (stack) => Topic.fromTopicArn(stack, 'Topic', ARN), 'The topic alarms is not of this app'],
    [
      'that is made without a construct for policies',
      (stack) => {
        const topic = new Topic(stack, 'Topic');
        new CfnTopicPolicy(stack, 'Own', { topics: [topic.topicArn], policyDocument: { Statement: [] } });
        return topic;
      },
      'This app cannot change the policy test/Own',
    ],
    ['unless there is none', (stack) => new Topic(stack, 'Topic', { enforceSSL: true }), undefined],
    [
      'unless the app makes it',
      (stack) => {
        const topic = Topic.fromTopicArn(stack, 'Topic', ARN);
        new TopicPolicy(stack, 'Policy', { topics: [topic], enforceSSL: true });
        return topic;
      },
      undefined,
    ],
  ])('is warned about at synth, %s', (_, topicOf, expected) => {
    const warnings = warningsOf(topicOf);
    expect(warnings).toHaveLength(expected === undefined ? 0 : 1);
    if (expected !== undefined) expect(warnings[0]).toContain(expected);
  });
});

describe('the key of a topic for alarms', () => {
  const topicArn = 'arn:aws:sns:eu-central-1:123456789012:alarms';
  const keyArn = 'arn:aws:kms:eu-central-1:123456789012:key/theirs';
  const ABOUT_KEYS = '"Action":["kms:Decrypt","kms:GenerateDataKey*"]';

  it.each<[string, (stack: Stack) => ITopic, readonly string[]]>([
    [
      'of the topic, if it is unknown whether there is one',
      (stack) => Topic.fromTopicArn(stack, 'Topic', topicArn),
      ['If a key of KMS encrypts the topic alarms'],
    ],
    [
      'that the topic is known to have',
      (stack) => Topic.fromTopicAttributes(stack, 'Topic', { topicArn, keyArn }),
      ['This app cannot change the policy of the encryption key'],
    ],
    ['unless the topic is of this app', (stack) => new Topic(stack, 'Topic'), []],
    ['unless both are', (stack) => new Topic(stack, 'Topic', { masterKey: new Key(stack, 'Key') }), []],
  ])('is warned about at synth, %s', (_, topicOf, expected) => {
    const { messages } = synthesise((app) => {
      const stack = new Stack(app, 'test');
      new FlowPipeline(stack, 'Pipeline', { ...PROPS, alarmTopic: topicOf(stack) });
      return stack;
    });
    const warnings = messages.filter((message) => message.includes(ABOUT_KEYS));
    expect(warnings).toEqual(expected.map((each) => expect.stringContaining(each)));
  });
});

describe('the bytes of the environment', () => {
  const noteOf = (routes: (stack: Stack) => FlowPipelineProps['routes']) =>
    synthesise((app) => {
      const stack = new Stack(app, 'test');
      new FlowPipeline(stack, 'Pipeline', { ...PROPS, routes: routes(stack) });
      return stack;
    }).messages.join('\n');
  const bytesIn = (note: string) => Number(/takes at most (\d+) of 4096 bytes/.exec(note)?.[1]);
  const many = (count: number, template: string) =>
    Array.from({ length: count }, (_, at) => ({ name: `route-${at}`, prefixes: [`${at}/`], template }));

  it('count all that is known of routes, and an allowance for each value that is not', () => {
    const known = bytesIn(noteOf(() => many(2, 'x'.repeat(256))));
    const later = bytesIn(noteOf((stack) => many(2, `${new CfnParameter(stack, 'Template').valueAsString}x`)));
    // One value, named in both routes, is in a variable of its own.
    expect(later - known).toBe('TEXT_1'.length + 256 + 1 + 2 * ('{TEXT_1}'.length - 256));
  });

  it('may be too many only at deployment, which a warning says', () => {
    const templates = (stack: Stack, count: number) =>
      many(count, 'x').map((each, at) => ({
        ...each,
        template: new CfnParameter(stack, `Template${at}`).valueAsString,
      }));
    const warning = /If the values that are known only at deployment take more than \d+ of them together/;
    expect(noteOf((stack) => templates(stack, 2))).not.toMatch(warning);
    expect(noteOf((stack) => templates(stack, 20))).toMatch(warning);
    expect(() =>
      noteOf((stack) =>
        templates(stack, 200).map((each) => ({ ...each, template: `${'x'.repeat(200)}${each.template}` })),
      ),
    ).toThrow(/the environment takes \d+ bytes even without routes, and Lambda allows 4096/);
  });
});

describe('values that are known only at deployment', () => {
  /** What the parameters of the template are at deployment. */
  const GIVEN: Readonly<Record<string, string>> = {
    Name: 'late-models',
    Url: 'https://late.example.com:8443/v1/',
    Route: 'late',
    Template: 'a "quoted"\\name',
    Prompt: 'two\nlines, and "quotes"',
    Seed: '42',
  };
  const parameter = (stack: Stack, id: string) => new CfnParameter(stack, id).valueAsString;
  const late = (stack: Stack, count: number): Partial<FlowPipelineProps> => {
    const [route, template] = [parameter(stack, 'Route'), parameter(stack, 'Template')];
    const seed = new CfnParameter(stack, 'Seed', { type: 'Number' }).valueAsNumber;
    const parameters = { prompt: `Say: ${parameter(stack, 'Prompt')}`, seeds: [seed, 7], plain: '{TEXT_1}' };
    return {
      name: parameter(stack, 'Name'),
      baseUrl: parameter(stack, 'Url'),
      routes: [
        ...Array.from({ length: count }, (_, at) => ({ name: `${at}`, prefixes: [`${at}/`], template })),
        { name: route, template, parameters },
        { name: 'then', after: route, template: 'small' },
      ],
    };
  };
  /** A value of the template, as CloudFormation resolves it. */
  const resolved = (value: unknown): string => {
    const { Ref, 'Fn::Join': join } = value as { readonly Ref?: string; readonly 'Fn::Join'?: [string, unknown[]] };
    if (join !== undefined) return join[1].map(resolved).join(join[0]);
    return Ref === undefined ? `${value}` : (GIVEN[Ref] ?? `https://${Ref}.example.com`);
  };
  const environmentOf = (template: Template) => {
    const variables = resources(template, 'AWS::Lambda::Function')[0]?.Environment.Variables;
    return Object.fromEntries(
      Object.entries<unknown>(variables).map(([name, value]) => [name, resolved(value)]),
    ) as Record<string, string>;
  };

  it('reach the functions as they are, even if they would break JSON', () => {
    const { template } = synthesisePipeline((stack) => late(stack, 0));
    const settings = parseEnv(environmentOf(template));
    expect(settings.pipeline).toBe('late-models');
    expect(settings.baseUrl.href).toBe('https://late.example.com:8443/v1');
    expect(settings.routes).toEqual([
      {
        name: 'late',
        input: 'file',
        template: GIVEN.Template,
        parameters: { prompt: `Say: ${GIVEN.Prompt}`, seeds: [42, 7], plain: '{TEXT_1}' },
      },
      { name: 'then', after: 'late', input: 'file', template: 'small' },
    ]);
    expect(template.findResources('AWS::CloudWatch::Alarm')).not.toEqual({});
    for (const { AlarmName } of resources(template, 'AWS::CloudWatch::Alarm')) {
      expect(resolved(AlarmName)).toMatch(/^late-models-/);
    }
  });

  it('also reach them if the routes are too long for the environment', () => {
    const { template, messages } = synthesisePipeline((stack) => late(stack, 100));
    expect(messages.join('\n')).toContain('so they are in a file beside the bundle');
    const { ROUTES, ...variables } = environmentOf(template);
    expect(ROUTES).toBe('file:routes.json');
    expect(Object.values(variables)).toContain(GIVEN.Template);
  });
});

it('takes a bucket of another stack as its inbox, and acknowledges the wildcard on it', () => {
  const { findings, acknowledgedByMetadata } = synthesise((app) => {
    const theirs = new Bucket(new Stack(app, 'theirs'), 'Inbox', { enforceSSL: true, serverAccessLogsPrefix: 'logs/' });
    const stack = new Stack(app, 'test');
    new FlowPipeline(stack, 'Pipeline', { ...PROPS, inboxBucket: theirs });
    return stack;
  });
  expect(findings).toEqual([]);
  expect(acknowledgedByMetadata.join('\n')).toMatch(
    /\/DefaultPolicy\/Resource AwsSolutions-IAM5\[Resource::<Inbox\w+\.Arn>\/\*\]/,
  );
});

it('is inside of a stage what it is outside of one', () => {
  const inside = synthesise((app) => {
    const stack = new Stack(new Stage(app, 'Stage'), 'test');
    new FlowPipeline(stack, 'Pipeline', PROPS);
    return stack;
  });
  const outside = synthesisePipeline();
  expect(inside.findings).toEqual([]);
  const acknowledged = inside.acknowledged.map((each) => each.replace('Stage/', ''));
  expect(differences(readable(outside), readable({ ...inside, acknowledged }))).toBe('');
  expect(inside.acknowledgedByMetadata.length).toBe(outside.acknowledgedByMetadata.length);
});

it('gives every role the permissions boundary of its stage, or one of its own', () => {
  const boundariesWith = (propsOf: (stack: Stack) => Partial<FlowPipelineProps>) => {
    const { template } = synthesise((app) => {
      const permissionsBoundary = PermissionsBoundary.fromName('of-stage');
      const stack = new Stack(new Stage(app, 'Stage', { permissionsBoundary }), 'test');
      new FlowPipeline(stack, 'Pipeline', { ...PROPS, settings: { canaryKey: 'robot.png' }, ...propsOf(stack) });
      return stack;
    });
    const all = resources(template, 'AWS::IAM::Role').map((role) => JSON.stringify(role.PermissionsBoundary));
    expect(all).toHaveLength(4);
    return new Set(all);
  };
  const [ofStage, ...others] = boundariesWith(() => ({}));
  expect([ofStage, ...others]).toEqual([expect.stringContaining(':policy/of-stage"')]);
  const own = (stack: Stack) => ManagedPolicy.fromManagedPolicyName(stack, 'Boundary', 'own');
  const [ofOwn, ...more] = boundariesWith((stack) => ({ permissionsBoundary: own(stack) }));
  expect([ofOwn, ...more]).toEqual([expect.stringContaining(':policy/own"')]);
});

it('has the tags of the app beside its own, on everything that can have tags', () => {
  const { template } = synthesise((app) => {
    Tags.of(app).add('team', 'models');
    const stack = new Stack(app, 'test');
    new FlowPipeline(stack, 'Pipeline', PROPS);
    return stack;
  });
  const all = Object.values<{ readonly Properties?: { readonly Tags?: object } }>(template.toJSON().Resources);
  const tagged = all.map(({ Properties: { Tags: tags = [] } = {} }) => JSON.stringify(tags));
  const own = tagged.filter((tags) => tags.includes('flowdrop:pipeline'));
  expect(own.length).toBeGreaterThan(30);
  expect(own.filter((tags) => !tags.includes('team'))).toEqual([]);
});

it('lets aspects of the app change its resources, and keeps what it acknowledges', () => {
  const { template, findings } = synthesise((app) => {
    const stack = new Stack(app, 'test');
    new FlowPipeline(stack, 'Pipeline', PROPS);
    RemovalPolicies.of(app).destroy();
    Aspects.of(app).add({
      visit(node) {
        if (node instanceof CfnLogGroup) node.retentionInDays = RetentionDays.ONE_YEAR;
        if (node instanceof CfnBucket) node.overrideLogicalId(`${node.node.scope?.node.scope?.node.id}Bucket`);
      },
    });
    return stack;
  });
  expect(findings).toEqual([]);
  expect(resources(template, 'AWS::Logs::LogGroup').map((each) => each.RetentionInDays)).toEqual([365, 365]);
  const buckets = resources(template, 'AWS::S3::Bucket').map(({ id, DeletionPolicy }) => [id, DeletionPolicy]);
  expect(buckets).toEqual(['Inbox', 'Results', 'Ledger'].map((id) => [`${id}Bucket`, 'Delete']));
});

it('works beside another pipeline, on the results of which it works, with resources of another stack', () => {
  const { template, findings, messages } = synthesise((app) => {
    const shared = new Stack(app, 'shared');
    const encryptionKey = new Key(shared, 'Key', { enableKeyRotation: true });
    const alarmTopic = new Topic(shared, 'Alarms', { enforceSSL: true, masterKey: encryptionKey });
    alarmTopic.addSubscription(new EmailSubscription('ops@example.com'));
    const eventBus = new EventBus(shared, 'Bus');
    const stack = new Stack(app, 'test');
    const common = { ...PROPS, encryptionKey, alarmTopic, eventBus, runbookUrl: 'https://wiki.example.com' };
    const first = new FlowPipeline(stack, 'First', { ...common, name: 'first', s3Events: true });
    const last = new Stack(app, 'last');
    const second = new FlowPipeline(last, 'Second', { ...common, name: 'second', inboxBucket: first.resultsBucket });
    second.grantOperate(newRole(last, 'Operator'));
    return last;
  });
  expect(findings).toEqual([]);
  expect(messages.filter((message) => !message.startsWith('The environment takes'))).toEqual([]);
  const [{ EventPattern }] = resources(template, 'AWS::Events::Rule');
  expect(JSON.stringify(EventPattern)).toContain('FirstResultsBucket');
});

it('makes a security group if it is given an empty list of them, and only that', () => {
  const { template } = synthesisePipeline((stack) => ({ vpc: new Vpc(stack, 'Vpc'), securityGroups: [] }));
  const group = only(resources(template, 'AWS::EC2::SecurityGroup'));
  expect(group.SecurityGroupEgress).toEqual([expect.objectContaining({ FromPort: 443, ToPort: 443 })]);
});

it('lets Lambda remove network interfaces while a deployment leaves the VPC, and until the security group is gone', () => {
  const [inside, outside] = [true, false].map((isInside) => {
    const { template } = synthesisePipeline((stack) => (isInside ? { vpc: new Vpc(stack, 'Vpc') } : {}));
    return { template, policies: resources(template, 'AWS::IAM::Policy') };
  });
  const actionsOf = ({ PolicyDocument }: { PolicyDocument: { Statement: { Action: string | string[] }[] } }) =>
    PolicyDocument.Statement.flatMap(({ Action }) => Action);
  const ofNetwork = inside?.policies.filter((policy) => actionsOf(policy).includes('ec2:DeleteNetworkInterface')) ?? [];
  const ids = ofNetwork.map(({ id }) => id);
  // A policy that is only changed loses the permission before the function leaves the VPC. One that goes is deleted
  // after that.
  expect(ids).toHaveLength(2);
  expect(outside?.policies.map(({ id }) => id)).not.toEqual(expect.arrayContaining(ids));
  const groups = inside ? resources(inside.template, 'AWS::EC2::SecurityGroup') : [];
  expect(only(groups).DependsOn).toEqual(expect.arrayContaining(ids));
});

it('makes no role and no policy of IAM in an app whose roles others make', () => {
  const queueArn = 'arn:aws:sqs:eu-central-1:222222222222:orders';
  const { template } = synthesise((app) => {
    const stack = new Stack(app, 'test', { env: { account: '111111111111', region: 'eu-central-1' } });
    const paths = ['CreateFlow', 'CollectOutputs', 'CollectOutputs/Schedules', 'Notifications/Target1'];
    const named = paths.map((path, index) => [`test/Pipeline/${path}/Role`, `made-${index}`]);
    Role.customizeRoles(stack, { usePrecreatedRoles: Object.fromEntries(named) });
    new FlowPipeline(stack, 'Pipeline', { ...PROPS, vpc: new Vpc(stack, 'Vpc'), notify: [{ queueArn }] });
    return stack;
  });
  const made = ['Role', 'Policy'].flatMap((type) => resources(template, `AWS::IAM::${type}`));
  expect(made.filter(({ id }) => id.startsWith('Pipeline'))).toEqual([]);
});

describe('a queue that gets events', () => {
  const queueOf = (owner: string) => `arn:aws:sqs:eu-central-1:${owner}:orders`;
  /** The target of the rule, the roles that send, and the warning. */
  function toldBy(env: Environment, queueArn: string) {
    const { template, messages, findings } = synthesise((app) => {
      const stack = new Stack(app, 'test', { env });
      new FlowPipeline(stack, 'Pipeline', { ...PROPS, notify: [{ queueArn }] });
      return stack;
    });
    expect(findings).toEqual([]);
    const rules = resources(template, 'AWS::Events::Rule');
    const policies = resources(template, 'AWS::IAM::Policy').filter(({ id }) => id.includes('Notifications'));
    const warning = only(messages.filter((message) => message.includes('the policy of the queue')));
    return { target: rules[0]?.Targets[0], policies, warning };
  }

  it('gets them by a role if it is of another account, which the owner of the queue must let in', () => {
    const env = { account: '111111111111', region: 'eu-central-1' };
    const { target, policies, warning } = toldBy(env, queueOf('222222222222'));
    const { Roles, PolicyDocument } = only(policies);
    expect(target.RoleArn).toEqual({ 'Fn::GetAtt': [Roles[0].Ref, 'Arn'] });
    expect(PolicyDocument.Statement).toEqual([
      { Action: 'sqs:SendMessage', Effect: 'Allow', Resource: queueOf('222222222222') },
      {
        Action: ['kms:Decrypt', 'kms:GenerateDataKey'],
        Condition: {
          StringEquals: {
            'kms:ViaService': ['sqs.eu-central-1.amazonaws.com', 'sqs.eu-central-1.amazonaws.com.cn'],
          },
        },
        Effect: 'Allow',
        Resource: 'arn:aws:kms:eu-central-1:222222222222:key/*',
      },
    ]);
    expect(warning).toContain('"Principal":{"AWS":"arn:aws:iam::111111111111:root"}');
    expect(warning).toContain('must let the account 111111111111 use it, too');
  });

  it.each<[string, Environment]>([
    ['is of the same account', { account: '111111111111', region: 'eu-central-1' }],
    ['is of an account that may be the same', {}],
  ])('gets them from EventBridge itself if it %s', (_, env) => {
    const { target, policies, warning } = toldBy(env, queueOf('111111111111'));
    expect(target.RoleArn).toBeUndefined();
    expect(policies).toEqual([]);
    expect(warning).toContain('"Principal":{"Service":"events.amazonaws.com"}');
    // Only with a known account can a queue be known to be of another one.
    expect(warning.includes('deployment.account')).toBe(env.account === undefined);
  });
});
