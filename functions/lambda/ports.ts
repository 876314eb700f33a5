import type { S3Client } from '@aws-sdk/client-s3';
import type { Clock } from '../base/clock.ts';
import type { Telemetry } from '../base/telemetry.ts';
import { ChainStore } from '../chains/chain-store.ts';
import type { CollectPorts } from '../collect-outputs/collect-outputs.ts';
import type { CreatePorts } from '../create-flow/delivery.ts';
import type { Pacer } from '../flow-service/pacer.ts';
import type { FlowService } from '../flow-service/types.ts';
import { HoldStore } from '../holds/hold-store.ts';
import { Ledger } from '../ledger/store.ts';
import { Aliases } from '../publish/aliases.ts';
import { ChainNotes } from '../publish/chain-notes.ts';
import type { EventBus } from '../publish/event-bus.ts';
import { Receipts } from '../publish/receipts.ts';
import { Sources } from '../publish/sources.ts';
import { Results } from '../results/results.ts';
import type { Settings } from '../settings/environment.ts';
import type { SweepPorts } from '../sweep/sweep-run.ts';
import { Inbox } from '../uploads/inbox.ts';
import type { UploadQueue } from '../uploads/upload-event.ts';

/** What the ports of the functions are made of: settings, clients, and the sources of time and chance. */
export interface Wiring {
  readonly settings: Settings;
  readonly s3: S3Client;
  readonly flows: FlowService;
  /** The pace of the requests of {@link flows}. */
  readonly pacer: Pacer;
  readonly events: EventBus;
  readonly clock: Clock;
  /** Returns a different string each time. */
  readonly nonce: () => string;
  readonly telemetry: Telemetry;
}

/** The ports of create-flow. The collecting function needs them too. */
export function createFlowPorts({ settings, s3, nonce, ...wiring }: Wiring & { readonly queue?: UploadQueue }) {
  const inbox = new Inbox(s3, wiring.clock);
  const ledger = new Ledger(s3, settings.ledgerBucket, nonce);
  const receipts = new Receipts(s3, settings);
  const ledgerPorts = { s3, bucket: settings.ledgerBucket, clock: wiring.clock, nonce };
  const chains = new ChainStore(ledgerPorts);
  const sources = new Sources(s3, inbox, settings, wiring.telemetry.log);
  return {
    ...wiring,
    settings,
    nonce,
    holds: new HoldStore(ledgerPorts),
    inbox,
    ledger,
    receipts,
    sources,
    chains,
    chainNotes: new ChainNotes({ ...wiring, settings, ledger, receipts, sources, chains }),
  } satisfies CreatePorts & { readonly chains: ChainStore };
}

/** The ports of collect-outputs, with those of create-flow among them. */
export function collectOutputsPorts(
  wiring: Wiring & { readonly queue: UploadQueue },
): CreatePorts & CollectPorts & SweepPorts {
  const { settings, s3, queue, nonce, telemetry } = wiring;
  const { resultsBucket: bucket, assetConcurrency: assetsMax } = settings;
  const results = new Results({ s3, bucket, log: telemetry.log, assetsMax });
  const aliases = new Aliases(wiring, settings);
  return { ...createFlowPorts(wiring), s3, queue, nonce, results, aliases };
}
