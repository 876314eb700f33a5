import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Stack } from 'aws-cdk-lib';
import { Key } from 'aws-cdk-lib/aws-kms';
import { Bucket } from 'aws-cdk-lib/aws-s3';
import { Topic } from 'aws-cdk-lib/aws-sns';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { listenOnLoopback } from '../../local/loopback.ts';
import { alarmsOf, examineAlarms } from '../../operations/alarms.ts';
import { examineErrors } from '../../operations/function-logs.ts';
import { examineNotifications } from '../../operations/notifications.ts';
import { status } from '../../operations/status.ts';
import { ACCOUNT, type Call, idleOf, isAllowed, lineOf, permissionsOf, REGION, refusedOf } from '../infra/policies.ts';
import { newRole, synthesisePipeline } from '../infra/synthesis.ts';
import { PATIENCE } from '../support/patience.ts';
import { deployedAs, Operated, ROUTES, runFlowdrop, signal, withEndpoints } from './support.ts';

vi.mock('../../operations/wait.ts', () => import('./quick-wait.ts'));

/** The commands of each grant, one after the other. Each makes calls that the others of its grant do not. */
const COMMANDS = {
  view: [
    ['status'],
    ['status', 'good.png'],
    ['status', 'nothing'],
    ['list', '--failed'],
    ['list', '--waiting'],
    ['list', '--running'],
    ['explain', 'good.png'],
    ['get', 'good.png'],
    ['compare', 'good.png'],
    ['costs'],
  ],
  operate: [
    ['put', 'new.png', '--wait', '--yes'],
    ['templates'],
    ['doctor', '--notify'],
    ['retry', 'empty.png', '--yes', '--wait'],
    ['collect', 'good.png', '--wait'],
    ['cancel', 'good.png', '--yes'],
    ['sweep', '--dry-run'],
    ['pause'],
    ['resume', '--yes'],
  ],
  forget: [
    ['forget', 'good.png', '--yes'],
    ['forget', 'empty.png', '--yes'],
    ['forget', 'chain.txt', '--yes'],
  ],
} as const;
type Grant = keyof typeof COMMANDS;

/** The names of the roles that get the grants. */
const ROLES: Readonly<Record<Grant, string>> = { view: 'TheViewer', operate: 'TheOperator', forget: 'TheForgetter' };

const arn = (service: string, name: string) => `arn:aws:${service}:${REGION}:${ACCOUNT}:${name}`;
const STACK_ID = arn('cloudformation', 'stack/test/0123');
const TOPIC_ARN = arn('sns', 'alarms');

const recorded: Record<Grant, Map<string, Call>> = { view: new Map(), operate: new Map(), forget: new Map() };
beforeAll(async () => {
  let grant: Grant | undefined;
  const record = (call: Call): void => void (grant && recorded[grant].set(JSON.stringify(call), call));
  const onOperatorCall = (action: string, resource: string, context: Readonly<Record<string, string>>): void => {
    if (grant === undefined) return;
    const known = { ...context, 'aws:ResourceAccount': ACCOUNT };
    record({ action, resource: deployed(resource), context: known });
  };
  const named = ROUTES.map((route) => ({ ...route, ...(route.name === 'pictures' && { alias: 'named/{key}{ext}' }) }));
  const routes = [...named, { name: 'later', input: 'file', template: 'bytes_echo', after: 'texts' }] as const;
  await using operated = await Operated.start({ onOperatorCall, routes, notify: NOTIFY, name: 'flowdrop' });
  await operated.put('chain.txt', 'succeeded');
  await vi.waitFor(async () => {
    const found = await status('chain.txt', operated.deployment, signal);
    expect(found).toMatchObject({ chain: { state: 'succeeded' } });
  }, PATIENCE);
  await operated.put('good.png', 'succeeded');
  await operated.put('empty.png', 'failed', '');
  writeFileSync(join(operated.directory, 'new.png'), 'a picture');
  await using stack = await deployedAs('flowdrop', operated.pipeline);
  await using closing = new AsyncDisposableStack();
  const watch = await listenOnLoopback(async (request, response) => {
    let sent = '';
    for await (const chunk of request) sent += chunk;
    if (request.headers['content-type'] === 'application/x-www-form-urlencoded') {
      record({ action: 'sns:GetTopicAttributes', resource: TOPIC_ARN });
      response.end(TOPIC_XML);
      return;
    }
    const { logGroupName } = JSON.parse(sent);
    record(
      logGroupName === undefined
        ? { action: 'cloudwatch:DescribeAlarms', resource: arn('cloudwatch', 'alarm:*') }
        : {
            action: 'logs:FilterLogEvents',
            resource: arn('logs', `log-group:${deployedLog(logGroupName)}:log-stream:`),
          },
    );
    const alarms = [{ AlarmName: 'flowdrop-flows-failed', StateValue: 'OK', AlarmActions: [TOPIC_ARN] }];
    response.end(JSON.stringify({ MetricAlarms: alarms, events: [] }));
  });
  closing.defer(() => watch.close());
  for (grant of ['view', 'operate', 'forget'] as const) {
    const deployment = await stack.connect();
    if (grant === 'view') {
      await examineNotifications(deployment, signal);
      const watched = withEndpoints(deployment, { monitoring: watch.url, sns: watch.url, logs: watch.url });
      await examineAlarms(await alarmsOf(watched, signal), watched, signal);
      await examineErrors(watched, signal);
    }
    deployment.close();
    recorded[grant].set('outputs', { action: 'cloudformation:DescribeStacks', resource: STACK_ID });
    for (const words of COMMANDS[grant]) {
      const ran = await runFlowdrop(words, { directory: operated.directory });
      expect(ran.code, `${words.join(' ')}\n${ran.output}${ran.errors}`).toBeLessThan(2);
    }
  }
}, 240_000);

