import type { HeadObjectCommandInput } from '@aws-sdk/client-s3';
import { beforeAll, describe, expect, it } from 'vitest';
import { collect } from '../../functions/collect-outputs.ts';
import { ECHO, World, type WorldOptions } from '../support/world.ts';
import { type Allowance, allowancesOf, isAllowed, lineOf } from './policies.ts';
import { synthesisePipeline } from './synthesis.ts';

type FunctionName = 'create-flow' | 'collect-outputs';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** More than one part of a multipart upload. */
const LARGE = Buffer.alloc(10_000_000, 'flowdrop');

/**
 * Which permission each call needs.
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html
 */
const ACTIONS: Readonly<Record<string, string>> = {
  GetObjectCommand: 's3:GetObject',
  HeadObjectCommand: 's3:GetObject',
  PutObjectCommand: 's3:PutObject',
  CreateMultipartUploadCommand: 's3:PutObject',
  UploadPartCommand: 's3:PutObject',
  CompleteMultipartUploadCommand: 's3:PutObject',
  AbortMultipartUploadCommand: 's3:AbortMultipartUpload',
  DeleteObjectCommand: 's3:DeleteObject',
  ListObjectsV2Command: 's3:ListBucket',
  ListObjectVersionsCommand: 's3:ListBucketVersions',
};

/** What no call of the functions uses, because it is used for them or decides what they are told. */
const USED_OTHERWISE: Readonly<Record<string, string>> = {
  'logs:CreateLogStream': 'by Lambda, which writes the log',
  'logs:PutLogEvents': 'by Lambda, which writes the log',
  'sqs:ReceiveMessage': "by Lambda's poller",
  'sqs:DeleteMessage': "by Lambda's poller",
  'sqs:GetQueueAttributes': "by Lambda's poller",
  's3:ListBucket': 'by S3 too, which without it says of an absent object that it is forbidden',
};

const recorded: Record<FunctionName, Allowance[]> = { 'create-flow': [], 'collect-outputs': [] };

/** A world whose calls to S3 are noted down while one of the functions runs, and not while the test itself looks. */
class Recording {
  readonly world: World;
  #running: FunctionName | undefined;

  static async start(options: WorldOptions): Promise<Recording> {
    return new Recording(await World.start(options));
  }

  private constructor(world: World) {
    this.world = world;
    world.s3.middlewareStack.add(
      (next, { commandName = '' }) =>
        (call) => {
          this.#note(commandName, call.input as HeadObjectCommandInput);
          return next(call);
        },
      { step: 'initialize' },
    );
    const { queue, events } = world.ports;
    const { send: sendMessage } = queue;
    queue.send = (...call) => {
      this.#record({ action: 'sqs:SendMessage', resource: 'uploads-queue' });
      return sendMessage.apply(queue, call);
    };
    const { send: sendEvent } = events;
    events.send = (...call) => {
      this.#record({ action: 'events:PutEvents', resource: 'default-bus' });
      return sendEvent.apply(events, call);
    };
  }

  deliver = () => this.#during('create-flow', () => this.world.deliver());
  collect = (event: object = {}) =>
    this.#during('collect-outputs', () =>
      this.world.invoke((invocation) => collect(event, this.world.ports, invocation)),
    );

  /** Deliveries and ticks, until whatever there is to do has been done. */
  settle = async () => {
    for (let round = 0; round < 4; round += 1) {
      while ((await this.deliver()) !== undefined);
      await this.collect();
      this.world.clock.advance(10 * MINUTE);
    }
  };

  async #during<T>(name: FunctionName, run: () => Promise<T>): Promise<T> {
    this.#running = name;
    const { tokenReadings } = this.world;
    try {
      return await run();
    } finally {
      // Both functions share this world's token, which is read by whichever needs it first.
      if (this.world.tokenReadings > tokenReadings) {
        for (const each of Object.values(recorded)) {
          each.push({ action: 'secretsmanager:GetSecretValue', resource: 'token' });
        }
      }
      this.#running = undefined;
    }
  }

  #note(command: string, { Bucket = '', Key, VersionId }: HeadObjectCommandInput): void {
    const action = VersionId === undefined ? (ACTIONS[command] ?? command) : `${ACTIONS[command]}Version`;
    this.#record({ action, resource: Key === undefined ? Bucket : `${Bucket}/${Key}` });
  }

  #record(call: Allowance): void {
    if (this.#running !== undefined) recorded[this.#running].push(call);
  }
}

/** What an upload can go through, as far as it leads to calls of different kinds. */
async function goThroughEverything(options: WorldOptions): Promise<void> {
  const recording = await Recording.start(options);
  const { world, deliver, collect: collectOutputs, settle } = recording;
  try {
    await collectOutputs({ sweep: {} });
    await world.upload('small.bin', 'x');
    await world.upload('large.bin', LARGE);
    await settle();

    // Another at the same key; and the sweep comes while its flow is running.
    await world.upload('small.bin', 'y');
    await deliver();
    await collectOutputs({ sweep: {} });
    await settle();

    // Its news comes again after its end, and another's never.
    await world.upload('again.bin', 'x');
    const [{ body = '', receiptHandle = '' } = {}] = world.queue.receive({ max: 1 });
    world.queue.delete(receiptHandle);
    world.queue.send(body);
    await settle();
    world.queue.send(body);
    await world.upload('unannounced.bin', 'x');
    for (const message of world.queue.receive({ max: 10 })) {
      if (!message.body.includes('again.bin')) world.queue.delete(message.receiptHandle);
    }
    world.clock.advance(HOUR);
    await deliver();
    await collectOutputs({ sweep: {} });
    await settle();

    // Throttled, then refused for good, twice at one key; and what was refused is tried again.
    world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 429 } : undefined);
    await world.upload('refused.bin', 'x');
    await deliver();
    world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
    await settle();
    await world.upload('refused.bin', 'y');
    await settle();
    world.service.intercept = undefined;
    const { upload } = await world.receipt('refused.bin');
    await collectOutputs({ retry: [upload.id] });
    await settle();

    // An asset that breaks off after a part of it has been stored.
    world.service.intercept = (_, { operation }) => (operation === 'getAsset' ? { truncate: 9_500_000 } : undefined);
    await world.upload('broken.bin', LARGE);
    await settle();
    world.service.intercept = undefined;
    await settle();

    await world.upload('gone.bin', 'x');
    await world.remove('gone.bin');
    await settle();
  } finally {
    await world.close();
  }
}

describe('what the functions may do', () => {
  const { template } = synthesisePipeline();
  const roles: readonly (readonly [FunctionName, readonly Allowance[]])[] = [
    ['create-flow', allowancesOf(template, 'CreateFlowRole')],
    ['collect-outputs', allowancesOf(template, 'CollectOutputsRole')],
  ];

  beforeAll(async () => {
    await goThroughEverything({ routes: [ECHO] });
    await goThroughEverything({ routes: [ECHO], versioning: undefined });
  }, 120_000);

  it.each(roles)('is enough for every call that %s makes', (name, allowances) => {
    const calls = recorded[name];
    expect(calls.length).toBeGreaterThan(50);
    expect([...new Set(calls.filter((call) => !isAllowed(allowances, call)).map(lineOf))]).toEqual([]);
  });

  it.each(roles)('is no more than %s uses', (name, allowances) => {
    const unused = allowances
      .filter(({ action }) => USED_OTHERWISE[action] === undefined)
      .filter((allowance) => !recorded[name].some((call) => isAllowed([allowance], call)));
    expect(unused.map(lineOf)).toEqual([]);
  });
});
