import type { Input, Made, Template, Work } from './templates.ts';
import type { Variation } from './variation.ts';

export type State = 'created' | 'starting' | 'running' | 'aborting' | 'completed' | 'failed' | 'aborted';

/** The shares of a flow's duration that it spends starting and aborting. */
const STARTING_PART = 0.1;
const ABORTING_PART = 0.1;

export interface Output extends Made {
  readonly assetId: string;
}

/**
 * One flow. Its state follows from the time since its start. A flow without inputs does not start.
 *
 *             start             10 %            100 % of durationMs
 *   created ────────▶ starting ──────▶ running ─────────────────────▶ completed, failed
 *      │ abort           │ abort          │ abort        10 %
 *      ▼                 └────────────────┴────▶ aborting ──▶ aborted
 *   aborted
 */
export class Flow {
  readonly id: string;
  readonly template: Template;
  readonly parameters: unknown;
  readonly additional: unknown;
  readonly inputs: readonly Input[];
  readonly createdAt: number;
  /** The replica of the service that made it, and is the only one that knows it. */
  readonly replica: number | undefined;
  /** When the flow appears in the listing, in milliseconds since the epoch. */
  readonly listedFrom: number;
  deleted = false;
  #started:
    | { readonly at: number; readonly durationMs: number; readonly work: Work; readonly outputs: Output[] }
    | undefined;
  #aborted: { readonly at: number; readonly endsAt: number } | undefined;

  constructor(
    parts: Pick<
      Flow,
      'id' | 'template' | 'parameters' | 'additional' | 'inputs' | 'createdAt' | 'listedFrom' | 'replica'
    >,
  ) {
    this.id = parts.id;
    this.template = parts.template;
    this.parameters = parts.parameters;
    this.additional = parts.additional;
    this.inputs = parts.inputs;
    this.createdAt = parts.createdAt;
    this.listedFrom = parts.listedFrom;
    this.replica = parts.replica;
  }

  start(now: number, durationMs: number, newAssetId: () => string): void {
    const work = this.template.work(this.inputs, (this.parameters ?? {}) as Record<string, unknown>);
    const outputs = work.outputs.map((made) => ({ ...made, assetId: newAssetId() }));
    this.#started = { at: now, durationMs, work, outputs };
  }

  abort(now: number): void {
    this.#aborted = { at: now, endsAt: now + (this.#started?.durationMs ?? 0) * ABORTING_PART };
  }

  /** When the flow ends, in milliseconds since the epoch. Undefined before its start. */
  get endsAt(): number | undefined {
    return this.#aborted?.endsAt ?? (this.#started && this.#started.at + this.#started.durationMs);
  }

  state(now: number): State {
    if (this.#aborted) return now < this.#aborted.endsAt ? 'aborting' : 'aborted';
    if (!this.#started) return 'created';
    const { at, durationMs, work } = this.#started;
    if (now < at + durationMs * STARTING_PART) return 'starting';
    if (now < at + durationMs) return 'running';
    return work.error === undefined ? 'completed' : 'failed';
  }

  isTerminal(now: number): boolean {
    return ['completed', 'failed', 'aborted'].includes(this.state(now));
  }

  /** The outputs that the flow has at its end: all of them, or those that a failed or aborted flow leaves. */
  get outputs(): readonly Output[] {
    if (!this.#started) return [];
    const { work, outputs } = this.#started;
    return work.error === undefined && !this.#aborted ? outputs : outputs.slice(0, work.partial);
  }

  /** The flow as the service's answers show it. */
  record(now: number, { flowIdName }: Pick<Variation, 'flowIdName'>): Record<string, unknown> {
    const state = this.state(now);
    return {
      [flowIdName]: this.id,
      template: this.template.name,
      state,
      progress: this.#progress(now),
      created_at: iso(this.createdAt),
      started_at: iso(this.#started?.at),
      finished_at: this.isTerminal(now) ? iso(this.endsAt) : null,
      parameters: this.parameters ?? null,
      additional: this.additional ?? null,
      ...(state === 'failed' && { error: this.#started?.work.error }),
    };
  }

  /** Its outputs as the service's answers show them. Before its end, all are `pending`. */
  outputRecords(now: number, { assetIdName }: Pick<Variation, 'assetIdName'>): Record<string, unknown>[] {
    const isFinished = this.isTerminal(now);
    return this.outputs.map(({ assetId, additional, error }) => ({
      [assetIdName]: assetId,
      status: isFinished ? (error === undefined ? 'ready' : 'failed') : 'pending',
      processed: isFinished ? iso(this.endsAt) : null,
      additional: additional ?? null,
      ...(isFinished && error !== undefined && { error }),
    }));
  }

  /** Everything that the service knows of the flow, for tests. */
  view(now: number): FlowView {
    return {
      id: this.id,
      template: this.template.name,
      parameters: this.parameters,
      additional: this.additional,
      inputs: this.inputs.map(({ mediaType, blob: { bytes, sha256 }, additional }) => ({
        mediaType,
        bytes,
        sha256,
        additional,
      })),
      outputs: this.outputs.map(({ assetId, mediaType, content: { bytes }, additional, error }) => ({
        assetId,
        mediaType,
        bytes,
        additional,
        error,
      })),
      state: this.state(now),
      createdAt: this.createdAt,
      startedAt: this.#started?.at,
      finishedAt: this.isTerminal(now) ? this.endsAt : undefined,
      aborted: this.#aborted !== undefined,
      deleted: this.deleted,
    };
  }

  /** 0 to 1. */
  #progress(now: number): number {
    if (!this.#started) return 0;
    const { at, durationMs } = this.#started;
    const until = this.#aborted?.at ?? now;
    return durationMs === 0 ? 1 : Math.min(1, (until - at) / durationMs);
  }
}

/** A flow at one moment. Times are milliseconds since the epoch. */
export interface FlowView extends Pick<Flow, 'id' | 'parameters' | 'additional' | 'createdAt' | 'deleted'> {
  readonly template: string;
  readonly inputs: readonly (Pick<Input, 'mediaType' | 'additional'> & Pick<Input['blob'], 'bytes' | 'sha256'>)[];
  /** The outputs that the flow will have, unless it is aborted. */
  readonly outputs: readonly (Omit<Output, 'content'> & { readonly bytes: number })[];
  readonly state: State;
  readonly startedAt: number | undefined;
  readonly finishedAt: number | undefined;
  readonly aborted: boolean;
}

function iso(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}
