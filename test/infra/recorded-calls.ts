import { DeleteObjectCommand, type PutObjectCommandInput, type S3ServiceException } from '@aws-sdk/client-s3';
import { collect } from '../../functions/collect-outputs/collect-outputs.ts';
import { createFlowsOrPutCanary } from '../../functions/create-flow/create-event.ts';
import type { Route } from '../../functions/uploads/route.ts';
import type { FunctionName } from '../../infra/bundle/bundle.ts';
import type { Versioning } from '../../local/aws/s3/catalog.ts';
import { simulate } from '../simulation/simulation.ts';
import { ECHO, LEDGER, RESULTS, World, type WorldOptions } from '../support/world.ts';
import { type RecordedCall, recordedCall } from './calls.ts';
import { CANARY_KEY } from './configurations.ts';

/**
 * Simulated worlds whose calls are recorded. Together they make every kind of call that the first 24 seeds make. If a
 * change loses a kind, the tests find its permission unused.
 */
const SEEDS = [4, 5, 14, 20, 24];

type Record = (call: RecordedCall) => void;

/** Runs the functions through everything that an upload can go through. Returns every different call, once. */
export async function recordCalls(): Promise<readonly RecordedCall[]> {
  const recorded = new Map<string, RecordedCall>();
  const record: Record = (call) => recorded.set(JSON.stringify(call), call);
  for (const seed of SEEDS) await simulateWorld(seed, record);
  await makeRareCalls(record);
  for (const versioning of [undefined, 'Enabled'] as const) await makeCallsOfChains(versioning, record);
  await makeCallsOfChains(undefined, record, 30);
  await makeCallsOfSources(record);
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

/** The calls that few simulated worlds make, or none. */
async function makeRareCalls(record: Record): Promise<void> {
  let running: FunctionName | undefined;
  const authorize: NonNullable<NonNullable<WorldOptions['s3']>['authorize']> = (access) => {
    if (running !== undefined) record(recordedCall(running, access));
    return !(access.action === 's3:GetObject' && access.resource.endsWith('/denied.bin'));
  };
  const during = async (name: FunctionName | undefined, run: () => Promise<unknown>): Promise<void> => {
    const before = running;
    running = name;
    await run();
    running = before;
  };
  const settings = { canaryKey: CANARY_KEY };
  const world = await World.start({ routes: [ECHO], versioning: undefined, settings, s3: { authorize } });
  await using closing = new AsyncDisposableStack();
  closing.defer(() => world.close());
  const deliver = () => during('create-flow', () => world.deliver());
  const collectAll = async (event: object = {}): Promise<void> => {
    for (let tick = 0; tick < 3; tick += 1) {
      await during('collect-outputs', () => world.invoke((invocation) => collect(event, world.ports, invocation)));
      world.clock.advance(10 * 60_000);
    }
  };

  await world.upload(CANARY_KEY, 'x');
  await during('create-flow', () =>
    world.invoke((invocation) => createFlowsOrPutCanary({ canary: true }, world.ports, invocation)),
  );

  // The user deletes a file before it is read. S3 refuses another one.
  await world.upload('gone.bin', 'x');
  await world.remove('gone.bin');
  await deliver();
  await world.upload('denied.bin', 'x');
  await deliver();

  // Two uploads at one key fail. The receipt of the first is deleted just after it refused that of the second.
  world.service.intercept = (_, { operation }) => (operation === 'createFlow' ? { status: 422 } : undefined);
  await world.upload('refused.bin', 'x');
  await deliver();
  const { upload } = await world.receipt('refused.bin');
  await world.upload('refused.bin', 'y');
  world.s3.middlewareStack.add(
    (next) => (call) =>
      next(call).catch(async (error: S3ServiceException) => {
        const { Key } = call.input as PutObjectCommandInput;
        if (Key === 'refused.bin/receipt.json' && error.$metadata.httpStatusCode === 412) {
          await during(undefined, () => world.s3.send(new DeleteObjectCommand({ Bucket: RESULTS, Key })));
        }
        throw error;
      }),
    { step: 'initialize' },
  );
  await deliver();

  // The operator retries an upload, and another one that its user has deleted.
  await collectAll({ retry: [(await world.receipt('refused.bin')).upload.id] });
  await deliver();
  await world.remove('refused.bin');
  await collectAll({ retry: [upload.id] });

  // An asset breaks off after a part of it was stored.
  world.service.intercept = (_, { operation }) => (operation === 'getAsset' ? { truncate: 9_500_000 } : undefined);
  await world.upload('broken.bin', Buffer.alloc(10_000_000, 'flow drop'));
  await deliver();
  await collectAll();

  // The entry of an upload is lost after its asset was stored.
  world.service.intercept = undefined;
  await world.upload('stored.bin', 'x');
  await deliver();
  const [marker = ''] = await world.keys(LEDGER, 'running/');
  const entry = `uploads/${marker.split('/')[2]}.json`;
  const { bytes } = await world.object(LEDGER, entry);
  await collectAll();
  await world.put(LEDGER, entry, bytes.toString());
  await world.put(LEDGER, marker, '');
  await collectAll();
}

const CHAIN: readonly Route[] = [
  ECHO,
  { ...ECHO, name: 'each', after: 'echo' },
  { ...ECHO, name: 'all', after: 'each', inputs: 'all' },
];

/** The calls for a chain of three stages. Few simulated worlds have one. */
async function makeCallsOfChains(
  resultsVersioning: Versioning | undefined,
  record: Record,
  resultsRetentionDays?: number,
): Promise<void> {
  let running: FunctionName | undefined;
  const world = await World.start({
    routes: CHAIN,
    resultsVersioning,
    resultsRetentionDays,
    isVirtual: true,
    s3: {
      authorize(access) {
        if (running !== undefined) record(recordedCall(running, access));
        const isAsset = access.resource.startsWith('arn:aws:s3:::results/denied.bin/');
        return !(running === 'create-flow' && access.action.startsWith('s3:GetObject') && isAsset);
      },
    },
  });
  await using closing = new AsyncDisposableStack();
  closing.defer(() => world.close());
  const settle = async (): Promise<void> => {
    for (let stage = 0; stage <= CHAIN.length; stage += 1) {
      running = 'create-flow';
      await world.deliverAll();
      world.clock.advance(10 * 60_000);
      running = 'collect-outputs';
      await world.tick();
    }
    running = undefined;
  };

  // A chain ends in the collecting function, and so does that of a newer file at its key.
  await world.upload('a.bin', 'x');
  await settle();
  await world.upload('a.bin', 'y');
  await settle();

  // The service refuses the last flow of a chain. So it ends in the creating function, twice at one key.
  world.service.intercept = (_, { operation, n }) =>
    operation === 'createFlow' && n % CHAIN.length === 0 ? { status: 422 } : undefined;
  await world.upload('b.bin', 'x');
  await settle();
  await world.upload('b.bin', 'y');
  await settle();

  // S3 refuses an asset to the creating function.
  world.service.intercept = undefined;
  await world.upload('denied.bin', 'x');
  await settle();
}

/** The calls for files that are tagged or deleted after their end, and whose results are copied to aliases. */
async function makeCallsOfSources(record: Record): Promise<void> {
  let running: FunctionName | undefined;
  const routes: readonly Route[] = [
    { ...ECHO, name: 'tagged', prefixes: ['tagged/'], afterSuccess: 'tag', alias: 'alias/{key}/{n}{ext}' },
    { ...ECHO, name: 'deleted', prefixes: ['deleted/'], afterSuccess: 'delete' },
  ];
  const authorize: NonNullable<NonNullable<WorldOptions['s3']>['authorize']> = (access) => {
    if (running !== undefined) record(recordedCall(running, access));
    return true;
  };
  const world = await World.start({ routes, isVirtual: true, s3: { authorize } });
  await using closing = new AsyncDisposableStack();
  closing.defer(() => world.close());
  // The service refuses the second flow. So its upload ends in the creating function.
  world.service.intercept = (_, { operation, n }) =>
    operation === 'createFlow' && n === 2 ? { status: 422 } : undefined;
  for (const key of ['tagged/a', 'tagged/b', 'deleted/a', 'tagged/a']) {
    await world.upload(key, 'x');
    running = 'create-flow';
    await world.deliverAll();
    world.clock.advance(10 * 60_000);
    running = 'collect-outputs';
    await world.tick();
    running = undefined;
    // Aliases that the new pattern does not name are deleted.
    if (key === 'deleted/a') world.redeploy({ routes: routes.map((each) => ({ ...each, alias: 'alias/{key}' })) });
  }
}
