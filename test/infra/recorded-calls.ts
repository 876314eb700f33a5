import {
  DeleteObjectCommand,
  HeadObjectCommand,
  type PutObjectCommandInput,
  type S3ServiceException,
} from '@aws-sdk/client-s3';
import { collect } from '../../functions/collect-outputs/collect-outputs.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import { simulate } from '../simulation/simulation.ts';
import { ECHO, INBOX, LEDGER, RESULTS, World, type WorldOptions } from '../support/world.ts';
import { type RecordedCall, recordedCall } from './calls.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** More than one part of a multipart upload. */
const LARGE = Buffer.alloc(10_000_000, 'flowdrop');

/**
 * Simulated worlds whose calls are recorded. Together they make every kind of call that the first 40 seeds make, and
 * thousands more make no other kind. If a change loses a kind, the tests find its permission unused.
 */
const SEEDS = [1, 2, 4, 10, 20];

type Record = (call: RecordedCall) => void;

/** Runs the functions through everything that an upload can go through. Returns every different call, once. */
export async function recordCalls(): Promise<readonly RecordedCall[]> {
  const recorded = new Map<string, RecordedCall>();
  const record: Record = (call) => recorded.set(JSON.stringify(call), call);
  await goThroughEverything({ routes: [ECHO] }, record);
  await goThroughEverything({ routes: [ECHO], versioning: undefined }, record);
  for (const seed of SEEDS) await simulateWorld(seed, record);
  return [...recorded.values()];
}

async function simulateWorld(seed: number, record: Record): Promise<void> {
  const names = { create: 'create-flow', collect: 'collect-outputs' } as const;
  await simulate(seed, undefined, ({ by, ...access }) => {
    // The simulation does not tell the source of an event. The tests that run a bundle check that it is this one.
    const source = access.action === 'events:PutEvents' && { context: { 'events:source': 'flowdrop' } };
    record(recordedCall(names[by], { ...access, ...source }));
  });
}

/** A world that records calls while one of the functions runs, and not while the test itself reads and writes. */
class Recording {
  readonly world: World;
  /** A key at which an object is deleted just after a function's write to it was refused. */
  vanishing: string | undefined;
  readonly #running: { name: FunctionName | undefined };
  readonly #hidden: Set<string>;

  static async start(options: WorldOptions, record: Record): Promise<Recording> {
    const running: { name: FunctionName | undefined } = { name: undefined };
    const hidden = new Set<string>();
    const authorize: NonNullable<NonNullable<WorldOptions['s3']>['authorize']> = (access) => {
      if (running.name !== undefined) record(recordedCall(running.name, access));
      return !/^s3:GetObject(Version)?$/.test(access.action) || !hidden.has(access.resource);
    };
    return new Recording(await World.start({ ...options, s3: { authorize } }), running, hidden);
  }

  private constructor(world: World, running: { name: FunctionName | undefined }, hidden: Set<string>) {
    this.world = world;
    this.#running = running;
    this.#hidden = hidden;
    world.s3.middlewareStack.add(
      (next) => async (call) => {
        try {
          return await next(call);
        } catch (error) {
          const { Bucket, Key } = call.input as PutObjectCommandInput;
          if (Key === this.vanishing && (error as S3ServiceException).$metadata.httpStatusCode === 412) {
            this.vanishing = undefined;
            await this.#during(undefined, () => world.s3.send(new DeleteObjectCommand({ Bucket, Key })));
          }
          throw error;
        }
      },
      { step: 'initialize' },
    );
  }

  /** Makes S3 answer 403 for an upload and its versions. */
  hide = (key: string) => this.#hidden.add(`arn:aws:s3:::${INBOX}/${key}`);

  deliver = () => this.#during('create-flow', () => this.world.deliver());
  collect = (event: object = {}) =>
    this.#during('collect-outputs', () =>
      this.world.invoke((invocation) => collect(event, this.world.ports, invocation)),
    );

  /** Deliveries and ticks, until nothing is left to do. */
  settle = async () => {
    for (let round = 0; round < 4; round += 1) {
      while ((await this.deliver()) !== undefined);
      await this.collect();
      this.world.clock.advance(10 * MINUTE);
    }
  };

  async #during<T>(name: FunctionName | undefined, run: () => Promise<T>): Promise<T> {
    const before = this.#running.name;
    this.#running.name = name;
    try {
      return await run();
    } finally {
      this.#running.name = before;
    }
  }
}