/** The local names of the queues and of the function, as they are deployed. Buckets have the same names. */
function deployed(resource: string): string {
  if (resource.startsWith('arn:')) return resource;
  if (resource === 'collect-outputs') return arn('lambda', 'function:flowdrop-collect-outputs');
  if (resource === 'default') return arn('events', 'event-bus/default');
  if (resource.startsWith('rule/')) return arn('events', resource);
  return arn('sqs', resource === 'uploads-dead' ? DEAD_LETTERS : resource === 'notify-1-dead' ? UNTOLD : resource);
}

/** The local run uses other names for its pipeline and its functions. */
const deployedLog = (name: string): string =>
  name.endsWith('create-flow') ? '/aws/lambda/flowdrop-create-flow' : '/aws/lambda/flowdrop-collect-outputs';

const TOPIC_XML = `<GetTopicAttributesResponse><GetTopicAttributesResult><Attributes><entry><key>SubscriptionsConfirmed</key>
<value>1</value></entry><entry><key>Owner</key><value>1</value></entry></Attributes></GetTopicAttributesResult></GetTopicAttributesResponse>`;

const NOTIFY = [{ queueArn: arn('sqs', 'orders') }];
const withTopic = (stack: Stack) => ({ alarmTopic: Topic.fromTopicArn(stack, 'Topic', TOPIC_ARN), notify: NOTIFY });
const { template } = synthesisePipeline(withTopic, (pipeline) => {
  pipeline.grantView(newRole(pipeline, ROLES.view));
  pipeline.grantOperate(newRole(pipeline, ROLES.operate));
  pipeline.grantForget(newRole(pipeline, ROLES.forget));
});
const idOf = (type: string, part: string): string =>
  Object.keys(template.findResources(type)).find((id) => id.includes(part)) ?? '';
const DEAD_LETTERS = idOf('AWS::SQS::Queue', 'QueueDeadLetters');
const UNTOLD = idOf('AWS::SQS::Queue', 'Target1DeadLetters');

/** What no command uses, with the reason to allow it. */
const UNUSED: Readonly<Record<Grant, readonly string[]>> = {
  view: [],
  // Only an upload in parts that breaks off.
  operate: ['s3:AbortMultipartUpload inbox/*', 's3:ListMultipartUploadParts inbox/*'],
  forget: [],
};

/** What a command does without, with the reason to refuse it. */
const REFUSED: Readonly<Record<Grant, readonly string[]>> = {
  view: [],
  operate: [],
  // Whoever may invoke the function may also retry, which costs money. So the flow stays at the service, and is named.
  forget: ['lambda:InvokeFunction function:flowdrop-collect-outputs'],
};

