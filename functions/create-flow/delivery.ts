import { hash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import type { Invocation } from '../base/invocation.ts';
import type { Log, MetricName } from '../base/telemetry.ts';
import type { SharedSearch } from '../flow-service/flow-search.ts';
import type { Pacer } from '../flow-service/pacer.ts';
import type { FlowService } from '../flow-service/types.ts';
import type { HoldStore } from '../holds/hold-store.ts';
import type { ClaimedEntry, ClaimTerms, WaitingEntry } from '../ledger/entry.ts';
import type { Ledger } from '../ledger/store.ts';
import type { PublishPorts } from '../publish/publish.ts';
import type { Receipts } from '../publish/receipts.ts';
import type { Settings } from '../settings/environment.ts';
import type { Inbox } from '../uploads/inbox.ts';
import type { UploadEvent } from '../uploads/upload-event.ts';

/** Time that a claim still holds after the hard end of its invocation, in milliseconds. */
const CLAIM_MARGIN_MS = 60_000;

/**
 * Another invocation is at work on the upload. The message must stay in the queue. If that invocation dies, only the
 * message leads to the upload.
 */
export class ClaimHeldError extends Error {
  override readonly name = 'ClaimHeldError';
}

/** The result of one delivery of an upload. */
export type Outcome =
  | 'created'
  | 'adopted'
  | 'orphaned'
  | 'failed'
  | 'waiting'
  | 'running already'
  | 'ended already'
  | 'unrouted'
  | 'input'
  | 'skipped'
  | 'gone'
  | 'put off';

/**
 * Called before taking over an upload whose claim died, or whose last attempt ran out of time. If it returns false, the
 * upload stays as it is.
 */
export type MayTakeOver = (entry: ClaimedEntry | WaitingEntry) => boolean;

/** What a delivery shares with the others of its invocation. */
export interface Batch {
  readonly mayTakeOver: MayTakeOver;
  /** The searches of all deliveries of this invocation. */
  readonly searches: SharedSearch;
}

export interface CreatePorts extends PublishPorts {
  readonly receipts: Pick<Receipts, 'put' | 'uploadAt'>;
  readonly holds: HoldStore;
  /** Returns a different string each time. */
  readonly nonce: () => string;
  readonly inbox: Inbox;
  readonly ledger: Ledger;
  readonly flows: FlowService;
  /** The pace of the requests of {@link flows}. */
  readonly pacer: Pacer;
  readonly clock: Clock;
  readonly settings: Settings;
}

/** The ports of a step, which reads the ledger and never writes it. */
type StepPorts = Omit<CreatePorts, 'ledger'> & { readonly ledger: Pick<Ledger, 'read' | 'entryPages'> };

/** One delivery of one upload: its ports, its invocation, and a log that names the upload. */
export class Delivery {
  readonly ports: StepPorts;
  /** The same ports, for those who write the ledger: `claim.ts` takes and changes claims, `ending.ts` ends them. */
  readonly writing: CreatePorts;
  readonly invocation: Invocation;
  readonly batch: Batch;
  /** What the message says. */
  readonly event: UploadEvent;
  #uploadId: string | undefined;
  #log: Log;

  constructor(event: UploadEvent, ports: CreatePorts, invocation: Invocation, batch: Batch) {
    this.ports = ports;
    this.writing = ports;
    this.invocation = invocation;
    this.batch = batch;
    this.event = event;
    this.#log = ports.telemetry.log.with({ key: event.key });
  }

  /** Each line names the upload and, once there is one, the flow. */
  get log(): Log {
    return this.#log;
  }

  /** Id of the upload that each line names. */
  get uploadId(): string | undefined {
    return this.#uploadId;
  }

  /** Adds an id to each line from now on. The id of another upload removes the id of the last one's flow. */
  identify(id: { readonly uploadId: string | undefined } | { readonly flowId: string }): void {
    if ('uploadId' in id) {
      this.#uploadId = id.uploadId;
      this.#log = this.ports.telemetry.log.with({ key: this.event.key, ...id });
    } else this.#log = this.#log.with(id);
  }

  count(metric: MetricName, value?: number): void {
    this.ports.telemetry.metrics.add(metric, value);
  }

  /** The terms of a claim that this invocation makes now. */
  claimTerms(): ClaimTerms {
    const { clock, settings } = this.ports;
    return {
      claimedAt: clock.now(),
      deadline: this.invocation.endsAt + CLAIM_MARGIN_MS,
      pipeline: settings.pipeline,
      arrivedAt: this.event.arrivedAt,
      late: this.event.late,
      keyScope: hash('sha256', settings.ledgerBucket).slice(0, 8),
    };
  }
}