/** Everything that an upload can go through, as far as it leads to other kinds of calls. */
async function goThroughEverything(options: WorldOptions, record: Record): Promise<void> {
  const recording = await Recording.start(options, record);
  try {
    await putAndReplace(recording);
    await deliverTwiceAndNever(recording);
    await refuseAndRetry(recording);
    await breakAssets(recording);
    await deleteUnread(recording);
    await denyAndRetry(recording);
  } finally {
    await recording.world.close();
  }
}

/** An upload that its user deletes, and one of which the user deletes the version, so that S3 may answer 403 for it. */
async function deleteUnread({ world, hide, settle }: Recording): Promise<void> {
  await world.upload('gone.bin', 'x');
  await world.remove('gone.bin');
  await world.upload('hidden.bin', 'x');
  const { VersionId } = await world.s3.send(new HeadObjectCommand({ Bucket: INBOX, Key: 'hidden.bin' }));
  await world.s3.send(new DeleteObjectCommand({ Bucket: INBOX, Key: 'hidden.bin', VersionId }));
  hide('hidden.bin');
  await settle();
}

/** An upload that S3 refuses to hand out, until it fails, and in its retry. */
async function denyAndRetry({ world, hide, collect, settle }: Recording): Promise<void> {
  await world.upload('denied.bin', 'x');
  hide('denied.bin');
  while (world.count('UploadsDenied') < 5) await settle();
  const { upload } = await world.receipt('denied.bin');
  await collect({ retry: [upload.id] });
  await settle();
}

async function putAndReplace({ world, deliver, collect, settle }: Recording): Promise<void> {
  await collect({ sweep: {} });
  await collect({});
  await world.upload('small.bin', 'x');
  await world.upload('large.bin', LARGE);
  await settle();

  // Another upload at the same key. The sweep runs while its flow is running.
  await world.upload('small.bin', 'y');
  await deliver();
  await collect({ sweep: {} });
  await collect({});
  await settle();
}

/** The message of one upload comes again after its end, and that of another never comes. */
async function deliverTwiceAndNever({ world, deliver, collect, settle }: Recording): Promise<void> {
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
  await collect({ sweep: {} });
  await collect({});
  await settle();
}

async function refuseAndRetry(recording: Recording): Promise<void> {
  const { world, deliver, collect, settle } = recording;
  // Throttled, then refused for good, for several uploads at one key.
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 429 } : undefined);
  await world.upload('refused.bin', 'x');
  await deliver();
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  await settle();
  await world.upload('refused.bin', 'y');
  await settle();
  recording.vanishing = 'refused.bin/receipt.json';
  await world.upload('refused.bin', 'z');
  await settle();
  const { upload } = await world.receipt('refused.bin');

  // The user deletes the receipt, and the sweep puts it again. Then the upload is retried.
  await world.s3.send(new DeleteObjectCommand({ Bucket: RESULTS, Key: 'refused.bin/receipt.json' }));
  world.clock.advance(HOUR);
  await collect({ sweep: {} });
  await collect({});
  await settle();
  world.service.intercept = undefined;
  await collect({ retry: [upload.id] });
  await settle();
}

async function breakAssets({ world, deliver, settle }: Recording): Promise<void> {
  // An asset that breaks off after a part of it was stored.
  world.service.intercept = (_, { operation }) => (operation === 'getAsset' ? { truncate: 9_500_000 } : undefined);
  await world.upload('broken.bin', LARGE);
  await settle();
  world.service.intercept = undefined;
  await settle();

  // A collection that stored its asset and failed to write its entry.
  await world.upload('stored.bin', 'x');
  await deliver();
  const [marker = ''] = await world.keys(LEDGER, 'running/');
  const entry = `uploads/${marker.split('/')[2]}.json`;
  const { bytes } = await world.object(LEDGER, entry);
  await settle();
  await world.put(LEDGER, entry, bytes.toString());
  await world.put(LEDGER, marker, '');
  await settle();
}