describe.each(Object.keys(COMMANDS) as Grant[])('the grant %s', (grant) => {
  const permissions = permissionsOf(template, ROLES[grant]);
  // Each of the others includes the view.
  const calls = (): readonly Call[] => [
    ...recorded.view.values(),
    ...(grant === 'view' ? [] : recorded[grant].values()),
  ];

  it('allows all calls that its commands need', () => {
    expect(calls().length).toBeGreaterThan(20);
    expect(refusedOf(permissions, calls()).map(lineOf)).toEqual(REFUSED[grant]);
  });

  it('allows nothing that its commands do not need', () => {
    expect(idleOf(permissions, calls()).map(lineOf)).toEqual(UNUSED[grant]);
  });

  it('allows neither the token, nor to write to the ledger or to the results', () => {
    const context = { 'aws:ResourceAccount': ACCOUNT };
    const harm = [
      { action: 'secretsmanager:GetSecretValue', resource: arn('secretsmanager', 'secret:token-AbCdEf') },
      { action: 's3:PutObject', resource: 'arn:aws:s3:::ledger/uploads/1.json', context },
      { action: 's3:PutObject', resource: 'arn:aws:s3:::ledger/state/sweep.json', context },
      { action: 's3:PutObject', resource: 'arn:aws:s3:::ledger/running/1', context },
      { action: 's3:PutObject', resource: 'arn:aws:s3:::results/a/receipt.json', context },
      { action: 'sqs:SendMessage', resource: arn('sqs', 'uploads') },
    ];
    expect(harm.filter((call) => isAllowed(permissions, call))).toEqual([]);
  });
});

it('grantView allows reading the policy of a key of your own', () => {
  const withKey = synthesisePipeline(
    (stack) => ({ encryptionKey: new Key(stack, 'Key') }),
    (pipeline) => pipeline.grantView(newRole(pipeline, ROLES.view)),
  );
  const permissions = permissionsOf(withKey.template, ROLES.view).map(lineOf);
  expect(permissions.filter((line) => line.startsWith('kms:GetKeyPolicy'))).toEqual(['kms:GetKeyPolicy key/key']);
});

it('grantView allows seeing whether a rule brings the uploads of an inbox of your own', () => {
  const withInbox = synthesisePipeline(
    (stack) => ({ inboxBucket: Bucket.fromBucketName(stack, 'Theirs', 'theirs') }),
    (pipeline) => pipeline.grantView(newRole(pipeline, ROLES.view)),
  );
  const ofRules = permissionsOf(withInbox.template, ROLES.view)
    .filter(({ action }) => action.startsWith('events:'))
    .map(lineOf);
  expect(ofRules).toEqual([
    expect.stringMatching(/^events:DescribeRule rule\/\w*ObjectCreated\w*$/),
    // The names of rules are listed for all.
    'events:ListRuleNamesByTarget *',
  ]);
  expect(withInbox.findings).toEqual([]);
});

it('no grant allows decrypting with a key of your own, except through the services that hold the data', () => {
  const withKey = synthesisePipeline(
    (stack) => ({ encryptionKey: new Key(stack, 'Key'), notify: NOTIFY }),
    (pipeline) => {
      pipeline.grantOperate(newRole(pipeline, ROLES.operate));
      pipeline.grantForget(newRole(pipeline, ROLES.forget));
    },
  );
  const decrypt = (via: Record<string, string>) => ({
    action: 'kms:Decrypt',
    resource: arn('kms', 'key/key'),
    context: via,
  });
  const through = (service: string) => decrypt({ 'kms:ViaService': `${service}.${REGION}.amazonaws.com` });
  const isAllowedTo = (grant: Grant) =>
    [through('s3'), through('sqs'), through('secretsmanager'), decrypt({})].map((call) =>
      isAllowed(permissionsOf(withKey.template, ROLES[grant]), call),
    );
  // What could not be told is in queues.
  expect(isAllowedTo('operate')).toEqual([true, true, false, false]);
  expect(isAllowedTo('forget')).toEqual([true, false, false, false]);
});

it('the grant to forget allows to delete versions of uploads, results and their records, and nothing else', () => {
  const deletions = permissionsOf(template, ROLES.forget).filter(({ action }) => action.startsWith('s3:Delete'));
  expect(deletions.map(lineOf)).toEqual([
    's3:DeleteObjectVersion inbox/*',
    's3:DeleteObjectVersion ledger/chains/*',
    's3:DeleteObjectVersion ledger/failed/*',
    's3:DeleteObjectVersion ledger/state/aliases/*',
    's3:DeleteObjectVersion ledger/uploads/*',
    's3:DeleteObjectVersion results/*',
  ]);
});
