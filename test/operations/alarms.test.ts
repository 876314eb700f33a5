import { describe, expect, it } from 'vitest';
import { alarmsOf, examineAlarms, examineRaised } from '../../operations/alarms.ts';
import { examineQueuePolicy } from '../../operations/queue-policy.ts';
import { deploymentAt } from './aws-answers.ts';

const signal = new AbortController().signal;
const TOPIC = 'arn:aws:sns:eu-central-1:123456789012:alarms';

const alarm = (name: string, more: object = {}) => ({
  ...{ AlarmName: `flowdrop-${name}`, StateValue: 'OK', ActionsEnabled: true, AlarmActions: [TOPIC] },
  ...more,
});

const topic = (confirmed: number, pending: number): string =>
  `<GetTopicAttributesResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><GetTopicAttributesResult><Attributes>
  <entry><key>Owner</key><value>123456789012</value></entry>
  <entry><key>SubscriptionsConfirmed</key><value>${confirmed}</value></entry>
  <entry><key>SubscriptionsPending</key><value>${pending}</value></entry>
  </Attributes></GetTopicAttributesResult></GetTopicAttributesResponse>`;

/** @see https://docs.aws.amazon.com/sns/latest/api/API_GetTopicAttributes.html ("Errors") */
const noTopic = {
  status: 404,
  body: '<ErrorResponse><Error><Type>Sender</Type><Code>NotFound</Code><Message>Topic does not exist</Message></Error></ErrorResponse>',
};

async function examined(alarms: readonly object[], subscriptions: string | typeof noTopic = topic(1, 0)) {
  const { deployment } = await deploymentAt((body) =>
    body.startsWith('{') ? JSON.stringify({ MetricAlarms: alarms }) : subscriptions,
  );
  const found = await alarmsOf(deployment, signal);
  return { heard: await examineAlarms(found, deployment, signal), raised: examineRaised(found) };
}

describe('the check of the alarms', () => {
  it('is good if there are some, and their topic has a subscription', async () => {
    expect(await examined([alarm('dead-letters')])).toEqual({ heard: 'good', raised: 'good' });
  });

  it('is good without any if the deployment is to have none', async () => {
    const { deployment } = await deploymentAt(() => '');
    const unmonitored = { ...deployment, settings: { ...deployment.settings, monitoring: 'none' as const } };
    expect(await examineAlarms([], unmonitored, signal)).toBe('good');
  });

  it('reads all pages', async () => {
    const { deployment, asked } = await deploymentAt((body) => {
      const page = JSON.parse(body);
      return JSON.stringify({
        MetricAlarms: [alarm('flows-failed')],
        NextToken: page.NextToken === undefined ? 'more' : null,
      });
    });
    expect(await alarmsOf(deployment, signal)).toHaveLength(2);
    expect(asked).toEqual([
      'GraniteServiceVersion20100801.DescribeAlarms {"AlarmNamePrefix":"flowdrop-","AlarmTypes":["MetricAlarm"]}',
      'GraniteServiceVersion20100801.DescribeAlarms {"AlarmNamePrefix":"flowdrop-","AlarmTypes":["MetricAlarm"],"NextToken":"more"}',
    ]);
  });

  it.each([
    ['there are none', [], topic(1, 0), /^There is no alarm of the pipeline flowdrop,/],
    ['none has an action', [alarm('flows-failed', { AlarmActions: [] })], topic(1, 0), /^The alarms notify no one\.$/],
    [
      'the actions of one are off',
      [alarm('flows-failed'), alarm('tick-missing', { ActionsEnabled: false })],
      topic(1, 0),
      /^Some alarms notify no one: flowdrop-tick-missing\.$/,
    ],
    [
      'there is no subscription',
      [alarm('flows-failed')],
      topic(0, 0),
      /^The alarms reach no one: the topic arn:aws:sns:\S+ has no/,
    ],
    [
      'somebody has deleted their topic',
      [alarm('flows-failed')],
      noTopic,
      /^The alarms reach no one: the topic arn:aws:sns:\S+ does not exist/,
    ],
  ])('warns if %s', async (_, alarms, subscriptions, what) => {
    const { heard } = await examined(alarms, subscriptions);
    expect(heard).toMatchObject({ severity: 'warning', what: expect.stringMatching(what) });
  });

  it('says how to restore a topic that the stack has made: an ordinary deployment does not', async () => {
    const { heard } = await examined([alarm('flows-failed')], noTopic);
    expect(heard).toMatchObject({ todo: expect.stringContaining('--revert-drift') });
  });

  it('says so if a subscription is not confirmed', async () => {
    const { heard } = await examined([alarm('flows-failed')], topic(0, 1));
    expect(heard).toMatchObject({ todo: 'Follow the link in the mail that asks to confirm the subscription.' });
  });

  it('leaves out those of another pipeline whose name begins with the same words', async () => {
    const ofStage = { StateValue: 'ALARM', AlarmActions: [] };
    const alarms = [alarm('collector-missing-12'), alarm('test-flows-failed', ofStage), alarm('test', ofStage)];
    expect(await examined(alarms)).toEqual({ heard: 'good', raised: 'good' });
    expect((await examined(alarms.slice(1))).heard).toMatchObject({ what: expect.stringContaining('no alarm of the') });
  });

  it('names those that are on, such as those of errors of a function', async () => {
    const { raised } = await examined([alarm('create-flow-errors', { StateValue: 'ALARM' }), alarm('dead-letters')]);
    expect(raised).toMatchObject({ severity: 'warning', what: 'An alarm is on: flowdrop-create-flow-errors.' });
  });
});

