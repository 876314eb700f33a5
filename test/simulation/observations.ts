import type { LogFields, MetricName } from '../../functions/base/telemetry.ts';
import type { Entry } from '../../functions/ledger/entry.ts';
import type { Route } from '../../functions/uploads/route.ts';
import { type CallKind, type Fault, isAccountFault } from './faults.ts';
import type { Lambda } from './lambda.ts';
import type { Change } from './scenario.ts';

/** An upload as its uploader knows it. */
export interface Put {
  readonly bucket: string;
  readonly key: string;
  readonly versionId: string | undefined;
  readonly etag: string;
  /** Milliseconds since the epoch, in whole seconds. */
  readonly lastModified: number;
  readonly content: Buffer;
  /** True if the object was copied onto itself. */
  readonly isCopy: boolean;
  /** True if a notification of it ever reached the queue. */
  isNotified: boolean;
  /** When S3 had finished it. */
  readonly at: number;
}

/** The service's answer to a poll of a flow. */
export interface PollAnswer {
  readonly kind: CallKind;
  readonly status: number;
  /** In milliseconds since the epoch. */
  readonly at: number;
  /** The name of the invocation that asked. */
  readonly by: string;
}

export interface Logged {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
  /** In milliseconds since the epoch. */
  readonly at: number;
}

/** True for the event of a chain that has ended. All others tell of an upload. */
export const isOfChain = ({ detailType }: Published): boolean => detailType.startsWith('Chain ');

/** True for the event of a budget or of failures alike. */
export const isOfHold = ({ detailType }: Pick<Published, 'detailType'>): boolean =>
  ['Budget Reached', 'Failures Alike', 'Review Wanted'].includes(detailType);

interface Published {
  readonly detailType: string;
  readonly detail: string;
}

/** A fault that a call of the service met. */
interface ServiceIncident {
  readonly kind: CallKind;
  readonly path: string;
  readonly fault: Fault;
  /** Keys of the uploads that the caller was to create flows of. */
  readonly keys: ReadonlySet<string>;
}

/** What an operator asked for. */
interface Asked {
  readonly retry?: readonly string[] | undefined;
  readonly again?: readonly string[] | undefined;
  /** The stage that is made anew. */
  readonly from?: string | undefined;
  readonly cancel?: readonly string[] | undefined;
  readonly approve?: readonly string[] | undefined;
  readonly at?: number;
}

/** One tick. It has no end and no result if its process was killed. */
export interface TickRecord {
  readonly startedAt: number;
  endedAt?: number;
  result?: string;
  rounds?: number;
}

/** Everything that was observed in a world while it ran. The invariants are checked against it. */
export class Observations {
  readonly puts: Put[] = [];
  readonly logged: Logged[] = [];
  /** Sums of the metrics. */
  readonly counted = new Map<MetricName, number>();
  readonly published: Published[] = [];
  /** When the first completion event of an upload at a key was published, by the keys. */
  readonly publishedAt = new Map<string, number>();
  readonly thrown: unknown[] = [];
  /** All tokens that the service ever took, the latest last. */
  readonly tokens: string[] = [];
  readonly incidents: ServiceIncident[] = [];
  /** The process that heard of the beginning of a multipart upload, by the ids of the multipart uploads. */
  readonly begun = new Map<string, Lambda>();
  /** Ids of the multipart uploads that a process tried to abort. */
  readonly abortTried = new Set<string>();
  /** Number of writes of each object in the results buckets, by its bucket and key. */
  readonly resultWrites = new Map<string, number>();
  /** When the entry of an upload expired, each time, by the upload's id. */
  readonly expired = new Map<string, readonly number[]>();
  /** The upload whose entry was damaged. */
  damaged: Entry['upload'] | undefined;
  /** When the sweep lost its first day. */
  firstDayLostAt: number | undefined;
  /** When each part of the configuration was changed. */
  readonly deployedAt = new Map<Change, number>();
  /** The routes of all deployments that changed them. */
  readonly routings: (readonly Route[])[] = [];
  /** The generations of the uploads that were retried after the healing, by their ids. */
  readonly retriedAfterHealing = new Map<string, number>();
  /** Uploads whose held doubt an operator released. If a flow existed, there are two then. */
  readonly releasedByHand = new Set<string>();
  readonly asked: Asked[] = [];
  /** The answers to all polls of a flow, by the flow's id. */
  readonly answers = new Map<string, PollAnswer[]>();
  /** Until when the service asked to be left alone, in answers to requests that are no creations. */
  leftAloneUntil = 0;
  /** When a process first saw an ended flow. It is noted only if the service has limits. */
  firstEndSeenAt: number | undefined;
  /** Number of requests that a process sent although a request of the same kind had just been told to come later. */
  sentDespiteRefusal = 0;
  /** When each flow was last polled. */
  readonly polledAt = new Map<string, number>();
  /** When the listing of flows last answered a tick. It takes the place of polls of running flows. */
  listedAt = 0;
  /** Longest time from the last byte of a creation to the end of its answer, in milliseconds. */
  creationAnswerMsMax = 0;
  readonly ticks: TickRecord[] = [];
  /** Number of faults that may count as failures of a file, by the keys that the invocation worked on. */
  readonly blame = new Map<string, number>();
  /** True if any process was frozen. If so, a claim may have been taken over while its holder was still alive. */
  wasAnyFrozen = false;
  /** Ids of the flows, or of flows and assets, that meet a fault for ever. */
  readonly poisoned = new Set<string>();
  /** Measurements of a steady world, for the trace. */
  figures: unknown;
  readonly stats = { invocations: 0, kills: 0 };

  /** A process met a fault in a call. */
  noteFault(lambda: Lambda, what: string, fault: Fault): void {
    if (fault === 'frozen') this.wasAnyFrozen = true;
    // After such an answer to a creation, the attempt counts if the file is sent again without a proof.
    const isDoubt = fault === '503 in seconds' && what.startsWith('flow.create');
    if (isDoubt || !isAccountFault(fault)) this.addBlame(lambda);
  }

  /** Something failed that may count as a failure of the files that the process works on. */
  addBlame({ keys }: Lambda): void {
    for (const key of keys) this.blame.set(key, (this.blame.get(key) ?? 0) + 1);
  }

  noteAnswer(flowId: string, answer: PollAnswer): void {
    this.answers.set(flowId, [...(this.answers.get(flowId) ?? []), answer]);
  }

  noteMetric(metric: MetricName, value: number): void {
    this.counted.set(metric, (this.counted.get(metric) ?? 0) + value);
  }

  notePublished(event: Published, at: number): void {
    this.published.push(event);
    const { key } = (JSON.parse(event.detail) as { upload: { key: string } }).upload;
    if (!this.publishedAt.has(key)) this.publishedAt.set(key, at);
  }

  /** True if the end of a generation of an upload was published. */
  hasPublished(uploadId: string, generation: number): boolean {
    return this.published.some(({ detail }) => {
      const facts = JSON.parse(detail) as { readonly upload: { readonly id: string }; readonly generation: number };
      return facts.upload.id === uploadId && facts.generation === generation;
    });
  }

  noteWrite(bucket: string, key: string): void {
    const name = `${bucket}/${key}`;
    this.resultWrites.set(name, (this.resultWrites.get(name) ?? 0) + 1);
  }

  noteExpired(uploadId: string, at: number): void {
    this.expired.set(uploadId, [...(this.expired.get(uploadId) ?? []), at]);
  }
}
