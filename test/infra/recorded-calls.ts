import { DeleteObjectCommand, type PutObjectCommandInput, type S3ServiceException } from '@aws-sdk/client-s3';
import { simulate } from '../simulation/simulation.ts';
import { ECHO, RESULTS, World, type WorldOptions } from '../support/world.ts';
import { type RecordedCall, recordedCall } from './calls.ts';

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
  for (const seed of SEEDS) await simulateWorld(seed, record);
  await askForAbsentObjects(record);
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

/** The absent objects that create-flow asks for, and that no simulated world lacks. */
async function askForAbsentObjects(record: Record): Promise<void> {
  let isRecording = false;
  const authorize: NonNullable<NonNullable<WorldOptions['s3']>['authorize']> = (access) => {
    if (isRecording) record(recordedCall('create-flow', access));
    return true;
  };
  const world = await World.start({ routes: [ECHO], versioning: undefined, isVirtual: true, s3: { authorize } });
  await using closing = new AsyncDisposableStack();
  closing.defer(() => world.close());
  const deliver = async (): Promise<void> => {
    isRecording = true;
    await world.deliver();
    isRecording = false;
  };
  await world.upload('gone.bin', 'x');
  await world.remove('gone.bin');
  await deliver();

  // Two uploads at one key fail. The receipt of the first is deleted just after it refused that of the second.
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  await world.upload('refused.bin', 'x');
  await deliver();
  await world.upload('refused.bin', 'y');
  world.s3.middlewareStack.add(
    (next) => (call) =>
      next(call).catch(async (error: S3ServiceException) => {
        const { Key } = call.input as PutObjectCommandInput;
        if (Key === 'refused.bin/receipt.json' && error.$metadata.httpStatusCode === 412) {
          isRecording = false;
          await world.s3.send(new DeleteObjectCommand({ Bucket: RESULTS, Key }));
          isRecording = true;
        }
        throw error;
      }),
    { step: 'initialize' },
  );
  await deliver();
}
