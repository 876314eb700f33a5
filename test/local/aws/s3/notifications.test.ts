import {
  GetBucketNotificationConfigurationCommand,
  type NotificationConfiguration,
  PutBucketNotificationConfigurationCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import type { S3EventRecord } from '../../../../local/aws/s3/events.ts';
import { put, refusal } from '../../../support/s3-calls.ts';
import { BUCKET, raw, startS3 } from './support.ts';

// In the contract tests, these would change the configuration of somebody's bucket.

const QueueArn = 'arn:aws:sqs:us-east-1:000000000000:uploads';
const TopicArn = 'arn:aws:sns:us-east-1:000000000000:uploads';
const LambdaFunctionArn = 'arn:aws:lambda:us-east-1:000000000000:function:uploads:live';
const FILTER = (Prefix: string, Suffix: string) => ({
  Key: {
    FilterRules: [
      { Name: 'Prefix' as const, Value: Prefix },
      { Name: 'Suffix' as const, Value: Suffix },
    ],
  },
});

function configure(client: S3Client, given: object, Bucket = BUCKET) {
  const NotificationConfiguration = given as NotificationConfiguration;
  return client.send(new PutBucketNotificationConfigurationCommand({ Bucket, NotificationConfiguration }));
}

async function configured(client: S3Client): Promise<NotificationConfiguration> {
  const { $metadata, ...rest } = await client.send(new GetBucketNotificationConfigurationCommand({ Bucket: BUCKET }));
  return rest;
}

test('the notification configuration is kept, answered, replaced as a whole, and removed by an empty one', async () => {
  const { client } = await startS3();
  expect(await configured(client)).toEqual({});
  const whole = {
    TopicConfigurations: [{ Id: 't', TopicArn, Events: ['s3:ObjectRemoved:*'] }],
    QueueConfigurations: [
      { Id: 'q', QueueArn, Events: ['s3:ObjectCreated:Put', 's3:ObjectCreated:Copy'], Filter: FILTER('a/', '.png') },
    ],
    LambdaFunctionConfigurations: [
      { Id: 'l', LambdaFunctionArn, Events: ['s3:ObjectCreated:*'], Filter: FILTER('b/', '') },
    ],
    EventBridgeConfiguration: {},
  };
  await configure(client, whole);
  expect(await configured(client)).toEqual(whole);
  await configure(client, { QueueConfigurations: [{ QueueArn, Events: ['s3:ObjectCreated:*'] }] });
  expect(await configured(client)).toEqual({
    QueueConfigurations: [{ Id: expect.stringMatching(/^.{8,}$/), QueueArn, Events: ['s3:ObjectCreated:*'] }],
  });
  await configure(client, {});
  expect(await configured(client)).toEqual({});
});

test('names of filter rules are answered with a capital, however they were written', async () => {
  const { client } = await startS3();
  const Filter = { Key: { FilterRules: [{ Name: 'prefix', Value: 'a' }] } };
  await configure(client, { QueueConfigurations: [{ QueueArn, Events: ['s3:ObjectCreated:*'], Filter }] });
  const { QueueConfigurations } = await configured(client);
  expect(QueueConfigurations?.[0]?.Filter?.Key?.FilterRules).toEqual([{ Name: 'Prefix', Value: 'a' }]);
});

test('onEvent gets every event, whatever the configuration says', async () => {
  const events: S3EventRecord[] = [];
  const { client, at } = await startS3({ onEvent: (event) => void events.push(event) });
  await configure(client, { QueueConfigurations: [{ QueueArn, Events: ['s3:ObjectRemoved:*'] }] });
  await put(at, 'x');
  expect(events.map(({ eventName }) => eventName)).toEqual(['ObjectCreated:Put']);
});

describe('a configuration is refused', () => {
  const queue = (more: object) => ({ QueueArn, Events: ['s3:ObjectCreated:*'], ...more });
  const single = (more: object) => ({ QueueConfigurations: [queue(more)] });
  const pair = (one: object, other: object) => ({ QueueConfigurations: [queue(one), queue(other)] });
  const tooLong = { Key: { FilterRules: [{ Name: 'prefix', Value: 'é'.repeat(513) }] } };
  const twice = { Key: { FilterRules: ['a', 'b'].map((Value) => ({ Name: 'prefix', Value })) } };
  test.each<[string, object]>([
    ['with an unknown event', single({ Events: ['s3:ObjectCreated:Patch'] })],
    ['with an ARN that is none', single({ QueueArn: 'uploads' })],
    ['with the ARN of another service', single({ QueueArn: TopicArn })],
    ['with another region', single({ QueueArn: QueueArn.replace('us-east-1', 'eu-west-1') })],
    ['with an unknown filter', single({ Filter: { Key: { FilterRules: [{ Name: 'infix', Value: 'a' }] } } })],
    ['with two prefixes', single({ Filter: twice })],
    ['with a prefix of more than 1,024 bytes', single({ Filter: tooLong })],
    ['with a long id', single({ Id: 'i'.repeat(256) })],
    ['with an id twice', pair({ Id: 'a' }, { Id: 'a', Events: ['s3:ObjectRemoved:*'] })],
    ['with an event twice', pair({}, {})],
    ['with an event within another', pair({}, { Events: ['s3:ObjectCreated:Put'] })],
    [
      'with an event of two services',
      { ...single({}), TopicConfigurations: [{ TopicArn, Events: ['s3:ObjectCreated:Copy'] }] },
    ],
    ['with a filter within none', pair({}, { Filter: FILTER('a/', '') })],
    ['with overlapping filters', pair({ Filter: FILTER('a/', '.png') }, { Filter: FILTER('a/b/', 'g') })],
  ])('%s', async (_, given) => {
    const { client } = await startS3();
    await configure(client, { EventBridgeConfiguration: {} });
    expect(await refusal(configure(client, given))).toBe('400 InvalidArgument');
    expect(await configured(client)).toEqual({ EventBridgeConfiguration: {} });
  });

  test.each([
    ['without a destination', '<QueueConfiguration><Event>s3:ObjectCreated:*</Event></QueueConfiguration>'],
    ['without an event', `<QueueConfiguration><Queue>${QueueArn}</Queue></QueueConfiguration>`],
    ['with an unknown element', '<Other/>'],
  ])('%s, as MalformedXML', async (_, inner) => {
    const { endpoint } = await startS3();
    const body = `<NotificationConfiguration>${inner}</NotificationConfiguration>`;
    const { outcome } = await raw(endpoint, 'PUT', `/${BUCKET}?notification`, { body });
    expect(outcome).toBe('400 MalformedXML');
  });

  test('of an absent bucket', async () => {
    const { client } = await startS3();
    expect(await refusal(configure(client, {}, 'absent'))).toBe('404 NoSuchBucket');
  });
});

test('destinations may share an event if their filters differ in the prefix or the suffix', async () => {
  const { client } = await startS3();
  const Events = ['s3:ObjectCreated:*'];
  await configure(client, {
    QueueConfigurations: [
      { QueueArn, Events, Filter: FILTER('a/', '.png') },
      { QueueArn, Events, Filter: FILTER('b/', '.png') },
      { QueueArn, Events, Filter: FILTER('a/', '.jpg') },
    ],
  });
  expect((await configured(client)).QueueConfigurations).toHaveLength(3);
});
