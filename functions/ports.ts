import type { S3Client } from '@aws-sdk/client-s3';
import type { Clock } from './clock.ts';
import type { CollectPorts } from './collect-outputs.ts';
import type { Settings } from './config.ts';
import type { CreatePorts } from './create-flow.ts';
import type { FlowService } from './flow-service/types.ts';
import { Ledger } from './ledger/store.ts';
import { Inbox } from './objects/inbox.ts';
import { Receipts } from './objects/receipts.ts';
import { Results } from './objects/results.ts';
import type { EventBus } from './publish.ts';
import type { UploadQueue } from './send-again.ts';
import type { SweepPorts } from './sweep.ts';
import type { Telemetry } from './telemetry.ts';

/** Everything from outside that both functions stand on. */
export interface World {
  readonly settings: Settings;
  readonly s3: S3Client;
  readonly flows: FlowService;
  readonly events: EventBus;
  readonly clock: Clock;
  /** A different string each time. */
  readonly nonce: () => string;
  readonly telemetry: Telemetry;
}

/** What both functions do everything through, put together once a process. It is all that create-flow needs. */
export function createPorts({ settings, s3, nonce, ...world }: World) {
  const inbox = new Inbox(s3, world.clock);
  return {
    ...world,
    settings,
    inbox,
    ledger: new Ledger(s3, settings.ledgerBucket, nonce),
    receipts: new Receipts(s3, settings.resultsBucket, settings.resultsPrefix, inbox, settings),
  } satisfies CreatePorts;
}

/** The ports of collect-outputs, and so of both functions. */
export function portsOf(world: World & { readonly queue: UploadQueue }): CreatePorts & CollectPorts & SweepPorts {
  const { settings, s3, queue, nonce, telemetry } = world;
  const results = new Results(s3, settings.resultsBucket, telemetry.log, settings.assetConcurrency);
  return { ...createPorts(world), s3, queue, nonce, results };
}