const KEY = 'arn:aws:kms:eu-central-1:123456789012:key/0123';

describe('the check of the policy of the queue', () => {
  const policy = (service: unknown, more: object = {}): string =>
    JSON.stringify({
      Statement: [
        { Effect: 'Deny', Principal: '*', Action: 'sqs:*', Condition: { Bool: { 'aws:SecureTransport': 'false' } } },
        { Effect: 'Allow', Principal: { Service: service }, Action: 'sqs:SendMessage', Resource: 'any', ...more },
      ],
    });
  const outcomeOf = async (Attributes: object) => {
    const { deployment } = await deploymentAt(() => JSON.stringify({ Attributes }));
    return examineQueuePolicy('s3.amazonaws.com', deployment, signal);
  };

  it.each([['s3.amazonaws.com'], [['events.amazonaws.com', 's3.amazonaws.com']]])(
    'is good if it lets %s send',
    async (service) => {
      expect(await outcomeOf({ Policy: policy(service) })).toBe('good');
    },
  );

  it.each([
    ['it has none', {}],
    ['it lets another service send', { Policy: policy('events.amazonaws.com') }],
    ['it allows something else', { Policy: policy('s3.amazonaws.com', { Action: 'sqs:ReceiveMessage' }) }],
    ['it denies it', { Policy: policy('s3.amazonaws.com', { Effect: 'Deny' }) }],
  ])('is a fault if %s', async (_, attributes) => {
    expect(await outcomeOf(attributes)).toMatchObject({
      severity: 'fault',
      what: expect.stringMatching(/^The policy of the queue \S+ does not let s3\.amazonaws\.com send/),
    });
  });

  it('is a fault if the key is one of AWS, which no other service may use', async () => {
    expect(await outcomeOf({ Policy: policy('s3.amazonaws.com'), KmsMasterKeyId: 'alias/aws/sqs' })).toMatchObject({
      severity: 'fault',
      what: 'The queue is encrypted with the key alias/aws/sqs of AWS, which s3.amazonaws.com may not use.',
    });
  });

  const withKey = async (statements: object, KmsMasterKeyId = KEY) => {
    const { deployment, asked } = await deploymentAt((body) =>
      JSON.stringify(
        body.includes('PolicyName')
          ? { Policy: JSON.stringify({ Statement: statements }), PolicyName: 'default' }
          : { Attributes: { Policy: policy('s3.amazonaws.com'), KmsMasterKeyId } },
      ),
    );
    return { outcome: await examineQueuePolicy('s3.amazonaws.com', deployment, signal), asked };
  };
  const account = { Effect: 'Allow', Principal: { AWS: 'arn:aws:iam::123456789012:root' }, Action: 'kms:*' };
  const service = (...Action: string[]) => ({ Effect: 'Allow', Principal: { Service: 's3.amazonaws.com' }, Action });

  it.each([
    [[account, service('kms:Decrypt', 'kms:GenerateDataKey*')]],
    [[service('kms:Decrypt'), service('kms:GenerateDataKey')]],
    [[service('kms:*')]],
    [[{ Effect: 'Allow', Principal: { AWS: '*' }, Action: '*' }]],
    [service('kms:*')],
  ])('is good if the policy of its key lets the sender use the key: %j', async (statements) => {
    const { outcome, asked } = await withKey(statements);
    expect(outcome).toBe('good');
    expect(asked.at(-1)).toBe(`TrentService.GetKeyPolicy {"KeyId":"${KEY}","PolicyName":"default"}`);
  });

  it.each([
    ['kms:Decrypt and kms:GenerateDataKey', [account]],
    ['kms:GenerateDataKey', [account, service('kms:Decrypt')]],
    ['kms:Decrypt', [service('kms:GenerateDataKey*')]],
  ])('is a fault if the policy of its key does not allow %s', async (missing, statements) => {
    expect((await withKey(statements)).outcome).toMatchObject({
      severity: 'fault',
      what: `The policy of the queue's key ${KEY} does not allow s3.amazonaws.com to call ${missing}, so no upload is announced.`,
      todo: expect.stringMatching(/^Add the statement from the warning of cdk synth/),
    });
  });

  it('is not made for a key that the queue names by an alias of your own', async () => {
    expect((await withKey([account], 'alias/mine')).outcome).toEqual({
      notChecked: 'the queue names its key by the alias alias/mine',
    });
  });
});
